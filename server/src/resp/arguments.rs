//! The shape of a call's arguments, as the function library reads them.

use engine::core::ids::{ActivityId, ReservationId, SkuId, UserId};
use engine::core::limits::{ID_MAX, REQUEST_ID_BYTES_MAX, TIME_MS_MAX, UNITS_MAX};

/// An argument is outside its bounds: the text of the error, without its first word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Invalid {
    /// A number.
    Integer { name: &'static str, min: u64, max: u64 },
    /// A text.
    Text { name: &'static str },
    /// What the text says.
    Because(&'static str),
}

impl std::fmt::Display for Invalid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Integer { name, min, max } => {
                write!(f, "{name} must be a decimal {min}..={max}")
            }
            Self::Text { name } => {
                write!(f, "{name} must be 1..={REQUEST_ID_BYTES_MAX} bytes of UTF-8")
            }
            Self::Because(text) => f.write_str(text),
        }
    }
}

/// Whether a word is this name, in whatever case; nearly always it is in the same.
pub(super) fn is_name(name: &str, word: &[u8]) -> bool {
    name.as_bytes() == word || name.as_bytes().eq_ignore_ascii_case(word)
}

/// A decimal within bounds: ASCII digits, no sign; leading zeros, which load generators send, do
/// not count.
fn integer(word: &[u8], name: &'static str, min: u64, max: u64) -> Result<u64, Invalid> {
    let zeros = word.iter().take_while(|byte| **byte == b'0').count();
    let number = match &word[zeros..] {
        [] if zeros > 0 => Some(0),
        digits => plain(digits),
    };
    number.filter(|it| (min..=max).contains(it)).ok_or(Invalid::Integer { name, min, max })
}

/// The number that these digits are, where they are nothing else.
fn plain(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

/// A decimal as a key holds it: no zeros in front.
pub(super) fn canonical(word: &[u8]) -> Option<u64> {
    if word.first() == Some(&b'0') && word.len() > 1 { None } else { plain(word) }
}

/// Text, 1 to 64 bytes of UTF-8.
pub(super) fn text<'a>(word: &'a [u8], name: &'static str) -> Result<&'a str, Invalid> {
    let bounded = (1..=REQUEST_ID_BYTES_MAX).contains(&word.len());
    std::str::from_utf8(word).ok().filter(|_| bounded).ok_or(Invalid::Text { name })
}

/// Units: of a purchase, an operation, an activity, a limit.
pub(super) fn units(word: &[u8], name: &'static str) -> Result<u32, Invalid> {
    let number = integer(word, name, 1, u64::from(UNITS_MAX))?;
    u32::try_from(number).map_err(|_| Invalid::Because("beyond 32 bits"))
}

/// A price, in the smallest unit.
pub(super) fn price(word: &[u8]) -> Result<u64, Invalid> {
    integer(word, "price", 0, ID_MAX)
}

/// An instant, Unix milliseconds.
pub(super) fn instant(word: &[u8], name: &'static str) -> Result<u64, Invalid> {
    integer(word, name, 0, TIME_MS_MAX)
}

macro_rules! ids {
    ($($function:ident $id:ident $name:literal;)*) => {
        $(
            pub(super) fn $function(word: &[u8]) -> Result<$id, Invalid> {
                let (name, min, max) = ($name, 1, ID_MAX);
                let number = integer(word, name, min, max)?;
                $id::new(number).ok_or(Invalid::Integer { name, min, max })
            }
        )*
    };
}

ids! {
    activity ActivityId "activity";
    user UserId "user";
    sku SkuId "sku";
    reservation ReservationId "reservation_id";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_in_front_do_not_count_and_nothing_else_is_a_decimal() {
        let read = |text: &str| integer(text.as_bytes(), "n", 0, ID_MAX).ok();
        for (text, expected) in [
            ("0", Some(0)),
            ("000", Some(0)),
            ("7", Some(7)),
            ("00000000000000000000000000000000000007", Some(7)),
            ("9007199254740991", Some(ID_MAX)),
            ("9007199254740992", None),
            ("18446744073709551616", None),
            ("", None),
            ("-1", None),
            ("+1", None),
            ("1.0", None),
            ("1e3", None),
            (" 1", None),
            ("1\n", None),
            ("0x1", None),
            ("0 ", None),
            ("\u{661}", None),
        ] {
            assert_eq!(read(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_key_holds_its_numbers_in_one_spelling() {
        for (text, expected) in
            [("7", Some(7)), ("0", Some(0)), ("07", None), ("", None), ("7a", None)]
        {
            assert_eq!(canonical(text.as_bytes()), expected, "{text:?}");
        }
    }

    #[test]
    fn text_is_bounded_utf8() {
        assert_eq!(text(b"a", "n"), Ok("a"));
        assert_eq!(text(&[b'x'; 64], "n").map(str::len), Ok(64));
        for word in [&b""[..], &[b'x'; 65], b"\xff", b"\xed\xa0\x80"] {
            assert!(text(word, "n").is_err(), "{word:?}");
        }
    }
}
