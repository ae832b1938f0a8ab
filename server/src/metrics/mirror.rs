//! How the Redis mirror is.

use std::fmt;

use bridge::lag::State;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

use super::export::{counter, gauge};
use crate::mirror::Mirror;

/// Writes its part of a scrape.
pub(super) fn encode(out: &mut DescriptorEncoder<'_>, mirror: &Mirror) -> fmt::Result {
    let status = mirror.watcher.status();
    let sink = &status.sink;
    gauge(out, "mirror_applied_lsn", "Last record that is in Redis.", sink.applied_lsn.0)?;
    let help = "Last record in Redis' append-only file; 0 where it keeps none.";
    gauge(out, "mirror_confirmed_lsn", help, status.confirmed_lsn.map_or(0, |lsn| lsn.0))?;
    let help = "Durable records not yet in Redis.";
    gauge(out, "mirror_lag_records", help, sink.lag_records)?;
    let lag = ConstGauge::new(sink.lag.as_secs_f64());
    let (help, kind) = ("Age of the oldest record not yet in Redis.", MetricType::Gauge);
    lag.encode(out.encode_descriptor("mirror_lag_seconds", help, None, kind)?)?;
    let help = "1 where sluice:stale says that Redis is more than a second behind.";
    gauge(out, "mirror_stale", help, u64::from(status.is_stale))?;
    let help = "Keys in Redis that were not the log's, and were written right.";
    counter(out, "mirror_repairs", help, status.repairs)?;
    counter(out, "mirror_resyncs", "Times all keys were written anew.", status.resyncs)?;
    let help = "Rounds of the scrubber over all keys.";
    counter(out, "mirror_scrub_rounds", help, status.scrub_rounds)?;
    let running = matches!(sink.state, State::Running);
    let help = "1 where the mirror follows the log; 0 where it retries or a person must act.";
    gauge(out, "mirror_running", help, u64::from(running))?;
    let halted = matches!(sink.state, State::Halted { .. });
    gauge(out, "mirror_halted", "1 where a person must act.", u64::from(halted))
}
