//! A primary dies, and a replica takes over its address that was cut off before: data that is older
//! than what Redis had confirmed, under a mirror that runs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bridge::Drained;
use bridge::lag::State;
use bridge::redis::run::{Options, start};
use engine::Engine;
use engine::core::codec;
use engine::core::event::Body;
use engine::core::ids::ActivityId;
use redis::Connection;
use wal::Lsn;

use crate::relay::Relay;
use crate::thread::{assert_same, create, open, sell, wait_caught_up};
use crate::valkey::{Valkey, free_ports, say, wait_for};

/// A mirror that is behind by more than a second must say so; this is more.
const BEHIND: Duration = Duration::from_millis(1_500);

/// What a reader finds at one instant.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Seen {
    cursor: Lsn,
    is_stale: bool,
    stock: u32,
}

fn server(port: u16, more: &[&str]) -> Valkey {
    let port = port.to_string();
    let own = ["--port", &port, "--bind", "127.0.0.1", "--appendonly", "yes"];
    Valkey::start_with(&[&own, more].concat())
}

/// Cursor, `sluice:stale` and units, in one transaction.
fn look(redis: &mut Connection, activity: ActivityId) -> Seen {
    let mut pipe = redis::pipe();
    pipe.atomic().cmd("GET").arg("sluice:cursor").cmd("EXISTS").arg("sluice:stale");
    pipe.cmd("GET").arg(format!("flashsale:stock:{activity}"));
    let (cursor, is_stale, stock): (String, bool, u32) = pipe.query(redis).unwrap();
    let words: Vec<&str> = cursor.split(' ').collect();
    let number = |at: usize| words[at].parse::<u64>().unwrap();
    Seen { cursor: Lsn(number(2) + number(4)), is_stale, stock }
}

/// Units available behind every record of the log.
fn units(engine: &Engine) -> BTreeMap<Lsn, u32> {
    let (mut reader, mut units) = (engine.reader(), BTreeMap::new());
    while let Some(frame) = reader.next_frame().unwrap() {
        for record in frame.records() {
            let record = record.unwrap();
            let event = codec::decode(record.kind, record.kind_version, record.body).unwrap();
            let available = match event.body {
                Body::ActivityCreated { total, .. } => total,
                Body::Reserved { figures, .. } | Body::Restored { figures, .. } => {
                    figures.available
                }
                _ => continue,
            };
            units.insert(record.lsn, available);
        }
    }
    units
}

/// All that a reader finds until it is told to stop.
fn watch(mut redis: Connection, activity: ActivityId, stop: &AtomicBool) -> Vec<Seen> {
    let mut seen = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let now = look(&mut redis, activity);
        if seen.last() != Some(&now) {
            seen.push(now);
        }
    }
    seen
}

/// Each reader found what the log says at the cursor, and was told where that is behind `end`.
fn assert_true_at_every_cursor(seen: &[Seen], units: &BTreeMap<Lsn, u32>, left_at: Lsn, end: Lsn) {
    for it in seen {
        let expected = units.range(..=it.cursor).next_back().map(|(_, units)| *units);
        assert_eq!(Some(it.stock), expected, "a key is not what the log says: {it:?}");
        // What the replica was left with says nothing yet; every call of the mirror does.
        let is_behind = it.cursor > left_at && it.cursor < end;
        assert!(!is_behind || it.is_stale, "behind, and nobody is told: {it:?}");
    }
    assert!(seen.iter().any(|it| it.is_stale), "nobody saw it being behind: {seen:?}");
}

#[test]
fn a_replica_that_was_cut_off_takes_over_and_is_brought_up_from_the_log() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path());
    let ports = free_ports(2);
    let mut primary = server(ports[0], &[]);
    let replication = Relay::to(ports[0]);
    let behind = replication.address.port().to_string();
    let replica = server(ports[1], &["--replicaof", "127.0.0.1", &behind]);
    let front = Relay::to(ports[0]);

    let mut options = Options::new(format!("redis://{}?protocol=resp3", front.address));
    options.scrub_interval = Duration::from_millis(5);
    // Many small calls: many cursors to be seen at.
    options.bounds.call_records_max = 4;
    let mirror = start(Arc::new(engine.clone()), &options).unwrap();
    let watcher = mirror.watcher();
    let activity = create(&engine);
    sell(&engine, activity, 1);
    wait_caught_up(&engine, &watcher);
    let mut there = replica.connect(0);
    let cursor = |redis: &mut Connection| -> Option<String> { say(redis, "GET sluice:cursor") };
    wait_for(|| cursor(&mut there) == cursor(&mut primary.connect(0)));

    // The replica hears of nothing more; the primary confirms what the replica does not have.
    replication.lead_to(None);
    let left_at = look(&mut there, activity);
    sell(&engine, activity, 10_001);
    wait_caught_up(&engine, &watcher);
    wait_for(|| watcher.status().confirmed_lsn == Some(engine.durable_lsn()));
    assert_eq!(look(&mut there, activity), left_at);

    front.lead_to(None);
    primary.kill();
    sell(&engine, activity, 20_001);
    let sold = Instant::now();
    wait_for(|| matches!(watcher.status().sink.state, State::Retrying { .. }));
    wait_for(|| sold.elapsed() > BEHIND);
    let end = engine.durable_lsn();

    let stop = Arc::new(AtomicBool::new(false));
    let watching = {
        let (redis, stop) = (replica.connect(0), Arc::clone(&stop));
        std::thread::spawn(move || watch(redis, activity, &stop))
    };
    let () = say(&mut there, "REPLICAOF NO ONE");
    front.lead_to(Some(ports[1]));
    wait_caught_up(&engine, &watcher);
    stop.store(true, Ordering::Relaxed);
    let seen = watching.join().unwrap();

    assert_true_at_every_cursor(&seen, &units(&engine), left_at.cursor, end);
    assert_eq!(watcher.status().resyncs, 1, "the log reached back: nothing is written anew");
    assert_same(&engine, &replica);

    sell(&engine, activity, 30_001);
    assert_eq!(mirror.stop(Duration::from_secs(60)), Drained::Yes);
    assert_same(&engine, &replica);
    engine.close().unwrap();
}
