//! A shard taken through a snapshot's items and back.

use engine::core::digest::digest;
use engine::core::shard::{Shard, ShardSeed};
use engine::core::snapshot::{
    IMAGE_VERSION, Images, ShardLoader, encode_image, image_kind, walk_shard,
};

/// A shard's items as a snapshot holds them: kind and bytes.
pub(crate) fn items(shard: &Shard) -> Vec<(u8, Vec<u8>)> {
    let mut items = Vec::new();
    let walked: Result<(), std::convert::Infallible> = walk_shard(shard, &mut |image| {
        let mut bytes = Vec::new();
        encode_image(&image, &mut bytes);
        items.push((image_kind(&image), bytes));
        Ok(())
    });
    walked.unwrap();
    items
}

/// The shard that those items stand for, whose digest must be the original's.
pub(crate) fn reloaded(shard: &Shard, table_seed: u64) -> Shard {
    let seed = ShardSeed { table_seed, requests: *shard.requests() };
    let mut loader = ShardLoader::new(seed, shard.applied_seq());
    loader.take(&images(&items(shard))).unwrap();
    loader.finish(digest(shard)).unwrap()
}

/// Items, decoded.
pub(crate) fn images(items: &[(u8, Vec<u8>)]) -> Images {
    let mut images = Images::default();
    for (kind, bytes) in items {
        images.push(*kind, IMAGE_VERSION, bytes).unwrap();
    }
    images
}
