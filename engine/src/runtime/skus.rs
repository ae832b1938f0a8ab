//! One live activity a SKU, where a reader outside names what it reads by SKU.
//!
//! It is no rule of the sale: two activities may sell one SKU. But keys that bear a SKU's name have
//! room for one of them, so a server that writes such keys turns the rule on, and a second live
//! activity is refused wherever it would go on sale: by an operator, by an edit, on schedule.

use std::sync::atomic::Ordering;

use parking_lot::RwLockWriteGuard;

use super::directory::Directory;
use super::engine::Engine;
use crate::core::activity::Activity;
use crate::core::ids::{ActivityId, SkuId};

/// Held from the look at the other activities to the decision, so that two that go on sale at once
/// see each other. Only where the rule is on.
pub(crate) type Turn<'a> = Option<RwLockWriteGuard<'a, Directory>>;

impl Engine {
    /// From now on no second live (published and not ended) activity of a SKU goes on sale.
    pub fn allow_one_live_activity_per_sku(&self) {
        self.inner.one_live_per_sku.store(true, Ordering::Release);
    }

    /// Waits for the turn of whoever puts something on sale.
    pub(crate) fn sale_turn(&self) -> Turn<'_> {
        let is_on = self.inner.one_live_per_sku.load(Ordering::Acquire);
        is_on.then(|| self.inner.directory.write())
    }

    /// Whether the SKU that `id` sells, or would with an edit to `sku`, is another live activity's.
    pub(crate) fn is_sku_taken(&self, turn: &Turn<'_>, id: ActivityId, sku: Option<SkuId>) -> bool {
        if turn.is_none() {
            return false;
        }
        let now_ms = self.now_ms();
        let own = self.peek(id, |it| (it.terms().sku, it.flags().on_sale));
        let Some((own_sku, is_on_sale)) = own else { return false };
        // Publishing again changes nothing; editing what is off sale puts nothing on sale.
        if sku.is_some() != is_on_sale {
            return false;
        }
        let sku = sku.unwrap_or(own_sku);
        self.live_activities().into_iter().filter(|other| *other != id).any(|other| {
            let is_rival = |it: &Activity| {
                it.terms().sku == sku && it.flags().on_sale && it.terms().end_ms >= now_ms
            };
            self.peek(other, is_rival) == Some(true)
        })
    }
}
