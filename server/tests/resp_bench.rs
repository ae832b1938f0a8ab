//! `sluice bench resp`: what it counts is what was sold, on Sluice and on a peer with the library.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::process::{Command, Stdio};

use common::Server;
use serde_json::Value;

fn bench(address: &str, args: &[&str]) -> (Option<i32>, Value) {
    let mut command = common::sluice(["bench", "resp", "--quiet", "--json", "--address", address]);
    let output = command.args(args).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let report = serde_json::from_slice(&output.stdout);
    (output.status.code(), report.unwrap_or_else(|error| panic!("{error}: {said}")))
}

fn count(report: &Value, kind: &str) -> u64 {
    report["answers"][kind]["count"].as_u64().unwrap()
}

#[test]
fn each_profile_ends_in_an_exact_sale() {
    let server = Server::start_with(&["--resp-listen", "127.0.0.1:0"], &[]);
    let address = server.resp().to_string();
    for (profile, accepted, replayed) in [
        ("accept", 2_000..=2_000, 0..=0),
        ("sold-out", 20..=20, 0..=0),
        ("replay", 2_000..=2_000, 16_000..=18_000),
        ("mixed", 1..=1_000, 1..=4_000),
    ] {
        let args = ["--profile", profile, "--shoppers", "2000", "--connections", "8"];
        let (code, report) = bench(&address, &[&args[..], &["--depth", "16"]].concat());
        assert_eq!((code, &report["exact"]), (Some(0), &Value::Bool(true)), "{report}");
        assert!(accepted.contains(&count(&report, "accepted")), "{report}");
        assert!(replayed.contains(&count(&report, "replayed")), "{report}");
    }
    let open = ["--rate", "2000", "--requests", "500", "--shoppers", "500"];
    let database = format!("sqlite:{}", server.data_dir().join("orders.db").display());
    let (code, report) = bench(&address, &[&open[..], &["--database", &database]].concat());
    assert_eq!((code, count(&report, "accepted")), (Some(0), 500), "{report}");
    let lag = &report["lags"]["order_in_sql"];
    assert!(lag["count"].as_u64() > Some(0) && lag["p99_us"].as_u64() > Some(0), "{report}");
    assert!(lag["last_s"].as_f64() > Some(0.0), "{report}");
}

#[test]
fn a_peer_with_the_function_library_is_driven_by_the_same_client() {
    let directory = tempfile::tempdir().unwrap();
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut peer = Command::new(functions::kit::process::program())
        .args(["--port", &address.port().to_string(), "--bind", "127.0.0.1", "--save", ""])
        .args(["--appendonly", "yes", "--appendfsync", "always", "--dir"])
        .arg(directory.path())
        .stdout(Stdio::null())
        .spawn()
        .expect("valkey-server is there: cargo xtask test packages installs it");
    let deadline = std::time::Instant::now() + common::PATIENCE;
    let mut client = loop {
        match std::net::TcpStream::connect(address) {
            Ok(_) => break common::resp::Client::to(address),
            Err(_) => assert!(std::time::Instant::now() < deadline, "valkey-server listens"),
        }
    };
    client.command(&["FUNCTION", "LOAD", functions::LIBRARY]);
    for wait in [&[][..], &["--waitaof"]] {
        let args = [&["--shoppers", "500", "--connections", "4", "--depth", "8"], wait].concat();
        let (code, report) = bench(&address.to_string(), &args);
        assert_eq!((code, count(&report, "accepted")), (Some(0), 500), "{report}");
    }
    peer.kill().unwrap();
    peer.wait().unwrap();
}
