//! The orders' SQLite under the built binary while its syncs fail, and the machine's power behind
//! it.
//!
//! `shim/fail_io.c`, loaded into the server, makes the k-th sync of `orders.db` and its log fail,
//! once or from then on, for k = 0 (none), 1, 2 and so on, and keeps a copy of each file as its
//! last sync left it: what a power cut leaves at the least, or a little more. Purchases must go on,
//! whoever looks must see that the sink does not, nobody may be told `ordered` of an order that
//! those copies do not have, and a start on them makes every purchase an order, once.
//!
//! A kernel that forgets what it could not write, so that the next sync seems to do, is no part of
//! the shim: bridge/src/sql/sqlite_direct.rs has the answer to it, and its test.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "common/books.rs"]
mod books;
mod common;
#[path = "common/shop.rs"]
mod shop;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::{PATIENCE, Server, Signal, sluice};
use serde_json::json;
use tempfile::TempDir;

const EIO: &str = "5";

/// Syncs that are made to fail, one a run: those of the first commits of a rush, of the commit that
/// makes the others last, and of later ones.
const SYNCS: u64 = 6;

/// Purchases before anything fails.
const FIRST: u64 = 10;

/// Purchases of a rush that finds its first order's sync held up: the sink takes the rest as fast
/// ones, which are not synced one by one.
const RUSH: u64 = 120;

/// Between two purchases that make for one more sync: each is to be a batch of its own, or nearly.
const PAUSE: Duration = Duration::from_millis(50);

/// Enough for whoever buys within [`PATIENCE`].
const STOCK: u64 = 10_000;

/// Threads that buy at once.
const TILLS: u64 = 4;

/// Servers at work side by side.
const LANES: usize = 4;

/// Files of the database that a power cut leaves.
const FILES: [&str; 2] = ["orders.db", "orders.db-wal"];

/// What of the syncs fails.
#[derive(Clone, Copy, Debug)]
struct Failing {
    /// From 1; 0 is none.
    at: u64,
    lasting: bool,
}

/// A directory, and what the shim reads and writes beside it.
struct Place {
    scratch: TempDir,
    failing: Failing,
    /// Reservation and order number of each user's one purchase.
    bought: BTreeMap<u64, (u64, String)>,
    activity: u64,
}

impl Place {
    fn new(failing: Failing) -> Self {
        let scratch = shop::scratch();
        for folder in ["synced", "WHEN", "HOLD"] {
            // The shim looks whether a file is there: each lies in a folder of its own.
            fs::create_dir(scratch.path().join(folder)).unwrap();
        }
        Self { scratch, failing, bought: BTreeMap::new(), activity: 0 }
    }

    fn data_dir(&self) -> PathBuf {
        self.scratch.path().join("data")
    }

    fn synced(&self) -> PathBuf {
        self.scratch.path().join("synced")
    }

    fn switch(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name).join("on")
    }

    fn has_failed(&self) -> bool {
        self.scratch.path().join("failed").exists()
    }

    /// A server under the shim.
    fn start(&self) -> Server {
        let data_dir = self.data_dir();
        let mut command = sluice(["serve", "--listen", "127.0.0.1:0", "--data-dir"]);
        command
            .arg(&data_dir)
            .env("LD_PRELOAD", common::shim("fail_io"))
            .env("FAIL_IO_DIR", &data_dir)
            .env("FAIL_IO_FILES", "orders.db")
            .env("FAIL_IO_OPS", "s")
            .env("FAIL_IO_AT", self.failing.at.to_string())
            .env("FAIL_IO_ERRNO", EIO)
            .env("FAIL_IO_REPORT", self.scratch.path().join("failed"))
            .env("FAIL_IO_SYNCED", self.synced())
            .env("FAIL_IO_WHEN", self.switch("WHEN"))
            .env("FAIL_IO_HOLD", self.switch("HOLD"));
        if self.failing.lasting {
            command.env("FAIL_IO_LASTING", "1");
        }
        Server::of(command, &data_dir)
    }

    /// The next `count` users buy, each once: nobody is turned away.
    fn buy(&mut self, server: &Server, count: u64) {
        let first = self.bought.len() as u64 + 1;
        let activity = self.activity;
        let lane = |lane: u64| {
            let users = (first..first + count).filter(move |user| user % TILLS == lane);
            users.map(|user| {
                let answer = server.buy(user, activity, "once", 1);
                assert_eq!(answer.status, 202, "the sale goes on: {answer:?}");
                let body = answer.json();
                let order_no = body["order_no"].as_str().unwrap().to_owned();
                (user, (body["pre_deduction_id"].as_u64().unwrap(), order_no))
            })
        };
        let bought: Vec<_> = std::thread::scope(|threads| {
            let spawn = |till| threads.spawn(move || lane(till).collect::<Vec<_>>());
            let tills: Vec<_> = (0..TILLS).map(spawn).collect();
            tills.into_iter().flat_map(|till| till.join().unwrap()).collect()
        });
        self.bought.extend(bought);
    }

    /// Order numbers of all purchases.
    fn order_nos(&self) -> BTreeSet<String> {
        self.bought.values().map(|(_, order_no)| order_no.clone()).collect()
    }

    /// Order numbers whose buyers are told `ordered` now.
    fn told_ordered(&self, server: &Server) -> BTreeSet<String> {
        let is_told = |user: u64, id: u64| {
            let path = format!("/api/flashsales/purchases/{id}");
            let body = server.as_user(user, "GET", &path, None).json();
            match body["status"].as_str().unwrap() {
                "ordered" => true,
                "pending_order" => false,
                other => panic!("{other}"),
            }
        };
        let told = self.bought.iter().filter(|(user, (id, _))| is_told(**user, *id));
        told.map(|(_, (_, order_no))| order_no.clone()).collect()
    }

    fn wait_until_all_are_ordered(&self, server: &Server) {
        for (user, (id, _)) in &self.bought {
            let path = format!("/api/flashsales/purchases/{id}?wait=5s");
            until("there is no order", || {
                server.as_user(*user, "GET", &path, None).json()["status"] == "ordered"
            });
        }
    }

    /// What no sync has vouched for is gone.
    fn cut_the_power(&self, mut server: Server) {
        server.signal(Signal::KILL);
        server.wait();
        drop(server);
        let data_dir = self.data_dir();
        let _ = fs::remove_file(data_dir.join("orders.db-shm"));
        for file in FILES {
            let (at, synced) = (data_dir.join(file), self.synced().join(file));
            let _ = fs::remove_file(&at);
            if synced.exists() {
                fs::copy(synced, at).unwrap();
            }
        }
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn metric(server: &Server, name: &str) -> f64 {
    let text = server.call("GET", "/metrics", &[], "").body;
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
    line.unwrap_or_else(|| panic!("{name} is not in {text}")).parse().unwrap()
}

fn is_ready(server: &Server) -> bool {
    server.call("GET", "/readyz", &[], "").status == 200
}

/// The orders' part of the books: each purchase is an order, once, and `reconcile` finds no
/// difference.
fn assert_all_are_orders_once(place: &Place, server: &Server) {
    place.wait_until_all_are_ordered(server);
    assert_eq!(books::orders(&place.data_dir(), place.activity), place.order_nos());
    let url = format!("http://{}", server.address);
    let reconciled = sluice(["reconcile", "--url", &url]).output().unwrap();
    assert!(reconciled.status.success(), "{}", String::from_utf8_lossy(&reconciled.stderr));
}

fn run(failing: Failing) {
    println!("{failing:?}");
    let mut place = Place::new(failing);
    let server = place.start();
    place.activity = server.activity(&json!({ "stock": STOCK }));
    place.buy(&server, FIRST);
    place.wait_until_all_are_ordered(&server);

    fs::write(place.switch("HOLD"), "").unwrap();
    place.buy(&server, RUSH);
    fs::write(place.switch("WHEN"), "").unwrap();
    fs::remove_file(place.switch("HOLD")).unwrap();
    // Further syncs, until the one that fails.
    let deadline = Instant::now() + PATIENCE;
    while failing.at > 0 && !place.has_failed() {
        assert!(Instant::now() < deadline, "{failing:?} is not reached");
        place.buy(&server, 1);
        std::thread::sleep(PAUSE);
    }
    if failing.lasting {
        until("nobody sees that the sink fails", || metric(&server, "sluice_bridge_running") < 0.5);
        place.buy(&server, TILLS);
        assert!(is_ready(&server), "the sale does not depend on SQL");
        assert!(metric(&server, "sluice_bridge_halted") < 0.5, "it passes by itself");
        until("nobody sees how long it fails", || {
            metric(&server, "sluice_bridge_lag_seconds") > 0.0
        });
    } else if failing.at > 0 {
        place.wait_until_all_are_ordered(&server);
        until("it goes on, and nobody sees", || metric(&server, "sluice_bridge_running") > 0.5);
    }

    let told = place.told_ordered(&server);
    assert!(told.len() as u64 >= FIRST);
    assert!(!failing.lasting || told.len() < place.bought.len(), "what can't be synced is told");
    place.cut_the_power(server);
    let left = books::orders(&place.data_dir(), place.activity);
    let lost: Vec<_> = told.difference(&left).collect();
    assert!(lost.is_empty(), "{failing:?}: told `ordered`, and gone with the power: {lost:?}");

    assert_restarts(&place);
}

/// On what the power cut left, without the shim.
fn assert_restarts(place: &Place) {
    let mut server = Server::start_in(&place.data_dir(), &[], &[]);
    assert_all_are_orders_once(place, &server);
    assert!(server.stop().success());
    let checked = books::check(&place.data_dir(), place.activity);
    assert_eq!(checked.reservations, place.bought.len() as u64);
}

#[test]
fn whichever_sync_of_the_orders_fails_none_is_told_of_that_a_power_cut_takes_back() {
    let mut ways = vec![Failing { at: 0, lasting: false }];
    for at in 1..=SYNCS {
        ways.extend([false, true].map(|lasting| Failing { at, lasting }));
    }
    let next = AtomicUsize::new(0);
    std::thread::scope(|threads| {
        for _ in 0..LANES {
            threads.spawn(|| {
                while let Some(failing) = ways.get(next.fetch_add(1, Ordering::Relaxed)) {
                    run(*failing);
                }
            });
        }
    });
    common::counts::note("orders_power_cut", &[("power cuts", ways.len() as u64)]);
}
