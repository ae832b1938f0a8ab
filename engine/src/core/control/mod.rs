//! What no activity holds: run-time controls, and how far each sink is.
//!
//! The control shard's records change it, by the same rule as a shard's: only `apply`, in order.
//! [`keys`] names the controls. One that has an end leaves memory with the first record after it:
//! the records alone say what is there, so replay comes to the same.

mod table;

pub mod keys;

use std::collections::BTreeMap;

pub use self::table::{ControlTable, Setting};

use super::digest::Hash;
use super::event::{Body, Event, ShardMarks};

/// How far a sink has delivered.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Sink {
    /// It holds everything up to here.
    pub lsn: u64,
    /// Sequence it covers, by shard.
    pub shards: BTreeMap<u16, u64>,
}

/// Why an event cannot have happened to this state. Nothing has changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// Records of the control shard are missing or repeated.
    #[error("control sequence {found} follows {applied}")]
    Sequence {
        /// The last applied.
        applied: u64,
        /// The event's.
        found: u64,
    },
    /// It is for an activity's shard.
    #[error("the event belongs to an activity")]
    OfAnActivity,
    /// More controls are set than there may be.
    #[error("there is no room for another control")]
    Full,
    /// A control is cleared that stays.
    #[error("a control that stays is cleared")]
    Permanent,
    /// A sink went back.
    #[error("a sink went back from LSN {present} to {carried}")]
    SinkWentBack {
        /// Where it was.
        present: u64,
        /// Where the event says it is.
        carried: u64,
    },
}

/// The state of the control shard.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Control {
    applied_seq: u64,
    table: ControlTable,
    sinks: BTreeMap<Box<str>, Sink>,
}

impl Control {
    /// The sequence of the last event applied, 0 for none.
    pub const fn applied_seq(&self) -> u64 {
        self.applied_seq
    }

    /// The controls.
    pub const fn table(&self) -> &ControlTable {
        &self.table
    }

    /// How far a sink is, where it has said so.
    pub fn sink(&self, name: &str) -> Option<&Sink> {
        self.sinks.get(name)
    }

    /// All sinks, by name.
    pub fn sinks(&self) -> impl Iterator<Item = (&str, &Sink)> {
        self.sinks.iter().map(|(name, sink)| (name.as_ref(), sink))
    }

    /// Makes `event`, the record `seq` of the control shard's log, happen.
    ///
    /// # Errors
    /// [`ControlError`] where the event cannot have followed this state; the state is unchanged.
    pub fn apply(&mut self, event: &Event<'_>, seq: u64) -> Result<(), ControlError> {
        if self.applied_seq.checked_add(1) != Some(seq) {
            return Err(ControlError::Sequence { applied: self.applied_seq, found: seq });
        }
        match event.body {
            Body::ControlSet { key, value, expires_ms, .. } => {
                if !self.table.has_room(key, value.len()) {
                    return Err(ControlError::Full);
                }
                self.table.set(key, value, expires_ms);
            }
            Body::ControlCleared { key, .. } if keys::is_permanent(key) => {
                return Err(ControlError::Permanent);
            }
            Body::ControlCleared { key, .. } => self.table.clear(key),
            Body::SinkAdvanced { sink, lsn, shards } => {
                let present = self.sinks.get(sink).map_or(0, |sink| sink.lsn);
                if lsn < present {
                    return Err(ControlError::SinkWentBack { present, carried: lsn });
                }
                let sink = self.sinks.entry(sink.into()).or_default();
                sink.lsn = lsn;
                for (shard, seq) in shards.iter() {
                    // What showed as ordered stays so, whatever a sink says later.
                    let mark = sink.shards.entry(shard).or_default();
                    *mark = seq.max(*mark);
                }
            }
            // It fits no payment: the log and SQL keep it, for whoever asks where the money is.
            Body::PaymentRecorded { activity: None, .. } => {}
            _ => return Err(ControlError::OfAnActivity),
        }
        self.applied_seq = seq;
        self.table.drop_expired(event.at_ms);
        Ok(())
    }

    /// The state of a snapshot to be filled, after the record `seq`.
    pub(super) fn after(seq: u64) -> Self {
        Self { applied_seq: seq, ..Self::default() }
    }

    /// Takes a control over from a snapshot.
    pub(super) fn restore_setting(&mut self, key: &str, value: &[u8], expires_ms: u64) {
        self.table.set(key, value, expires_ms);
    }

    /// Takes a sink's marks over from a snapshot.
    pub(super) fn restore_sink(&mut self, name: &str, lsn: u64, shards: ShardMarks<'_>) {
        self.sinks.insert(name.into(), Sink { lsn, shards: shards.iter().collect() });
    }

    /// The digest of this state.
    pub fn digest(&self) -> u128 {
        let mut hash = Hash::of("control");
        hash.numbers(&[self.applied_seq]);
        self.table.hash(&mut hash);
        for (name, sink) in &self.sinks {
            hash.text(name);
            hash.numbers(&[sink.lsn, sink.shards.len() as u64]);
            for (shard, seq) in &sink.shards {
                hash.numbers(&[u64::from(*shard), *seq]);
            }
        }
        hash.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::super::event::Actor;
    use super::*;

    #[test]
    fn a_mark_once_told_does_not_go_back() {
        let mut control = Control::default();
        for (seq, mark) in [(1, 7), (2, 4)] {
            let mut buffer = Vec::new();
            let shards = ShardMarks::encode(&[(3, mark)], &mut buffer);
            let body = Body::SinkAdvanced { sink: "sql", lsn: 9, shards };
            control.apply(&Event { at_ms: 1, body }, seq).unwrap();
        }
        assert_eq!(control.sink("sql").unwrap().shards, BTreeMap::from([(3, 7)]));
    }

    #[test]
    fn what_has_ended_leaves_memory_with_the_next_record() {
        let mut control = Control::default();
        let set = |at_ms, key, expires_ms| {
            let body = Body::ControlSet { actor: Actor::NONE, key, value: b"v", expires_ms };
            Event { at_ms, body }
        };
        control.apply(&set(1, "token/a", 10), 1).unwrap();
        control.apply(&set(9, "stop", 0), 2).unwrap();
        assert!(control.table().get("token/a").is_some());
        control.apply(&set(10, "canary", 0), 3).unwrap();
        assert_eq!(control.table().get("token/a"), None);
        assert_eq!(control.table().len(), 2);
    }

    #[test]
    fn an_ordinal_once_passed_is_not_given_again() {
        let mut control = Control::default();
        let actor = Actor::NONE;
        let set = Body::ControlSet { actor, key: "ordinals/7", value: b"", expires_ms: 0 };
        control.apply(&Event { at_ms: 1, body: set }, 1).unwrap();
        let cleared = Body::ControlCleared { actor, key: "ordinals/7" };
        let before = control.clone();
        let error = control.apply(&Event { at_ms: 1, body: cleared }, 2);
        assert_eq!((error, &control), (Err(ControlError::Permanent), &before));
    }
}
