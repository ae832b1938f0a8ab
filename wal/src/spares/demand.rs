//! How many spares there should be.
//!
//! They are made ahead of the rush that fills them: beside it their zeros take the disk and a core
//! from it. So where the end of it is foreseen, the rate asks for no more than is needed up to
//! there; unless the log outruns it: what fills segments then is something else.

use crate::limits::{SPARES, SPARES_AHEAD_US, SPARES_MAX};

/// What is known of the segments to come.
pub(super) struct Demand {
    /// How many spares there should be, by the rate at which segments are filled.
    by_rate: usize,
    /// Log that is foreseen, and not written yet, in segments.
    foreseen: usize,
    /// More is written than was foreseen.
    outruns: bool,
    /// When a segment was begun last; 0 for never.
    begun_us: u64,
    /// A segment was begun since somebody foresaw.
    has_begun: bool,
    /// There was no room for one beyond [`SPARES`].
    extra_denied: bool,
}

impl Default for Demand {
    fn default() -> Self {
        Self {
            by_rate: SPARES,
            foreseen: 0,
            outruns: false,
            begun_us: 0,
            has_begun: false,
            extra_denied: false,
        }
    }
}

impl Demand {
    /// How many spares there should be.
    ///
    /// # Panics
    /// Where it is fewer than a sale needs to go on, or more than a disk is asked for.
    pub(super) fn target(&self) -> usize {
        let by_sale = self.foreseen.saturating_add(SPARES).min(SPARES_MAX);
        let target = match (self.foreseen, self.outruns) {
            _ if self.extra_denied => SPARES,
            (0, _) => self.by_rate,
            (_, true) => by_sale.max(self.by_rate),
            (_, false) => by_sale,
        };
        assert!((SPARES..=SPARES_MAX).contains(&target), "{target} spares wanted");
        target
    }

    /// Notes that a segment is begun.
    pub(super) fn begin_segment(&mut self, now_us: u64) {
        if self.begun_us != 0 {
            self.by_rate = by_rate(now_us.saturating_sub(self.begun_us));
        }
        (self.begun_us, self.has_begun, self.extra_denied) = (now_us, true, false);
        self.foreseen = self.foreseen.saturating_sub(1);
    }

    /// Notes how many segments are foreseen. Tells whether that is news.
    pub(super) fn foresee(&mut self, segments: usize) -> bool {
        if std::mem::take(&mut self.has_begun) {
            // Less of what was foreseen is done than the segments that were begun would hold.
            self.outruns = segments > self.foreseen;
        }
        let is_news = self.foreseen != segments;
        self.foreseen = segments;
        self.extra_denied &= !is_news;
        is_news
    }

    /// Notes that there is no room for one beyond [`SPARES`]: none is wanted until a segment was
    /// begun or something else is foreseen.
    pub(super) fn deny_extra(&mut self) {
        self.extra_denied = true;
    }
}

/// How many spares there should be where the last segment was filled in `took_us`.
fn by_rate(took_us: u64) -> usize {
    let ahead = usize::try_from(SPARES_AHEAD_US / took_us.max(1)).unwrap_or(SPARES_MAX);
    ahead.saturating_add(1).clamp(SPARES, SPARES_MAX)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn spares_last_two_seconds_at_the_rate_at_which_segments_are_filled_within_their_bounds() {
        let seconds = |count: u64| count * 1_000_000;
        for (took_us, expected) in [
            (seconds(3600), SPARES),
            (seconds(2), SPARES),
            (500_000, 5),
            (400_000, 6),
            (1, SPARES_MAX),
            (0, SPARES_MAX),
        ] {
            assert_eq!(by_rate(took_us), expected, "a segment in {took_us} us");
        }
    }

    #[test]
    fn spares_for_what_is_foreseen_are_made_before_it_comes_and_none_beside_it() {
        for by_rate in [SPARES, SPARES_MAX] {
            let mut demand = Demand { by_rate, ..Demand::default() };
            assert_eq!(demand.target(), by_rate);
            for (foreseen, expected) in [(1, SPARES + 1), (usize::MAX, SPARES_MAX), (0, by_rate)] {
                demand.foresee(foreseen);
                assert_eq!(demand.target(), expected);
            }
        }
        // Each segment that is begun takes a spare, and is one less to come.
        let mut demand = Demand::default();
        demand.foresee(4);
        let mut spares = demand.target();
        for now_us in 1..=4 {
            demand.begin_segment(now_us * 10_000_000);
            spares -= 1;
            assert!(spares >= demand.target(), "{spares} for {}", demand.foreseen);
        }
    }

    #[test]
    fn where_the_log_outruns_what_was_foreseen_the_rate_counts_as_well() {
        let mut demand = Demand::default();
        demand.foresee(3);
        demand.begin_segment(1);
        demand.begin_segment(2);
        assert!(!demand.foresee(1), "as foreseen");
        assert_eq!(demand.target(), SPARES + 1);
        demand.begin_segment(3);
        assert!(demand.foresee(1), "nothing of it was done");
        assert_eq!(demand.target(), SPARES_MAX);
    }

    #[test]
    fn what_found_no_room_is_wanted_again_once_something_has_changed() {
        let mut demand = Demand::default();
        demand.foresee(2);
        for change in [|it: &mut Demand| it.begin_segment(9), |it: &mut Demand| _ = it.foresee(3)] {
            demand.deny_extra();
            demand.foresee(demand.foreseen);
            assert_eq!(demand.target(), SPARES);
            change(&mut demand);
            assert!(demand.target() > SPARES);
        }
    }
}
