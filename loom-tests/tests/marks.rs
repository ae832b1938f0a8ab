//! The durable marks: who waits is woken, neither too early nor never.

#![cfg(loom)]

use std::task::Poll;

use loom::sync::Arc;
use loom::thread;
use wal::LogUnavailable;
use wal::model::Marks;

#[test]
fn a_waiter_is_woken_by_its_mark_and_not_before() {
    loom::model(|| {
        let marks = Arc::new(Marks::new(1));
        let waiter = {
            let marks = Arc::clone(&marks);
            thread::spawn(move || {
                assert_eq!(marks.wait(0, 2), Ok(()));
                assert!(marks.durable(0) >= 2, "W2");
            })
        };
        marks.publish(0, 1);
        marks.publish(0, 2);
        waiter.join().expect("the waiter does not panic");
        assert_eq!(marks.waiters(0), 0);
    });
}

#[test]
fn two_waiters_of_one_mark_are_both_woken() {
    loom::model(|| {
        let marks = Arc::new(Marks::new(1));
        let waiters = [1, 1].map(|seq| {
            let marks = Arc::clone(&marks);
            thread::spawn(move || assert_eq!(marks.wait(0, seq), Ok(())))
        });
        marks.publish(0, 1);
        let _ = waiters.map(|waiter| waiter.join().expect("a waiter does not panic"));
    });
}

#[test]
fn who_is_woken_wakes_whom_the_publish_left() {
    loom::model(|| {
        let marks = Arc::new(Marks::new(1));
        let waiters = [1, 1].map(|seq| {
            let marks = Arc::clone(&marks);
            thread::spawn(move || assert_eq!(marks.wait(0, seq), Ok(())))
        });
        marks.publish_to(0, 1, 1);
        let _ = waiters.map(|waiter| waiter.join().expect("a waiter does not panic"));
        assert_eq!(marks.waiters(0), 0);
    });
}

#[test]
fn who_gives_up_when_it_was_woken_wakes_whom_the_publish_left() {
    loom::model(|| {
        let marks = Arc::new(Marks::new(1));
        let (leaving, staying) = (Arc::clone(&marks), Arc::clone(&marks));
        let leaving = thread::spawn(move || leaving.wait_and_give_up(0, 1));
        let staying = thread::spawn(move || staying.wait(0, 1));
        marks.publish_to(0, 1, 1);
        assert_ne!(leaving.join().expect("it does not panic"), Poll::Ready(Err(LogUnavailable)));
        assert_eq!(staying.join().expect("the waiter does not panic"), Ok(()));
        assert_eq!(marks.waiters(0), 0);
    });
}

#[test]
fn a_publish_that_leaves_waking_to_others_leaves_nobody_waiting() {
    loom::model(|| {
        let marks = Arc::new(Marks::new(1));
        let waiters = [1, 2].map(|seq| {
            let marks = Arc::clone(&marks);
            thread::spawn(move || assert_eq!(marks.wait(0, seq), Ok(())))
        });
        marks.publish_to(0, 1, 1);
        marks.publish_to(0, 2, 1);
        let _ = waiters.map(|waiter| waiter.join().expect("a waiter does not panic"));
        assert_eq!(marks.waiters(0), 0);
    });
}

#[test]
fn whom_nobody_woke_the_committer_wakes_in_the_end() {
    loom::model(|| {
        let marks = Arc::new(Marks::new(1));
        let waiter = {
            let marks = Arc::clone(&marks);
            thread::spawn(move || assert_eq!(marks.wait(0, 1), Ok(())))
        };
        // Nobody is woken, as where those who were do not look again.
        marks.publish_to(0, 1, 0);
        marks.wake_left();
        waiter.join().expect("the waiter does not panic");
        assert_eq!(marks.waiters(0), 0);
    });
}

#[test]
fn whom_nobody_woke_a_frame_of_another_lane_wakes() {
    loom::model(|| {
        let marks = Arc::new(Marks::new(2));
        let waiter = {
            let marks = Arc::clone(&marks);
            thread::spawn(move || assert_eq!(marks.wait(0, 1), Ok(())))
        };
        // Its own lane falls idle, and the log has no pause in which the committer would come by.
        marks.publish_and_fall_idle();
        waiter.join().expect("the waiter does not panic");
        assert_eq!(marks.waiters(0), 0);
    });
}

#[test]
fn failing_ends_every_wait_and_none_ends_well_afterwards() {
    loom::model(|| {
        let marks = Arc::new(Marks::new(1));
        let waiter = {
            let marks = Arc::clone(&marks);
            thread::spawn(move || marks.wait(0, 2))
        };
        marks.publish(0, 1);
        marks.poison();
        assert_eq!(marks.wait(0, 1), Err(LogUnavailable), "W16: durable, and told no more");
        assert_eq!(waiter.join().expect("the waiter does not panic"), Err(LogUnavailable));
    });
}

#[test]
fn failing_beside_a_publish_leaves_nobody_waiting() {
    loom::model(|| {
        let marks = Arc::new(Marks::new(1));
        let (failing, waiting) = (Arc::clone(&marks), Arc::clone(&marks));
        let failing = thread::spawn(move || failing.poison());
        let waiter = thread::spawn(move || waiting.wait(0, 1));
        marks.publish(0, 1);
        failing.join().expect("failing does not panic");
        // Either came first for the waiter; for who asks now there is no doubt.
        let _ = waiter.join().expect("the waiter does not panic");
        assert_eq!(marks.wait(0, 1), Err(LogUnavailable), "W16");
        assert_eq!(marks.waiters(0), 0);
    });
}

#[test]
fn a_wait_given_up_beside_a_publish_takes_nobody_elses_place() {
    loom::model(|| {
        let marks = Arc::new(Marks::new(1));
        let (leaving, staying) = (Arc::clone(&marks), Arc::clone(&marks));
        let leaving = thread::spawn(move || leaving.wait_and_give_up(0, 1));
        let staying = thread::spawn(move || staying.wait(0, 1));
        marks.publish(0, 1);
        assert_ne!(leaving.join().expect("it does not panic"), Poll::Ready(Err(LogUnavailable)));
        assert_eq!(staying.join().expect("the waiter does not panic"), Ok(()));
        assert_eq!(marks.waiters(0), 0);
    });
}
