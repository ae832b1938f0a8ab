//! A database that the log has passed by, empty or of an old backup, is filled from a snapshot and
//! follows the log from there: nothing is revived, taken back or written twice.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::cell::RefCell;
use std::rc::Rc;

use bridge::cursor::{Fork, Halt};
use bridge::follow::{FollowError, Follower, Step};
use bridge::sql::sink::OrderOptions;
use bridge::sql::split::Split;
use support::check::{assert_filled, assert_projected};
use support::faults::{FAULTS, Plan, SharedPlan};
use support::follow::follow;
use support::history::History;
use support::place::Place;
use support::{MemoryHost, Random};
use wal::Epoch;

on_each_database!(
    an_empty_database_is_filled_where_the_logs_beginning_is_gone,
    a_database_older_than_the_kept_log_is_brought_up_to_it,
    every_operation_of_a_filling_may_fail_in_every_way,
    a_filling_that_was_cut_short_begins_again_from_a_newer_snapshot,
    a_snapshot_older_than_what_the_rows_may_hold_is_refused,
    a_server_that_fills_is_fenced_off_by_a_later_one,
    orders_over_several_tables_are_filled_as_well,
    an_order_that_was_there_once_needs_no_address_again,
    a_filled_database_says_what_is_gone,
);

/// A history with a snapshot in its middle, all of whose log before was given back.
fn passed_by(seed: u64) -> (MemoryHost, History) {
    let host = MemoryHost::new();
    let mut history = History::new(host.clone(), seed);
    history.run(150);
    retire_behind_snapshot(&host, &mut history);
    history.run(60);
    (host, history)
}

fn retire_behind_snapshot(host: &MemoryHost, history: &mut History) {
    history.snapshot();
    host.retire(host.frame_count());
}

async fn caught_up(host: &MemoryHost, place: &mut Place, seed: u64) {
    follow(host, place, &SharedPlan::default(), &mut Random::new(seed)).await;
}

async fn an_empty_database_is_filled_where_the_logs_beginning_is_gone(mut place: Place) {
    for seed in 1..=12 {
        place = place.emptied().await;
        let (host, mut history) = passed_by(seed);
        caught_up(&host, &mut place, seed).await;
        assert_filled(&place, &history).await;
        assert_eq!(host.announced().1.len(), history.shards.len());
        history.run(80);
        caught_up(&host, &mut place, seed).await;
        assert_filled(&place, &history).await;
        let asked = host.kept_from();
        assert_eq!((asked[0], *asked.last().unwrap()), (Some(0), None), "{asked:?}");
    }
}

async fn a_database_older_than_the_kept_log_is_brought_up_to_it(mut place: Place) {
    for seed in 1..=12 {
        place = place.emptied().await;
        let host = MemoryHost::new();
        let mut history = History::new(host.clone(), seed);
        history.run(30 * seed);
        caught_up(&host, &mut place, seed).await;
        assert_projected(&place, &history).await;
        // From here on it is the backup.
        history.run(150);
        retire_behind_snapshot(&host, &mut history);
        history.run(40);
        caught_up(&host, &mut place, seed).await;
        assert_filled(&place, &history).await;
    }
}

async fn every_operation_of_a_filling_may_fail_in_every_way(mut place: Place) {
    for fault in FAULTS {
        let mut at = 0;
        loop {
            place = place.emptied().await;
            let host = MemoryHost::new();
            let mut history = History::new(host.clone(), 77);
            history.run(40);
            retire_behind_snapshot(&host, &mut history);
            let next = Some((at, fault));
            let plan = Rc::new(RefCell::new(Plan { next, ..Plan::default() }));
            let failures = follow(&host, &mut place, &plan, &mut Random::new(5)).await;
            assert_filled(&place, &history).await;
            if plan.borrow().next.is_some() {
                assert_eq!(failures, 0);
                break;
            }
            assert_eq!(failures, 1, "{fault:?} at operation {at}");
            at += 1;
        }
        assert!(at > 20, "every operation of several portions was tried, not {at}");
    }
}

/// Fills `portions` portions, then is gone.
async fn cut_short(host: &MemoryHost, place: &Place, portions: u64) -> Result<(), FollowError> {
    let store = place.database().store();
    let follower = Follower::meet(host, store, OrderOptions::default()).await?;
    let mut follower = follower.with_records_max(20);
    for _ in 0..portions {
        assert!(matches!(follower.step().await?, Step::Filled { .. }));
        assert!(follower.is_filling(), "a filling of fewer portions can't be cut short");
    }
    Ok(())
}

async fn a_filling_that_was_cut_short_begins_again_from_a_newer_snapshot(mut place: Place) {
    for portions in [0, 1, 3] {
        place = place.emptied().await;
        let (mut host, mut history) = passed_by(9);
        cut_short(&host, &place, portions).await.unwrap();
        for seed in 1..=2 {
            host = host.reopened();
            history.host = host.clone();
            history.run(60);
            retire_behind_snapshot(&host, &mut history);
            cut_short(&host, &place, portions + seed).await.unwrap();
        }
        history.run(20);
        caught_up(&host, &mut place, 1).await;
        assert_filled(&place, &history).await;
    }
}

async fn a_snapshot_older_than_what_the_rows_may_hold_is_refused(place: Place) {
    let (host, mut history) = passed_by(4);
    let older = host.frames.lock().unwrap().clone();
    retire_behind_snapshot(&host, &mut history);
    cut_short(&host, &place, 1).await.unwrap();
    {
        // The newest snapshot is damaged: the one before is what there is.
        let mut frames = host.frames.lock().unwrap();
        frames.use_images_of(&older);
    }
    let error = cut_short(&host, &place, 1).await.unwrap_err();
    assert!(matches!(error, FollowError::Halt(Halt::NoSnapshot { .. })), "{error}");
}

async fn a_server_that_fills_is_fenced_off_by_a_later_one(mut place: Place) {
    let (host, history) = passed_by(6);
    let store = place.database().store();
    let first = Follower::meet(&host, store, OrderOptions::default()).await.unwrap();
    let mut first = first.with_records_max(20);
    first.step().await.unwrap();
    let later = host.reopened();
    cut_short(&later, &place, 2).await.unwrap();
    let error = first.step().await.unwrap_err();
    assert!(error.is_transient(), "it looks again: {error}");
    let error = cut_short(&host, &place, 1).await.unwrap_err();
    let fenced = Fork::LaterEpoch { theirs: Epoch(2), ours: Epoch(1) };
    assert!(matches!(&error, FollowError::Fork(fork) if *fork == fenced), "{error}");
    caught_up(&later, &mut place, 2).await;
    assert_filled(&place, &history).await;
}

async fn orders_over_several_tables_are_filled_as_well(place: Place) {
    let split = Split::new(3).unwrap();
    place.database().prepare(split).await.unwrap();
    let (host, history) = passed_by(8);
    let options = OrderOptions { split, ..OrderOptions::default() };
    for portions in [3, u64::MAX] {
        let store = place.database().store();
        let mut follower =
            Follower::meet(&host, store, options).await.unwrap().with_records_max(25);
        for _ in 0..portions {
            if follower.step().await.unwrap() == Step::CaughtUp {
                break;
            }
        }
    }
    assert_filled(&place, &history).await;
    assert!(place.number("SELECT COUNT(*) FROM orders_2").await > 0);
}

async fn an_order_that_was_there_once_needs_no_address_again(place: Place) {
    let host = MemoryHost::new();
    let mut history = History::new(host.clone(), 1);
    history.buy(0, 7);
    history.snapshot();
    let kept = host.frame_count();
    history.buy(0, 8);
    history.end_frame();
    // Both were in SQL, with the addresses that their buyers had.
    let marks = [(0, history.shards[0].applied_seq()), (1, history.shards[1].applied_seq())];
    let end = bridge::Host::durable_lsn(&host);
    bridge::Host::sink_advanced(&host, "sql", end, &marks).unwrap();
    host.retire(kept);
    history.buy(0, 9);
    history.end_frame();
    let options = OrderOptions { require_address: true, ..OrderOptions::default() };
    let store = place.database().store();
    let mut follower = Follower::meet(&host, store, options).await.unwrap();
    while follower.step().await.unwrap() != Step::CaughtUp {}
    let told = host.take_dead_letters();
    assert_eq!(told.len(), 1, "only the last one was never an order: {told:?}");
    assert_eq!(place.number("SELECT COUNT(*) FROM orders").await, 2);
}

async fn a_filled_database_says_what_is_gone(place: Place) {
    let (host, history) = passed_by(3);
    let store = place.database().store();
    let mut follower = Follower::meet(&host, store, OrderOptions::default()).await.unwrap();
    assert!(follower.is_filling() && follower.filled().is_none());
    while follower.step().await.unwrap() != Step::CaughtUp {}
    let filled = follower.filled().unwrap();
    let by_hash = "SELECT COUNT(*) FROM flashsale_pre_deductions WHERE client_request_id IS NULL";
    assert_eq!(filled.gone_request_ids, place.number(by_hash).await);
    assert_eq!(filled.reservations, filled.gone_request_ids);
    assert!(filled.reservations < history.reservations.len() as u64, "some came from the log");
    assert_eq!(filled.activities, 4);
    let audit = "SELECT COUNT(*) FROM audit WHERE action = 'database_filled'";
    assert_eq!(place.number(audit).await, 1);
}
