//! An activity's definition, owned.

use std::sync::Arc;

use super::event::{DeadLetterPolicy, Definition, LatePayment};
use super::ids::SkuId;

/// What a [`Definition`] says, kept. Shared with whoever shows it; an edit makes a new one.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the fields are those of `Definition`, documented there")]
pub struct Terms {
    pub sku: SkuId,
    pub title: Arc<str>,
    pub price: u64,
    pub per_user_limit: u32,
    pub start_ms: u64,
    pub end_ms: u64,
    pub payment_ttl_ms: u64,
    pub late_payment: LatePayment,
    pub dead_letter: DeadLetterPolicy,
    pub publish_at_ms: u64,
}

impl Terms {
    pub(super) fn new(definition: &Definition<'_>) -> Self {
        let Definition {
            sku,
            title,
            price,
            per_user_limit,
            start_ms,
            end_ms,
            payment_ttl_ms,
            late_payment,
            dead_letter,
            publish_at_ms,
        } = *definition;
        Self {
            sku,
            title: title.into(),
            price,
            per_user_limit,
            start_ms,
            end_ms,
            payment_ttl_ms,
            late_payment,
            dead_letter,
            publish_at_ms,
        }
    }

    /// The definition, borrowed.
    pub fn definition(&self) -> Definition<'_> {
        Definition {
            sku: self.sku,
            title: &self.title,
            price: self.price,
            per_user_limit: self.per_user_limit,
            start_ms: self.start_ms,
            end_ms: self.end_ms,
            payment_ttl_ms: self.payment_ttl_ms,
            late_payment: self.late_payment,
            dead_letter: self.dead_letter,
            publish_at_ms: self.publish_at_ms,
        }
    }
}
