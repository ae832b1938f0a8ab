//! What is sent, in which order: a pure function of the options, so that a run can be repeated.
//!
//! Shoppers come one after another with their first try. Between them are duplicate clicks (the
//! id of an earlier first try again) and second tries (an earlier shopper with a new id). Half of
//! both aim at a shopper who came a moment ago, whose first try is likely still in flight; the
//! other half at any shopper so far.

/// Shoppers counted as "a moment ago". A little above the usual number of connections' requests
/// in flight would dilute the race, far below it would always hit the same few.
const RECENT_SHOPPERS: u64 = 64;

/// Shares are kept in millionths: integer steps, the same on every machine.
const MILLION: u64 = 1_000_000;

/// One purchase request: who sends it and which of the shopper's ids it carries.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Request {
    /// Index of the shopper, from 0.
    pub(super) shopper: u32,
    /// Which of the shopper's request ids: 0 is the first try, others are unique in the run.
    pub(super) attempt: u64,
}

/// The whole run's requests, computed on demand.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    shoppers: u32,
    first_ppm: u64,
    repeat_ppm: u64,
    seed: u64,
}

impl Plan {
    /// A plan for `shoppers`, where `repeat_share` of the requests repeat an earlier id and
    /// `second_try_share` are second tries. `None` where there is no shopper or the shares leave
    /// nothing for first tries.
    pub(super) fn new(
        shoppers: u32,
        repeat_share: f64,
        second_try_share: f64,
        seed: u64,
    ) -> Option<Self> {
        let repeat_ppm = millionths(repeat_share)?;
        let second_ppm = millionths(second_try_share)?;
        let first_ppm = MILLION.checked_sub(repeat_ppm + second_ppm)?;
        (shoppers > 0 && first_ppm > 0).then_some(Self { shoppers, first_ppm, repeat_ppm, seed })
    }

    /// Requests until every shopper had the first try, the requests between them included.
    pub(super) fn natural_len(&self) -> u64 {
        u64::from(self.shoppers) * MILLION / self.first_ppm
    }

    /// The request at `index`.
    pub(super) fn request(&self, index: u64) -> Request {
        let firsts = self.firsts_before(index);
        let is_first = self.firsts_before(index + 1) > firsts;
        if is_first && firsts < u64::from(self.shoppers) {
            return Request { shopper: narrow(firsts), attempt: 0 };
        }
        let dice = mix(self.seed ^ mix(index));
        let so_far = firsts.clamp(1, u64::from(self.shoppers));
        let window = if dice & 1 == 0 { so_far } else { so_far.min(RECENT_SHOPPERS) };
        let shopper = narrow(so_far - 1 - (dice >> 1) % window);
        let is_repeat = !is_first && mix(dice) % (MILLION - self.first_ppm) < self.repeat_ppm;
        Request { shopper, attempt: if is_repeat { 0 } else { index + 1 } }
    }

    /// First tries among the requests before `index`: they are spread evenly, the first request
    /// being one.
    fn firsts_before(&self, index: u64) -> u64 {
        if self.first_ppm == MILLION {
            return index;
        }
        // u128: an index near 2^44 would overflow the product.
        let firsts = (u128::from(index) * u128::from(self.first_ppm)).div_ceil(MILLION.into());
        u64::try_from(firsts).unwrap_or(u64::MAX)
    }
}

fn millionths(share: f64) -> Option<u64> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0..=1 checked")]
    (0.0..=1.0).contains(&share).then(|| (share * 1e6).round() as u64)
}

fn narrow(shopper: u64) -> u32 {
    u32::try_from(shopper).unwrap_or(u32::MAX)
}

/// SplitMix64's finaliser: spreads consecutive numbers over all 64 bits.
pub(super) fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn counts(plan: &Plan, requests: u64) -> (u64, u64, u64) {
        let mut seen = BTreeSet::new();
        let (mut firsts, mut repeats, mut seconds) = (0, 0, 0);
        for request in (0..requests).map(|index| plan.request(index)) {
            match (seen.insert(request), request.attempt) {
                (true, 0) => firsts += 1,
                (true, _) => seconds += 1,
                (false, _) => repeats += 1,
            }
        }
        (firsts, repeats, seconds)
    }

    #[test]
    fn every_shopper_comes_once_and_the_shares_are_kept() {
        let plan = Plan::new(10_000, 1.0 / 3.0, 1.0 / 3.0, 7).unwrap();
        let requests = plan.natural_len();
        assert!((29_999..=30_001).contains(&requests), "{requests}");
        let (firsts, repeats, seconds) = counts(&plan, requests);
        assert_eq!(firsts, 10_000);
        assert!((9_500..10_500).contains(&repeats), "{repeats}");
        assert!((9_500..10_500).contains(&seconds), "{seconds}");
    }

    #[test]
    fn a_repeat_never_comes_before_the_request_it_repeats() {
        let plan = Plan::new(500, 0.6, 0.2, 1).unwrap();
        let mut came = BTreeSet::new();
        for index in 0..plan.natural_len() {
            let request = plan.request(index);
            let is_new_shopper = came.insert(request.shopper);
            assert!(!is_new_shopper || request.attempt == 0, "{index}: {request:?}");
        }
    }

    #[test]
    fn without_repeats_all_requests_differ_even_beyond_the_last_shopper() {
        let plan = Plan::new(100, 0.0, 0.0, 1).unwrap();
        let requests: BTreeSet<_> = (0..1_000).map(|index| plan.request(index)).collect();
        assert_eq!(requests.len(), 1_000);
        assert!(requests.iter().all(|request| request.shopper < 100));
    }

    #[test]
    fn shares_that_leave_no_first_try_are_refused() {
        assert!(Plan::new(10, 0.5, 0.5, 0).is_none());
        assert!(Plan::new(10, 0.8, 0.5, 0).is_none());
        assert!(Plan::new(10, -0.1, 0.5, 0).is_none());
        assert!(Plan::new(10, f64::NAN, 0.0, 0).is_none());
        assert!(Plan::new(0, 0.0, 0.0, 0).is_none());
    }
}
