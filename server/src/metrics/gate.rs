//! What the gate counts.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::export::{counter, gauge};
use crate::app::{App, Shared};
use crate::breaker::State;

/// Refusals, the canary's arms, and how fast limits run.
pub(super) fn gate(out: &mut DescriptorEncoder<'_>, shared: &Shared) -> fmt::Result {
    let gate = &shared.gate;
    let help = "Callers refused at the gate, by reason.";
    let mut metric = out.encode_descriptor("gate_refusals", help, None, MetricType::Counter)?;
    for (reason, count) in gate.counts.reasons() {
        ConstCounter::new(count).encode(metric.encode_family(&[("reason", reason)])?)?;
    }
    let help = "Answered requests to buy, by arm of the canary.";
    let mut metric = out.encode_descriptor("arm_purchases", help, None, MetricType::Counter)?;
    for (arm, outcome, count) in gate.counts.arms() {
        let labels = [("arm", arm), ("outcome", outcome)];
        ConstCounter::new(count).encode(metric.encode_family(&labels)?)?;
    }
    let help = "Share of users in the canary, in percent.";
    let percent = ConstGauge::new(gate.rules().canary.percent());
    percent.encode(out.encode_descriptor("canary_percent", help, None, MetricType::Gauge)?)?;
    let help = "Thousandths of the limits that span users, as the load allows.";
    gauge(out, "limits_speed", help, u64::from(gate.load_speed().thousandths()))?;
    let [tokens, listed] = gate.controls.sizes();
    gauge(out, "revoked_tokens", "Revoked tokens that have not ended.", tokens as u64)?;
    gauge(out, "blacklist_entries", "Entries that keep somebody out.", listed as u64)
}

/// The kill switch, and the breaker in front of SQL.
pub(super) fn switches(out: &mut DescriptorEncoder<'_>, app: &App) -> fmt::Result {
    let stopped = u64::from(app.engine.is_stopped());
    gauge(out, "stopped", "1 while the kill switch is thrown.", stopped)?;
    let (state, opened) = app.orders.breaker.state();
    let help = "0 where queries go to SQL, 1 where they do not, 2 where a few try.";
    let state = match state {
        State::Closed => 0,
        State::Open => 1,
        State::HalfOpen => 2,
    };
    gauge(out, "sql_breaker_state", help, state)?;
    counter(out, "sql_breaker_opened", "Times that queries to SQL were given up.", opened)
}
