//! What lists show: the latest value that is known to be durable, at constant cost.
//!
//! A value changes under the shard's lock; its record becomes durable later. Lists must neither
//! wait nor show what a crash could take back, so two older values are kept beside the live one:
//!
//! ```text
//! visible   durable for certain
//! staged    durable once the durable mark reaches its sequence
//! live      durable once the durable mark reaches its sequence
//! ```
//!
//! A reader takes the newest of the three that is durable. A change makes the newest durable one
//! visible before it replaces the live one, so that a list never goes back, and stages itself
//! where nothing is staged. Under a constant stream of changes a list is thus at most two commits
//! behind; once the stream pauses it is exact.

/// The durable views of one value.
#[derive(Clone, Debug)]
pub struct Publication<V> {
    /// `None` before the value's creation is known to be durable.
    visible: Option<V>,
    staged: Option<(u64, V)>,
    live: (u64, V),
}

impl<V: Clone> Publication<V> {
    /// A value that the record `shard_seq` creates.
    pub fn new(shard_seq: u64, view: V) -> Self {
        Self { visible: None, staged: None, live: (shard_seq, view) }
    }

    /// Notes that the record `shard_seq` made the value `view`. `durable_seq` is the shard's
    /// durable sequence: an old one only delays what is shown, if no reader had a newer one.
    pub fn set(&mut self, durable_seq: u64, shard_seq: u64, view: V) {
        assert!(self.live.0 < shard_seq, "changes come in the order of the log");
        let before = std::mem::replace(&mut self.live, (shard_seq, view));
        if before.0 <= durable_seq {
            self.visible = Some(before.1);
            self.staged = None;
            return;
        }
        match self.staged.take() {
            Some((staged_seq, view)) if staged_seq <= durable_seq => {
                self.visible = Some(view);
                self.staged = Some(before);
            }
            Some(staged) => self.staged = Some(staged),
            None => self.staged = Some(before),
        }
        let staged = self.staged.as_ref().is_none_or(|(staged_seq, _)| *staged_seq < shard_seq);
        assert!(staged, "W1: a list would show the later of two values first");
    }

    /// The sequence of the record that made the live value.
    pub const fn live_seq(&self) -> u64 {
        self.live.0
    }

    /// The newest durable view.
    pub fn read(&self, durable_seq: u64) -> Option<&V> {
        let (live_seq, live) = &self.live;
        if *live_seq <= durable_seq {
            return Some(live);
        }
        match &self.staged {
            Some((staged_seq, staged)) if *staged_seq <= durable_seq => Some(staged),
            _ => self.visible.as_ref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nothing_is_shown_before_the_creation_is_durable() {
        let publication = Publication::new(1, 1);
        assert_eq!(publication.read(0), None);
        assert_eq!(publication.read(1), Some(&1));
    }

    #[test]
    fn once_all_is_durable_the_live_value_is_shown() {
        let mut publication = Publication::new(1, 1);
        for seq in 2..=100 {
            publication.set(0, seq, seq);
        }
        assert_eq!(publication.read(99), Some(&1), "the first staged has waited for its mark");
        assert_eq!(publication.read(100), Some(&100));
    }

    proptest! {
        /// Each value is the sequence that made it, so a value shown above the durable sequence
        /// would show itself.
        #[test]
        fn what_is_shown_is_durable_and_never_goes_back(
            steps in prop::collection::vec((0u64..4, 0u64..4), 1..200),
        ) {
            let mut publication = Publication::new(1, 1);
            let (mut last, mut durable, mut shown) = (1, 0, 0);
            for (records, committed) in steps {
                for _ in 0..records {
                    last += 1;
                    publication.set(durable, last, last);
                }
                durable = (durable + committed).min(last);
                if let Some(&seen) = publication.read(durable) {
                    prop_assert!(seen <= durable);
                    prop_assert!(seen >= shown);
                    shown = seen;
                }
                if durable == last {
                    prop_assert_eq!(shown, last);
                }
            }
        }

        /// Under load a commit covers what came before it began: the mark is always one batch
        /// behind the live value.
        #[test]
        fn a_list_is_at_most_two_commits_behind(
            batches in prop::collection::vec(1u64..50, 3..20),
        ) {
            let mut publication = Publication::new(1, 1);
            let (mut last, mut marks) = (1, vec![0, 1]);
            for records in batches {
                let durable = marks[marks.len() - 2];
                for _ in 0..records {
                    last += 1;
                    publication.set(durable, last, last);
                }
                marks.push(last);
                let mark = marks[marks.len() - 2];
                let seen = publication.read(mark).copied().unwrap_or_default();
                let floor = marks[marks.len().saturating_sub(4)];
                prop_assert!(seen >= floor, "saw {} below {} of {:?}", seen, floor, marks);
            }
        }
    }
}
