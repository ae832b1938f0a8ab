//! How many orders a second reach a database, from a log in memory: `cargo run --release -p bridge
//! --example orders_per_second -- [ORDERS] [RECORDS_A_BATCH] [URL]`. Without a URL, SQLite in a
//! temporary directory; with one, an empty database of a MySQL or MariaDB.
//!
//! Each order is a row in `orders`, `order_items`, `flashsale_pre_deductions` and `stock_flows`;
//! every batch is one transaction, as durable as the database is set up (SQLite: `synchronous =
//! FULL`). The second pass gives all of them back, as a mass time-out does.
#![allow(clippy::unwrap_used, reason = "a measurement fails by panicking")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::time::Instant;

use bridge::follow::{Follower, Step};
use bridge::sql::database::{Database, DatabaseStore};
use bridge::sql::sink::OrderOptions;
use bridge::sql::split::Split;
use engine::core::event::{Actor, Body, Event, Figures, Front, RestoreReason};
use engine::core::ids::{Ordinal, Position, ReservationId, UserId};

use support::MemoryHost;
use support::history::{ACTOR, DEFINITION, activity_id};

/// Records in a frame of the log under load.
const FRAME_RECORDS: u32 = 100;

fn reserved(position: u32, total: u32) -> (ReservationId, UserId, Figures) {
    let ordinal = Ordinal::new(1).unwrap();
    let id = ReservationId::compose(ordinal, Position::new(position).unwrap());
    let user = UserId::new(u64::from(position.wrapping_mul(2_654_435_761)) + 1).unwrap();
    let figures = Figures { available: total - position, locked: position, sold: 0 };
    (id, user, figures)
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number =
        |default| arguments.next().map_or(default, |text| text.parse::<u32>().unwrap());
    let (orders, records_max) = (number(100_000), number(2_000) as usize);
    let directory = tempfile::tempdir().unwrap();
    let sqlite = || format!("sqlite:{}", directory.path().join("orders.db").display());
    let database = Database::at(&arguments.next().unwrap_or_else(sqlite)).unwrap();
    database.prepare(Split::ONE).await.unwrap();
    let host = MemoryHost::new();
    let activity = activity_id(0);
    let (ordinal, definition, total) = (Ordinal::new(1).unwrap(), DEFINITION, orders);
    let body = Body::ActivityCreated { activity, actor: ACTOR, ordinal, total, definition };
    host.append(&[(0, 1, Event { at_ms: 1, body })]);
    let follower = Follower::meet(&host, database.store(), OrderOptions::default()).await.unwrap();
    let mut follower = follower.with_records_max(records_max);
    follower.step().await.unwrap();

    append(&host, orders, |position, request_id| {
        let (reservation, user, figures) = reserved(position, total);
        let (front, quantity, held, version) = (Front::Http, 1, 1, 1);
        Body::Reserved {
            activity,
            front,
            reservation,
            user,
            quantity,
            held,
            version,
            figures,
            request_id,
        }
    });
    measure(&mut follower, "orders", orders).await;
    append(&host, orders, |position, _| {
        let (reservation, user, _) = reserved(position, total);
        let figures = Figures { available: position, locked: total - position, sold: 0 };
        let (quantity, held, version) = (1, 0, 1);
        let (reason, actor) = (RestoreReason::Timeout, Actor::NONE);
        Body::Restored {
            activity,
            reservation,
            user,
            quantity,
            held,
            version,
            figures,
            reason,
            actor,
        }
    });
    measure(&mut follower, "give-backs", orders).await;
}

fn append<'a>(host: &MemoryHost, count: u32, body: impl Fn(u32, &'static str) -> Body<'a>) {
    for start in (1..=count).step_by(FRAME_RECORDS as usize) {
        let end = (start + FRAME_RECORDS - 1).min(count);
        let events: Vec<_> = (start..=end)
            .map(|position| {
                // As long as the ids that shops send.
                let body = body(position, "7f9c24e5-2f1b-4a7c-9d0e-5b6a7c8d9e0f");
                (0, u64::from(position), Event { at_ms: 1_000 + u64::from(position), body })
            })
            .collect();
        host.append(&events);
    }
}

async fn measure(follower: &mut Follower<'_, MemoryHost, DatabaseStore>, what: &str, count: u32) {
    let started = Instant::now();
    let mut batches = 0;
    while follower.step().await.unwrap() != Step::CaughtUp {
        batches += 1;
    }
    let seconds = started.elapsed().as_secs_f64();
    let rate = f64::from(count) / seconds;
    println!("{count} {what} in {seconds:.2} s, {batches} batches: {rate:.0} {what}/s");
}
