//! Checking a log from its bytes alone: every record, the exact-sale equation, every user's limit.
//!
//! Replay's `apply` holds each event against the state before it. Beside it stands a second,
//! plainer book that only adds up what the records say happened: the two must agree. A log that was
//! kept whole is read from its first record on. Of one that was not, all that is there is checked,
//! and replayed from the oldest snapshot on, whose activities are added up reservation by
//! reservation first. Every later snapshot must be what the records before it come to (W14).

use std::collections::BTreeMap;
use std::path::Path;

use wal::{Inspecting, Lane, Lsn, PosixDevice, Progress, SnapshotReader, TornTail};

use super::error::{OpenError, Witness};
use super::owner::Owner;
use super::replay::Replayed;
use super::snapshots::load;
use crate::core::digest::digest;
use crate::core::event::{Body, Event, Figures, Status};
use crate::core::ids::{ActivityId, UserId};
use crate::core::shard::Shard;

/// How often a log is looked through that a server beside gives back meanwhile.
const TRIES: u32 = 5;

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
    /// The snapshot that the records were replayed on, where the log is not kept whole.
    pub snapshot_lsn: Option<Lsn>,
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
    verify_watched(data_dir, &Progress::default())
}

/// The same; `progress` is told how far it has come.
///
/// # Errors
/// As [`verify`].
pub fn verify_watched(data_dir: &Path, progress: &Progress) -> Result<VerifyReport, OpenError> {
    let device = PosixDevice::new(data_dir);
    let mut tries = 0;
    loop {
        tries += 1;
        let inspecting = Inspecting::begin_watched(&device, progress)?;
        let beside = inspecting.beside_running_server();
        match look_through(inspecting) {
            Err(error) if beside && tries < TRIES && has_moved(&error) => {}
            done => return done,
        }
    }
}

/// A server beside may give a segment back while it is read: it is looked at anew.
fn has_moved(error: &OpenError) -> bool {
    match error {
        OpenError::Log(wal::OpenError::Refused { case, .. }) => *case == wal::Case::SegmentMissing,
        OpenError::Log(wal::OpenError::Io { source, .. }) => {
            source.kind() == std::io::ErrorKind::NotFound
        }
        _ => false,
    }
}

fn look_through(mut inspecting: Inspecting<'_>) -> Result<VerifyReport, OpenError> {
    let format = *inspecting.format();
    let owner = Owner::decode(&format.owner)?;
    let mut replayed = Replayed::new(format.shard_count, &owner, Book::default());
    let whole = inspecting.is_whole();
    let mut from = None;
    let mut checks = Vec::new();
    for snapshot in inspecting.snapshots() {
        if !whole && from.is_none() {
            match load(snapshot, &mut replayed, |_| true) {
                Ok(()) => from = Some(snapshot.lsn()),
                Err(error) => {
                    replayed = Replayed::new(format.shard_count, &owner, Book::default());
                    let line = format!("{}: {error}", snapshot.path());
                    replayed.witness.problems.push(line);
                }
            }
        } else if let Ok(lanes) = lanes(snapshot) {
            checks.push((snapshot.lsn(), snapshot.path().to_owned(), lanes));
        }
    }
    let damaged = inspecting.damaged_snapshots().iter().cloned();
    replayed.witness.problems.extend(damaged);
    replayed.witness.open_books(&replayed.shards);
    let inspection = inspecting.read(from, &mut |record| {
        replayed.take(record)?;
        for (_, path, lanes) in checks.iter().filter(|(lsn, ..)| *lsn == record.lsn) {
            replayed.compare(path, lanes);
        }
        Ok(())
    })?;
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
        snapshot_lsn: from,
        problems: witness.problems,
    })
}

/// The lanes of a snapshot, read to its end.
fn lanes(snapshot: &mut SnapshotReader) -> Result<Vec<Lane>, wal::SnapshotError> {
    let mut lanes = Vec::new();
    while let Some(piece) = snapshot.next_piece()? {
        if piece.last {
            lanes.push(piece.lane);
        }
    }
    Ok(lanes)
}

impl Replayed<Book> {
    /// Holds the state against what a snapshot says of it.
    fn compare(&mut self, path: &str, lanes: &[Lane]) {
        for lane in lanes {
            let (seq, digest) = match self.shards.get(usize::from(lane.shard)) {
                Some(shard) => (shard.applied_seq(), digest(shard)),
                None => (self.control.applied_seq(), self.control.digest()),
            };
            if (seq, digest) != (lane.seq, lane.digest) {
                let line = format!("{path}: shard {} is not what the log comes to", lane.shard);
                self.witness.problems.push(line);
            }
        }
    }
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

    fn hold(&mut self, user: UserId, units: i64) {
        *self.held.entry(user).or_default() += units;
    }
}

impl Page {
    /// Takes over what a definition says, or what figures from elsewhere say.
    fn define(&mut self, body: &Body<'_>) {
        match *body {
            Body::ActivityCreated { total, definition, .. } => {
                self.total = i64::from(total);
                self.limit = i64::from(definition.per_user_limit);
            }
            Body::ActivityAdopted { figures, definition, .. } => {
                self.total = i64::try_from(figures.total()).unwrap_or(i64::MAX);
                self.locked = i64::from(figures.locked);
                self.sold = i64::from(figures.sold);
                self.limit = i64::from(definition.per_user_limit);
            }
            Body::ActivityEdited { definition, figures, .. } => {
                self.limit = i64::from(definition.per_user_limit);
                self.total = i64::try_from(figures.total()).unwrap_or(i64::MAX);
            }
            // Where a refund's units go was said when it was asked for: the state knows.
            Body::RefundSettled { user, held, figures, .. } => {
                self.locked = i64::from(figures.locked);
                self.sold = i64::from(figures.sold);
                self.held.insert(user, i64::from(held));
            }
            _ => {}
        }
    }

    /// Moves the units that the event says moved; the figures that it says came of it.
    fn book(&mut self, body: &Body<'_>) -> Option<Figures> {
        match *body {
            Body::Restocked { quantity, figures, .. } => {
                self.total += i64::from(quantity);
                Some(figures)
            }
            Body::Decreased { quantity, figures, .. } => {
                self.total -= i64::from(quantity);
                Some(figures)
            }
            Body::Reserved { user, quantity, figures, .. } => {
                self.locked += i64::from(quantity);
                self.reservations += 1;
                self.hold(user, i64::from(quantity));
                Some(figures)
            }
            Body::ReservationAdopted { user, quantity, status, figures, .. } => {
                self.reservations += 1;
                match status {
                    Status::Reserved => self.locked += i64::from(quantity),
                    Status::Confirmed => self.sold += i64::from(quantity),
                    Status::RolledBack(_) => self.rolled_back += 1,
                }
                if !matches!(status, Status::RolledBack(_)) {
                    self.hold(user, i64::from(quantity));
                }
                Some(figures)
            }
            Body::Confirmed { quantity, figures, .. } => {
                self.locked -= i64::from(quantity);
                self.sold += i64::from(quantity);
                Some(figures)
            }
            Body::Reinstated { user, quantity, figures, .. } => {
                self.sold += i64::from(quantity);
                self.rolled_back = self.rolled_back.saturating_sub(1);
                self.hold(user, i64::from(quantity));
                Some(figures)
            }
            Body::Restored { user, quantity, figures, .. } => {
                self.locked -= i64::from(quantity);
                self.rolled_back += 1;
                self.hold(user, -i64::from(quantity));
                Some(figures)
            }
            _ => None,
        }
    }
}

impl Book {
    /// Takes over what a snapshot holds, where its reservations add up to it.
    fn open_books(&mut self, shards: &[Shard]) {
        for (id, activity) in shards.iter().flat_map(Shard::activities) {
            if let Err(what) = activity.audit() {
                self.problems.push(format!("activity {id} in the snapshot: {what:?}"));
            }
            let own = activity.slots().iter();
            let slots = own.chain(activity.adopted().map(|(_, adopted)| &adopted.slot));
            let back = slots.filter(|slot| matches!(slot.status(), Status::RolledBack(_)));
            let page = self.pages.entry(id).or_default();
            let Figures { locked, sold, .. } = activity.figures();
            page.total = i64::from(activity.total());
            (page.locked, page.sold) = (i64::from(locked), i64::from(sold));
            page.limit = i64::from(activity.terms().per_user_limit);
            page.rolled_back = back.count() as u64;
            page.reservations = (activity.slots().len() + activity.adopted().count()) as u64;
            page.held = activity.holders().map(|(user, held)| (user, i64::from(held))).collect();
        }
    }
}

impl Witness for Book {
    fn saw(&mut self, event: &Event<'_>) {
        let Some(id) = crate::core::codec::activity(&event.body) else { return };
        let page = self.pages.entry(id).or_default();
        page.define(&event.body);
        let told = page.book(&event.body);
        if let Body::Reserved { user, .. } | Body::Reinstated { user, .. } = event.body
            && page.held.get(&user).is_some_and(|held| *held > page.limit)
        {
            self.problems.push(format!("activity {id}: user {user} is above the limit"));
        }
        if told.is_some() && page.figures() != told {
            let (found, at_ms) = (page.figures(), event.at_ms);
            let line = format!("activity {id}: {told:?} at {at_ms} ms, but records give {found:?}");
            self.problems.push(line);
        }
    }
}
