//! The built binary while the k-th operation on its log's files fails.
//!
//! `shim/fail_io.c`, loaded into the server, makes one write, sync, open or rename fail, once or
//! from then on, with an I/O error or for want of room, for k = 1, 2, 3 and so on. The server must
//! end with 4 and name the file, tell whoever waits `log_unavailable` and nothing else, and lose
//! nothing that it acknowledged; only what is made ahead may fail for want of room and be done
//! without. Half of the shoppers buy over HTTP, half over the Redis port, whose loops commit by
//! themselves. Runs follow each other on one directory, so that every start recovers what a failed
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

use common::resp::{Client, Reply};
use common::{Server, sluice, token, wait};
use serde_json::json;
use shop::{Connection, scratch};

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

/// Shoppers at once over each port, each waiting for its answer.
const SHOPPERS: usize = 2;

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
    ports: Option<Ports>,
    errors: std::thread::JoinHandle<String>,
    report: PathBuf,
}

/// Where a server listens.
#[derive(Clone, Copy)]
struct Ports {
    http: SocketAddr,
    resp: SocketAddr,
}

/// A shopper's way to the server.
enum Till {
    Http(Connection),
    Resp(Client),
}

/// What a shopper was told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Told {
    Reserved {
        id: u64,
        is_replay: bool,
    },
    /// For want of room or units.
    NothingReserved,
    /// The outcome is unknown.
    LogUnavailable,
    HungUp,
}

impl Till {
    fn http(ports: Ports) -> Self {
        Self::Http(Connection::new(ports.http))
    }

    /// A server that has ended meanwhile is found out by the first purchase.
    fn resp(ports: Ports) -> Option<Self> {
        Client::try_to(ports.resp).ok().map(Self::Resp)
    }

    /// A purchase of `user`'s, always under the same request id, whatever the port.
    fn buy(&mut self, user: u64) -> Told {
        match self {
            Self::Http(connection) => buy_over_http(connection, user),
            Self::Resp(client) => buy_over_resp(client, user),
        }
    }
}

fn buy_over_http(connection: &mut Connection, user: u64) -> Told {
    let path = format!("/api/flashsales/{ACTIVITY}/purchase");
    let body = json!({ "client_request_id": format!("only-{user}"), "quantity": 1 });
    let call = connection.call(("POST", &path), &token(user, "user"), Some(&body));
    let Ok(answer) = call else { return Told::HungUp };
    match (answer.status, answer.body["code"].as_str()) {
        (202, _) => Told::Reserved {
            id: answer.body["pre_deduction_id"].as_u64().unwrap(),
            is_replay: answer.is_replay,
        },
        (503, Some("log_unavailable")) => Told::LogUnavailable,
        (503, Some("overloaded")) | (409, Some("sold_out")) => Told::NothingReserved,
        other => panic!("user {user} was told {other:?}"),
    }
}

fn buy_over_resp(client: &mut Client, user: u64) -> Told {
    let (activity, user) = (ACTIVITY.to_string(), user.to_string());
    let request_id = format!("only-{user}");
    let words = ["FCALL", "sluice_reserve", "1", &activity, &user, &request_id, "1"];
    client.send(common::resp::request(&words));
    match client.reply() {
        None => Told::HungUp,
        Some(Reply::Array(items)) => match items[..] {
            [Reply::Integer(code @ (1 | 2)), Reply::Integer(id), ..] => {
                Told::Reserved { id: u64::try_from(id).unwrap(), is_replay: code == 2 }
            }
            [Reply::Integer(0), ..] => Told::NothingReserved,
            _ => panic!("user {user} was told {items:?}"),
        },
        Some(error) => match error.word() {
            "LOGUNAVAILABLE" => Told::LogUnavailable,
            "OVERLOADED" => Told::NothingReserved,
            _ => panic!("user {user} was told {error:?}"),
        },
    }
}

impl Run {
    fn start(data_dir: &Path, shim: &Path, failure: Failure) -> Self {
        let report = data_dir.with_extension("failed");
        let _ = fs::remove_file(&report);
        let mut command = sluice(["serve", "--listen", "127.0.0.1:0", "--data-dir"]);
        command
            .arg(data_dir)
            .args(["--resp-listen", "127.0.0.1:0"])
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
        let (mut http, mut resp, mut ports) = (None, None, None);
        for line in BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok) {
            if let Some(found) = line.strip_prefix("listening on http://") {
                http = Some(found.parse().unwrap());
            }
            if let Some(found) = line.strip_prefix("listening on redis://") {
                resp = Some(found.parse().unwrap());
            }
            if line == "ready" {
                ports = http.zip(resp).map(|(http, resp)| Ports { http, resp });
                break;
            }
        }
        Self { child, ports, errors, report }
    }

    fn has_failed(&self) -> bool {
        self.report.exists()
    }
}

/// What the runs share.
#[derive(Default)]
struct Tally {
    reached: AtomicUsize,
    /// Purchases over HTTP and over the Redis port that were told `log_unavailable`.
    unavailable: [AtomicUsize; 2],
}

/// One shopper: user after user, until the log fails or enough was written.
fn shop_on(
    run: &Run,
    mut till: Till,
    (next_user, purchases_left): (&AtomicUsize, &AtomicUsize),
    ledger: &Mutex<Ledger>,
    tally: &Tally,
) {
    let mut told_unavailable = false;
    // Claimed one by one.
    while purchases_left
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
        .is_ok()
    {
        let user = next_user.fetch_add(1, Ordering::Relaxed) as u64;
        let known = match till.buy(user) {
            Told::HungUp => {
                ledger.lock().unwrap().insert(user, Known::InDoubt);
                // The process has ended, or is about to.
                assert!(run.has_failed(), "a server that has not failed hung up on user {user}");
                return;
            }
            Told::Reserved { id, .. } => {
                assert!(!told_unavailable, "user {user} was accepted after the log had failed");
                Known::Accepted(id)
            }
            Told::LogUnavailable => {
                assert!(run.has_failed(), "log_unavailable without a failure");
                told_unavailable = true;
                let port = usize::from(matches!(till, Till::Resp(_)));
                tally.unavailable[port].fetch_add(1, Ordering::Relaxed);
                Known::InDoubt
            }
            Told::NothingReserved => continue,
        };
        ledger.lock().unwrap().insert(user, known);
    }
}

/// Puts units in one by one, each a record and a frame of its own, until the log fails.
fn restock(run: &Run, restocks: usize) {
    let Some(ports) = run.ports else { return };
    let mut connection = common::Connection::to(ports.http);
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

/// Fails once, and checks how it ended.
fn fail_once(
    data_dir: &Path,
    shim: &Path,
    failure: Failure,
    next_user: &AtomicUsize,
    ledger: &Mutex<Ledger>,
    tally: &Tally,
) {
    let mut run = Run::start(data_dir, shim, failure);
    let purchases_left = AtomicUsize::new(PURCHASES);
    std::thread::scope(|threads| {
        let tills = run.ports.into_iter().flat_map(|ports| {
            (0..SHOPPERS).flat_map(move |_| [Some(Till::http(ports)), Till::resp(ports)])
        });
        for till in tills.flatten() {
            let (run, users) = (&run, (next_user, &purchases_left));
            threads.spawn(move || shop_on(run, till, users, ledger, tally));
        }
        threads.spawn(|| restock(&run, failure.restocks));
    });
    let reached = run.has_failed();
    // For want of room a spare is done without; nothing else.
    let may_survive = !reached || failure.errno == ENOSPC;
    if run.ports.is_some() && may_survive && run.child.try_wait().unwrap().is_none() {
        run.child.kill().unwrap();
    }
    // Shown where this run does not end.
    println!("{failure:?}{}", if reached { "" } else { ": not reached" });
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
    tally.reached.fetch_add(reached.into(), Ordering::Relaxed);
}

/// What `sluice check` finds must be what was acknowledged, and perhaps what is in doubt.
fn check_books(data_dir: &Path, ledger: &Ledger) {
    let accepted = ledger.values().filter(|known| **known != Known::InDoubt).count() as u64;
    let found = books::check(data_dir, ACTIVITY).reservations;
    assert!((accepted..=ledger.len() as u64).contains(&found), "{accepted}: {found} found");
}

/// After all failures: everything acknowledged is answered as it was, over whichever port,
/// whatever was in doubt is settled, and the books hold exactly that.
fn settle(data_dir: &Path, ledger: &Ledger) {
    let server = serve(data_dir);
    let ports = Ports { http: server.address, resp: server.resp() };
    let mut tills = [Till::http(ports), Till::resp(ports).unwrap()];
    let mut reservations = 0;
    for (user, known) in ledger {
        let till = &mut tills[usize::from(user % 2 == 0)];
        match (till.buy(*user), known) {
            (Told::Reserved { id, is_replay }, Known::Accepted(first)) => {
                assert_eq!((id, is_replay), (*first, true), "user {user}");
                reservations += 1;
            }
            (Told::Reserved { .. }, Known::InDoubt) => reservations += 1,
            (Told::NothingReserved, Known::InDoubt) => {}
            other => panic!("user {user}: {other:?}"),
        }
    }
    drop(server);
    assert_eq!(books::check(data_dir, ACTIVITY).reservations, reservations);
}

fn serve(data_dir: &Path) -> Server {
    let segment_bytes = ("SLUICE_FORMAT__SEGMENT_BYTES", SEGMENT_BYTES);
    Server::start_in(data_dir, &["--demo", "--resp-listen", "127.0.0.1:0"], &[segment_bytes])
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
    let tally = Tally::default();
    let lane = || {
        while let Some(chain) = chains.get(next_chain.fetch_add(1, Ordering::Relaxed)) {
            let own = tempfile::tempdir_in(scratch.path()).unwrap();
            let data_dir = own.path().join("data");
            copy(&template, &data_dir);
            let (next_user, ledger) = (AtomicUsize::new(1), Mutex::new(Ledger::new()));
            for failure in *chain {
                fail_once(&data_dir, &shim, *failure, &next_user, &ledger, &tally);
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
    let reached = tally.reached.into_inner();
    let unavailable = tally.unavailable.map(AtomicUsize::into_inner);
    println!(
        "{reached} of {} failures were reached; log_unavailable over HTTP and the Redis port: \
         {unavailable:?}",
        failures.len()
    );
    common::counts::note("fail_stop", &[("failures reached", reached as u64)]);
    assert!(reached >= RUNS_MIN, "only {reached} failures were reached");
    assert!(unavailable.iter().all(|told| *told > 0), "a port never told of it: {unavailable:?}");
}
