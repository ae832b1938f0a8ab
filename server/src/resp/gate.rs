//! Who may buy: the gate's blacklist and limits, for buyers whom a back end names.
//!
//! The order is that of HTTP: blacklist, known request id, kill switch, limits. The kill switch is
//! the engine's, which answers it after known request ids.

use std::fmt;

use engine::core::ids::{ActivityId, UserId};
use engine::{Busy, Engine};

use super::Port;
use super::session::Session;
use super::turn::Turn;
use crate::gate::{Kind, Reason};
use crate::http::problem::Code;
use crate::limits::Limited;

/// Why a purchase is not let in.
pub(super) enum Closed {
    /// The buyer is on the blacklist.
    Blacklisted,
    /// A limit is reached.
    Limited(Limited),
    /// The log does not tell whether the request is known.
    Busy(Busy),
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blacklisted => f.write_str("BLACKLISTED the user may not buy"),
            // To a caller it is as if the log were full: nothing was reserved, later it may be.
            Self::Limited(Limited { scope, rate, wait_ns }) => write!(
                f,
                "OVERLOADED the limit '{scope}' of {rate} is reached; nothing was reserved; again \
                 in {} ms",
                wait_ns.div_ceil(1_000_000)
            ),
            Self::Busy(busy) => f.write_str(super::render::busy_text(*busy)),
        }
    }
}

/// Lets a purchase in, or counts why not.
///
/// # Errors
/// [`Closed`]; nothing was taken from a limit then.
pub(super) fn pass(
    port: &Port,
    engine: &Engine,
    turn: &mut Turn,
    session: &Session,
    activity: ActivityId,
    purchase: (UserId, &str, u32),
) -> Result<(), Closed> {
    let user = purchase.0;
    let closed = match turn.blacklist.holds(engine, user) {
        true => Closed::Blacklisted,
        false => match limit(port, engine, turn, activity, purchase) {
            Ok(()) => return Ok(()),
            Err(closed) => closed,
        },
    };
    match &closed {
        Closed::Blacklisted => {
            port.refused(Reason::Listed(Kind::User), Code::Blacklisted, user, session.ip);
        }
        Closed::Limited(limited) => {
            port.refused(Reason::Limited(limited.scope), Code::RateLimited, user, session.ip);
        }
        Closed::Busy(_) => {}
    }
    Err(closed)
}

/// Holds a purchase against the limits. A repeat takes nothing from them, and while everything is
/// stopped nothing is taken at all. Of what is archived nothing can be bought: SQL says what was.
fn limit(
    port: &Port,
    engine: &Engine,
    turn: &mut Turn,
    activity: ActivityId,
    (user, request_id, quantity): (UserId, &str, u32),
) -> Result<(), Closed> {
    let gate = &port.shared.gate;
    if gate.is_open() || engine.is_stopped() || engine.archived(activity).is_some() {
        return Ok(());
    }
    // What it repeats may be among the purchases of this turn, which nobody knows before.
    turn.decide_those_of(engine, user);
    let known = engine.find_request(activity, user, request_id, quantity);
    if known.map_err(Closed::Busy)?.is_some() {
        return Ok(());
    }
    gate.admit_named(user, activity, engine.now_ms()).map_err(Closed::Limited)
}
