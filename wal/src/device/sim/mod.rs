//! A simulated disk: the page cache and the platter apart, so that a campaign can cut the power at
//! any operation and keep any subset of what was not yet synced.
//!
//! # What it models
//!
//! - A write lands in the cache. A sync makes the file's cache durable. At a power cut every
//!   unsynced 512-byte *sector*, independently, is old, new or garbage.
//! - A name created, renamed or removed is durable after its directory's sync; at a power cut every
//!   unsynced name operation is kept or lost, a rename as a whole.
//! - A failed sync leaves the pages clean and lost: a later sync succeeds and makes nothing of them
//!   durable. Readers through the cache then see the new content (as on ext4) or the old (as on
//!   Btrfs); readers past the cache see what the disk has, and what is still unsynced.
//! - A failed write, create or rename may have been done in part or in whole.
//! - A killed process loses nothing of the cache.
//! - A sync can be a lie: it succeeds, everybody reads what was written, and a power cut takes it.
//! - Any operation can be made to fail, once or from then on.
//!
//! Everything is deterministic: the clock ticks once a question, random numbers come from a seed.

mod fault;
mod image;
mod lie;
mod pages;

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use fault::{Fault, FaultKind, Op};
pub use image::{Fate, Image};
use image::{FileState, NameOp, dir_of};
pub use lie::Lie;
use lie::Syncs;
use pages::Pages;

use super::{Device, Entry, File, FileSystem, Lock};

/// Bytes that are written whole or not at all.
pub const SECTOR_BYTES: usize = 512;

/// Called before every operation, with the disk as it is then.
pub type Observer = Box<dyn FnMut(Op, &Image) + Send>;

#[derive(Default)]
struct State {
    image: Image,
    locked: bool,
    ops: u64,
    fault: Option<Fault>,
    faults_hit: u64,
    free_bytes: Option<u64>,
    syncs: Syncs,
}

struct Shared {
    state: Mutex<State>,
    observer: Mutex<Option<Observer>>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins an operation: shows the disk to the observer, counts, and fails where a fault says.
    fn begin(&self, op: Op) -> io::Result<MutexGuard<'_, State>> {
        let mut observer = self.observer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(observer) = observer.as_mut() {
            let image = self.state().image.clone();
            observer(op, &image);
        }
        drop(observer);
        let mut state = self.state();
        state.ops += 1;
        let error = state.fault.and_then(|fault| fault.error(op, state.ops));
        if let Some(error) = error {
            state.faults_hit += 1;
            return Err(error);
        }
        Ok(state)
    }

    /// As [`Shared::begin`], but an error that leaves the new content behind comes with the state:
    /// the operation is done, in part or in whole, and fails all the same.
    fn begin_leaving_traces(
        &self,
        op: Op,
    ) -> io::Result<(MutexGuard<'_, State>, Option<io::Error>)> {
        match self.begin(op) {
            Ok(state) => Ok((state, None)),
            Err(error) => {
                let state = self.state();
                match state.fault.is_some_and(|fault| fault.keeps_new_content()) {
                    true => Ok((state, Some(error))),
                    false => Err(error),
                }
            }
        }
    }
}

/// A process's view of a simulated disk.
#[derive(Clone)]
pub struct SimDevice {
    shared: Arc<Shared>,
}

impl SimDevice {
    /// The device of `image`.
    pub fn new(image: Image) -> Self {
        let state = State { image, ..State::default() };
        Self { shared: Arc::new(Shared { state: Mutex::new(state), observer: Mutex::new(None) }) }
    }

    /// The disk as it is now.
    pub fn image(&self) -> Image {
        self.shared.state().image.clone()
    }

    /// Shows the disk to `observer` before every operation from now on.
    pub fn observe(&self, observer: Option<Observer>) {
        *self.shared.observer.lock().unwrap_or_else(PoisonError::into_inner) = observer;
    }

    /// Makes operations fail from now on, or no more.
    pub fn set_fault(&self, fault: Option<Fault>) {
        self.shared.state().fault = fault;
    }

    /// Number of operations begun, and of those that were made to fail.
    pub fn counts(&self) -> (u64, u64) {
        let state = self.shared.state();
        (state.ops, state.faults_hit)
    }

    /// Moves its clock on to `us`, Unix microseconds; it never goes back.
    pub fn clock_reaches_us(&self, us: u64) {
        let mut state = self.shared.state();
        state.image.clock_us = state.image.clock_us.max(us);
    }

    /// Lets files be created and grow within `bytes` bytes more, or without bound.
    pub fn set_free_bytes(&self, bytes: Option<u64>) {
        self.shared.state().free_bytes = bytes;
    }

    fn open_file(&self, path: &str, cached: bool) -> io::Result<Arc<dyn File>> {
        let state = self.shared.begin(Op::Open)?;
        let file = *state.image.names.get(path).ok_or(io::ErrorKind::NotFound)?;
        drop(state);
        Ok(Arc::new(SimFile { shared: Arc::clone(&self.shared), file, cached }))
    }
}

struct SimFile {
    shared: Arc<Shared>,
    file: u64,
    /// Whether reads are answered by the page cache.
    cached: bool,
}

fn file_of(image: &mut Image, file: u64) -> io::Result<&mut FileState> {
    image.files.get_mut(&file).ok_or_else(|| io::ErrorKind::NotFound.into())
}

impl File for SimFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let (mut state, error) =
            self.shared.begin_leaving_traces(Op::Write).inspect_err(|error| {
                self.shared.state().image.note_failure(self.file, error);
            })?;
        if let Some(error) = &error {
            state.image.note_failure(self.file, error);
        }
        let written = match state.fault {
            _ if error.is_some() => bytes.len() / 2,
            Some(fault) if fault.shortens(state.ops) => {
                state.faults_hit += 1;
                bytes.len().div_ceil(2)
            }
            _ => bytes.len(),
        };
        let free_bytes = state.free_bytes;
        let file = file_of(&mut state.image, self.file)?;
        let grown = (offset + written as u64).saturating_sub(file.cached.len());
        let left = match free_bytes {
            Some(free) if free < grown => return Err(io::ErrorKind::StorageFull.into()),
            left => left.map(|free| free - grown),
        };
        let dirty = file.cached.write(&bytes[..written], offset, &file.durable);
        file.dirty.extend(dirty);
        state.free_bytes = left;
        error.map_or(Ok(written), Err)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut state = self.shared.begin(Op::Read)?;
        let last = offset + buffer.len().max(1) as u64 - 1;
        let mut blocks = offset / 4096..=last / 4096;
        if blocks.any(|block| state.image.bad_blocks.contains(&(self.file, block))) {
            return Err(io::Error::from_raw_os_error(fault::EIO));
        }
        let file = file_of(&mut state.image, self.file)?;
        Ok(match self.cached {
            true => file.cached.read(buffer, offset),
            false => file.read_uncached(buffer, offset),
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        match self.shared.begin(Op::Sync) {
            Ok(mut state) => {
                let lies = state.syncs.lies();
                file_of(&mut state.image, self.file)?.synced(lies);
                Ok(())
            }
            Err(error) => {
                let mut state = self.shared.state();
                state.image.note_failure(self.file, &error);
                let keeps_new = state.fault.is_some_and(|fault| fault.keeps_new_content());
                let file = file_of(&mut state.image, self.file)?;
                file.dirty.clear();
                if !keeps_new {
                    file.cached = file.durable.clone();
                }
                Err(error)
            }
        }
    }

    fn length(&self) -> io::Result<u64> {
        let mut state = self.shared.state();
        Ok(file_of(&mut state.image, self.file)?.cached.len())
    }
}

struct SimLock(Arc<Shared>);

impl Lock for SimLock {
    fn note(&self, _text: &str) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.0.state().locked = false;
    }
}

impl Device for SimDevice {
    fn create_zeroed(&self, path: &str, bytes: u64) -> io::Result<()> {
        let (mut state, error) = self.shared.begin_leaving_traces(Op::Create)?;
        let made = if error.is_some() { bytes / 2 } else { bytes };
        if let Some(free) = state.free_bytes {
            if free < bytes {
                return Err(io::ErrorKind::StorageFull.into());
            }
            state.free_bytes = Some(free - bytes);
        }
        let image = &mut state.image;
        image.next_file += 1;
        let file = image.next_file;
        image.files.insert(file, FileState::durable(Pages::zeroed(made)));
        if let Some(error) = &error {
            image.note_failure(file, error);
        }
        let op = NameOp::Create { name: path.to_owned(), file };
        op.apply(&mut image.names);
        image.pending_names.push(op);
        error.map_or(Ok(()), Err)
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn File>> {
        self.open_file(path, true)
    }

    fn open_uncached(&self, path: &str) -> io::Result<Arc<dyn File>> {
        self.open_file(path, false)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (mut state, error) = self.shared.begin_leaving_traces(Op::Rename)?;
        let image = &mut state.image;
        let file = *image.names.get(from).ok_or(io::ErrorKind::NotFound)?;
        image.note_name(file, to);
        let op = NameOp::Rename { from: from.to_owned(), to: to.to_owned(), file };
        op.apply(&mut image.names);
        image.pending_names.push(op);
        error.map_or(Ok(()), Err)
    }

    fn link(&self, from: &str, to: &str) -> io::Result<()> {
        let (mut state, error) = self.shared.begin_leaving_traces(Op::Link)?;
        let image = &mut state.image;
        let file = *image.names.get(from).ok_or(io::ErrorKind::NotFound)?;
        let op = NameOp::Create { name: to.to_owned(), file };
        op.apply(&mut image.names);
        image.pending_names.push(op);
        error.map_or(Ok(()), Err)
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        let mut state = self.shared.begin(Op::SyncDir)?;
        let lies = state.syncs.lies();
        state.image.synced_dir(path, lies);
        Ok(())
    }

    fn list(&self, path: &str) -> io::Result<Vec<Entry>> {
        let state = self.shared.begin(Op::List)?;
        let image = &state.image;
        if !path.is_empty() && !image.dirs.contains(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let mut entries = Vec::new();
        for (name, file) in image.names.iter().filter(|(name, _)| dir_of(name) == path) {
            let name = name.rsplit('/').next().unwrap_or(name).to_owned();
            let bytes = image.files.get(file).map_or(0, |file| file.cached.len());
            entries.push(Entry { name, bytes });
        }
        if path.is_empty() {
            entries.extend(image.dirs.iter().map(|dir| Entry { name: dir.clone(), bytes: 0 }));
        }
        entries.sort();
        Ok(entries)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let mut state = self.shared.begin(Op::Remove)?;
        let image = &mut state.image;
        let Some(file) = image.names.remove(path) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        image.pending_names.push(NameOp::Remove { name: path.to_owned() });
        let bytes = image.files.get(&file).map_or(0, |file| file.cached.len());
        state.free_bytes = state.free_bytes.map(|free| free + bytes);
        Ok(())
    }

    fn create_dir(&self, path: &str) -> io::Result<()> {
        let mut state = self.shared.begin(Op::CreateDir)?;
        if !path.is_empty() {
            state.image.dirs.insert(path.to_owned());
        }
        Ok(())
    }

    fn lock(&self) -> io::Result<Box<dyn Lock>> {
        let mut state = self.shared.state();
        if state.locked {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        state.locked = true;
        Ok(Box::new(SimLock(Arc::clone(&self.shared))))
    }

    fn file_system(&self) -> io::Result<FileSystem> {
        Ok(FileSystem::Suitable)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        Ok(self.shared.state().free_bytes.unwrap_or(u64::MAX))
    }

    fn now_us(&self) -> u64 {
        let mut state = self.shared.state();
        state.image.clock_us += 1;
        state.image.clock_us
    }

    fn random(&self) -> io::Result<u64> {
        Ok(self.shared.state().image.next_random())
    }

    fn pause_ms(&self, _ms: u64) {}

    fn display(&self, path: &str) -> String {
        format!("sim:{path}")
    }
}

#[cfg(test)]
mod tests;
