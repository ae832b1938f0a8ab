//! One request to a running server's admin API: a connection, a question, its answer.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

use super::token::{Signer, TokenError};
use super::trust::{self, TrustError};
use crate::identity::Role;

/// How long a connection is waited for.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long an answer is waited for: a comparison of everything takes its time.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3600);

/// How long the token lives that the request is signed with.
const TOKEN_TTL: Duration = Duration::from_secs(60);

/// The longest answer that is read.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// Where the server is, and who asks.
#[derive(Debug, clap::Args)]
pub(super) struct Server {
    /// The server: `http://HOST:PORT` or `https://HOST:PORT`
    #[arg(long, default_value = "http://127.0.0.1:8080", env = "SLUICE_URL")]
    pub(super) url: String,
    /// The authority that vouches for a server at `https://`, as PEM
    #[arg(long, value_name = "FILE")]
    pub(super) ca: Option<PathBuf>,
    /// Configuration file that names the secret to sign the request with
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Data directory whose secret signs the request (a demo keeps it there)
    #[arg(long, value_name = "DIR", env = "SLUICE_DATA_DIR")]
    pub(super) data_dir: Option<PathBuf>,
    /// An admin's token, instead of a secret to sign one with
    #[arg(long)]
    token: Option<String>,
}

/// Why there is no answer. Each message is one line that says what to do.
#[derive(Debug, thiserror::Error)]
pub(super) enum AdminError {
    /// The request can't be signed.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// No server is named.
    #[error("{0:?} is no address: http://HOST:PORT or https://HOST:PORT is wanted")]
    Url(String),
    /// Nobody can be trusted.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// Nobody listens.
    #[error("no server at {url}: {source}; start it, or give --url")]
    Connect {
        /// Where.
        url: String,
        /// Why.
        source: io::Error,
    },
    /// The connection broke.
    #[error("the server at {url} did not answer: {source}")]
    Io {
        /// Where.
        url: String,
        /// Why.
        source: io::Error,
    },
    /// It is no answer of Sluice's.
    #[error("what answers at {0} is no Sluice")]
    Malformed(String),
    /// It refused.
    #[error("the server refused: {status} {code}")]
    Refused {
        /// The status.
        status: u16,
        /// The problem's code.
        code: String,
    },
}

/// A connection, as it is or under TLS.
trait Stream: io::Read + io::Write {}

impl<S: io::Read + io::Write> Stream for S {}

impl Server {
    /// Sends `body` to `path` by POST; the answer's JSON, null where there is none.
    ///
    /// # Errors
    /// [`AdminError`].
    pub(super) fn post(&self, path: &str, body: &Value) -> Result<Value, AdminError> {
        let token = match &self.token {
            Some(token) => token.clone(),
            None => Signer::open(self.config.as_deref(), self.data_dir.as_deref())?.sign(
                1,
                Role::Admin,
                TOKEN_TTL,
            )?,
        };
        let malformed = || AdminError::Url(self.url.clone());
        let (scheme, authority) = self.url.split_once("://").ok_or_else(malformed)?;
        let authority = authority.trim_end_matches('/');
        let connect = |source| AdminError::Connect { url: self.url.clone(), source };
        let mut addresses = authority.to_socket_addrs().map_err(connect)?;
        let address = addresses.next().ok_or_else(malformed)?;
        let socket = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).map_err(connect)?;
        let io = |source| AdminError::Io { url: self.url.clone(), source };
        socket.set_read_timeout(Some(ANSWER_TIMEOUT)).map_err(io)?;
        let mut stream: Box<dyn Stream> = match scheme {
            "http" => Box::new(socket),
            "https" => Box::new(trust::begin(socket, authority, self.ca.as_deref())?),
            _ => return Err(malformed()),
        };
        let body = body.to_string();
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: {authority}\r\nAuthorization: Bearer {token}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).map_err(io)?;
        let mut answer = Vec::new();
        stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).map_err(io)?;
        read(&answer).ok_or_else(|| AdminError::Malformed(self.url.clone()))?
    }
}

/// An answer's JSON; `None` where it is no answer.
fn read(answer: &[u8]) -> Option<Result<Value, AdminError>> {
    let text = std::str::from_utf8(answer).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status: u16 = head.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    let body = match body {
        "" => Value::Null,
        body => serde_json::from_str(body).ok()?,
    };
    if (200..300).contains(&status) {
        return Some(Ok(body));
    }
    let code = body.get("code").and_then(Value::as_str).unwrap_or("unknown").to_owned();
    Some(Err(AdminError::Refused { status, code }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_and_a_refusal_told() {
        let good = read(b"HTTP/1.1 200 OK\r\nX: y\r\n\r\n{\"a\":1}").unwrap().unwrap();
        assert_eq!(good["a"], 1);
        let empty = read(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap().unwrap();
        assert_eq!(empty, Value::Null);
        let refused = read(b"HTTP/1.1 401 X\r\n\r\n{\"code\":\"unauthenticated\"}").unwrap();
        let said = refused.unwrap_err().to_string();
        assert_eq!(said, "the server refused: 401 unauthenticated");
        for garbage in [&b"SSH-2.0"[..], b"", b"HTTP/1.1 200 OK\r\n\r\n<html>", b"\xFF"] {
            assert!(read(garbage).is_none());
        }
    }
}
