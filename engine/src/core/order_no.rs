//! Order numbers as callers are told them.

use std::fmt;
use std::ops::Deref;

use super::ids::ReservationId;
use super::limits::{ID_MAX, ORDER_NO_BYTES_MAX, ORDER_PREFIX_MAX};

/// Digits of a reservation's id in an order number.
const ID_DIGITS: usize = 17;
/// Digits of an order number, with a prefix of three.
const DIGITS_MAX: usize = ID_DIGITS + 3;
const _: () = assert!(ID_MAX < 100_000_000_000_000_000, "an id has no more than 17 digits");
const _: () = assert!(ORDER_PREFIX_MAX <= 999, "a prefix has no more than three digits");
const _: () = assert!(DIGITS_MAX <= ORDER_NO_BYTES_MAX, "our numbers are as short as adopted ones");

/// An order number. One that was given here takes no memory of its own: every purchase is told its
/// number, and none allocates.
#[derive(Clone)]
pub struct OrderNo(Text);

#[derive(Clone)]
enum Text {
    /// The digits from `first` on.
    Given { digits: [u8; DIGITS_MAX], first: u8 },
    /// Whatever the system before called it.
    Adopted(Box<str>),
}

impl OrderNo {
    /// The number of the reservation `id` at a site with `prefix`, which is no more than 999.
    pub(super) fn given(prefix: u16, id: ReservationId) -> Self {
        // By hand: a formatter takes many times as long.
        let mut digits = [b'0'; DIGITS_MAX];
        // An id is below 2^53, which has sixteen digits.
        let (front, back) = digits.split_at_mut(DIGITS_MAX - 16);
        let (high, low) = (id.get() / EIGHT_DIGITS, id.get() % EIGHT_DIGITS);
        back.copy_from_slice([eight_digits(high), eight_digits(low)].as_flattened());
        let (front, _) = front.split_at_mut(DIGITS_MAX - ID_DIGITS);
        #[expect(clippy::cast_possible_truncation, reason = "one of three digits")]
        let first = put_digits(front, u64::from(prefix)) as u8;
        Self(Text::Given { digits, first })
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Text::Adopted(text) => text,
            Text::Given { digits, first } => str::from_utf8(&digits[usize::from(*first)..])
                .unwrap_or_else(|_| unreachable!("digits are ASCII")),
        }
    }
}

impl Deref for OrderNo {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

/// Whatever the system before called it.
impl From<&str> for OrderNo {
    fn from(text: &str) -> Self {
        Self(Text::Adopted(text.into()))
    }
}

impl From<OrderNo> for String {
    fn from(number: OrderNo) -> Self {
        number.as_str().to_owned()
    }
}

impl PartialEq for OrderNo {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for OrderNo {}

impl PartialEq<str> for OrderNo {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for OrderNo {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl fmt::Display for OrderNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl fmt::Debug for OrderNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// One more than the largest number of eight digits.
const EIGHT_DIGITS: u64 = 100_000_000;

const _: () = assert!(ID_MAX / EIGHT_DIGITS < EIGHT_DIGITS, "an id is twice eight digits");

/// The digits of `value`, which has eight at most, all at once: the number is split in two, each
/// half is, and each quarter is, side by side in the lanes of one word, the first digit lowest.
#[inline]
const fn eight_digits(value: u64) -> [u8; 8] {
    let halves = (value / 10_000) | ((value % 10_000) << 32);
    // A hundredth of each, and a tenth, by a product that is exact as far as a lane goes.
    let hundreds = ((halves * 10_486) >> 20) & 0x0000_007F_0000_007F;
    let quarters = hundreds | ((halves - 100 * hundreds) << 16);
    let tens = ((quarters * 103) >> 10) & 0x000F_000F_000F_000F;
    let digits = tens | ((quarters - 10 * tens) << 8);
    (digits | 0x3030_3030_3030_3030).to_le_bytes()
}

/// `00` to `99`: half as many divisions.
const DIGIT_PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[b'0'; 2]; 100];
    let mut number = 0;
    while number < 100 {
        pairs[number] = [b"0123456789"[number / 10], b"0123456789"[number % 10]];
        number += 1;
    }
    pairs
};

/// Writes the decimal digits of `value` at the end of `out`; tells where they begin.
fn put_digits(out: &mut [u8], mut value: u64) -> usize {
    let mut first = out.len();
    while value >= 10 {
        let pair = DIGIT_PAIRS[(value % 100) as usize];
        first -= 2;
        out[first..first + 2].copy_from_slice(&pair);
        value /= 100;
    }
    if value > 0 {
        first -= 1;
        out[first] = DIGIT_PAIRS[(value % 10) as usize][1];
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_digits_are_those_of_any_number_that_has_as_many() {
        // Every quarter in every place: they do not touch each other.
        for quarter in 0..10_000 {
            for value in [quarter, quarter * 10_000, quarter * 10_001] {
                let digits = eight_digits(value);
                assert_eq!(str::from_utf8(&digits).unwrap(), format!("{value:08}"));
            }
        }
    }

    #[test]
    fn a_number_is_its_text_whoever_gave_it() {
        let powers = (0..16).flat_map(|digits| [10u64.pow(digits), 10u64.pow(digits) * 9 - 1]);
        let ids = powers.chain([0x7_0000_002A, 1_234_567_890_123_456, ID_MAX]);
        for (prefix, id) in ids.flat_map(|id| [(1, id), (42, id), (999, id)]) {
            let given = OrderNo::given(prefix, ReservationId::new(id).unwrap());
            let expected = format!("{prefix}{id:017}");
            assert_eq!((given.as_str(), given.to_string()), (expected.as_str(), expected.clone()));
            assert_eq!(given, OrderNo::from(expected.as_str()));
            assert_eq!(String::from(given), expected);
        }
    }
}
