//! `sluice restore`: the disk with the data directory is gone, the order database is not.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
#[allow(dead_code, unreachable_pub, reason = "shared with the bridge's tests")]
#[path = "../../bridge/tests/mirror/valkey.rs"]
mod valkey;

use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use common::{PATIENCE, Server, Signal, sluice};
use valkey::{Valkey, say};

fn restore(database: &str, data_dir: &Path) -> Output {
    let mut command = sluice(["restore", "--database", database, "--data-dir"]);
    command.arg(data_dir).env("SLUICE_FORMAT__SEGMENT_BYTES", "4194304").output().unwrap()
}

/// Waits until everything that was bought is an order.
fn delivered(server: &Server) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let metrics = server.call("GET", "/metrics", &[], "").body;
        if metrics.lines().any(|line| line == "sluice_bridge_lag_records 0") {
            return;
        }
        assert!(Instant::now() < deadline, "{metrics}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn until(mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not in time");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Disables or enables the account of `user`.
fn disable(server: &Server, user: u64, word: &str) {
    let path = format!("/api/admin/users/{user}/{word}");
    assert_eq!(server.as_admin("POST", &path, None).status, 204);
}

fn bought(answer: &common::Answer) -> (Value, Value) {
    assert_eq!(answer.status, 202, "{answer:?}");
    let body = answer.json();
    (body["pre_deduction_id"].clone(), body["order_no"].clone())
}

#[test]
fn what_was_sold_stays_sold_and_the_old_directory_is_fenced_off() {
    let scratch = tempfile::tempdir().unwrap();
    let (old, new) = (scratch.path().join("old"), scratch.path().join("new"));
    let database = format!("sqlite:{}", scratch.path().join("shop.db").display());
    let flags = ["--database", database.as_str()];
    let mut first = Server::start_in(&old, &flags, &[]);
    let id = first.activity(&json!({"stock": 3, "payment_ttl": "1h"}));
    let told = bought(&first.buy(7, id, "r-7", 1));
    bought(&first.buy(8, id, "r-8", 1));
    for user in [20, 21] {
        disable(&first, user, "disable");
    }
    disable(&first, 21, "enable");
    delivered(&first);
    first.signal(Signal::KILL);
    first.wait();

    let refused = restore(&database, &old);
    assert_eq!(refused.status.code(), Some(2), "a directory in use is left alone: {refused:?}");
    let restored = restore(&database, &new);
    assert_eq!(restored.status.code(), Some(0), "{restored:?}");
    let said = String::from_utf8(restored.stdout).unwrap();
    assert!(said.contains("1 activity (0 of them archived), 2 reservations"), "{said}");
    assert!(said.contains("lost: whatever log"), "{said}");
    assert!(!said.contains("doubtful"), "{said}");

    let mut second = Server::start_in(&new, &flags, &[]);
    assert_eq!(second.figures(id), [3, 1, 2, 0]);
    assert_eq!(second.buy(20, id, "r-20", 1).status, 401, "its account stays disabled");
    assert_eq!(second.as_user(21, "GET", "/api/flashsales", None).status, 200);
    let replayed = second.buy(7, id, "r-7", 1);
    assert_eq!(bought(&replayed), told);
    let fresh = bought(&second.buy(9, id, "r-9", 1));
    assert!(fresh != told);
    assert_eq!(second.buy(10, id, "r-10", 1).verdict(), (409, "sold_out".to_owned()));
    delivered(&second);
    let compared = sluice(["reconcile", "--url", &format!("http://{}", second.address)]).output();
    assert_eq!(compared.as_ref().unwrap().status.code(), Some(0), "{compared:?}");

    let mut stale = sluice(["serve", "--listen", "127.0.0.1:0", "--data-dir"]);
    let stale = stale.arg(&old).args(flags).output().unwrap();
    assert_eq!(stale.status.code(), Some(3), "{stale:?}");
    assert!(second.stop().success());
}

/// A directory that was built anew from the orders of a server that was killed.
struct Restored {
    scratch: tempfile::TempDir,
    database: String,
    new: PathBuf,
    id: u64,
}

/// One unit of three was bought there, a second before its time to pay is up.
fn restored_with_one_unpaid() -> Restored {
    let scratch = tempfile::tempdir().unwrap();
    let database = format!("sqlite:{}", scratch.path().join("shop.db").display());
    let flags = ["--database", database.as_str()];
    let mut first = Server::start_in(&scratch.path().join("old"), &flags, &[]);
    let id = first.activity(&json!({"stock": 3, "payment_ttl": "1s"}));
    bought(&first.buy(7, id, "r-7", 1));
    delivered(&first);
    first.signal(Signal::KILL);
    first.wait();
    let new = scratch.path().join("new");
    assert_eq!(restore(&database, &new).status.code(), Some(0));
    Restored { scratch, database, new, id }
}

#[test]
fn time_outs_wait_until_an_operator_says_so() {
    let Restored { scratch: _scratch, database, new, id } = restored_with_one_unpaid();
    let flags = ["--database", database.as_str()];
    // Over a restart, too.
    for _ in 0..2 {
        let mut second = Server::start_in(&new, &flags, &[]);
        assert_eq!(second.figures(id), [3, 2, 1, 0]);
        assert!(second.stop().success());
    }
    let mut second = Server::start_in(&new, &flags, &[]);
    let url = format!("http://{}", second.address);
    let resumed = sluice(["resume-timers", "--url", &url]).output().unwrap();
    assert_eq!(resumed.status.code(), Some(0), "{resumed:?}");
    until(|| second.figures(id) == [3, 3, 0, 0]);
    assert!(second.stop().success());
}

#[test]
fn time_outs_of_a_stopped_server_are_let_go_in_its_directory() {
    let Restored { scratch, database, new, id } = restored_with_one_unpaid();
    let flags = ["--database", database.as_str()];
    // Nobody listens on port 1.
    let resume = |directory: &Path| {
        let mut command = sluice(["resume-timers", "--url", "http://127.0.0.1:1", "--data-dir"]);
        command.arg(directory).output().unwrap()
    };
    let nowhere = resume(&scratch.path().join("nowhere"));
    assert_eq!(nowhere.status.code(), Some(2), "{nowhere:?}");
    assert!(!scratch.path().join("nowhere").exists(), "nothing was made");
    let unasked = sluice(["resume-timers", "--url", "http://127.0.0.1:1"]).output().unwrap();
    assert_eq!(unasked.status.code(), Some(2), "{unasked:?}");
    assert!(String::from_utf8_lossy(&unasked.stderr).contains("--data-dir"), "{unasked:?}");
    for said in ["run again from its next start", "are not held"] {
        let resumed = resume(&new);
        assert_eq!(resumed.status.code(), Some(0), "{resumed:?}");
        assert!(String::from_utf8_lossy(&resumed.stdout).contains(said), "{resumed:?}");
    }
    let mut second = Server::start_in(&new, &flags, &[]);
    until(|| second.figures(id) == [3, 3, 0, 0]);
    let running = resume(&new);
    assert_eq!(running.status.code(), Some(5), "a server runs on it: {running:?}");
    assert!(second.stop().success());
}

#[test]
fn redis_is_taken_over_and_written_anew() {
    let valkey = Valkey::start();
    let redis = valkey.url(0);
    let scratch = tempfile::tempdir().unwrap();
    let database = format!("sqlite:{}", scratch.path().join("shop.db").display());
    let flags = ["--database", database.as_str(), "--redis", redis.as_str()];
    let mut first = Server::start_in(&scratch.path().join("old"), &flags, &[]);
    let id = first.activity(&json!({"stock": 3}));
    bought(&first.buy(7, id, "r-7", 1));
    assert!(first.stop().success());
    let new = scratch.path().join("new");
    let restored = sluice(["restore", "--redis", &redis, "--database", &database, "--data-dir"])
        .arg(&new)
        .env("SLUICE_FORMAT__SEGMENT_BYTES", "4194304")
        .output()
        .unwrap();
    assert_eq!(restored.status.code(), Some(0), "{restored:?}");
    let mut second = Server::start_in(&new, &flags, &[]);
    bought(&second.buy(8, id, "r-8", 1));
    let stock = format!("GET flashsale:stock:{id}");
    until(|| say::<Option<String>>(&mut valkey.connect(0), &stock).as_deref() == Some("1"));
    // With a database of its own, it is Redis that knows the old directory no more.
    let other = format!("sqlite:{}", scratch.path().join("other.db").display());
    let mut stale = sluice(["serve", "--listen", "127.0.0.1:0", "--redis", &redis, "--database"]);
    let stale = stale.arg(&other).arg("--data-dir").arg(scratch.path().join("old"));
    let ended = stale.output().unwrap();
    assert_eq!(ended.status.code(), Some(3), "{ended:?}");
    assert!(second.stop().success());
}

#[test]
fn a_database_that_no_server_wrote_to_is_told_with_2() {
    let scratch = tempfile::tempdir().unwrap();
    let database = format!("sqlite:{}", scratch.path().join("shop.db").display());
    let new = scratch.path().join("new");
    let refused = restore(&database, &new);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(!new.exists(), "nothing was made");
}
