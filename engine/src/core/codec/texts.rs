//! Texts and raw bytes, each behind the count of its bytes.

use super::fields::Field;
use super::reader::Reader;
use super::writer::Writer;

/// A text whose bytes are counted in a byte.
pub(super) struct Short<const MIN: usize, const MAX: usize>;

impl<const MIN: usize, const MAX: usize> Field for Short<MIN, MAX> {
    type Value<'a> = &'a str;

    #[inline(always)]
    fn fits(value: &str) -> bool {
        const { assert!(MAX <= u8::MAX as usize) };
        (MIN..=MAX).contains(&value.len())
    }

    #[inline(always)]
    fn put(value: &str, out: &mut Writer<'_>) {
        out.fixed([u8::try_from(value.len()).unwrap_or_else(|_| unreachable!("`fits` holds"))]);
        out.bytes(value.as_bytes());
    }

    #[inline]
    fn take<'a>(reader: &mut Reader<'a>) -> Option<&'a str> {
        let count = reader.u8()?;
        str::from_utf8(reader.bytes(usize::from(count))?).ok()
    }
}

/// A text whose bytes are counted in two bytes.
pub(super) struct Text<const MIN: usize, const MAX: usize>;

impl<const MIN: usize, const MAX: usize> Field for Text<MIN, MAX> {
    type Value<'a> = &'a str;

    fn fits(value: &str) -> bool {
        MIN <= value.len() && Bytes::<MAX>::fits(value.as_bytes())
    }

    #[inline(always)]
    fn put(value: &str, out: &mut Writer<'_>) {
        Bytes::<MAX>::put(value.as_bytes(), out);
    }

    #[inline]
    fn take<'a>(reader: &mut Reader<'a>) -> Option<&'a str> {
        str::from_utf8(Bytes::<MAX>::take(reader)?).ok()
    }
}

/// Bytes, counted in two bytes.
pub(super) struct Bytes<const MAX: usize>;

impl<const MAX: usize> Field for Bytes<MAX> {
    type Value<'a> = &'a [u8];

    fn fits(value: &[u8]) -> bool {
        const { assert!(MAX <= u16::MAX as usize) };
        value.len() <= MAX
    }

    fn put(value: &[u8], out: &mut Writer<'_>) {
        let count = u16::try_from(value.len()).unwrap_or_else(|_| unreachable!("`fits` holds"));
        out.fixed(count.to_le_bytes());
        out.bytes(value);
    }

    #[inline]
    fn take<'a>(reader: &mut Reader<'a>) -> Option<&'a [u8]> {
        let count = reader.u16()?;
        reader.bytes(usize::from(count))
    }
}
