//! `--legacy-database`: what an older system sold goes on here, whatever kills the start that takes
//! it over.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "common/books.rs"]
mod books;
mod common;
#[allow(dead_code, unreachable_pub, reason = "shared with the bridge's tests")]
#[path = "../../bridge/tests/support/mariadb.rs"]
mod mariadb;
#[path = "common/provider.rs"]
mod provider;
#[path = "common/shop.rs"]
mod shop;
#[allow(dead_code, unreachable_pub, reason = "shared with the bridge's tests")]
#[path = "../../bridge/tests/mirror/valkey.rs"]
mod valkey;

use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection as _, MySqlConnection, SqliteConnection};

use books::Checked;
use common::resp::{Client, Reply};
use common::{PATIENCE, Server, Signal, sluice};
use mariadb::MariaDb;
use shop::Random;
use valkey::{Valkey, say};

const ACTIVITY: u64 = 5;
const PRICE: u64 = 700;

/// The tables of the older system, as far as they are read; in words that both databases know.
const SCHEMA: &str = "
CREATE TABLE flashsale_activities (id BIGINT PRIMARY KEY, sku_id BIGINT, title VARCHAR(128),
    price BIGINT, stock BIGINT, per_user_limit BIGINT, status VARCHAR(16), start_at BIGINT,
    end_at BIGINT);
CREATE TABLE flashsale_pre_deductions (id BIGINT PRIMARY KEY, user_id BIGINT, activity_id BIGINT,
    client_request_id VARCHAR(64), order_no VARCHAR(64), price BIGINT, quantity BIGINT,
    status VARCHAR(32), created_at BIGINT);
CREATE TABLE orders (order_no VARCHAR(64) PRIMARY KEY, user_id BIGINT, status VARCHAR(32),
    activity_id BIGINT, total_amount BIGINT, expire_at BIGINT, created_at BIGINT);
";

/// The older system's database: a file or one of a server's.
struct Older {
    url: String,
}

impl Older {
    fn file(directory: &Path) -> Self {
        let path = directory.join("older.db");
        std::fs::write(&path, "").unwrap();
        Self { url: format!("sqlite:{}", path.display()) }.made()
    }

    fn on(server: &MariaDb) -> Self {
        Self { url: server.url("mysql") }.run("CREATE DATABASE older; CREATE DATABASE shop");
        Self { url: server.url("older") }.made()
    }

    fn made(self) -> Self {
        self.run(SCHEMA);
        self
    }

    fn run(&self, sql: &str) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let sql = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
        runtime.block_on(async {
            if self.url.starts_with("sqlite:") {
                let mut connection = SqliteConnection::connect(&self.url).await.unwrap();
                sql.execute(&mut connection).await.unwrap();
                connection.close().await.unwrap();
            } else {
                let mut connection = MySqlConnection::connect(&self.url).await.unwrap();
                sql.execute(&mut connection).await.unwrap();
            }
        });
    }

    /// An activity of `stock` units beyond what its orders took.
    fn activity(&self, stock: u64, limit: u64) {
        self.run(&format!(
            "INSERT INTO flashsale_activities VALUES ({ACTIVITY}, 3, 'x', {PRICE}, {stock}, \
             {limit}, 'on_sale', 1600000000, 4000000000)"
        ));
    }

    /// Reservation `id` of user `id`, without an order where `order` is empty.
    fn reservation(&self, id: u64, (row, order): (&str, &str), ttl_s: u64) {
        let user = id % (1 << 20);
        let now = provider::now();
        self.run(&format!(
            "INSERT INTO flashsale_pre_deductions VALUES ({id}, {user}, {ACTIVITY}, 'r-{id}', \
             'O-{id}', {PRICE}, 1, '{row}', {now})"
        ));
        if !order.is_empty() {
            let end = now + ttl_s;
            self.run(&format!(
                "INSERT INTO orders VALUES ('O-{id}', {user}, '{order}', {ACTIVITY}, {PRICE}, \
                 {end}, {now})"
            ));
        }
    }

    /// Reservations 1 to `count`: a quarter paid, a quarter given back, the rest unpaid.
    fn many(&self, count: u64) {
        self.run(&format!(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count}) \
             INSERT INTO flashsale_pre_deductions SELECT i, i, {ACTIVITY}, 'r-' || i, 'O-' || i, \
             {PRICE}, 1, CASE i % 4 WHEN 0 THEN 'rolled_back' ELSE 'ordered' END, 1700000000 \
             FROM n; \
             INSERT INTO orders SELECT order_no, user_id, CASE id % 4 WHEN 1 THEN 'paid' \
             ELSE 'pending_payment' END, activity_id, price, 3999999999, 3999999000 \
             FROM flashsale_pre_deductions WHERE status = 'ordered'"
        ));
    }

    fn flags(&self) -> [&str; 2] {
        ["--legacy-database", &self.url]
    }
}

/// Starts a server that does not come so far.
fn refused(data_dir: &Path, flags: &[&str]) -> (Option<i32>, String) {
    let mut command = sluice(["serve", "--listen", "127.0.0.1:0", "--data-dir"]);
    let output = command.arg(data_dir).args(flags).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let last = said.lines().last().unwrap_or_default().to_owned();
    (output.status.code(), last)
}

fn reconcile(server: &Server) -> Output {
    let url = format!("http://{}", server.address);
    sluice(["reconcile", "--url", &url]).output().unwrap()
}

fn until(mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not in time");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn purchase(server: &Server, user: u64, id: u64) -> Value {
    let path = format!("/api/flashsales/purchases/{id}?wait=10s");
    let answer = server.as_user(user, "GET", &path, None);
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

/// Events of a kind in the log, once its server is gone.
fn events(data_dir: &Path, kind: &str) -> usize {
    let output = sluice(["dump", "--data-dir"]).arg(data_dir).output().unwrap();
    String::from_utf8(output.stdout).unwrap().matches(kind).count()
}

#[test]
fn a_start_that_is_killed_again_and_again_takes_everything_over_once() {
    const ROWS: u64 = 4_000;
    const CUT_SHORT: u32 = 6;
    const KILLS_MAX: u32 = 200;
    let scratch = tempfile::tempdir().unwrap();
    let older = Older::file(scratch.path());
    older.activity(100, 1);
    older.many(ROWS);
    // How long it takes, on this machine, where nothing kills it.
    let begun = Instant::now();
    drop(Server::start_in(&scratch.path().join("measure"), &older.flags(), &[]));
    let whole = begun.elapsed();

    let data_dir: PathBuf = scratch.path().join("data");
    let mut random = Random::new(shop::seed());
    let (mut cut_short, mut kills) = (0, 0);
    while cut_short < CUT_SHORT {
        assert!(kills < KILLS_MAX, "{kills} kills cut {cut_short} starts short");
        let mut command = sluice(["serve", "--listen", "127.0.0.1:0", "--data-dir"]);
        command.arg(&data_dir).args(older.flags());
        command.env("SLUICE_FORMAT__SEGMENT_BYTES", "4194304");
        let mut child = command.spawn().unwrap();
        let share = u32::try_from(random.below(100)).unwrap();
        std::thread::sleep(whole * share / 100);
        common::send(&child, Signal::KILL);
        child.wait().unwrap();
        kills += 1;
        match u64::try_from(events(&data_dir, "ReservationAdopted")).unwrap() {
            0 => {}
            ROWS => {
                // It was done before: from the beginning.
                std::fs::remove_dir_all(&data_dir).unwrap();
            }
            adopted => {
                assert!(adopted < ROWS, "{adopted} of {ROWS}");
                cut_short += 1;
                let (code, said) = refused(&data_dir, &[]);
                assert_eq!(code, Some(3), "{said}");
                assert!(said.contains("give --legacy-database once more"), "{said}");
            }
        }
    }

    let mut server = Server::start_in(&data_dir, &older.flags(), &[]);
    let each = ROWS / 4;
    assert_eq!(server.figures(ACTIVITY), [100 + 3 * each, 100, 2 * each, each]);
    assert_eq!(server.buy(1, ACTIVITY, "another", 1).verdict(), (409, "limit_reached".to_owned()));
    until(|| reconcile(&server).status.code() == Some(0));
    assert!(server.stop().success());
    let checked = books::check(&data_dir, ACTIVITY);
    let expected = Checked {
        total: 100 + 3 * each,
        available: 100,
        locked: 2 * each,
        sold: each,
        rolled_back: each,
        reservations: ROWS,
    };
    assert_eq!(checked, expected);
    assert_eq!(u64::try_from(events(&data_dir, "ReservationAdopted")).unwrap(), ROWS);
    // All is here: the older system may go.
    let mut server = Server::start_in(&data_dir, &[], &[]);
    assert_eq!(server.figures(ACTIVITY), [100 + 3 * each, 100, 2 * each, each]);
    assert!(server.stop().success());
}

#[test]
fn what_was_taken_over_is_queried_paid_cancelled_and_timed_out() {
    let database = MariaDb::start();
    let older = Older::on(&database);
    older.activity(4, 1);
    let big = (1 << 40) + 7;
    older.reservation(1, ("ordered", "pending_payment"), 3600);
    older.reservation(2, ("ordered", "pending_payment"), 3600);
    older.reservation(3, ("pending_order", ""), 3600);
    older.reservation(big, ("ordered", "paid"), 3600);
    let scratch = tempfile::tempdir().unwrap();
    let shop = database.url("shop");
    let valkey = Valkey::start();
    let redis = valkey.url(0);
    let flags = ["--database", &shop, "--redis", &redis, "--resp-listen", "127.0.0.1:0"];
    let flags = [&older.flags()[..], &flags].concat();
    let secrets = format!("mock:{}", provider::MOCK_SECRET);
    let env =
        [("SLUICE_PAYMENTS__SECRETS", secrets.as_str()), ("SLUICE_MIRROR__LAYOUT", "flash_sale")];
    let mut server = Server::start_in(scratch.path(), &flags, &env);
    assert_eq!(server.figures(ACTIVITY), [7, 3, 3, 1]);

    // By the number that its buyer knows, and by its own; nobody else's.
    let found = purchase(&server, 7, big);
    assert_eq!(
        (&found["status"], &found["order_no"]),
        (&json!("ordered"), &json!(format!("O-{big}")))
    );
    let own = found["pre_deduction_id"].as_u64().unwrap();
    assert!(own < 1 << 32 && purchase(&server, 7, own) == found);
    let path = format!("/api/flashsales/purchases/{big}");
    assert_eq!(server.as_user(8, "GET", &path, None).status, 404);
    let replayed = server.buy(3, ACTIVITY, "r-3", 1);
    assert_eq!(replayed.status, 202, "{replayed:?}");
    assert_eq!(replayed.header("idempotency-replayed"), Some("true"));
    assert_eq!(server.buy(3, ACTIVITY, "r-4", 1).verdict(), (409, "limit_reached".to_owned()));

    // The number that it brought along is its number everywhere.
    let mut client = Client::to(server.resp());
    let again = client.say(&format!("FCALL sluice_reserve 1 {ACTIVITY} 3 r-3 1"));
    assert_eq!(again, Reply::purchase(2, 3, "O-3", 3));
    let Reply::Array(seen) = client.say(&format!("FCALL_RO sluice_get 1 {ACTIVITY} 3")) else {
        panic!("no map")
    };
    assert!(seen.contains(&Reply::bulk("O-3")), "{seen:?}");
    let mut redis = valkey.connect(0);
    let mut shown = |line: &str| say::<Option<String>>(&mut redis, line);
    until(|| shown("GET flash_sale:result:O-3").as_deref() == Some("1"));
    assert_eq!(shown("SRANDMEMBER flash_sale:user:buy:3:3").as_deref(), Some("O-3"));

    let paid = provider::open(&server, 1, &json!("O-1")).json();
    let payment_no = paid["payment_no"].as_str().unwrap();
    assert_eq!((payment_no, &paid["amount"]), ("O-101", &json!(PRICE)));
    let body = provider::body(payment_no, "t-1", PRICE, "paid");
    assert_eq!(provider::verdict(&provider::call_back(&server, &body)), "accepted");
    let cancelled = server.as_user(2, "POST", "/api/orders/O-2/cancel", None);
    assert_eq!(cancelled.status, 200, "{cancelled:?}");
    until(|| shown("GET flash_sale:result:O-2").as_deref() == Some("2"));
    assert_eq!(server.buy(2, ACTIVITY, "after", 1).status, 202);
    assert_eq!(server.figures(ACTIVITY), [7, 3, 2, 2]);
    let order = server.as_user(1, "GET", "/api/orders/O-1", None).json();
    assert_eq!(order["status"], "paid");
    until(|| reconcile(&server).status.code() == Some(0));
    assert!(server.stop().success());
    let mut server = Server::start_in(scratch.path(), &flags, &env);
    assert_eq!(server.figures(ACTIVITY), [7, 3, 2, 2], "left in the configuration for ever");
    assert!(server.stop().success());
}

#[test]
fn an_unpaid_order_of_the_older_system_times_out_here() {
    let scratch = tempfile::tempdir().unwrap();
    let older = Older::file(scratch.path());
    older.activity(4, 1);
    older.reservation(1, ("ordered", "pending_payment"), 1);
    older.reservation(2, ("ordered", "paid"), 1);
    let mut server = Server::start_in(&scratch.path().join("data"), &older.flags(), &[]);
    until(|| server.figures(ACTIVITY) == [6, 5, 0, 1]);
    let given_back = purchase(&server, 1, 1);
    assert_eq!(
        (&given_back["status"], &given_back["reason"]),
        (&json!("rolled_back"), &json!("timeout"))
    );
    assert_eq!(server.buy(1, ACTIVITY, "again", 1).status, 202);
    assert!(server.stop().success());
}

#[test]
fn reservations_of_keys_alone_come_over_and_the_mirror_takes_the_keys() {
    let scratch = tempfile::tempdir().unwrap();
    let older = Older::file(scratch.path());
    older.activity(9, 2);
    older.reservation(1, ("ordered", "pending_payment"), 3600);
    older.reservation(2, ("preparing", ""), 3600);
    older.reservation(3, ("preparing", ""), 3600);
    let mut valkey = Valkey::start();
    let mut redis = valkey.connect(0);
    for line in [
        "SET flashsale:stock:5 5",
        "SET flashsale:reservation:1 1",
        "SET flashsale:count:5:1 1",
        "SET flashsale:reservation:2 2",
        "SET flashsale:count:5:2 1",
        // No row is left of this one, of two units.
        "SET flashsale:reservation:77 77",
        "SET flashsale:idem:5:9:77 77 EX 1700",
        "SET flashsale:count:5:9 2",
        // Nobody knows whose this is: its unit is not sold.
        "SET flashsale:reservation:78 78",
        "HSET flashsale:idem:5:10:79 no string",
    ] {
        let _: redis::Value = say(&mut redis, line);
    }
    let url = valkey.url(0);
    let flags = [&older.flags()[..], &["--redis", &url]].concat();
    let data_dir = scratch.path().join("data");
    let mut server = Server::start_in(&data_dir, &flags, &[]);
    let told = server.error_with("not taken over");
    assert!(told.contains("flashsale:reservation:78"), "{told}");
    // Nine and the order's; two of one row, two of keys, one of nobody.
    assert_eq!(server.figures(ACTIVITY), [10, 5, 4, 1]);
    assert_eq!(purchase(&server, 9, 77)["quantity"], 2);
    assert_eq!(purchase(&server, 2, 2)["status"], "ordered");
    assert_eq!(purchase(&server, 3, 3)["status"], "rolled_back", "its units were never taken");
    assert_eq!(server.buy(9, ACTIVITY, "more", 1).verdict(), (409, "limit_reached".to_owned()));
    let get = |redis: &mut redis::Connection, key: &str| -> Option<String> {
        say(redis, &format!("GET flashsale:{key}"))
    };
    until(|| get(&mut redis, "reservation:78").is_none());
    assert_eq!(get(&mut redis, "stock:5").as_deref(), Some("5"));
    assert_eq!(get(&mut redis, "reservation:77").as_deref(), Some("77"));
    assert!(server.stop().success());
    let mut server = Server::start_in(&data_dir, &flags, &[]);
    assert_eq!(server.figures(ACTIVITY), [10, 5, 4, 1], "the keys are the mirror's now");
    until(|| reconcile(&server).status.code() == Some(0));
    assert!(server.stop().success());

    // All is here: a cache that is down stops no start. Where units may be taken in it, it does.
    valkey.kill();
    let mut server = Server::start_in(&data_dir, &flags, &[]);
    assert_eq!(server.figures(ACTIVITY), [10, 5, 4, 1]);
    assert!(server.stop().success());
    let (code, said) = refused(&scratch.path().join("fresh"), &flags);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("start its Redis"), "{said}");
}

#[test]
fn what_is_no_older_system_is_refused_in_one_line() {
    let scratch = tempfile::tempdir().unwrap();
    let data_dir = scratch.path().join("data");
    let nowhere = format!("sqlite:{}", scratch.path().join("no.db").display());
    let (code, said) = refused(&data_dir, &["--legacy-database", &nowhere]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("no.db") && said.contains("can't be read"), "{said}");
    assert!(!scratch.path().join("no.db").exists(), "it is only read");
    let (code, said) =
        refused(&data_dir, &["--legacy-database", "mysql://u:hunter2@127.0.0.1:1/older"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(!said.contains("hunter2"), "{said}");
    let older = Older::file(scratch.path());
    older.run("DROP TABLE orders");
    let (code, said) = refused(&data_dir, &older.flags());
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("it has no table orders"), "{said}");
    let mut server = Server::start_in(&scratch.path().join("other"), &[], &[]);
    let id = server.activity(&json!({}));
    assert_eq!(server.buy(1, id, "r", 1).status, 202);
    assert!(server.stop().success());
    let own = format!("sqlite:{}", scratch.path().join("other/orders.db").display());
    let (code, said) = refused(&data_dir, &["--legacy-database", &own]);
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("sluice restore"), "{said}");
}

/// What is over is taken over, too: its activity leaves memory, and with it the numbers that were
/// brought along. SQL knows them.
#[test]
fn what_was_taken_over_is_found_in_sql_once_its_activity_is_archived() {
    let scratch = tempfile::tempdir().unwrap();
    let older = Older::file(scratch.path());
    older.run(&format!(
        "INSERT INTO flashsale_activities VALUES ({ACTIVITY}, 3, 'x', {PRICE}, 4, 1, 'on_sale', \
         1577836800, 1577923200)"
    ));
    older.reservation(1, ("ordered", "paid"), 3600);
    older.reservation(2, ("ordered", "pending_payment"), 3600);
    let data_dir = scratch.path().join("data");
    let flags = [&older.flags()[..], &["--resp-listen", "127.0.0.1:0"]].concat();
    let secrets = format!("mock:{}", provider::MOCK_SECRET);
    let env = [
        ("SLUICE_PAYMENTS__SECRETS", secrets.as_str()),
        ("SLUICE_PAYMENTS__PROVIDERS", "mock=mock:"),
    ];
    let mut server = Server::start_in(&data_dir, &flags, &env);
    let opened = provider::open(&server, 2, &json!("O-2")).json();
    assert_eq!(opened["payment_no"], "O-201");
    assert_eq!(server.as_user(2, "POST", "/api/orders/O-2/cancel", None).status, 200);
    until(|| reconcile(&server).status.code() == Some(0));
    assert!(server.stop().success());
    // The next start finds that it is over.
    let server = Server::start_in(&data_dir, &flags, &env);
    let detail = format!("/api/flashsales/{ACTIVITY}");
    until(|| server.as_user(1, "GET", &detail, None).json()["state"] == "archived");

    let found = purchase(&server, 1, 1);
    assert_eq!((&found["status"], &found["order_no"]), (&json!("ordered"), &json!("O-1")));
    let strangers = server.as_user(2, "GET", "/api/flashsales/purchases/1", None);
    assert_eq!(strangers.code(), "purchase_not_found");
    let path = "/api/flashsales/purchases/3";
    assert_eq!(server.as_user(1, "GET", path, None).code(), "purchase_not_found");
    assert_eq!(provider::open(&server, 1, &json!("O-1")).code(), "already_paid");
    assert_eq!(provider::open(&server, 2, &json!("O-2")).code(), "already_rolled_back");
    assert_eq!(provider::open(&server, 1, &json!("O-2")).code(), "order_not_found");
    let cancelled = server.as_user(2, "POST", "/api/orders/O-2/cancel", None);
    assert_eq!((cancelled.status, &cancelled.json()["reason"]), (200, &json!("cancelled")));
    let released = server.as_admin("POST", "/api/admin/reservations/2/release", None);
    assert_eq!((released.status, &released.json()["status"]), (200, &json!("rolled_back")));
    let payment = server.as_user(2, "GET", "/api/payments/O-201", None);
    assert_eq!((payment.status, &payment.json()["status"]), (200, &json!("pending")));
    let again =
        Client::to(server.resp()).say(&format!("FCALL sluice_reserve 1 {ACTIVITY} 1 r-1 1"));
    assert_eq!(again, Reply::purchase(2, 1, "O-1", 0));

    // Late money goes back by itself; money of nothing that was ever sold is for a person to see.
    for (payment_no, transaction, expected) in
        [("O-201", "t-1", "late"), ("O-201", "t-1", "repeated"), ("O-901", "t-2", "unknown")]
    {
        let body = provider::body(payment_no, transaction, PRICE, "paid");
        assert_eq!(provider::verdict(&provider::call_back(&server, &body)), expected);
    }
    let settled = "SELECT COUNT(*) FROM refunds WHERE order_no = 'O-2' AND status = 'SETTLED'";
    until(|| books::count(&data_dir, settled) == 1);
}
