//! One piece of work, done a number of times, for an instruction counter to look at.
//!
//! Usage: `instructions WORK COUNT [DIRECTORY]`. The counter sees the whole process; what one
//! time costs is the difference between two runs with different counts. `cargo xtask
//! instructions` does both runs and holds the difference against its bound.

#![allow(clippy::unwrap_used, reason = "a bench that can't run ends")]

use std::hint::black_box;
use std::path::Path;

use benches::{REQUEST_ID, SHORT_REQUEST_ID, Sale, USERS_A_BATCH, options};
use engine::core::event::Front;
use engine::core::ids::UserId;
use engine::{BatchAnswer, Engine};

/// Does something a number of times; only `prepare` and `recovery` need the directory.
type Work = fn(u64, &Path);

/// What can be counted.
const WORKS: &[(&str, Work)] = &[
    ("batch", batch),
    ("single", single),
    ("refused", refused),
    ("replayed", replayed),
    ("hash", hash),
    ("prepare", prepare),
    ("recovery", recovery),
    ("bytes", |count, _| bytes(count, REQUEST_ID)),
    ("bytes-short", |count, _| bytes(count, SHORT_REQUEST_ID)),
];

fn main() {
    let mut arguments = std::env::args().skip(1);
    let work = arguments.next().unwrap_or_default();
    let count = arguments.next().and_then(|count| count.parse().ok());
    let directory = arguments.next().unwrap_or_default();
    match (WORKS.iter().find(|(name, _)| *name == work), count) {
        (Some((_, function)), Some(count)) => function(count, Path::new(&directory)),
        _ => {
            let names: Vec<_> = WORKS.iter().map(|(name, _)| *name).collect();
            eprintln!("usage: instructions {} COUNT [DIRECTORY]", names.join("|"));
            std::process::exit(2);
        }
    }
}

/// Purchases in batches, made durable batch by batch: the engine and its log, alone.
fn batch(count: u64, _: &Path) {
    let sale = Sale::without_threads();
    sale.fill(count);
}

/// Purchases one by one, a commit for every batch of them.
fn single(count: u64, _: &Path) {
    let sale = Sale::without_threads();
    for user in sale.users(count) {
        let user = UserId::new(user).unwrap();
        let pending = sale.engine.reserve(sale.activity, user, REQUEST_ID, 1, Front::Api);
        drop(pending.unwrap());
        if user.get().is_multiple_of(USERS_A_BATCH) {
            sale.engine.commit().unwrap();
        }
    }
}

/// The same buyers once more with other requests, above their limit.
fn refused(count: u64, _: &Path) {
    repeat(count, "another request", 5, |answer| matches!(answer, BatchAnswer::Refused(_)));
}

/// The same requests once more.
fn replayed(count: u64, _: &Path) {
    repeat(count, REQUEST_ID, 1, |answer| matches!(answer, BatchAnswer::Replayed(_)));
}

fn repeat(count: u64, request_id: &str, quantity: u32, expected: fn(&BatchAnswer) -> bool) {
    let sale = Sale::without_threads();
    sale.fill(USERS_A_BATCH);
    for _ in 0..count / USERS_A_BATCH {
        let answers = sale.batch_of(1..USERS_A_BATCH + 1, request_id, quantity);
        assert!(answers.wait().unwrap().iter().all(expected));
    }
}

/// Request ids, hashed.
fn hash(count: u64, _: &Path) {
    let hasher = engine::core::request::RequestHasher::new(&[7; 16]);
    for _ in 0..count {
        black_box(hasher.hash(black_box(REQUEST_ID)));
    }
}

/// A directory with `count` reservations, for `recovery`.
fn prepare(count: u64, directory: &Path) {
    let sale = Sale::at(directory, false);
    sale.fill(count);
    sale.engine.close().unwrap();
}

/// Prints the bytes of the log that a reservation takes.
fn bytes(count: u64, request_id: &str) {
    let sale = Sale::without_threads();
    let before = sale.engine.stats().log;
    sale.fill_with(count, request_id);
    let after = sale.engine.stats().log;
    println!("{}", (after.frame_bytes - before.frame_bytes) / (after.records - before.records));
}

/// Opens a directory that `prepare` made.
fn recovery(count: u64, directory: &Path) {
    let (engine, report) = Engine::open(options(directory, false, false)).unwrap();
    assert!(report.records >= count);
    drop(engine);
}
