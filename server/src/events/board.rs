//! What has changed since when.

use std::collections::HashMap;

use bytes::Bytes;
use engine::core::ids::ActivityId;
use engine::{ActivityView, DerivedState};

/// An activity as it was last shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Shown {
    /// The change that it is.
    pub(crate) number: u64,
    /// As JSON.
    pub(crate) data: Bytes,
    key: Key,
}

/// What makes an activity look another way.
type Key = (u32, u64, u32, DerivedState);

fn key(view: &ActivityView, now_ms: u64) -> Key {
    (view.version, view.total(), view.figures.available, view.state(now_ms))
}

/// Every activity that shoppers can see or could, each with its last change.
#[derive(Clone, Debug)]
pub(crate) struct Board {
    /// Of this process: numbers of another one mean nothing.
    epoch: u32,
    number: u64,
    shown: HashMap<ActivityId, Shown>,
}

impl Board {
    /// An empty one.
    pub(super) fn new(epoch: u32) -> Self {
        Self { epoch, number: 0, shown: HashMap::new() }
    }

    /// The board after this one, with `views` at `now_ms`; `None` where nothing has changed.
    pub(super) fn next(
        &self,
        views: &[ActivityView],
        now_ms: u64,
        render: fn(&ActivityView, u64) -> String,
    ) -> Option<Self> {
        let is_listed = |view: &ActivityView| view.on_sale && now_ms <= view.terms.end_ms;
        let changed: Vec<&ActivityView> = views
            .iter()
            .filter(|view| match self.shown.get(&view.id) {
                // What leaves the list is shown once more, as it is then.
                Some(shown) => shown.key != key(view, now_ms),
                None => is_listed(view),
            })
            .collect();
        let is_gone = |id: &ActivityId| views.binary_search_by_key(id, |view| view.id).is_err();
        let gone: Vec<ActivityId> = self.shown.keys().copied().filter(is_gone).collect();
        if changed.is_empty() && gone.is_empty() {
            return None;
        }
        let mut next = self.clone();
        for id in gone {
            next.shown.remove(&id);
        }
        for view in changed {
            next.number += 1;
            let data = Bytes::from(render(view, now_ms));
            let shown = Shown { number: next.number, data, key: key(view, now_ms) };
            next.shown.insert(view.id, shown);
        }
        Some(next)
    }

    /// The number of the last change.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The name of change `number`, which a client brings back.
    pub(crate) fn id(&self, number: u64) -> String {
        format!("{:08x}-{number}", self.epoch)
    }

    /// The number in an id that this process gave, 0 for any other: whoever has it has seen nothing
    /// that counts.
    pub(crate) fn number_of(&self, id: &str) -> u64 {
        let number = id.split_once('-').filter(|(epoch, _)| {
            u32::from_str_radix(epoch, 16).is_ok_and(|epoch| epoch == self.epoch)
        });
        let number = number.and_then(|(_, number)| number.parse().ok());
        number.filter(|number| *number <= self.number).unwrap_or_default()
    }

    /// What has changed after `number`, in order.
    pub(crate) fn since(&self, number: u64) -> Vec<&Shown> {
        let mut changes: Vec<&Shown> =
            self.shown.values().filter(|shown| shown.number > number).collect();
        changes.sort_unstable_by_key(|shown| shown.number);
        changes
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use engine::core::event::{DeadLetterPolicy, Figures, LatePayment};
    use engine::core::ids::{Ordinal, SkuId};
    use engine::core::terms::Terms;

    use super::*;

    fn view(id: u64, available: u32, on_sale: bool) -> ActivityView {
        let terms = Terms {
            sku: SkuId::new(1).unwrap(),
            title: "t".into(),
            price: 1,
            per_user_limit: 1,
            start_ms: 0,
            end_ms: 100,
            payment_ttl_ms: 1000,
            late_payment: LatePayment::Refund,
            dead_letter: DeadLetterPolicy::Hold,
            publish_at_ms: 0,
        };
        ActivityView {
            id: ActivityId::new(id).unwrap(),
            ordinal: Ordinal::new(1).unwrap(),
            terms: Arc::new(terms),
            version: 1,
            figures: Figures { available, locked: 0, sold: 10 - available },
            on_sale,
            paused: false,
            drained: false,
            publish_due_ms: None,
        }
    }

    fn render(view: &ActivityView, _: u64) -> String {
        format!("{}:{}", view.id, view.figures.available)
    }

    fn since(board: &Board, number: u64) -> Vec<String> {
        let changes = board.since(number).into_iter();
        changes.map(|shown| String::from_utf8(shown.data.to_vec()).unwrap()).collect()
    }

    #[test]
    fn whoever_comes_back_is_told_the_last_state_of_what_has_changed_and_nothing_else() {
        let board = Board::new(7);
        let both = |first, second| [view(1, first, true), view(2, second, true)];
        let board = board.next(&both(10, 10), 50, render).unwrap();
        assert_eq!(since(&board, 0), ["1:10", "2:10"]);
        let seen = board.number();
        assert!(board.next(&both(10, 10), 50, render).is_none(), "nothing has changed");
        let board = board.next(&both(9, 10), 50, render).unwrap();
        let board = board.next(&both(5, 10), 50, render).unwrap();
        assert_eq!(since(&board, seen), ["1:5"]);
        assert!(since(&board, board.number()).is_empty());
        let id = board.id(seen);
        assert_eq!(board.number_of(&id), seen);
        for other in ["00000008-1", "00000007-99", "x", "", "-", "00000007-x"] {
            assert_eq!(board.number_of(other), 0, "{other}");
        }
    }

    #[test]
    fn what_is_not_on_sale_is_shown_only_where_it_was_before() {
        let board = Board::new(7);
        assert!(board.next(&[view(1, 10, false)], 50, render).is_none());
        let board = board.next(&[view(1, 10, true)], 50, render).unwrap();
        let off = board.next(&[view(1, 10, false)], 50, render).unwrap();
        assert_eq!(since(&off, board.number()), ["1:10"]);
        let ended = board.next(&[view(1, 10, true)], 101, render).unwrap();
        assert_eq!(since(&ended, board.number()), ["1:10"]);
        let gone = ended.next(&[], 102, render).unwrap();
        assert!(since(&gone, 0).is_empty(), "and memory is not kept for what has left");
    }
}
