//! Connections from outside: bounded in number, closed when they say nothing, and no error of one ends the others.

use super::limits::{CONNECTIONS_MAX, FIRST_BYTE_TIMEOUT};
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
}

impl Incoming {
    pub(super) fn new(listener: TcpListener) -> Incoming {
        Incoming { listener, live: Arc::default(), pause: None }
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
                    let first = Some(Box::pin(sleep(FIRST_BYTE_TIMEOUT)));
                    return Poll::Ready(Some(Ok(Connection { stream, live: self.live.clone(), first })));
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
    /// Runs until the first byte has come.
    first: Option<Pin<Box<Sleep>>>,
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
        match Pin::new(&mut self.stream).poll_read(cx, buffer) {
            Poll::Ready(outcome) => {
                self.first = None;
                Poll::Ready(outcome)
            }
            Poll::Pending => match &mut self.first {
                Some(first) => {
                    ready!(first.as_mut().poll(cx));
                    Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
                }
                None => Poll::Pending,
            },
        }
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
