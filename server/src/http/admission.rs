//! `POST /api/flashsales/{id}/admission`: the token without which a purchase leads nowhere, where
//! the rules ask for one. It is given from `admission_lead` before the start on, and may cost a
//! proof of work: then the first call gives a challenge, and the second, with its solution, the
//! token.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

use super::input::{Client, Json, Segment, present};
use super::json;
use super::problem::{Code, Problem};
use crate::admission::{Holder, Ticket};
use crate::app::Shared;
use crate::canary::Arm;
use crate::gate::Reason;
use crate::identity::Caller;
use crate::time::{Instant, wall_seconds};

/// `{}`, or a solved challenge.
#[derive(Deserialize)]
pub(super) struct Proof {
    #[serde(default, deserialize_with = "present")]
    challenge: Option<String>,
    #[serde(default, deserialize_with = "present")]
    solution: Option<String>,
}

#[derive(Serialize)]
struct TokenJson<'a> {
    token: &'a str,
    expires_at: Instant,
}

#[derive(Serialize)]
struct ChallengeJson<'a> {
    challenge: &'a str,
    /// Leading zero bits of SHA-256 over `challenge.solution`.
    zero_bits: u8,
    expires_at: Instant,
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
