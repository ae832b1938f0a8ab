//! From the first click to the last order: `sluice bench http` against the built server, its
//! database and its mirror; nothing is lost, nothing is there twice, and the books are exact.
//!
//! `SLUICE_PURCHASES` sets how many are bought. For figures worth writing down, on a quiet machine:
//!
//! ```text
//! SLUICE_PURCHASES=1000000 cargo test --release -p server --test end_to_end -- --nocapture
//! ```
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "common/books.rs"]
mod books;
mod common;
#[allow(dead_code, unreachable_pub, reason = "shared with the bridge's tests")]
#[path = "../../bridge/tests/support/mariadb.rs"]
mod mariadb;
#[path = "common/shop.rs"]
mod shop;
#[allow(dead_code, unreachable_pub, reason = "shared with the bridge's tests")]
#[path = "../../bridge/tests/mirror/valkey.rs"]
mod valkey;

use std::io::Write as _;
use std::path::Path;
use std::time::Instant;

use sqlx::{Connection as _, Executor as _, MySqlConnection};

use books::Checked;
use common::{Server, sluice};
use mariadb::MariaDb;
use shop::scratch;
use valkey::{Valkey, say, wait_for};

/// Purchases of a run in CI.
const PURCHASES: u64 = 5_000;

/// The demo's activity is 30001; the generator makes the next one.
const ACTIVITY_TITLE: &str = "sluice bench";

/// As a shop would run it: what was committed is on the disk, and there is memory for a million
/// rows.
const DURABLE: [&str; 4] = [
    "--innodb-flush-method=fsync",
    "--innodb-doublewrite=ON",
    "--innodb-buffer-pool-size=1G",
    "--innodb-log-file-size=1G",
];

fn purchases() -> u64 {
    std::env::var("SLUICE_PURCHASES").map_or(PURCHASES, |text| text.parse().unwrap())
}

/// Sells out an activity of as many units as shoppers come, beside a mirror, into `database`.
fn sell_out(data_dir: &Path, database: &str) {
    let count = purchases();
    let valkey = Valkey::start();
    let redis = valkey.url(0);
    let args = ["--demo", "--database", database, "--redis", &redis];
    let segment = [("SLUICE_FORMAT__SEGMENT_BYTES", "67108864")];
    let mut server = Server::start_in(data_dir, &args, &segment);
    let (url, text) = (format!("http://{}", server.address), count.to_string());
    let output = sluice(["bench", "http", "--url", &url, "--database", database, "--quiet"])
        .args(["--stock", &text, "--shoppers", &text, "--connections", "128"])
        .args(["--repeat-share", "0.05", "--timeout", "60s", "--drain-timeout", "30m"])
        .args(["--redis", &redis])
        .arg("--data-dir")
        .arg(data_dir)
        .output()
        .unwrap();
    let _ = std::io::stdout().write_all(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told = String::from_utf8_lossy(&output.stdout);
    for store in ["order in SQL", "key in Redis"] {
        let is_told = |what: String| assert!(told.contains(&what), "{what}: {told}");
        is_told(format!("\n{store} "));
        is_told(format!("last {store}"));
    }

    let began = Instant::now();
    let activity = made_activity(&server);
    let mut redis = valkey.connect(0);
    let stock = format!("GET flashsale:stock:{activity}");
    wait_for(|| {
        let left: Option<u64> = say(&mut redis, &stock);
        left == Some(0)
    });
    let held: Vec<String> = say(&mut redis, "KEYS flashsale:reservation:*");
    assert_eq!(held.len() as u64, count);
    println!("the mirror had it all {:.2} s after that", began.elapsed().as_secs_f64());
    let units = Checked {
        total: count,
        available: 0,
        locked: count,
        sold: 0,
        rolled_back: 0,
        reservations: count,
    };
    assert!(server.stop().success());
    assert_eq!(books::check(data_dir, activity), units);
}

/// The activity that the generator made.
fn made_activity(server: &Server) -> u64 {
    let list = server.as_admin("GET", "/api/admin/flashsales", None).json();
    let items = list["items"].as_array().unwrap();
    let made = items.iter().find(|item| item["title"] == ACTIVITY_TITLE);
    made.unwrap_or_else(|| panic!("{list}"))["id"].as_u64().unwrap()
}

#[test]
fn every_purchase_is_one_order_in_sqlite_and_one_key_in_redis() {
    let data_dir = scratch();
    let database = format!("sqlite:{}", data_dir.path().join("orders.db").display());
    sell_out(data_dir.path(), &database);
}

#[test]
fn every_purchase_is_one_order_in_mariadb_and_one_key_in_redis() {
    let mariadb = MariaDb::start_with(&DURABLE);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut connection = MySqlConnection::connect(&mariadb.url("mysql")).await.unwrap();
        connection.execute("CREATE DATABASE shop").await.unwrap();
    });
    let data_dir = scratch();
    sell_out(data_dir.path(), &mariadb.url("shop"));
}
