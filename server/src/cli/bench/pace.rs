//! When the requests of an open loop are due: a rate that may rise at first and spike once.
//!
//! The rate over time is a line of straight pieces. Request `i` is due when the area under it has
//! come to `i`: a pure function, so that threads need not agree on more than the next number.

use std::time::Duration;

/// A sudden rush in the middle of a run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Spike {
    /// Requests a second while it lasts.
    pub(super) rate: f64,
    /// When it begins.
    pub(super) start: Duration,
    /// How long it lasts.
    pub(super) length: Duration,
}

impl Spike {
    /// Reads `RATE@START+LENGTH`, `50000@10s+2s` say.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        let parse = || {
            let (rate, times) = text.split_once('@')?;
            let (start, length) = times.split_once('+')?;
            let rate: f64 = rate.parse().ok()?;
            let [start, length] = [start, length].map(crate::duration::parse);
            let (start, length) = (start?, length?);
            let is_spike = rate.is_finite() && rate > 0.0 && !length.is_zero();
            is_spike.then_some(Self { rate, start, length })
        };
        parse().ok_or("RATE@START+LENGTH is wanted, for example 50000@10s+2s")
    }
}

/// A piece of the line: the rate goes evenly from one value to another.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Piece {
    start_s: f64,
    /// Infinite for the last.
    length_s: f64,
    from: f64,
    to: f64,
}

impl Piece {
    /// Requests that are due in it.
    fn requests(&self) -> f64 {
        (self.from + self.to) / 2.0 * self.length_s
    }

    /// When the area from its start has come to `requests`, in seconds from the run's start.
    fn reached_s(&self, requests: f64) -> f64 {
        let slope =
            if self.length_s.is_finite() { (self.to - self.from) / self.length_s } else { 0.0 };
        // The root of slope/2 t^2 + from t = requests, in the form that bears a slope of 0.
        let root = (self.from * self.from + 2.0 * slope * requests).max(0.0).sqrt();
        let sum = self.from + root;
        if sum > 0.0 { self.start_s + 2.0 * requests / sum } else { self.start_s }
    }
}

/// The rate of a run over its time.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Pace(Vec<Piece>);

impl Pace {
    /// `rate` requests a second, reached evenly within `ramp`, with a `spike` where there is one.
    /// `None` where `rate` is none.
    pub(super) fn new(rate: f64, ramp: Duration, spike: Option<Spike>) -> Option<Self> {
        if !rate.is_finite() || rate <= 0.0 {
            return None;
        }
        let ramp_s = ramp.as_secs_f64();
        let base = |at_s: f64| if at_s < ramp_s { rate * at_s / ramp_s } else { rate };
        let rush = spike.map(|spike| {
            let start_s = spike.start.as_secs_f64();
            (start_s, start_s + spike.length.as_secs_f64(), spike.rate)
        });
        let mut bounds = vec![0.0, ramp_s];
        bounds.extend(rush.iter().flat_map(|(start_s, end_s, _)| [*start_s, *end_s]));
        bounds.sort_by(f64::total_cmp);
        bounds.dedup();
        bounds.push(f64::INFINITY);
        let piece = |pair: &[f64]| {
            let &[start_s, end_s] = pair else { return None };
            let in_rush = rush.filter(|(from, to, _)| (*from..*to).contains(&start_s));
            let (from, to) = match in_rush {
                Some((_, _, rate)) => (rate, rate),
                None => (base(start_s), base(end_s)),
            };
            Some(Piece { start_s, length_s: end_s - start_s, from, to })
        };
        Some(Self(bounds.windows(2).filter_map(piece).collect()))
    }

    /// When request `index` is due, from the run's start; `None` beyond any time that can be told.
    pub(super) fn due(&self, index: u64) -> Option<Duration> {
        #[expect(clippy::cast_precision_loss, reason = "2^53 requests are never reached")]
        let mut left = index as f64;
        for piece in &self.0 {
            let here = piece.requests();
            if left < here {
                return Duration::try_from_secs_f64(piece.reached_s(left)).ok();
            }
            left -= here;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Requests that are due before `end`.
    fn due_before(pace: &Pace, end: Duration) -> usize {
        (0..).take_while(|index| pace.due(*index).is_some_and(|due| due < end)).count()
    }

    #[test]
    fn a_steady_rate_is_kept() {
        let pace = Pace::new(1_000.0, Duration::ZERO, None).unwrap();
        assert_eq!(pace.due(0), Some(Duration::ZERO));
        assert_eq!(pace.due(1_500), Some(Duration::from_millis(1_500)));
    }

    #[test]
    fn a_ramp_sends_half_of_what_the_rate_would() {
        let pace = Pace::new(1_000.0, 4 * SECOND, None).unwrap();
        assert_eq!(due_before(&pace, 4 * SECOND), 2_000);
        assert_eq!(due_before(&pace, 2 * SECOND), 500);
        assert_eq!(due_before(&pace, 6 * SECOND), 4_000);
    }

    #[test]
    fn a_spike_adds_its_own_and_ends() {
        let spike = Spike::parse("5000@2s+1s").unwrap();
        let pace = Pace::new(1_000.0, SECOND, Some(spike)).unwrap();
        let counts = [1, 2, 3, 4].map(|seconds| due_before(&pace, seconds * SECOND));
        assert_eq!(counts, [500, 1_500, 6_500, 7_500]);
    }

    #[test]
    fn no_request_is_due_before_the_one_in_front_of_it() {
        let spike = Spike::parse("90@1s+1s").unwrap();
        let pace = Pace::new(700.0, 3 * SECOND, Some(spike)).unwrap();
        let dues: Vec<_> = (0..3_000).map(|index| pace.due(index).unwrap()).collect();
        assert!(dues.is_sorted());
    }

    #[test]
    fn what_makes_no_rate_or_no_spike_is_refused() {
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(Pace::new(rate, SECOND, None), None);
        }
        for text in ["", "5000", "5000@1s", "0@1s+1s", "x@1s+1s", "5@1s+0s", "5@1+1s"] {
            assert!(Spike::parse(text).is_err(), "{text}");
        }
    }
}
