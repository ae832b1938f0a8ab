//! From a snapshot to state.
//!
//! A start takes three threads for a large one: one reads ahead, one checks and decodes what was
//! read, one makes state of it, and its digest on the way. Beside a sale the last two are one.

use wal::{CONTROL_SHARD, Lane, SnapshotError, SnapshotReader};

use super::super::ahead::{Feed, Stage, Stopped, beside};
use super::super::error::Witness;
use super::super::replay::Replayed;
use crate::core::codec::CodecError;
use crate::core::shard::ShardSeed;
use crate::core::snapshot::{ControlLoader, Images, LoadError, ShardLoader};
use crate::core::stock::Stock;

/// Why a snapshot can't be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotLoadError {
    /// Its bytes.
    #[error(transparent)]
    Read(#[from] SnapshotError),
    /// An item's bytes.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// What the items come to.
    #[error(transparent)]
    Load(#[from] LoadError),
}

/// Batches that are loaded by the thread that reads them: some 4 MiB, which take no longer than
/// another thread takes to come and help.
const BATCHES_ALONE: usize = 8;

/// Images that are handed over together at most.
const BATCH_IMAGES: usize = 8_192;

/// The next images of a lane.
#[derive(Default)]
struct Batch {
    lane: Option<Lane>,
    images: Images,
    /// Nothing of the lane comes after them.
    last: bool,
}

enum Loader {
    Shard(Box<ShardLoader>),
    Control(ControlLoader),
}

impl Loader {
    fn new(lane: &Lane, seed: ShardSeed) -> Self {
        match lane.shard {
            CONTROL_SHARD => Self::Control(ControlLoader::new(lane.seq)),
            _ => Self::Shard(Box::new(ShardLoader::new(seed, lane.seq))),
        }
    }

    fn take(&mut self, images: &Images, stock: &mut dyn Stock) -> Result<(), LoadError> {
        match self {
            Self::Shard(shard) => shard.take_into(images, stock),
            Self::Control(control) => control.take(images),
        }
    }
}

/// Lanes on their way to state.
struct Loading<'a, W> {
    state: &'a mut Replayed<W>,
    /// Of the lane that was begun, and is not whole yet.
    loader: Option<(u16, Loader)>,
}

impl<W: Witness + Send> Stage for Loading<'_, W> {
    type Batch = Batch;
    type Error = LoadError;

    fn apply(&mut self, batch: &Batch) -> Result<(), LoadError> {
        let Some(lane) = &batch.lane else { return Ok(()) };
        let seed = self.state.seed;
        let begun = self.loader.get_or_insert_with(|| (lane.shard, Loader::new(lane, seed)));
        let (shard, loader) = begun;
        assert!(*shard == lane.shard, "W14: images of lane {} among those of {shard}", lane.shard);
        match &mut self.state.supplies {
            Some(supplies) => loader.take(&batch.images, supplies)?,
            None => loader.take(&batch.images, &mut ())?,
        }
        if !batch.last {
            return Ok(());
        }
        match self.loader.take().map(|(_, loader)| loader) {
            Some(Loader::Shard(shard)) => {
                self.state.put(lane.shard, shard.finish(lane.digest)?);
            }
            Some(Loader::Control(control)) => {
                let (control, last_ms) = control.finish(lane.digest)?;
                self.state.put_control(control, last_ms);
            }
            None => {}
        }
        Ok(())
    }
}

/// Loads the lanes that `wanted` names into an empty state, each held against its digest (W14).
/// Where it succeeds the snapshot was read to its end.
pub(crate) fn load<W: Witness + Send>(
    reader: &mut SnapshotReader,
    state: &mut Replayed<W>,
    wanted: impl Fn(u16) -> bool,
) -> Result<(), SnapshotLoadError> {
    let alone = if state.supplies.is_some() { BATCHES_ALONE } else { usize::MAX };
    let mut loading = Loading { state, loader: None };
    let (read, loaded) = beside(&mut loading, alone, |feed| read(reader, feed, wanted));
    loaded?;
    read?;
    assert!(loading.loader.is_none(), "W14: a lane of a snapshot has no end");
    Ok(())
}

/// Reads lanes and gives their images to `feed`, as long as it takes them.
fn read<W: Witness + Send>(
    reader: &mut SnapshotReader,
    feed: &mut Feed<'_, '_, Loading<'_, W>>,
    wanted: impl Fn(u16) -> bool,
) -> Result<(), SnapshotLoadError> {
    let mut batch = Batch::default();
    while let Some(piece) = reader.next_piece()? {
        if !wanted(piece.lane.shard) {
            continue;
        }
        let mut items = piece.items();
        let mut left = true;
        while left {
            batch.images.clear();
            for item in items.by_ref().take(BATCH_IMAGES) {
                batch.images.push(item.kind, item.kind_version, item.body)?;
            }
            left = items.clone().next().is_some();
            (batch.lane, batch.last) = (Some(piece.lane), piece.last && !left);
            match feed.give(batch) {
                Ok(next) => batch = next,
                // Why is told by the stage itself.
                Err(Stopped) => return Ok(()),
            }
        }
    }
    Ok(())
}
