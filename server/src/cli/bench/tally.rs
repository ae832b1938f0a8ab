//! What came back: counts, latencies, and every acceptance for the checks afterwards.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::client::{ExchangeError, Reply};
use super::plan::Request;
use super::wire::{AcceptedBody, ProblemBody};

/// Distinct refusal codes that are counted by name; the contract has under twenty. More would be
/// a server that makes them up, and are counted together.
const CODES_MAX: usize = 64;

/// The longest latency told apart from longer ones; above any time-out that makes sense.
const LATENCY_MAX: Duration = Duration::from_secs(600);

/// Three digits: a p99.9 of 12.3 ms is told from 12.4 ms.
const SIGNIFICANT_DIGITS: u8 = 3;

/// Codes that say for sure that nothing was reserved, though the status is a 5xx.
const NOTHING_RESERVED: [&str; 2] = ["overloaded", "recovering"];

/// One 202: the request and the reservation that its answer names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Acceptance {
    /// Who asked, with which id.
    pub(super) request: Request,
    /// The reservation's id.
    pub(super) reservation: u64,
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
    pub(super) fn record(&mut self, latency: Duration) {
        self.0.saturating_record(microseconds(latency));
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

fn microseconds(latency: Duration) -> u64 {
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
    /// Exchanges without an answer, by [`ExchangeError::name`].
    pub(super) errors: BTreeMap<&'static str, u64>,
    /// Every 202. Bounded by the run's number of requests.
    pub(super) acceptances: Vec<Acceptance>,
    /// Requests whose outcome is unknown: to be asked again with the same id.
    pub(super) unsettled: Vec<Request>,
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
        }
    }

    /// Records what `request` brought after `latency`; true where it was a new reservation.
    pub(super) fn record(
        &mut self,
        request: Request,
        latency: Duration,
        outcome: Result<Reply<'_>, ExchangeError>,
    ) -> bool {
        let reply = match outcome {
            Ok(reply) => reply,
            Err(error) => {
                *self.errors.entry(error.name()).or_default() += 1;
                if !matches!(error, ExchangeError::Connect(_)) {
                    self.unsettled.push(request);
                }
                return false;
            }
        };
        self.all.record(latency);
        match acceptance(request, &reply) {
            Some(acceptance) => {
                self.acceptances.push(acceptance);
                let kind = if reply.is_replay { &mut self.replayed } else { &mut self.accepted };
                kind.record(latency);
                !reply.is_replay
            }
            None => {
                self.refused.record(latency);
                self.record_refusal(request, &reply);
                false
            }
        }
    }

    /// Records a purchase over the Redis protocol: `Ok` names the reservation and whether it is a
    /// repeat's, `Err` the code of the refusal and whether the outcome is unknown. True where it
    /// was a new reservation.
    pub(super) fn record_call(
        &mut self,
        request: Request,
        latency: Duration,
        outcome: Result<(u64, bool), (&str, bool)>,
    ) -> bool {
        self.all.record(latency);
        match outcome {
            Ok((reservation, is_replay)) => {
                self.acceptances.push(Acceptance { request, reservation });
                let kind = if is_replay { &mut self.replayed } else { &mut self.accepted };
                kind.record(latency);
                !is_replay
            }
            Err((code, is_unknown)) => {
                self.refused.record(latency);
                self.count(code);
                if is_unknown {
                    self.unsettled.push(request);
                }
                false
            }
        }
    }

    /// Records a request that went out and was never answered.
    pub(super) fn record_lost(&mut self, request: Request, error: &'static str) {
        *self.errors.entry(error).or_default() += 1;
        self.unsettled.push(request);
    }

    fn record_refusal(&mut self, request: Request, reply: &Reply<'_>) {
        let problem: Option<ProblemBody<'_>> = serde_json::from_slice(reply.body).ok();
        let code = problem.as_ref().map_or("without_code", |problem| &problem.code);
        if reply.status < 400 || reply.status >= 500 && !NOTHING_RESERVED.contains(&code) {
            self.unsettled.push(request);
        }
        self.count(code);
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
    }
}

/// The acceptance in a reply, or `None` where it is none.
pub(super) fn acceptance(request: Request, reply: &Reply<'_>) -> Option<Acceptance> {
    if reply.status != 202 {
        return None;
    }
    let body: AcceptedBody = serde_json::from_slice(reply.body).ok()?;
    Some(Acceptance { request, reservation: body.pre_deduction_id })
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: Request = Request { shopper: 3, attempt: 0 };
    const LATENCY: Duration = Duration::from_micros(250);

    fn reply(status: u16, is_replay: bool, body: &str) -> Reply<'_> {
        Reply { status, is_replay, body: body.as_bytes() }
    }

    #[test]
    fn a_new_reservation_a_replay_and_a_refusal_are_counted_apart() {
        let mut tally = Tally::new();
        let body = r#"{"pre_deduction_id":4294967297,"status":"pending_order"}"#;
        assert!(tally.record(REQUEST, LATENCY, Ok(reply(202, false, body))));
        assert!(!tally.record(REQUEST, LATENCY, Ok(reply(202, true, body))));
        assert!(!tally.record(REQUEST, LATENCY, Ok(reply(409, false, r#"{"code":"sold_out"}"#))));
        let counts = (tally.accepted.count(), tally.replayed.count(), tally.refused.count());
        assert_eq!((counts, tally.all.count()), ((1, 1, 1), 3));
        assert_eq!(tally.codes["sold_out"], 1);
        assert_eq!(tally.acceptances.len(), 2);
        assert!(tally.unsettled.is_empty());
    }

    #[test]
    fn only_an_outcome_that_is_unknown_is_asked_again() {
        for (body, status, is_unknown) in [
            (r#"{"code":"overloaded"}"#, 503, false),
            (r#"{"code":"log_unavailable"}"#, 503, true),
            ("<html>", 500, true),
            ("", 202, true),
            ("", 400, false),
        ] {
            let mut tally = Tally::new();
            tally.record(REQUEST, LATENCY, Ok(reply(status, false, body)));
            assert_eq!(!tally.unsettled.is_empty(), is_unknown, "{status} {body}");
        }
        for (error, is_unknown) in [
            (ExchangeError::Closed, true),
            (ExchangeError::TimedOut, true),
            (ExchangeError::Connect(std::io::ErrorKind::ConnectionRefused), false),
        ] {
            let mut tally = Tally::new();
            tally.record(REQUEST, LATENCY, Err(error));
            assert_eq!(!tally.unsettled.is_empty(), is_unknown, "{error}");
        }
    }

    #[test]
    fn a_long_latency_is_told_within_a_thousandth_and_one_beyond_all_bounds_is_kept() {
        let mut latencies = Latencies::new();
        latencies.record(Duration::from_secs(5));
        assert!((5_000_000..5_005_000).contains(&latencies.max_us()));
        latencies.record(Duration::MAX);
        assert!(latencies.max_us() >= microseconds(LATENCY_MAX));
        assert_eq!(latencies.count(), 2);
    }

    #[test]
    fn endless_new_codes_do_not_grow_the_tally() {
        let mut tally = Tally::new();
        for code in 0..1_000 {
            let body = format!(r#"{{"code":"c{code}"}}"#);
            tally.record(REQUEST, LATENCY, Ok(reply(409, false, &body)));
        }
        assert_eq!(tally.codes.len(), CODES_MAX + 1);
        assert_eq!(tally.codes.values().sum::<u64>(), 1_000);
    }
}
