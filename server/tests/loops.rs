//! Where threads run: the loops of the fronts each on a core of its own and the orders' sink aside
//! from them, or all of them wherever the kernel puts them, once an operator gives a number of
//! loops.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::fs;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use common::{PATIENCE, Server};
use serde_json::json;

/// Purchases that become orders while the sink is watched.
const PURCHASES: u64 = 200;

/// The cores that a list like `0-3,6` names.
fn cores(list: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        first.parse::<usize>().unwrap()..=last.parse().unwrap()
    };
    list.trim().split(',').flat_map(range).collect()
}

/// Where the threads of a process may run whose names begin with `name`.
fn places(process: u32, name: &str) -> Vec<Vec<usize>> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let mut places = Vec::new();
    for thread in threads.map(|thread| thread.unwrap().path()) {
        // A thread may end meanwhile.
        let read = |file: &str| fs::read_to_string(thread.join(file)).unwrap_or_default();
        if read("comm").starts_with(name) {
            let status = read("status");
            let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
            places.extend(list.map(cores));
        }
    }
    places.sort();
    places
}

/// All cores of this process, and those that loops are kept on: none where there is no choice.
fn own_cores() -> (Vec<usize>, Vec<usize>) {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    let all = cores(list);
    let is_whole = available_parallelism().unwrap().get() == all.len();
    let others = if is_whole { all[1..].to_vec() } else { Vec::new() };
    (all, others)
}

fn serve(http_loops: &str) -> Server {
    let env = [("SLUICE_HTTP__LOOPS", http_loops)];
    Server::start_with(&["--resp-listen", "127.0.0.1:0"], &env)
}

/// A server is ready before each of its threads has settled: they are waited for.
fn assert_settled(server: &Server, front: &str, expected: &[Vec<usize>]) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let places = places(server.pid(), front);
        if places == expected {
            return;
        }
        assert!(Instant::now() < deadline, "{front}: {places:?}, not {expected:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Buys, and looks meanwhile where the sink may run: whether it was ever kept from a core.
fn is_sink_ever_kept_aside(server: &Server, all: &[usize]) -> bool {
    let activity = server.activity(&json!({ "stock": PURCHASES }));
    let ordered = || {
        let text = server.call("GET", "/metrics", &[], "").body;
        let lag = text.lines().find_map(|line| line.strip_prefix("sluice_bridge_lag_records "));
        lag.unwrap() == "0"
    };
    std::thread::scope(|threads| {
        let buyers = threads.spawn(|| {
            for user in 1..=PURCHASES {
                assert_eq!(server.buy(user, activity, "once", 1).status, 202);
            }
        });
        let deadline = Instant::now() + PATIENCE;
        let mut was_aside = false;
        while !buyers.is_finished() || !ordered() {
            let places = places(server.pid(), "bridge-sql");
            assert_eq!(places.len(), 1, "a sink is a thread");
            was_aside |= places[0] != all;
            assert!(Instant::now() < deadline, "orders do not come");
            std::thread::sleep(Duration::from_micros(100));
        }
        was_aside
    })
}

#[test]
fn each_loop_has_a_core_of_its_own_and_the_orders_are_written_aside_from_them() {
    let (all, others) = own_cores();
    let server = serve("0");
    let expected = match others.as_slice() {
        [] => vec![all.clone()],
        others => others.iter().map(|core| vec![*core]).collect(),
    };
    for front in ["http-", "resp-"] {
        assert_settled(&server, front, &expected);
    }
    if others.is_empty() {
        assert!(!is_sink_ever_kept_aside(&server, &all), "there is nothing to be kept aside from");
        return;
    }
    // Only while it works, and a look may come too late on a machine that is busy.
    let deadline = Instant::now() + PATIENCE;
    while !is_sink_ever_kept_aside(&server, &all) {
        assert!(Instant::now() < deadline, "the sink may always run beside the loops");
    }
}

#[test]
fn with_a_number_of_loops_the_kernel_places_them_and_the_sink() {
    let (all, _) = own_cores();
    let server = serve("2");
    assert_settled(&server, "http-", &[all.clone(), all.clone()]);
    assert!(!is_sink_ever_kept_aside(&server, &all), "no core is left free for it");
}
