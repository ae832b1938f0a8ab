//! A reservation in memory.
//!
//! An activity's reservations lie in one dense array, in order of acceptance: the id says where.
//! What follows from there or from the definition, which is frozen once a reservation exists, is
//! not stored: id, SKU, price, order number, time to pay. Payment numbers lie aside, for few
//! reservations of a flash sale are ever paid.

use super::event::Status;
use super::ids::{Position, UserId};

/// One reservation. 56 bytes:
///
/// ```text
/// | field        | bytes | why it is kept                                              |
/// |--------------|-------|-------------------------------------------------------------|
/// | request_hash | 16    | tells a repeated request from a new one; keyed, so that no  |
/// |              |       | caller can make two requests meet                           |
/// | user         | 8     | owner                                                       |
/// | created_ms   | 8     | expiry, and what callers are told                           |
/// | shard_seq    | 8     | a sink whose mark covers it has its order                   |
/// | quantity     | 4     | units to give back                                          |
/// | previous     | 4     | chain of the user's reservations here, newest first         |
/// | updated_ms   | 6     | what callers are told                                       |
/// | status       | 1     | reserved, confirmed, or rolled back and why                 |
/// | attempts     | 1     | payments opened: numbers the next one                       |
/// ```
///
/// With its user's share of the user table (16 bytes, at a load of 2/5 in the worst case, right
/// after the parts of the table were split) a reservation costs at most 96 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot {
    request_hash: [u64; 2],
    user: UserId,
    created_ms: u64,
    shard_seq: u64,
    quantity: u32,
    previous: Option<Position>,
    updated_ms: Millis48,
    status: u8,
    attempts: u8,
}

const _: () = assert!(size_of::<Slot>() == 56);

impl Slot {
    /// A reservation accepted at `created_ms` by the record with `shard_seq`.
    pub(super) fn new(
        user: UserId,
        quantity: u32,
        request_hash: u128,
        created_ms: u64,
        shard_seq: u64,
    ) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "the two halves are taken apart")]
        let (high, low) = ((request_hash >> 64) as u64, request_hash as u64);
        Self {
            request_hash: [high, low],
            user,
            created_ms,
            shard_seq,
            quantity,
            previous: None,
            updated_ms: Millis48::new(created_ms),
            status: Status::Reserved.code(),
            attempts: 0,
        }
    }

    /// This reservation, as the next link of its user's chain.
    pub(super) fn after(mut self, previous: Option<Position>) -> Self {
        self.previous = previous;
        self
    }

    /// Changes the status at `at_ms`.
    ///
    /// # Panics
    /// Where no reservation goes that way: what is paid stays so, whatever becomes of the money,
    /// and what was given back can only be paid after all.
    pub(super) fn set_status(&mut self, status: Status, at_ms: u64) {
        let before = self.status();
        let goes_on = match before {
            Status::Reserved => true,
            Status::RolledBack(_) => status == Status::Confirmed,
            Status::Confirmed => false,
        };
        assert!(goes_on, "a reservation that is {before:?} cannot become {status:?}");
        self.status = status.code();
        self.updated_ms = Millis48::new(at_ms);
    }

    /// Counts a payment opened.
    ///
    /// # Panics
    /// Where it was counted before: two payments would have one number.
    pub(super) fn set_attempts(&mut self, attempts: u8) {
        assert!(attempts >= self.attempts, "payment {attempts} after {}", self.attempts);
        self.attempts = attempts;
    }

    /// Keyed hash of the request id that made it.
    pub fn request_hash(&self) -> u128 {
        let [high, low] = self.request_hash;
        u128::from(high) << 64 | u128::from(low)
    }

    /// Its buyer.
    pub const fn user(&self) -> UserId {
        self.user
    }

    /// When it was accepted, Unix milliseconds.
    pub const fn created_ms(&self) -> u64 {
        self.created_ms
    }

    /// When its status last changed, Unix milliseconds.
    pub const fn updated_ms(&self) -> u64 {
        self.updated_ms.get()
    }

    /// Sequence in the shard of the record that accepted it.
    pub const fn shard_seq(&self) -> u64 {
        self.shard_seq
    }

    /// Its units.
    pub const fn quantity(&self) -> u32 {
        self.quantity
    }

    /// Its user's reservation before it in this activity.
    pub const fn previous(&self) -> Option<Position> {
        self.previous
    }

    /// Payments opened for it.
    pub const fn attempts(&self) -> u8 {
        self.attempts
    }

    /// Where it is in its life.
    pub fn status(&self) -> Status {
        Status::from_code(self.status).unwrap_or_else(|| unreachable!("only codes are stored"))
    }
}

/// Unix milliseconds in 48 bits: enough up to the year 10,889, beyond `TIME_MS_MAX`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Millis48([u8; 6]);

impl Millis48 {
    fn new(millis: u64) -> Self {
        assert!(millis >> 48 == 0, "an event's time is at most TIME_MS_MAX");
        let [bytes @ .., _, _] = millis.to_le_bytes();
        Self(bytes)
    }

    const fn get(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
    }
}

#[cfg(test)]
mod tests {
    use super::super::event::RestoreReason;
    use super::super::limits::TIME_MS_MAX;
    use super::*;

    #[test]
    fn a_slot_gives_back_what_it_was_given() {
        let hash = 0x0123_4567_89AB_CDEF_FEDC_BA98_7654_3210;
        let user = UserId::new(7).unwrap();
        let mut slot = Slot::new(user, 3, hash, TIME_MS_MAX, 9).after(Position::new(4));
        assert_eq!(slot.request_hash(), hash);
        assert_eq!((slot.created_ms(), slot.updated_ms()), (TIME_MS_MAX, TIME_MS_MAX));
        assert_eq!((slot.quantity(), slot.shard_seq(), slot.user()), (3, 9, user));
        assert_eq!(slot.previous(), Position::new(4));
        let mut statuses = vec![Status::Reserved, Status::Confirmed];
        statuses.extend(RestoreReason::ALL.iter().copied().map(Status::RolledBack));
        for (at, status) in statuses.into_iter().enumerate() {
            let at_ms = 0x1234_5678_9ABC - at as u64;
            slot = Slot::new(user, 3, hash, TIME_MS_MAX, 9);
            slot.set_status(status, at_ms);
            assert_eq!((slot.status(), slot.updated_ms()), (status, at_ms));
        }
    }

    fn slot(status: Status) -> Slot {
        let mut slot = Slot::new(UserId::new(7).unwrap(), 1, 0, 0, 1);
        slot.set_status(status, 1);
        slot
    }

    #[test]
    fn what_is_paid_stays_so_and_what_was_given_back_can_only_be_paid_after_all() {
        use Status::{Confirmed, Reserved, RolledBack};
        let (late, again) = (RolledBack(RestoreReason::Timeout), RolledBack(RestoreReason::Admin));
        for (from, to, goes) in [
            (Reserved, Confirmed, true),
            (Reserved, late, true),
            (late, Confirmed, true),
            (late, Reserved, false),
            (late, again, false),
            (Confirmed, Reserved, false),
            (Confirmed, late, false),
            (Confirmed, Confirmed, false),
        ] {
            let mut slot = slot(from);
            let step = std::panic::AssertUnwindSafe(|| slot.set_status(to, 2));
            assert_eq!(std::panic::catch_unwind(step).is_ok(), goes, "{from:?} to {to:?}");
        }
    }

    #[test]
    #[should_panic(expected = "payment 1 after 2")]
    fn a_payment_that_has_another_s_number_is_a_bug() {
        let mut slot = slot(Status::Reserved);
        slot.set_attempts(2);
        slot.set_attempts(1);
    }
}
