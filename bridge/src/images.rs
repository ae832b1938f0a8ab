//! The state of the engine as a sink sees it that the log has passed by: image by image, as it was
//! after one record of the log.
//!
//! As in [`tail`](crate::tail), nothing here knows files. What an [`ImageSource`] gives is whole
//! only once it has come to its end: damage is found where it stands.

use engine::SnapshotContents;
use engine::core::snapshot::Image;
use wal::Lsn;

use crate::tail::Unreadable;

/// All state after one record that ends a frame.
pub trait ImageSource: Send {
    /// That record.
    fn lsn(&self) -> Lsn;

    /// The chain of its frame.
    fn chain(&self) -> u32;

    /// When the images were made, Unix milliseconds.
    fn created_ms(&self) -> u64;

    /// The next image, or `None` after the last. An activity's images follow its `Activity`.
    ///
    /// # Errors
    /// Where it can't be read.
    fn next_image(&mut self) -> Result<Option<Image<'_>>, Unreadable>;

    /// The shard of the image that came last, with the sequence that the images cover of it.
    fn shard(&self) -> (u16, u64);
}

impl ImageSource for SnapshotContents {
    fn lsn(&self) -> Lsn {
        SnapshotContents::lsn(self)
    }

    fn chain(&self) -> u32 {
        SnapshotContents::chain(self)
    }

    fn created_ms(&self) -> u64 {
        self.created_unix_ms()
    }

    fn next_image(&mut self) -> Result<Option<Image<'_>>, Unreadable> {
        match self.next() {
            Ok(image) => Ok(image.map(|(_, image)| image)),
            Err(error) => Err(Unreadable { passing: false, source: Box::new(error) }),
        }
    }

    fn shard(&self) -> (u16, u64) {
        (self.last_shard(), self.shard_seq())
    }
}

/// Of a host that makes no images: its log is never given back.
#[derive(Clone, Copy, Debug)]
pub enum NoImages {}

impl ImageSource for NoImages {
    fn lsn(&self) -> Lsn {
        match *self {}
    }

    fn chain(&self) -> u32 {
        match *self {}
    }

    fn created_ms(&self) -> u64 {
        match *self {}
    }

    fn next_image(&mut self) -> Result<Option<Image<'_>>, Unreadable> {
        match *self {}
    }

    fn shard(&self) -> (u16, u64) {
        match *self {}
    }
}
