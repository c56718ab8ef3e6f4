//! As much of HTTP/1.1 as Prometheus needs: one GET per connection, answered and closed.
//!
//! What comes is untrusted: it is read up to a bound and a deadline, and anything but a GET or HEAD of a known path is
//! answered with the status that says so, or not at all.

use crate::time::now;
use core::time::Duration;
use std::io::{Read, Write};
use std::net::TcpStream;

/// Longest request.
const REQUEST_BYTES_MAX: usize = 8192;
/// How long a connection may take in all.
const PATIENCE: Duration = Duration::from_secs(1);

/// What to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Metrics { body: bool },
    Index { body: bool },
    Refused(&'static str),
}

/// Answers the one request of a connection. Blocks for about a second at most.
pub fn answer(mut connection: TcpStream, text: impl FnOnce() -> String) {
    let deadline = now().after(PATIENCE);
    let mut request = Vec::new();
    let verdict = loop {
        if let Some(verdict) = judge(&request) {
            break verdict;
        }
        let left = deadline.remaining();
        // Whatever goes wrong with a connection ends it, and nothing else.
        if left.is_zero()
            || connection.set_nonblocking(false).is_err()
            || connection.set_read_timeout(Some(left)).is_err()
        {
            return;
        }
        let mut some = [0_u8; 1024];
        match connection.read(&mut some) {
            Ok(0) | Err(_) => return,
            Ok(count) => request.extend_from_slice(&some[..count]),
        }
    };
    let (status, kind, content, body) = match verdict {
        Verdict::Metrics { body } => ("200 OK", "text/plain; version=0.0.4; charset=utf-8", text(), body),
        Verdict::Index { body } => ("200 OK", "text/plain; charset=utf-8", "reclane: GET /metrics\n".to_owned(), body),
        Verdict::Refused(status) => (status, "text/plain; charset=utf-8", format!("{status}\n"), true),
    };
    let mut reply = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        content.len()
    );
    if body {
        reply.push_str(&content);
    }
    send(&mut connection, reply.as_bytes());
}

/// Sends as much as the peer takes in time.
fn send(connection: &mut TcpStream, mut bytes: &[u8]) {
    let deadline = now().after(PATIENCE);
    while !bytes.is_empty() {
        let left = deadline.remaining();
        if left.is_zero() || connection.set_write_timeout(Some(left)).is_err() {
            return;
        }
        match connection.write(bytes) {
            Ok(0) | Err(_) => return,
            Ok(count) => bytes = &bytes[count..],
        }
    }
    let _ = connection.shutdown(std::net::Shutdown::Write);
}

/// Judges what has come so far; None: there is more to come.
fn judge(request: &[u8]) -> Option<Verdict> {
    let end = request.windows(2).position(|two| two == b"\r\n");
    let whole = request.windows(4).any(|four| four == b"\r\n\r\n");
    let Some(end) = end.filter(|_| whole) else {
        return (request.len() > REQUEST_BYTES_MAX).then_some(Verdict::Refused("431 Request Header Fields Too Large"));
    };
    let line = core::str::from_utf8(&request[..end]).unwrap_or("");
    let words: Vec<&str> = line.split(' ').collect();
    let [method, target, version] = words[..] else { return Some(Verdict::Refused("400 Bad Request")) };
    if !version.starts_with("HTTP/1.") || !target.starts_with('/') {
        return Some(Verdict::Refused("400 Bad Request"));
    }
    let body = method == "GET";
    if !body && method != "HEAD" {
        return Some(Verdict::Refused("405 Method Not Allowed"));
    }
    Some(match target.split('?').next().unwrap_or("") {
        "/metrics" => Verdict::Metrics { body },
        "/" => Verdict::Index { body },
        _ => Verdict::Refused("404 Not Found"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_gets_of_known_paths_are_answered() {
        let metrics = Verdict::Metrics { body: true };
        assert_eq!(judge(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"), Some(metrics));
        assert_eq!(judge(b"GET /metrics?x=1 HTTP/1.0\r\n\r\n"), Some(metrics));
        assert_eq!(judge(b"HEAD /metrics HTTP/1.1\r\n\r\n"), Some(Verdict::Metrics { body: false }));
        let refused = |request: &[u8]| match judge(request) {
            Some(Verdict::Refused(status)) => status[..3].to_owned(),
            other => panic!("{other:?}"),
        };
        assert_eq!(refused(b"GET /etc/passwd HTTP/1.1\r\n\r\n"), "404");
        assert_eq!(refused(b"POST /metrics HTTP/1.1\r\n\r\n"), "405");
        for garbage in
            [&b"\r\n\r\n"[..], b"GET /metrics\r\n\r\n", b"\xff\xfe x y\r\n\r\n", b"GET metrics HTTP/1.1\r\n\r\n"]
        {
            assert_eq!(refused(garbage), "400");
        }
        assert_eq!(refused(&[b'a'; REQUEST_BYTES_MAX + 1]), "431");
    }

    #[test]
    fn half_a_request_waits_for_the_rest() {
        for part in [&b""[..], b"GET /met", b"GET /metrics HTTP/1.1\r\n", b"GET /metrics HTTP/1.1\r\nHost: x\r\n"] {
            assert_eq!(judge(part), None);
        }
    }
}
