//! The state of a simulated disk, and what a power cut makes of it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use super::fault::EIO;
use super::pages::Pages;

/// The state of a disk at one instant. Clones share their pages.
#[derive(Clone, Default)]
pub struct Image {
    pub(super) files: BTreeMap<u64, FileState>,
    pub(super) names: BTreeMap<String, u64>,
    pub(super) durable_names: BTreeMap<String, u64>,
    pub(super) pending_names: Vec<NameOp>,
    pub(super) dirs: BTreeSet<String>,
    pub(super) next_file: u64,
    pub(super) clock_us: u64,
    random: u64,
    pub(super) bad_blocks: BTreeSet<(u64, u64)>,
    /// Files on which a write, a sync or their making failed with an I/O error.
    failed_files: BTreeSet<u64>,
    /// Names that such a file got afterwards.
    reused: Vec<String>,
}

#[derive(Clone, Default)]
pub(super) struct FileState {
    pub(super) cached: Pages,
    pub(super) durable: Pages,
    pub(super) dirty: BTreeSet<u64>,
    /// Sectors that a lying sync said were durable; readers still see them.
    dropped: BTreeSet<u64>,
}

impl FileState {
    /// A file that has `pages`, durably.
    pub(super) fn durable(pages: Pages) -> Self {
        Self { cached: pages.clone(), durable: pages, ..Self::default() }
    }

    /// What a sync that succeeds does.
    pub(super) fn synced(&mut self, lies: bool) {
        let mut dirty = std::mem::take(&mut self.dirty);
        if lies {
            self.dropped.append(&mut dirty);
            return;
        }
        for sector in dirty {
            self.durable.copy_sector(&self.cached, sector);
            self.dropped.remove(&sector);
        }
        self.durable.extend(self.cached.len());
    }

    /// Reads past the cache: what is unsynced is written back first, what is clean comes from the
    /// disk, whatever the cache has in its place.
    pub(super) fn read_uncached(&self, buffer: &mut [u8], offset: u64) -> usize {
        if self.dirty.is_empty() && self.dropped.is_empty() {
            return self.durable.read(buffer, offset);
        }
        let mut content = self.durable.clone();
        for sector in self.dirty.union(&self.dropped) {
            content.copy_sector(&self.cached, *sector);
        }
        content.read(buffer, offset)
    }
}

#[derive(Clone, Debug)]
pub(super) enum NameOp {
    Create { name: String, file: u64 },
    Rename { from: String, to: String, file: u64 },
    Remove { name: String },
}

impl NameOp {
    pub(super) fn dir(&self) -> &str {
        let (Self::Create { name, .. } | Self::Rename { to: name, .. } | Self::Remove { name }) =
            self;
        dir_of(name)
    }

    pub(super) fn apply(&self, names: &mut BTreeMap<String, u64>) {
        match self {
            Self::Create { name, file } => {
                names.insert(name.clone(), *file);
            }
            Self::Rename { from, to, file } => {
                names.remove(from);
                names.insert(to.clone(), *file);
            }
            Self::Remove { name } => {
                names.remove(name);
            }
        }
    }
}

pub(super) fn dir_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(dir, _)| dir)
}

/// What becomes of one unsynced sector at a power cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It never reached the disk.
    Old,
    /// It reached the disk.
    New,
    /// The disk was in the middle of it.
    Garbage,
}

impl Image {
    /// An empty disk whose random numbers come from `seed`.
    pub fn empty(seed: u64) -> Self {
        Self { clock_us: 1_700_000_000_000_000, random: seed | 1, ..Self::default() }
    }

    /// Number of unsynced sectors and of unsynced name operations.
    pub fn unsynced(&self) -> (usize, usize) {
        let sectors = self.files.values().map(|file| file.dirty.len()).sum();
        (sectors, self.pending_names.len())
    }

    /// The disk after a power cut: `sector` and `name` decide, by index, what becomes of what was
    /// not synced.
    pub fn power_cut(
        &self,
        mut sector: impl FnMut(usize) -> Fate,
        mut name: impl FnMut(usize) -> bool,
    ) -> Self {
        let mut after = self.clone();
        let mut index = 0;
        for file in after.files.values_mut() {
            let mut durable = file.durable.clone();
            for dirty in std::mem::take(&mut file.dirty) {
                match sector(index) {
                    Fate::Old => {}
                    Fate::New => durable.copy_sector(&file.cached, dirty),
                    Fate::Garbage => durable.garble_sector(dirty),
                }
                index += 1;
            }
            *file = FileState::durable(durable);
        }
        let mut names = after.durable_names.clone();
        for (index, op) in after.pending_names.drain(..).enumerate() {
            if name(index) {
                op.apply(&mut names);
            }
        }
        after.names = names.clone();
        after.durable_names = names;
        after
    }

    /// The disk after its process was killed: the cache survives.
    pub fn killed(&self) -> Self {
        self.clone()
    }

    /// The paths of all files.
    pub fn paths(&self) -> Vec<String> {
        self.names.keys().cloned().collect()
    }

    /// The content of a file, as a reader sees it.
    pub fn content(&self, path: &str) -> Option<Vec<u8>> {
        Some(self.files.get(self.names.get(path)?)?.cached.to_vec())
    }

    /// Whether a file has the same content in both images.
    pub fn same_content(&self, other: &Self, path: &str) -> bool {
        let of = |image: &Self| Some(image.files.get(image.names.get(path)?)?.cached.clone());
        match (of(self), of(other)) {
            (Some(one), Some(two)) => one == two,
            (one, two) => one.is_none() && two.is_none(),
        }
    }

    /// Replaces the content of a file, durably, or makes the file.
    pub fn set_content(&mut self, path: &str, bytes: &[u8]) {
        self.next_file += 1;
        self.files.insert(self.next_file, FileState::durable(Pages::from_bytes(bytes)));
        self.names.insert(path.to_owned(), self.next_file);
        self.durable_names.insert(path.to_owned(), self.next_file);
    }

    /// Removes a file, durably.
    pub fn remove(&mut self, path: &str) {
        self.names.remove(path);
        self.durable_names.remove(path);
    }

    /// Makes reads of a 4 KiB block of a file fail.
    pub fn make_unreadable(&mut self, path: &str, block: u64) {
        if let Some(file) = self.names.get(path) {
            self.bad_blocks.insert((*file, block));
        }
    }

    pub(super) fn note_failure(&mut self, file: u64, error: &io::Error) {
        if error.raw_os_error() == Some(EIO) {
            self.failed_files.insert(file);
        }
    }

    pub(super) fn note_name(&mut self, file: u64, name: &str) {
        if self.failed_files.contains(&file) {
            self.reused.push(name.to_owned());
        }
    }

    /// Forgets that a file saw an I/O error.
    pub fn forget_failure(&mut self, path: &str) {
        if let Some(file) = self.names.get(path) {
            self.failed_files.remove(file);
        }
    }

    /// The names that files got after an I/O error on them.
    pub fn renamed_after_error(&self) -> &[String] {
        &self.reused
    }

    /// What a sync of directory `path` that succeeds does.
    pub(super) fn synced_dir(&mut self, path: &str, lies: bool) {
        let pending = std::mem::take(&mut self.pending_names);
        for op in pending {
            if op.dir() != path {
                self.pending_names.push(op);
            } else if !lies {
                op.apply(&mut self.durable_names);
            }
        }
    }

    /// Moves the wall clock.
    pub fn advance_clock_us(&mut self, us: i64) {
        self.clock_us = self.clock_us.saturating_add_signed(us);
    }

    pub(super) fn next_random(&mut self) -> u64 {
        // xorshift64*: G. Marsaglia, "Xorshift RNGs" (2003), with S. Vigna's multiplier.
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }
}
