//! With how many units an activity begins here, so that its reservations find theirs and none is
//! sold twice: pure.
//!
//! | the older system says       | an activity begins with                                     |
//! |-----------------------------|-------------------------------------------------------------|
//! | `stock` alone               | `stock` and what living orders have taken out of it         |
//! | a total, and where units are| the total                                                   |
//!
//! Reservations then take their units as they are adopted. What is taken and can't be adopted, or
//! is nowhere, stays out of sale: it is counted as sold, and a restock brings it back once
//! somebody has looked.

use std::collections::BTreeMap;

use engine::core::limits::{PAYMENT_TTL_MS_MAX, PAYMENT_TTL_MS_MIN};

/// Where nobody says how long a buyer has to pay: as for an activity made here.
const PAYMENT_TTL_MS_DEFAULT: u64 = 10 * 60 * 1000;

/// Distinct times to pay that are counted per activity.
const PAYMENT_TTLS_MAX: usize = 1024;

/// The columns of an activity.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Stock {
    pub(super) stock: u64,
    pub(super) total: Option<u64>,
    pub(super) locked: Option<u64>,
    pub(super) sold: Option<u64>,
    /// Units that Redis has free.
    pub(super) redis: Option<u64>,
}

/// Where the units of a row are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Units {
    pub(super) quantity: u64,
    /// Out of `stock`.
    pub(super) is_out: bool,
    /// Somebody's: unpaid or paid.
    pub(super) is_held: bool,
    pub(super) is_paid: bool,
    /// The row can't be adopted.
    pub(super) is_refused: bool,
    /// Given back, but not in Redis yet.
    pub(super) is_owed: bool,
}

/// Sums of an activity's rows.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Tally {
    out: u64,
    held: u64,
    unpaid: u64,
    paid: u64,
    refused: u64,
    given_back: u64,
    owed: u64,
    ttls_ms: BTreeMap<u64, u64>,
}

/// How an activity begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Start {
    pub(super) available: u64,
    /// Units that no reservation stands for.
    pub(super) sold: u64,
    /// The columns contradict one another.
    pub(super) is_doubtful: bool,
}

impl Tally {
    /// Counts a row.
    pub(super) fn add(&mut self, units: Units) {
        let Units { quantity, is_out, is_held, is_paid, is_refused, is_owed } = units;
        let add = |sum: &mut u64, when: bool| {
            *sum = sum.saturating_add(if when { quantity } else { 0 });
        };
        add(&mut self.out, is_out);
        add(&mut self.held, is_held && !is_refused);
        add(&mut self.unpaid, is_held && !is_paid);
        add(&mut self.paid, is_paid);
        add(&mut self.refused, is_held && is_refused);
        add(&mut self.given_back, is_out && !is_held);
        add(&mut self.owed, is_owed);
    }

    /// Counts how long an order may be paid.
    pub(super) fn add_ttl(&mut self, created_ms: u64, expire_ms: u64) {
        let Some(ttl_ms) = expire_ms.checked_sub(created_ms) else { return };
        // A clock's jitter between two columns is no other time to pay.
        let ttl_ms = (ttl_ms + 500) / 1000 * 1000;
        if (PAYMENT_TTL_MS_MIN..=PAYMENT_TTL_MS_MAX).contains(&ttl_ms) {
            let is_new = !self.ttls_ms.contains_key(&ttl_ms);
            if !(is_new && self.ttls_ms.len() >= PAYMENT_TTLS_MAX) {
                *self.ttls_ms.entry(ttl_ms).or_default() += 1;
            }
        }
    }

    /// How long most orders may be paid.
    pub(super) fn payment_ttl_ms(&self) -> u64 {
        let most = self.ttls_ms.iter().max_by_key(|(ttl_ms, count)| (**count, **ttl_ms));
        most.map_or(PAYMENT_TTL_MS_DEFAULT, |(ttl_ms, _)| *ttl_ms)
    }

    /// How an activity begins that has `stock` and these rows.
    pub(super) fn start(&self, stock: &Stock) -> Start {
        let (total, kept, is_doubtful) = match stock.total {
            None => (stock.stock.saturating_add(self.out), self.refused, false),
            Some(total) => {
                let (kept, is_doubtful) = self.kept(stock, total);
                (total, kept, is_doubtful)
            }
        };
        let mut sold = kept.min(total);
        let free = (total - sold).saturating_sub(self.held);
        if let Some(redis) = stock.redis {
            // Redis is where units are taken first: what it has not free is somebody's.
            sold += free.saturating_sub(redis.saturating_add(self.owed));
        }
        Start { available: total - sold, sold, is_doubtful }
    }

    /// Units of `total` that are taken, and by nobody who can be adopted.
    fn kept(&self, stock: &Stock, total: u64) -> (u64, bool) {
        let Stock { stock, locked, sold, .. } = *stock;
        match (locked, sold) {
            (Some(locked), Some(sold)) => {
                let told = stock.saturating_add(locked).saturating_add(sold);
                let nowhere = total.saturating_sub(told);
                let lost_locked = locked.saturating_sub(self.unpaid).saturating_sub(self.owed);
                let lost_sold = sold.saturating_sub(self.paid);
                let kept = nowhere.saturating_add(lost_locked).saturating_add(lost_sold);
                (kept.saturating_add(self.refused), told != total)
            }
            _ => {
                let taken = total.saturating_sub(stock);
                let known = self.unpaid.saturating_add(self.paid).saturating_add(self.given_back);
                (taken.saturating_sub(known).saturating_add(self.refused), stock > total)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUT: Units = Units {
        quantity: 1,
        is_out: true,
        is_held: true,
        is_paid: false,
        is_refused: false,
        is_owed: false,
    };
    const PENDING: Units = Units { is_out: false, ..OUT };
    const PAID: Units = Units { is_paid: true, ..OUT };
    const BACK: Units = Units { is_out: false, is_held: false, ..OUT };

    fn start(stock: Stock, rows: &[Units]) -> (u64, u64) {
        let mut tally = Tally::default();
        rows.iter().for_each(|units| tally.add(*units));
        let start = tally.start(&stock);
        (start.available, start.sold)
    }

    #[test]
    fn units_that_orders_took_out_of_stock_are_not_taken_again() {
        let stock = Stock { stock: 7, ..Stock::default() };
        assert_eq!(start(stock, &[OUT, PAID, PAID, PENDING, BACK]), (10, 0));
        assert_eq!(start(stock, &[OUT, Units { is_refused: true, ..PAID }]), (8, 1));
        assert_eq!(start(stock, &[Units { is_refused: true, ..PENDING }]), (6, 1));
        assert_eq!(start(stock, &[Units { is_held: false, ..OUT }]), (8, 0), "given back once");
    }

    #[test]
    fn a_total_is_kept_and_what_nobody_has_is_not_sold() {
        let told = Stock { stock: 5, total: Some(10), locked: Some(2), sold: Some(3), redis: None };
        assert_eq!(start(told, &[OUT, OUT, PAID, PAID, PAID]), (10, 0));
        assert_eq!(start(told, &[OUT, OUT, PAID]), (8, 2), "orders that were cleared away");
        let owed = Units { is_owed: true, ..BACK };
        assert_eq!(start(told, &[OUT, owed, PAID, PAID, PAID]), (10, 0), "given back once");
        let gap = Stock { stock: 3, locked: Some(0), sold: Some(0), ..told };
        assert_eq!(start(gap, &[]), (3, 7), "units that are nowhere");
        let more = Stock { stock: 30, locked: Some(0), sold: Some(0), ..told };
        assert_eq!(start(more, &[]), (10, 0), "no more than there are");
        let two = Stock { stock: 7, total: Some(10), ..Stock::default() };
        assert_eq!(start(two, &[OUT, PAID, PENDING]), (10, 0));
        assert_eq!(start(two, &[OUT]), (8, 2));
    }

    #[test]
    fn redis_may_have_fewer_units_free_never_more() {
        let stock = |redis| Stock { stock: 10, redis: Some(redis), ..Stock::default() };
        assert_eq!(start(stock(10), &[]), (10, 0));
        assert_eq!(start(stock(9), &[PENDING]), (10, 0));
        assert_eq!(start(stock(7), &[PENDING]), (8, 2), "taken by nobody known");
        assert_eq!(start(stock(9), &[Units { is_owed: true, ..BACK }]), (10, 0));
        assert_eq!(start(stock(99), &[]), (10, 0));
    }

    #[test]
    fn the_time_to_pay_is_that_of_most_orders() {
        let mut tally = Tally::default();
        assert_eq!(tally.payment_ttl_ms(), PAYMENT_TTL_MS_DEFAULT);
        for (created_ms, expire_ms) in [(1, 300_001), (2, 300_000), (5, 900_005), (9, 3), (0, 1)] {
            tally.add_ttl(created_ms, expire_ms);
        }
        assert_eq!(tally.payment_ttl_ms(), 300_000);
    }
}
