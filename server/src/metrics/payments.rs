//! Payments and refunds.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::export::{counter, gauge};
use crate::app::App;

/// Callbacks by verdict, and how refunds go.
pub(super) fn encode(out: &mut DescriptorEncoder<'_>, app: &App) -> fmt::Result {
    let counts = &app.payments.counts;
    let help = "Callbacks recorded, by verdict.";
    let mut metric = out.encode_descriptor("payment_callbacks", help, None, MetricType::Counter)?;
    for (verdict, count) in counts.callbacks() {
        ConstCounter::new(count).encode(metric.encode_family(&[("verdict", verdict)])?)?;
    }
    let [forged, replayed] = counts.refused();
    let help = "Callbacks refused by their signature or its time.";
    counter(out, "payment_callbacks_forged", help, forged)?;
    let help = "Copies of signed callbacks, answered without another record.";
    counter(out, "payment_callbacks_replayed", help, replayed)?;
    let help = "Answers of providers to refunds, by outcome.";
    let mut metric = out.encode_descriptor("refund_answers", help, None, MetricType::Counter)?;
    for (outcome, count) in counts.answers() {
        ConstCounter::new(count).encode(metric.encode_family(&[("outcome", outcome)])?)?;
    }
    let [open, without_provider, oldest_ms] = counts.refunds();
    gauge(out, "refunds_open", "Refunds that no provider has settled.", open)?;
    let help = "Open refunds of channels without a provider: somebody else must make them.";
    gauge(out, "refunds_without_provider", help, without_provider)?;
    let age_ms = if oldest_ms == 0 { 0 } else { app.engine.now_ms().saturating_sub(oldest_ms) };
    let age = std::time::Duration::from_millis(age_ms).as_secs_f64();
    let help = "Age of the oldest open refund.";
    let kind = MetricType::Gauge;
    ConstGauge::new(age).encode(out.encode_descriptor(
        "refunds_oldest_seconds",
        help,
        None,
        kind,
    )?)
}
