//! The end of a run: faults stop, everything meets, and the books are compared.

use std::collections::BTreeMap;
use std::rc::Rc;

use bridge::sql::store::Value;
use engine::core::command::Status;
use engine::core::event::RestoreReason;
use engine::core::ids::UserId;

use super::ledger::{Entry, Life};
use super::relations::Row;
use super::shop::{Shop, Stop};
use super::sql;

/// O11: what is open when the faults stop is done within this many batches.
const BATCHES_MAX: u64 = 10_000;

/// Lets everything meet and compares the books.
///
/// # Errors
/// What does not agree.
pub(super) fn meet(shop: &mut Shop) -> Result<(), Stop> {
    shop.sql.set_rates(sql::Rates::default());
    shop.sql.set_down(false);
    for (request, quantity) in std::mem::take(&mut shop.told.in_doubt) {
        shop.ask(request, quantity)?;
    }
    shop.commit(0)?;
    let failures = shop.failures;
    // Each round ends caught up; the marks that it made are the next one's only news.
    for _ in 0..3 {
        shop.follow(BATCHES_MAX, |_| Ok(()))?;
        shop.commit(0)?;
    }
    if shop.sql.power_cut() > 0 {
        return Err(Stop::Wrong(
            "O7: all is told to be in SQL, and a power cut undoes some".into(),
        ));
    }
    if shop.failures != failures {
        return Err(Stop::Wrong("O11: the sink fails though nothing is wrong".into()));
    }
    compare(shop).map_err(Stop::Wrong)?;
    shop.heal_redis()?;
    meet_a_stranger(shop)?;
    compare(shop).map_err(Stop::Wrong)?;
    shop.heal_redis()?;
    let (live, replayed) = shop.digests()?;
    if live != replayed {
        return Err(Stop::Wrong("O9: the log opened anew is another state".into()));
    }
    Ok(())
}

/// Somebody else's row stands where an order belongs: the sink must halt on it, never pass it over,
/// and go on once it is moved aside.
fn meet_a_stranger(shop: &mut Shop) -> Result<(), Stop> {
    super::shoppers::create(shop, 0)?;
    let Some((id, user)) = shop.activities().last().copied().zip(UserId::new(1)) else {
        return Err(Stop::Wrong("no activity was made".into()));
    };
    let request = (user, id, "the last".to_owned());
    shop.ask(request.clone(), 1)?;
    shop.commit(0)?;
    let Some(reservation) = shop.ledger.requests.get(&request) else {
        // The clock of this run is beyond every window.
        return Ok(());
    };
    shop.sql.plant_stranger(&format!("1{:017}", reservation.get()));
    shop.follow(BATCHES_MAX, |_| Ok(()))?;
    if shop.sql.move_stranger_aside() {
        return Err(Stop::Wrong("O4: a stranger's row was passed over".into()));
    }
    for _ in 0..3 {
        shop.follow(BATCHES_MAX, |_| Ok(()))?;
        shop.commit(0)?;
    }
    Ok(())
}

fn compare(shop: &mut Shop) -> Result<(), String> {
    for (request, (id, quantity)) in &shop.told.accepted {
        let entry = shop.ledger.reservations.get(id);
        let same = entry.is_some_and(|entry| {
            (entry.user, entry.activity, &entry.request_id) == (request.0, request.1, &request.2)
                && entry.quantity == *quantity
        });
        if !same {
            return Err(format!("O2: {request:?} was told {id}, the log has {entry:?}"));
        }
    }
    compare_engine(shop)?;
    compare_units(shop)?;
    compare_orders(shop)
}

fn compare_engine(shop: &mut Shop) -> Result<(), String> {
    let engine = shop.engine().map_err(|stop| format!("{stop:?}"))?;
    for (id, entry) in &shop.ledger.reservations {
        let pending = engine.reservation(*id).map_err(|busy| busy.to_string())?;
        let view = pending.wait().map_err(|error| error.to_string())?;
        let status = view.as_ref().map(|view| view.reservation.status);
        let expected = match entry.life {
            Life::Reserved => Status::Reserved,
            Life::Paid | Life::Refunding | Life::Refunded => Status::Confirmed,
            Life::RolledBack(reason) => Status::RolledBack(reason),
        };
        if status != Some(expected) {
            return Err(format!("{id} is {status:?} in the engine, {expected:?} in the log"));
        }
    }
    for view in engine.activities() {
        if shop.ledger.activities.get(&view.id) != Some(&view.figures) {
            return Err(format!("activity {} is {:?} in the engine", view.id, view.figures));
        }
    }
    Ok(())
}

fn by_key(rows: Vec<Rc<Row>>, key: &str) -> BTreeMap<String, Rc<Row>> {
    rows.into_iter().map(|row| (row[key].to_string(), row)).collect()
}

fn compare_units(shop: &Shop) -> Result<(), String> {
    let rows = by_key(shop.sql.rows("flashsale_activities"), "id");
    let mut flows: BTreeMap<String, i64> = BTreeMap::new();
    for flow in shop.sql.rows("stock_flows") {
        let Value::Integer(change) = flow["change_qty"] else {
            return Err("a flow without a number".to_owned());
        };
        *flows.entry(flow["activity_id"].to_string()).or_default() += change;
    }
    for (id, figures) in &shop.ledger.activities {
        let row = rows.get(&id.to_string()).ok_or_else(|| format!("SQL lacks activity {id}"))?;
        let expected = [
            ("stock", figures.available),
            ("locked_stock", figures.locked),
            ("sold_stock", figures.sold),
        ];
        for (column, units) in expected {
            if row[column] != Value::integer(units) {
                return Err(format!("O7: {column} of {id} is {}, not {units}", row[column]));
            }
        }
        let flowed = flows.get(&id.to_string()).copied().unwrap_or(0);
        if flowed != i64::from(figures.available) {
            return Err(format!("O7: the flows of {id} add up to {flowed}, not {figures:?}"));
        }
    }
    if rows.len() == shop.ledger.activities.len() {
        return Ok(());
    }
    Err(format!("O4: SQL has {} activities", rows.len()))
}

fn compare_orders(shop: &Shop) -> Result<(), String> {
    let pre_deductions = by_key(shop.sql.rows("flashsale_pre_deductions"), "id");
    let orders = by_key(shop.sql.rows("orders"), "purchase_slot");
    let items = shop.sql.rows("order_items").len();
    let expected = shop.ledger.reservations.len();
    if pre_deductions.len() != expected {
        return Err(format!("O7: {} of {expected} pre-deductions", pre_deductions.len()));
    }
    if items != orders.len() {
        return Err(format!("O7: {items} items of {} orders", orders.len()));
    }
    let mut ordered = 0;
    for (id, entry) in &shop.ledger.reservations {
        let key = id.get().to_string();
        let row = pre_deductions.get(&key).ok_or_else(|| format!("O7: SQL lacks {id}"))?;
        let order = orders.get(&key);
        ordered += usize::from(order.is_some());
        let (status, order_status) = expected_of(entry, order.is_some());
        if row["status"] != Value::text(status) {
            return Err(format!("O7: {id} is {} in SQL, {entry:?}", row["status"]));
        }
        match order {
            Some(order) if order["status"] != Value::text(order_status) => {
                return Err(format!("O7: the order of {id} is {}, {entry:?}", order["status"]));
            }
            None if !was_dead(entry, shop, *id) => {
                return Err(format!("O7: {id} has no order: {entry:?}"));
            }
            _ => {}
        }
    }
    if ordered == orders.len() { Ok(()) } else { Err("O4: an order of nobody".to_owned()) }
}

/// What SQL must say: the pre-deduction's status, and its order's where it has one.
fn expected_of(entry: &Entry, has_order: bool) -> (&'static str, &'static str) {
    let order = match entry.life {
        Life::Reserved => "pending_payment",
        Life::Paid => "paid",
        Life::Refunding => "refunding",
        Life::Refunded => "refunded",
        Life::RolledBack(RestoreReason::Timeout) => "timeout",
        Life::RolledBack(_) => "cancelled",
    };
    let status = match entry.life {
        Life::RolledBack(_) => "rolled_back",
        _ if entry.is_dead_letter && !has_order => "dead_letter",
        _ => "ordered",
    };
    (status, order)
}

/// Whether no order is right: it was a dead letter.
fn was_dead(entry: &Entry, shop: &Shop, id: engine::core::ids::ReservationId) -> bool {
    let letters = by_key(shop.sql.rows("dead_letters"), "id");
    let is_poison = entry.user.get().is_multiple_of(sql::POISON_EVERY.unsigned_abs());
    is_poison && letters.contains_key(&id.to_string())
}
