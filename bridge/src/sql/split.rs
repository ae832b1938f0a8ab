//! `orders.split = n`: orders and their items spread over n tables by `user_id % n`.
//!
//! An owner's orders are in one table, so lists and pages are one table's. What must be unique over
//! all of them is: `user_activity_key` begins with the user, whose orders meet in one table, and
//! `order_no` follows from the reservation's id, which `flashsale_pre_deductions`, never split,
//! holds once and with a unique order number.

use super::store::Part;

/// The most tables: beyond it, a scan over all of them costs more than one large table.
pub const SPLIT_MAX: u16 = 64;

/// How many tables orders are spread over, 1..=[`SPLIT_MAX`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Split(u16);

impl Default for Split {
    fn default() -> Self {
        Self::ONE
    }
}

impl Split {
    /// One table.
    pub const ONE: Self = Self(1);

    /// A split over `tables`; `None` where that is none or too many.
    pub fn new(tables: u16) -> Option<Self> {
        (1..=SPLIT_MAX).contains(&tables).then_some(Self(tables))
    }

    /// How many tables.
    pub fn tables(self) -> u16 {
        self.0
    }

    /// The part that holds the orders of `user`.
    pub fn part(self, user: u64) -> Part {
        if self.0 == 1 {
            return None;
        }
        u16::try_from(user % u64::from(self.0)).ok()
    }

    /// Every part.
    pub fn parts(self) -> impl Iterator<Item = Part> {
        let one = self.0 == 1;
        (0..self.0).map(move |part| (!one).then_some(part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_user_has_one_part_and_every_part_is_named() {
        assert!(Split::new(0).is_none() && Split::new(SPLIT_MAX + 1).is_none());
        assert_eq!(Split::default().parts().collect::<Vec<_>>(), [None]);
        assert_eq!(Split::default().part(7), None);
        let three = Split::new(3).unwrap();
        let parts: Vec<_> = three.parts().collect();
        assert_eq!(parts, [Some(0), Some(1), Some(2)]);
        for user in 1..=9 {
            assert!(parts.contains(&three.part(user)));
        }
        assert_eq!(three.part(1 << 52), Some(u16::try_from((1u64 << 52) % 3).unwrap()));
    }
}
