//! The books of a sale after it: the orders in SQLite, and the figures that `sluice check` finds
//! in the log alone.
#![allow(dead_code, reason = "each test binary uses its own part of the books")]

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{Connection as _, Row as _};

use crate::common::sluice;
use crate::shop::Shop;

/// Orders are waited for this long after the last acceptance.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);

/// An idle log promises its last frame within fractions of a second.
const PROMISE_TIMEOUT: Duration = Duration::from_secs(60);

/// An activity's row of `sluice check`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Checked {
    pub(crate) total: u64,
    pub(crate) available: u64,
    pub(crate) locked: u64,
    pub(crate) sold: u64,
    pub(crate) rolled_back: u64,
    pub(crate) reservations: u64,
}

/// Runs `sluice check`, which must find nothing wrong; the row of `activity`.
pub(crate) fn check(data_dir: &Path, activity: u64) -> Checked {
    let output = sluice(["check", "--data-dir"]).arg(data_dir).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}\n{text}", output.status);
    text.lines()
        .filter_map(|line| {
            let cells: Result<Vec<u64>, _> = line.split_whitespace().map(str::parse).collect();
            cells.ok()
        })
        .find_map(|cells| match cells[..] {
            [id, total, available, locked, sold, rolled_back, reservations] if id == activity => {
                Some(Checked { total, available, locked, sold, rolled_back, reservations })
            }
            _ => None,
        })
        .unwrap_or_else(|| panic!("no row of activity {activity}:\n{text}"))
}

/// The same beside the server that has the log open, where the last frame counts once a later one
/// promises it: waits until the row is `expected`.
pub(crate) fn assert_comes_to(data_dir: &Path, activity: u64, expected: Checked) {
    let deadline = Instant::now() + PROMISE_TIMEOUT;
    while check(data_dir, activity) != expected {
        assert!(Instant::now() < deadline, "{:?}, not {expected:?}", check(data_dir, activity));
    }
}

/// The figures that the admin API shows: total, available, locked, sold. Their sum must be right
/// whenever one looks.
pub(crate) fn figures(shop: &Shop, admin: &str) -> (u64, u64, u64, u64) {
    let body = shop.get(&format!("/api/admin/flashsales/{}", shop.activity), admin);
    let figure = |name: &str| body[name].as_u64().unwrap_or_else(|| panic!("no {name}: {body}"));
    let (total, available) = (figure("total"), figure("available"));
    let (locked, sold) = (figure("locked"), figure("sold"));
    assert_eq!(available + locked + sold, total, "{body}");
    (total, available, locked, sold)
}

/// Waits until the owner of each of `reservations` (id, shopper) is told `ordered`.
pub(crate) fn wait_until_ordered<'a>(
    shop: &Shop,
    reservations: impl IntoIterator<Item = (&'a u64, usize)>,
) {
    let deadline = Instant::now() + DRAIN_TIMEOUT;
    for (id, shopper) in reservations {
        let path = format!("/api/flashsales/purchases/{id}?wait=5s");
        loop {
            let body = shop.get(&path, &shop.tokens[shopper]);
            assert_eq!(body["pre_deduction_id"], Value::from(*id));
            if body["status"] == "ordered" {
                break;
            }
            assert!(Instant::now() < deadline, "no order yet: {body}");
        }
    }
}

/// The order numbers of an activity in SQLite, after checking that order, item and pre-deduction
/// are there together. Read while the server runs: SQLite's own locks see to that.
pub(crate) fn orders(data_dir: &Path, activity: u64) -> BTreeSet<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let options =
            SqliteConnectOptions::new().filename(data_dir.join("orders.db")).read_only(true);
        let mut connection = SqliteConnection::connect_with(&options).await.unwrap();
        let rows = sqlx::query(
            "SELECT o.order_no, (SELECT count(*) FROM order_items i WHERE i.order_no = o.order_no) \
             AS items, p.order_no AS pre_deduction FROM orders o \
             LEFT JOIN flashsale_pre_deductions p ON p.id = o.purchase_slot \
             WHERE o.activity_id = ?",
        )
        .bind(i64::try_from(activity).unwrap())
        .fetch_all(&mut connection)
        .await
        .unwrap();
        let orders: BTreeSet<String> = rows
            .iter()
            .map(|row| {
                let order_no: String = row.get("order_no");
                assert_eq!(row.get::<i64, _>("items"), 1, "items of order {order_no}");
                assert_eq!(row.get::<Option<String>, _>("pre_deduction").as_ref(), Some(&order_no));
                order_no
            })
            .collect();
        assert_eq!(orders.len(), rows.len());
        orders
    })
}

/// How many rows `query` counts in SQLite.
pub(crate) fn count(data_dir: &Path, query: &'static str) -> i64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let options =
            SqliteConnectOptions::new().filename(data_dir.join("orders.db")).read_only(true);
        let mut connection = SqliteConnection::connect_with(&options).await.unwrap();
        sqlx::query_scalar(query).fetch_one(&mut connection).await.unwrap()
    })
}
