//! Connections from outside: bounded in number, closed when they do not come to the point, and no error of one ends the others.

use super::limits::{CONNECTIONS_MAX, HELLO_BYTES};
use crate::sync::{Arc, AtomicUsize, Ordering};
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, ready};
use core::time::Duration;
use std::io;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Sleep, sleep};
use tokio_stream::Stream;
use tonic::transport::server::Connected;

/// Pause after an accept that failed for want of descriptors or memory: trying again at once would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The listening socket as a stream of connections.
#[derive(Debug)]
pub(super) struct Incoming {
    listener: TcpListener,
    live: Arc<AtomicUsize>,
    pause: Option<Pin<Box<Sleep>>>,
    hello_timeout: Duration,
}

impl Incoming {
    /// `hello_timeout`: how long a connection has for its first words.
    pub(super) fn new(listener: TcpListener, hello_timeout: Duration) -> Incoming {
        Incoming { listener, live: Arc::default(), pause: None, hello_timeout }
    }
}

impl Stream for Incoming {
    type Item = io::Result<Connection>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(cx));
                self.pause = None;
            }
            match ready!(self.listener.poll_accept(cx)) {
                Ok((stream, _)) if self.live.load(Ordering::Relaxed) >= CONNECTIONS_MAX => {
                    crate::event!(
                        crate::observe::Level::WARN,
                        crate::observe::events::CONTROL_CONNECTION_REFUSED,
                        connections = CONNECTIONS_MAX,
                        "too many"
                    );
                    drop(stream);
                }
                Ok((stream, _)) => {
                    // Answers are small and awaited: they must not wait for more bytes. Slower without, not wrong.
                    drop(stream.set_nodelay(true));
                    self.live.fetch_add(1, Ordering::Relaxed);
                    let hello = Some((HELLO_BYTES, Box::pin(sleep(self.hello_timeout))));
                    return Poll::Ready(Some(Ok(Connection { stream, live: self.live.clone(), hello })));
                }
                Err(error) => {
                    crate::event!(crate::observe::Level::WARN, crate::observe::events::CONTROL_ACCEPT_FAILED, %error, "trying again");
                    self.pause = Some(Box::pin(sleep(ACCEPT_PAUSE)));
                }
            }
        }
    }
}

/// One accepted connection.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    live: Arc<AtomicUsize>,
    /// What is still to come of the first words, and until when.
    hello: Option<(usize, Pin<Box<Sleep>>)>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.live.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Connected for Connection {
    type ConnectInfo = ();
    fn connect_info(&self) {}
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let outcome = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let Some((missing, late)) = &mut self.hello else { return outcome };
        if outcome.is_pending() {
            ready!(late.as_mut().poll(cx));
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        *missing = missing.saturating_sub(buffer.filled().len() - before);
        if *missing == 0 {
            self.hello = None;
        }
        outcome
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use tokio::io::AsyncReadExt;
    use tokio_stream::StreamExt;

    #[test]
    fn who_does_not_come_to_the_point_is_hung_up_on() {
        let runtime = super::super::runtime::event_loop("t").unwrap();
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        runtime.block_on(async {
            let mut incoming = Incoming::new(TcpListener::from_std(listener).unwrap(), Duration::from_millis(50));
            let mut read = async |words: &[u8], then: &[u8]| {
                let mut client = std::net::TcpStream::connect(address).unwrap();
                client.write_all(words).unwrap();
                let mut connection = incoming.next().await.unwrap().unwrap();
                let mut seen = vec![0; words.len()];
                connection.read_exact(&mut seen).await.unwrap();
                assert_eq!(seen, words);
                if !then.is_empty() {
                    // Long after the time for the first words.
                    sleep(Duration::from_millis(200)).await;
                    client.write_all(then).unwrap();
                }
                (connection.read_u8().await.map_err(|error| error.kind()), client)
            };
            for silent in [&b""[..], b"P", &[1; HELLO_BYTES - 1]] {
                let (outcome, mut client) = read(silent, b"").await;
                assert_eq!(outcome, Err(io::ErrorKind::TimedOut));
                assert_eq!(client.read(&mut [0]).unwrap(), 0);
            }
            assert_eq!(read(&[1; HELLO_BYTES], b"x").await.0, Ok(b'x'));
        });
    }
}
