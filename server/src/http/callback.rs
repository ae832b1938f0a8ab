//! `POST /api/payments/callback/{channel}`: a provider says what became of a payment.
//!
//! Whoever holds the channel's secret is believed about money, and about nothing else: what a
//! callback is worth is decided under the activity's lock. 200 means that it is on disk, whatever
//! the verdict; a provider that got no answer says it again.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName};
use axum::response::{IntoResponse, Response};
use bridge::sql::archived::PaymentFacts;
use bytes::Bytes;
use engine::core::command::Refusal;
use engine::core::limits::CALLBACK_BYTES_MAX;
use engine::{Callback, Recorded};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::archived;
use super::input::{Segment, parse_object, read_body, single};
use super::json;
use super::openapi::{Api, Operation, Tag, text_schema};
use super::problem::{Code, Problem};
use crate::app::{App, Shared};
use crate::payments::counts::{verdict_name, verdict_names};
use crate::payments::signature::{Signature, verify};
use crate::time::wall_seconds;

const X_SIGNATURE: HeaderName = HeaderName::from_static("x-signature");
const X_TIMESTAMP: HeaderName = HeaderName::from_static("x-timestamp");

/// Characters of `X-Signature`: its prefix and 32 bytes.
const SIGNATURE_CHARS_MAX: usize = 71;

/// Characters of `X-Timestamp`.
const TIMESTAMP_CHARS_MAX: usize = 16;

/// What became of a payment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, JsonSchema, Deserialize)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "PaymentOutcome")]
enum Outcome {
    Paid,
    Failed,
}

/// What a provider sends. Anything else in it is kept with it, and ignored.
#[derive(JsonSchema, Deserialize)]
#[schemars(rename = "Callback")]
pub(super) struct CallbackBody {
    payment_no: String,
    /// The provider's own number: the same one has one effect.
    transaction_no: String,
    /// In the smallest unit. A failure may leave it out.
    #[serde(default)]
    amount: u64,
    status: Outcome,
}

/// What was made of it.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Recorded")]
pub(super) struct RecordedJson<'a> {
    payment_no: &'a str,
    #[schemars(extend("enum" = verdict_names()))]
    verdict: &'static str,
    /// The refund that was asked for by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    refund_no: Option<&'a str>,
}

/// Where providers report.
pub(super) fn routes() -> Api {
    Api::new().post(
        "/api/payments/callback/{channel}",
        callback,
        Operation::new(Tag::Payments, "reportPayment", "A provider says what became of a payment")
            .about(
                "`X-Signature` is HMAC-SHA256 under the channel's secret over \
                 `<X-Timestamp>.<raw body>`, in hexadecimal. 200 means that it is on disk, \
                 whatever the verdict; a repeat has no effect. Money that fits nothing is \
                 recorded and flagged.",
            )
            .signed()
            .header(
                "X-Signature",
                true,
                text_schema::<SIGNATURE_CHARS_MAX>,
                "Hexadecimal, with or without `sha256=` in front.",
            )
            .header(
                "X-Timestamp",
                true,
                text_schema::<TIMESTAMP_CHARS_MAX>,
                "Unix time in seconds or milliseconds, at most 5 minutes from now.",
            )
            .takes::<CallbackBody>()
            .answers::<RecordedJson<'_>>(200, "Recorded")
            .writes()
            .asks_sql(),
    )
}

/// Records a callback.
pub(super) async fn callback(
    State(shared): State<Arc<Shared>>,
    Segment(channel): Segment,
    request: Request,
) -> Result<Response, Problem> {
    let headers = request.headers().clone();
    let bytes = read_body(request, &shared, CALLBACK_BYTES_MAX).await?;
    let app = shared.app()?;
    let signature = signed(app, &channel, &headers, &bytes)?;
    let body: CallbackBody = parse_object(&bytes)?;
    if app.payments.replays.is_known(&signature) {
        app.payments.counts.replayed();
        let payment_no = body.payment_no.as_str();
        let told = RecordedJson { payment_no, verdict: "repeated", refund_no: None };
        return json(&told).map(IntoResponse::into_response);
    }
    let recorded = record(app, &channel, &body, &bytes).await?;
    app.payments.replays.recorded(signature, wall_seconds());
    app.payments.counts.callback(recorded.verdict);
    if recorded.refund_no.is_some() {
        app.payments.refunds.notify_one();
    }
    let verdict = verdict_name(recorded.verdict);
    if needs_an_operator(&recorded) {
        let (payment_no, amount) = (&body.payment_no, body.amount);
        tracing::error!(
            channel,
            payment_no,
            amount,
            "a payment that fits nothing ({verdict}): an operator must see where its money belongs"
        );
    }
    let refund_no = recorded.refund_no.as_deref();
    json(&RecordedJson { payment_no: &body.payment_no, verdict, refund_no })
        .map(IntoResponse::into_response)
}

/// Money that came, pays nothing, and is not sent back by itself.
fn needs_an_operator(recorded: &Recorded) -> bool {
    matches!(verdict_name(recorded.verdict), "unknown" | "wrong_amount")
}

/// The signature, where it is the channel's. An unknown channel has none.
fn signed(
    app: &App,
    channel: &str,
    headers: &HeaderMap,
    body: &Bytes,
) -> Result<Signature, Problem> {
    let refuse = || {
        app.payments.counts.forged();
        Problem::from(Code::BadSignature)
    };
    let one = |name| single(headers, &name).ok().flatten().ok_or_else(refuse);
    let stamped = (one(X_TIMESTAMP)?, one(X_SIGNATURE)?);
    let secrets = app.payments.channels.secrets(channel);
    verify(secrets, stamped, body, wall_seconds()).map_err(|_| refuse())
}

/// Records it: durable once this returns.
async fn record(
    app: &App,
    channel: &str,
    body: &CallbackBody,
    bytes: &Bytes,
) -> Result<Recorded, Problem> {
    let callback = Callback {
        channel,
        payment_no: &body.payment_no,
        transaction: &body.transaction_no,
        amount: body.amount,
        paid: body.status == Outcome::Paid,
        body: bytes,
        archived: None,
    };
    // What the log has let go of, SQL knows: it says what it was, and the log what comes of that.
    let facts = archived::payment_facts(app, &callback).await?;
    let archived = facts.as_ref().map(PaymentFacts::as_command);
    let recorded = app.engine.record_payment(&Callback { archived, ..callback })?.durable().await?;
    recorded.map_err(|refusal| match refusal {
        // Without a row the projection has lost what the log had, or it was archived only now: the
        // provider says it again.
        Refusal::Archived => Problem::from(Code::DatabaseUnavailable),
        refusal => refusal.into(),
    })
}
