//! Archiving: an activity whose life is over leaves memory.
//!
//! | not before                                    | since                                        |
//! |-----------------------------------------------|----------------------------------------------|
//! | a day after its window                        | late money and refunds come soon or never    |
//! | nothing is locked, no refund is open          | what moves units and money needs them here   |
//! | no dead letter is open                        | an operator has yet to decide                |
//! | every sink covers its last record             | from then on SQL answers for it              |

use super::super::event::Body;
use super::super::ids::ActivityId;
use super::super::limits::ARCHIVE_AFTER_MS;
use super::super::shard::Shard;
use super::{Event, Events, Outcome};

/// Archives an activity, if its time has come. `covered_seq` is the sequence of the shard that
/// every sink covers.
pub(super) fn archive<'a>(
    shard: &Shard,
    id: ActivityId,
    covered_seq: u64,
    at_ms: u64,
) -> Outcome<'a> {
    let Some(activity) = shard.activity(id) else { return Outcome::NothingDue(None) };
    let due_ms = activity.terms.end_ms.saturating_add(ARCHIVE_AFTER_MS);
    if at_ms < due_ms {
        return Outcome::NothingDue(Some(due_ms));
    }
    if !activity.is_settled() || activity.published.live_seq() > covered_seq {
        return Outcome::NothingDue(None);
    }
    let body = Body::Archived { activity: id };
    Outcome::Accepted { events: Events::one(Event { at_ms, body }) }
}
