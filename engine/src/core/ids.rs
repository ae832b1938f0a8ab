//! Identifiers, and the arithmetic that ties a reservation's id to its order number.
//!
//! ```text
//! reservation id (JSON integer, < 2^53) = activity ordinal (21 bits) << 32 | position (32 bits)
//! order_no  (decimal string, <= 20 digits) = site prefix (1-3 digits) + the id as 17 digits
//! payment_no (decimal string)              = order_no + the attempt as 2 digits
//! ```
//!
//! Ordinals and positions start at 1. Ordinal 0 holds ids adopted from an older system. Where
//! several nodes were to share one database, the top `node_bits` bits of an ordinal would be the
//! node's number; this version has one node, and `node_bits` is 0.
//! An order number is a pure function of the id, so it needs no storage and can never collide
//! while ids do not.

use std::fmt;
use std::num::{NonZeroU32, NonZeroU64};

use super::limits::{ID_MAX, ORDER_PREFIX_MAX, ORDINAL_BITS, PAYMENT_ATTEMPTS_MAX};
use super::order_no::OrderNo;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub struct $name(NonZeroU64);

        impl $name {
            /// The id for `value`, or `None` outside `1..=2^53 - 1`: such a number would not
            /// survive a JSON parser that reads integers as doubles.
            pub const fn new(value: u64) -> Option<Self> {
                match NonZeroU64::new(value) {
                    Some(id) if value <= ID_MAX => Some(Self(id)),
                    _ => None,
                }
            }

            /// The id as a number in `1..=2^53 - 1`.
            pub const fn get(self) -> u64 {
                self.0.get()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// One flash sale of one SKU.
    ActivityId
);
id!(
    /// A shopper.
    UserId
);
id!(
    /// A stock keeping unit of the catalogue.
    SkuId
);
id!(
    /// One accepted purchase; also its purchase slot.
    ReservationId
);

/// An activity's dense number, the high part of its reservations' ids: 21 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ordinal(u32);

impl Ordinal {
    /// Ordinal 0: reservations whose ids were given by an older system.
    pub const ADOPTED: Self = Self(0);

    /// The ordinal for `value`, or `None` where it needs more than 21 bits.
    pub const fn new(value: u32) -> Option<Self> {
        if value >> ORDINAL_BITS == 0 { Some(Self(value)) } else { None }
    }

    /// The ordinal as a number below 2^21.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// A reservation's place in its activity, in order of acceptance; from 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Position(NonZeroU32);

impl Position {
    /// The position for `value`, or `None` for 0.
    pub const fn new(value: u32) -> Option<Self> {
        match NonZeroU32::new(value) {
            Some(value) => Some(Self(value)),
            None => None,
        }
    }

    /// The position that an array of `count` reservations gives next, or `None` where it is full.
    pub fn after(count: usize) -> Option<Self> {
        u32::try_from(count).ok()?.checked_add(1).and_then(Self::new)
    }

    /// The position as a number, from 1.
    pub const fn get(self) -> u32 {
        self.0.get()
    }

    /// The index of this position in a dense array.
    pub const fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

impl ReservationId {
    /// The id of the reservation at `position` of the activity with `ordinal`.
    pub fn compose(ordinal: Ordinal, position: Position) -> Self {
        Self(NonZeroU64::from(position.0) | u64::from(ordinal.0) << 32)
    }

    /// The activity ordinal in this id.
    pub const fn ordinal(self) -> Ordinal {
        Ordinal((self.get() >> 32) as u32)
    }

    /// The position in this id, or `None` where its low half is 0 (no reservation has it).
    pub const fn position(self) -> Option<Position> {
        Position::new((self.get() & 0xFFFF_FFFF) as u32)
    }
}

/// The site's order prefix, 1 to 3 digits, fixed when a directory is formatted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OrderPrefix(u16);

impl OrderPrefix {
    /// A site that chose none.
    pub const DEFAULT: Self = Self(1);

    /// The prefix for `value`, or `None` outside `1..=999`.
    pub const fn new(value: u16) -> Option<Self> {
        if value >= 1 && value <= ORDER_PREFIX_MAX { Some(Self(value)) } else { None }
    }

    /// The prefix as a number.
    pub const fn get(self) -> u16 {
        self.0
    }

    /// The order number of `id`: at most 20 decimal digits.
    pub fn order_no(self, id: ReservationId) -> String {
        self.number(id).into()
    }

    /// [`OrderPrefix::order_no`] where nothing shall be allocated.
    pub fn number(self, id: ReservationId) -> OrderNo {
        OrderNo::given(self.0, id)
    }

    /// The reservation behind `order_no`, or `None` where this site never issued such a number.
    pub fn reservation_id(self, order_no: &str) -> Option<ReservationId> {
        if order_no.len() < 18 || !order_no.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let (prefix, digits) = order_no.split_at(order_no.len() - 17);
        if prefix != self.0.to_string() {
            return None;
        }
        ReservationId::new(digits.parse().ok()?)
    }

    /// The payment number of the `attempt`-th payment (0..=99) of `id`.
    ///
    /// # Panics
    /// Where the attempt has more than two digits: the number would be read as another's.
    pub fn payment_no(self, id: ReservationId, attempt: u8) -> String {
        assert!(attempt <= PAYMENT_ATTEMPTS_MAX, "payment {attempt} of {id} has no number");
        format!("{}{attempt:02}", self.order_no(id))
    }
}

/// The attempt in a payment number that this site gave.
pub(crate) fn attempt_of(payment_no: &str) -> Option<u8> {
    let digits = payment_no.get(payment_no.len().checked_sub(2)?..)?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_outside_the_doubles_exact_range_is_none() {
        assert!(ActivityId::new(0).is_none());
        assert!(ActivityId::new(1 << 53).is_none());
        assert_eq!(ActivityId::new((1 << 53) - 1).unwrap().get(), (1 << 53) - 1);
    }

    #[test]
    fn the_largest_reservation_id_fits_a_json_integer() {
        let id = ReservationId::compose(
            Ordinal::new((1 << 21) - 1).unwrap(),
            Position::new(u32::MAX).unwrap(),
        );
        assert_eq!(id.get(), ID_MAX);
        assert!(Ordinal::new(1 << 21).is_none());
    }

    #[test]
    fn an_order_number_leads_back_to_its_reservation_under_its_own_prefix_alone() {
        let id = ReservationId::compose(Ordinal::new(7).unwrap(), Position::new(42).unwrap());
        for prefix in [1, 9, 42, 999] {
            let prefix = OrderPrefix::new(prefix).unwrap();
            let order_no = prefix.order_no(id);
            assert!(order_no.len() <= 20);
            assert_eq!(prefix.reservation_id(&order_no), Some(id));
            assert_eq!(OrderPrefix::new(77).unwrap().reservation_id(&order_no), None);
        }
    }

    #[test]
    fn a_string_that_is_no_order_number_is_refused() {
        let prefix = OrderPrefix::new(1).unwrap();
        for hostile in [
            "",
            "1",
            "100000000000000000",
            "1 0000000000000001",
            "é0000000000000000001",
            "+00000000000000001",
            "0100000000000000001",
            "199999999999999999",
            "11111111111111111111111",
        ] {
            assert_eq!(prefix.reservation_id(hostile), None, "{hostile}");
        }
    }
}
