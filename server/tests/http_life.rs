//! Starting, stopping, starting again, and not starting at all.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Connection, SECRET, Server, Signal, sluice, token, wait};
use serde_json::json;

/// Runs `sluice serve` with `args` to its end; its exit code and what it said on stderr.
fn refused(args: &[&str], env: &[(&str, &str)], secret: bool) -> (i32, String) {
    let scratch = tempfile::tempdir().unwrap();
    let data_dir = scratch.path().join("data");
    let mut command = sluice(["serve", "--listen", "127.0.0.1:0", "--data-dir"]);
    command.arg(&data_dir).args(args).envs(env.iter().copied());
    if !secret {
        command.env_remove("SLUICE_TOKEN__SECRET");
    }
    let mut child = command.spawn().unwrap();
    let status = wait(&mut child);
    let output = child.wait_with_output().unwrap();
    assert!(!data_dir.exists(), "a refused configuration leaves the disk alone: {args:?}");
    (status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

/// A purchase whose handler waits for `body_bytes` of body: the server has said so.
fn in_flight(server: &Server, activity: u64, body_bytes: usize) -> Connection {
    let mut connection = server.connect();
    connection.send(format!(
        "POST /api/flashsales/{activity}/purchase HTTP/1.1\r\nHost: t\r\n\
         Authorization: Bearer {}\r\nExpect: 100-continue\r\nContent-Length: {body_bytes}\r\n\r\n",
        token(8, "user"),
    ));
    assert_eq!(connection.answer().unwrap().status, 100);
    connection
}

#[test]
fn sigterm_finishes_what_is_in_flight_and_exits_with_0() {
    let mut server = Server::start();
    let activity = server.activity(&json!({}));
    let accepted = server.buy(7, activity, "a", 1).json();
    let idle = server.connect();
    let body = "{\"client_request_id\":\"b\"}";
    let mut waiting = in_flight(&server, activity, body.len());
    server.signal(Signal::TERM);
    server.error_with("stopping");
    waiting.send(body);
    let answer = waiting.answer().unwrap();
    assert_eq!(answer.status, 202, "{answer:?}");
    assert_eq!(server.wait().code(), Some(0));
    drop(idle);
    let data_dir = server.data_dir().to_path_buf();
    let again = Server::start_in(&data_dir, &[], &[]);
    let replay = again.buy(7, activity, "a", 1);
    assert_eq!(replay.header("idempotency-replayed"), Some("true"));
    assert_eq!(replay.json()["pre_deduction_id"], accepted["pre_deduction_id"]);
}

#[test]
fn a_killed_server_comes_back_with_everything_it_acknowledged() {
    let server = Server::start();
    let activity = server.activity(&json!({"stock": 3}));
    let accepted = [1, 2].map(|user| server.buy(user, activity, "a", 1).json());
    let data_dir = server.data_dir().to_path_buf();
    server.signal(Signal::KILL);
    let mut server = server;
    assert_eq!(server.wait().code(), None);
    let again = Server::start_in(&data_dir, &[], &[]);
    for (user, first) in [1, 2].into_iter().zip(accepted) {
        let replay = again.buy(user, activity, "a", 1);
        assert_eq!(replay.status, 202, "{replay:?}");
        assert_eq!(replay.json()["pre_deduction_id"], first["pre_deduction_id"]);
    }
    assert_eq!(again.figures(activity), [3, 1, 2, 0]);
}

#[test]
fn a_demo_has_something_to_buy_and_a_rerun_keeps_what_was_sold() {
    let scratch = tempfile::tempdir().unwrap();
    let data_dir = scratch.path().join("data");
    let start = || {
        let mut server = Server::start_in(&data_dir, &["--demo"], &[]);
        let shopper = server.line_with("  export TOKEN=").replace("  export TOKEN=", "");
        let admin = server.line_with("  export ADMIN=").replace("  export ADMIN=", "");
        let curl = server.line_with("  curl -i -X POST");
        assert!(curl.contains("/api/flashsales/30001/purchase"), "{curl}");
        (server, shopper, admin)
    };
    let (mut server, shopper, admin) = start();
    let body = json!({"client_request_id": "first"});
    let path = "/api/flashsales/30001/purchase";
    let bought = server.authorized(&shopper, "POST", path, &[], Some(&body));
    assert_eq!(bought.status, 202, "{bought:?}");
    let seen = server.authorized(&admin, "GET", "/api/admin/flashsales/30001", &[], None).json();
    assert_eq!((&seen["total"], &seen["locked"]), (&json!(1000), &json!(1)));
    assert_eq!(seen["sku_id"], 20001);
    assert_eq!(server.stop().code(), Some(0));
    let (server, shopper, admin) = start();
    let again = server.authorized(&shopper, "POST", path, &[], Some(&body));
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    let order = format!("/api/orders/{}", again.json()["order_no"].as_str().unwrap());
    let query = format!("/api/flashsales/purchases/{}?wait=30s", again.json()["pre_deduction_id"]);
    assert_eq!(server.authorized(&shopper, "GET", &query, &[], None).json()["status"], "ordered");
    let order = server.authorized(&shopper, "GET", &order, &[], None).json();
    assert_eq!(order["address"]["receiver"], "Demo 1");
    let seen = server.authorized(&admin, "GET", "/api/admin/flashsales/30001", &[], None).json();
    assert_eq!((&seen["total"], &seen["locked"]), (&json!(1000), &json!(1)));
}

#[test]
fn a_demo_signs_with_a_secret_of_its_own_that_sluice_token_finds() {
    let scratch = tempfile::tempdir().unwrap();
    let data_dir = scratch.path().join("data");
    let mut command = sluice(["serve", "--demo", "--listen", "127.0.0.1:0", "--data-dir"]);
    command.arg(&data_dir).env_remove("SLUICE_TOKEN__SECRET");
    let mut server = Server::of(command, &data_dir);
    server.line_with("  curl -i -X POST");
    let mut command = sluice(["token", "--user", "9", "--data-dir"]);
    command.arg(&data_dir).env_remove("SLUICE_TOKEN__SECRET");
    let output = command.output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let body = json!({"client_request_id": "x"});
    let path = "/api/flashsales/30001/purchase";
    let bought = server.authorized(printed.trim(), "POST", path, &[], Some(&body));
    assert_eq!(bought.status, 202, "{bought:?}");
    let foreign = server.as_user(9, "GET", "/api/flashsales", None);
    assert_eq!(foreign.status, 401, "the tests' own secret is not the demo's");
}

#[test]
fn a_configuration_that_can_not_be_meant_is_refused_with_2_and_one_line() {
    let scratch = tempfile::tempdir().unwrap();
    let unknown = scratch.path().join("sluice.toml");
    std::fs::write(&unknown, "[htpp]\nidle_timeout = '1s'\n").unwrap();
    let unknown = unknown.to_str().unwrap();
    for (args, env, says) in [
        (vec!["--resp-listen", "0.0.0.0:0"], vec![], "must be a loopback address"),
        (vec!["--redis", "http://127.0.0.1"], vec![], "no URL of a Redis"),
        (vec![], vec![("SLUICE_MIRROR__LAYOUT", "other")], "no layout of Redis keys"),
        (vec!["--legacy-database", "postgres://h/x"], vec![], "not supported by this version"),
        (vec!["--database", "postgres://u:pw@h/x"], vec![], "not supported by this version"),
        (vec!["--config", "/nonexistent.toml"], vec![], "/nonexistent.toml"),
        (vec!["--config", unknown], vec![], "htpp"),
        (vec!["--log-level", "wrong=="], vec![], "log_level"),
        (vec![], vec![("SLUICE_TOKEN__SECRET", "short")], "at least 32"),
        (
            vec![],
            vec![("SLUICE_TOKEN__SECRET", "changeme-changeme-changeme-changeme")],
            "well-known",
        ),
        (vec![], vec![("SLUICE_HTTP__IDLE_TIMEOUT", "soon")], "soon"),
    ] {
        let (code, stderr) = refused(&args, &env, true);
        assert_eq!(code, 2, "{args:?} {env:?}: {stderr}");
        assert_eq!(stderr.trim_end().lines().count(), 1, "{stderr}");
        assert!(stderr.contains(says) && !stderr.contains("pw"), "{args:?} {env:?}: {stderr}");
    }
    let (code, stderr) = refused(&[], &[], false);
    assert_eq!(code, 2);
    assert!(stderr.contains("no token secret"), "{stderr}");
}

#[test]
fn a_configuration_can_be_checked_and_printed_without_starting() {
    let checked = sluice(["serve", "--check-config"]).output().unwrap();
    assert_eq!(checked.status.code(), Some(0));
    let printed = sluice(["serve", "--print-config", "--listen", "127.0.0.1:9"]).output().unwrap();
    assert_eq!(printed.status.code(), Some(0));
    let text = String::from_utf8(printed.stdout).unwrap();
    for line in [
        "listen = \"127.0.0.1:9\" # --listen",
        "data_dir = \"./data\" # default",
        "token.secret = \"<redacted>\" # SLUICE_TOKEN__SECRET",
    ] {
        assert!(text.lines().any(|seen| seen == line), "{line} is missing in\n{text}");
    }
    assert!(!text.contains(SECRET));
}

#[test]
fn a_directory_that_is_in_use_is_refused_with_5_and_an_address_with_2() {
    let server = Server::start();
    let mut command = sluice(["serve", "--listen", "127.0.0.1:0", "--data-dir"]);
    let mut second = command.arg(server.data_dir()).spawn().unwrap();
    assert_eq!(wait(&mut second).code(), Some(5));
    let scratch = tempfile::tempdir().unwrap();
    let address = server.address.to_string();
    let mut command = sluice(["serve", "--listen", &address, "--data-dir"]);
    let mut third = command.arg(scratch.path().join("data")).spawn().unwrap();
    assert_eq!(wait(&mut third).code(), Some(2));
    assert_eq!(server.call("GET", "/readyz", &[], "").status, 200);
}

#[test]
fn sighup_takes_over_what_can_change() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("sluice.toml");
    std::fs::write(&file, "[http]\nidle_timeout = '60s'\n").unwrap();
    let data_dir = scratch.path().join("data");
    let mut command = sluice(["serve", "--listen", "127.0.0.1:0", "--data-dir"]);
    command.arg(&data_dir).arg("--config").arg(&file);
    let mut server = Server::of(command, &data_dir);
    std::fs::write(&file, "[format]\norder_prefix = 7\n[http]\nidle_timeout = '200ms'\n").unwrap();
    server.signal(Signal::HUP);
    server.error_with("format.order_prefix changed: it needs a restart");
    server.error_with("the configuration was reloaded");
    assert!(server.connect().is_closed());
    std::fs::write(&file, "broken = ").unwrap();
    server.signal(Signal::HUP);
    server.error_with("the old configuration stays");
    assert_eq!(server.stop().code(), Some(0));
}

#[test]
fn a_second_sigterm_ends_at_once() {
    let patient = [("SLUICE_HTTP__DRAIN_TIMEOUT", "1h"), ("SLUICE_HTTP__BODY_TIMEOUT", "1h")];
    let mut server = Server::start_with(&[], &patient);
    let activity = server.activity(&json!({}));
    let _stuck = in_flight(&server, activity, 9);
    server.signal(Signal::TERM);
    server.error_with("stopping");
    server.signal(Signal::TERM);
    assert_eq!(server.wait().code(), Some(143));
}

#[test]
fn metrics_can_have_an_address_of_their_own() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let apart = port.to_string();
    let server = Server::start_with(&[], &[("SLUICE_METRICS_LISTEN", &apart)]);
    let scraped = Connection::to(port).call("GET", "/metrics", &[], "");
    assert!(scraped.body.contains("sluice_ready 1\n"), "{scraped:?}");
    let api = Connection::to(port).call("GET", "/api/flashsales", &[], "");
    assert_eq!(api.verdict(), (404, "not_found".to_owned()));
    // Nor does it sell: whatever stands before the other address would be passed by.
    let bearer = format!("Bearer {}", token(7, "user"));
    let headers = [("Authorization", bearer.as_str())];
    let path = "/api/flashsales/30001/purchase";
    let body = r#"{"client_request_id":"past-the-door"}"#;
    let bought = Connection::to(port).call("POST", path, &headers, body);
    assert_eq!(bought.verdict(), (404, "not_found".to_owned()));
    assert_eq!(server.call("GET", "/metrics", &[], "").verdict(), (404, "not_found".to_owned()));
}
