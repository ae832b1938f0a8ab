//! A snapshot in memory: the images of the shards, as their bytes.

use std::convert::Infallible;

use bridge::images::ImageSource;
use bridge::tail::Unreadable;
use engine::core::shard::Shard;
use engine::core::snapshot::{
    IMAGE_VERSION, Image, decode_image, encode_image, image_kind, walk_shard,
};
use wal::Lsn;

/// An image with its shard, and the sequence that the shard had.
pub type StoredImage = (u16, u64, u8, Vec<u8>);

/// The images of `shard`.
pub fn images_of(id: u16, shard: &Shard) -> Vec<StoredImage> {
    let mut images = Vec::new();
    let take = |image: Image<'_>| {
        let mut bytes = Vec::new();
        encode_image(&image, &mut bytes);
        images.push((id, shard.applied_seq(), image_kind(&image), bytes));
        Ok::<_, Infallible>(())
    };
    let Ok(()) = walk_shard(shard, &mut { take });
    images
}

/// All images of one snapshot.
#[derive(Clone)]
pub struct MemoryImages {
    place: (Lsn, u32),
    images: Vec<StoredImage>,
    next: usize,
}

impl MemoryImages {
    pub fn new(place: (Lsn, u32), images: Vec<StoredImage>) -> Self {
        Self { place, images, next: 0 }
    }
}

impl ImageSource for MemoryImages {
    fn lsn(&self) -> Lsn {
        self.place.0
    }

    fn chain(&self) -> u32 {
        self.place.1
    }

    fn created_ms(&self) -> u64 {
        1_234_567
    }

    fn next_image(&mut self) -> Result<Option<Image<'_>>, Unreadable> {
        let Some((_, _, kind, bytes)) = self.images.get(self.next) else { return Ok(None) };
        self.next += 1;
        Ok(Some(decode_image(*kind, IMAGE_VERSION, bytes).unwrap()))
    }

    fn shard(&self) -> (u16, u64) {
        let (shard, seq, ..) = self.images[self.next - 1];
        (shard, seq)
    }
}
