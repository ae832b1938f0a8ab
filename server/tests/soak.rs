//! H19: the server at seven tenths of what it can do, for as long as it is let: its memory, its
//! files and the segments of its log must stand still, and after each `kill -9` between two rounds
//! its books must add up.
//!
//! `SLUICE_SOAK_MINUTES` says how long; without it a few short rounds. `cargo xtask soak` runs the
//! optimised binary.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
#[path = "common/shop.rs"]
mod shop;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use common::{Server, sluice};
use serde_json::Value;

/// Of the rate that a first, unpaced rush reached.
const SHARE_OF_PEAK: f64 = 0.7;
/// Requests of that first rush.
const PEAK_REQUESTS: u32 = 20_000;
/// Rounds before the first sample of a process counts: buffers and pools grow to their size.
const WARM_UP_ROUNDS: usize = 2;
/// Rounds between two kills, the warm-up among them.
const LIFE_ROUNDS: usize = 6;
/// What a process may grow by beside what it remembers of purchases: an allocator gives memory
/// back late, SQLite's cache fills.
const SLACK_BYTES: u64 = 48 << 20;
/// What it may remember of a purchase: its slot, its buyer, its request id, and the tables' spare
/// room.
const PURCHASE_BYTES: u64 = 512;
/// Connections to SQL and epoll instances that may come late.
const SLACK_FILES: usize = 8;
/// Spares are made by rate, and snapshots are taken by bytes: so many more segments are no leak.
const SLACK_SEGMENTS: usize = 16;

/// What a process holds.
#[derive(Clone, Copy, Debug)]
struct Sample {
    rss_bytes: u64,
    files: usize,
    segments: usize,
    /// Purchases that it has accepted or recovered.
    purchases: u64,
}

fn sample(server: &Server, purchases: u64) -> Sample {
    let process = format!("/proc/{}", server.pid());
    let status = fs::read_to_string(format!("{process}/status")).unwrap();
    let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let rss_kib: u64 = rss.trim().trim_end_matches(" kB").parse().unwrap();
    Sample {
        rss_bytes: rss_kib << 10,
        files: fs::read_dir(format!("{process}/fd")).unwrap().count(),
        segments: fs::read_dir(server.data_dir().join("wal")).unwrap().count(),
        purchases,
    }
}

/// Holds `now` against the first sample of the same process that counts.
fn assert_flat(warm: Sample, now: Sample) {
    let remembered = (now.purchases - warm.purchases) * PURCHASE_BYTES;
    let bound = warm.rss_bytes + remembered + SLACK_BYTES;
    assert!(now.rss_bytes <= bound, "memory grows: {warm:?}, then {now:?}");
    assert!(now.files <= warm.files + SLACK_FILES, "files stay open: {warm:?}, then {now:?}");
    let segments = warm.segments + SLACK_SEGMENTS;
    assert!(now.segments <= segments, "segments pile up: {warm:?}, then {now:?}");
}

/// Runs the generator and returns its report.
fn bench(server: &Server, args: &[&str]) -> Value {
    let url = format!("http://{}", server.address);
    let fixed = ["bench", "http", "--quiet", "--json", "--connections", "64", "--url", &url];
    let output = sluice(fixed).args(args).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["exact"], &report["errors"]), (&Value::Bool(true), &serde_json::json!({})));
    report
}

fn count(report: &Value, kind: &str) -> u64 {
    report["answers"][kind]["count"].as_u64().unwrap()
}

/// Answers a second of a rush that nobody paces.
fn peak(server: &Server) -> (f64, u64) {
    let shoppers = PEAK_REQUESTS.to_string();
    let report = bench(server, &["--profile", "sold-out", "--shoppers", &shoppers]);
    let elapsed_s = report["elapsed_s"].as_f64().unwrap();
    (count(&report, "all") as f64 / elapsed_s, count(&report, "accepted"))
}

/// One round at `rate` requests a second; what was accepted, and what was answered.
fn round(server: &Server, rate: f64, seconds: u64) -> (u64, u64) {
    let shoppers = (rate.ceil() * seconds as f64).max(1_000.0).to_string();
    let (rate, duration) = (format!("{rate:.0}"), format!("{seconds}s"));
    let pace = ["--rate", &rate, "--duration", &duration];
    let who = ["--profile", "sold-out", "--shoppers", &shoppers];
    let report = bench(server, &[pace, who].concat());
    (count(&report, "accepted"), count(&report, "all"))
}

/// A demo whose log is given back in small steps, so that a short run sees it. Dropping it is a
/// SIGKILL.
fn start(data_dir: &Path) -> Server {
    let env = [
        ("SLUICE_FORMAT__SEGMENT_BYTES", "4194304"),
        ("SLUICE_RETENTION__SNAPSHOT_AFTER_BYTES", "16777216"),
    ];
    Server::start_in(data_dir, &["--demo"], &env)
}

/// The books of a directory that no server has: all of its activities together hold exactly the
/// purchases that were told.
fn check(data_dir: &Path, purchases: u64) {
    let output = sluice(["check", "--data-dir"]).arg(data_dir).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}{said}");
    // Rows of an activity: id, total, available, locked, sold, rolled back, reservations.
    let rows = told.lines().map(|line| line.split_whitespace().map(str::parse::<u64>).collect());
    let rows = rows.filter_map(|row: Result<Vec<_>, _>| row.ok());
    let held: u64 = rows.filter(|row| row.len() == 7).map(|row| row[6]).sum();
    assert_eq!(held, purchases, "{told}");
}

#[test]
fn a_server_under_steady_load_stands_still_and_its_books_add_up_after_every_kill() {
    let minutes = std::env::var("SLUICE_SOAK_MINUTES").ok().map(|it| it.parse::<u64>().unwrap());
    let round_s = if minutes.is_some() { 20 } else { 1 };
    let lasts = Duration::from_secs(minutes.map_or(0, |minutes| minutes * 60));
    let data_dir = shop::scratch();
    let mut server = start(data_dir.path());
    let (peak, mut purchases) = peak(&server);
    let rate = peak * SHARE_OF_PEAK;
    println!("soak: {peak:.0} answers a second at most, {rate:.0} from here on");
    let began = Instant::now();
    let (mut rounds, mut kills, mut answers) = (0, 0, 0);
    // The last life ends as it should.
    while began.elapsed() < lasts || kills < 1 {
        let mut warm = None;
        for age in 0..LIFE_ROUNDS {
            let (accepted, answered) = round(&server, rate, round_s);
            (purchases, answers, rounds) = (purchases + accepted, answers + answered, rounds + 1);
            let now = sample(&server, purchases);
            println!("soak: {:>5} s {now:?}", began.elapsed().as_secs());
            if age + 1 == WARM_UP_ROUNDS {
                warm = Some(now);
            }
            if let Some(warm) = warm {
                assert_flat(warm, now);
            }
        }
        // A SIGKILL.
        drop(server);
        kills += 1;
        check(data_dir.path(), purchases);
        server = start(data_dir.path());
    }
    let held = sample(&server, purchases);
    assert!(server.stop().success());
    check(data_dir.path(), purchases);
    println!(
        "soak: {rounds} rounds, {answers} answers, {purchases} purchases, {kills} kills; {held:?}"
    );
}
