//! Instants: Unix milliseconds inside, RFC 3339 UTC with milliseconds outside.

use engine::core::limits::TIME_MS_MAX;
use rustix::time::{ClockId, clock_gettime};
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

/// How an instant is written, with zeros for its digits.
const TEXT: [u8; 24] = *b"0000-00-00T00:00:00.000Z";

impl Instant {
    /// Its text, without the standard library's formatter: every accepted purchase has one.
    fn text(self) -> [u8; TEXT.len()] {
        let ns = i128::from(self.0.min(TIME_MS_MAX)) * 1_000_000;
        let at = OffsetDateTime::from_unix_timestamp_nanos(ns);
        let at = at.unwrap_or(OffsetDateTime::UNIX_EPOCH);
        let (hour, minute, second) = at.to_hms();
        let mut text = TEXT;
        for (number, digits) in [
            (at.year().unsigned_abs(), 0..4),
            (u8::from(at.month()).into(), 5..7),
            (at.day().into(), 8..10),
            (hour.into(), 11..13),
            (minute.into(), 14..16),
            (second.into(), 17..19),
            (at.millisecond().into(), 20..23),
        ] {
            let mut rest = number;
            for digit in text[digits].iter_mut().rev() {
                *digit = b"0123456789"[rest as usize % 10];
                rest /= 10;
            }
        }
        text
    }
}

impl std::fmt::Display for Instant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(std::str::from_utf8(&self.text()).map_err(|_| std::fmt::Error)?)
    }
}

impl Serialize for Instant {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = self.text();
        serializer.serialize_str(std::str::from_utf8(&text).map_err(serde::ser::Error::custom)?)
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

/// The wall clock in Unix seconds, for what others reckon by it (tokens, tickets, signed callbacks,
/// the `Date` header), and for what may be a little wrong (how often refusals are logged): what a
/// sale decides goes by the engine's clock.
pub(crate) fn wall_seconds() -> u64 {
    // As of the kernel's last tick: that costs a fraction of the precise one, which every request
    // would read several times.
    let now = clock_gettime(ClockId::RealtimeCoarse);
    u64::try_from(now.tv_sec).unwrap_or_default()
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
