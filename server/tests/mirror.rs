//! The built server beside a real Valkey: its keys, its rules, its end where the two do not belong
//! together.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
#[allow(dead_code, unreachable_pub, reason = "shared with the bridge's tests")]
#[path = "../../bridge/tests/mirror/valkey.rs"]
mod valkey;

use serde_json::json;

use common::{Server, sluice};
use valkey::{Valkey, say, wait_for};

fn get(valkey: &Valkey, key: &str) -> Option<String> {
    say(&mut valkey.connect(0), &format!("GET {key}"))
}

#[test]
fn what_is_sold_is_in_redis_and_in_the_metrics() {
    let valkey = Valkey::start_with(&["--port", "0", "--appendonly", "yes"]);
    let mut server = Server::start_with(&["--redis", &valkey.url(0)], &[]);
    let id = server.activity(&json!({"stock": 10}));
    assert_eq!(server.buy(7, id, "r-1", 1).status, 202);
    let stock = format!("flashsale:stock:{id}");
    wait_for(|| get(&valkey, &stock).as_deref() == Some("9"));
    assert_eq!(get(&valkey, &format!("flashsale:count:{id}:7")).unwrap(), "1");
    let metrics = server.call("GET", "/metrics", &[], "").body;
    for line in ["sluice_mirror_running 1", "sluice_mirror_halted 0", "sluice_mirror_applied_lsn "]
    {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    // The log is kept for it, and no longer than it is needed.
    let confirmed = "sluice_sink_confirmed_lsn{sink=\"redis\"}";
    wait_for(|| server.call("GET", "/metrics", &[], "").body.contains(confirmed));
    assert!(server.stop().success());
}

#[test]
fn a_second_live_activity_of_a_sku_waits_where_keys_bear_its_name() {
    let valkey = Valkey::start();
    let env = [("SLUICE_MIRROR__LAYOUT", "seckill")];
    let mut server = Server::start_with(&["--redis", &valkey.url(0)], &env);
    let first = server.activity(&json!({"sku_id": 5}));
    let second = server.activity(&json!({"sku_id": 5, "stock": 3, "publish": false}));
    server.activity(&json!({"sku_id": 6}));
    let switch = |id: u64, what: &str| {
        server.as_admin("POST", &format!("/api/admin/flashsales/{id}/{what}"), None)
    };
    assert_eq!(switch(second, "publish").verdict(), (409, "sku_on_sale".to_owned()));
    assert_eq!(switch(first, "publish").status, 204, "again");
    assert_eq!(switch(first, "unpublish").status, 204);
    assert_eq!(switch(second, "publish").status, 204);
    assert_eq!(switch(first, "publish").verdict(), (409, "sku_on_sale".to_owned()));
    wait_for(|| get(&valkey, "seckill:stock:5").as_deref() == Some("3"));
    assert!(server.stop().success());
}

#[test]
fn the_redis_of_another_directory_is_refused_with_3_before_anything_is_written() {
    let valkey = Valkey::start();
    let mut first = Server::start_with(&["--redis", &valkey.url(0)], &[]);
    first.activity(&json!({}));
    assert!(first.stop().success());
    let mut second = Server::start_with(&[], &[]);
    second.activity(&json!({}));
    second.signal(common::Signal::KILL);
    second.wait();
    let control = second.data_dir().join("CONTROL");
    let segments = || -> Vec<_> {
        let listed = std::fs::read_dir(second.data_dir().join("wal")).unwrap();
        let mut names: Vec<_> = listed.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = (std::fs::read(&control).unwrap(), segments());
    let output = sluice(["serve", "--listen", "127.0.0.1:0", "--redis", &valkey.url(0)])
        .arg("--data-dir")
        .arg(second.data_dir())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("the Redis mirror: the database follows log"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(before == (std::fs::read(&control).unwrap(), segments()), "changed on disk");
}

#[test]
fn a_redis_that_is_away_keeps_nobody_from_buying() {
    let mut valkey = Valkey::start();
    let url = valkey.url(0);
    valkey.kill();
    let mut server = Server::start_with(&["--redis", &url], &[]);
    let id = server.activity(&json!({"stock": 10}));
    assert_eq!(server.buy(7, id, "r-1", 1).status, 202);
    valkey.resume();
    wait_for(|| get(&valkey, &format!("flashsale:stock:{id}")).as_deref() == Some("9"));
    assert!(server.stop().success());
}

#[test]
fn a_password_in_the_url_of_redis_is_not_printed() {
    let output = sluice(["serve", "--demo", "--print-config"])
        .args(["--redis", "redis://sluice:hunter2@host/1"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("redis://host/1") && !text.contains("hunter2"), "{text}");
}
