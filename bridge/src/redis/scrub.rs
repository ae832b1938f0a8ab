//! The scrubber: looks for keys that were evicted, lost or changed by somebody, at a bounded rate.
//!
//! It takes a piece of the engine's state, waits until the mirror has passed the instant at which
//! the piece was taken, and has Redis compare it with what is there. Keys that events touched
//! meanwhile are left out: they were written. What differs is written right in the same call, and
//! reported with what was there. Between two rounds over the state it walks over the keys in Redis
//! for those that nothing asks for.

use std::collections::{BTreeMap, VecDeque};

use engine::core::ids::ActivityId;
use redis::Value;
use wal::Lsn;

use super::fault::MirrorError;
use super::layouts::{Known, Layout};
use super::library;
use super::present::{self, BLACKLIST_PREFIX, Present};
use super::resync::field;
use super::servers::Servers;
use super::sink::{CALL_RECORDS_MAX, Mirror, ONLY_LANE};
use super::writes::{Part, Write, Writes};

/// Repairs that are remembered.
const REPAIRS_MAX: usize = 1_000;

/// A key that was not as it should be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Repair {
    /// The key.
    pub key: String,
    /// What was there.
    pub found: String,
    /// What is there now.
    pub written: String,
}

/// Where the walk is.
#[derive(Debug)]
enum Walk {
    /// Over the state: the activity after this one, or this one's reservations from here.
    State { after: Option<ActivityId>, within: Option<(ActivityId, usize)> },
    /// Over the keys of a server.
    Keys { index: usize, pattern: usize, at: u64 },
}

impl Default for Walk {
    fn default() -> Self {
        Self::State { after: None, within: None }
    }
}

/// A piece that waits to be compared.
#[derive(Debug)]
struct Piece {
    /// By lane.
    expected: BTreeMap<u64, Writes>,
    /// Everything the piece rests on is durable up to here.
    target: Lsn,
}

/// The scrubber's place.
#[derive(Debug, Default)]
pub(super) struct Scrub {
    walk: Walk,
    piece: Option<Piece>,
    found: VecDeque<Repair>,
    /// Rounds over state and keys that were finished.
    rounds: u64,
}

impl Scrub {
    /// The keys are written anew: a piece that was taken before says of them what is no more.
    pub(super) fn forget_piece(&mut self) {
        self.piece = None;
    }

    /// A call writes `writes`: what they say of the piece is newer.
    pub(super) fn touched(&mut self, lane: u64, writes: &Writes) {
        let piece = self.piece.as_mut();
        if let Some(expected) = piece.and_then(|piece| piece.expected.get_mut(&lane)) {
            expected.without(writes);
        }
    }
}

impl<H: Present, S: Servers> Mirror<'_, H, S> {
    /// Takes one piece, or compares the one that was taken, where the mirror has passed it.
    ///
    /// # Errors
    /// The mirror must be dropped then.
    pub async fn scrub(&mut self) -> Result<(), MirrorError> {
        if self.scrub.piece.is_none() {
            let expected = self.take_piece().await?;
            let target = self.host.settle().ok_or(MirrorError::LogFailed)?;
            self.scrub.piece = Some(Piece { expected, target });
        }
        self.arrive().await?;
        let passed = |piece: &mut Piece| piece.target <= self.applied;
        if let Some(piece) = self.scrub.piece.take_if(passed) {
            self.compare(piece).await?;
        }
        Ok(())
    }

    /// Rounds over the state and the keys that were finished.
    pub fn scrub_rounds(&self) -> u64 {
        self.scrub.rounds
    }

    /// What was repaired since this was asked last.
    pub fn take_repairs(&mut self) -> Vec<Repair> {
        self.scrub.found.drain(..).collect()
    }

    async fn compare(&mut self, piece: Piece) -> Result<(), MirrorError> {
        for (id, expected) in piece.expected.into_iter().filter(|(_, it)| !it.is_empty()) {
            let Some(lane) = self.lanes.get(&id) else {
                // Keys of an activity that there is none of.
                let pairs = expected.keys().map(|(key, _)| (key.to_owned(), "a key".to_owned()));
                self.note(pairs, &expected);
                self.delete_ownerless(id, expected).await?;
                continue;
            };
            let call = library::verify(&lane.keys, &lane.text, &expected);
            let answer: Value = self.nodes.ask(self.nodes.index(id), &call).await?;
            let Value::Array(items) = &answer else { return Err(library::moved(&answer)) };
            let texts: Vec<String> = items.iter().filter_map(library::text).collect();
            let pairs = texts.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone()));
            let pairs: Vec<_> = pairs.collect();
            if pairs.iter().any(|(key, _)| *key == lane.keys.known) {
                // It may have been taken over as it was: what follows from it must not be wrong
                // again.
                for (_, id, part) in expected.parts() {
                    if let Some(it) = known(id, part) {
                        self.projection.know(it);
                    }
                }
            }
            self.note(pairs.into_iter(), &expected);
        }
        Ok(())
    }

    fn note(&mut self, pairs: impl Iterator<Item = (String, String)>, expected: &Writes) {
        for (key, found) in pairs {
            let written = describe(expected, &key);
            tracing::warn!(key, found, written, "a key in Redis was not the log's: written right");
            if self.scrub.found.len() == REPAIRS_MAX {
                self.scrub.found.pop_front();
            }
            self.scrub.found.push_back(Repair { key, found, written });
        }
    }

    async fn take_piece(&mut self) -> Result<BTreeMap<u64, Writes>, MirrorError> {
        match std::mem::take(&mut self.scrub.walk) {
            Walk::State { after, within } => {
                let (expected, next) = self.piece_of_state(after, within);
                self.scrub.walk = next;
                Ok(expected)
            }
            Walk::Keys { index, pattern, at } => {
                let patterns = self.layout.patterns();
                let (next, keys) = self.scan(index, patterns[pattern], at).await?;
                self.scrub.walk = if next != 0 {
                    Walk::Keys { index, pattern, at: next }
                } else if pattern + 1 < patterns.len() {
                    Walk::Keys { index, pattern: pattern + 1, at: 0 }
                } else if index + 1 < self.nodes.count() {
                    Walk::Keys { index: index + 1, pattern: 0, at: 0 }
                } else {
                    self.scrub.rounds += 1;
                    Walk::default()
                };
                Ok(self.strays(keys).into_iter().collect())
            }
        }
    }

    fn piece_of_state(
        &self,
        after: Option<ActivityId>,
        within: Option<(ActivityId, usize)>,
    ) -> (BTreeMap<u64, Writes>, Walk) {
        let mut writes = Writes::default();
        let keys = &self.projection.keys;
        let next = within.map(|(id, _)| id).or_else(|| {
            let all = self.host.activities().into_iter();
            all.filter(|id| after.is_none_or(|after| *id > after)).min()
        });
        let Some(id) = next else {
            // The end of the round: what belongs to no activity, then the keys.
            if self.layout == Layout::Seckill {
                for (key, expires_ms) in self.host.controls(BLACKLIST_PREFIX) {
                    self.projection.control(&key, Some(expires_ms), &mut writes);
                }
            }
            let expected = BTreeMap::from([(ONLY_LANE, writes)]);
            return (expected, Walk::Keys { index: 0, pattern: 0, at: 0 });
        };
        let lane = self.lane_of_activity(id);
        let from = within.map_or(0, |(_, from)| from);
        let read = |it: &_| (Known::of(id, it), present::reservations(it, from, CALL_RECORDS_MAX));
        let on = Walk::State { after: Some(id), within: None };
        let (Some((known, reservations)), Some(own)) =
            (self.host.look(id, read), self.lanes.get(&lane))
        else {
            return (BTreeMap::new(), on);
        };
        if from == 0 {
            writes.part(own.keys.known.clone(), id.to_string(), field(&known));
        }
        if !self.projection.is_written(&known) {
            return (BTreeMap::from([(lane, writes)]), on);
        }
        if from == 0 {
            keys.activity(&known, &mut writes);
        }
        for (reserved, held) in &reservations {
            keys.user(&known, reserved.user, *held, &mut writes);
            keys.reservation(&known, reserved, &mut writes);
        }
        let walk = match reservations.len() {
            0 => on,
            count => Walk::State { after: Some(id), within: Some((id, from + count)) },
        };
        (BTreeMap::from([(lane, writes)]), walk)
    }
}

/// An activity as the mirror's own hash has it.
fn known(id: &str, part: &Part) -> Option<Known> {
    let Part::Field(text) = part else { return None };
    Known::decode(id.parse().ok()?, text)
}

fn describe(expected: &Writes, key: &str) -> String {
    let until = |value: &str, ends_ms: Option<u64>| match ends_ms {
        Some(ends_ms) => format!("{value} until {ends_ms}"),
        None => value.to_owned(),
    };
    match expected.get(key) {
        Some(Write::Text { value, ends_ms }) => until(value, *ends_ms),
        Some(Write::Hash { fields, ends_ms }) => {
            let fields: Vec<_> = fields.iter().map(|(name, it)| format!("{name}={it}")).collect();
            until(&fields.join(" "), *ends_ms)
        }
        Some(Write::Absent) => "nothing".to_owned(),
        None => {
            let of_key = |(of, name, part): (&str, &str, &Part)| {
                (of == key).then(|| format!("{name}: {part:?}"))
            };
            expected.parts().filter_map(of_key).collect::<Vec<_>>().join(", ")
        }
    }
}
