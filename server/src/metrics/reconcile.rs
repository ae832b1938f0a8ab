//! What came of holding engine, SQL and Redis against each other.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;

use super::export::{counter, gauge};
use crate::reconcile::Reconcile;

/// Writes its part of a scrape.
pub(super) fn encode(out: &mut DescriptorEncoder<'_>, it: &Reconcile) -> fmt::Result {
    let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let help = "Comparisons of engine, SQL and Redis that were finished.";
    counter(out, "reconcile_runs", help, get(&it.runs))?;
    let help = "Comparisons that could not be finished.";
    counter(out, "reconcile_failures", help, get(&it.failures))?;
    let help = "Differences that the last comparison found.";
    gauge(out, "reconcile_differences", help, get(&it.differences))?;
    let help = "Differences that were mended.";
    counter(out, "reconcile_repaired", help, get(&it.repaired))?;
    let help = "Differences found, by kind.";
    let mut metric = out.encode_descriptor("reconcile_found", help, None, MetricType::Counter)?;
    for (kind, count) in it.by_kind() {
        ConstCounter::new(count).encode(metric.encode_family(&[("kind", kind.name())])?)?;
    }
    Ok(())
}
