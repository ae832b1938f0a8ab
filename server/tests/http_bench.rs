//! `sluice bench http`: what it counts is what was sold, at any pace and in every profile; a wrong
//! argument is told in one line, and a server that goes away is survived.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::process::Output;

use common::{Server, sluice};
use serde_json::Value;

fn bench(server: &Server, args: &[&str]) -> Output {
    let url = format!("http://{}", server.address);
    let fixed = ["bench", "http", "--quiet", "--json", "--url", &url];
    sluice(fixed).args(args).output().unwrap()
}

fn report(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"))
}

fn count(report: &Value, kind: &str) -> u64 {
    report["answers"][kind]["count"].as_u64().unwrap()
}

#[test]
fn each_profile_ends_in_an_exact_sale() {
    let server = Server::start_with(&["--demo"], &[]);
    for (profile, accepted, replayed) in [
        ("accept", 1_000..=1_000, 0..=0),
        ("sold-out", 10..=10, 0..=0),
        ("replay", 1_000..=1_000, 8_000..=9_000),
        ("mixed", 1..=500, 1..=2_000),
    ] {
        let args = ["--profile", profile, "--shoppers", "1000", "--connections", "16"];
        let output = bench(&server, &args);
        let report = report(&output);
        assert_eq!((output.status.code(), &report["exact"]), (Some(0), &Value::Bool(true)));
        assert!(accepted.contains(&count(&report, "accepted")), "{profile}: {report}");
        assert!(replayed.contains(&count(&report, "replayed")), "{profile}: {report}");
    }
}

#[test]
fn an_open_loop_ramps_and_spikes_and_is_told_over_time() {
    let server = Server::start_with(&["--demo"], &[]);
    let directory = tempfile::tempdir().unwrap();
    let plot = directory.path().join("run.svg");
    let pace = ["--rate", "400", "--ramp", "500ms", "--spike", "1500@500ms+200ms"];
    let extent = ["--duration", "1s", "--shoppers", "2000", "--stock", "2000", "--plot"];
    let args = [&pace[..], &extent, &[plot.to_str().unwrap()]].concat();
    let report = report(&bench(&server, &args));
    // Half of 0.5 s x 400, 0.2 s x 1500, 0.3 s x 400: all of them, however late the server is.
    assert_eq!((count(&report, "all"), count(&report, "accepted")), (520, 520), "{report}");
    let bins = report["timeline"]["bins"].as_array().unwrap();
    let accepted: u64 = bins.iter().map(|bin| bin["accepted"].as_u64().unwrap()).sum();
    assert_eq!(accepted, 520);
    assert!(std::fs::read_to_string(plot).unwrap().contains("answers a second"));
}

#[test]
fn a_thousand_connections_share_the_shoppers() {
    let server = Server::start_with(&["--demo"], &[]);
    let args = ["--connections", "1000", "--threads", "2", "--shoppers", "3000"];
    let report = report(&bench(&server, &args));
    assert_eq!(count(&report, "accepted"), 3_000, "{report}");
    assert_eq!(report["errors"], serde_json::json!({}));
}

#[test]
fn a_run_without_a_server_says_so() {
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{gone}");
    let output = sluice(["bench", "http", "--url", &url]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(said.contains("is the server running?"), "{said}");
}

#[test]
fn where_every_connection_is_refused_each_request_is_counted_as_unsent() {
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{gone}");
    let unchecked = ["--check", "none", "--activity", "30001", "--json", "--quiet"];
    let few = ["--shoppers", "5", "--connections", "2"];
    let output = sluice(["bench", "http", "--url", &url]).args(unchecked).args(few).output();
    let report = report(&output.unwrap());
    assert_eq!((count(&report, "all"), &report["errors"]["connect"]), (0, &5.into()), "{report}");
}

#[test]
fn a_wrong_argument_is_told_in_one_line() {
    for (args, reason) in [
        (&["--repeat-share", "0.7", "--second-try-share", "0.3"][..], "leave room for first tries"),
        (&["--repeat-share=-1"], "leave room for first tries"),
        (&["--rate", "0"], "--rate must be above 0"),
        (&["--rate", "NaN"], "--rate must be above 0"),
        (&["--ramp", "1s"], "--rate"),
        (&["--rate", "10", "--spike", "10@1s"], "RATE@START+LENGTH"),
        (&["--check", "none"], "--activity"),
        (&["--connections", "0"], "1..=50000"),
        (&["--stock", "1", "--activity", "7"], "cannot be used with"),
        (&["--url", "https://localhost"], "http://HOST:PORT"),
        (&["--duration", "10"], "10"),
    ] {
        let output = sluice(["bench", "http"]).args(args).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(reason), "{args:?}: {said}");
    }
}
