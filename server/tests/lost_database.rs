//! The order database is lost, or put back from an old backup, after the log's beginning was given
//! back: it is filled from a snapshot and the log, and the sale goes on.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
#[allow(dead_code, unreachable_pub, reason = "shared with the bridge's tests")]
#[path = "../../bridge/tests/support/mariadb.rs"]
mod mariadb;
#[path = "common/provider.rs"]
mod provider;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection as _, MySqlConnection, SqliteConnection};

use common::{PATIENCE, Server, Signal, sluice};
use mariadb::MariaDb;
use provider::{Provider, body, call_back, open, refund, secrets, verdict};

/// A segment, and what is written behind a snapshot before the next is made.
const SEGMENT_BYTES: &str = "4194304";

/// Starts at the most until the log's beginning is given back: two snapshots, two segments that
/// are kept behind the older of them, and some that a slow machine may need more.
const STARTS_MAX: u64 = 60;

const SHOPPERS: u64 = 12;

/// Where orders go.
enum Orders {
    Sqlite(PathBuf),
    MariaDb(MariaDb),
}

impl Orders {
    fn url(&self) -> String {
        match self {
            Self::Sqlite(path) => format!("sqlite:{}", path.display()),
            Self::MariaDb(server) => server.url("shop"),
        }
    }

    fn run(&self, database: &str, sql: &str) -> Option<i64> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let sql = AssertSqlSafe(sql.to_owned());
        runtime.block_on(async {
            match self {
                Self::Sqlite(path) => {
                    let url = format!("sqlite:{}", path.display());
                    let mut connection = SqliteConnection::connect(&url).await.unwrap();
                    sqlx::query_scalar(sql).fetch_optional(&mut connection).await.unwrap()
                }
                Self::MariaDb(server) => {
                    let url = server.url(database);
                    let mut connection = MySqlConnection::connect(&url).await.unwrap();
                    sqlx::query_scalar(sql).fetch_optional(&mut connection).await.unwrap()
                }
            }
        })
    }

    fn count(&self, sql: &str) -> i64 {
        self.run("shop", sql).unwrap()
    }

    /// An empty one is in its place.
    fn lose(&self) {
        match self {
            Self::Sqlite(path) => {
                for suffix in ["", "-wal", "-shm"] {
                    let _ = std::fs::remove_file(format!("{}{suffix}", path.display()));
                }
            }
            Self::MariaDb(_) => {
                self.run("mysql", "DROP DATABASE IF EXISTS shop");
                self.run("mysql", "CREATE DATABASE shop");
            }
        }
    }
}

struct Shop {
    provider: Provider,
    scratch: tempfile::TempDir,
    orders: Orders,
    activity: u64,
    /// What the first shoppers were told: reservation and order number, by user from 1.
    told: Vec<(u64, String)>,
    /// Purchases so far.
    bought: u64,
}

impl Shop {
    fn data_dir(&self) -> PathBuf {
        self.scratch.path().join("data")
    }

    fn start(&self) -> Server {
        let providers = format!("mock=http://{}/refunds", self.provider.address);
        let secrets = secrets();
        let env = [
            ("SLUICE_PAYMENTS__SECRETS", secrets.as_str()),
            ("SLUICE_PAYMENTS__PROVIDERS", &providers),
            ("SLUICE_FORMAT__SEGMENT_BYTES", SEGMENT_BYTES),
            ("SLUICE_RETENTION__SNAPSHOT_AFTER_BYTES", SEGMENT_BYTES),
        ];
        let url = self.orders.url();
        Server::start_in(&self.data_dir(), &["--database", &url], &env)
    }

    /// Twelve have bought: some have paid, some given back, one has its money back.
    fn open(orders: Orders) -> Self {
        let (provider, scratch) = (Provider::start(), tempfile::tempdir().unwrap());
        let (told, bought) = (Vec::new(), SHOPPERS);
        let mut shop = Self { provider, scratch, orders, activity: 0, told, bought };
        shop.orders.lose();
        let mut server = shop.start();
        shop.activity = server.activity(&json!({"stock": 100, "payment_ttl": "1h"}));
        for user in 1..=SHOPPERS {
            let answer = server.buy(user, shop.activity, &format!("r-{user}"), 1);
            assert_eq!(answer.status, 202, "{answer:?}");
            let body = answer.json();
            let order_no = body["order_no"].as_str().unwrap().to_owned();
            shop.told.push((body["pre_deduction_id"].as_u64().unwrap(), order_no));
        }
        for user in [3, 6, 9] {
            let payment_no = shop.pay(&server, user);
            if user == 9 {
                let asked = json!({"refund_no": "f-9", "restock": true, "free_limit": true});
                assert!(refund(&server, &payment_no, &asked).status < 300);
            }
        }
        for user in [1, 4] {
            let path = format!("/api/orders/{}/cancel", shop.order_no(user));
            assert_eq!(server.as_user(user, "POST", &path, None).status, 200);
        }
        assert_eq!(shop.restock(&server)["total"], 105);
        let is_refunded = || shop.order(&server, 9)["status"] == "refunded";
        until(is_refunded);
        assert!(server.stop().success());
        shop
    }

    fn order_no(&self, user: u64) -> &str {
        &self.told[usize::try_from(user - 1).unwrap()].1
    }

    fn order(&self, server: &Server, user: u64) -> Value {
        let path = format!("/api/orders/{}", self.order_no(user));
        server.as_user(user, "GET", &path, None).json()
    }

    fn pay(&self, server: &Server, user: u64) -> String {
        let opened = open(server, user, &json!(self.order_no(user)));
        let payment_no = opened.json()["payment_no"].as_str().unwrap().to_owned();
        let (amount, transaction) = (opened.json()["amount"].as_u64().unwrap(), format!("t{user}"));
        let paid = call_back(server, &body(&payment_no, &transaction, amount, "paid"));
        assert_eq!(verdict(&paid), "accepted");
        payment_no
    }

    fn restock(&self, server: &Server) -> Value {
        let path = format!("/api/admin/flashsales/{}/restock", self.activity);
        let admin = common::token(1, "admin");
        let headers = [
            ("Authorization", format!("Bearer {admin}")),
            ("Idempotency-Key", "more".to_owned()),
            ("Content-Type", "application/json".to_owned()),
        ];
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let answer = server.call("POST", &path, &headers, r#"{"quantity":5}"#);
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }

    /// Sells on over many starts, until nothing of what was sold first is in the log any more.
    fn give_the_beginning_back(&mut self) {
        for _ in 0..STARTS_MAX {
            if first_lsn(&self.data_dir()) > 60 {
                return;
            }
            let mut server = self.start();
            self.bought += 1;
            let user = self.bought;
            assert_eq!(server.buy(user, self.activity, &format!("r-{user}"), 1).status, 202);
            delivered(&server);
            // Others that move no unit, so that the log grows.
            for _ in 0..8 {
                self.restock(&server);
                let path = format!("/api/admin/flashsales/{}", self.activity);
                for switch in ["pause", "resume"] {
                    server.as_admin("POST", &format!("{path}/{switch}"), None);
                }
            }
            assert!(server.stop().success());
        }
        panic!("the log's beginning is kept after {STARTS_MAX} starts");
    }

    /// Everything is as it was told, and the sale goes on.
    fn look(&mut self, server: &Server) {
        delivered(server);
        let url = format!("http://{}", server.address);
        let compared = sluice(["reconcile", "--url", &url]).output().unwrap();
        assert_eq!(compared.status.code(), Some(0), "{compared:?}");
        let orders = i64::try_from(self.bought).unwrap();
        assert_eq!(self.orders.count("SELECT COUNT(*) FROM orders"), orders);
        let sums = "SELECT COUNT(*) FROM flashsale_activities a WHERE a.stock <> \
                    (SELECT SUM(f.change_qty) FROM stock_flows f WHERE f.activity_id = a.id)";
        assert_eq!(self.orders.count(sums), 0, "the flows add up to the stock");
        for (user, status) in
            [(1, "cancelled"), (2, "pending_payment"), (3, "paid"), (9, "refunded")]
        {
            assert_eq!(self.order(server, user)["status"], status, "of user {user}");
        }
        let figures = server.figures(self.activity);
        let replayed = server.buy(5, self.activity, "r-5", 1);
        assert_eq!(replayed.header("idempotency-replayed"), Some("true"));
        assert_eq!(replayed.json()["order_no"], self.told[4].1);
        self.restock(server);
        assert_eq!(server.figures(self.activity), figures, "the key is known");
        // The limit that the refund freed, too.
        assert_eq!(server.buy(9, self.activity, "again", 1).status, 202);
        assert_eq!(server.buy(3, self.activity, "again", 1).code(), "limit_reached");
        self.bought += 1;
        self.pay(server, 5);
        delivered(server);
        assert_eq!(self.order(server, 5)["status"], "paid");
        let compared = sluice(["reconcile", "--url", &url]).output().unwrap();
        assert_eq!(compared.status.code(), Some(0), "{compared:?}");
    }
}

fn until(mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not in time");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until everything durable is in SQL.
fn delivered(server: &Server) {
    until(|| {
        let metrics = server.call("GET", "/metrics", &[], "").body;
        metrics.lines().any(|line| line == "sluice_bridge_lag_records 0")
    });
}

/// The first record that the log still has.
fn first_lsn(data_dir: &Path) -> u64 {
    let output = sluice(["dump", "--data-dir"]).arg(data_dir).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let first: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    first["lsn"].as_u64().unwrap()
}

fn lost_and_filled(orders: Orders) {
    let mut shop = Shop::open(orders);
    shop.give_the_beginning_back();
    shop.orders.lose();
    let mut server = shop.start();
    shop.look(&server);
    let metrics = server.call("GET", "/metrics", &[], "").body;
    assert!(metrics.contains("sluice_bridge_gone{what=\"request_ids\"}"), "{metrics}");
    assert!(metrics.contains("sluice_bridge_filling 0"), "{metrics}");
    assert!(server.stop().success());
    // What was filled is a database like any other.
    let mut server = shop.start();
    delivered(&server);
    assert!(server.stop().success());
}

#[test]
fn a_lost_sqlite_file_is_filled_from_snapshot_and_log() {
    let scratch = tempfile::tempdir().unwrap();
    lost_and_filled(Orders::Sqlite(scratch.path().join("shop.db")));
}

#[test]
fn a_dropped_database_of_a_server_is_filled_from_snapshot_and_log() {
    lost_and_filled(Orders::MariaDb(MariaDb::start()));
}

#[test]
fn an_old_backup_is_brought_up_to_what_was_sold_since() {
    let scratch = tempfile::tempdir().unwrap();
    let (path, backup) = (scratch.path().join("shop.db"), scratch.path().join("backup.db"));
    let mut shop = Shop::open(Orders::Sqlite(path.clone()));
    std::fs::copy(&path, &backup).unwrap();
    shop.give_the_beginning_back();
    shop.orders.lose();
    std::fs::copy(&backup, &path).unwrap();
    let mut server = shop.start();
    shop.look(&server);
    assert!(server.stop().success());
}

#[test]
fn a_server_killed_while_it_fills_fills_on() {
    let scratch = tempfile::tempdir().unwrap();
    let mut shop = Shop::open(Orders::Sqlite(scratch.path().join("shop.db")));
    shop.give_the_beginning_back();
    shop.orders.lose();
    for _ in 0..5 {
        // Ready is before the database is filled, or after; the kill comes wherever it comes.
        let mut server = shop.start();
        server.signal(Signal::KILL);
        server.wait();
    }
    let mut server = shop.start();
    shop.look(&server);
    assert!(server.stop().success());
}
