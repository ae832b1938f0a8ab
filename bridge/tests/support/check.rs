//! SQL must say what the engine says: every reservation one order, every give-back once.

use std::collections::{BTreeMap, BTreeSet};

use bridge::sql::store::{Record, Value};
use engine::core::command::Status;
use engine::core::event::RestoreReason;
use engine::core::side::RefundStatus;

use super::history::{History, shard_of};
use super::place::{Place, integers};

/// Compares a database that was filled from a snapshot with the engine's state after `history`.
pub async fn assert_filled(place: &Place, history: &History) {
    check_reservations(place, history, false).await;
    check_units(place, history).await;
    check_sums(place, history).await;
    let operations: usize = history
        .shards
        .iter()
        .flat_map(|shard| shard.activities())
        .map(|(_, activity)| activity.operations().count())
        .sum();
    for (sql, expected) in [
        (
            "SELECT COUNT(*) FROM stock_flows WHERE biz_type IN ('restock', 'decrease')",
            operations as u64,
        ),
        ("SELECT COUNT(*) FROM payments", history.counts.payments),
        ("SELECT COUNT(*) FROM bridge_cursor", 1),
    ] {
        assert_eq!(place.number(sql).await, expected, "{sql}");
    }
    check_refunds(place, history).await;
}

/// Every refund has one row, which says how far it is.
async fn check_refunds(place: &Place, history: &History) {
    let rows = place.rows("SELECT order_no, refund_no, status FROM refunds").await;
    let text = |row: &Record, index| row.text(index).unwrap().to_owned();
    let rows: BTreeSet<_> =
        rows.iter().map(|row| (text(row, 0), text(row, 1), text(row, 2))).collect();
    let mut expected = BTreeSet::new();
    for (activity, id) in &history.reservations {
        let of = history.shards[shard_of(*activity)].activity(*activity).unwrap();
        for (refund_no, refund) in of.refunds_of(*id) {
            let status = match refund.status {
                RefundStatus::Requested => "PENDING",
                RefundStatus::Settled => "SETTLED",
                RefundStatus::Failed => "FAILED",
            };
            expected.insert((
                format!("1{:017}", id.get()),
                refund_no.to_owned(),
                status.to_owned(),
            ));
        }
    }
    assert_eq!(rows, expected);
}

/// The flows of an activity add up to its stock.
async fn check_sums(place: &Place, history: &History) {
    let sums = numbers(
        place,
        "SELECT activity_id, CAST(SUM(change_qty) AS SIGNED) FROM stock_flows \
         GROUP BY activity_id",
    )
    .await;
    let sums: BTreeMap<i64, i64> = sums.into_iter().map(|row| (row[0], row[1])).collect();
    for shard in &history.shards {
        for (id, activity) in shard.activities() {
            let available = i64::from(activity.figures().available);
            assert_eq!(sums[&i64::try_from(id.get()).unwrap()], available, "{id}");
        }
    }
}

/// Compares the database at `place` with the engine's state after `history`.
pub async fn assert_projected(place: &Place, history: &History) {
    check_reservations(place, history, true).await;
    check_units(place, history).await;
    check_flows(place, history).await;
    let counts = &history.counts;
    for (sql, expected) in [
        ("SELECT COUNT(*) FROM stock_flows WHERE biz_type = 'restore'", counts.restored),
        ("SELECT COUNT(*) FROM stock_flows WHERE biz_type = 'reinstate'", counts.reinstated),
        ("SELECT COUNT(*) FROM audit", counts.audit),
        ("SELECT COUNT(*) FROM payment_callbacks", counts.callbacks),
        ("SELECT COUNT(*) FROM payments", counts.payments),
    ] {
        assert_eq!(place.number(sql).await, expected, "{sql}");
    }
}

async fn check_reservations(place: &Place, history: &History, has_requests: bool) {
    let rows = place
        .rows(
            "SELECT p.id, p.status, p.reason, o.status, o.user_activity_key, o.total_amount, \
             o.order_no, i.amount, p.rolled_back_at, o.paid_at, p.request_hash, \
             p.client_request_id, d.status, d.order_status \
             FROM flashsale_pre_deductions p LEFT JOIN orders o ON o.order_no = p.order_no \
             LEFT JOIN order_items i ON i.order_no = o.order_no \
             LEFT JOIN dead_letters d ON d.id = p.id ORDER BY p.id",
        )
        .await;
    let reservations = history.reservations.len() as u64;
    let dead = (history.dead.len() + history.without_order.len()) as u64;
    for (table, expected) in [
        ("SELECT COUNT(*) FROM flashsale_pre_deductions", reservations),
        ("SELECT COUNT(*) FROM orders", reservations - dead),
        ("SELECT COUNT(*) FROM order_items", reservations - dead),
    ] {
        assert_eq!(place.number(table).await, expected, "{table}");
    }
    let by_id: BTreeMap<u64, _> = rows.iter().map(|row| (row.number(0).unwrap(), row)).collect();
    for (activity, id) in &history.reservations {
        let it = history.reservation(*activity, *id);
        let row = by_id[&id.get()];
        if history.without_order.contains(id) || history.dead.contains(&(*activity, *id)) {
            check_dead_letter(row, it.status, history.dead.contains(&(*activity, *id)));
            continue;
        }
        let (status, order_status) = (row.text(1).unwrap(), row.text(3).unwrap());
        let (reason, key) = (row.text_or_null(2).unwrap(), row.text_or_null(4).unwrap());
        let full_key = format!("{}:{activity}:{id}", it.user);
        let amount = it.price * u64::from(it.quantity);
        assert_eq!(row.number(5).unwrap(), amount);
        assert_eq!(row.number(7).unwrap(), amount);
        assert_eq!(row.text(6).unwrap(), format!("1{:017}", id.get()));
        let of = history.shards[shard_of(*activity)].activity(*activity).unwrap();
        assert_eq!(row.bytes(10).unwrap(), of.slot(*id).unwrap().request_hash().to_le_bytes());
        if has_requests || row.0[11] != Value::Null {
            let request_id = std::str::from_utf8(row.bytes(11).unwrap()).unwrap();
            let hash = history.shards[0].requests().hash(request_id).to_le_bytes();
            assert_eq!(row.bytes(10).unwrap(), hash);
        }
        match it.status {
            Status::Reserved => {
                assert_eq!((status, order_status), ("ordered", "pending_payment"));
                assert_eq!((reason, key), (None, Some(full_key.as_str())));
            }
            Status::Confirmed => {
                assert_eq!((status, reason), ("ordered", None));
                assert!(["paid", "refunding", "refunded"].contains(&order_status));
                assert!(order_status == "refunded" || key == Some(full_key.as_str()));
                assert!(row.0[9] != Value::Null);
            }
            Status::RolledBack(why) => {
                let expected = match why {
                    RestoreReason::Timeout => ("timeout", "timeout"),
                    RestoreReason::Cancelled => ("cancelled", "cancelled"),
                    _ => ("admin", "cancelled"),
                };
                assert_eq!((reason.unwrap(), order_status), expected);
                assert_eq!((status, key), ("rolled_back", None));
                assert!(row.0[8] != Value::Null);
            }
        }
    }
}

/// A dead letter has no order, and says what its order would be.
fn check_dead_letter(row: &Record, status: Status, is_open: bool) {
    assert_eq!(row.text_or_null(3).unwrap(), None, "it has no order: {row:?}");
    let held = matches!(status, Status::Reserved | Status::Confirmed);
    let names = (row.text(1).unwrap(), row.text(12).unwrap(), row.text(13).unwrap());
    match status {
        Status::Reserved => assert_eq!(names, ("dead_letter", "open", "pending_payment")),
        Status::Confirmed => {
            assert_eq!((names.0, names.1), ("dead_letter", "open"));
            assert!(["paid", "refunding", "refunded"].contains(&names.2));
        }
        Status::RolledBack(_) => assert_eq!((names.0, names.1), ("rolled_back", "rolled_back")),
    }
    assert!(is_open == held || !held, "{row:?}");
}

async fn numbers(place: &Place, sql: &str) -> Vec<Vec<i64>> {
    place.rows(sql).await.iter().map(integers).collect()
}

async fn check_units(place: &Place, history: &History) {
    let rows = numbers(
        place,
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
async fn check_flows(place: &Place, history: &History) {
    let flows = numbers(
        place,
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
