//! Whatever fails at whatever instant, every reservation becomes exactly one order and every
//! give-back happens exactly once.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::path::{Path, PathBuf};
use std::rc::Rc;

use bridge::follow::{FollowError, Follower, Step};
use bridge::sql::schema::prepare_sqlite;
use bridge::sql::sqlite::connect_options;
use sqlx::{Connection as _, SqliteConnection};

use support::check::assert_projected;
use support::faults::{FAULTS, FaultyStore, Plan, SharedPlan, url};
use support::history::History;
use support::{MemoryHost, Random};

async fn prepared(path: &Path) {
    prepare_sqlite(&connect_options(&url(path)).unwrap()).await.unwrap();
}

/// Follows until caught up, in batches of random sizes, meeting anew after every failure, as the
/// bridge's thread does; where the process was killed, goes on with the files it left.
async fn follow(
    host: &MemoryHost,
    path: &mut PathBuf,
    plan: &SharedPlan,
    random: &mut Random,
) -> u64 {
    let mut failures = 0;
    loop {
        match session(host, path, plan, random).await {
            Ok(()) => return failures,
            Err(error) => {
                assert!(error.is_transient(), "{error}");
                failures += 1;
                if let Some(image) = plan.borrow_mut().image.take() {
                    *path = image;
                }
            }
        }
    }
}

async fn session(
    host: &MemoryHost,
    path: &Path,
    plan: &SharedPlan,
    random: &mut Random,
) -> Result<(), FollowError> {
    let mut follower = Follower::meet(host, FaultyStore::new(path, plan)).await?;
    loop {
        let records_max = usize::try_from(1 + random.below(40)).unwrap();
        follower = follower.with_records_max(records_max);
        if follower.step().await? == Step::CaughtUp {
            return Ok(());
        }
    }
}

fn assert_announced(host: &MemoryHost, history: &History) {
    let (_, marks) = host.announced();
    for (index, shard) in history.shards.iter().enumerate() {
        let shard_id = u16::try_from(index).unwrap();
        assert_eq!(marks[&shard_id], shard.applied_seq(), "the mark covers the shard");
    }
}

#[tokio::test]
async fn a_history_in_any_batches_projects_to_the_engines_state() {
    for seed in 1..=12 {
        let directory = tempfile::tempdir().unwrap();
        let mut path = directory.path().join("orders.db");
        prepared(&path).await;
        let host = MemoryHost::new();
        let mut history = History::new(host.clone(), seed);
        let mut random = Random::new(seed + 1_000);
        let plan = SharedPlan::default();
        for _ in 0..4 {
            history.run(120);
            follow(&host, &mut path, &plan, &mut random).await;
            assert_projected(&path, &history).await;
        }
        assert_announced(&host, &history);
        assert!(history.counts.restored > 0 && history.counts.reinstated > 0);
    }
}

#[tokio::test]
async fn every_operation_may_fail_in_every_way_and_nothing_is_lost_or_doubled() {
    for fault in FAULTS {
        let mut at = 0;
        loop {
            let directory = tempfile::tempdir().unwrap();
            let mut path = directory.path().join("orders.db");
            prepared(&path).await;
            let host = MemoryHost::new();
            let mut history = History::new(host.clone(), 77);
            history.run(60);
            let plan = Rc::new(std::cell::RefCell::new(Plan {
                next: Some((at, fault)),
                ..Plan::default()
            }));
            let failures = follow(&host, &mut path, &plan, &mut Random::new(5)).await;
            assert_projected(&path, &history).await;
            assert_announced(&host, &history);
            if plan.borrow().next.is_some() {
                assert_eq!(failures, 0);
                break;
            }
            assert_eq!(failures, 1, "{fault:?} at operation {at}");
            at += 1;
        }
        assert!(at > 20, "every operation of several batches was tried, not {at}");
    }
}

#[tokio::test]
async fn random_failures_over_a_long_history_change_nothing() {
    for seed in 1..=6 {
        let directory = tempfile::tempdir().unwrap();
        let mut path = directory.path().join("orders.db");
        prepared(&path).await;
        let mut host = MemoryHost::new();
        let mut history = History::new(host.clone(), seed);
        let mut random = Random::new(seed + 50);
        let plan = SharedPlan::default();
        let mut failures = 0;
        for _ in 0..15 {
            history.run(40);
            let fault = FAULTS[usize::try_from(random.below(4)).unwrap()];
            plan.borrow_mut().next = Some((random.below(30), fault));
            failures += follow(&host, &mut path, &plan, &mut random).await;
            if random.below(3) == 0 {
                host = host.reopened();
                history.host = host.clone();
            }
        }
        plan.borrow_mut().next = None;
        follow(&host, &mut path, &plan, &mut random).await;
        assert!(failures > 3, "failures were injected");
        assert_projected(&path, &history).await;
        assert_announced(&host, &history);
    }
}

#[tokio::test]
async fn a_database_that_comes_back_older_is_caught_up() {
    let directory = tempfile::tempdir().unwrap();
    let mut path = directory.path().join("orders.db");
    prepared(&path).await;
    let host = MemoryHost::new();
    let mut history = History::new(host.clone(), 3);
    history.run(100);
    let plan = SharedPlan::default();
    let mut random = Random::new(4);
    follow(&host, &mut path, &plan, &mut random).await;
    let mut backup = directory.path().join("backup.db");
    let mut connection = SqliteConnection::connect(&url(&path)).await.unwrap();
    let copy = sqlx::query("VACUUM INTO ?").bind(backup.to_str());
    copy.execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    history.run(100);
    follow(&host, &mut path, &plan, &mut random).await;
    let announced = host.announced();

    follow(&host, &mut backup, &plan, &mut random).await;
    assert_projected(&backup, &history).await;
    assert_eq!(host.announced(), announced, "what was announced is not announced again");
}

#[tokio::test]
async fn a_mark_that_was_lost_with_a_crash_is_made_again() {
    let directory = tempfile::tempdir().unwrap();
    let mut path = directory.path().join("orders.db");
    prepared(&path).await;
    let host = MemoryHost::new();
    let mut history = History::new(host.clone(), 8);
    history.run(80);
    host.set_busy(true);
    let plan = SharedPlan::default();
    let mut random = Random::new(9);
    follow(&host, &mut path, &plan, &mut random).await;
    assert_eq!(host.announced().0, 0, "the engine took no marks");

    host.set_busy(false);
    let host = host.reopened();
    follow(&host, &mut path, &plan, &mut random).await;
    assert_announced(&host, &history);
    assert_projected(&path, &history).await;
}

#[tokio::test]
async fn marks_alone_move_no_cursor_and_are_not_announced() {
    let directory = tempfile::tempdir().unwrap();
    let mut path = directory.path().join("orders.db");
    prepared(&path).await;
    let host = MemoryHost::new();
    let mut history = History::new(host.clone(), 8);
    history.run(10);
    let plan = SharedPlan::default();
    let mut random = Random::new(9);
    follow(&host, &mut path, &plan, &mut random).await;
    let (frames, operations) = (host.frame_count(), plan.borrow().operations);
    follow(&host, &mut path, &plan, &mut random).await;
    assert_eq!(host.frame_count(), frames, "the log does not grow by following it");
    // Reading the cursor and claiming it: four operations, no transaction beside them.
    assert_eq!(plan.borrow().operations, operations + 4);
}
