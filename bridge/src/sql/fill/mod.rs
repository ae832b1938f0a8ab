//! A database that the log has passed by, written from the images of the state.
//!
//! ```text
//! claim    the cursor is this server's, and beside it stands how far the filling will reach
//! portion  some thousand images; one transaction brings their rows to what they say
//! ...
//! end      one transaction: the cursor stands behind the images, the mark of the filling is gone
//! ```
//!
//! A row that is there is brought to what the image says, one that is missing is inserted. So a
//! database that is empty, one of an old backup, and one whose filling was cut short are all the
//! same case: it is filled from the beginning again.
//!
//! What no image holds is gone, and is counted in [`Filled`]:
//!
//! | lost | what stands in its place |
//! |---|---|
//! | request ids | their keyed hash, by which a repeat is still answered |
//! | single flows | `INIT`, every restock and decrease, one row for all that reservations moved |
//! | raw callbacks | a row without a body for each transaction that paid an order |
//! | addresses that orders had copied | nothing, but for rows that were there |
//! | activities archived before | a row that keeps id and ordinal from being used again |
//! | when payments and refunds were asked for, by whom, the audit | times of the reservation |

mod flows;
mod money;
mod portion;
mod settle;
mod write;

pub(crate) use portion::Folder;
pub(crate) use write::GONE_SKU;

use wal::Lsn;

/// What a database was filled with, and what it does not have any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Filled {
    /// The last record whose effect it holds.
    pub lsn: Lsn,
    /// Activities that were written.
    pub activities: u64,
    /// Reservations that were written.
    pub reservations: u64,
    /// Activities that were archived before: nobody has their reservations any more, or they are
    /// as an old backup had them.
    pub gone_activities: u64,
    /// Reservations whose request id is known by its hash alone.
    pub gone_request_ids: u64,
    /// Orders without the address that they had copied.
    pub gone_addresses: u64,
    /// Transactions of providers whose callbacks are gone.
    pub gone_callbacks: u64,
}

impl Filled {
    /// Adds what another portion did.
    pub(crate) fn add(&mut self, other: Self) {
        self.activities += other.activities;
        self.reservations += other.reservations;
        self.gone_activities += other.gone_activities;
        self.gone_request_ids += other.gone_request_ids;
        self.gone_addresses += other.gone_addresses;
        self.gone_callbacks += other.gone_callbacks;
    }
}

impl std::fmt::Display for Filled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "filled to LSN {}: {} activities, {} reservations; gone: {} archived activities, {} \
             request ids, {} addresses, {} callbacks",
            self.lsn,
            self.activities,
            self.reservations,
            self.gone_activities,
            self.gone_request_ids,
            self.gone_addresses,
            self.gone_callbacks
        )
    }
}
