//! Following a log as the bridge's thread does, over a store that may fail.

use bridge::follow::{FollowError, Follower, Step};
use bridge::sql::sink::OrderOptions;

use super::faults::{FaultyStore, SharedPlan};
use super::place::Place;
use super::{MemoryHost, Random};

/// Follows until caught up, in batches of random sizes, meeting anew after every failure, as the
/// bridge's thread does; where the process was killed, goes on with the files it left.
pub async fn follow(
    host: &MemoryHost,
    place: &mut Place,
    plan: &SharedPlan,
    random: &mut Random,
) -> u64 {
    let mut failures = 0;
    loop {
        match session(host, place, plan, random).await {
            Ok(()) => return failures,
            Err(error) => {
                assert!(error.is_transient(), "{error}");
                failures += 1;
                if let Some(image) = plan.borrow_mut().image.take() {
                    let Place::Sqlite { path, .. } = place else { unreachable!() };
                    *path = image;
                }
            }
        }
    }
}

async fn session(
    host: &MemoryHost,
    place: &Place,
    plan: &SharedPlan,
    random: &mut Random,
) -> Result<(), FollowError> {
    let mut follower =
        Follower::meet(host, FaultyStore::new(place, plan), OrderOptions::default()).await?;
    loop {
        let records_max = usize::try_from(1 + random.below(40)).unwrap();
        follower = follower.with_records_max(records_max);
        if follower.step().await? == Step::CaughtUp {
            return Ok(());
        }
    }
}
