//! From a snapshot to state.

use wal::{CONTROL_SHARD, Lane, SnapshotError, SnapshotReader};

use super::super::error::Witness;
use super::super::replay::Replayed;
use crate::core::codec::CodecError;
use crate::core::shard::ShardSeed;
use crate::core::snapshot::{ControlLoader, Image, LoadError, ShardLoader, decode_image};

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

/// Images that are taken together: more users than the processor fetches at once.
const IMAGES_AHEAD: usize = 64;

enum Loader {
    Shard(ShardLoader),
    Control(ControlLoader),
}

impl Loader {
    fn new(lane: &Lane, seed: ShardSeed) -> Self {
        match lane.shard {
            CONTROL_SHARD => Self::Control(ControlLoader::new(lane.seq)),
            _ => Self::Shard(ShardLoader::new(seed, lane.seq)),
        }
    }

    fn take(&mut self, images: &[Image<'_>]) -> Result<(), LoadError> {
        match self {
            Self::Shard(shard) => {
                shard.look_ahead(images);
                images.iter().try_for_each(|image| shard.take(image))
            }
            Self::Control(control) => images.iter().try_for_each(|image| control.take(image)),
        }
    }
}

/// Loads the lanes that `wanted` names into an empty state, each held against its digest (W14).
pub(crate) fn load<W: Witness>(
    reader: &mut SnapshotReader,
    state: &mut Replayed<W>,
    wanted: impl Fn(u16) -> bool,
) -> Result<(), SnapshotLoadError> {
    let mut loader = None;
    while let Some(piece) = reader.next_piece()? {
        let lane = piece.lane;
        if !wanted(lane.shard) {
            continue;
        }
        let loading = loader.get_or_insert_with(|| Loader::new(&lane, state.seed));
        let mut items = piece.items();
        let mut next = Vec::with_capacity(IMAGES_AHEAD);
        loop {
            next.clear();
            for item in items.by_ref().take(IMAGES_AHEAD) {
                next.push(decode_image(item.kind, item.kind_version, item.body)?);
            }
            if next.is_empty() {
                break;
            }
            loading.take(&next)?;
        }
        if !piece.last {
            continue;
        }
        match loader.take() {
            Some(Loader::Shard(shard)) => state.put(lane.shard, shard.finish(lane.digest)?),
            Some(Loader::Control(control)) => {
                let (control, last_ms) = control.finish(lane.digest)?;
                state.put_control(control, last_ms);
            }
            None => {}
        }
    }
    Ok(())
}
