//! How often: `100/1s`, `100/1s burst 20`, `off`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::meter::Meter;
use crate::duration;

/// The most calls a rate may name.
const COUNT_MAX: u32 = 10_000_000;

/// The longest period, in milliseconds: a day. State older than this is never needed.
const PERIOD_MS_MAX: u64 = 86_400_000;

/// So many calls in so long, and so many of them at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rate {
    /// Calls in a period.
    pub(crate) count: u32,
    /// The period, in milliseconds.
    pub(crate) period_ms: u64,
    /// Calls that may come at once; `count` where nobody says.
    pub(crate) burst: u32,
}

impl Rate {
    /// Time between two calls at this rate, at `speed` thousandths of it.
    pub(super) fn interval_ns(self, speed: Speed) -> u64 {
        let period_ns = self.period_ms.saturating_mul(1_000_000);
        let interval_ns = (period_ns / u64::from(self.count)).max(1);
        interval_ns.saturating_mul(1000) / u64::from(speed.0)
    }

    /// One more call of a bucket that stands at `state` (see [`super::meter::Meter`]).
    ///
    /// # Errors
    /// Nanoseconds until it would pass.
    pub(crate) fn take(self, state: u64, now_ns: u64) -> Result<u64, u64> {
        let meter = Meter::Bucket;
        meter.check(state, now_ns, self).map_err(|wait| wait.ns)?;
        Ok(meter.take(state, now_ns, self, Speed::FULL, false))
    }

    /// How far calls may run ahead of the rate.
    pub(super) fn tolerance_ns(self) -> u64 {
        self.interval_ns(Speed::FULL).saturating_mul(u64::from(self.burst - 1))
    }
}

/// Thousandths of a rate that are let through; never none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Speed(u32);

impl Speed {
    /// All of it.
    pub(crate) const FULL: Self = Self(1000);

    /// `thousandths`, at least one and at most all.
    pub(crate) fn of(thousandths: u64) -> Self {
        Self(u32::try_from(thousandths.clamp(1, 1000)).unwrap_or(1000))
    }

    /// Both reductions, one on top of the other.
    pub(crate) fn and(self, other: Self) -> Self {
        Self::of(u64::from(self.0) * u64::from(other.0) / 1000)
    }

    /// Thousandths.
    pub(crate) const fn thousandths(self) -> u32 {
        self.0
    }
}

/// A text that is no rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "a rate reads \"off\", \"100/1s\" or \"100/1s burst 20\": 1 to 10000000 calls in at most a day"
)]
pub(crate) struct NoRate;

impl FromStr for Rate {
    type Err = NoRate;

    fn from_str(text: &str) -> Result<Self, NoRate> {
        let (rate, burst) = match text.split_once(" burst ") {
            Some((rate, burst)) => (rate, Some(burst)),
            None => (text, None),
        };
        let (count, period) = rate.split_once('/').ok_or(NoRate)?;
        let number = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let number = text.parse().ok().filter(|_| digits);
            number.filter(|number| (1..=COUNT_MAX).contains(number)).ok_or(NoRate)
        };
        let count = number(count)?;
        let period_ms = duration::parse_ms(period).ok_or(NoRate)?;
        if !(1..=PERIOD_MS_MAX).contains(&period_ms) {
            return Err(NoRate);
        }
        Ok(Self { count, period_ms, burst: burst.map_or(Ok(count), number)? })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.count, duration::format_ms(self.period_ms))?;
        if self.burst == self.count { Ok(()) } else { write!(f, " burst {}", self.burst) }
    }
}

/// A rate, or none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Limit(pub(crate) Option<Rate>);

impl FromStr for Limit {
    type Err = NoRate;

    fn from_str(text: &str) -> Result<Self, NoRate> {
        if text == "off" { Ok(Self(None)) } else { text.parse().map(|rate| Self(Some(rate))) }
    }
}

impl Serialize for Limit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            None => serializer.serialize_str("off"),
            Some(rate) => serializer.collect_str(&rate),
        }
    }
}

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_written_as_it_is_read() {
        for text in ["1/1s", "100/500ms", "3/10s", "1000/1s burst 20", "10000000/1d"] {
            assert_eq!(text.parse::<Rate>().unwrap().to_string(), text);
        }
        assert_eq!("off".parse::<Limit>(), Ok(Limit(None)));
        assert_eq!("5/1s burst 5".parse::<Rate>().unwrap().to_string(), "5/1s");
    }

    #[test]
    fn what_is_no_rate_is_refused() {
        for text in [
            "",
            "0/1s",
            "-1/1s",
            "+1/1s",
            "1/0s",
            "1/2d",
            "1/s",
            "1",
            "/1s",
            "1.5/1s",
            "1/1s burst 0",
            "1/1s burst",
            "1/1s  burst 2",
            "10000001/1s",
            "1/1s burst x",
            "none",
        ] {
            assert_eq!(text.parse::<Limit>(), Err(NoRate), "{text}");
        }
    }

    #[test]
    fn a_lower_speed_stretches_the_interval() {
        let rate: Rate = "1000/1s".parse().unwrap();
        assert_eq!(rate.interval_ns(Speed::FULL), 1_000_000);
        assert_eq!(rate.interval_ns(Speed::of(250)), 4_000_000);
        assert_eq!(Speed::of(0), Speed::of(1), "never none");
        assert_eq!(Speed::of(500).and(Speed::of(500)), Speed::of(250));
    }
}
