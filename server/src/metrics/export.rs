//! Everything that is counted, as Prometheus reads it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bridge::lag::State;
use engine::EngineStats;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeMetric as _, NoLabelSet, prometheus_text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use wal::{Bounds, Buckets, FRAME_BYTES_BOUNDS, FRAME_RECORDS_BOUNDS, SYNC_US_BOUNDS};

use crate::app::{App, Shared};

/// A scrape's text.
///
/// # Errors
/// Never, as long as a `String` takes what is written to it.
pub(crate) fn render(shared: &Arc<Shared>) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("sluice");
    registry.register_collector(Box::new(Scrape(Arc::clone(shared))));
    let mut text = String::new();
    prometheus_text::encode(&mut text, &registry)?;
    Ok(text)
}

/// One scrape: reads the counters when it is encoded.
struct Scrape(Arc<Shared>);

impl fmt::Debug for Scrape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scrape")
    }
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let out = &mut encoder;
        build_info(out)?;
        requests(out, &self.0)?;
        connections(out, &self.0)?;
        super::gate::gate(out, &self.0)?;
        let subscribers = self.0.events.places.taken() as u64;
        gauge(out, "event_subscribers", "Open streams of events.", subscribers)?;
        let app = self.0.app().ok();
        gauge(out, "ready", "1 where purchases are decided.", u64::from(self.0.ready().is_ok()))?;
        match app {
            Some(app) => {
                super::gate::switches(out, app)?;
                log(out, app)?;
                bridge(out, app)?;
                super::payments::encode(out, app)?;
                super::reconcile::encode(out, &app.reconcile)?;
                app.mirror.as_ref().map_or(Ok(()), |mirror| super::mirror::encode(out, mirror))
            }
            None => Ok(()),
        }
    }
}

pub(super) fn gauge(
    out: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: u64,
) -> fmt::Result {
    let value = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
    value.encode(out.encode_descriptor(name, help, None, MetricType::Gauge)?)
}

pub(super) fn counter(
    out: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: u64,
) -> fmt::Result {
    let value = ConstCounter::new(value);
    value.encode(out.encode_descriptor(name, help, None, MetricType::Counter)?)
}

fn build_info(out: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "The running build.";
    let mut metric = out.encode_descriptor("build_info", help, None, MetricType::Gauge)?;
    let labels = [("version", env!("CARGO_PKG_VERSION"))];
    ConstGauge::new(1_i64).encode(metric.encode_family(&labels)?)
}

fn requests(out: &mut DescriptorEncoder<'_>, shared: &Shared) -> fmt::Result {
    let help = "Answered requests.";
    let mut metric = out.encode_descriptor("http_requests", help, None, MetricType::Counter)?;
    for (route, status, count) in shared.metrics.requests() {
        let status = if status == 0 { "other".to_owned() } else { status.to_string() };
        let labels = [("route", route), ("status", status.as_str())];
        ConstCounter::new(count).encode(metric.encode_family(&labels)?)?;
    }
    let help = "Answered requests to buy, by outcome.";
    let mut metric = out.encode_descriptor("purchases", help, None, MetricType::Counter)?;
    for (outcome, count) in shared.metrics.purchases() {
        ConstCounter::new(count).encode(metric.encode_family(&[("outcome", outcome)])?)?;
    }
    Ok(())
}

fn connections(out: &mut DescriptorEncoder<'_>, shared: &Shared) -> fmt::Result {
    let get = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
    for (port, counts) in [("http", &shared.connections), ("resp", &shared.resp_connections)] {
        let name = |what: &str| format!("{port}_connections{what}");
        gauge(out, &name(""), "Open connections.", get(&counts.open))?;
        counter(out, &name("_accepted"), "Connections served.", get(&counts.accepted))?;
        let turned_away = get(&counts.turned_away);
        counter(out, &name("_turned_away"), "Connections beyond the bound.", turned_away)?;
    }
    Ok(())
}

fn log(out: &mut DescriptorEncoder<'_>, app: &App) -> fmt::Result {
    let stats = app.engine.stats();
    let wal = &stats.log;
    gauge(out, "log_durable_lsn", "Last record on stable storage.", app.engine.durable_lsn().0)?;
    counter(out, "log_frames", "Frames made durable.", wal.frames)?;
    counter(out, "log_records", "Records in them: records / frames is the batch.", wal.records)?;
    counter(out, "log_bytes", "Bytes written for them, padding included.", wal.frame_bytes)?;
    counter(out, "log_slow_syncs", "Syncs slower than 10 ms.", wal.slow_syncs)?;
    counter(out, "log_segments", "Segments begun.", wal.rotations)?;
    let age_s = wal.segment_age_ms / 1_000;
    gauge(out, "log_segment_age_seconds", "Age of the segment being filled.", age_s)?;
    gauge(out, "log_in_flight_bytes", "Bytes appended and not durable.", wal.in_flight_bytes)?;
    gauge(out, "log_spare_segments", "Segments ahead.", wal.spares)?;
    let admitted = u64::from(wal.new_admitted);
    gauge(out, "log_has_room", "1 where the log has room for purchases.", admitted)?;
    retention(out, &stats)?;
    let help = "Memory made ahead for what is for sale, about.";
    gauge(out, "memory_ahead_bytes", help, stats.memory_ahead_bytes)?;
    let stepped = u64::from(stats.clock_stepped);
    gauge(out, "clock_stepped", "1 after the wall clock was stepped.", stepped)?;
    log_histograms(out, wal)
}

fn retention(out: &mut DescriptorEncoder<'_>, stats: &EngineStats) -> fmt::Result {
    let wal = &stats.log;
    gauge(out, "log_kept_bytes", "Bytes of segments kept.", wal.log_bytes)?;
    let help = "Bytes of segments that the slowest sink that must deliver has not confirmed.";
    gauge(out, "log_backlog_bytes", help, wal.backlog_bytes)?;
    let help = "1 where that is beyond retention.backlog_soft_bytes.";
    gauge(out, "log_backlog_late", help, u64::from(wal.backlog_late))?;
    gauge(out, "snapshot_lsn", "Last record in the newest snapshot.", wal.snapshot_lsn)?;
    gauge(out, "snapshot_bytes", "Its length.", wal.snapshot_bytes)?;
    let help = "Bytes of segments that it does not cover.";
    gauge(out, "snapshot_behind_bytes", help, wal.snapshot_behind_bytes)?;
    counter(out, "snapshots_made", "Snapshots made.", stats.snapshots_made)?;
    counter(out, "snapshots_failed", "Snapshots not made.", stats.snapshots_failed)?;
    let help = "Last record that a sink has confirmed.";
    let mut metric = out.encode_descriptor("sink_confirmed_lsn", help, None, MetricType::Gauge)?;
    for sink in &stats.sinks {
        let value = ConstGauge::new(i64::try_from(sink.confirmed_lsn.0).unwrap_or(i64::MAX));
        value.encode(metric.encode_family(&[("sink", sink.name.as_str())])?)?;
    }
    Ok(())
}

fn log_histograms(out: &mut DescriptorEncoder<'_>, wal: &wal::Metrics) -> fmt::Result {
    let help = "Time of a write of the log with its sync.";
    let sum = (wal.sync_us_sum, 1e6);
    histogram(out, "log_sync_seconds", help, (&SYNC_US_BOUNDS, &wal.sync_us), sum)?;
    let help = "Records of a frame: how many answers one sync gave.";
    let counts = (&FRAME_RECORDS_BOUNDS, &wal.frame_records);
    histogram(out, "log_frame_records", help, counts, (wal.records, 1.0))?;
    let help = "Bytes of a frame, padding included.";
    let counts = (&FRAME_BYTES_BOUNDS, &wal.frame_sizes);
    histogram(out, "log_frame_bytes", help, counts, (wal.frame_bytes, 1.0))
}

/// A histogram of the log; its bounds and its sum are told in units of which `unit` make one.
#[expect(clippy::cast_precision_loss, reason = "a metric is a float")]
fn histogram(
    out: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    (bounds, counts): (&Bounds, &Buckets),
    (sum, unit): (u64, f64),
) -> fmt::Result {
    // The last bucket takes the rest: the encoder makes it from the count.
    let bounds = bounds.iter().map(|bound| *bound as f64 / unit);
    let buckets: Vec<(f64, u64)> = bounds.zip(*counts).collect();
    let mut metric = out.encode_descriptor(name, help, None, MetricType::Histogram)?;
    let count = counts.iter().sum();
    metric.encode_histogram::<NoLabelSet>(sum as f64 / unit, count, &buckets, None)
}

fn bridge(out: &mut DescriptorEncoder<'_>, app: &App) -> fmt::Result {
    let status = app.orders.status();
    let help = "Last record that is in SQL: in SQLite a power cut may undo the last two seconds, \
                which are then written again.";
    gauge(out, "bridge_applied_lsn", help, status.applied_lsn.0)?;
    let help = "Durable records not yet in SQL.";
    gauge(out, "bridge_lag_records", help, status.lag_records)?;
    let help = "Age of the oldest record not yet in SQL.";
    let lag = ConstGauge::new(status.lag.as_secs_f64());
    let kind = MetricType::Gauge;
    lag.encode(out.encode_descriptor("bridge_lag_seconds", help, None, kind)?)?;
    let help = "1 where the bridge follows the log; 0 where it retries or a person must act.";
    let running = matches!(status.state, State::Running);
    gauge(out, "bridge_running", help, u64::from(running))?;
    let halted = matches!(status.state, State::Halted { .. });
    gauge(out, "bridge_halted", "1 where a person must act.", u64::from(halted))?;
    let filling = u64::from(matches!(status.state, State::Filling));
    gauge(out, "bridge_filling", "1 while the database is filled from a snapshot.", filling)?;
    let Some(filled) = status.filled else { return Ok(()) };
    let help = "What the database lost, and a snapshot could not give back at this start.";
    let mut metric = out.encode_descriptor("bridge_gone", help, None, MetricType::Gauge)?;
    for (what, count) in [
        ("activities", filled.gone_activities),
        ("request_ids", filled.gone_request_ids),
        ("addresses", filled.gone_addresses),
        ("callbacks", filled.gone_callbacks),
    ] {
        let count = ConstGauge::new(i64::try_from(count).unwrap_or(i64::MAX));
        count.encode(metric.encode_family(&[("what", what)])?)?;
    }
    Ok(())
}
