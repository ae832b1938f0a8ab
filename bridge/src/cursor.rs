//! Where a sink is in the log, and what that says about the two of them.
//!
//! The cursor stands in the sink, written together with what it speaks of. It names the log (uuid),
//! the incarnation that wrote it (epoch), the place (LSN of a frame's last record) and that frame's
//! chain. [`judge`] compares it with the log. Nothing is remembered in memory over an error: after
//! any doubt the cursor is read again and judged again.
//!
//! First match decides:
//!
//! | cursor in the sink | the log | verdict |
//! |---|---|---|
//! | none | holds its beginning | `Resume` at the beginning, after the row was made |
//! | none | its beginning is gone | `Fill`: an empty database |
//! | of another log | - | `Fork(ForeignLog)`: another data directory owns this database |
//! | of a later epoch | - | `Fork(LaterEpoch)`: a newer server or copy has taken over |
//! | beyond the log's end | - | `Fork(BeyondEnd)`: the directory was rolled back or lost its tail |
//! | before the log's oldest record | - | `Fill`: a database that is too old to catch up |
//! | where no frame ends | - | `Fork(NotAFrameEnd)`: another history |
//! | at a frame with another chain | - | `Fork(Chain)`: another history |
//! | at a frame with that chain, of a filling | - | `Fill`: it was cut short |
//! | at a frame with that chain | - | `Resume` there |
//!
//! A fork is for a person to solve: the server ends with exit code 3. A sink to be filled is
//! written from the newest snapshot, then follows the log from there; where no snapshot serves,
//! that is a [`Halt`], and the sale goes on.

use wal::{Epoch, LogIdentity, LogUuid, Lsn};

use crate::tail::SeekError;

/// A sink's place in the log, as the sink keeps it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cursor {
    /// The log.
    pub uuid: LogUuid,
    /// The incarnation of the server that wrote the cursor. It fences: a server may only move a
    /// cursor of its own epoch, and takes one over by writing its epoch into it.
    pub epoch: Epoch,
    /// Last LSN that the sink holds.
    pub lsn: Lsn,
    /// Chain of the frame that `lsn` ends.
    pub chain: u32,
}

impl Cursor {
    /// The cursor of an empty sink.
    pub fn beginning(identity: LogIdentity) -> Self {
        Self { uuid: identity.uuid, epoch: identity.epoch, lsn: Lsn(0), chain: 0 }
    }
}

/// What the log holds at the cursor's LSN (at `Lsn(0)` where there is no cursor).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// A frame ends there, with this chain.
    FrameEnd {
        /// The frame's chain.
        chain: u32,
    },
    /// The log ends before.
    BeyondEnd {
        /// Its end.
        end: Lsn,
    },
    /// What follows is no longer in the log.
    Retired {
        /// The first LSN the log still holds.
        oldest: Lsn,
    },
    /// The log holds that LSN inside a frame.
    NotAFrameEnd,
}

impl Place {
    /// What a seek says about the place it was asked for; an error where the log could not be read.
    pub(crate) fn of(seek: Result<u32, SeekError>) -> Result<Self, crate::tail::Unreadable> {
        match seek {
            Ok(chain) => Ok(Self::FrameEnd { chain }),
            Err(SeekError::BeyondEnd { end }) => Ok(Self::BeyondEnd { end }),
            Err(SeekError::Retired { oldest }) => Ok(Self::Retired { oldest }),
            Err(SeekError::NotAFrameEnd) => Ok(Self::NotAFrameEnd),
            Err(SeekError::Unreadable(error)) => Err(error),
        }
    }
}

/// What a sink says of its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Standing {
    /// Its cursor: everything up to there is in it.
    pub cursor: Option<Cursor>,
    /// Where the snapshot ends that it was being filled from: it may hold anything up to there.
    pub filling: Option<Cursor>,
}

impl Standing {
    /// The furthest place of the log that the sink knows of.
    pub fn furthest(&self) -> Option<Cursor> {
        self.filling.or(self.cursor)
    }
}

/// What to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Go on behind `lsn`.
    Resume {
        /// The sink's place.
        lsn: Lsn,
    },
    /// Write it from a snapshot, then follow the log.
    Fill,
    /// Sink and log don't belong together: a person must decide.
    Fork(Fork),
}

/// Why sink and log don't belong together.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Fork {
    /// The cursor is another log's.
    #[error(
        "the database follows log {theirs}, this data directory is log {ours}: give this directory \
         its own database, or serve the one that `sluice restore` made where it took this one over"
    )]
    ForeignLog {
        /// The log in the cursor.
        theirs: LogUuid,
        /// The log here.
        ours: LogUuid,
    },
    /// A later incarnation wrote the cursor.
    #[error(
        "the database is served by a later incarnation (epoch {theirs}) than this one \
         (epoch {ours}): another server runs on a copy of this data directory, or this directory \
         was rolled back"
    )]
    LaterEpoch {
        /// The epoch in the cursor.
        theirs: Epoch,
        /// The epoch here.
        ours: Epoch,
    },
    /// The sink holds more than the log.
    #[error(
        "the database holds the log up to LSN {cursor}, this data directory ends at LSN {end}: \
         the directory was rolled back or lost acknowledged records"
    )]
    BeyondEnd {
        /// The LSN in the cursor.
        cursor: Lsn,
        /// The log's end.
        end: Lsn,
    },
    /// The log's frames lie otherwise.
    #[error(
        "the database stands at LSN {cursor}, where no frame of this data directory ends: the \
         directory is a copy with another history"
    )]
    NotAFrameEnd {
        /// The LSN in the cursor.
        cursor: Lsn,
    },
    /// The log's frame there is another one.
    #[error(
        "the database stands at LSN {cursor} with chain {theirs:08x}, this data directory has \
         chain {ours:08x} there: the directory is a copy with another history"
    )]
    Chain {
        /// The LSN in the cursor.
        cursor: Lsn,
        /// The chain in the cursor.
        theirs: u32,
        /// The log's chain there.
        ours: u32,
    },
}

/// Why a sink can't go on, though it belongs to the log.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Halt {
    /// The log no longer holds what follows the sink's place, and no snapshot stands for it.
    #[error(
        "the database needs what followed LSN {needed}, which the log has given back, and the \
         newest snapshot that reads ends at LSN {snapshot}: restore a newer backup of the \
         database, or give the server an empty one"
    )]
    NoSnapshot {
        /// The furthest place that the sink knows of.
        needed: Lsn,
        /// Where the newest snapshot ends; 0 where there is none.
        snapshot: Lsn,
    },
}

/// Compares a sink's `standing` with the log `ours`, which holds `place` at the furthest LSN that
/// the sink knows of.
pub fn judge(standing: &Standing, ours: LogIdentity, place: Place) -> Verdict {
    let Some(cursor) = standing.furthest() else {
        return match place {
            Place::Retired { .. } => Verdict::Fill,
            _ => Verdict::Resume { lsn: Lsn(0) },
        };
    };
    if cursor.uuid != ours.uuid {
        return Verdict::Fork(Fork::ForeignLog { theirs: cursor.uuid, ours: ours.uuid });
    }
    if cursor.epoch > ours.epoch {
        return Verdict::Fork(Fork::LaterEpoch { theirs: cursor.epoch, ours: ours.epoch });
    }
    match place {
        Place::BeyondEnd { end } => Verdict::Fork(Fork::BeyondEnd { cursor: cursor.lsn, end }),
        Place::Retired { .. } => Verdict::Fill,
        Place::NotAFrameEnd => Verdict::Fork(Fork::NotAFrameEnd { cursor: cursor.lsn }),
        Place::FrameEnd { chain } if chain != cursor.chain => {
            Verdict::Fork(Fork::Chain { cursor: cursor.lsn, theirs: cursor.chain, ours: chain })
        }
        Place::FrameEnd { .. } if standing.filling.is_some() => Verdict::Fill,
        Place::FrameEnd { .. } => Verdict::Resume { lsn: cursor.lsn },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: LogIdentity = LogIdentity { uuid: LogUuid([7; 16]), epoch: Epoch(5) };
    const CURSOR: Cursor = Cursor { uuid: OURS.uuid, epoch: Epoch(5), lsn: Lsn(40), chain: 0xABCD };
    const PLACES: [Place; 5] = [
        Place::FrameEnd { chain: 0xABCD },
        Place::FrameEnd { chain: 0xABCE },
        Place::BeyondEnd { end: Lsn(39) },
        Place::Retired { oldest: Lsn(90) },
        Place::NotAFrameEnd,
    ];

    fn at(cursor: Cursor) -> Standing {
        Standing { cursor: Some(cursor), filling: None }
    }

    #[test]
    fn an_empty_sink_starts_at_the_beginning_or_is_filled_where_that_is_gone() {
        for place in PLACES {
            let verdict = judge(&Standing::default(), OURS, place);
            match place {
                Place::Retired { .. } => assert_eq!(verdict, Verdict::Fill),
                _ => assert_eq!(verdict, Verdict::Resume { lsn: Lsn(0) }),
            }
        }
    }

    #[test]
    fn a_foreign_log_is_a_fork_whatever_else_agrees() {
        let theirs = LogUuid([8; 16]);
        for place in PLACES {
            for epoch in [4, 5, 6] {
                let cursor = Cursor { uuid: theirs, epoch: Epoch(epoch), ..CURSOR };
                let fork = Fork::ForeignLog { theirs, ours: OURS.uuid };
                assert_eq!(judge(&at(cursor), OURS, place), Verdict::Fork(fork));
            }
        }
    }

    #[test]
    fn a_later_epoch_fences_this_server_off_wherever_it_stands() {
        for place in PLACES {
            let cursor = Cursor { epoch: Epoch(6), ..CURSOR };
            let fork = Fork::LaterEpoch { theirs: Epoch(6), ours: Epoch(5) };
            assert_eq!(judge(&at(cursor), OURS, place), Verdict::Fork(fork));
        }
    }

    #[test]
    fn an_own_or_earlier_epoch_is_judged_by_the_place_alone() {
        let expected = [
            Verdict::Resume { lsn: Lsn(40) },
            Verdict::Fork(Fork::Chain { cursor: Lsn(40), theirs: 0xABCD, ours: 0xABCE }),
            Verdict::Fork(Fork::BeyondEnd { cursor: Lsn(40), end: Lsn(39) }),
            Verdict::Fill,
            Verdict::Fork(Fork::NotAFrameEnd { cursor: Lsn(40) }),
        ];
        for epoch in [1, 4, 5] {
            for (place, expected) in PLACES.into_iter().zip(&expected) {
                let cursor = Cursor { epoch: Epoch(epoch), ..CURSOR };
                assert_eq!(judge(&at(cursor), OURS, place), *expected);
            }
        }
    }

    #[test]
    fn a_filling_that_was_cut_short_is_judged_by_its_end_and_begun_again() {
        let older = Cursor { lsn: Lsn(7), chain: 1, ..CURSOR };
        let standing = Standing { cursor: Some(older), filling: Some(CURSOR) };
        assert_eq!(standing.furthest(), Some(CURSOR));
        for place in PLACES {
            let verdict = judge(&standing, OURS, place);
            match place {
                Place::FrameEnd { chain: 0xABCD } | Place::Retired { .. } => {
                    assert_eq!(verdict, Verdict::Fill);
                }
                _ => assert!(matches!(verdict, Verdict::Fork(_)), "{place:?}: {verdict:?}"),
            }
        }
    }
}
