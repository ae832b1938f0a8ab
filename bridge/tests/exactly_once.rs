//! Whatever fails at whatever instant, every reservation becomes exactly one order and every
//! give-back happens exactly once.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::rc::Rc;

use support::check::assert_projected;
use support::faults::{FAULTS, Plan, SharedPlan};
use support::follow::follow;
use support::history::History;
use support::place::Place;
use support::{MemoryHost, Random};

on_each_database!(
    a_history_in_any_batches_projects_to_the_engines_state,
    every_operation_may_fail_in_every_way_and_nothing_is_lost_or_doubled,
    random_failures_over_a_long_history_change_nothing,
    a_database_that_comes_back_older_is_caught_up,
    a_mark_that_was_lost_with_a_crash_is_made_again,
    marks_alone_move_no_cursor_and_are_not_announced,
);

fn assert_announced(host: &MemoryHost, history: &History) {
    let (_, marks) = host.announced();
    for (index, shard) in history.shards.iter().enumerate() {
        let shard_id = u16::try_from(index).unwrap();
        assert_eq!(marks[&shard_id], shard.applied_seq(), "the mark covers the shard");
    }
}

async fn a_history_in_any_batches_projects_to_the_engines_state(mut place: Place) {
    for seed in 1..=12 {
        place = place.emptied().await;
        let host = MemoryHost::new();
        let mut history = History::new(host.clone(), seed);
        let mut random = Random::new(seed + 1_000);
        let plan = SharedPlan::default();
        for _ in 0..4 {
            history.run(120);
            follow(&host, &mut place, &plan, &mut random).await;
            assert_projected(&place, &history).await;
        }
        assert_announced(&host, &history);
        assert!(history.counts.restored > 0 && history.counts.reinstated > 0);
    }
}

async fn every_operation_may_fail_in_every_way_and_nothing_is_lost_or_doubled(mut place: Place) {
    for fault in FAULTS {
        let mut at = 0;
        loop {
            place = place.emptied().await;
            let host = MemoryHost::new();
            let mut history = History::new(host.clone(), 77);
            history.run(60);
            let plan = Rc::new(std::cell::RefCell::new(Plan {
                next: Some((at, fault)),
                ..Plan::default()
            }));
            let failures = follow(&host, &mut place, &plan, &mut Random::new(5)).await;
            assert_projected(&place, &history).await;
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

async fn random_failures_over_a_long_history_change_nothing(mut place: Place) {
    for seed in 1..=6 {
        place = place.emptied().await;
        let mut host = MemoryHost::new();
        let mut history = History::new(host.clone(), seed);
        let mut random = Random::new(seed + 50);
        let plan = SharedPlan::default();
        let mut failures = 0;
        for _ in 0..15 {
            history.run(40);
            let fault = FAULTS[usize::try_from(random.below(4)).unwrap()];
            plan.borrow_mut().next = Some((random.below(30), fault));
            failures += follow(&host, &mut place, &plan, &mut random).await;
            if random.below(3) == 0 {
                host = host.reopened();
                history.host = host.clone();
            }
        }
        plan.borrow_mut().next = None;
        follow(&host, &mut place, &plan, &mut random).await;
        assert!(failures > 3, "failures were injected");
        assert_projected(&place, &history).await;
        assert_announced(&host, &history);
    }
}

async fn a_database_that_comes_back_older_is_caught_up(mut place: Place) {
    let host = MemoryHost::new();
    let mut history = History::new(host.clone(), 3);
    history.run(100);
    let plan = SharedPlan::default();
    let mut random = Random::new(4);
    follow(&host, &mut place, &plan, &mut random).await;
    let mut backup = place.copied().await;
    history.run(100);
    follow(&host, &mut place, &plan, &mut random).await;
    let announced = host.announced();

    follow(&host, &mut backup, &plan, &mut random).await;
    assert_projected(&backup, &history).await;
    assert_eq!(host.announced(), announced, "what was announced is not announced again");
}

async fn a_mark_that_was_lost_with_a_crash_is_made_again(mut place: Place) {
    let host = MemoryHost::new();
    let mut history = History::new(host.clone(), 8);
    history.run(80);
    host.set_busy(true);
    let plan = SharedPlan::default();
    let mut random = Random::new(9);
    follow(&host, &mut place, &plan, &mut random).await;
    assert_eq!(host.announced().0, 0, "the engine took no marks");

    host.set_busy(false);
    let host = host.reopened();
    follow(&host, &mut place, &plan, &mut random).await;
    assert_announced(&host, &history);
    assert_projected(&place, &history).await;
}

async fn marks_alone_move_no_cursor_and_are_not_announced(mut place: Place) {
    let host = MemoryHost::new();
    let mut history = History::new(host.clone(), 8);
    history.run(10);
    let plan = SharedPlan::default();
    let mut random = Random::new(9);
    follow(&host, &mut place, &plan, &mut random).await;
    let (frames, operations) = (host.frame_count(), plan.borrow().operations);
    follow(&host, &mut place, &plan, &mut random).await;
    assert_eq!(host.frame_count(), frames, "the log does not grow by following it");
    // Reading the cursor and claiming it: five operations, no transaction beside them.
    assert_eq!(plan.borrow().operations, operations + 5);
}
