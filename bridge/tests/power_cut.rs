//! A power cut undoes commits that were not synced: the engine was told of none of them, and the
//! sink makes them again.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use bridge::Host as _;
use bridge::follow::{Follower, Step};
use bridge::sql::database::{DatabaseStore, DatabaseTransaction};
use bridge::sql::sink::{OrderOptions, SINK_NAME};
use bridge::sql::store::{Store, StoreError};
use support::check::assert_projected;
use support::faults::SharedPlan;
use support::follow::follow;
use support::history::History;
use support::place::Place;
use support::{MemoryHost, Random};

/// A store that remembers whether its last commits were to last.
struct Watched {
    inner: DatabaseStore,
    lasting: Rc<Cell<bool>>,
}

impl Store for Watched {
    type Transaction<'a> = DatabaseTransaction<'a>;

    async fn begin(&mut self) -> Result<DatabaseTransaction<'_>, StoreError> {
        self.inner.begin().await
    }

    fn set_lasting(&mut self, lasting: bool) -> bool {
        self.lasting.set(lasting);
        self.inner.set_lasting(lasting)
    }
}

async fn cursor(place: &Place) -> u64 {
    place.number(&format!("SELECT lsn FROM bridge_cursor WHERE sink = '{SINK_NAME}'")).await
}

#[tokio::test]
async fn a_power_cut_takes_back_no_order_that_the_engine_was_told_of() {
    let place = Place::sqlite().await;
    let host = MemoryHost::new();
    let mut history = History::new(host.clone(), 11);
    let lasting = Rc::new(Cell::new(true));
    let store = Watched { inner: place.database().store(), lasting: Rc::clone(&lasting) };
    let follower = Follower::meet(&host, store, OrderOptions::default()).await.unwrap();
    // None of the fast ones is synced before there is a pause.
    let mut follower = follower.syncing_once_in(Duration::from_hours(1)).with_records_max(40);
    let (mut image, mut undone) = (place.copied().await, 0);
    for _ in 0..4 {
        history.run(120);
        loop {
            let step = follower.step().await.unwrap();
            if lasting.get() {
                let Place::Sqlite { path, .. } = &image else { unreachable!() };
                std::fs::remove_file(path).unwrap();
                image = place.copied().await;
            } else {
                undone += 1;
                assert!(cursor(&image).await < cursor(&place).await);
            }
            assert!(host.announced_lsn(SINK_NAME).0 <= cursor(&image).await, "it would be lost");
            if step == Step::CaughtUp {
                break;
            }
        }
        assert_eq!(host.announced_lsn(SINK_NAME).0, cursor(&place).await, "a pause settles all");
    }
    assert!(undone > 4, "{undone} commits were left unsynced");

    // The power goes in the middle of a rush.
    history.run(120);
    assert!(matches!(follower.step().await.unwrap(), Step::Applied { .. }) && !lasting.get());
    drop(follower);
    assert!(cursor(&image).await < cursor(&place).await);
    follow(&host, &mut image, &SharedPlan::default(), &mut Random::new(7)).await;
    assert_projected(&image, &history).await;
}

#[tokio::test]
async fn sqlite_syncs_the_commits_that_are_to_last() {
    let place = Place::sqlite().await;
    let mut store = place.database().store();
    for lasting in [true, false, true] {
        assert_eq!(store.set_lasting(lasting), lasting);
        let transaction = store.begin().await.unwrap();
        let DatabaseTransaction::Direct(transaction) = &transaction else { unreachable!() };
        assert_eq!(transaction.syncs().unwrap(), lasting);
    }
}
