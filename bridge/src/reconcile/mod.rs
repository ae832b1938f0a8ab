//! Engine, SQL and Redis held against each other.
//!
//! A sink is behind, and that is no difference: what the engine says is taken first, with the LSN
//! that it rests on; the sink is read once it has passed that LSN; and of what then differs only
//! that is told which the engine still says the same of. Whatever moved meanwhile is in flight, and
//! is looked at again, or counted.
//!
//! | found | kind | `--repair` |
//! |---|---|---|
//! | an activity that SQL lacks, or whose units or switches differ | `activity` | written right |
//! | an activity in SQL that the log knows nothing of | `stray_activity` | left to a person |
//! | a reservation that SQL lacks | `missing` | inserted, with its order |
//! | another purchase's row under its id | `foreign` | set aside, the right one inserted |
//! | its row or its order in another state | `status`, `order_status`, `slot` | written right |
//! | no order where there must be one | `order_missing` | inserted |
//! | a reservation or an order that the log knows nothing of | `stray` | set aside |
//! | units in Redis that differ | `redis_stock` | the mirror's scrubber writes them right |
//!
//! Of Redis the units of each activity are compared, in the one key that readers look at; what else
//! stands there the mirror's scrubber compares, all the time. A side that stands still, halted or
//! away, is no side without differences: the report says that it was not compared.
//!
//! Every mend leaves a `REPAIR` row in `stock_flows`; a row that is set aside stands there in its
//! remark, and nowhere else. [`compare`] is pure; [`run`] asks page by page.

pub mod compare;
mod followed;
pub mod run;
mod strays;

use std::fmt;

pub use run::{Ledger, ReconcileError, Reconciler, Scope, SideBySide};

/// What sort of difference was found.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[expect(missing_docs, reason = "the kinds are those of the table above")]
pub enum Kind {
    Activity,
    StrayActivity,
    Missing,
    Foreign,
    Status,
    OrderMissing,
    OrderStatus,
    Slot,
    Stray,
    RedisStock,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 10] = [
        Self::Activity,
        Self::StrayActivity,
        Self::Missing,
        Self::Foreign,
        Self::Status,
        Self::OrderMissing,
        Self::OrderStatus,
        Self::Slot,
        Self::Stray,
        Self::RedisStock,
    ];

    /// Its name in reports and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Activity => "activity",
            Self::StrayActivity => "stray_activity",
            Self::Missing => "missing",
            Self::Foreign => "foreign",
            Self::Status => "status",
            Self::OrderMissing => "order_missing",
            Self::OrderStatus => "order_status",
            Self::Slot => "slot",
            Self::Stray => "stray",
            Self::RedisStock => "redis_stock",
        }
    }
}

/// One difference.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mismatch {
    /// What sort it is.
    pub kind: Kind,
    /// The row or key.
    pub place: String,
    /// What stands there.
    pub found: String,
    /// What the log says.
    pub expected: String,
    /// Whether it was written right.
    pub repaired: bool,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, place, found, expected, repaired } = self;
        write!(f, "{}: {place} is {found}, the log says {expected}", kind.name())?;
        if *repaired { f.write_str(" (repaired)") } else { Ok(()) }
    }
}

/// What is compared with the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// Orders and figures.
    Sql,
    /// Units in the mirror's keys.
    Redis,
}

impl Side {
    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sql => "sql",
            Self::Redis => "redis",
        }
    }
}

/// A side that could not be compared, or not to its end, and comes no further by itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Uncompared {
    /// Which.
    pub side: Side,
    /// What it says, or what was said of it.
    pub why: String,
}

/// Differences that a report names; more are counted.
pub const MISMATCHES_NAMED_MAX: usize = 1_000;

/// What a run found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Activities compared.
    pub activities: u64,
    /// Reservations compared.
    pub reservations: u64,
    /// Activities and reservations that could not be compared, for they or their sink moved on.
    pub in_flight: u64,
    /// Archived activities of which the database, which was lost and filled from a snapshot, knows
    /// that they were, and no more.
    pub gone_activities: u64,
    /// Reservations whose request id the database knows by its hash alone. Counted with everything.
    pub gone_request_ids: u64,
    /// Differences found.
    pub differences: u64,
    /// Of them, mended.
    pub repaired: u64,
    /// The differences, as far as they are named.
    pub mismatches: Vec<Mismatch>,
    /// Sides that stand still: that nothing differs is not known of them. Each is named once.
    pub uncompared: Vec<Uncompared>,
}

impl Report {
    fn add(&mut self, mismatch: Mismatch) {
        self.differences += 1;
        self.repaired += u64::from(mismatch.repaired);
        if self.mismatches.len() < MISMATCHES_NAMED_MAX {
            self.mismatches.push(mismatch);
        }
    }

    fn not_compared(&mut self, side: Side, why: String) {
        if self.uncompared.iter().all(|it| it.side != side) {
            self.uncompared.push(Uncompared { side, why });
        }
    }

    /// Whether everything that could be compared is as the log says, or was mended.
    pub fn is_clean(&self) -> bool {
        self.differences == self.repaired
    }
}
