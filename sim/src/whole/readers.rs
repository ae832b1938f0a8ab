//! What each event is to the readers of Redis, layout by layout: worked out from the event alone
//! and from what came before it, as a reader of that system would tell it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use bridge::redis::layouts::Layout;
use engine::core::event::{Body, Definition, Event, Figures};
use engine::core::ids::{ActivityId, OrderPrefix, ReservationId, UserId};
use wal::Lsn;

use super::redis::keyspace::{Content, Entry};

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;
const DAY_MS: u64 = 24 * HOUR_MS;

/// An activity as readers know it.
#[derive(Clone, Default)]
struct Sale {
    sku: u64,
    price: u64,
    limit: u32,
    start_ms: u64,
    end_ms: u64,
    is_on_sale: bool,
    is_paused: bool,
    figures: Figures,
}

impl Sale {
    fn define(&mut self, definition: &Definition<'_>) {
        self.sku = definition.sku.get();
        self.price = definition.price;
        self.limit = definition.per_user_limit;
        (self.start_ms, self.end_ms) = (definition.start_ms, definition.end_ms);
    }

    const fn public_until(&self) -> Option<u64> {
        Some(self.end_ms + HOUR_MS)
    }
}

/// A key, and what it is from an event on.
type Told = (String, Option<Entry>);

/// What readers were told so far.
#[derive(Default)]
pub(super) struct Readers {
    layout: Layout,
    sales: BTreeMap<ActivityId, Sale>,
    held: BTreeMap<(ActivityId, UserId), u32>,
    created_ms: BTreeMap<ReservationId, u64>,
    given_back: BTreeSet<ReservationId>,
    /// Where each result's reservation was last given back.
    last_given_back: BTreeMap<String, Lsn>,
    /// Order numbers of what a user holds, by user and SKU.
    bought: BTreeMap<(UserId, u64), BTreeSet<String>>,
}

impl Readers {
    /// Those of a layout.
    pub(super) fn of(layout: Layout) -> Self {
        Self { layout, ..Self::default() }
    }

    /// What all keys of the layout begin with.
    pub(super) const fn prefix(&self) -> &'static str {
        match self.layout {
            Layout::Flashsale | Layout::Cluster => "flashsale:",
            Layout::FlashSale => "flash_sale:",
            Layout::Seckill => "seckill:",
        }
    }

    /// Whether `found` may stand where `due` is at `reached`: an event that opens or closes a dead
    /// letter is passed over where the engine, which is ahead, has given its units back by then, so
    /// that the result stays what it was until the mirror reaches the give-back.
    pub(super) fn is_as_good(
        &self,
        key: &str,
        reached: Lsn,
        found: Option<&Entry>,
        due: Option<&Entry>,
    ) -> bool {
        let is_shown = |it: &&Entry| [0, 1].iter().any(|of| **it == Entry::text(of, it.ends_ms));
        let shown = found.filter(is_shown).zip(due.filter(is_shown));
        let is_passed_over = self.last_given_back.get(key).is_some_and(|lsn| *lsn > reached);
        is_passed_over && shown.is_some_and(|(found, due)| found.ends_ms == due.ends_ms)
    }

    /// Takes an event in; the activity's figures behind it, and the keys that it changes.
    pub(super) fn take(
        &mut self,
        lsn: Lsn,
        event: &Event<'_>,
    ) -> (Option<(ActivityId, Figures)>, Vec<Told>) {
        let moved = self.know(event);
        let mut told = Vec::new();
        if let Body::Restored { reservation, .. } = event.body {
            self.last_given_back.insert(result(reservation), lsn);
        }
        match self.layout {
            Layout::Flashsale | Layout::Cluster => self.flashsale(event, moved, &mut told),
            Layout::FlashSale => self.flash_sale(event, moved, &mut told),
            Layout::Seckill => self.seckill(event, moved, &mut told),
        }
        (moved.and_then(|id| Some((id, self.sales.get(&id)?.figures))), told)
    }

    /// What every layout must know; the activity whose units the event tells.
    fn know(&mut self, event: &Event<'_>) -> Option<ActivityId> {
        let (id, figures) = match event.body {
            Body::ActivityCreated { activity, total, ref definition, .. } => {
                self.sales.entry(activity).or_default().define(definition);
                (activity, Figures { available: total, ..Figures::default() })
            }
            Body::ActivityEdited { activity, figures, ref definition, .. } => {
                self.sales.entry(activity).or_default().define(definition);
                (activity, figures)
            }
            Body::Published { activity, .. } | Body::Unpublished { activity, .. } => {
                let sale = self.sales.entry(activity).or_default();
                sale.is_on_sale = matches!(event.body, Body::Published { .. });
                return None;
            }
            Body::Paused { activity, .. }
            | Body::Drained { activity, .. }
            | Body::Resumed { activity, .. } => {
                let sale = self.sales.entry(activity).or_default();
                sale.is_paused = !matches!(event.body, Body::Resumed { .. });
                return None;
            }
            Body::Restocked { activity, figures, .. }
            | Body::Decreased { activity, figures, .. }
            | Body::Confirmed { activity, figures, .. } => (activity, figures),
            Body::Reserved { activity, reservation, user, quantity, figures, .. } => {
                self.created_ms.insert(reservation, event.at_ms);
                *self.held.entry((activity, user)).or_default() += quantity;
                (activity, figures)
            }
            Body::Restored { activity, reservation, user, quantity, figures, .. } => {
                self.given_back.insert(reservation);
                let held = self.held.entry((activity, user)).or_default();
                *held = held.saturating_sub(quantity);
                (activity, figures)
            }
            Body::Reinstated { activity, reservation, user, quantity, figures, .. } => {
                self.given_back.remove(&reservation);
                *self.held.entry((activity, user)).or_default() += quantity;
                (activity, figures)
            }
            Body::RefundSettled { activity, user, held, figures, .. } => {
                self.held.insert((activity, user), held);
                (activity, figures)
            }
            _ => return None,
        };
        self.sales.entry(id).or_default().figures = figures;
        Some(id)
    }

    fn sale(&self, id: ActivityId) -> Sale {
        self.sales.get(&id).cloned().unwrap_or_default()
    }

    /// The buyer whose held units an event moves, and how many those are now.
    fn holder(&self, body: &Body<'_>) -> Option<(ActivityId, UserId, u32)> {
        match *body {
            Body::Reserved { activity, user, .. }
            | Body::Restored { activity, user, .. }
            | Body::Reinstated { activity, user, .. }
            | Body::RefundSettled { activity, user, .. } => {
                let held = self.held.get(&(activity, user)).copied().unwrap_or_default();
                Some((activity, user, held))
            }
            _ => None,
        }
    }

    /// A key of the layouts `flashsale` and `cluster`, whose activity stands in braces.
    fn key(&self, kind: &str, activity: ActivityId) -> String {
        match self.layout {
            Layout::Cluster => format!("flashsale:{kind}:{{{activity}}}"),
            _ => format!("flashsale:{kind}:{activity}"),
        }
    }

    fn reservation_key(&self, activity: ActivityId, id: ReservationId) -> String {
        match self.layout {
            Layout::Cluster => format!("{}:{id}", self.key("reservation", activity)),
            _ => format!("flashsale:reservation:{id}"),
        }
    }

    fn flashsale(&self, event: &Event<'_>, moved: Option<ActivityId>, told: &mut Vec<Told>) {
        if let Some(id) = moved {
            let sale = self.sale(id);
            let stock = Entry::text(sale.figures.available, sale.public_until());
            told.push((self.key("stock", id), Some(stock)));
        }
        if let Some((id, user, held)) = self.holder(&event.body) {
            let entry = (held > 0).then(|| Entry::text(held, self.sale(id).public_until()));
            told.push((format!("{}:{user}", self.key("count", id)), entry));
        }
        let slot = |activity, user, id: ReservationId| {
            let until = self.created_ms.get(&id).copied().unwrap_or(0) + 30 * MINUTE_MS;
            let key = format!("{}:{user}:{id}", self.key("idem", activity));
            (key, Entry::text(id, Some(until)))
        };
        let mut token = |activity, id: ReservationId, entry| {
            told.push((self.reservation_key(activity, id), entry));
        };
        match event.body {
            Body::Paused { activity, .. } | Body::Drained { activity, .. } => {
                told.push((self.key("pause", activity), Some(Entry::text(1, None))));
            }
            Body::Resumed { activity, .. } | Body::Archived { activity, .. } => {
                told.push((self.key("pause", activity), None));
            }
            Body::Reserved { activity, reservation, user, .. } => {
                token(activity, reservation, Some(Entry::text(reservation, None)));
                let (key, entry) = slot(activity, user, reservation);
                told.push((key, Some(entry)));
            }
            Body::Confirmed { activity, reservation, .. } => token(activity, reservation, None),
            Body::Restored { activity, reservation, user, .. } => {
                let until = Some(event.at_ms + DAY_MS);
                let tombstone = Entry::text(format_args!("rolled_back:{reservation}"), until);
                token(activity, reservation, Some(tombstone));
                told.push((slot(activity, user, reservation).0, None));
            }
            Body::Reinstated { activity, reservation, user, .. } => {
                token(activity, reservation, None);
                let (key, entry) = slot(activity, user, reservation);
                told.push((key, Some(entry)));
            }
            _ => {}
        }
    }

    fn flash_sale(&mut self, event: &Event<'_>, moved: Option<ActivityId>, told: &mut Vec<Told>) {
        if let Some(id) = moved {
            let sale = self.sale(id);
            let Sale { sku, figures, .. } = sale;
            let mut units = |kind: &str, units| {
                let entry = Entry::text(units, sale.public_until());
                told.push((format!("flash_sale:goods:{kind}:{sku}"), Some(entry)));
            };
            units("stock", figures.available);
            units("sold", figures.sold);
        }
        match event.body {
            Body::ActivityCreated { activity, .. } | Body::ActivityEdited { activity, .. } => {
                let sale = self.sale(activity);
                let fields: [(&str, &dyn Display); 6] = [
                    ("GoodsId", &sale.sku),
                    ("ActivityId", &activity),
                    ("Price", &sale.price),
                    ("MaxBuy", &sale.limit),
                    ("StartTime", &(sale.start_ms / 1_000)),
                    ("EndTime", &(sale.end_ms / 1_000)),
                ];
                told.push((
                    format!("flash_sale:goods:info:{}", sale.sku),
                    Some(Entry { content: hash(&fields), ends_ms: sale.public_until() }),
                ));
                let goods = Content::Set([sale.sku.to_string()].into());
                let goods = Entry { content: goods, ends_ms: sale.public_until() };
                told.push((format!("flash_sale:activity:goods:{activity}"), Some(goods)));
            }
            Body::Reserved { activity, reservation, user, .. }
            | Body::Reinstated { activity, reservation, user, .. } => {
                self.buy(activity, user, reservation, true, told);
                let until = self.sale(activity).public_until();
                told.push((result(reservation), Some(Entry::text(1, until))));
            }
            Body::Restored { activity, reservation, user, .. } => {
                self.buy(activity, user, reservation, false, told);
                let until = Some(event.at_ms + DAY_MS).max(self.sale(activity).public_until());
                told.push((result(reservation), Some(Entry::text(2, until))));
            }
            Body::DeadLettered { activity, reservation, .. }
            | Body::DeadLetterResolved { activity, reservation, .. }
                if !self.given_back.contains(&reservation) =>
            {
                let is_open = matches!(event.body, Body::DeadLettered { .. });
                let until = self.sale(activity).public_until();
                let entry = Entry::text(u8::from(!is_open), until);
                told.push((result(reservation), Some(entry)));
            }
            _ => {}
        }
    }

    /// A user of the layout `flash_sale` holds a reservation, or no longer does.
    fn buy(
        &mut self,
        activity: ActivityId,
        user: UserId,
        id: ReservationId,
        is_held: bool,
        told: &mut Vec<Told>,
    ) {
        let sale = self.sale(activity);
        let bought = self.bought.entry((user, sale.sku)).or_default();
        match is_held {
            true => bought.insert(order_no(id)),
            false => bought.remove(&order_no(id)),
        };
        let content = Content::Set(bought.clone());
        let entry = Entry { content, ends_ms: sale.public_until() };
        let entry = (!bought.is_empty()).then_some(entry);
        told.push((format!("flash_sale:user:buy:{user}:{}", sale.sku), entry));
    }

    fn seckill(&self, event: &Event<'_>, moved: Option<ActivityId>, told: &mut Vec<Told>) {
        if let Some(id) = moved {
            let sale = self.sale(id);
            let Sale { sku, figures, .. } = sale;
            let entry = |units: u64| Some(Entry::text(units, sale.public_until()));
            told.push((format!("seckill:stock:{sku}"), entry(figures.available.into())));
            told.push((format!("seckill:stock:total:{sku}"), entry(figures.total())));
        }
        if let Some((id, user, held)) = self.holder(&event.body) {
            let sale = self.sale(id);
            let entry = (held > 0).then(|| Entry::text(1, Some(sale.end_ms + DAY_MS)));
            told.push((format!("seckill:user:{}:{user}", sale.sku), entry));
        }
        if let Body::ActivityCreated { activity, .. }
        | Body::ActivityEdited { activity, .. }
        | Body::Published { activity, .. }
        | Body::Unpublished { activity, .. }
        | Body::Paused { activity, .. }
        | Body::Drained { activity, .. }
        | Body::Resumed { activity, .. } = event.body
        {
            let sale = self.sale(activity);
            let is_open = sale.is_on_sale && !sale.is_paused;
            let fields: [(&str, &dyn Display); 4] = [
                ("startTime", &sale.start_ms),
                ("endTime", &sale.end_ms),
                ("status", if is_open { &"ONGOING" } else { &"INIT" }),
                ("limitPerUser", &sale.limit),
            ];
            let session = Entry { content: hash(&fields), ends_ms: sale.public_until() };
            told.push((format!("seckill:session:{activity}"), Some(session)));
        }
    }
}

fn hash(fields: &[(&str, &dyn Display)]) -> Content {
    let field = |(name, value): &(&str, &dyn Display)| ((*name).to_owned(), value.to_string());
    Content::Hash(fields.iter().map(field).collect())
}

fn order_no(id: ReservationId) -> String {
    OrderPrefix::DEFAULT.order_no(id)
}

fn result(id: ReservationId) -> String {
    format!("flash_sale:result:{}", order_no(id))
}
