//! What is counted. The hot path adds to atomics with relaxed ordering; everything else happens
//! when somebody asks, in [`export`] and [`gate`].

mod export;
mod gate;
mod mirror;
mod payments;
mod reconcile;

use std::collections::HashMap;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::StatusCode;

use crate::http::problem::Code;

pub(crate) use export::render;

/// The routes that are told apart: all that there are, and [`UNMATCHED`].
static ROUTES: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
    let mut routes = crate::http::api().into_paths();
    routes.push(UNMATCHED);
    routes
});

/// Paths that lead nowhere, together: a label per path would be memory for whoever asks.
const UNMATCHED: &str = "unmatched";

/// The statuses that are told apart; the last takes the rest.
const STATUSES: &[u16] = &[
    200, 201, 202, 204, 400, 401, 403, 404, 405, 408, 409, 412, 413, 415, 422, 429, 500, 503, 507,
    0,
];

static ROUTE_INDEX: LazyLock<HashMap<&'static str, usize>> =
    LazyLock::new(|| ROUTES.iter().enumerate().map(|(index, route)| (*route, index)).collect());

/// How a request to buy ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PurchaseOutcome {
    /// A new reservation.
    Accepted,
    /// The outcome of an earlier request of the same id.
    Replayed,
    /// Nothing was reserved (or, `log_unavailable`, nobody knows).
    Refused(Code),
}

const ACCEPTED: usize = 0;
const REPLAYED: usize = 1;
const REFUSED_FROM: usize = 2;

/// The server's own counts.
#[derive(Debug)]
pub(crate) struct Metrics {
    requests: Vec<AtomicU64>,
    purchases: Vec<AtomicU64>,
}

fn zeros(count: usize) -> Vec<AtomicU64> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

fn add(counters: &[AtomicU64], index: usize) {
    if let Some(counter) = counters.get(index) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

impl Metrics {
    /// All at zero.
    pub(crate) fn new() -> Self {
        Self {
            requests: zeros(ROUTES.len() * STATUSES.len()),
            purchases: zeros(REFUSED_FROM + Code::ALL.len()),
        }
    }

    /// Counts an answered request. `route` is the router's pattern.
    pub(crate) fn request(&self, route: Option<&str>, status: StatusCode) {
        let route = route.unwrap_or(UNMATCHED);
        let known = ROUTE_INDEX.get(route);
        debug_assert!(known.is_some(), "{route} is missing in ROUTES");
        let route = known.copied().unwrap_or(ROUTES.len() - 1);
        let status = status.as_u16();
        let status =
            STATUSES.iter().position(|known| *known == status).unwrap_or(STATUSES.len() - 1);
        add(&self.requests, route * STATUSES.len() + status);
    }

    /// Counts an answered request to buy.
    pub(crate) fn purchase(&self, outcome: PurchaseOutcome) {
        add(
            &self.purchases,
            match outcome {
                PurchaseOutcome::Accepted => ACCEPTED,
                PurchaseOutcome::Replayed => REPLAYED,
                PurchaseOutcome::Refused(code) => REFUSED_FROM + code as usize,
            },
        );
    }

    /// (route, status, count) of all that were seen.
    fn requests(&self) -> impl Iterator<Item = (&'static str, u16, u64)> {
        let cells = ROUTES.iter().flat_map(|route| STATUSES.iter().map(move |s| (*route, *s)));
        cells.zip(&self.requests).filter_map(|((route, status), counter)| {
            let count = counter.load(Ordering::Relaxed);
            (count > 0).then_some((route, status, count))
        })
    }

    /// (outcome, count) of all that can be.
    fn purchases(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let names = ["accepted", "replayed"].into_iter();
        let names = names.chain(Code::ALL.iter().map(|code| code.as_str()));
        names
            .zip(&self.purchases)
            .map(|(name, counter)| (name, counter.load(Ordering::Relaxed)))
            .filter(|(name, count)| *count > 0 || PURCHASE_OUTCOMES.contains(name))
    }
}

/// Outcomes that are shown from the start, so that a rate over them never starts from nothing.
const PURCHASE_OUTCOMES: &[&str] = &[
    "accepted",
    "replayed",
    "sold_out",
    "limit_reached",
    "not_started",
    "ended",
    "off_sale",
    "paused",
    "blacklisted",
    "rate_limited",
    "overloaded",
    "log_unavailable",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_route_and_status_and_unknown_ones_together() {
        let metrics = Metrics::new();
        metrics.request(Some("/api/flashsales/{id}/purchase"), StatusCode::ACCEPTED);
        metrics.request(Some("/api/flashsales/{id}/purchase"), StatusCode::ACCEPTED);
        metrics.request(None, StatusCode::NOT_FOUND);
        metrics.request(None, StatusCode::IM_A_TEAPOT);
        let seen: Vec<_> = metrics.requests().collect();
        assert_eq!(
            seen,
            [("/api/flashsales/{id}/purchase", 202, 2), (UNMATCHED, 404, 1), (UNMATCHED, 0, 1),]
        );
    }

    #[test]
    fn purchases_are_counted_by_outcome() {
        let metrics = Metrics::new();
        metrics.purchase(PurchaseOutcome::Accepted);
        metrics.purchase(PurchaseOutcome::Refused(Code::SoldOut));
        metrics.purchase(PurchaseOutcome::Refused(Code::SoldOut));
        let count = |name| metrics.purchases().find(|seen| seen.0 == name).map(|seen| seen.1);
        assert_eq!(count("accepted"), Some(1));
        assert_eq!(count("sold_out"), Some(2));
        assert_eq!(count("replayed"), Some(0));
        assert_eq!(count("forbidden"), None);
    }
}
