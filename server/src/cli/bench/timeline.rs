//! How a run went over time: answers by kind and their latencies, in equal bins.
//!
//! A run may last a second or an hour: where there would be too many bins, neighbours are put
//! together and all become twice as long.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::tally::Kind;

/// The length of a bin at first.
const BIN: Duration = Duration::from_millis(100);

/// Bins at most: more than a plot has room for, and a few megabytes.
const BINS_MAX: usize = 512;

/// The longest latency told apart from longer ones, microseconds.
const LATENCY_US_MAX: u64 = 600_000_000;

/// A hundredth is enough for a plot.
const SIGNIFICANT_DIGITS: u8 = 2;

/// One bin.
#[derive(Clone, Debug)]
pub(super) struct Bin {
    /// New reservations.
    pub(super) accepted: u64,
    /// Those that were made before.
    pub(super) replayed: u64,
    /// Other answers.
    pub(super) refused: u64,
    latencies: Histogram<u32>,
}

impl Bin {
    fn new() -> Self {
        let latencies = match Histogram::new_with_max(LATENCY_US_MAX, SIGNIFICANT_DIGITS) {
            Ok(histogram) => histogram,
            Err(error) => unreachable!("constant bounds: {error}"),
        };
        Self { accepted: 0, replayed: 0, refused: 0, latencies }
    }

    /// The latency that `quantile` (0..=1) of its answers did not exceed, in microseconds; `None`
    /// where there were no answers.
    pub(super) fn quantile_us(&self, quantile: f64) -> Option<u64> {
        (!self.latencies.is_empty()).then(|| self.latencies.value_at_quantile(quantile))
    }

    fn add(&mut self, other: &Self) {
        self.accepted += other.accepted;
        self.replayed += other.replayed;
        self.refused += other.refused;
        self.latencies += &other.latencies;
    }
}

/// A run in bins.
#[derive(Clone, Debug)]
pub(super) struct Timeline {
    bin: Duration,
    bins: Vec<Bin>,
}

impl Timeline {
    /// Nothing yet.
    pub(super) const fn new() -> Self {
        Self { bin: BIN, bins: Vec::new() }
    }

    /// Records an answer that came `at` that time of the run.
    pub(super) fn record(&mut self, at: Duration, kind: Kind, latency_us: u64) {
        let bin = self.bin_at(at);
        match kind {
            Kind::Accepted => bin.accepted += 1,
            Kind::Replayed => bin.replayed += 1,
            Kind::Refused => bin.refused += 1,
        }
        bin.latencies.saturating_record(latency_us);
    }

    fn bin_at(&mut self, at: Duration) -> &mut Bin {
        loop {
            let index = usize::try_from(at.as_nanos() / self.bin.as_nanos()).unwrap_or(usize::MAX);
            if index < BINS_MAX {
                if index >= self.bins.len() {
                    self.bins.resize_with(index + 1, Bin::new);
                }
                return &mut self.bins[index];
            }
            self.coarsen();
        }
    }

    /// Makes bins twice as long.
    fn coarsen(&mut self) {
        self.bin *= 2;
        let pairs = self.bins.chunks(2).map(|pair| {
            let mut whole = pair[0].clone();
            pair[1..].iter().for_each(|half| whole.add(half));
            whole
        });
        self.bins = pairs.collect();
    }

    /// Adds another worker's.
    pub(super) fn merge(&mut self, mut other: Self) {
        while self.bin < other.bin {
            self.coarsen();
        }
        while other.bin < self.bin {
            other.coarsen();
        }
        if self.bins.len() < other.bins.len() {
            self.bins.resize_with(other.bins.len(), Bin::new);
        }
        self.bins.iter_mut().zip(&other.bins).for_each(|(ours, theirs)| ours.add(theirs));
    }

    /// How long a bin is.
    pub(super) const fn bin(&self) -> Duration {
        self.bin
    }

    /// The bins, and when each begins.
    pub(super) fn bins(&self) -> impl Iterator<Item = (Duration, &Bin)> {
        self.bins
            .iter()
            .enumerate()
            .map(|(index, bin)| (self.bin * u32::try_from(index).unwrap_or(u32::MAX), bin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn accepted(timeline: &Timeline) -> Vec<u64> {
        timeline.bins().map(|(_, bin)| bin.accepted).collect()
    }

    #[test]
    fn answers_are_counted_when_they_came() {
        let mut timeline = Timeline::new();
        for at in [0, 99, 100, 350] {
            timeline.record(Duration::from_millis(at), Kind::Accepted, 40);
        }
        assert_eq!(accepted(&timeline), [2, 1, 0, 1]);
        let quantiles: Vec<_> = timeline.bins().map(|(_, bin)| bin.quantile_us(0.5)).collect();
        assert_eq!(quantiles, [Some(40), Some(40), None, Some(40)]);
    }

    #[test]
    fn a_long_run_has_longer_bins_and_loses_no_answer() {
        let mut timeline = Timeline::new();
        for second in 0..3_600 {
            timeline.record(second * SECOND, Kind::Accepted, 1);
        }
        assert!(timeline.bins().count() <= BINS_MAX);
        assert_eq!(accepted(&timeline).iter().sum::<u64>(), 3_600);
        assert_eq!(timeline.bin(), BIN * 128);
    }

    #[test]
    fn workers_with_bins_of_different_lengths_add_up() {
        let (mut short, mut long) = (Timeline::new(), Timeline::new());
        short.record(SECOND, Kind::Refused, 10);
        long.record(100 * SECOND, Kind::Refused, 10);
        short.merge(long);
        let refused: u64 = short.bins().map(|(_, bin)| bin.refused).sum();
        assert_eq!((refused, short.bin()), (2, BIN * 2));
    }
}
