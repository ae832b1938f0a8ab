//! Counts of tests, read from what the test harness printed.

use std::ops::AddAssign;

/// How many tests passed, failed and were ignored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) ignored: u64,
}

impl Totals {
    /// The counts of one line of a harness's output, or `None` where it is no result line.
    ///
    /// ```text
    /// test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in ..
    /// ```
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let counts = line.trim().strip_prefix("test result:")?;
        let (_verdict, counts) = counts.split_once('.')?;
        let mut totals = Self::default();
        let mut known = 0;
        for count in counts.split(';') {
            let Some((number, word)) = count.trim().split_once(' ') else { continue };
            let slot = match word {
                "passed" => &mut totals.passed,
                "failed" => &mut totals.failed,
                "ignored" => &mut totals.ignored,
                _ => continue,
            };
            *slot = number.parse().ok()?;
            known += 1;
        }
        (known == 3).then_some(totals)
    }
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_line_gives_its_counts() {
        let line = "test result: FAILED. 12 passed; 3 failed; 1 ignored; 0 measured; \
                    7 filtered out; finished in 0.02s";
        assert_eq!(Totals::parse(line), Some(Totals { passed: 12, failed: 3, ignored: 1 }));
    }

    #[test]
    fn any_other_line_gives_nothing() {
        for line in [
            "",
            "test recover::tests::a_torn_tail_is_cut ... ok",
            "running 12 tests",
            "test result: ok. twelve passed; 0 failed; 0 ignored",
            "test result: ok. 12 passed; 0 failed",
            "the last test result: ok. 1 passed; 0 failed; 0 ignored",
        ] {
            assert_eq!(Totals::parse(line), None, "{line}");
        }
    }
}
