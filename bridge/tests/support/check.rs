//! SQL must say what the engine says: every reservation one order, every give-back once.

use std::collections::BTreeMap;
use std::path::Path;

use engine::core::command::Status;
use engine::core::event::RestoreReason;
use sqlx::{Connection as _, Row as _, SqliteConnection};

use super::faults::url;
use super::history::{History, shard_of};

async fn numbers(connection: &mut SqliteConnection, sql: &'static str) -> Vec<Vec<i64>> {
    let rows = sqlx::query(sql).fetch_all(connection).await.unwrap();
    rows.iter().map(|row| (0..row.len()).map(|index| row.get(index)).collect()).collect()
}

async fn number(connection: &mut SqliteConnection, sql: &'static str) -> u64 {
    u64::try_from(numbers(connection, sql).await[0][0]).unwrap()
}

/// Compares the database at `path` with the engine's state after `history`.
pub async fn assert_projected(path: &Path, history: &History) {
    let mut connection = SqliteConnection::connect(&url(path)).await.unwrap();
    check_reservations(&mut connection, history).await;
    check_units(&mut connection, history).await;
    check_flows(&mut connection, history).await;
    let counts = &history.counts;
    for (sql, expected) in [
        ("SELECT COUNT(*) FROM stock_flows WHERE biz_type = 'restore'", counts.restored),
        ("SELECT COUNT(*) FROM stock_flows WHERE biz_type = 'reinstate'", counts.reinstated),
        ("SELECT COUNT(*) FROM audit", counts.audit),
        ("SELECT COUNT(*) FROM payment_callbacks", counts.callbacks),
        ("SELECT COUNT(*) FROM payments", counts.payments),
    ] {
        assert_eq!(number(&mut connection, sql).await, expected, "{sql}");
    }
    connection.close().await.unwrap();
}

async fn check_reservations(connection: &mut SqliteConnection, history: &History) {
    let rows = sqlx::query(
        "SELECT p.id, p.status, p.reason, p.quantity, o.status AS order_status, \
         o.user_activity_key, o.total_amount, o.order_no, i.amount, p.rolled_back_at, o.paid_at, \
         p.request_hash, p.client_request_id, \
         (SELECT restock FROM refunds r WHERE r.order_no = o.order_no AND r.status = 'SETTLED') \
         FROM flashsale_pre_deductions p JOIN orders o ON o.order_no = p.order_no \
         JOIN order_items i ON i.order_no = o.order_no ORDER BY p.id",
    )
    .fetch_all(&mut *connection)
    .await
    .unwrap();
    for table in [
        "SELECT COUNT(*) FROM flashsale_pre_deductions",
        "SELECT COUNT(*) FROM orders",
        "SELECT COUNT(*) FROM order_items",
    ] {
        let count = number(connection, table).await;
        assert_eq!(count, history.reservations.len() as u64, "{table}");
    }
    let by_id: BTreeMap<i64, _> = rows.iter().map(|row| (row.get::<i64, _>("id"), row)).collect();
    for (activity, id) in &history.reservations {
        let it = history.reservation(*activity, *id);
        let row = by_id[&i64::try_from(id.get()).unwrap()];
        let status: &str = row.get("status");
        let order_status: &str = row.get("order_status");
        let reason: Option<&str> = row.get("reason");
        let key: Option<&str> = row.get("user_activity_key");
        let full_key = format!("{}:{activity}:{id}", it.user);
        let amount = i64::try_from(it.price * u64::from(it.quantity)).unwrap();
        assert_eq!(row.get::<i64, _>("total_amount"), amount);
        assert_eq!(row.get::<i64, _>("amount"), amount);
        assert_eq!(row.get::<&str, _>("order_no"), format!("1{:017}", id.get()));
        let request_id = row.get::<Vec<u8>, _>("client_request_id");
        let request_id = std::str::from_utf8(&request_id).unwrap();
        let hash = history.shards[0].requests().hash(request_id).to_le_bytes().to_vec();
        assert_eq!(row.get::<Vec<u8>, _>("request_hash"), hash);
        match it.status {
            Status::Reserved => {
                assert_eq!((status, order_status), ("ordered", "pending_payment"));
                assert_eq!((reason, key), (None, Some(full_key.as_str())));
            }
            Status::Confirmed => {
                assert_eq!((status, reason), ("ordered", None));
                assert!(["paid", "refunding", "refunded"].contains(&order_status));
                assert!(order_status == "refunded" || key == Some(full_key.as_str()));
                assert!(row.get::<Option<i64>, _>("paid_at").is_some());
            }
            Status::RolledBack(why) => {
                let expected = match why {
                    RestoreReason::Timeout => ("timeout", "timeout"),
                    RestoreReason::Cancelled => ("cancelled", "cancelled"),
                    _ => ("admin", "cancelled"),
                };
                assert_eq!((reason.unwrap(), order_status), expected);
                assert_eq!((status, key), ("rolled_back", None));
                assert!(row.get::<Option<i64>, _>("rolled_back_at").is_some());
            }
        }
    }
}

async fn check_units(connection: &mut SqliteConnection, history: &History) {
    let rows = numbers(
        connection,
        "SELECT id, stock, locked_stock, sold_stock, total_stock, status = 'on_sale', paused, \
         version FROM flashsale_activities ORDER BY id",
    )
    .await;
    let mut expected = Vec::new();
    for shard in &history.shards {
        for (id, activity) in shard.activities() {
            let (figures, flags) = (activity.figures(), activity.flags());
            let units = [figures.available, figures.locked, figures.sold].map(i64::from);
            let mut row = vec![i64::try_from(id.get()).unwrap()];
            row.extend(units);
            row.push(units.iter().sum());
            let state = [u32::from(flags.on_sale), u32::from(flags.paused), activity.version()];
            row.extend(state.map(i64::from));
            assert_eq!(shard_of(id), usize::try_from(id.get() % 2).unwrap());
            expected.push(row);
        }
    }
    expected.sort();
    assert_eq!(rows, expected);
}

/// The flows of an activity are one chain that ends at its stock.
async fn check_flows(connection: &mut SqliteConnection, history: &History) {
    let flows = numbers(
        connection,
        "SELECT activity_id, before_qty, change_qty, after_qty FROM stock_flows ORDER BY flow_no",
    )
    .await;
    let mut stock: BTreeMap<i64, i64> = BTreeMap::new();
    for flow in flows {
        let before = stock.entry(flow[0]).or_insert(0);
        assert_eq!(*before, flow[1], "{flow:?} follows the one before");
        *before = flow[3];
    }
    for shard in &history.shards {
        for (id, activity) in shard.activities() {
            let available = i64::from(activity.figures().available);
            assert_eq!(stock[&i64::try_from(id.get()).unwrap()], available);
        }
    }
}
