//! Engine, SQL and Redis of a running server side by side, compared, and mended.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
#[allow(dead_code, unreachable_pub, reason = "shared with the bridge's tests")]
#[path = "../../bridge/tests/mirror/valkey.rs"]
mod valkey;

use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, Connection as _};

use common::{Server, sluice, token};
use valkey::{Valkey, say, wait_for};

fn tool(server: &Server, name: &str, flags: &[&str]) -> Output {
    let url = format!("http://{}", server.address);
    sluice([name, "--url", &url]).args(flags).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Changes the orders behind the server's back.
fn tamper(data_dir: &Path, sql: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let options = SqliteConnectOptions::new().filename(data_dir.join("orders.db"));
        let mut connection = SqliteConnection::connect_with(&options).await.unwrap();
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
    });
}

fn stocks(server: &Server) -> Value {
    let answer = server.as_admin("GET", "/api/admin/stocks", None);
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

#[test]
fn a_difference_is_told_with_1_and_mended_where_that_is_asked() {
    let scratch = tempfile::tempdir().unwrap();
    let data_dir = scratch.path().join("data");
    let mut server = Server::start_in(&data_dir, &[], &[]);
    let id = server.activity(&json!({"stock": 10}));
    assert_eq!(server.buy(7, id, "r-1", 2).status, 409);
    assert_eq!(server.buy(7, id, "r-1", 1).status, 202);
    let clean = tool(&server, "reconcile", &[]);
    assert_eq!(clean.status.code(), Some(0), "{clean:?}");
    assert!(said(&clean).contains("1 activity and 1 reservation compared"), "{clean:?}");

    tamper(&data_dir, "UPDATE flashsale_activities SET stock = stock - 1, sold_stock = 1");
    let seen = &stocks(&server)["items"][0];
    assert_eq!((&seen["engine"]["available"], &seen["sql"]["available"]), (&json!(9), &json!(8)));
    for flags in [&[][..], &["--dry-run"]] {
        let found = tool(&server, "reconcile", flags);
        assert_eq!(found.status.code(), Some(1), "{found:?}");
        assert!(said(&found).contains("activity: flashsale_activities"), "{found:?}");
    }
    let mended = tool(&server, "reconcile", &["--repair"]);
    assert_eq!(mended.status.code(), Some(0), "{mended:?}");
    assert!(said(&mended).contains("1 difference, 1 repaired"), "{mended:?}");
    assert_eq!(tool(&server, "reconcile", &[]).status.code(), Some(0));
    assert_eq!(stocks(&server)["items"][0]["sql"]["available"], 9);
    let metrics = server.call("GET", "/metrics", &[], "").body;
    for line in ["sluice_reconcile_differences 0", "sluice_reconcile_repaired_total 1"] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    assert!(server.stop().success());
}

#[test]
fn what_can_not_be_asked_ends_with_2() {
    let mut server = Server::start();
    for flags in
        [&["--token", &token(5, "user")][..], &["--repair", "--dry-run"], &["--url", "ftp://x"]]
    {
        let refused = tool(&server, "reconcile", flags);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    }
    assert!(server.stop().success());
    assert_eq!(tool(&server, "reconcile", &[]).status.code(), Some(2), "nobody listens");
}

#[test]
fn redis_stands_beside_with_its_cursor() {
    let valkey = Valkey::start();
    let mut server = Server::start_with(&["--redis", &valkey.url(0)], &[]);
    let id = server.activity(&json!({"stock": 10}));
    assert_eq!(server.buy(7, id, "r-1", 1).status, 202);
    let stock = format!("GET flashsale:stock:{id}");
    wait_for(|| say::<Option<String>>(&mut valkey.connect(0), &stock).as_deref() == Some("9"));
    let clean = tool(&server, "reconcile", &[]);
    assert_eq!(clean.status.code(), Some(0), "{clean:?}");
    let seen = stocks(&server);
    assert_eq!(seen["items"][0]["redis"]["available"], "9", "{seen}");
    assert!(seen["redis_lsn"].as_u64() > Some(0), "{seen}");
    assert!(seen["sql_lsn"].as_u64() > Some(0), "{seen}");

    // A Redis that is gone is none without differences.
    drop(valkey);
    let blind = tool(&server, "reconcile", &[]);
    assert_eq!(blind.status.code(), Some(2), "{blind:?}");
    let told = String::from_utf8(blind.stderr).unwrap();
    assert!(told.contains("redis could not be compared"), "{told}");
    assert!(server.stop().success());
}
