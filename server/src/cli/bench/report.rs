//! The run's outcome, as a table for people and as JSON for programs.

use std::fmt::{self, Write as _};
use std::time::Duration;

use serde_json::{Value, json};

use super::lag::Lag;
use super::tally::{Latencies, Tally};
use super::timeline::Bin;
use super::verify::Check;

/// The quantiles that are shown: title of the column, key in JSON, value.
const QUANTILES: [(&str, &str, f64); 3] =
    [("p50 ms", "p50_us", 0.5), ("p99 ms", "p99_us", 0.99), ("p99.9 ms", "p99_9_us", 0.999)];

/// Everything a report shows.
pub(super) struct Report<'a> {
    /// The command's own words for the run: activity, shoppers, connections, loop.
    pub(super) run: String,
    /// What came back.
    pub(super) tally: &'a Tally,
    /// First request to last answer.
    pub(super) elapsed: Duration,
    /// Last answer to last order; `None` where no orders were waited for.
    pub(super) drain: Option<Duration>,
    /// How long purchases took until the stores showed them.
    pub(super) lags: &'a [Lag],
    /// The verdicts; empty where the run was not checked.
    pub(super) checks: &'a [Check],
}

impl Report<'_> {
    /// Whether the sale was exact.
    pub(super) fn is_exact(&self) -> bool {
        self.checks.iter().all(|check| check.holds)
    }

    /// The report as one JSON object; latencies in microseconds.
    pub(super) fn to_json(&self) -> Value {
        let kinds: serde_json::Map<_, _> = self
            .kinds()
            .into_iter()
            .map(|(name, latencies)| (name.to_owned(), self.latencies_json(latencies)))
            .collect();
        json!({
            "run": self.run,
            "elapsed_s": self.elapsed.as_secs_f64(),
            "lags": self.lags_json(),
            "drain_s": self.drain.map(|drain| drain.as_secs_f64()),
            "answers": kinds,
            "refused_by_code": self.tally.codes,
            "errors": self.tally.errors,
            "timeline": self.timeline_json(),
            "checks": self.checks,
            "exact": self.is_exact(),
        })
    }

    fn timeline_json(&self) -> Value {
        let timeline = &self.tally.timeline;
        let bin = |(at, bin): (Duration, &Bin)| {
            let mut value = json!({
                "at_s": at.as_secs_f64(),
                "accepted": bin.accepted,
                "replayed": bin.replayed,
                "refused": bin.refused,
            });
            for (_, key, quantile) in QUANTILES {
                value[key] = bin.quantile_us(quantile).into();
            }
            value
        };
        let bins: Vec<_> = timeline.bins().map(bin).collect();
        json!({ "bin_s": timeline.bin().as_secs_f64(), "bins": bins })
    }

    fn kinds(&self) -> [(&'static str, &Latencies); 4] {
        let tally = self.tally;
        [
            ("accepted", &tally.accepted),
            ("replayed", &tally.replayed),
            ("refused", &tally.refused),
            ("all", &tally.all),
        ]
    }

    /// By store: from acceptance to being there, and the last one from the last answer.
    fn lags_json(&self) -> Value {
        let lag = |Lag { name, sampled, last }: &Lag| {
            let mut value = self.latencies_json(sampled);
            value["last_s"] = last.as_secs_f64().into();
            (name.replace(' ', "_").to_lowercase(), value)
        };
        self.lags.iter().map(lag).collect::<serde_json::Map<_, _>>().into()
    }

    fn latencies_json(&self, latencies: &Latencies) -> Value {
        let mut value = json!({
            "count": latencies.count(),
            "per_second": self.per_second(latencies.count()),
            "max_us": latencies.max_us(),
        });
        for (_, key, quantile) in QUANTILES {
            value[key] = latencies.quantile_us(quantile).into();
        }
        value
    }

    fn row(&self, f: &mut fmt::Formatter<'_>, name: &str, latencies: &Latencies) -> fmt::Result {
        write!(f, "{name:<24}{:>10}", latencies.count())?;
        write!(f, "{:>12.0}", self.per_second(latencies.count()))?;
        for (_, _, quantile) in QUANTILES {
            write!(f, "{:>11}", milliseconds(latencies.quantile_us(quantile)))?;
        }
        writeln!(f, "{:>11}", milliseconds(latencies.max_us()))
    }

    #[expect(clippy::cast_precision_loss, reason = "a rate is shown with four digits")]
    fn per_second(&self, count: u64) -> f64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.run)?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        writeln!(f, "{cores} cores, shared by client and server where both run here")?;
        write!(f, "\n{:<24}{:>10}{:>12}", "answers", "count", "per second")?;
        for (title, _, _) in QUANTILES {
            write!(f, "{title:>11}")?;
        }
        writeln!(f, "{:>11}", "max ms")?;
        for (name, latencies) in self.kinds() {
            self.row(f, name, latencies)?;
        }
        for (code, count) in &self.tally.codes {
            writeln!(f, "  refused {code:<14}{count:>10}")?;
        }
        for (error, count) in &self.tally.errors {
            writeln!(f, "  error {error:<16}{count:>10}")?;
        }
        if !self.lags.is_empty() {
            writeln!(f, "\naccepted, until it is there (sampled)")?;
        }
        for Lag { name, sampled, .. } in self.lags {
            self.row(f, name, sampled)?;
        }
        write!(f, "\nload {:.2} s", self.elapsed.as_secs_f64())?;
        if let Some(drain) = self.drain {
            write!(f, ", last order {:.2} s after the last answer", drain.as_secs_f64())?;
        }
        for Lag { name, last, .. } in self.lags {
            write!(f, ", last {name} {:.2} s after it", last.as_secs_f64())?;
        }
        writeln!(f)?;
        for check in self.checks {
            let verdict = if check.holds { "ok" } else { "WRONG" };
            writeln!(f, "{verdict:<6} {} ({})", check.claim, check.figures)?;
        }
        Ok(())
    }
}

/// Microseconds as milliseconds with three digits behind the point.
fn milliseconds(us: u64) -> String {
    let mut text = String::new();
    let _ = write!(text, "{}.{:03}", us / 1000, us % 1000);
    text
}
