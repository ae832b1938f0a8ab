//! Answers to what is no request: a head that hyper can't read.
//!
//! hyper answers such a head by itself, with a status and nothing else, and closes. Nobody else
//! writes heads without `X-Request-Id`, so its answer is known by that, on its way into the
//! socket, and ours is written in its place: a problem document with an id of its own, like all
//! other answers. The socket is then closed with patience: closing it over unread bytes resets
//! the connection and may destroy the answer on its way.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Buf as _;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::http::problem::Code;
use crate::http::unique;

/// hyper's own answers are this long at most: a status, two headers and the date.
const AUTOMATIC_BYTES_MAX: usize = 160;

/// For a client to take its answer and stop sending.
pub(super) const FAREWELL_TIMEOUT: Duration = Duration::from_millis(500);

/// What is read away of a refused client at most; beyond it, it is cut off.
const FAREWELL_BYTES_MAX: usize = 1 << 20;

/// The answer to a connection that carries no request we could read: a problem with a request id,
/// then the end.
pub(super) fn answer(code: Code, date: &str) -> Vec<u8> {
    let (body, retry) = (code.document(), code.retry_after());
    let retry = retry.map(|after| format!("retry-after: {after}\r\n")).unwrap_or_default();
    let mut answer = format!(
        "HTTP/1.1 {}\r\ncontent-type: application/problem+json\r\nx-request-id: {}\r\n{retry}{date}\
         connection: close\r\ncontent-length: {}\r\n\r\n",
        code.status(),
        unique(),
        body.len()
    )
    .into_bytes();
    answer.extend_from_slice(body);
    answer
}

/// Where hyper's own answer begins in what is being written, and ours to the same fault.
fn automatic(bytes: &[u8]) -> Option<(usize, Vec<u8>)> {
    if !bytes.ends_with(b"\r\n\r\n") {
        return None;
    }
    let tail = bytes.len().saturating_sub(AUTOMATIC_BYTES_MAX);
    let start = bytes.get(tail..)?.windows(7).rposition(|window| window == b"HTTP/1.")?;
    let head = std::str::from_utf8(bytes.get(tail + start..)?).ok()?;
    let mut lines = head.split("\r\n");
    let code = match lines.next()?.split(' ').nth(1)? {
        "400" => Code::InvalidRequest,
        "414" => Code::UriTooLong,
        "431" => Code::HeadersTooLarge,
        _ => return None,
    };
    let has = |wanted: &str| head.split("\r\n").any(|line| line.starts_with(wanted));
    if has("x-request-id:") || !has("content-length: 0") {
        return None;
    }
    let date = lines.find(|line| line.starts_with("date:"));
    let date = date.map(|date| format!("{date}\r\n")).unwrap_or_default();
    Some((tail + start, answer(code, &date)))
}

/// The socket `S`, on which nothing is answered without a request id.
#[derive(Debug)]
pub(super) struct Refused<S> {
    socket: S,
    /// Our answer, as far as it is not written, in the place of one of so many bytes.
    own: Option<(io::Cursor<Vec<u8>>, usize)>,
    farewell: Option<Farewell>,
}

/// A connection that ends with a refusal.
#[derive(Debug)]
struct Farewell {
    deadline: Pin<Box<Sleep>>,
    read_bytes: usize,
    is_shut: bool,
}

impl<S> Refused<S> {
    pub(super) fn new(socket: S) -> Self {
        Self { socket, own: None, farewell: None }
    }
}

impl<S: AsyncWrite + Unpin> Refused<S> {
    /// Writes ours, and says that theirs was written.
    fn poll_own(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let Some((answer, stands_for)) = &mut self.own else { return Poll::Ready(Ok(0)) };
        while answer.has_remaining() {
            let written = ready!(Pin::new(&mut self.socket).poll_write(cx, answer.chunk()))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            answer.advance(written);
        }
        let stands_for = *stands_for;
        self.own = None;
        Poll::Ready(Ok(stands_for))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Refused<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_read(cx, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Refused<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.own.is_none() {
            match automatic(bytes) {
                None => return Pin::new(&mut this.socket).poll_write(cx, bytes),
                Some((0, answer)) => {
                    this.own = Some((io::Cursor::new(answer), bytes.len()));
                    this.farewell = Some(Farewell {
                        deadline: Box::pin(sleep(FAREWELL_TIMEOUT)),
                        read_bytes: 0,
                        is_shut: false,
                    });
                }
                // What stands before it is an answer to a request: first that alone.
                Some((start, _)) => {
                    let before = bytes.get(..start).unwrap_or(bytes);
                    return Pin::new(&mut this.socket).poll_write(cx, before);
                }
            }
        }
        this.poll_own(cx)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let Some(farewell) = &mut this.farewell else {
            return Pin::new(&mut this.socket).poll_shutdown(cx);
        };
        if farewell.deadline.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Ok(()));
        }
        if !farewell.is_shut {
            ready!(Pin::new(&mut this.socket).poll_shutdown(cx))?;
            farewell.is_shut = true;
        }
        let mut rest = [0; 4096];
        while farewell.read_bytes < FAREWELL_BYTES_MAX {
            let mut rest = ReadBuf::new(&mut rest);
            ready!(Pin::new(&mut this.socket).poll_read(cx, &mut rest))?;
            match rest.filled().len() {
                0 => break,
                count => farewell.read_bytes += count,
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let Some((index, last)) = buffers.iter().enumerate().rfind(|(_, it)| !it.is_empty()) else {
            return Poll::Ready(Ok(0));
        };
        if self.own.is_none() && automatic(last).is_none() {
            return Pin::new(&mut self.get_mut().socket).poll_write_vectored(cx, buffers);
        }
        // One that is no part of it comes first, else the last alone.
        let first = buffers.iter().take(index).find(|it| !it.is_empty());
        self.poll_write(cx, first.unwrap_or(last))
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    const HYPERS: &str = "HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n\
                          content-length: 0\r\ndate: Sun, 29 Nov 2026 20:22:04 GMT\r\n\r\n";
    const OURS: &str = "HTTP/1.1 400 Bad Request\r\nx-request-id: a\r\ncontent-length: 0\r\n\r\n";
    const BEFORE: &str = "HTTP/1.1 200 OK\r\nx-request-id: a\r\ncontent-length: 2\r\n\r\n{}";

    fn written(parts: &[&str]) -> String {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            // Narrower than an answer: it leaves in pieces.
            let (mut client, server) = duplex(64);
            let mut socket = Refused::new(server);
            let write = async {
                for part in parts {
                    socket.write_all(part.as_bytes()).await.unwrap();
                }
                drop(socket);
            };
            let mut text = String::new();
            let (_, read) = tokio::join!(write, client.read_to_string(&mut text));
            read.unwrap();
            text
        })
    }

    #[test]
    fn an_answer_without_a_request_id_is_replaced_by_one_with() {
        let text = written(&[HYPERS]);
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 431 Request Header Fields Too Large\r\n"), "{head}");
        assert!(head.contains("\r\nx-request-id: ") && head.contains("\r\ndate: Sun"), "{head}");
        assert!(head.contains(&format!("\r\ncontent-length: {}", body.len())), "{head}");
        let document: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(document["code"], "headers_too_large");
    }

    #[test]
    fn every_other_answer_leaves_as_it_is_whatever_stands_behind_it() {
        for parts in [[BEFORE, OURS], [OURS, BEFORE]] {
            assert_eq!(written(&parts), parts.concat());
        }
        let text = written(&[&format!("{BEFORE}{HYPERS}")]);
        let rest = text.strip_prefix(BEFORE).unwrap();
        assert!(rest.contains("x-request-id: ") && !rest.contains("content-length: 0"), "{rest}");
    }
}
