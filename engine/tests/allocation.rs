//! What a purchase allocates once an engine is warm: nothing, whichever way it comes in and
//! whatever it comes to. Counted is all that this thread does, the commit and the wait for it
//! included.
//!
//! But for the growth of tables: here they have grown before, so that there is room in them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/sale.rs"]
mod sale;

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use allocation_counter::measure;
use engine::core::event::Front;
use engine::core::ids::{ActivityId, UserId};
use engine::{BatchAnswer, BatchRequest, Engine, EngineOptions};
use tempfile::TempDir;

/// Buyers that came before: one more than a first piece of the reservations' table holds, so that
/// the next has just begun, and so few that the users' table has room for half as many again.
const BEFORE: u64 = 1_025;

/// Buyers of a test.
const BUYERS: u64 = 256;

struct Sale {
    engine: Engine,
    id: ActivityId,
    _dir: TempDir,
}

/// A sale without threads: all that is done is done here.
fn warm() -> Sale {
    let dir = tempfile::tempdir().unwrap();
    let mut options = EngineOptions::new(dir.path());
    options.segment_bytes = 16 << 20;
    options.accept_file_system = true;
    options.threads = false;
    let (engine, _) = Engine::open(options).unwrap();
    while engine.make_spare().unwrap() == wal::SpareMade::Made {}
    let id = sale::on_sale(&engine, 1_000_000, sale::PHONE);
    let sale = Sale { engine, id, _dir: dir };
    // In two batches: the log fills one buffer while it writes the other.
    sale.buy_together(&sale.requests(1, BEFORE / 2), Vec::new());
    sale.buy_together(&sale.requests(BEFORE / 2 + 1, BEFORE - BEFORE / 2), Vec::new());
    sale.buy(BEFORE + 1, "alone");
    sale.await_one(BEFORE + 2);
    sale
}

impl Sale {
    /// The first buyer that none of `warm` is.
    const FIRST: u64 = BEFORE + 3;

    fn requests(&self, first: u64, count: u64) -> Vec<BatchRequest<'static>> {
        let request = |number| BatchRequest {
            user: UserId::new(number).unwrap(),
            request_id: "0190a6f0-7b7e-7cc1-9b57-3f1a2c0d4e5f",
            quantity: 1,
        };
        (first..first + count).map(request).collect()
    }

    fn buy_together(
        &self,
        requests: &[BatchRequest<'_>],
        answers: Vec<BatchAnswer>,
    ) -> Vec<BatchAnswer> {
        let told = self.engine.reserve_batch_into(self.id, requests, Front::Api, answers);
        told.unwrap().wait().unwrap()
    }

    fn buy(&self, number: u64, request_id: &str) -> bool {
        let user = UserId::new(number).unwrap();
        let told = self.engine.reserve(self.id, user, request_id, 1, Front::Api).unwrap();
        told.wait().unwrap().is_ok_and(|purchase| !purchase.replayed)
    }

    fn await_one(&self, number: u64) {
        let user = UserId::new(number).unwrap();
        let told = self.engine.reserve(self.id, user, "awaited", 1, Front::Api).unwrap();
        let mut context = Context::from_waker(Waker::noop());
        let mut wait = pin!(told.durable());
        assert!(wait.as_mut().poll(&mut context).is_pending());
        self.engine.commit().unwrap();
        assert!(matches!(wait.as_mut().poll(&mut context), Poll::Ready(Ok(Ok(_)))));
    }
}

fn buyers() -> std::ops::Range<u64> {
    Sale::FIRST..Sale::FIRST + BUYERS
}

#[test]
fn a_purchase_by_itself_allocates_nothing_accepted_repeated_or_refused() {
    let sale = warm();
    for (request_id, accepted) in [("a", true), ("a", false), ("b", false)] {
        let mut bought = 0;
        let counted = measure(|| {
            bought = buyers().filter(|number| sale.buy(*number, request_id)).count() as u64;
        });
        assert_eq!(bought, if accepted { BUYERS } else { 0 });
        assert_eq!(counted.count_total, 0, "{request_id}, accepted: {accepted}: {counted:?}");
    }
}

#[test]
fn a_purchase_awaited_allocates_nothing() {
    let sale = warm();
    let counted = measure(|| buyers().for_each(|number| sale.await_one(number)));
    assert_eq!(counted.count_total, 0, "{counted:?}");
}

#[test]
fn a_batch_allocates_nothing_accepted_repeated_or_refused() {
    let sale = warm();
    let accepted = sale.requests(Sale::FIRST, BUYERS);
    let refused: Vec<_> =
        accepted.iter().map(|it| BatchRequest { request_id: "above", ..*it }).collect();
    let mut answers = Vec::with_capacity(accepted.len());
    let kinds: [fn(&BatchAnswer) -> bool; 3] = [
        |answer| matches!(answer, BatchAnswer::Reserved(_)),
        |answer| matches!(answer, BatchAnswer::Replayed(_)),
        |answer| matches!(answer, BatchAnswer::Refused(_)),
    ];
    for (requests, kind) in [&accepted, &accepted, &refused].into_iter().zip(kinds) {
        let counted = measure(|| {
            answers = sale.buy_together(requests, std::mem::take(&mut answers));
        });
        assert!(answers.len() == accepted.len() && answers.iter().all(kind));
        assert_eq!(counted.count_total, 0, "{counted:?}");
    }
}
