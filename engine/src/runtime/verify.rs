//! Checking a log from its bytes alone: every record, the exact-sale equation, every user's limit.
//!
//! Replay's `apply` holds each event against the state before it. Beside it stands a second,
//! plainer book that only adds up what the records say happened: the two must agree.

use std::collections::BTreeMap;
use std::path::Path;

use wal::{Lsn, PosixDevice, TornTail};

use super::error::{OpenError, Witness};
use super::owner::Owner;
use super::replay::Replayed;
use crate::core::event::{Body, Event, Figures};
use crate::core::ids::{ActivityId, UserId};

/// What a log adds up to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VerifyReport {
    /// Its activities, by id.
    pub activities: Vec<ActivityReport>,
    /// Its last record.
    pub last_lsn: Lsn,
    /// What the next start will cut.
    pub torn_tail: Option<TornTail>,
    /// A server has the log open: what it has not promised yet was left out.
    pub beside_running_server: bool,
    /// What does not add up, a line each; empty for a log that is fine.
    pub problems: Vec<String>,
}

/// One activity's units.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ActivityReport {
    /// The activity.
    pub id: ActivityId,
    /// All units.
    pub total: u64,
    /// Free.
    pub available: u32,
    /// Reserved, unpaid.
    pub locked: u32,
    /// Paid.
    pub sold: u32,
    /// Reservations given back.
    pub rolled_back: u64,
    /// Reservations ever accepted.
    pub reservations: u64,
}

/// Reads and checks the log in `data_dir`.
///
/// # Errors
/// [`OpenError`] where it can't be read, or is damaged where no torn tail can be.
pub fn verify(data_dir: &Path) -> Result<VerifyReport, OpenError> {
    let device = PosixDevice::new(data_dir);
    let format = wal::read_format(&device)?;
    let owner = Owner::decode(&format.owner).ok_or(OpenError::UnknownConstants)?;
    let mut replayed = Replayed::new(format.shard_count, &owner, 0, Book::default());
    let inspection = wal::inspect(&device, &mut |record| Ok(replayed.take(record)?))?;
    let Replayed { shards, mut witness, .. } = replayed;
    let mut activities = Vec::new();
    for (id, activity) in shards.iter().flat_map(|shard| shard.activities()) {
        let Figures { available, locked, sold } = activity.figures();
        let page = witness.pages.entry(id).or_default();
        if page.figures() != Some(activity.figures()) || page.total() != Some(activity.total()) {
            let line = format!("activity {id}: the records add up to {page:?}, not the state");
            witness.problems.push(line);
        }
        activities.push(ActivityReport {
            id,
            total: activity.figures().total(),
            available,
            locked,
            sold,
            rolled_back: page.rolled_back,
            reservations: page.reservations,
        });
    }
    activities.sort_by_key(|activity| activity.id);
    Ok(VerifyReport {
        activities,
        last_lsn: inspection.last_lsn,
        torn_tail: inspection.torn_tail,
        beside_running_server: inspection.beside_running_server,
        problems: witness.problems,
    })
}

/// The plain book.
#[derive(Default)]
struct Book {
    pages: BTreeMap<ActivityId, Page>,
    problems: Vec<String>,
}

/// One activity: signed sums, so that a wrong one shows instead of wrapping.
#[derive(Debug, Default)]
struct Page {
    total: i64,
    locked: i64,
    sold: i64,
    limit: i64,
    held: BTreeMap<UserId, i64>,
    rolled_back: u64,
    reservations: u64,
}

impl Page {
    fn total(&self) -> Option<u32> {
        u32::try_from(self.total).ok()
    }

    fn figures(&self) -> Option<Figures> {
        Some(Figures {
            available: u32::try_from(self.total - self.locked - self.sold).ok()?,
            locked: u32::try_from(self.locked).ok()?,
            sold: u32::try_from(self.sold).ok()?,
        })
    }

    fn hold(&mut self, user: UserId, units: i64) -> i64 {
        let held = self.held.entry(user).or_default();
        *held += units;
        *held
    }
}

impl Witness for Book {
    fn saw(&mut self, event: &Event<'_>) {
        let Some(id) = crate::core::codec::activity(&event.body) else { return };
        let page = self.pages.entry(id).or_default();
        let mut told = None;
        match event.body {
            Body::ActivityCreated { total, definition, .. } => {
                page.total = i64::from(total);
                page.limit = i64::from(definition.per_user_limit);
            }
            Body::ActivityAdopted { figures, definition, .. } => {
                page.total = i64::try_from(figures.total()).unwrap_or(i64::MAX);
                page.locked = i64::from(figures.locked);
                page.sold = i64::from(figures.sold);
                page.limit = i64::from(definition.per_user_limit);
            }
            Body::ActivityEdited { definition, figures, .. } => {
                page.limit = i64::from(definition.per_user_limit);
                page.total = i64::try_from(figures.total()).unwrap_or(i64::MAX);
            }
            Body::Restocked { quantity, figures, .. } => {
                page.total += i64::from(quantity);
                told = Some(figures);
            }
            Body::Decreased { quantity, figures, .. } => {
                page.total -= i64::from(quantity);
                told = Some(figures);
            }
            Body::Reserved { user, quantity, figures, .. } => {
                page.locked += i64::from(quantity);
                page.reservations += 1;
                if page.hold(user, i64::from(quantity)) > page.limit {
                    self.problems.push(format!("activity {id}: user {user} is above the limit"));
                }
                told = Some(figures);
            }
            Body::Confirmed { quantity, figures, .. } => {
                page.locked -= i64::from(quantity);
                page.sold += i64::from(quantity);
                told = Some(figures);
            }
            Body::Reinstated { user, quantity, figures, .. } => {
                page.sold += i64::from(quantity);
                page.rolled_back = page.rolled_back.saturating_sub(1);
                page.hold(user, i64::from(quantity));
                told = Some(figures);
            }
            Body::Restored { user, quantity, figures, .. } => {
                page.locked -= i64::from(quantity);
                page.rolled_back += 1;
                page.hold(user, -i64::from(quantity));
                told = Some(figures);
            }
            // Where a refund's units go was said when it was asked for: the state knows.
            Body::RefundSettled { user, held, figures, .. } => {
                page.sold = i64::from(figures.sold);
                page.held.insert(user, i64::from(held));
            }
            Body::ReservationAdopted { user, held, figures, .. } => {
                page.locked = i64::from(figures.locked);
                page.sold = i64::from(figures.sold);
                page.held.insert(user, i64::from(held));
            }
            _ => {}
        }
        let page = self.pages.entry(id).or_default();
        if told.is_some() && page.figures() != told {
            let (found, at_ms) = (page.figures(), event.at_ms);
            let line = format!("activity {id}: {told:?} at {at_ms} ms, but records give {found:?}");
            self.problems.push(line);
        }
    }
}
