//! A clock that a test moves, and buyers by the thousand.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use engine::core::event::Front;
use engine::core::ids::{ActivityId, UserId};
use engine::{BatchAnswer, BatchRequest, Engine, TimeSource};

/// Purchases of a call.
const BATCH: usize = 1_000;

/// A clock that stands until it is moved.
pub(crate) struct Clock(pub(crate) AtomicU64);

impl TimeSource for Clock {
    fn wall_ms(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.wall_ms())
    }
}

/// Users buy a unit each, under requests of that name; all are told so.
pub(crate) fn buy(engine: &Engine, activity: ActivityId, users: RangeInclusive<u64>, name: &str) {
    let users: Vec<u64> = users.collect();
    for users in users.chunks(BATCH) {
        let texts: Vec<String> = users.iter().map(|user| format!("{name}-{user}")).collect();
        let request = |(user, request_id): (&u64, _)| BatchRequest {
            user: UserId::new(*user).unwrap(),
            request_id,
            quantity: 1,
        };
        let requests: Vec<_> =
            users.iter().zip(texts.iter().map(String::as_str)).map(request).collect();
        let told = engine.reserve_batch(activity, &requests, Front::Http).unwrap().wait().unwrap();
        assert!(told.iter().all(|it| matches!(it, BatchAnswer::Reserved(_))), "{told:?}");
    }
}
