//! What no activity holds: run-time controls, and how far each sink is.
//!
//! The control shard's records change it, by the same rule as a shard's: only `apply`, in order.

use std::collections::BTreeMap;

use super::digest::Hash;
use super::event::{Body, Event};

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
    values: BTreeMap<Box<str>, Box<[u8]>>,
    sinks: BTreeMap<Box<str>, Sink>,
}

impl Control {
    /// The sequence of the last event applied, 0 for none.
    pub const fn applied_seq(&self) -> u64 {
        self.applied_seq
    }

    /// The value of a control, where it is set.
    pub fn value(&self, key: &str) -> Option<&[u8]> {
        self.values.get(key).map(AsRef::as_ref)
    }

    /// All controls, by key.
    pub fn values(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.values.iter().map(|(key, value)| (key.as_ref(), value.as_ref()))
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
            Body::ControlSet { key, value, .. } => {
                self.values.insert(key.into(), value.into());
            }
            Body::ControlCleared { key, .. } => {
                self.values.remove(key);
            }
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
        Ok(())
    }

    /// The digest of this state.
    pub fn digest(&self) -> u128 {
        let mut hash = Hash::of("control");
        hash.numbers(&[self.applied_seq, self.values.len() as u64]);
        for (key, value) in &self.values {
            hash.text(key);
            hash.bytes(value);
        }
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
    use super::super::event::ShardMarks;
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
}
