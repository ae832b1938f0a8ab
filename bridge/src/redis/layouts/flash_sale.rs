//! Keys for readers of the system whose keys begin with `flash_sale:`.
//!
//! | key | value |
//! |---|---|
//! | `flash_sale:goods:stock:<sku>` | units available |
//! | `flash_sale:goods:sold:<sku>` | units paid |
//! | `flash_sale:goods:info:<sku>` | hash: the SKU's terms, times in seconds |
//! | `flash_sale:user:buy:<user>:<sku>` | set: the order numbers of what the user holds |
//! | `flash_sale:activity:goods:<activity>` | set: the SKU |
//! | `flash_sale:result:<order_no>` | `1` accepted, `0` a dead letter, `2` given back |
//!
//! All end an hour after the sale, a result of what was given back a day after that.

use engine::core::event::Status;
use engine::core::ids::{ActivityId, OrderPrefix, ReservationId};

use super::{DAY_MS, HOUR_MS, Known, Reserved, Subject, decimal};
use crate::redis::writes::{Part, Write, Writes};

/// Digits of an order number behind the site's prefix.
const ORDER_ID_DIGITS: usize = 17;

fn until(it: &Known) -> u64 {
    it.end_ms.saturating_add(HOUR_MS)
}

/// What units ask for.
pub fn units(it: &Known, out: &mut Writes) {
    out.text(format!("flash_sale:goods:stock:{}", it.sku), it.figures.available, Some(until(it)));
    out.text(format!("flash_sale:goods:sold:{}", it.sku), it.figures.sold, Some(until(it)));
}

/// What an activity as such asks for.
pub fn activity(it: &Known, out: &mut Writes) {
    units(it, out);
    let fields = vec![
        ("GoodsId", it.sku.to_string()),
        ("ActivityId", it.id.to_string()),
        ("Price", it.price.to_string()),
        ("MaxBuy", it.per_user_limit.to_string()),
        ("StartTime", (it.start_ms / 1000).to_string()),
        ("EndTime", (it.end_ms / 1000).to_string()),
    ];
    let info = Write::Hash { fields, ends_ms: Some(until(it)) };
    out.put(format!("flash_sale:goods:info:{}", it.sku), info);
    let goods = format!("flash_sale:activity:goods:{}", it.id);
    out.part(goods, it.sku.to_string(), Part::Member(until(it)));
}

/// What a reservation asks for.
pub fn reservation(it: &Known, reserved: &Reserved, prefix: OrderPrefix, out: &mut Writes) {
    let brought = reserved.order_no.as_deref().map(str::to_owned);
    let order_no = brought.unwrap_or_else(|| prefix.order_no(reserved.id));
    let bought = format!("flash_sale:user:buy:{}:{}", reserved.user, it.sku);
    let result = format!("flash_sale:result:{order_no}");
    if let Status::RolledBack(_) = reserved.status {
        out.part(bought, order_no, Part::NoMember);
        let ends_ms = reserved.updated_ms.saturating_add(DAY_MS);
        out.text(result, 2, Some(ends_ms.max(until(it))));
    } else {
        out.part(bought, order_no, Part::Member(until(it)));
        out.text(result, u8::from(!reserved.is_dead_letter), Some(until(it)));
    }
}

/// The order number in a key's name. A number that was brought along from elsewhere may look like
/// one of this site's: whose it is, the engine must say before [`subject`] may.
pub(in crate::redis) fn order_no(key: &str) -> Option<&str> {
    key.strip_prefix("flash_sale:result:")
}

/// What a key is about.
pub(super) fn subject(key: &str) -> Option<Subject> {
    let rest = key.strip_prefix("flash_sale:")?;
    let (kind, name) = rest.rsplit_once(':')?;
    match kind {
        "goods:stock" | "goods:sold" | "goods:info" => decimal(name).map(Subject::Sku),
        "activity:goods" => decimal(name).and_then(ActivityId::new).map(Subject::Activity),
        "result" => {
            let at = name.len().checked_sub(ORDER_ID_DIGITS).filter(|at| (1..=3).contains(at))?;
            let digits = name.get(at..)?.trim_start_matches('0');
            decimal(digits).and_then(ReservationId::new).map(Subject::Reservation)
        }
        _ => {
            let user = decimal(kind.strip_prefix("user:buy:")?)?;
            let user = engine::core::ids::UserId::new(user)?;
            decimal(name).map(|sku| Subject::UserOfSku(sku, user))
        }
    }
}
