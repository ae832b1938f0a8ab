//! The large pieces of an activity's tables.
//!
//! A piece is memory that the system has yet to find, a page at a time as it is first written to,
//! which costs a purchase as much as all that it does itself. So a runtime may have pieces made and
//! written to ahead, and tables that outgrow a first piece take theirs from there. What is in a
//! piece is the same wherever it comes from: nothing that is decided rests on it.

use std::fmt::Debug;
use std::sync::Arc;

use super::reservation::Slot;
use super::slots::CHUNK_SLOTS;
use super::user_table::{Line, PART_LINES_MAX};

/// Where large pieces come from.
pub trait Room: Send + Sync + Debug {
    /// A piece for reservations.
    fn chunk(&self) -> Chunk;

    /// A piece for users.
    fn lines(&self) -> Lines;
}

/// Room for reservations of one activity.
#[derive(Debug)]
pub struct Chunk(pub(super) Vec<Slot>);

impl Chunk {
    /// A piece that the system has still to find the memory of.
    pub fn new() -> Self {
        Self(Vec::with_capacity(CHUNK_SLOTS))
    }

    /// A piece whose memory is there.
    pub fn written() -> Self {
        let mut chunk = Self::new();
        chunk.0.resize(CHUNK_SLOTS, Slot::VACANT);
        chunk.0.clear();
        chunk
    }
}

impl Default for Chunk {
    fn default() -> Self {
        Self::new()
    }
}

/// Room for users of one activity: vacancies, which are written as such, so that their memory is
/// there.
#[derive(Debug)]
pub struct Lines(pub(super) Box<[Line]>);

impl Lines {
    /// A piece without users.
    pub fn new() -> Self {
        Self(vec![Line::default(); PART_LINES_MAX].into())
    }
}

impl Default for Lines {
    fn default() -> Self {
        Self::new()
    }
}

/// A piece of `room`, or one made now.
pub(super) fn chunk(room: Option<&Arc<dyn Room>>) -> Vec<Slot> {
    room.map_or_else(Chunk::new, |room| room.chunk()).0
}

/// A piece of `room`, or one made now.
pub(super) fn lines(room: Option<&Arc<dyn Room>>) -> Box<[Line]> {
    room.map_or_else(Lines::new, |room| room.lines()).0
}
