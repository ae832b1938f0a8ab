//! An activity as the mirror knows it, at its cursor.
//!
//! Events of purchases don't repeat the definition that they rest on, and the engine's own is ahead
//! of the cursor. So what keys need of an activity stands in Redis, in the mirror's own hash, and
//! moves in the same call as the cursor.

use engine::core::activity::{Activity, Flags};
use engine::core::event::{Definition, Figures};
use engine::core::ids::{ActivityId, Ordinal, SkuId};

/// An activity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the fields are those of the engine's types, documented there")]
pub struct Known {
    pub id: ActivityId,
    pub ordinal: Ordinal,
    pub sku: SkuId,
    pub price: u64,
    pub per_user_limit: u32,
    pub start_ms: u64,
    pub end_ms: u64,
    pub flags: Flags,
    pub figures: Figures,
}

impl Known {
    /// A new activity.
    pub fn new(
        id: ActivityId,
        ordinal: Ordinal,
        flags: Flags,
        figures: Figures,
        definition: &Definition<'_>,
    ) -> Self {
        let Definition { sku, price, per_user_limit, start_ms, end_ms, .. } = *definition;
        Self { id, ordinal, sku, price, per_user_limit, start_ms, end_ms, flags, figures }
    }

    /// An activity of the engine, as it is now.
    pub fn of(id: ActivityId, activity: &Activity) -> Self {
        let (flags, figures) = (activity.flags(), activity.figures());
        Self::new(id, activity.ordinal(), flags, figures, &activity.terms().definition())
    }

    /// Takes another definition.
    pub fn define(&mut self, definition: &Definition<'_>) {
        *self = Self::new(self.id, self.ordinal, self.flags, self.figures, definition);
    }

    /// Whether new purchases are stopped for now or for good.
    pub const fn is_paused(&self) -> bool {
        self.flags.paused || self.flags.drained
    }

    /// As it is kept in the mirror's hash, under its id.
    pub(crate) fn encode(&self) -> String {
        let Self { ordinal, sku, price, per_user_limit, start_ms, end_ms, flags, figures, .. } =
            self;
        let bit = |set: bool, bit: u8| u8::from(set) << bit;
        let flags = bit(flags.on_sale, 0) | bit(flags.paused, 1) | bit(flags.drained, 2);
        let Figures { available, locked, sold } = figures;
        format!(
            "{} {sku} {price} {per_user_limit} {start_ms} {end_ms} {flags} {available} {locked} \
             {sold}",
            ordinal.get()
        )
    }

    /// Reads what [`Known::encode`] wrote for `id`; `None` for anything else.
    pub(crate) fn decode(id: u64, text: &str) -> Option<Self> {
        let words: Vec<u64> = text.split(' ').map(str::parse).collect::<Result<_, _>>().ok()?;
        let [ordinal, sku, price, limit, start_ms, end_ms, flags, available, locked, sold] =
            *words.as_slice()
        else {
            return None;
        };
        let small = |number: u64| u32::try_from(number).ok();
        let bit = |bit: u8| flags >> bit & 1 == 1;
        let known = Self {
            id: ActivityId::new(id)?,
            ordinal: Ordinal::new(small(ordinal)?)?,
            sku: SkuId::new(sku)?,
            price,
            per_user_limit: small(limit)?,
            start_ms,
            end_ms,
            flags: Flags { on_sale: bit(0), paused: bit(1), drained: bit(2) },
            figures: Figures {
                available: small(available)?,
                locked: small(locked)?,
                sold: small(sold)?,
            },
        };
        // Of the spellings of a number only ours is one, and no flag is there that we don't know.
        (known.encode() == text).then_some(known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_activity_reads_back_and_nothing_else_is_one() {
        let known = Known {
            id: ActivityId::new(7).unwrap(),
            ordinal: Ordinal::new(3).unwrap(),
            sku: SkuId::new(20_001).unwrap(),
            price: 9_900,
            per_user_limit: 2,
            start_ms: 5,
            end_ms: 6,
            flags: Flags { on_sale: true, paused: false, drained: true },
            figures: Figures { available: 1, locked: 2, sold: 3 },
        };
        let text = known.encode();
        assert_eq!(Known::decode(7, &text), Some(known));
        for wrong in [
            "",
            "1",
            &format!("{text} 1"),
            &text[2..],
            &text.replace('5', "x"),
            &text.replace('5', "+5"),
        ] {
            assert_eq!(Known::decode(7, wrong), None, "{wrong:?}");
        }
    }
}
