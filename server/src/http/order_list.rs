//! `GET /api/orders`: the caller's orders from SQL, and from the engine what SQL has no order of,
//! as one list, the newest first: an accepted purchase is never missing from it.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bridge::sql::queries::{Order, OrderStatus, Window};
use engine::ReservationView;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::input::Params;
use super::json;
use super::openapi::{Api, Operation, Tag};
use super::orders::{OrderJson, order_statuses, pending_status};
use super::problem::Problem;
use crate::app::{App, Shared};
use crate::identity::Caller;

/// Orders of a page.
const PAGE_SIZE: u32 = 20;

/// `?status=&page=`, from 1.
#[derive(JsonSchema, Deserialize)]
#[schemars(rename = "OrderQuery")]
pub(super) struct Wanted {
    #[schemars(extend("enum" = order_statuses()))]
    status: Option<String>,
    /// From 1.
    #[schemars(range(min = 1, max = u32::MAX))]
    page: Option<u32>,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Orders")]
struct ListJson<'a> {
    /// Orders on all pages.
    total: u64,
    page: u32,
    page_size: u32,
    /// SQL does not answer: these are the engine's, without addresses, and without what has left
    /// its memory.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    degraded: bool,
    items: Vec<OrderJson<'a>>,
}

/// The list of them.
pub(super) fn routes() -> Api {
    Api::new().get(
        "/api/orders",
        list,
        Operation::new(Tag::Orders, "listOrders", "The caller's orders, the newest first")
            .about("An accepted purchase is never missing, whether SQL has its order yet or not.")
            .answers::<ListJson<'_>>(200, "A page of them")
            .reads(),
    )
}

/// The caller's orders, newest first.
pub(super) async fn list(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Params(wanted): Params<Wanted>,
) -> Result<Response, Problem> {
    let status = match &wanted.status {
        None => None,
        Some(name) => Some(
            OrderStatus::from_name(name)
                .ok_or_else(|| Problem::invalid("status is no status of an order"))?,
        ),
    };
    let number = wanted.page.unwrap_or(1);
    if number == 0 {
        return Err(Problem::invalid("page starts at 1"));
    }
    let app = shared.app()?;
    // The engine first: what becomes an order meanwhile is then in both, never in neither.
    let mut pending = without_order(app, caller).await?;
    let start = u64::from(number - 1) * u64::from(PAGE_SIZE);
    let window = window(start, pending.len());
    let numbers: Vec<&str> = pending.iter().map(|view| view.order_no.as_str()).collect();
    let asked = app.orders.queries.orders_of(caller.user, status, window, &numbers);
    let Ok(found) = app.orders.breaker.call(asked).await else {
        return list_of_engine(app, caller, status, number).await;
    };
    pending.retain(|view| {
        let of_status = status.is_none_or(|it| it == pending_status(view));
        of_status && !found.known.contains(view.order_no.as_str())
    });
    let titles: Vec<_> =
        pending.iter().map(|view| app.engine.activity(view.reservation.activity)).collect();
    let mut items = Vec::new();
    for place in page(start, window.offset, &found.orders, &pending) {
        items.push(match place {
            Place::Order(index) => OrderJson::from(&found.orders[index]),
            Place::Pending(index) => {
                let title = titles[index].as_ref().map(|activity| &*activity.terms.title);
                OrderJson::pending(&pending[index], title)
            }
        });
    }
    let total = found.total + pending.len() as u64;
    json(&ListJson { total, page: number, page_size: PAGE_SIZE, degraded: false, items })
        .map(IntoResponse::into_response)
}

/// What the engine knows of the caller's orders, the newest first.
async fn list_of_engine(
    app: &App,
    caller: Caller,
    status: Option<OrderStatus>,
    number: u32,
) -> Result<Response, Problem> {
    let mut views: Vec<ReservationView> = Vec::new();
    for pending in app.engine.reservations_of(caller.user)? {
        views.extend(pending.durable().await?);
    }
    views.retain(|view| status.is_none_or(|it| it == pending_status(view)));
    views.sort_by(|left, right| key_of(right).cmp(&key_of(left)));
    let start = u64::from(number - 1) * u64::from(PAGE_SIZE);
    let start = usize::try_from(start).unwrap_or(usize::MAX);
    let shown = views.iter().skip(start).take(PAGE_SIZE as usize);
    let shown: Vec<_> =
        shown.map(|view| (view, app.engine.activity(view.reservation.activity))).collect();
    let items = shown.iter().map(|(view, activity)| {
        OrderJson::pending(view, activity.as_ref().map(|activity| &*activity.terms.title))
    });
    json(&ListJson {
        total: views.len() as u64,
        page: number,
        page_size: PAGE_SIZE,
        degraded: true,
        items: items.collect(),
    })
    .map(IntoResponse::into_response)
}

/// What the caller bought and SQL has no order of, the newest first.
async fn without_order(app: &App, caller: Caller) -> Result<Vec<ReservationView>, Problem> {
    let mut views = Vec::new();
    for of_shard in app.engine.without_order(caller.user)? {
        views.extend(of_shard.durable().await?);
    }
    views.sort_by(|left, right| key_of(right).cmp(&key_of(left)));
    Ok(views)
}

/// What the list is sorted by, descending: an order takes both over from its reservation.
fn key_of(view: &ReservationView) -> (u64, &str) {
    (view.reservation.created_ms, &view.order_no)
}

fn key(order: &Order) -> (u64, &str) {
    (order.created_ms, &order.order_no)
}

/// The rows of SQL that may be on the page from `start` on, wherever `pending` others go between
/// them.
fn window(start: u64, pending: usize) -> Window {
    let pending = u32::try_from(pending).unwrap_or(u32::MAX);
    let offset = start.saturating_sub(u64::from(pending));
    Window { offset, count: PAGE_SIZE.saturating_add(pending) }
}

/// An entry of a page: one of the orders or one of the pending ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Order(usize),
    Pending(usize),
}

/// The page from `start` on of both lists merged; `orders` are SQL's from `offset` on. Both are
/// sorted, the newest first.
fn page(start: u64, offset: u64, orders: &[Order], pending: &[ReservationView]) -> Vec<Place> {
    let newer = |order: &Order| pending.iter().filter(|it| key_of(it) > key(order)).count();
    // Where SQL's rows begin behind the first, those that are newer than the window's first row
    // are on an earlier page.
    let skipped = match orders.first() {
        Some(first) if offset > 0 => newer(first),
        None if offset > 0 => pending.len(),
        _ => 0,
    };
    let mut rank = offset + skipped as u64;
    let mut places = Vec::new();
    let (mut next_order, mut next_pending) = (0, skipped);
    while rank < start + u64::from(PAGE_SIZE) {
        let place = match (orders.get(next_order), pending.get(next_pending)) {
            (Some(order), Some(view)) if key(order) > key_of(view) => Place::Order(next_order),
            (_, Some(_)) => Place::Pending(next_pending),
            (Some(_), None) => Place::Order(next_order),
            (None, None) => break,
        };
        match place {
            Place::Order(_) => next_order += 1,
            Place::Pending(_) => next_pending += 1,
        }
        if rank >= start {
            places.push(place);
        }
        rank += 1;
    }
    places
}

#[cfg(test)]
mod tests {
    use engine::PublicStatus;
    use engine::core::command::Reservation;
    use engine::core::event::Status;
    use engine::core::ids::{ActivityId, ReservationId, SkuId, UserId};

    use super::*;

    fn order(created_ms: u64) -> Order {
        Order {
            order_no: format!("{created_ms:018}"),
            user_id: 1,
            status: OrderStatus::Paid,
            activity_id: 1,
            reservation_id: 1,
            total_amount: 1,
            pay_amount: 1,
            payment_no: None,
            address: None,
            items: Vec::new(),
            paid_ms: None,
            cancelled_ms: None,
            expire_ms: 1,
            created_ms,
            updated_ms: 1,
        }
    }

    fn view(created_ms: u64) -> ReservationView {
        let reservation = Reservation {
            id: ReservationId::new(1).unwrap(),
            activity: ActivityId::new(1).unwrap(),
            user: UserId::new(1).unwrap(),
            sku: SkuId::new(1).unwrap(),
            price: 1,
            quantity: 1,
            status: Status::Reserved,
            created_ms,
            updated_ms: created_ms,
            pay_before_ms: 1,
            payment_no: String::new(),
            remaining: 1,
            shard_seq: 1,
        };
        let order_no = format!("{created_ms:018}").as_str().into();
        ReservationView { reservation, order_no, status: PublicStatus::PendingOrder, refund: None }
    }

    #[test]
    fn every_entry_is_on_exactly_one_page_wherever_the_pending_ones_lie() {
        for orders in [0, 1, 19, 20, 21, 45] {
            for pending in [0, 1, 3, 25] {
                for shift in [0, 1, 40, 1_000] {
                    check(orders, pending, shift);
                }
            }
        }
    }

    /// Orders at even instants, the newest first; pending ones at odd instants around `shift`.
    fn check(orders: u64, pending: u64, shift: u64) {
        let all: Vec<_> = (0..orders).rev().map(|index| order(1_000 + index * 2)).collect();
        let views: Vec<_> =
            (0..pending).rev().map(|index| view(1_001 + shift + index * 2)).collect();
        let mut expected: Vec<u64> = all.iter().map(|it| it.created_ms).collect();
        expected.extend(views.iter().map(|it| it.reservation.created_ms));
        expected.sort_unstable_by(|left, right| right.cmp(left));
        let mut listed = Vec::new();
        for number in 0..6 {
            let start = number * u64::from(PAGE_SIZE);
            let window = window(start, views.len());
            let from = usize::try_from(window.offset).unwrap().min(all.len());
            let to = (from + usize::try_from(window.count).unwrap()).min(all.len());
            let shown = page(start, window.offset, &all[from..to], &views);
            listed.extend(shown.into_iter().map(|place| match place {
                Place::Order(index) => all[from + index].created_ms,
                Place::Pending(index) => views[index].reservation.created_ms,
            }));
        }
        expected.truncate(6 * PAGE_SIZE as usize);
        assert_eq!(listed, expected, "{orders} orders, {pending} pending, {shift}");
    }
}
