//! Rows of the older system, as candidates for adoption: with all that must be known, or with the
//! reason why not.

use engine::core::event::{DeadLetterPolicy, LatePayment, Status};
use engine::core::ids::{ActivityId, SkuId, UserId};
use engine::core::limits::{
    ORDER_NO_BYTES_MAX, PAYMENT_NO_BYTES_MAX, REQUEST_ID_BYTES_MAX, TITLE_BYTES_MAX, UNITS_MAX,
};

use super::cells::{Bad, Cells, shown};
use super::judge::{Marker, Verdict, judge};
use super::units::{Stock, Units};

/// An activity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ActivityRow {
    pub(super) id: ActivityId,
    pub(super) sku: SkuId,
    pub(super) title: String,
    pub(super) price: u64,
    pub(super) stock: Stock,
    pub(super) per_user_limit: u32,
    pub(super) on_sale: bool,
    pub(super) start_ms: u64,
    pub(super) end_ms: u64,
    pub(super) payment_ttl_ms: Option<u64>,
    pub(super) late_payment: LatePayment,
    pub(super) dead_letter: DeadLetterPolicy,
}

/// Reads an activity.
pub(super) fn activity(cells: Cells<'_>) -> Result<ActivityRow, Bad> {
    let id = ActivityId::new(cells.needed("id")?);
    let sku = SkuId::new(cells.needed("sku_id")?);
    let title = cells.text("title")?.unwrap_or_default();
    let limit = cells.number("per_user_limit")?.unwrap_or(1);
    let limit = u32::try_from(limit).ok().filter(|it| (1..=UNITS_MAX).contains(it));
    let instant = |column| -> Result<u64, Bad> {
        cells.instant(column)?.ok_or_else(|| cells.bad(column, "an instant"))
    };
    Ok(ActivityRow {
        id: id.ok_or_else(|| cells.bad("id", "1..=2^53-1"))?,
        sku: sku.ok_or_else(|| cells.bad("sku_id", "1..=2^53-1"))?,
        title: title[..title.floor_char_boundary(TITLE_BYTES_MAX)].to_owned(),
        price: cells.needed("price")?,
        stock: Stock {
            stock: cells.needed("stock")?,
            total: cells.number("total_stock")?,
            locked: cells.number("locked_stock")?,
            sold: cells.number("sold_stock")?,
            redis: None,
        },
        per_user_limit: limit.ok_or_else(|| cells.bad("per_user_limit", "1..=2147483647"))?,
        on_sale: cells.text("status")? == Some("on_sale"),
        start_ms: instant("start_at")?,
        end_ms: instant("end_at")?,
        payment_ttl_ms: cells.number("payment_ttl_ms")?,
        late_payment: match cells.text("late_payment")? {
            Some("refund") => LatePayment::Refund,
            _ => LatePayment::ReinstateOrRefund,
        },
        dead_letter: match cells.text("dead_letter")? {
            Some("hold") => DeadLetterPolicy::Hold,
            _ => DeadLetterPolicy::Rollback,
        },
    })
}

/// An order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct OrderRow {
    pub(super) order_no: String,
    pub(super) user: u64,
    pub(super) activity: u64,
    status: String,
    pub(super) slot: Option<u64>,
    total_amount: Option<u64>,
    payment_no: String,
    pub(super) expire_ms: Option<u64>,
    pub(super) created_ms: Option<u64>,
    updated_ms: Option<u64>,
    /// Units, by its items.
    pub(super) quantity: Option<u64>,
}

/// Reads an order; `None` for one of another kind.
pub(super) fn order(cells: Cells<'_>) -> Result<Option<OrderRow>, Bad> {
    if cells.text("order_type")?.is_some_and(|kind| kind != "seckill") {
        return Ok(None);
    }
    let payment_no = cells.text("payment_no")?.unwrap_or_default();
    let fits = payment_no.len() <= PAYMENT_NO_BYTES_MAX;
    Ok(Some(OrderRow {
        order_no: order_no(cells)?,
        user: cells.needed("user_id")?,
        activity: cells.needed("activity_id")?,
        status: cells.text("status")?.unwrap_or_default().to_owned(),
        slot: cells.number("purchase_slot")?,
        total_amount: cells.number("total_amount")?,
        payment_no: if fits { payment_no } else { "" }.to_owned(),
        expire_ms: cells.instant("expire_at")?,
        created_ms: cells.instant("created_at")?,
        updated_ms: cells.instant("updated_at")?,
        quantity: None,
    }))
}

/// An order number that can stand in a URL and is equal to no other one in any database: empty
/// where there is none.
fn order_no(cells: Cells<'_>) -> Result<String, Bad> {
    let text = cells.text("order_no")?.unwrap_or_default();
    let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic());
    let fits = is_plain && text.len() <= ORDER_NO_BYTES_MAX;
    let expected = "1 to 62 visible ASCII characters";
    fits.then(|| text.to_owned()).ok_or_else(|| cells.bad("order_no", expected))
}

/// A reservation with all that must be known of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Facts {
    /// Its number there, 0 where it has none.
    pub(super) old_id: u64,
    /// Its order number there; may be empty.
    pub(super) order_no: String,
    pub(super) activity: ActivityId,
    pub(super) user: UserId,
    pub(super) quantity: u32,
    /// What one unit, or else all of them, cost.
    pub(super) price: Option<u64>,
    pub(super) total_amount: Option<u64>,
    pub(super) request_id: String,
    pub(super) verdict: Verdict,
    pub(super) created_ms: Option<u64>,
    pub(super) updated_ms: Option<u64>,
    /// When its order was made, and until when it may be paid.
    pub(super) ordered_ms: Option<u64>,
    pub(super) expire_ms: Option<u64>,
    pub(super) payment_no: String,
    /// Given back, but not in Redis yet.
    pub(super) is_owed: bool,
    /// No row is there, only keys.
    pub(super) is_of_keys: bool,
}

impl Facts {
    /// Where its units are.
    pub(super) fn units(&self, is_refused: bool) -> Units {
        units(self.verdict, self.quantity.into(), self.is_owed, is_refused)
    }
}

fn units(verdict: Verdict, quantity: u64, is_owed: bool, is_refused: bool) -> Units {
    Units {
        quantity,
        is_out: verdict.out_of_stock,
        is_held: !matches!(verdict.status, Status::RolledBack(_)),
        is_paid: verdict.status == Status::Confirmed,
        is_refused,
        is_owed,
    }
}

/// Why a row can't be adopted, and where its units are, as far as that can be told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Unfit {
    pub(super) why: String,
    pub(super) units: Option<(ActivityId, Units)>,
}

impl From<String> for Unfit {
    fn from(why: String) -> Self {
        Self { why, units: None }
    }
}

impl From<Bad> for Unfit {
    fn from(bad: Bad) -> Self {
        bad.to_string().into()
    }
}

/// A row that may be adopted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Candidate {
    /// What it is called there.
    pub(super) name: String,
    /// Its number there, where it has one.
    pub(super) number: Option<u64>,
    pub(super) told: Result<Facts, Unfit>,
}

/// Reads the order number of a row, for looking its order up.
pub(super) fn order_no_of(cells: Cells<'_>) -> Option<String> {
    order_no(cells).ok().filter(|it| !it.is_empty())
}

/// A row of `flashsale_pre_deductions` with its order.
pub(super) fn reservation(
    cells: Cells<'_>,
    order: Option<Result<OrderRow, String>>,
    marker: impl FnOnce(u64, u64) -> Marker,
) -> Candidate {
    let name = format!("{} {}", cells.table.name, shown(cells.bytes("id").unwrap_or(b"NULL")));
    let number = cells.number("id").ok().flatten();
    Candidate { name, number, told: facts_of_row(cells, order, marker) }
}

fn facts_of_row(
    cells: Cells<'_>,
    order: Option<Result<OrderRow, String>>,
    marker: impl FnOnce(u64, u64) -> Marker,
) -> Result<Facts, Unfit> {
    let old_id = cells.number("id")?.unwrap_or_default();
    let activity = cells.needed("activity_id")?;
    let order = order.transpose().map_err(|why| format!("its order: {why}"))?;
    let status = cells.text("status")?.unwrap_or_default();
    let reason = cells.text("reason")?;
    let of_order = order.as_ref().map(|it| it.status.as_str());
    let marker = marker(activity, old_id);
    let verdict = judge(Some(status), of_order, reason, marker).ok_or_else(|| {
        let order = of_order.map_or_else(|| "no order".to_owned(), |it| shown(it.as_bytes()));
        format!(
            "status {} with {order} is none that the older system has",
            shown(status.as_bytes())
        )
    })?;
    let is_owed = status == "pending_rollback" && marker != Marker::GivenBack;
    let activity =
        ActivityId::new(activity).ok_or_else(|| cells.bad("activity_id", "1..=2^53-1"))?;
    let quantity = cells.number("quantity")?.unwrap_or(1);
    let amount = u32::try_from(quantity).ok().filter(|it| (1..=UNITS_MAX).contains(it));
    let units = units(verdict, quantity.min(UNITS_MAX.into()), is_owed, true);
    let unfit = |bad: Bad| Unfit { why: bad.to_string(), units: Some((activity, units)) };
    let user = cells.needed("user_id").map_err(unfit)?;
    let user = UserId::new(user).ok_or_else(|| unfit(cells.bad("user_id", "1..=2^53-1")))?;
    let order_no = order_no(cells).map_err(unfit)?;
    if let Some(order) = &order
        && (order.user != user.get() || order.activity != activity.get())
    {
        let why = format!("its order {} is of another buyer or activity", order.order_no);
        return Err(Unfit { why, units: Some((activity, units)) });
    }
    let order_no = match &order {
        Some(order) => order.order_no.clone(),
        None => order_no,
    };
    if old_id == 0 && order_no.is_empty() {
        let why = "it has neither an id nor an order number".to_owned();
        return Err(Unfit { why, units: Some((activity, units)) });
    }
    let request_id = cells.bytes("client_request_id").unwrap_or_default();
    let request_id = std::str::from_utf8(request_id).ok();
    let request_id = request_id.filter(|it| it.len() <= REQUEST_ID_BYTES_MAX);
    let later = |a: Option<u64>, b: Option<u64>| a.max(b);
    let of = order.as_ref();
    Ok(Facts {
        old_id,
        order_no,
        activity,
        user,
        quantity: amount.ok_or_else(|| cells.bad("quantity", "1..=2147483647"))?,
        price: cells.number("price").map_err(unfit)?,
        total_amount: of.and_then(|it| it.total_amount),
        request_id: request_id.unwrap_or_default().to_owned(),
        verdict,
        created_ms: cells.instant("created_at").map_err(unfit)?,
        updated_ms: later(
            cells.instant("updated_at").map_err(unfit)?,
            of.and_then(|it| it.updated_ms),
        ),
        ordered_ms: of.and_then(|it| it.created_ms),
        expire_ms: of.and_then(|it| it.expire_ms),
        payment_no: of.map_or_else(String::new, |it| it.payment_no.clone()),
        is_owed,
        is_of_keys: false,
    })
}

/// An order that no row of `flashsale_pre_deductions` stands for. Its units are those of its items,
/// or follow from its activity's price.
pub(super) fn orphan(order: OrderRow, price: Option<u64>) -> Candidate {
    let name = format!("orders {}", shown(order.order_no.as_bytes()));
    Candidate { name, number: None, told: facts_of_order(order, price) }
}

fn facts_of_order(order: OrderRow, price: Option<u64>) -> Result<Facts, Unfit> {
    let status = &order.status;
    let verdict = judge(None, Some(status), None, Marker::Unknown).ok_or_else(|| {
        format!("status {} is none that the older system has", shown(status.as_bytes()))
    })?;
    let activity = ActivityId::new(order.activity).ok_or("activity_id is none".to_owned())?;
    let by_price = || {
        let (total, price) = (order.total_amount?, price.filter(|it| *it > 0)?);
        total.is_multiple_of(price).then(|| total / price)
    };
    let quantity = order.quantity.or_else(by_price);
    let quantity = quantity.and_then(|it| u32::try_from(it).ok());
    let quantity = quantity.filter(|it| (1..=UNITS_MAX).contains(it));
    let quantity = quantity.ok_or("how many units it is for can't be told".to_owned())?;
    let units = units(verdict, quantity.into(), false, true);
    let unfit = |why: &str| Unfit { why: why.to_owned(), units: Some((activity, units)) };
    let user = UserId::new(order.user).ok_or_else(|| unfit("user_id is none"))?;
    if order.order_no.is_empty() {
        return Err(unfit("it has no order number"));
    }
    Ok(Facts {
        old_id: 0,
        order_no: order.order_no,
        activity,
        user,
        quantity,
        price: None,
        total_amount: order.total_amount,
        request_id: String::new(),
        verdict,
        created_ms: order.created_ms,
        updated_ms: order.updated_ms,
        ordered_ms: order.created_ms,
        expire_ms: order.expire_ms,
        payment_no: order.payment_no,
        is_owed: false,
        is_of_keys: false,
    })
}
