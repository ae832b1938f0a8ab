//! What operators do, through the engine.

use wal::Busy;

use super::engine::Engine;
use super::pending::Pending;
use super::views::ActivityView;
use crate::core::command::{Answer, Command, Refusal};
use crate::core::event::{Actor, Definition};
use crate::core::ids::ActivityId;

/// The activity after the command, or why nothing changed.
type Answered = Result<Pending<Result<ActivityView, Refusal>>, Busy>;

impl Engine {
    /// Makes an activity, off sale: with `id`, or with one that the engine gives.
    ///
    /// # Errors
    /// [`Busy`]: nothing was decided, as for all commands.
    pub fn create(
        &self,
        id: Option<ActivityId>,
        actor: Actor<'_>,
        total: u32,
        definition: Definition<'_>,
    ) -> Answered {
        // Held over the decision: an ordinal is given once, and none is burned by a refusal.
        let mut directory = self.inner.directory.write();
        let id = id.or_else(|| directory.next_activity());
        let (Some(id), Some(ordinal)) = (id, directory.next_ordinal()) else {
            return self.refused(0, Refusal::OrdinalsExhausted);
        };
        let mut accepted = None;
        let command = Command::Create { actor, ordinal, total, definition };
        let pending = self.run(id, &command, |shard, _| {
            accepted = Some(shard.for_sale(id, self.inner.clock.now_ms()));
            shard.activity(id).map(|activity| ActivityView::live(id, activity))
        })?;
        if let Some(for_sale) = accepted {
            assert!(directory.insert(ordinal, id), "ordinal {} is given twice", ordinal.get());
            self.inner.provisions.expect(id, for_sale);
        }
        Ok(pending.map(|told| told?.ok_or(Refusal::UnknownActivity)))
    }

    /// Changes the definition and, where `total` differs, the units. With `version`, only the one
    /// the caller saw.
    ///
    /// # Errors
    /// [`Busy`].
    pub fn edit(
        &self,
        id: ActivityId,
        actor: Actor<'_>,
        version: Option<u32>,
        total: u32,
        definition: Definition<'_>,
    ) -> Answered {
        let turn = self.sale_turn();
        if self.is_sku_taken(&turn, id, Some(definition.sku)) {
            return self.refused(self.shard_index(id), Refusal::SkuOnSale);
        }
        self.operate(id, &Command::Edit { actor, version, total, definition })
    }

    /// Puts it on sale.
    ///
    /// # Errors
    /// [`Busy`].
    pub fn publish(&self, id: ActivityId, actor: Actor<'_>) -> Answered {
        let turn = self.sale_turn();
        if self.is_sku_taken(&turn, id, None) {
            return self.refused(self.shard_index(id), Refusal::SkuOnSale);
        }
        self.operate(id, &Command::Publish { actor })
    }

    /// Takes it off sale, and off its schedule; reservations live on.
    ///
    /// # Errors
    /// [`Busy`].
    pub fn unpublish(&self, id: ActivityId, actor: Actor<'_>) -> Answered {
        self.operate(id, &Command::Unpublish { actor })
    }

    /// Stops new purchases.
    ///
    /// # Errors
    /// [`Busy`].
    pub fn pause(&self, id: ActivityId, actor: Actor<'_>) -> Answered {
        self.operate(id, &Command::Pause { actor })
    }

    /// Lifts a pause and a drain.
    ///
    /// # Errors
    /// [`Busy`].
    pub fn resume(&self, id: ActivityId, actor: Actor<'_>) -> Answered {
        self.operate(id, &Command::Resume { actor })
    }

    /// Stops new purchases for good.
    ///
    /// # Errors
    /// [`Busy`].
    pub fn drain(&self, id: ActivityId, actor: Actor<'_>) -> Answered {
        self.operate(id, &Command::Drain { actor })
    }

    /// Adds units, once per `op`.
    ///
    /// # Errors
    /// [`Busy`].
    pub fn restock(&self, id: ActivityId, actor: Actor<'_>, op: &str, quantity: u32) -> Answered {
        self.operate(id, &Command::Restock { actor, op, quantity })
    }

    /// Takes free units away, once per `op`.
    ///
    /// # Errors
    /// [`Busy`].
    pub fn decrease(&self, id: ActivityId, actor: Actor<'_>, op: &str, quantity: u32) -> Answered {
        self.operate(id, &Command::Decrease { actor, op, quantity })
    }

    fn operate(&self, id: ActivityId, command: &Command<'_>) -> Answered {
        let mut for_sale = 0;
        let pending = self.run(id, command, |shard, before| {
            let mut view = ActivityView::live(id, shard.activity(id)?);
            // The same key again: the figures as they were answered then, on what is there now.
            if let Some(Answer::Activity(then)) = before {
                view.figures = then.figures;
                view.version = then.version;
            }
            for_sale = shard.for_sale(id, self.inner.clock.now_ms());
            Some(view)
        })?;
        if matches!(command, Command::Edit { .. } | Command::Restock { .. }) {
            self.inner.provisions.expect(id, for_sale);
        }
        Ok(pending.map(|told| told?.ok_or(Refusal::UnknownActivity)))
    }
}
