//! `flashsale_activities`: one row an activity, with the figures of its last event in the batch.
//!
//! The row is also what the projection knows of an activity: SKU, title, price and time to pay of
//! a reservation are read from it, never assumed, and the units of every event must follow from
//! it. Rows that were touched are kept; after any error all are forgotten, for then memory may be
//! ahead of the database.

use std::collections::HashMap;
use std::sync::Arc;

use engine::core::event::{DeadLetterPolicy, Definition, Figures, LatePayment};
use engine::core::ids::ActivityId;

use super::fault::SinkError;
use super::store::{Lookup, Record, StoreError, Table, Transaction, Value};

/// Activities kept between batches, some 300 bytes each: far more than are on sale at one time.
const ACTIVITIES_KEPT_MAX: usize = 16_384;

/// The columns, in the order of [`Activity::row`].
pub(super) static ACTIVITIES: Table = Table {
    name: "flashsale_activities",
    columns: &[
        "id",
        "ordinal",
        "sku_id",
        "title",
        "price",
        "stock",
        "total_stock",
        "locked_stock",
        "sold_stock",
        "per_user_limit",
        "status",
        "paused",
        "drained",
        "version",
        "start_at",
        "end_at",
        "publish_at",
        "payment_ttl_ms",
        "late_payment",
        "dead_letter",
        "archived_at",
        "created_at",
        "updated_at",
    ],
    key_columns: 1,
};

static ACTIVITIES_BY_ID: Lookup =
    Lookup { columns: ACTIVITIES.columns, from: ACTIVITIES.name, key: "id", part: None };

/// One row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Activity {
    pub(super) id: ActivityId,
    pub(super) ordinal: u32,
    pub(super) sku: u64,
    pub(super) title: Arc<str>,
    pub(super) price: u64,
    pub(super) figures: Figures,
    pub(super) per_user_limit: u32,
    pub(super) on_sale: bool,
    pub(super) paused: bool,
    pub(super) drained: bool,
    pub(super) version: u32,
    pub(super) start_ms: u64,
    pub(super) end_ms: u64,
    pub(super) publish_at_ms: Option<u64>,
    pub(super) payment_ttl_ms: u64,
    pub(super) late_payment: LatePayment,
    pub(super) dead_letter: DeadLetterPolicy,
    pub(super) archived_ms: Option<u64>,
    pub(super) created_ms: u64,
    pub(super) updated_ms: u64,
}

impl Activity {
    /// A new activity, off sale.
    pub(super) fn new(
        id: ActivityId,
        ordinal: u32,
        figures: Figures,
        definition: &Definition<'_>,
        at_ms: u64,
    ) -> Self {
        Self {
            id,
            ordinal,
            sku: definition.sku.get(),
            title: definition.title.into(),
            price: definition.price,
            figures,
            per_user_limit: definition.per_user_limit,
            on_sale: false,
            paused: false,
            drained: false,
            version: 1,
            start_ms: definition.start_ms,
            end_ms: definition.end_ms,
            publish_at_ms: instant_or_never(definition.publish_at_ms),
            payment_ttl_ms: definition.payment_ttl_ms,
            late_payment: definition.late_payment,
            dead_letter: definition.dead_letter,
            archived_ms: None,
            created_ms: at_ms,
            updated_ms: at_ms,
        }
    }

    /// Takes over another definition.
    pub(super) fn define(&mut self, definition: &Definition<'_>) {
        self.sku = definition.sku.get();
        self.title = definition.title.into();
        self.price = definition.price;
        self.per_user_limit = definition.per_user_limit;
        self.start_ms = definition.start_ms;
        self.end_ms = definition.end_ms;
        self.publish_at_ms = instant_or_never(definition.publish_at_ms);
        self.payment_ttl_ms = definition.payment_ttl_ms;
        self.late_payment = definition.late_payment;
        self.dead_letter = definition.dead_letter;
    }

    /// The row, in the order of [`ACTIVITIES`].
    pub(super) fn row(&self) -> [Value<'static>; 23] {
        let Figures { available, locked, sold } = self.figures;
        [
            Value::integer(self.id.get()),
            Value::integer(self.ordinal),
            Value::integer(self.sku),
            Value::text(self.title.to_string()),
            Value::integer(self.price),
            Value::integer(available),
            Value::integer(self.figures.total()),
            Value::integer(locked),
            Value::integer(sold),
            Value::integer(self.per_user_limit),
            Value::text(if self.on_sale { "on_sale" } else { "off_sale" }),
            Value::integer(self.paused),
            Value::integer(self.drained),
            Value::integer(self.version),
            Value::integer(self.start_ms),
            Value::integer(self.end_ms),
            Value::integer_or_null(self.publish_at_ms),
            Value::integer(self.payment_ttl_ms),
            Value::text(late_payment_name(self.late_payment)),
            Value::text(dead_letter_name(self.dead_letter)),
            Value::integer_or_null(self.archived_ms),
            Value::integer(self.created_ms),
            Value::integer(self.updated_ms),
        ]
    }

    fn read(record: &Record) -> Result<Self, StoreError> {
        let units = |index| narrow(record.number(index)?, index);
        let flag = |index| Ok::<_, StoreError>(record.number(index)? != 0);
        Ok(Self {
            id: ActivityId::new(record.number(0)?).ok_or(StoreError::Unreadable { column: 0 })?,
            ordinal: units(1)?,
            sku: record.number(2)?,
            title: record.text(3)?.into(),
            price: record.number(4)?,
            figures: Figures { available: units(5)?, locked: units(7)?, sold: units(8)? },
            per_user_limit: units(9)?,
            on_sale: record.text(10)? == "on_sale",
            paused: flag(11)?,
            drained: flag(12)?,
            version: units(13)?,
            start_ms: record.number(14)?,
            end_ms: record.number(15)?,
            publish_at_ms: record.number_or_null(16)?,
            payment_ttl_ms: record.number(17)?,
            late_payment: named(LatePayment::ALL, late_payment_name, record.text(18)?, 18)?,
            dead_letter: named(DeadLetterPolicy::ALL, dead_letter_name, record.text(19)?, 19)?,
            archived_ms: record.number_or_null(20)?,
            created_ms: record.number(21)?,
            updated_ms: record.number(22)?,
        })
    }
}

/// The activities that the sink knows.
#[derive(Debug, Default)]
pub(super) struct Activities {
    known: HashMap<ActivityId, Activity>,
}

impl Activities {
    /// Forgets everything: memory may be ahead of the database.
    pub(super) fn forget(&mut self) {
        self.known.clear();
    }

    /// Reads those of `ids` that are not known. An id that the database has not stays unknown.
    pub(super) async fn load(
        &mut self,
        ids: impl Iterator<Item = ActivityId>,
        transaction: &mut impl Transaction,
    ) -> Result<(), StoreError> {
        if self.known.len() > ACTIVITIES_KEPT_MAX {
            self.known.clear();
        }
        let mut missing: Vec<u64> =
            ids.filter(|id| !self.known.contains_key(id)).map(ActivityId::get).collect();
        missing.sort_unstable();
        missing.dedup();
        let keys: Vec<_> = missing.into_iter().map(Value::integer).collect();
        for record in transaction.select(&ACTIVITIES_BY_ID, &keys).await? {
            let activity = Activity::read(&record)?;
            self.known.insert(activity.id, activity);
        }
        Ok(())
    }

    /// Adds a new activity. One that exists is not overwritten: the insert of its row tells.
    pub(super) fn insert(&mut self, activity: Activity) {
        self.known.insert(activity.id, activity);
    }

    /// The activity, where it is known.
    pub(super) fn get(&self, id: ActivityId) -> Option<&Activity> {
        self.known.get(&id)
    }

    /// The activity.
    ///
    /// # Errors
    /// Where the database does not have it, though the log goes on with it.
    pub(super) fn get_mut(&mut self, id: ActivityId) -> Result<&mut Activity, SinkError> {
        self.known
            .get_mut(&id)
            .ok_or(SinkError::RowMissing { table: ACTIVITIES.name, id: id.get() })
    }
}

fn instant_or_never(at_ms: u64) -> Option<u64> {
    (at_ms != 0).then_some(at_ms)
}

pub(super) fn late_payment_name(policy: LatePayment) -> &'static str {
    match policy {
        LatePayment::ReinstateOrRefund => "reinstate_or_refund",
        LatePayment::Refund => "refund",
    }
}

pub(super) fn dead_letter_name(policy: DeadLetterPolicy) -> &'static str {
    match policy {
        DeadLetterPolicy::Rollback => "rollback",
        DeadLetterPolicy::Hold => "hold",
    }
}

fn named<T: Copy>(
    all: &[T],
    name: fn(T) -> &'static str,
    text: &str,
    column: usize,
) -> Result<T, StoreError> {
    all.iter().copied().find(|one| name(*one) == text).ok_or(StoreError::Unreadable { column })
}

fn narrow(value: u64, column: usize) -> Result<u32, StoreError> {
    u32::try_from(value).map_err(|_| StoreError::Unreadable { column })
}
