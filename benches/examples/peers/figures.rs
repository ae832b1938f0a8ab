//! Several turns of one contender at one workload, as a median with its range.

/// Figures of the turns; at least one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spread(Vec<f64>);

impl Spread {
    /// Takes another turn's figure.
    pub(crate) fn push(&mut self, figure: f64) {
        let place = self.0.partition_point(|other| *other < figure);
        self.0.insert(place, figure);
    }

    /// The middle one; the lower of two.
    pub(crate) fn median(&self) -> f64 {
        self.0.get(self.0.len().saturating_sub(1) / 2).copied().unwrap_or(f64::NAN)
    }

    /// The smallest and the largest.
    pub(crate) fn range(&self) -> (f64, f64) {
        let at = |end: Option<&f64>| end.copied().unwrap_or(f64::NAN);
        (at(self.0.first()), at(self.0.last()))
    }
}

/// What one contender reached at one workload.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series {
    /// Answers of the workload's kind a second.
    pub(crate) per_second: Spread,
    /// Their median latency, microseconds.
    pub(crate) p50_us: Spread,
    /// Their 99th percentile, microseconds.
    pub(crate) p99_us: Spread,
    /// From the last answer to the last order, seconds; empty where nobody makes orders.
    pub(crate) drain_s: Spread,
}

/// What an answer cost one contender at one workload.
#[derive(Clone, Debug, Default)]
pub(crate) struct CostSeries {
    /// Processor time of all its processes, microseconds.
    pub(crate) processor_us: Spread,
    /// What their resident memory grew by, bytes.
    pub(crate) resident_bytes: Spread,
    /// What its log grew by, bytes; empty where there is none.
    pub(crate) log_bytes: Spread,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_one_of_the_figures_and_the_range_their_ends() {
        let mut spread = Spread::default();
        for figure in [3.0, 1.0, 2.0] {
            spread.push(figure);
        }
        assert_eq!((spread.median(), spread.range()), (2.0, (1.0, 3.0)));
        spread.push(9.0);
        assert_eq!(spread.median(), 2.0);
        assert!(Spread::default().median().is_nan());
    }
}
