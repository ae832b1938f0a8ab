//! Layout `cluster` on a real cluster of three masters.

use std::time::Instant;

use bridge::redis::layouts::Layout;
use bridge::redis::sink::{Bounds, Mirror, Step};

use crate::keys::{self, Keys};
use crate::library::Library;
use crate::sale::{Sale, activity_id};
use crate::valkey::{Cluster, PATIENCE, Valkey, say};

const ACTIVITIES: u64 = 6;

async fn catch_up(sale: &Sale, cluster: &Cluster) -> bool {
    let met = Mirror::meet(sale, &cluster.url(), Layout::Cluster, Bounds::default()).await;
    let mut mirror = met.unwrap();
    while mirror.step().await.unwrap() != Step::CaughtUp {}
    mirror.was_resynced()
}

/// The keys of all masters, under the names that they have on one server.
fn untagged(cluster: &Cluster) -> Keys {
    let mut found = Keys::new();
    for node in &cluster.nodes {
        for (key, value) in keys::present(&mut node.connect(0), "flashsale:*") {
            let key = match key.strip_prefix("flashsale:reservation:") {
                Some(rest) => {
                    let (_, id) = rest.split_once("}:").unwrap();
                    format!("flashsale:reservation:{id}")
                }
                None => key.replace(['{', '}'], ""),
            };
            assert!(found.insert(key, value).is_none(), "a key is on one master");
        }
    }
    found
}

fn assert_same(sale: &Sale, cluster: &Cluster, oracle: &Valkey) {
    let mut library = Library::load(oracle.connect(0));
    let () = say(&mut library.connection, "FLUSHDB");
    library.replay(sale, bridge::Host::durable_lsn(sale));
    let expected = keys::present(&mut library.connection, "flashsale:*");
    keys::assert_same(&untagged(cluster), &expected, "three masters");
}

#[tokio::test]
async fn three_masters_follow_lose_one_and_heal() {
    let (mut cluster, oracle) = (Cluster::start(), Valkey::start());
    let sale = Sale::open(41, ACTIVITIES);
    sale.run(300);
    catch_up(&sale, &cluster).await;
    assert_same(&sale, &cluster, &oracle);
    let counts: Vec<u64> =
        cluster.nodes.iter().map(|node| say(&mut node.connect(0), "DBSIZE")).collect();
    assert!(counts.iter().all(|count| *count > 0), "every master has some: {counts:?}");

    // A new activity, and everything that goes on, needs nothing written anew.
    let met = Mirror::meet(&sale, &cluster.url(), Layout::Cluster, Bounds::default()).await;
    let mut mirror = met.unwrap();
    sale.create(30_000, 10);
    sale.run(200);
    while mirror.step().await.unwrap() != Step::CaughtUp {}
    assert!(!mirror.was_resynced());
    drop(mirror);
    assert_same(&sale, &cluster, &oracle);

    // One master is emptied: its activities alone are written anew.
    let () = say(&mut cluster.nodes[1].connect(0), "FLUSHALL");
    sale.run(50);
    assert!(catch_up(&sale, &cluster).await);
    assert_same(&sale, &cluster, &oracle);

    // One master dies and comes back with its append-only file.
    cluster.nodes[2].kill();
    sale.run(50);
    let met = Mirror::meet(&sale, &cluster.url(), Layout::Cluster, Bounds::default()).await;
    let error = met.map(drop).unwrap_err();
    assert!(error.is_transient(), "{error}");
    cluster.nodes[2].resume();
    crate::valkey::wait_for(|| {
        cluster.nodes.iter().all(|node| {
            let info: String = say(&mut node.connect(0), "CLUSTER INFO");
            info.contains("cluster_state:ok") && info.contains("cluster_slots_ok:16384")
        })
    });
    catch_up(&sale, &cluster).await;
    assert_same(&sale, &cluster, &oracle);
}

#[tokio::test]
async fn quiet_activities_do_not_pin_the_log() {
    let cluster = Cluster::start();
    let sale = Sale::open(42, ACTIVITIES);
    sale.run(100);
    assert!(catch_up(&sale, &cluster).await, "nothing was there");
    // Everything was moved to the end when it was caught up: what came before may go.
    sale.memory.retire(sale.memory.frame_count() - 1);
    sale.run(20);
    assert!(!catch_up(&sale, &cluster).await);
}

/// What the master of the command's key answers.
fn on_its_master<T: redis::FromRedisValue>(cluster: &Cluster, command: &redis::Cmd) -> T {
    let ask = |node: &Valkey| command.query(&mut node.connect(0)).ok();
    cluster.nodes.iter().find_map(ask).unwrap()
}

#[tokio::test]
async fn quiet_activities_are_called_behind_as_long_as_the_log_is_read_late() {
    let cluster = Cluster::start();
    let sale = Sale::open(44, ACTIVITIES);
    let called_behind = || {
        let stale = |index| format!("sluice:stale:{{{}}}", activity_id(index));
        let is_told =
            |index: &u64| on_its_master::<bool>(&cluster, redis::cmd("EXISTS").arg(stale(*index)));
        (0..ACTIVITIES).filter(is_told).count() as u64
    };
    let met = Mirror::meet(&sale, &cluster.url(), Layout::Cluster, Bounds::default()).await;
    let mut mirror = met.unwrap();
    assert_eq!(called_behind(), ACTIVITIES, "their keys were just written anew");
    // One sells without a pause: no read comes back empty. Each step waits for the one before.
    let now_us = bridge::redis::Present::wall_us(&sale);
    for (wall_us, expected) in [(0, 0), (now_us, ACTIVITIES), (0, 0)] {
        sale.be_at(wall_us);
        for _ in 0..2 {
            let user = 1_000 + bridge::Host::durable_lsn(&sale).0;
            sale.buy(activity_id(0), user, 1);
            sale.commit();
            assert_eq!(mirror.step().await.unwrap(), Step::Moved);
        }
        assert_eq!(called_behind(), expected, "at {wall_us} us");
        assert_eq!(mirror.is_stale(), expected > 0);
    }
}

#[tokio::test]
async fn what_an_older_self_of_a_master_holds_of_an_activity_that_is_gone_is_deleted() {
    let cluster = Cluster::start();
    let sale = Sale::open(43, ACTIVITIES);
    sale.run(50);
    catch_up(&sale, &cluster).await;
    let gone = 77;
    let identity = bridge::Host::identity(&sale);
    let cursors = ["7 00c0ffee 0", "resync", "somebody's"];
    for at in cursors {
        let cursor = format!("{} {} {at}", identity.uuid, identity.epoch);
        let names = ["cursor", "stale", "mirror"].map(|name| format!("sluice:{name}:{{{gone}}}"));
        let [cursor_key, stale_key, known_key] = &names;
        let stock_key = format!("flashsale:stock:{{{gone}}}");
        let values = [(&stock_key, "3"), (cursor_key, &cursor), (stale_key, "1"), (known_key, "-")];
        for (key, value) in values {
            let () = on_its_master(&cluster, redis::cmd("SET").arg(key).arg(value));
        }
        let met = Mirror::meet(&sale, &cluster.url(), Layout::Cluster, Bounds::default()).await;
        let mut mirror = met.unwrap();
        let (end, deadline) = (mirror.scrub_rounds() + 2, Instant::now() + PATIENCE);
        while mirror.scrub_rounds() < end {
            assert!(Instant::now() < deadline, "the scrubber gets nowhere");
            mirror.step().await.unwrap();
            mirror.scrub().await.unwrap();
        }
        for key in names.iter().chain([&stock_key]) {
            let is_left: bool = on_its_master(&cluster, redis::cmd("EXISTS").arg(key));
            assert!(!is_left, "{at}: {key}");
        }
    }
}
