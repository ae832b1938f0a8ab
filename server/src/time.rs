//! Instants: Unix milliseconds inside, RFC 3339 UTC with milliseconds outside.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use engine::core::limits::TIME_MS_MAX;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// An instant, in Unix milliseconds, `0..=TIME_MS_MAX`; in JSON `"2026-11-29T12:00:00.000Z"`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Instant(pub(crate) u64);

impl Instant {
    /// The instant that `text` names, rounded down to a millisecond, or `None` where it is no
    /// RFC 3339 date and time with an offset, or outside 1970..=9999.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        // RFC 3339 lets applications allow a blank between date and time; the contract does not.
        matches!(text.as_bytes().get(10), Some(b'T' | b't')).then_some(())?;
        let ns = OffsetDateTime::parse(text, &Rfc3339).ok()?.unix_timestamp_nanos();
        let ms = u64::try_from(ns.div_euclid(1_000_000)).ok()?;
        (ms <= TIME_MS_MAX).then_some(Self(ms))
    }
}

impl std::fmt::Display for Instant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ms = self.0.min(TIME_MS_MAX);
        let seconds = i64::try_from(ms / 1000).map_err(|_| std::fmt::Error)?;
        let at = OffsetDateTime::from_unix_timestamp(seconds).map_err(|_| std::fmt::Error)?;
        let (year, month, day) = (at.year(), u8::from(at.month()), at.day());
        let (hour, minute, second) = at.to_hms();
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z",
            ms % 1000
        )
    }
}

impl Serialize for Instant {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Instant {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| {
            serde::de::Error::custom("a time must be RFC 3339, as in 2026-11-29T12:00:00.000Z")
        })
    }
}

/// The wall clock in Unix seconds, for tokens alone: whatever concerns a sale is decided by the
/// engine's clock.
pub(crate) fn wall_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_written_with_milliseconds_in_utc() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (1, "1970-01-01T00:00:00.001Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (4_107_542_399_000, "2100-02-28T23:59:59.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (TIME_MS_MAX, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(Instant(ms).to_string(), text);
            assert_eq!(Instant::parse(text), Some(Instant(ms)), "{text}");
        }
        assert_eq!(Instant(u64::MAX).to_string(), "9999-12-31T23:59:59.999Z");
    }

    #[test]
    fn an_offset_is_honoured_and_a_finer_fraction_rounded_down() {
        let noon = Instant::parse("2026-11-29T12:00:00Z").unwrap();
        assert_eq!(Instant::parse("2026-11-29T20:00:00+08:00"), Some(noon));
        assert_eq!(Instant::parse("2026-11-29T12:00:00.0009999Z"), Some(noon));
    }

    #[test]
    fn what_is_no_instant_is_none() {
        for text in [
            "",
            "2026-11-29",
            "2026-11-29T12:00:00",
            "2026-11-29 12:00:00Z",
            "2026-13-29T12:00:00Z",
            "2025-02-29T12:00:00Z",
            "2026-11-29T24:00:01Z",
            "1969-12-31T23:59:59Z",
            "+010000-01-01T00:00:00Z",
            "2026-11-29T12:00:00+00:00[UTC]",
            "20261129T120000Z",
            "1764417600",
        ] {
            assert_eq!(Instant::parse(text), None, "{text}");
        }
    }
}
