//! How many orders a second reach a database, from a log in memory.
//!
//! ```text
//! cargo run --release -p bridge --example orders_per_second -- [ORDERS] [RECORDS_A_BATCH] [URL]
//! cargo run --release -p bridge --example orders_per_second -- compare [ORDERS] [ROUNDS]
//! ```
//!
//! Without a URL, SQLite in a temporary directory; with one, an empty database of a MySQL or
//! MariaDB. Each order is a row in `orders`, `order_items`, `flashsale_pre_deductions` and
//! `stock_flows`; every batch is one transaction, as durable as the database is set up (SQLite:
//! `synchronous = FULL`). The second pass gives all of them back, as a mass time-out does.
//!
//! `compare` starts a MariaDB of its own, or the MySQL that `SLUICE_MYSQLD` names (`cargo xtask
//! test --list` shows where one is), which syncs every commit, and lets the bridge and three shops
//! without a log take turns in it: one transaction a purchase from the client, by a stored
//! procedure, by a stored procedure whose stock is spread over as many rows as there are
//! connections. It prints the median of each and the ratios. Run it on a quiet machine.
#![allow(clippy::unwrap_used, reason = "a measurement fails by panicking")]

mod baseline;
#[path = "../../tests/support/mod.rs"]
mod support;

use std::time::Instant;

use bridge::follow::{Follower, Step};
use bridge::sql::database::{Database, DatabaseStore};
use bridge::sql::sink::OrderOptions;
use bridge::sql::split::Split;
use engine::core::event::{Actor, Body, Event, Figures, Front, RestoreReason};
use engine::core::ids::{Ordinal, Position, ReservationId, UserId};

use sqlx::{AssertSqlSafe, Connection as _, Executor as _, MySqlConnection};

use baseline::{CONNECTIONS, DURABLE, Way};
use support::MemoryHost;
use support::history::{ACTOR, DEFINITION, activity_id};
use support::mariadb::MariaDb;

/// Records in a frame of the log under load.
const FRAME_RECORDS: u32 = 100;

fn reserved(position: u32, total: u32) -> (ReservationId, UserId, Figures) {
    let ordinal = Ordinal::new(1).unwrap();
    let id = ReservationId::compose(ordinal, Position::new(position).unwrap());
    let user = UserId::new(u64::from(position.wrapping_mul(2_654_435_761)) + 1).unwrap();
    let figures = Figures { available: total - position, locked: position, sold: 0 };
    (id, user, figures)
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let mut arguments = std::env::args().skip(1).peekable();
    let compares = arguments.next_if(|argument| argument == "compare").is_some();
    let mut number =
        |default| arguments.next().map_or(default, |text| text.parse::<u32>().unwrap());
    if compares {
        let (orders, rounds) = (number(50_000), number(3));
        compare(orders, rounds).await;
        return;
    }
    let (orders, records_max) = (number(100_000), number(2_000) as usize);
    let directory = tempfile::tempdir().unwrap();
    let sqlite = || format!("sqlite:{}", directory.path().join("orders.db").display());
    let database = Database::at(&arguments.next().unwrap_or_else(sqlite)).unwrap();
    for Measured { what, rate, cpu_us } in bridge(&database, orders, records_max).await {
        println!("{orders} {what}: {rate:.0} {what}/s, {cpu_us:.1} us of this process's CPU each");
    }
}

async fn compare(orders: u32, rounds: u32) {
    let server = MariaDb::start_with(&DURABLE);
    let mut rates: [Vec<f64>; 4] = Default::default();
    for round in 0..rounds {
        let name = format!("bridge_{round}");
        let database = Database::at(&baseline::create(&server, &name).await).unwrap();
        let [ordered, _] = bridge(&database, orders, 2_000).await;
        rates[0].push(ordered.rate);
        let mut root = MySqlConnection::connect(&server.url("mysql")).await.unwrap();
        root.execute(AssertSqlSafe(format!("DROP DATABASE {name}"))).await.unwrap();
        for (index, way) in [Way::Client, Way::Procedure, Way::Buckets].into_iter().enumerate() {
            let name = format!("shop_{index}_{round}");
            rates[index + 1].push(baseline::run(&server, &name, way, orders.into()).await);
        }
    }
    let medians = rates.map(|mut rates| {
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2]
    });
    println!(
        "{}, {orders} orders a turn, {rounds} rounds, {CONNECTIONS} connections a shop",
        server.version().await
    );
    for (name, median) in
        ["bridge", "client SQL", "procedure", "procedure, buckets"].into_iter().zip(medians)
    {
        println!("{name:>20} {median:>9.0} orders/s   bridge is {:.2} x", medians[0] / median);
    }
}

/// Orders and give-backs a second into the empty `database`.
async fn bridge(database: &Database, orders: u32, records_max: usize) -> [Measured; 2] {
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
    let ordered = measure(&mut follower, "orders", orders).await;
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
    let given_back = measure(&mut follower, "give-backs", orders).await;
    [ordered, given_back]
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

/// What a pass took.
struct Measured {
    what: &'static str,
    /// A second.
    rate: f64,
    /// Processor time of all threads of this process, user's and system's.
    cpu_us: f64,
}

async fn measure(
    follower: &mut Follower<'_, MemoryHost, DatabaseStore>,
    what: &'static str,
    count: u32,
) -> Measured {
    let (started, cpu) = (Instant::now(), cpu_seconds());
    while follower.step().await.unwrap() != Step::CaughtUp {}
    let rate = f64::from(count) / started.elapsed().as_secs_f64();
    Measured { what, rate, cpu_us: (cpu_seconds() - cpu) / f64::from(count) * 1e6 }
}

fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    #[expect(clippy::cast_precision_loss, reason = "seconds since the start")]
    let (whole, nanos) = (time.tv_sec as f64, time.tv_nsec as f64);
    whole + nanos / 1e9
}
