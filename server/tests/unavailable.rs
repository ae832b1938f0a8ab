//! What a server that can't sell just now says, on both of its ports: while it reads its log, when
//! the log has no room, and when the log has failed.
//!
//! `shim/fail_io.c`, loaded into the server, holds it in each of these states until the test has
//! asked what it wants to know: nothing here is a race against a clock.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use common::resp::{Client, Reply, open_sale, request};
use common::{PATIENCE, Server, sluice};
use serde_json::json;
use tempfile::TempDir;

const ACTIVITY: u64 = 7;
const FIRST: u64 = (1 << 32) + 1;

/// The smallest segment that the default frame allows: it is full soon.
const SEGMENT_BYTES: &str = "2101248";

/// Purchases, one frame each, in which every spare segment must be used up: each holds 512.
const PURCHASES_MAX: u64 = 4_000;

const EIO: &str = "5";
const ENOSPC: &str = "28";

/// A directory, and the files beside it that tell the shim what to do.
struct Held {
    scratch: TempDir,
}

impl Held {
    fn new() -> Self {
        Self { scratch: tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap() }
    }

    fn data_dir(&self) -> PathBuf {
        self.scratch.path().join("data")
    }

    /// The file that stands for a variable of the shim.
    fn file(&self, variable: &str) -> PathBuf {
        self.scratch.path().join(variable)
    }

    fn put(&self, variable: &str) {
        fs::write(self.file(variable), "").unwrap();
    }

    fn take(&self, variable: &str) {
        fs::remove_file(self.file(variable)).unwrap();
    }

    /// A server that listens, whose operations `ops` obey those files.
    fn listening(&self, ops: &str, errno: &str) -> Server {
        let data_dir = self.data_dir();
        let mut command = sluice(["serve", "--listen", "127.0.0.1:0", "--data-dir"]);
        command
            .arg(&data_dir)
            .args(["--resp-listen", "127.0.0.1:0"])
            .env("LD_PRELOAD", common::shim("fail_io"))
            .env("FAIL_IO_DIR", &data_dir)
            .env("FAIL_IO_OPS", ops)
            .env("FAIL_IO_AT", "1")
            .env("FAIL_IO_LASTING", "1")
            .env("FAIL_IO_ERRNO", errno)
            .env("SLUICE_WAL__DEVICE", "buffered")
            .env("SLUICE_FORMAT__SEGMENT_BYTES", SEGMENT_BYTES);
        for variable in ["FAIL_IO_WHEN", "FAIL_IO_HOLD", "FAIL_IO_EXIT"] {
            command.env(variable, self.file(variable));
        }
        Server::listening(command, &data_dir)
    }
}

fn ready(server: &Server) -> (u16, String) {
    let answer = server.call("GET", "/readyz", &[], "");
    match answer.status {
        200 => (200, String::new()),
        _ => answer.verdict(),
    }
}

fn reserve(client: &mut Client, user: u64, request_id: &str) -> Reply {
    client.say(&format!("FCALL sluice_reserve 1 {ACTIVITY} {user} {request_id} 1"))
}

/// The code of a purchase that was answered.
fn code(reply: &Reply) -> i64 {
    match reply {
        Reply::Array(items) => match items[0] {
            Reply::Integer(code) => code,
            _ => panic!("{items:?}"),
        },
        other => panic!("{other:?}"),
    }
}

/// Calls of every kind that need the engine.
fn calls() -> Vec<String> {
    let mut calls: Vec<_> = [
        format!("sluice_reserve 1 {ACTIVITY} 1 x 1"),
        format!("sluice_confirm 1 {ACTIVITY} {FIRST} pay-1"),
        format!("sluice_restore 1 {ACTIVITY} {FIRST}"),
        format!("sluice_pause 1 {ACTIVITY}"),
        format!("sluice_restock 1 {ACTIVITY} op 1"),
        "sluice_warm 1 9 20001 9900 1 1 0 1000".to_owned(),
        format!("sluice_get 1 {ACTIVITY} {FIRST}"),
        format!("sluice_activity 1 {ACTIVITY}"),
    ]
    .map(|call| format!("FCALL {call}"))
    .into();
    let key = format!("flashsale:stock:{ACTIVITY}");
    for command in ["GET", "MGET", "EXISTS", "TTL", "PTTL", "TYPE"] {
        calls.push(format!("{command} {key}"));
    }
    calls
}

#[test]
fn while_the_log_is_read_every_call_is_told_so_and_nothing_is_reserved() {
    let held = Held::new();
    held.put("FAIL_IO_HOLD");
    let mut server = held.listening("s", EIO);
    let recovering = (503, "recovering".to_owned());
    assert_eq!(ready(&server), recovering);
    assert_eq!(server.buy(1, ACTIVITY, "x", 1).verdict(), recovering);
    assert_eq!(server.call("GET", "/healthz", &[], "").status, 200);
    let mut client = Client::to(server.resp());
    for call in calls() {
        assert_eq!(client.say(&call).word(), "RECOVERING", "{call}");
    }
    assert_eq!(client.say("PING"), Reply::Simple("PONG".to_owned()));
    held.take("FAIL_IO_HOLD");
    server.line_with("ready");
    assert_eq!(ready(&server).0, 200);
    // The connection is served by the engine from now on; whoever asks again is the first.
    open_sale(&mut client, ACTIVITY, 10, 1);
    assert_eq!(
        reserve(&mut client, 1, "x"),
        Reply::purchase(1, i64::try_from(FIRST).unwrap(), &format!("1{FIRST:017}"), 9)
    );
}

#[test]
fn a_log_that_fails_is_told_to_every_caller_of_both_ports() {
    let held = Held::new();
    let mut server = held.listening("s", EIO);
    server.line_with("ready");
    let mut client = Client::to(server.resp());
    open_sale(&mut client, ACTIVITY, 10, 1);
    assert_eq!(code(&reserve(&mut client, 1, "x")), 1);
    assert_eq!(ready(&server).0, 200);
    held.put("FAIL_IO_EXIT");
    held.put("FAIL_IO_WHEN");
    // Decided in one turn, and made durable together or not at all.
    let mut bytes = Vec::new();
    let pipeline = [
        format!("FCALL sluice_reserve 1 {ACTIVITY} 2 x 1"),
        format!("FCALL sluice_reserve 1 {ACTIVITY} 3 x 1"),
        format!("FCALL sluice_get 1 {ACTIVITY} {FIRST}"),
        format!("FCALL sluice_confirm 1 {ACTIVITY} {FIRST} pay-1"),
        format!("GET flashsale:stock:{ACTIVITY}"),
    ];
    for line in &pipeline {
        bytes.extend(request(&line.split(' ').collect::<Vec<_>>()));
    }
    client.send(bytes);
    for line in &pipeline {
        assert_eq!(client.reply().expect(line).word(), "LOGUNAVAILABLE", "{line}");
    }
    // And so is whoever comes later, until the process is gone.
    for call in calls() {
        assert_eq!(client.say(&call).word(), "LOGUNAVAILABLE", "{call}");
    }
    let unavailable = (503, "log_unavailable".to_owned());
    assert_eq!(ready(&server), unavailable);
    assert_eq!(server.buy(4, ACTIVITY, "x", 1).verdict(), unavailable);
    held.take("FAIL_IO_EXIT");
    assert_eq!(server.wait().code(), Some(4));
    let says = server.error_with("the log failed");
    assert!(says.contains("/wal/"), "{says}");
    held.take("FAIL_IO_WHEN");
    let again = Server::start_in(&held.data_dir(), &["--resp-listen", "127.0.0.1:0"], &[]);
    let mut client = Client::to(again.resp());
    assert_eq!(code(&reserve(&mut client, 1, "x")), 2, "what was told is so");
    for user in [2, 3, 4] {
        let settled = code(&reserve(&mut client, user, "x"));
        assert!([1, 2].contains(&settled), "user {user}: {settled}");
    }
    assert_eq!(client.say(&format!("GET flashsale:stock:{ACTIVITY}")), Reply::bulk("6"));
}

#[test]
fn without_room_new_purchases_alone_are_refused_on_both_ports() {
    let held = Held::new();
    // For new spare segments: those that are there are used up first.
    let mut server = held.listening("c", ENOSPC);
    server.line_with("ready");
    let mut client = Client::to(server.resp());
    open_sale(&mut client, ACTIVITY, 100_000, 1);
    held.put("FAIL_IO_WHEN");
    let mut user = 1;
    let refused = loop {
        let reply = reserve(&mut client, user, "x");
        if matches!(reply, Reply::Error(_)) {
            break reply;
        }
        assert_eq!(code(&reply), 1);
        user += 1;
        assert!(user < PURCHASES_MAX, "there is no room and purchases go on");
    };
    assert_eq!(refused.word(), "OVERLOADED");
    assert!(user > 1, "there was room at first");
    // Tried one by one where a batch has no room: what needs none is answered in its place.
    let mut bytes = Vec::new();
    for (user, request_id) in [(user, "x"), (1, "x"), (1, "another"), (user, "x")] {
        let (activity, user) = (ACTIVITY.to_string(), user.to_string());
        bytes.extend(request(&["FCALL", "sluice_reserve", "1", &activity, &user, request_id, "1"]));
    }
    client.send(bytes);
    let mut next = || client.reply().unwrap();
    assert_eq!(next().word(), "OVERLOADED");
    assert_eq!((code(&next()), code(&next())), (2, -2), "a repeat and a refusal");
    assert_eq!(next().word(), "OVERLOADED");
    let overloaded = (503, "overloaded".to_owned());
    assert_eq!(server.buy(user, ACTIVITY, "x", 1).verdict(), overloaded);
    assert_eq!(ready(&server).0, 200, "all else goes on");
    let restore = format!("FCALL sluice_restore 1 {ACTIVITY} {FIRST}");
    assert_eq!(client.say(&restore), Reply::Integer(1));
    let confirm = format!("FCALL sluice_confirm 1 {ACTIVITY} {} pay-2", FIRST + 1);
    assert_eq!(client.say(&confirm), Reply::Integer(1));
    held.take("FAIL_IO_WHEN");
    let deadline = Instant::now() + PATIENCE;
    while matches!(reserve(&mut client, user, "x"), Reply::Error(_)) {
        assert!(Instant::now() < deadline, "purchases do not resume");
        std::thread::sleep(Duration::from_millis(20));
    }
    // A unit each, the first given back.
    let left = 100_000 - user + 1;
    let stock = client.say(&format!("GET flashsale:stock:{ACTIVITY}"));
    assert_eq!(stock, Reply::bulk(&left.to_string()));
}

#[test]
fn a_user_on_the_blacklist_buys_over_neither_port() {
    let server = Server::start_with(&["--resp-listen", "127.0.0.1:0"], &[]);
    let mut client = Client::to(server.resp());
    open_sale(&mut client, ACTIVITY, 10, 1);
    let entry = json!({"kind": "user", "value": "1", "reason": "resells"});
    let listed = server.as_admin("POST", "/api/admin/blacklist", Some(&entry));
    assert_eq!(listed.status, 201, "{listed:?}");
    assert_eq!(reserve(&mut client, 1, "x").word(), "BLACKLISTED");
    assert_eq!(server.buy(1, ACTIVITY, "x", 1).verdict(), (403, "blacklisted".to_owned()));
    assert_eq!(code(&reserve(&mut client, 2, "x")), 1, "others do");
    let entry = json!({"kind": "user", "value": "1"});
    assert_eq!(server.as_admin("DELETE", "/api/admin/blacklist", Some(&entry)).status, 204);
    assert_eq!(code(&reserve(&mut client, 1, "x")), 1);
}
