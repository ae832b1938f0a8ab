//! The sale checked from outside: what the shoppers were told against what the server says.
//!
//! The answers are gathered in three steps: [`settle`] asks again, under the same ids, for
//! outcomes that are unknown; [`drained`] waits for the last order; [`follow`] queries every
//! reservation as its owner. [`judge`] is a pure function over them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Deserialize;
use tokio::task::LocalSet;

use super::client::Client;
use super::drive::{Load, Protocol as _};
use super::plan::Request;
use super::sale::Activity;
use super::tally::{Acceptance, Outcome};
use super::wire::{self, Http};

/// Connections that query. More would only queue at the server.
const QUERY_CONNECTIONS: usize = 16;

/// Between two rounds of queries for reservations that are not orders yet.
const ROUND_WAIT: Duration = Duration::from_millis(100);

/// Between two looks at the last reservation: the error of the time that is reported.
const DRAIN_WAIT: Duration = Duration::from_millis(10);

/// Examples named in a failed check.
const EXAMPLES_MAX: usize = 3;

/// How much of the sale is checked after the run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, clap::ValueEnum)]
pub(super) enum Depth {
    /// Nothing: for a peer that sells nothing. The activity must be named
    None,
    /// What the shoppers were told, against the activity's figures: for a peer that keeps no
    /// reservations or makes no orders
    Figures,
    /// Each accepted purchase as well, one by one
    All,
}

/// What the owner's query of a reservation says.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub(super) struct Purchase {
    pre_deduction_id: u64,
    activity_id: u64,
    status: String,
    quantity: u64,
}

impl Purchase {
    fn is_order(&self) -> bool {
        self.status == "ordered"
    }
}

/// What is known after the run.
pub(super) struct Evidence<'a> {
    /// The activity before the first request.
    pub(super) before: Activity,
    /// The activity when all orders were made, or the time was up.
    pub(super) after: Activity,
    /// Every 202.
    pub(super) acceptances: &'a [Acceptance],
    /// Requests whose outcome stayed unknown.
    pub(super) unsettled: usize,
    /// The last query of each reservation that answered.
    pub(super) purchases: &'a BTreeMap<u64, Purchase>,
}

/// One check's outcome.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub(super) struct Check {
    /// What must hold.
    pub(super) claim: &'static str,
    /// Whether it does.
    pub(super) holds: bool,
    /// The figures on both sides.
    pub(super) figures: String,
}

/// Judges a sale by its figures and by its orders.
pub(super) fn judge(evidence: &Evidence<'_>) -> Vec<Check> {
    let reservations: BTreeMap<u64, Request> =
        evidence.acceptances.iter().map(|one| (one.reservation, one.request)).collect();
    let mut checks = judge_figures(evidence);
    checks.extend([queried(evidence, &reservations), ordered(evidence, &reservations)]);
    checks
}

/// Judges a sale by what its shoppers were told and by its figures.
pub(super) fn judge_figures(evidence: &Evidence<'_>) -> Vec<Check> {
    let mut by_request: BTreeMap<Request, u64> = BTreeMap::new();
    let mut by_reservation: BTreeMap<u64, Request> = BTreeMap::new();
    let mut contradictions = Vec::new();
    for Acceptance { request, reservation } in evidence.acceptances {
        let first = *by_request.entry(*request).or_insert(*reservation);
        let owner = *by_reservation.entry(*reservation).or_insert(*request);
        if first != *reservation || owner != *request {
            contradictions.push(*reservation);
        }
    }
    vec![
        check(
            "each request id has one reservation, each reservation one request id",
            contradictions.is_empty(),
            format!(
                "{} ids, {} reservations{}",
                by_request.len(),
                by_reservation.len(),
                examples(&contradictions)
            ),
        ),
        sold_exactly(evidence, by_reservation.len() as u64),
        conserved("available + locked + sold = total before the run", &evidence.before),
        conserved("available + locked + sold = total after the run", &evidence.after),
        within_limit(evidence, &by_reservation),
    ]
}

/// One check.
pub(super) fn check(claim: &'static str, holds: bool, figures: String) -> Check {
    Check { claim, holds, figures }
}

fn sold_exactly(evidence: &Evidence<'_>, accepted: u64) -> Check {
    let (before, after) = (&evidence.before, &evidence.after);
    let dropped = before.available.checked_sub(after.available);
    let taken = (after.locked + after.sold).checked_sub(before.locked + before.sold);
    // An outcome that stayed unknown may be either.
    let possible = accepted..=accepted + evidence.unsettled as u64;
    check(
        "units taken = purchases accepted",
        dropped == taken && dropped.is_some_and(|units| possible.contains(&units)),
        format!(
            "available {} -> {}, locked + sold {} -> {}; accepted {accepted}, unknown {}",
            before.available,
            after.available,
            before.locked + before.sold,
            after.locked + after.sold,
            evidence.unsettled
        ),
    )
}

fn conserved(claim: &'static str, activity: &Activity) -> Check {
    let Activity { total, available, locked, sold, .. } = *activity;
    let figures = format!("{available} + {locked} + {sold} = {total}");
    check(claim, available + locked + sold == total, figures)
}

fn within_limit(evidence: &Evidence<'_>, reservations: &BTreeMap<u64, Request>) -> Check {
    let mut held: BTreeMap<u32, u64> = BTreeMap::new();
    for request in reservations.values() {
        *held.entry(request.shopper).or_default() += 1;
    }
    let limit = evidence.before.per_user_limit;
    let over: Vec<_> = held.iter().filter(|(_, units)| **units > limit).collect();
    check(
        "no shopper holds more than the limit",
        over.is_empty(),
        format!(
            "{} shoppers hold at most {} of {limit}; {} over",
            held.len(),
            held.values().max().unwrap_or(&0),
            over.len()
        ),
    )
}

fn queried(evidence: &Evidence<'_>, reservations: &BTreeMap<u64, Request>) -> Check {
    let is_right = |id: &u64| {
        evidence.purchases.get(id).is_some_and(|purchase| {
            purchase.pre_deduction_id == *id
                && purchase.activity_id == evidence.before.id
                && purchase.quantity == 1
        })
    };
    let wrong: Vec<_> = reservations.keys().copied().filter(|id| !is_right(id)).collect();
    check(
        "each accepted purchase answers its owner's query",
        wrong.is_empty(),
        format!(
            "{} of {}{}",
            reservations.len() - wrong.len(),
            reservations.len(),
            examples(&wrong)
        ),
    )
}

fn ordered(evidence: &Evidence<'_>, reservations: &BTreeMap<u64, Request>) -> Check {
    let is_order = |id: &u64| evidence.purchases.get(id).is_some_and(Purchase::is_order);
    let missing: Vec<_> = reservations.keys().copied().filter(|id| !is_order(id)).collect();
    let mut figures = format!(
        "{} of {}{}",
        reservations.len() - missing.len(),
        reservations.len(),
        examples(&missing)
    );
    if let Some(purchase) = missing.first().and_then(|id| evidence.purchases.get(id)) {
        figures.push_str(&format!(", status {}", purchase.status));
    }
    check("each accepted purchase became an order", missing.is_empty(), figures)
}

fn examples(ids: &[u64]) -> String {
    if ids.is_empty() {
        return String::new();
    }
    let named: Vec<_> = ids.iter().take(EXAMPLES_MAX).map(u64::to_string).collect();
    format!("; not so: {}", named.join(", "))
}

/// Asks again, under the same ids, for outcomes that stayed unknown; gives up at `deadline`.
/// Returns the acceptances and what is still unknown.
pub(super) async fn settle(
    load: &Load<Http>,
    unknown: &[Request],
    deadline: Instant,
) -> (Vec<Acceptance>, usize) {
    let mut client = Client::new(load.address, load.time_out);
    let mut request_bytes = Vec::new();
    let mut acceptances = Vec::new();
    for (settled, request) in unknown.iter().enumerate() {
        request_bytes.clear();
        load.protocol.compose(*request, &mut request_bytes);
        loop {
            match client.exchange(&request_bytes).await {
                Ok(reply) if reply.status < 500 && reply.status != 429 => {
                    let outcome = wire::outcome(reply.status, reply.is_replay, reply.body);
                    if let Outcome::Reserved { id, .. } = outcome {
                        acceptances.push(Acceptance { request: *request, reservation: id });
                    }
                    break;
                }
                _ if Instant::now() >= deadline => return (acceptances, unknown.len() - settled),
                _ => tokio::time::sleep(ROUND_WAIT).await,
            }
        }
    }
    (acceptances, 0)
}

/// Waits until the last accepted reservation is an order, or `deadline` has come: orders are made
/// in order of acceptance, so the others are orders by then. One query at a time, because the
/// time it takes is a result of the run.
pub(super) async fn drained(
    load: &Arc<Load<Http>>,
    acceptances: &[Acceptance],
    authority: &str,
    deadline: Instant,
) {
    let Some(last) = acceptances.iter().max_by_key(|one| one.reservation) else { return };
    let last = BTreeMap::from([(last.reservation, last.request.shopper)]);
    while Instant::now() < deadline {
        if query_all(load, &last, authority).await.values().any(Purchase::is_order) {
            return;
        }
        tokio::time::sleep(DRAIN_WAIT).await;
    }
}

/// Queries every accepted reservation as its owner until all are orders or `deadline` has come.
/// Returns the last answers. `watch` is told how many are not orders yet after each round.
pub(super) async fn follow(
    load: &Arc<Load<Http>>,
    acceptances: &[Acceptance],
    authority: &str,
    deadline: Instant,
    watch: impl Fn(usize),
) -> BTreeMap<u64, Purchase> {
    let mut pending: BTreeMap<u64, u32> =
        acceptances.iter().map(|one| (one.reservation, one.request.shopper)).collect();
    let mut purchases = BTreeMap::new();
    while !pending.is_empty() {
        let answers = query_all(load, &pending, authority).await;
        pending.retain(|id, _| !answers.get(id).is_some_and(Purchase::is_order));
        purchases.extend(answers);
        watch(pending.len());
        if pending.is_empty() || Instant::now() >= deadline {
            break;
        }
        tokio::time::sleep(ROUND_WAIT).await;
    }
    purchases
}

/// One round of queries, over several connections.
async fn query_all(
    load: &Arc<Load<Http>>,
    reservations: &BTreeMap<u64, u32>,
    authority: &str,
) -> BTreeMap<u64, Purchase> {
    let queue: Rc<RefCell<Vec<_>>> =
        Rc::new(RefCell::new(reservations.iter().map(|(id, user)| (*id, *user)).collect()));
    let answers = Rc::new(RefCell::new(BTreeMap::new()));
    let queries = LocalSet::new();
    for _ in 0..QUERY_CONNECTIONS.min(reservations.len()) {
        let (load, queue) = (Arc::clone(load), Rc::clone(&queue));
        let (answers, authority) = (Rc::clone(&answers), authority.to_owned());
        queries.spawn_local(async move {
            let mut client = Client::new(load.address, load.time_out);
            let mut bytes = Vec::new();
            loop {
                let Some((id, shopper)) = queue.borrow_mut().pop() else { break };
                let path = format!("/api/flashsales/purchases/{id}");
                let token = load.protocol.tokens.get(shopper);
                wire::compose_call(("GET", &path), &authority, token, "", &mut bytes);
                let Ok(reply) = client.exchange(&bytes).await else { continue };
                if reply.status == 200
                    && let Ok(purchase) = serde_json::from_slice(reply.body)
                {
                    answers.borrow_mut().insert(id, purchase);
                }
            }
        });
    }
    queries.await;
    answers.take()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: Activity =
        Activity { id: 1, total: 10, available: 10, locked: 0, sold: 0, per_user_limit: 1 };
    const AFTER: Activity = Activity { available: 8, locked: 2, ..BEFORE };

    fn acceptance(shopper: u32, attempt: u64, reservation: u64) -> Acceptance {
        Acceptance { request: Request { shopper, attempt }, reservation }
    }

    fn purchase(id: u64, status: &str) -> (u64, Purchase) {
        let status = status.to_owned();
        (id, Purchase { pre_deduction_id: id, activity_id: 1, status, quantity: 1 })
    }

    fn failed(evidence: &Evidence<'_>) -> Vec<&'static str> {
        judge(evidence).into_iter().filter(|check| !check.holds).map(|check| check.claim).collect()
    }

    fn orders() -> BTreeMap<u64, Purchase> {
        BTreeMap::from([purchase(7, "ordered"), purchase(8, "ordered")])
    }

    #[test]
    fn an_exact_sale_with_replays_passes() {
        let acceptances = [acceptance(0, 0, 7), acceptance(1, 0, 8), acceptance(0, 0, 7)];
        let purchases = orders();
        let evidence = Evidence {
            before: BEFORE,
            after: AFTER,
            acceptances: &acceptances,
            unsettled: 0,
            purchases: &purchases,
        };
        assert_eq!(failed(&evidence), [""; 0]);
    }

    #[test]
    fn each_way_to_sell_wrongly_is_named() {
        let exact = [acceptance(0, 0, 7), acceptance(1, 0, 8)];
        let one_shopper_twice = [acceptance(0, 0, 7), acceptance(0, 5, 8)];
        let one_id_twice = [acceptance(0, 0, 7), acceptance(0, 0, 8)];
        let one_unit_to_two = [acceptance(0, 0, 7), acceptance(1, 0, 7), acceptance(2, 0, 8)];
        let waiting = BTreeMap::from([purchase(7, "ordered"), purchase(8, "pending_order")]);
        let lost = BTreeMap::from([purchase(7, "ordered")]);
        let burnt = Activity { available: 7, locked: 3, ..BEFORE };
        let leaked = Activity { available: 8, locked: 1, ..BEFORE };
        let orders = orders();
        type Case<'a> = (&'a str, Activity, &'a [Acceptance], &'a BTreeMap<u64, Purchase>);
        let table: [Case<'_>; 7] = [
            ("units taken", burnt, &exact, &orders),
            ("after the run", leaked, &exact, &orders),
            ("no shopper holds", AFTER, &one_shopper_twice, &orders),
            ("each request id", AFTER, &one_id_twice, &orders),
            ("each request id", AFTER, &one_unit_to_two, &orders),
            ("became an order", AFTER, &exact, &waiting),
            ("owner's query", AFTER, &exact, &lost),
        ];
        for (claim, after, acceptances, purchases) in table {
            let evidence = Evidence { before: BEFORE, after, acceptances, unsettled: 0, purchases };
            let failed = failed(&evidence);
            assert!(failed.iter().any(|failed| failed.contains(claim)), "{claim}: {failed:?}");
        }
    }

    #[test]
    fn an_unknown_outcome_may_have_taken_a_unit_or_not() {
        let purchases = orders();
        let both = [acceptance(0, 0, 7), acceptance(1, 0, 8)];
        for (acceptances, unsettled, is_possible) in
            [(&both[..], 1, true), (&both[..1], 1, true), (&both[..1], 0, false)]
        {
            let evidence = Evidence {
                before: BEFORE,
                after: AFTER,
                acceptances,
                unsettled,
                purchases: &purchases,
            };
            let claims = failed(&evidence);
            assert_eq!(!claims.contains(&"units taken = purchases accepted"), is_possible);
        }
    }
}
