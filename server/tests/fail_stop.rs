//! The built binary while the k-th operation on its log's files fails.
//!
//! `shim/fail_io.c`, loaded into the server, makes one write, sync, open or rename fail, once or
//! from then on, with an I/O error or for want of room, for k = 1, 2, 3 and so on. The server must
//! end with 4 and name the file, tell whoever waits `log_unavailable` and nothing else, and lose
//! nothing that it acknowledged; only what is made ahead may fail for want of room and be done
//! without. Runs follow each other on one directory, so that every start recovers what a failed
//! log left behind, and may fail at that itself.
//!
//! `SLUICE_TEST_FAILURES=long` takes ten times as many.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "common/books.rs"]
mod books;
mod common;
#[path = "common/shop.rs"]
mod shop;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{Server, sluice, token, wait};
use serde_json::json;
use shop::{Answer, Connection, scratch};

const ACTIVITY: u64 = 30_001;

/// The smallest segment that the default frame allows: rotations come soon.
const SEGMENT_BYTES: &str = "2101248";

const LOG_FAILED: i32 = 4;

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// Runs on one directory before a fresh one is taken: every run leaves a segment behind.
const RUNS_A_DIRECTORY: usize = 12;

/// Directories at work side by side.
const LANES: usize = 6;

/// Shoppers at once, each waiting for its answer.
const SHOPPERS: usize = 3;

/// What a run must not fall below.
const RUNS_MIN: usize = 300;

/// One way to fail.
#[derive(Clone, Copy, Debug)]
struct Failure {
    /// Letters of the shim: which operations count.
    ops: &'static str,
    /// Which of them fails, from 1.
    at: usize,
    errno: i32,
    lasting: bool,
    restocks: usize,
    /// The log's device.
    device: &'static str,
}

/// A kind of operation: the shim's letter, how many of it are made to fail one after another, and
/// how many restocks a run does beside its purchases so that it comes to the last of them. A start
/// opens a segment; the next one is opened when that is full.
const KINDS: [(&str, usize, usize); 4] =
    [("w", 32, 0), ("s", 32, 0), ("o", 8, 1_500), ("r", 3, 1_500)];

/// Purchases of a run, unless it ends before.
const PURCHASES: usize = 60;

/// Whether the disk of these tests takes writes past the page cache.
fn takes_direct(dir: &Path) -> bool {
    let flag = i32::try_from(rustix::fs::OFlags::DIRECT.bits()).unwrap();
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).custom_flags(flag).open(dir.join("direct")).is_ok()
}

fn failures(takes_direct: bool) -> Vec<Failure> {
    let deeper = match std::env::var("SLUICE_TEST_FAILURES").as_deref() {
        Ok("long") => 10,
        Ok(other) => panic!("SLUICE_TEST_FAILURES is `long` or nothing, not {other:?}"),
        Err(_) => 1,
    };
    let mut failures = Vec::new();
    for (ops, depth, restocks) in KINDS {
        // A start and the purchases come to the first operations; further ones need more records.
        let restocks = restocks.max(2 * depth * (deeper - 1));
        for at in 1..=if restocks < 1_000 { depth * deeper } else { depth } {
            for (errno, lasting) in [(EIO, false), (EIO, true), (ENOSPC, false), (ENOSPC, true)] {
                // Past the page cache a write syncs itself: there are no syncs of frames to fail.
                let device =
                    if takes_direct && ops != "s" && at % 2 == 0 { "direct" } else { "buffered" };
                failures.push(Failure { ops, at, errno, lasting, restocks, device });
            }
        }
    }
    failures
}

/// What a shopper was told of a request id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Known {
    /// Reserved under this id.
    Accepted(u64),
    /// No answer, or one that leaves it open.
    InDoubt,
}

/// What is known of each user's one purchase.
type Ledger = BTreeMap<u64, Known>;

/// A server that is expected to fail.
struct Run {
    child: Child,
    /// `None` where it ended before it was ready.
    address: Option<SocketAddr>,
    errors: std::thread::JoinHandle<String>,
    report: PathBuf,
}

impl Run {
    fn start(data_dir: &Path, shim: &Path, failure: Failure) -> Self {
        let report = data_dir.with_extension("failed");
        let _ = fs::remove_file(&report);
        let mut command = sluice(["serve", "--listen", "127.0.0.1:0", "--data-dir"]);
        command
            .arg(data_dir)
            .env("LD_PRELOAD", shim)
            .env("FAIL_IO_DIR", data_dir)
            .env("FAIL_IO_AT", failure.at.to_string())
            .env("FAIL_IO_ERRNO", failure.errno.to_string())
            .env("FAIL_IO_OPS", failure.ops)
            .env("FAIL_IO_REPORT", &report)
            .env("SLUICE_WAL__DEVICE", failure.device);
        if failure.lasting {
            command.env("FAIL_IO_LASTING", "1");
        }
        let mut child = command.spawn().unwrap();
        let mut stderr = child.stderr.take().unwrap();
        let errors = std::thread::spawn(move || {
            let mut text = String::new();
            let _ = stderr.read_to_string(&mut text);
            text
        });
        let mut address = None;
        let mut ready = false;
        for line in BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok) {
            if let Some(found) = line.strip_prefix("listening on http://") {
                address = Some(found.parse().unwrap());
            }
            if line == "ready" {
                ready = true;
                break;
            }
        }
        Self { child, address: address.filter(|_| ready), errors, report }
    }

    fn has_failed(&self) -> bool {
        self.report.exists()
    }
}

/// A purchase of `user`'s, always under the same request id.
fn buy(connection: &mut Connection, user: u64) -> Option<Answer> {
    let path = format!("/api/flashsales/{ACTIVITY}/purchase");
    let body = json!({ "client_request_id": format!("only-{user}"), "quantity": 1 });
    connection.call(("POST", &path), &token(user, "user"), Some(&body)).ok()
}

/// One shopper: user after user, until the log fails or enough was written.
fn shop_on(
    run: &Run,
    next_user: &AtomicUsize,
    purchases_left: &AtomicUsize,
    ledger: &Mutex<Ledger>,
) {
    let Some(address) = run.address else { return };
    let mut connection = Connection::new(address);
    let mut told_unavailable = false;
    // Claimed one by one.
    while purchases_left
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
        .is_ok()
    {
        let user = next_user.fetch_add(1, Ordering::Relaxed) as u64;
        let Some(answer) = buy(&mut connection, user) else {
            ledger.lock().unwrap().insert(user, Known::InDoubt);
            // Hung up on: the process has ended, or is about to.
            assert!(run.has_failed(), "a server that has not failed hung up on user {user}");
            return;
        };
        match (answer.status, answer.body["code"].as_str()) {
            (202, _) => {
                assert!(!told_unavailable, "user {user} was accepted after the log had failed");
                let id = answer.body["pre_deduction_id"].as_u64().unwrap();
                ledger.lock().unwrap().insert(user, Known::Accepted(id));
            }
            (503, Some("log_unavailable")) => {
                assert!(run.has_failed(), "log_unavailable without a failure");
                ledger.lock().unwrap().insert(user, Known::InDoubt);
                told_unavailable = true;
            }
            // Nothing was reserved: no room is left, or the units are sold.
            (503, Some("overloaded")) | (409, Some("sold_out")) => {}
            other => panic!("user {user} was told {other:?}"),
        }
    }
}

/// Puts units in one by one, each a record and a frame of its own, until the log fails.
fn restock(run: &Run, restocks: usize) {
    let Some(address) = run.address else { return };
    let mut connection = common::Connection::to(address);
    let path = format!("/api/admin/flashsales/{ACTIVITY}/restock");
    let bearer = format!("Bearer {}", token(1, "admin"));
    for number in 0..restocks {
        let key = format!("{}-{number}", run.child.id());
        let headers = [
            ("Authorization", bearer.as_str()),
            ("Content-Type", "application/json"),
            ("Idempotency-Key", key.as_str()),
        ];
        connection.send(common::request("POST", &path, &headers, "{\"quantity\":1}"));
        match connection.answer() {
            Some(answer) if answer.status == 200 => {}
            _ => return assert!(run.has_failed(), "a restock failed on a log that has not"),
        }
    }
}

/// Fails once, and checks how it ended. Tells whether the operation was reached.
fn fail_once(
    data_dir: &Path,
    shim: &Path,
    failure: Failure,
    next_user: &AtomicUsize,
    ledger: &Mutex<Ledger>,
) -> bool {
    let mut run = Run::start(data_dir, shim, failure);
    let purchases_left = AtomicUsize::new(PURCHASES);
    std::thread::scope(|threads| {
        for _ in 0..SHOPPERS {
            threads.spawn(|| shop_on(&run, next_user, &purchases_left, ledger));
        }
        threads.spawn(|| restock(&run, failure.restocks));
    });
    let reached = run.has_failed();
    // For want of room a spare is done without; nothing else.
    let may_survive = !reached || failure.errno == ENOSPC;
    if run.address.is_some() && may_survive && run.child.try_wait().unwrap().is_none() {
        run.child.kill().unwrap();
    }
    // Shown where this run does not end.
    println!("{failure:?}");
    let status = wait(&mut run.child);
    let errors = run.errors.join().unwrap();
    match status.code() {
        Some(LOG_FAILED) => {
            assert!(reached, "{failure:?}: ended with 4 for no reason: {errors}");
            let named =
                errors.lines().any(|line| line.contains("CONTROL") || line.contains("/wal"));
            assert!(named, "{failure:?}: no line names the file: {errors}");
        }
        None if may_survive => {}
        code => panic!("{failure:?}: ended with {code:?}: {errors}"),
    }
    reached
}

/// What `sluice check` finds must be what was acknowledged, and perhaps what is in doubt.
fn check_books(data_dir: &Path, ledger: &Ledger) {
    let accepted = ledger.values().filter(|known| **known != Known::InDoubt).count() as u64;
    let found = books::check(data_dir, ACTIVITY).reservations;
    assert!((accepted..=ledger.len() as u64).contains(&found), "{accepted}: {found} found");
}

/// After all failures: everything acknowledged is answered as it was, whatever was in doubt is
/// settled, and the books hold exactly that.
fn settle(data_dir: &Path, ledger: &Ledger) {
    let server = serve(data_dir);
    let mut connection = Connection::new(server.address);
    let mut reservations = 0;
    for (user, known) in ledger {
        let answer = buy(&mut connection, *user).unwrap();
        match known {
            Known::Accepted(id) => {
                assert_eq!((answer.status, answer.is_replay), (202, true), "user {user}");
                assert_eq!(answer.body["pre_deduction_id"], *id, "user {user}");
                reservations += 1;
            }
            Known::InDoubt => reservations += u64::from(answer.status == 202),
        }
    }
    drop(server);
    assert_eq!(books::check(data_dir, ACTIVITY).reservations, reservations);
}

fn serve(data_dir: &Path) -> Server {
    let segment_bytes = ("SLUICE_FORMAT__SEGMENT_BYTES", SEGMENT_BYTES);
    Server::start_in(data_dir, &["--demo"], &[segment_bytes])
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), &target).unwrap()),
        }
    }
}

#[test]
fn whatever_operation_fails_the_server_ends_with_4_and_nothing_acknowledged_is_lost() {
    let (shim, scratch) = (common::shim("fail_io"), scratch());
    let template = scratch.path().join("template");
    assert!(serve(&template).stop().success());
    let failures = failures(takes_direct(scratch.path()));
    let chains: Vec<_> = failures.chunks(RUNS_A_DIRECTORY).collect();
    let next_chain = AtomicUsize::new(0);
    let reached = AtomicUsize::new(0);
    let lane = || {
        while let Some(chain) = chains.get(next_chain.fetch_add(1, Ordering::Relaxed)) {
            let own = tempfile::tempdir_in(scratch.path()).unwrap();
            let data_dir = own.path().join("data");
            copy(&template, &data_dir);
            let (next_user, ledger) = (AtomicUsize::new(1), Mutex::new(Ledger::new()));
            for failure in *chain {
                let hit = fail_once(&data_dir, &shim, *failure, &next_user, &ledger);
                reached.fetch_add(hit.into(), Ordering::Relaxed);
                check_books(&data_dir, &ledger.lock().unwrap());
            }
            settle(&data_dir, &ledger.into_inner().unwrap());
        }
    };
    std::thread::scope(|threads| {
        for _ in 0..LANES {
            threads.spawn(lane);
        }
    });
    let reached = reached.into_inner();
    println!("{reached} of {} failures were reached", failures.len());
    common::counts::note("fail_stop", &[("failures reached", reached as u64)]);
    assert!(reached >= RUNS_MIN, "only {reached} failures were reached");
}
