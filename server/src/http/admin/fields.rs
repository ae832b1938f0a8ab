//! The fields of an activity, as operators send them.

use engine::ActivityView;
use engine::core::event::{DeadLetterPolicy, Definition, LatePayment};
use engine::core::limits::{ID_MAX, UNITS_MAX};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};

use super::accounts::TEXT_CHARS_MAX;
use crate::duration;
use crate::http::input::{SkuField, present};
use crate::http::openapi::{length_schema, nullable};
use crate::http::problem::Problem;
use crate::time::Instant;

/// Units a user may hold where nobody says.
const PER_USER_LIMIT_DEFAULT: u32 = 1;

/// Time to pay where nobody says: 10 minutes.
const PAYMENT_TTL_MS_DEFAULT: u64 = 600_000;

/// An activity's fields. An edit leaves what it doesn't name as it is.
#[derive(JsonSchema, Deserialize)]
#[schemars(extend("examples" = [{
    "sku_id": 20001, "title": "A mechanical keyboard", "price": 9900, "stock": 1000,
    "per_user_limit": 1, "start_at": "2026-11-29T12:00:00.000Z",
    "end_at": "2099-11-29T12:00:00.000Z", "payment_ttl": "10m",
}]))]
pub(super) struct ActivityFields {
    #[serde(default, deserialize_with = "present")]
    sku_id: Option<SkuField>,
    #[serde(default, deserialize_with = "present")]
    #[schemars(length(min = 1, max = TEXT_CHARS_MAX))]
    title: Option<String>,
    #[serde(default, deserialize_with = "present")]
    /// Of one unit, in the smallest unit of money.
    #[schemars(range(max = ID_MAX))]
    price: Option<u64>,
    #[serde(default, deserialize_with = "present")]
    /// Units in all.
    #[schemars(range(max = UNITS_MAX))]
    stock: Option<u32>,
    #[serde(default, deserialize_with = "present")]
    /// Units that a user may hold: 1 where it is left out.
    #[schemars(range(min = 1, max = UNITS_MAX))]
    per_user_limit: Option<u32>,
    #[serde(default, deserialize_with = "present")]
    /// The first instant in which it sells.
    start_at: Option<Instant>,
    #[serde(default, deserialize_with = "present")]
    /// The last one.
    end_at: Option<Instant>,
    #[serde(default, deserialize_with = "present")]
    /// Time to pay, 1 s to 30 days: `10m` where it is left out.
    #[schemars(schema_with = "length_schema")]
    payment_ttl: Option<Length>,
    #[serde(default, deserialize_with = "present")]
    /// What becomes of money that comes late.
    late_payment: Option<Late>,
    #[serde(default, deserialize_with = "present")]
    /// What becomes of a purchase that can't become an order.
    dead_letter: Option<Dead>,
    /// When it puts itself on sale; `null` takes a schedule back.
    #[serde(default, deserialize_with = "present")]
    #[schemars(schema_with = "nullable::<Instant>")]
    publish_at: Option<Option<Instant>>,
}

/// `"10m"`
struct Length(u64);

impl<'de> Deserialize<'de> for Length {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        duration::parse_ms(&text).map(Self).ok_or_else(|| {
            serde::de::Error::custom("payment_ttl must be a length of time such as \"10m\"")
        })
    }
}

#[derive(Clone, Copy, JsonSchema, Deserialize)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum Late {
    ReinstateOrRefund,
    Refund,
}

#[derive(Clone, Copy, JsonSchema, Deserialize)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum Dead {
    Rollback,
    Hold,
}

/// A definition that owns its title, and the units that go with it.
pub(super) struct Wanted {
    pub(super) total: u32,
    title: String,
    definition: Definition<'static>,
}

impl Wanted {
    /// The definition, as the engine takes it.
    pub(super) fn definition(&self) -> Definition<'_> {
        Definition { title: &self.title, ..self.definition }
    }
}

impl ActivityFields {
    /// A new activity.
    pub(super) fn create(self) -> Result<Wanted, Problem> {
        Ok(Wanted {
            total: needed(self.stock, "stock is required")?,
            title: named(needed(self.title, "title is required")?)?,
            definition: Definition {
                sku: needed(self.sku_id, "sku_id is required")?.0,
                title: "",
                price: needed(self.price, "price is required")?,
                per_user_limit: self.per_user_limit.unwrap_or(PER_USER_LIMIT_DEFAULT),
                start_ms: needed(self.start_at, "start_at is required")?.0,
                end_ms: needed(self.end_at, "end_at is required")?.0,
                payment_ttl_ms: self.payment_ttl.map_or(PAYMENT_TTL_MS_DEFAULT, |ttl| ttl.0),
                late_payment: self.late_payment.map_or(LatePayment::ReinstateOrRefund, late),
                dead_letter: self.dead_letter.map_or(DeadLetterPolicy::Rollback, dead),
                publish_at_ms: self.publish_at.map_or(0, instant_or_never),
            },
        })
    }

    /// `view` with the named fields changed.
    pub(super) fn edit(self, view: &ActivityView) -> Result<Wanted, Problem> {
        let total =
            u32::try_from(view.total()).map_err(|_| Problem::invalid("stock is required"))?;
        Ok(Wanted {
            total: self.stock.unwrap_or(total),
            title: self.title.map_or_else(|| Ok(view.terms.title.to_string()), named)?,
            definition: Definition {
                sku: self.sku_id.map_or(view.terms.sku, |sku| sku.0),
                title: "",
                price: self.price.unwrap_or(view.terms.price),
                per_user_limit: self.per_user_limit.unwrap_or(view.terms.per_user_limit),
                start_ms: self.start_at.map_or(view.terms.start_ms, |at| at.0),
                end_ms: self.end_at.map_or(view.terms.end_ms, |at| at.0),
                payment_ttl_ms: self.payment_ttl.map_or(view.terms.payment_ttl_ms, |ttl| ttl.0),
                late_payment: self.late_payment.map_or(view.terms.late_payment, late),
                dead_letter: self.dead_letter.map_or(view.terms.dead_letter, dead),
                publish_at_ms: self.publish_at.map_or(view.terms.publish_at_ms, instant_or_never),
            },
        })
    }
}

fn needed<T>(field: Option<T>, missing: &'static str) -> Result<T, Problem> {
    field.ok_or(Problem::invalid(missing))
}

fn named(title: String) -> Result<String, Problem> {
    if title.trim().is_empty() || title.chars().count() > TEXT_CHARS_MAX {
        return Err(Problem::invalid("title must have 1 to 255 characters, not all of them blank"));
    }
    Ok(title)
}

fn instant_or_never(at: Option<Instant>) -> u64 {
    at.map_or(0, |at| at.0)
}

const fn late(late: Late) -> LatePayment {
    match late {
        Late::ReinstateOrRefund => LatePayment::ReinstateOrRefund,
        Late::Refund => LatePayment::Refund,
    }
}

const fn dead(dead: Dead) -> DeadLetterPolicy {
    match dead {
        Dead::Rollback => DeadLetterPolicy::Rollback,
        Dead::Hold => DeadLetterPolicy::Hold,
    }
}
