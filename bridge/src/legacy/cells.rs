//! Values of the older system, read with suspicion: as bytes first, then as what they should be.

use engine::core::limits::TIME_MS_MAX;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::schema::Table;
use crate::sql::store::{Record, Value};

/// Integers from here on are milliseconds, below seconds: as milliseconds it is 1973, as seconds
/// the year 5138.
const MILLISECONDS_FROM: u64 = 100_000_000_000;

/// Characters of a bad value that are shown.
const SHOWN_MAX: usize = 40;

/// A cell that holds what it can't.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{column} is {found}, not {expected}")]
pub(super) struct Bad {
    /// The column.
    pub(super) column: &'static str,
    /// What stands there, in one short line.
    found: String,
    /// What should.
    expected: &'static str,
}

/// The cells of one row, by column.
#[derive(Clone, Copy)]
pub(super) struct Cells<'a> {
    pub(super) table: &'static Table,
    pub(super) record: &'a Record,
}

impl<'a> Cells<'a> {
    /// The bytes of a column that is there and not NULL.
    pub(super) fn bytes(&self, column: &'static str) -> Option<&'a [u8]> {
        let at = self.table.columns().position(|it| it == column);
        let at = at.unwrap_or_else(|| unreachable!("{} has no {column}", self.table.name));
        match self.record.0.get(at)? {
            Value::Text(text) => Some(text.as_bytes()),
            Value::Bytes(bytes) => Some(bytes),
            Value::Null | Value::Integer(_) => None,
        }
    }

    /// Text.
    pub(super) fn text(&self, column: &'static str) -> Result<Option<&'a str>, Bad> {
        let Some(bytes) = self.bytes(column) else { return Ok(None) };
        let text = std::str::from_utf8(bytes);
        text.map(Some).map_err(|_| bad(column, bytes, "text in UTF-8"))
    }

    /// A whole number from 0 on.
    pub(super) fn number(&self, column: &'static str) -> Result<Option<u64>, Bad> {
        let Some(bytes) = self.bytes(column) else { return Ok(None) };
        let number = digits(bytes);
        number.map(Some).ok_or_else(|| bad(column, bytes, "a whole number from 0 on"))
    }

    /// A number that must be there.
    pub(super) fn needed(&self, column: &'static str) -> Result<u64, Bad> {
        self.number(column)?.ok_or_else(|| Bad {
            column,
            found: "NULL".to_owned(),
            expected: "a whole number from 0 on",
        })
    }

    /// An instant, in Unix milliseconds.
    pub(super) fn instant(&self, column: &'static str) -> Result<Option<u64>, Bad> {
        let Some(bytes) = self.bytes(column) else { return Ok(None) };
        let instant = std::str::from_utf8(bytes).ok().and_then(instant);
        instant.map(Some).ok_or_else(|| bad(column, bytes, "an instant from 1970 to 9999"))
    }

    /// That `column` holds something else than `expected`.
    pub(super) fn bad(&self, column: &'static str, expected: &'static str) -> Bad {
        bad(column, self.bytes(column).unwrap_or(b"NULL"), expected)
    }
}

fn digits(bytes: &[u8]) -> Option<u64> {
    let is_digits = !bytes.is_empty() && bytes.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(bytes).ok().filter(|_| is_digits)?.parse().ok()
}

/// `2026-11-29 12:00:00.123`, in UTC where it names no offset, or a Unix time.
fn instant(text: &str) -> Option<u64> {
    let ms = match digits(text.as_bytes()) {
        Some(ms) if ms >= MILLISECONDS_FROM => ms,
        Some(seconds) => seconds.checked_mul(1000)?,
        None => {
            let (date, time) = (text.get(..10)?, text.get(11..)?);
            let has_offset = time.ends_with(['Z', 'z']) || time.contains(['+', '-']);
            let zone = if has_offset { "" } else { "Z" };
            let at = OffsetDateTime::parse(&format!("{date}T{time}{zone}"), &Rfc3339).ok()?;
            u64::try_from(at.unix_timestamp_nanos().div_euclid(1_000_000)).ok()?
        }
    };
    (ms <= TIME_MS_MAX).then_some(ms)
}

/// Anything, in one short line of a log.
pub(super) fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{:?}...", &text[..end]),
        None => format!("{text:?}"),
    }
}

fn bad(column: &'static str, found: &[u8], expected: &'static str) -> Bad {
    Bad { column, found: shown(found), expected }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_digits_alone() {
        for (text, number) in [
            ("0", Some(0)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("-1", None),
            ("+1", None),
            ("1.0", None),
            ("1 OR 1=1", None),
            ("", None),
        ] {
            assert_eq!(digits(text.as_bytes()), number, "{text}");
        }
    }

    #[test]
    fn an_instant_is_a_date_or_a_unix_time() {
        for (text, ms) in [
            ("1970-01-01 00:00:01", Some(1000)),
            ("1970-01-01T00:00:01.250", Some(1250)),
            ("1970-01-01 08:00:01+08:00", Some(1000)),
            ("1970-01-01T00:00:01Z", Some(1000)),
            ("1700000000", Some(1_700_000_000_000)),
            ("1700000000123", Some(1_700_000_000_123)),
            ("0000-00-00 00:00:00", None),
            ("1969-12-31 23:59:59", None),
            ("2026-02-30 00:00:00", None),
            ("99999999999999999", None),
            ("tomorrow", None),
            ("\u{1F600}\u{1F600}\u{1F600}\u{1F600}", None),
        ] {
            assert_eq!(instant(text), ms, "{text}");
        }
    }

    #[test]
    fn a_bad_value_is_shown_on_one_short_line() {
        assert_eq!(shown(b"a\nb"), r#""a\nb""#);
        assert!(shown("\u{1F600}".repeat(1000).as_bytes()).len() < 200);
    }
}
