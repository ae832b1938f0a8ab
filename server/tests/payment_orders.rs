//! Every order in which pay, pay again, pay twice, pay wrong, fail, cancel and refund can come, on
//! the running binary: each ends in one allowed state, and no money is lost or kept twice.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
#[path = "common/provider.rs"]
mod provider;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use common::{PATIENCE, Server};
use provider::{Provider, body, call_back, open, refund, verdict};
use serde_json::{Value, json};

const PRICE: u64 = 700;

/// Steps of one sequence.
const LENGTH: u32 = 3;

/// What may happen to an order. One that comes twice in a sequence is a repeat.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Pay,
    PayAnother,
    PayWrong,
    Fail,
    Cancel,
    CancelAnothers,
    Refund,
}

const STEPS: [Step; 7] = [
    Step::Pay,
    Step::PayAnother,
    Step::PayWrong,
    Step::Fail,
    Step::Cancel,
    Step::CancelAnothers,
    Step::Refund,
];

/// Where an order is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Reserved,
    Paid,
    Cancelled,
    Refunded,
}

impl State {
    /// As `GET /api/orders/{order_no}` shows it in the end.
    fn status(self) -> &'static str {
        match self {
            Self::Reserved => "pending_payment",
            Self::Paid => "paid",
            Self::Cancelled => "cancelled",
            Self::Refunded => "refunded",
        }
    }

    /// The table: what a step is answered, and where it leads. `known` says that the provider's
    /// transaction came before.
    fn after(self, step: Step, known: bool) -> (&'static str, Self) {
        use State::{Cancelled, Paid, Refunded, Reserved};
        match (step, self) {
            (Step::Fail, _) => ("failed", self),
            (Step::Pay | Step::PayAnother | Step::PayWrong, _) if known => ("repeated", self),
            (Step::PayWrong, _) => ("wrong_amount", self),
            (Step::Pay | Step::PayAnother, Reserved | Cancelled) => ("accepted", Paid),
            (Step::Pay | Step::PayAnother, Paid | Refunded) => ("second_payment", self),
            (Step::CancelAnothers, _) => ("order_not_found", self),
            (Step::Cancel, Reserved | Cancelled) => ("ok", Cancelled),
            (Step::Cancel, Paid | Refunded) => ("already_paid", self),
            (Step::Refund, Reserved | Cancelled) => ("not_paid", self),
            (Step::Refund, Paid | Refunded) => ("ok", Refunded),
        }
    }
}

/// One buyer's order.
struct Order {
    user: u64,
    order_no: String,
    payment_no: String,
}

impl Order {
    fn new(server: &Server, activity: u64, user: u64) -> Self {
        let accepted = server.buy(user, activity, "once", 1).json();
        let order_no = accepted["order_no"].as_str().unwrap().to_owned();
        let opened = open(server, user, &accepted["order_no"]);
        let payment_no = opened.json()["payment_no"].as_str().unwrap().to_owned();
        Self { user, order_no, payment_no }
    }

    /// Takes `step`, and says in a word what was answered.
    fn take(&self, server: &Server, step: Step) -> String {
        let call = |transaction: &str, amount, status| {
            let transaction = format!("{}-{transaction}", self.user);
            verdict(&call_back(server, &body(&self.payment_no, &transaction, amount, status)))
        };
        let cancel = |user| {
            let path = format!("/api/orders/{}/cancel", self.order_no);
            server.as_user(user, "POST", &path, None)
        };
        let answer = match step {
            Step::Pay => return call("t1", PRICE, "paid"),
            Step::PayAnother => return call("t2", PRICE, "paid"),
            Step::PayWrong => return call("t3", PRICE + 1, "paid"),
            Step::Fail => return call("t4", PRICE, "failed"),
            Step::Cancel => cancel(self.user),
            Step::CancelAnothers => cancel(self.user + 1_000_000),
            Step::Refund => refund(server, &self.payment_no, &json!({"refund_no": "r"})),
        };
        if answer.status < 300 { "ok".to_owned() } else { answer.code() }
    }

    fn status(&self, server: &Server) -> Value {
        let path = format!("/api/orders/{}", self.order_no);
        server.as_user(self.user, "GET", &path, None).json()["status"].clone()
    }
}

fn sequences() -> Vec<Vec<Step>> {
    let count = STEPS.len().pow(LENGTH);
    let digits = |number: usize| {
        let digit = move |place| number / STEPS.len().pow(place) % STEPS.len();
        (0..LENGTH).map(move |place| STEPS[digit(place)]).collect()
    };
    (0..count).map(digits).collect()
}

/// Takes all of `steps` on an order of `user`; where it must end, and the good money that came.
fn live(server: &Server, activity: u64, user: u64, steps: &[Step]) -> (Order, State, u64) {
    let order = Order::new(server, activity, user);
    let (mut state, mut seen, mut money) = (State::Reserved, Vec::new(), 0);
    for step in steps {
        let known = seen.contains(step);
        let (expected, next) = state.after(*step, known);
        let told = order.take(server, *step);
        assert_eq!(told, expected, "{step:?} of {steps:?} in {state:?}");
        if matches!(step, Step::Pay | Step::PayAnother) && !known {
            money += PRICE;
        }
        seen.push(*step);
        state = next;
    }
    (order, state, money)
}

#[test]
fn whatever_comes_in_whatever_order_an_order_ends_in_one_allowed_state_and_the_money_adds_up() {
    let provider = Provider::start();
    let server = provider.server(&[], &[]);
    let sequences = sequences();
    let total = sequences.len() as u64;
    let activity = server.activity(&json!({"price": PRICE, "stock": total}));
    let lives: Vec<_> = (1..)
        .zip(&sequences)
        .map(|(user, steps)| (live(&server, activity, user, steps), steps))
        .collect();

    let deadline = Instant::now() + PATIENCE;
    for ((order, state, _), steps) in &lives {
        while order.status(&server) != state.status() {
            assert!(Instant::now() < deadline, "{steps:?}: {} {state:?}", order.status(&server));
            std::thread::yield_now();
        }
    }
    let refunded = |order: &Order| {
        let mut numbers = BTreeMap::new();
        for ask in provider.asked() {
            if ask["payment_no"] == order.payment_no {
                numbers.insert(ask["refund_no"].to_string(), ask["amount"].as_u64().unwrap());
            }
        }
        numbers.values().sum::<u64>()
    };
    for ((order, state, money), steps) in &lives {
        let kept = if *state == State::Paid { PRICE } else { 0 };
        while refunded(order) + kept != *money {
            assert!(Instant::now() < deadline, "{steps:?}: {} of {money}", refunded(order));
            std::thread::yield_now();
        }
    }
    let asked = provider.asked();
    let numbers: BTreeSet<_> = asked.iter().map(|ask| ask["refund_no"].to_string()).collect();
    assert_eq!(asked.len(), numbers.len(), "a provider that answers is asked once");
    let count = |wanted| lives.iter().filter(|((_, state, _), _)| *state == wanted).count() as u64;
    let (locked, free) = (count(State::Reserved), count(State::Cancelled));
    assert_eq!(server.figures(activity), [total, free, locked, total - free - locked]);
}
