//! Many activities at once on the running server: made, sold in, listed, and there again after a
//! restart. `SLUICE_ACTIVITIES=100000 cargo test --release -p server --test many_activities --
//! --nocapture` tells how long each took.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::time::Instant;

use common::resp::{Client, Reply, request};
use common::{Server, Signal};

/// Enough for more than one page of everything.
const ACTIVITIES: u64 = 3_000;

/// Calls in flight.
const PIPELINE: u64 = 500;

fn count() -> u64 {
    std::env::var("SLUICE_ACTIVITIES").map_or(ACTIVITIES, |count| count.parse().unwrap())
}

fn told(what: &str, count: u64, began: Instant) {
    let took = began.elapsed();
    let each = took / u32::try_from(count.max(1)).unwrap();
    println!("{what:32} {count:>8} in {took:>8.2?}, {each:.1?} each");
}

/// One call for each activity; the first number of each answer.
fn each(client: &mut Client, what: &str, call: impl Fn(u64) -> String) -> Vec<i64> {
    let (began, count) = (Instant::now(), count());
    let mut numbers = Vec::new();
    for from in (1..=count).step_by(usize::try_from(PIPELINE).unwrap()) {
        let ids = from..=count.min(from + PIPELINE - 1);
        let calls = ids.clone().flat_map(|id| {
            let call = call(id);
            request(&call.split(' ').collect::<Vec<_>>())
        });
        client.send(calls.collect::<Vec<u8>>());
        numbers.extend(ids.map(|_| match client.reply().unwrap() {
            Reply::Integer(number) => number,
            Reply::Array(items) => match items[0] {
                Reply::Integer(number) => number,
                _ => panic!("{items:?}"),
            },
            other => panic!("{other:?}"),
        }));
    }
    told(what, count, began);
    numbers
}

/// The ids in a list.
fn listed(server: &Server, path: &str) -> Vec<u64> {
    let began = Instant::now();
    let listed = server.as_admin("GET", path, None).json();
    let items = listed["items"].as_array().unwrap().iter();
    let ids: Vec<u64> = items.map(|item| item["id"].as_u64().unwrap()).collect();
    told(path, 1, began);
    ids
}

fn assert_listed(server: &Server) {
    let last = count().div_ceil(100);
    for page in [1, last / 2, last, last + 1] {
        let ids = listed(server, &format!("/api/flashsales?page={page}&page_size=100"));
        let first = (page - 1) * 100 + 1;
        assert!(ids.into_iter().eq(first..=count().min(first + 99)), "page {page}");
    }
    assert!(listed(server, "/api/admin/flashsales").into_iter().eq(1..=count()));
}

fn all(number: i64) -> Vec<i64> {
    vec![number; usize::try_from(count()).unwrap()]
}

#[test]
fn many_activities_are_made_sold_in_listed_and_served_again() {
    let scratch = tempfile::tempdir().unwrap();
    let data_dir = scratch.path().join("data");
    let start = || Server::start_in(&data_dir, &["--resp-listen", "127.0.0.1:0"], &[]);
    let mut server = start();
    let mut client = Client::to(server.resp());
    let warm = |id| format!("FCALL sluice_warm 1 {id} 20001 9900 10 1 0 253402300799999");
    assert_eq!(each(&mut client, "made", warm), all(1));
    let publish = |id| format!("FCALL sluice_publish 1 {id}");
    assert_eq!(each(&mut client, "published", publish), all(1));
    let buy = |id| format!("FCALL sluice_reserve 1 {id} 7 order-1 1");
    assert_eq!(each(&mut client, "bought, one in each", buy), all(1));
    assert_listed(&server);
    for restart in ["after a clean end", "after a kill"] {
        let began = Instant::now();
        match restart {
            "after a clean end" => assert!(server.stop().success()),
            _ => {
                server.signal(Signal::KILL);
                server.wait();
            }
        }
        told("ended", 1, began);
        let began = Instant::now();
        server = start();
        told(&format!("serving again {restart}"), 1, began);
        let mut client = Client::to(server.resp());
        assert_eq!(each(&mut client, "bought again", buy), all(2));
        assert_listed(&server);
        assert_eq!(server.figures(count()), [10, 9, 1, 0]);
    }
}
