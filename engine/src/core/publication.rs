//! What lists show: the latest value that is known to be durable, at constant cost.
//!
//! A value changes under the shard's lock; its record becomes durable later. Lists must neither
//! wait nor show what a crash could take back, so two older values are kept beside the live one:
//!
//! ```text
//! visible   durable for certain
//! staged    durable once the durable mark reaches its sequence
//! live      durable once the durable mark reaches the last sequence
//! ```
//!
//! A reader takes the newest of the three that is durable. A change promotes `staged` if it has
//! become durable, and takes its place if it is free. Under a constant stream of changes a list
//! is thus at most two commits behind; once the stream pauses it is exact.

/// The durable views of one value. `None` is seen before the value's creation is durable.
#[derive(Clone, Debug)]
pub struct Publication<V> {
    visible: Option<V>,
    staged: Option<(u64, V)>,
}

impl<V> Default for Publication<V> {
    fn default() -> Self {
        Self { visible: None, staged: None }
    }
}

impl<V: Clone> Publication<V> {
    /// Notes that the record `shard_seq` made the value `view`. `durable_seq` is the shard's
    /// durable sequence: an old one only delays what is shown.
    pub fn touch(&mut self, durable_seq: u64, shard_seq: u64, view: &V) {
        if let Some((staged_seq, _)) = &self.staged
            && *staged_seq <= durable_seq
        {
            self.visible = self.staged.take().map(|(_, view)| view);
        }
        if self.staged.is_none() {
            self.staged = Some((shard_seq, view.clone()));
        }
    }

    /// The newest durable view. `live` is the value now, made by the record `last_seq`.
    pub fn read<'a>(&'a self, durable_seq: u64, last_seq: u64, live: &'a V) -> Option<&'a V> {
        if last_seq <= durable_seq {
            return Some(live);
        }
        match &self.staged {
            Some((staged_seq, view)) if *staged_seq <= durable_seq => Some(view),
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
        let mut publication = Publication::default();
        publication.touch(0, 1, &1);
        assert_eq!(publication.read(0, 1, &1), None);
        assert_eq!(publication.read(1, 1, &1), Some(&1));
    }

    #[test]
    fn once_all_is_durable_the_live_value_is_shown() {
        let mut publication = Publication::default();
        for seq in 1..=100 {
            publication.touch(0, seq, &seq);
        }
        assert_eq!(publication.read(99, 100, &100), Some(&1), "the first staged waited for all");
        assert_eq!(publication.read(100, 100, &100), Some(&100));
    }

    proptest! {
        /// Each value is the sequence that made it, so a value shown above the durable sequence
        /// would show itself.
        #[test]
        fn what_is_shown_is_durable_and_never_goes_back(
            steps in prop::collection::vec((1u64..4, 0u64..4), 1..200),
        ) {
            let (mut publication, mut last, mut durable, mut shown) = (Publication::default(), 0, 0, 0);
            for (records, committed) in steps {
                for _ in 0..records {
                    last += 1;
                    publication.touch(durable, last, &last);
                }
                durable = (durable + committed).min(last);
                if let Some(&seen) = publication.read(durable, last, &last) {
                    prop_assert!(seen <= durable);
                    prop_assert!(seen >= shown);
                    shown = seen;
                }
                // The record that was live when the mark last caught up can't be lost from view.
                if durable == last {
                    prop_assert_eq!(publication.read(durable, last, &last), Some(&last));
                }
            }
        }

        #[test]
        fn a_reader_is_at_most_two_commits_behind(records in 1u64..50, commits in 3u64..20) {
            let (mut publication, mut last) = (Publication::default(), 0);
            let mut marks = vec![0];
            for _ in 0..commits {
                for _ in 0..records {
                    last += 1;
                    publication.touch(marks[marks.len() - 1], last, &last);
                }
                marks.push(last);
                last += 1;
                publication.touch(last - 1, last, &last);
                let seen = publication.read(last - 1, last, &last).copied().unwrap_or(0);
                let behind = marks.len().saturating_sub(3);
                prop_assert!(seen >= marks[behind], "saw {seen}, marks {marks:?}");
            }
        }
    }
}
