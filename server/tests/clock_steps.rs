//! The wall clock is stepped under the built binary: an hour back between runs, a year ahead and
//! an hour back during one. A sale neither reopens nor ends for it, and no hold is lost.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
#[path = "common/shop.rs"]
mod shop;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use common::{PATIENCE, SECRET, Server, signed, sluice, wait};
use serde_json::{Value, json};
use shop::scratch;
use tempfile::TempDir;

const HOUR_S: i64 = 3_600;
const YEAR_S: i64 = 365 * 24 * HOUR_S;

/// A data directory and a clock to step.
struct Stepped {
    dir: TempDir,
    shim: PathBuf,
}

impl Stepped {
    fn new() -> Self {
        let it = Self { dir: scratch(), shim: common::shim("step_clock") };
        it.step_to(0);
        it
    }

    fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// The wall clock is `seconds` off from now on.
    fn step_to(&self, seconds: i64) {
        let draft = self.dir.path().join("draft");
        fs::write(&draft, seconds.to_string()).unwrap();
        fs::rename(draft, self.file()).unwrap();
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("seconds")
    }

    fn command(&self, args: &[&str]) -> std::process::Command {
        let mut command = sluice(["serve", "--listen", "127.0.0.1:0", "--data-dir"]);
        command.arg(self.data_dir()).args(args);
        command.env("LD_PRELOAD", &self.shim).env("STEP_CLOCK_FILE", self.file());
        command
    }

    fn serve(&self, args: &[&str]) -> Server {
        Server::of(self.command(args), &self.data_dir())
    }
}

/// A token that is good whatever the clock says.
fn lasting_token(role: &str) -> String {
    let claims = json!({
        "sub": "1", "role": role, "exp": 4_000_000_000_u64, "iat": 1, "jti": "lasting",
    });
    signed(&claims, SECRET)
}

fn call(server: &Server, role: &str, method: &str, path: &str, body: Option<&Value>) -> Value {
    let answer = server.authorized(&lasting_token(role), method, path, &[], body);
    let mut seen = if answer.body.is_empty() { json!({}) } else { answer.json() };
    seen["http"] = answer.status.into();
    seen
}

fn rfc3339_in(seconds: i64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let at = i64::try_from(now).unwrap() + seconds;
    let at = time::OffsetDateTime::from_unix_timestamp(at).unwrap();
    let (year, month, day) = at.to_calendar_date();
    let (hour, minute, second) = at.to_hms();
    format!("{year}-{:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z", u8::from(month))
}

fn sale(server: &Server, from_s: i64, to_s: i64) -> String {
    let body = json!({
        "sku_id": 1, "title": "clock", "price": 100, "stock": 10, "per_user_limit": 10,
        "start_at": rfc3339_in(from_s), "end_at": rfc3339_in(to_s),
    });
    let made = call(server, "admin", "POST", "/api/admin/flashsales", Some(&body));
    let id = made["id"].as_u64().unwrap_or_else(|| panic!("{made}"));
    let publish = format!("/api/admin/flashsales/{id}/publish");
    assert_eq!(call(server, "admin", "POST", &publish, None)["http"], 204);
    format!("/api/flashsales/{id}")
}

fn buy(server: &Server, sale: &str, id: &str) -> Value {
    let body = json!({ "client_request_id": id, "quantity": 1 });
    call(server, "user", "POST", &format!("{sale}/purchase"), Some(&body))
}

fn wait_until_noticed(server: &Server) {
    let deadline = Instant::now() + PATIENCE;
    while !server.call("GET", "/metrics", &[], "").body.contains("clock_stepped 1") {
        assert!(Instant::now() < deadline, "the step is not noticed");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn log_bytes(data_dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let wal = fs::read_dir(data_dir.join("wal")).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<_> = wal.chain([data_dir.join("CONTROL")]).collect();
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

#[test]
fn a_clock_an_hour_behind_the_log_is_refused_unless_it_is_accepted() {
    let clock = Stepped::new();
    let server = clock.serve(&[]);
    let open = sale(&server, -HOUR_S, HOUR_S);
    assert_eq!(buy(&server, &open, "before")["http"], 202);
    drop(server);
    let before = log_bytes(&clock.data_dir());

    clock.step_to(-HOUR_S - 60);
    let mut child = clock.command(&[]).spawn().unwrap();
    assert_eq!(wait(&mut child).code(), Some(3));
    let errors = String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap();
    assert!(errors.contains("--accept-clock") && errors.lines().count() == 1, "{errors}");
    assert!(before == log_bytes(&clock.data_dir()), "changed on disk");

    // Less than an hour is borne, more with leave: the engine's time goes on from the log's.
    clock.step_to(-HOUR_S + 60);
    drop(clock.serve(&[]));
    clock.step_to(-2 * HOUR_S);
    let server = clock.serve(&["--accept-clock"]);
    assert_eq!(call(&server, "user", "GET", &open, None)["state"], "in_progress");
    assert_eq!(buy(&server, &open, "after")["http"], 202);
}

#[test]
fn a_year_ahead_during_a_run_ends_no_sale_and_expires_no_hold() {
    let clock = Stepped::new();
    let server = clock.serve(&[]);
    let open = sale(&server, -HOUR_S, HOUR_S);
    let held = buy(&server, &open, "held");
    clock.step_to(YEAR_S);
    wait_until_noticed(&server);
    assert_eq!(buy(&server, &open, "later")["http"], 202);
    let path = format!("/api/flashsales/purchases/{}", held["pre_deduction_id"]);
    assert_ne!(call(&server, "user", "GET", &path, None)["status"], "rolled_back");
    assert_eq!(call(&server, "user", "GET", &open, None)["held"], 2);
}

#[test]
fn an_hour_back_during_a_run_reopens_no_sale() {
    let clock = Stepped::new();
    let server = clock.serve(&[]);
    let ended = sale(&server, -HOUR_S, -60);
    assert_eq!(buy(&server, &ended, "late")["code"], "ended");
    clock.step_to(-HOUR_S);
    wait_until_noticed(&server);
    assert_eq!(buy(&server, &ended, "again")["code"], "ended");
}
