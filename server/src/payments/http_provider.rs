//! A provider behind a URL: each question is a signed POST.
//!
//! ```text
//! POST <url>   X-Timestamp, X-Signature (as in a callback), Idempotency-Key: the refund's number
//! {"refund_no":"...","payment_no":"...","transaction_no":"...","amount":1999}
//!
//! 200 {"status":"settled"} | {"status":"accepted"} | {"status":"refused","reason":"..."}
//! ```
//!
//! Any other answer is none: the question is put again. TLS is a proxy's business, towards the
//! provider as towards shoppers.

use std::time::Duration;

use axum::http::{Request, Uri, header};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::net::TcpStream;

use super::provider::{Answer, Ask, Asking, Provider, ProviderError};
use super::signature::sign;
use crate::config::Secret;
use crate::time::wall_seconds;

/// For the whole exchange.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of an answer that are read.
const ANSWER_BYTES_MAX: usize = 16 * 1024;

/// A provider that listens for HTTP.
pub(super) struct HttpProvider {
    url: Uri,
    secret: Secret,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    Settled,
    Accepted,
    Refused,
}

#[derive(Deserialize)]
struct AnswerJson {
    status: Status,
    #[serde(default)]
    reason: String,
}

impl HttpProvider {
    /// The provider at `url`, where that is `http://host[:port]/path`.
    pub(super) fn at(url: &str, secret: Secret) -> Option<Self> {
        let url: Uri = url.parse().ok()?;
        let fits = url.scheme_str() == Some("http") && url.host().is_some();
        let plain = url.authority().is_some_and(|authority| !authority.as_str().contains('@'));
        (fits && plain).then_some(Self { url, secret })
    }

    async fn ask(&self, ask: &Ask) -> Result<Answer, ProviderError> {
        let (host, port) = (self.url.host().unwrap_or_default(), self.url.port_u16().unwrap_or(80));
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let stream = TcpStream::connect((host, port)).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let exchange = async {
            let answer = sender.send_request(self.request(ask)?).await?;
            let status = answer.status();
            if !status.is_success() {
                return Err(ProviderError::Status(status.as_u16()));
            }
            let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
            let body = body.map_err(|_| ProviderError::Malformed)?.to_bytes();
            let answer = serde_json::from_slice(&body).map_err(|_| ProviderError::Malformed)?;
            Ok(match answer {
                AnswerJson { status: Status::Settled, .. } => Answer::Settled,
                AnswerJson { status: Status::Accepted, .. } => Answer::Taken,
                AnswerJson { status: Status::Refused, reason } => Answer::Refused(reason),
            })
        };
        tokio::pin!(exchange);
        tokio::select! {
            answer = &mut exchange => answer,
            // The connection moves the exchange's bytes; it ends first only where it breaks, or
            // with an answer that says so.
            broken = connection => match broken {
                Ok(()) => exchange.await,
                Err(error) => Err(error.into()),
            },
        }
    }

    fn request(&self, ask: &Ask) -> Result<Request<Full<Bytes>>, ProviderError> {
        let body = serde_json::to_vec(ask).map_err(|_| ProviderError::Malformed)?;
        let now = wall_seconds();
        let authority = self.url.authority().map_or("", |authority| authority.as_str());
        let path = self.url.path_and_query().map_or("/", |path| path.as_str());
        let request = Request::post(path)
            .header(header::HOST, authority)
            .header(header::CONTENT_TYPE, "application/json")
            .header("x-timestamp", now)
            .header("x-signature", sign(&self.secret, now, &body))
            .header("idempotency-key", &ask.refund_no);
        Ok(request.body(Full::new(Bytes::from(body)))?)
    }
}

impl Provider for HttpProvider {
    fn refund<'a>(&'a self, ask: &'a Ask) -> Asking<'a> {
        Box::pin(async move {
            let answer = tokio::time::timeout(TIMEOUT, self.ask(ask)).await;
            answer.unwrap_or(Err(ProviderError::TimedOut))
        })
    }
}
