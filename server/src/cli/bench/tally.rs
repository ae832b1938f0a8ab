//! What came back: counts, latencies, and every acceptance for the checks afterwards.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::plan::Request;
use super::timeline::Timeline;

/// Distinct refusal codes that are counted by name; the contract has under twenty. More would be
/// a server that makes them up, and are counted together.
const CODES_MAX: usize = 64;

/// The longest latency told apart from longer ones; above any time-out that makes sense.
const LATENCY_MAX: Duration = Duration::from_secs(600);

/// Three digits: a p99.9 of 12.3 ms is told from 12.4 ms.
const SIGNIFICANT_DIGITS: u8 = 3;

/// One 202: the request and the reservation that its answer names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Acceptance {
    /// Who asked, with which id.
    pub(super) request: Request,
    /// The reservation's id.
    pub(super) reservation: u64,
}

/// What a purchase was answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// It has a reservation.
    Reserved {
        /// The reservation's id.
        id: u64,
        /// It was made by an earlier request with the same id.
        is_replay: bool,
    },
    /// It has none, as far as that is told.
    Refused {
        /// Why.
        code: Cow<'static, str>,
        /// It may have one all the same: to be asked again.
        is_unknown: bool,
    },
}

/// Kinds of answers that are counted apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// A new reservation.
    Accepted,
    /// One that was made before.
    Replayed,
    /// Any other answer.
    Refused,
}

/// Latencies of one kind of answer, in microseconds.
pub(super) struct Latencies(Histogram<u64>);

impl Latencies {
    /// None yet.
    pub(super) fn new() -> Self {
        let latency_us_max = microseconds(LATENCY_MAX);
        // Bounds from the start, not resized on the way: that would stall all connections.
        match Histogram::new_with_max(latency_us_max, SIGNIFICANT_DIGITS) {
            Ok(histogram) => Self(histogram),
            Err(error) => unreachable!("constant bounds: {error}"),
        }
    }

    /// Adds one.
    pub(super) fn record(&mut self, latency_us: u64) {
        self.0.saturating_record(latency_us);
    }

    /// Adds another's.
    pub(super) fn add(&mut self, other: &Self) {
        self.0 += &other.0;
    }

    /// Number of answers.
    pub(super) fn count(&self) -> u64 {
        self.0.len()
    }

    /// The latency that `quantile` (0..=1) of the answers did not exceed, in microseconds.
    pub(super) fn quantile_us(&self, quantile: f64) -> u64 {
        self.0.value_at_quantile(quantile)
    }

    /// The longest, in microseconds.
    pub(super) fn max_us(&self) -> u64 {
        self.0.max()
    }
}

/// Microseconds, as many as fit.
pub(super) fn microseconds(latency: Duration) -> u64 {
    u64::try_from(latency.as_micros()).unwrap_or(u64::MAX)
}

/// One worker's results; added up at the end.
pub(super) struct Tally {
    /// New reservations.
    pub(super) accepted: Latencies,
    /// 202 with `Idempotency-Replayed`.
    pub(super) replayed: Latencies,
    /// Any other answer.
    pub(super) refused: Latencies,
    /// All answers.
    pub(super) all: Latencies,
    /// Refusals by code.
    pub(super) codes: BTreeMap<Box<str>, u64>,
    /// Requests without an answer, by what was in the way.
    pub(super) errors: BTreeMap<&'static str, u64>,
    /// Every 202. Bounded by the run's number of requests.
    pub(super) acceptances: Vec<Acceptance>,
    /// Requests whose outcome is unknown: to be asked again with the same id.
    pub(super) unsettled: Vec<Request>,
    /// How it went over time.
    pub(super) timeline: Timeline,
}

impl Tally {
    /// Nothing yet.
    pub(super) fn new() -> Self {
        Self {
            accepted: Latencies::new(),
            replayed: Latencies::new(),
            refused: Latencies::new(),
            all: Latencies::new(),
            codes: BTreeMap::new(),
            errors: BTreeMap::new(),
            acceptances: Vec::new(),
            unsettled: Vec::new(),
            timeline: Timeline::new(),
        }
    }

    /// Records what `request` brought `at` that time of the run, after `latency`; true where it was
    /// a new reservation.
    pub(super) fn record(
        &mut self,
        request: Request,
        at: Duration,
        latency: Duration,
        outcome: &Outcome,
    ) -> bool {
        let latency_us = microseconds(latency);
        self.all.record(latency_us);
        let kind = match outcome {
            Outcome::Reserved { id, is_replay } => {
                self.acceptances.push(Acceptance { request, reservation: *id });
                if *is_replay { Kind::Replayed } else { Kind::Accepted }
            }
            Outcome::Refused { code, is_unknown } => {
                self.count(code);
                if *is_unknown {
                    self.unsettled.push(request);
                }
                Kind::Refused
            }
        };
        match kind {
            Kind::Accepted => self.accepted.record(latency_us),
            Kind::Replayed => self.replayed.record(latency_us),
            Kind::Refused => self.refused.record(latency_us),
        }
        self.timeline.record(at, kind, latency_us);
        kind == Kind::Accepted
    }

    /// Records a request that went out and was never answered.
    pub(super) fn record_lost(&mut self, request: Request, error: &'static str) {
        *self.errors.entry(error).or_default() += 1;
        self.unsettled.push(request);
    }

    /// Records a request that found no connection: nothing was sent.
    pub(super) fn record_unsent(&mut self) {
        *self.errors.entry("connect").or_default() += 1;
    }

    fn count(&mut self, code: &str) {
        if let Some(count) = self.codes.get_mut(code) {
            *count += 1;
        } else {
            let code = if self.codes.len() < CODES_MAX { code } else { "other_codes" };
            *self.codes.entry(code.into()).or_default() += 1;
        }
    }

    /// Adds another worker's results.
    pub(super) fn merge(&mut self, other: Self) {
        self.accepted.add(&other.accepted);
        self.replayed.add(&other.replayed);
        self.refused.add(&other.refused);
        self.all.add(&other.all);
        for (code, count) in other.codes {
            *self.codes.entry(code).or_default() += count;
        }
        for (error, count) in other.errors {
            *self.errors.entry(error).or_default() += count;
        }
        self.acceptances.extend(other.acceptances);
        self.unsettled.extend(other.unsettled);
        self.timeline.merge(other.timeline);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: Request = Request { shopper: 3, attempt: 0 };
    const AT: Duration = Duration::from_millis(10);
    const LATENCY: Duration = Duration::from_micros(250);

    fn refused(code: &str, is_unknown: bool) -> Outcome {
        Outcome::Refused { code: code.to_owned().into(), is_unknown }
    }

    #[test]
    fn a_new_reservation_a_replay_and_a_refusal_are_counted_apart() {
        let mut tally = Tally::new();
        let reserved = |is_replay| Outcome::Reserved { id: 4_294_967_297, is_replay };
        assert!(tally.record(REQUEST, AT, LATENCY, &reserved(false)));
        assert!(!tally.record(REQUEST, AT, LATENCY, &reserved(true)));
        assert!(!tally.record(REQUEST, AT, LATENCY, &refused("sold_out", false)));
        let counts = (tally.accepted.count(), tally.replayed.count(), tally.refused.count());
        assert_eq!((counts, tally.all.count()), ((1, 1, 1), 3));
        assert_eq!(tally.codes["sold_out"], 1);
        assert_eq!(tally.acceptances.len(), 2);
        assert!(tally.unsettled.is_empty());
    }

    #[test]
    fn what_was_sent_without_a_clear_answer_is_asked_again() {
        let mut tally = Tally::new();
        tally.record(REQUEST, AT, LATENCY, &refused("log_unavailable", true));
        tally.record_lost(REQUEST, "closed");
        tally.record_unsent();
        assert_eq!(tally.unsettled, [REQUEST, REQUEST]);
        assert_eq!((tally.errors["closed"], tally.errors["connect"]), (1, 1));
    }

    #[test]
    fn a_long_latency_is_told_within_a_thousandth_and_one_beyond_all_bounds_is_kept() {
        let mut latencies = Latencies::new();
        latencies.record(5_000_000);
        assert!((5_000_000..5_005_000).contains(&latencies.max_us()));
        latencies.record(u64::MAX);
        assert!(latencies.max_us() >= microseconds(LATENCY_MAX));
        assert_eq!(latencies.count(), 2);
    }

    #[test]
    fn endless_new_codes_do_not_grow_the_tally() {
        let mut tally = Tally::new();
        for code in 0..1_000 {
            tally.record(REQUEST, AT, LATENCY, &refused(&format!("c{code}"), false));
        }
        assert_eq!(tally.codes.len(), CODES_MAX + 1);
        assert_eq!(tally.codes.values().sum::<u64>(), 1_000);
    }
}
