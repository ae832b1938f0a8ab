//! `POST /api/flashsales/{id}/admission`: the token without which a purchase leads nowhere, where
//! the rules ask for one. It is given from `admission_lead` before the start on, and may cost a
//! proof of work: then the first call gives a challenge, and the second, with its solution, the
//! token.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::input::{Client, Json, Segment, present};
use super::json;
use super::openapi::{Api, Operation, Tag};
use super::problem::{Code, Problem};
use crate::admission::{Holder, Ticket};
use crate::app::Shared;
use crate::canary::Arm;
use crate::gate::Reason;
use crate::identity::Caller;
use crate::time::{Instant, wall_seconds};

/// `{}`, or a solved challenge.
#[derive(JsonSchema, Deserialize)]
pub(super) struct Proof {
    #[serde(default, deserialize_with = "present")]
    /// As it was given.
    challenge: Option<String>,
    #[serde(default, deserialize_with = "present")]
    /// A text so that SHA-256 over `challenge.solution` begins with the zero bits.
    solution: Option<String>,
}

/// A token, or what it costs.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "the shape of the answer, for the document")]
enum Given {
    Token(TokenJson<'static>),
    Challenge(ChallengeJson<'static>),
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "AdmissionToken")]
struct TokenJson<'a> {
    /// What goes into `X-Admission-Token`.
    token: &'a str,
    expires_at: Instant,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Challenge")]
struct ChallengeJson<'a> {
    challenge: &'a str,
    /// Leading zero bits of SHA-256 over `challenge.solution`.
    zero_bits: u8,
    expires_at: Instant,
}

/// The way in, where the rules ask for one.
pub(super) fn routes() -> Api {
    Api::new().post(
        "/api/flashsales/{id}/admission",
        admission,
        Operation::new(Tag::Sale, "admit", "Get the token that a purchase may need")
            .about(
                "Where the rules ask for admission, a purchase needs `X-Admission-Token`. It is \
                 given shortly before the start, to one user for one activity, and may cost a \
                 proof of work: the first call, with `{}`, answers a challenge, the second, with \
                 its solution, the token.",
            )
            .answers::<Given>(200, "A token, or a challenge to solve first")
            .refuses(&[
                Code::Blacklisted,
                Code::AdmissionRequired,
                Code::ActivityNotFound,
                Code::NotStarted,
            ]),
    )
}

/// Gives a token, or a challenge.
pub(super) async fn admission(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    client: Client,
    segment: Segment,
    Json(proof): Json<Proof>,
) -> Result<Response, Problem> {
    let (engine, gate) = (&shared.app()?.engine, &shared.gate);
    let now_ms = engine.now_ms();
    gate.refuse_listed(Some(caller.user), client.ip, client.device.as_deref(), now_ms)?;
    let view = engine.activity(segment.activity()?).ok_or(Code::ActivityNotFound)?;
    let rules = gate.rules();
    let limits = match rules.canary.arm(caller, client.arm) {
        Arm::Stable => &rules.stable,
        Arm::Canary => &rules.trial,
    };
    let lead_ms = u64::try_from(limits.admission_lead.0.as_millis()).unwrap_or(u64::MAX);
    if now_ms < view.terms.start_ms.saturating_sub(lead_ms) {
        return Err(Code::NotStarted.into());
    }
    let (holder, now) = (Holder { user: caller.user, activity: view.id }, wall_seconds());
    let bits = limits.proof_bits.0;
    let ticket = match (&proof.challenge, &proof.solution) {
        _ if bits == 0 => gate.admission.token(holder, now),
        (Some(challenge), Some(solution)) => {
            let solved = gate.admission.solved(holder, challenge, solution, now);
            solved.map_err(|_| {
                gate.counts.refused(Reason::NotAdmitted, Some(caller.user), client.ip);
                Code::AdmissionRequired
            })?
        }
        _ => {
            let Ticket { text, expires } = gate.admission.challenge(holder, bits, now);
            let expires_at = Instant(expires.saturating_mul(1000));
            let asked = ChallengeJson { challenge: &text, zero_bits: bits, expires_at };
            return json(&asked).map(IntoResponse::into_response);
        }
    };
    let expires_at = Instant(ticket.expires.saturating_mul(1000));
    json(&TokenJson { token: &ticket.text, expires_at }).map(IntoResponse::into_response)
}
