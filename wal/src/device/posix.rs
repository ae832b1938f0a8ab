//! Plain files: buffered writes and `fdatasync`, which work on every file system; segments past
//! the page cache where that was [asked for or pays](super::direct).

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::ahead::AheadFile;
use super::direct::{self, AppendChoice, Appends, DirectFile};
use super::{Device, Entry, File, FileSystem, Lock, zeros};

const TMPFS_MAGIC: u64 = 0x0102_1994;
const RAMFS_MAGIC: u64 = 0x8584_58F6;
const NFS_MAGIC: u64 = 0x6969;
const SMB_MAGIC: u64 = 0x517B;
const SMB2_MAGIC: u64 = 0xFE53_4D42;
const CIFS_MAGIC: u64 = 0xFF53_4D42;
const OVERLAYFS_MAGIC: u64 = 0x794C_7630;

/// A directory of the machine's file system.
#[derive(Clone, Debug)]
pub struct PosixDevice {
    root: PathBuf,
    choice: AppendChoice,
    /// Shared by clones: they are one device.
    direct: Arc<AtomicBool>,
}

impl PosixDevice {
    /// The device of the directory `root`, which need not exist yet. Writes are buffered.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), choice: AppendChoice::default(), direct: Arc::default() }
    }

    /// The same device, which writes segments as `choice` says.
    pub fn with_appends(self, choice: AppendChoice) -> Self {
        Self { choice, ..self }
    }

    /// Opens an existing file past the page cache, each write durable when it returns: whole
    /// blocks at block boundaries, in memory aligned alike.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] where the file system has no such thing.
    pub fn open_direct(&self, path: &str) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(DirectFile::open(&self.path(path))?))
    }

    fn path(&self, path: &str) -> PathBuf {
        if path.is_empty() { self.root.clone() } else { self.root.join(path) }
    }
}

struct PosixFile(fs::File);

impl File for PosixFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.0.write_at(bytes, offset)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }
}

struct PosixLock(fs::File);

impl Lock for PosixLock {
    fn note(&self, text: &str) -> io::Result<()> {
        self.0.set_len(0)?;
        self.0.write_all_at(text.as_bytes(), 0)
    }
}

impl Device for PosixDevice {
    fn create_zeroed(&self, path: &str, bytes: u64) -> io::Result<()> {
        zeros::create(&self.path(path), bytes)
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn File>> {
        let file = OpenOptions::new().read(true).write(true).open(self.path(path))?;
        Ok(Arc::new(PosixFile(file)))
    }

    fn open_to_append(&self, path: &str) -> io::Result<Arc<dyn File>> {
        match self.direct.load(Ordering::Relaxed) {
            true => self.open_direct(path),
            false => self.open(path),
        }
    }

    fn settle_appends(&self) -> io::Result<Appends> {
        if self.choice == AppendChoice::Buffered {
            return Ok(Appends::default());
        }
        let appends = match self.create_zeroed(direct::PROBE_PATH, direct::probe_bytes()) {
            Ok(()) => direct::decide(self.choice, &self.path(direct::PROBE_PATH)),
            // A full disk must not keep a log from opening: what works everywhere will do.
            Err(error) if error.kind() == io::ErrorKind::StorageFull => Ok(Appends::default()),
            Err(error) => Err(error),
        };
        match self.remove(direct::PROBE_PATH) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let appends = appends?;
        self.direct.store(appends.direct, Ordering::Relaxed);
        Ok(appends)
    }

    fn open_to_read(&self, path: &str) -> io::Result<Arc<dyn File>> {
        // What was written past the cache is not in it. Looked for there it would be read ahead, by
        // megabytes, and dropped by the next write; and that write would wait for the reading.
        if self.direct.load(Ordering::Relaxed) {
            return self.open_uncached(path);
        }
        let file = fs::File::open(self.path(path))?;
        // Not every file system takes advice; none needs it.
        let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random);
        Ok(Arc::new(PosixFile(file)))
    }

    fn open_uncached(&self, path: &str) -> io::Result<Arc<dyn File>> {
        let path = self.path(path);
        let direct = i32::try_from(rustix::fs::OFlags::DIRECT.bits()).unwrap_or(0);
        match OpenOptions::new().read(true).custom_flags(direct).open(&path) {
            Ok(file) => Ok(Arc::new(PosixFile(file))),
            // The file system has no direct I/O: let the kernel forget what it holds instead.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error()) => {
                let file = OpenOptions::new().read(true).open(&path)?;
                rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
                Ok(Arc::new(PosixFile(file)))
            }
            Err(error) => Err(error),
        }
    }

    fn open_ahead(&self, path: &str, from: u64, to: u64) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(AheadFile::new(self.open_uncached(path)?, from, to)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path(from), self.path(to))
    }

    fn link(&self, from: &str, to: &str) -> io::Result<()> {
        fs::hard_link(self.path(from), self.path(to))
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        fs::File::open(self.path(path))?.sync_all()
    }

    fn list(&self, path: &str) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(self.path(path))? {
            let entry = entry?;
            let metadata = match entry.metadata() {
                Ok(metadata) => metadata,
                // Renamed or removed since its name was read, as spares are beside every reader.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            entries.push(Entry {
                name: entry.file_name().to_string_lossy().into_owned(),
                bytes: if metadata.is_dir() { 0 } else { metadata.len() },
            });
        }
        entries.sort();
        Ok(entries)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        fs::remove_file(self.path(path))
    }

    fn create_dir(&self, path: &str) -> io::Result<()> {
        let path = std::path::absolute(self.path(path))?;
        let missing: Vec<_> = path.ancestors().take_while(|path| !path.exists()).collect();
        fs::create_dir_all(&path)?;
        // A power cut must not take away the directory that a durable log lies in.
        missing
            .iter()
            .filter_map(|path| path.parent())
            .try_for_each(|parent| fs::File::open(parent)?.sync_all())
    }

    fn lock(&self) -> io::Result<Box<dyn Lock>> {
        let path = self.path("LOCK");
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Box::new(PosixLock(file))),
            Err(fs::TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }

    fn file_system(&self) -> io::Result<FileSystem> {
        // The directory may not exist yet: its nearest ancestor that does decides.
        let absolute = std::path::absolute(&self.root)?;
        let existing = absolute.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
        let magic = rustix::fs::statfs(existing)?.f_type;
        Ok(match u64::try_from(magic).unwrap_or(0) {
            TMPFS_MAGIC | RAMFS_MAGIC => FileSystem::Volatile,
            NFS_MAGIC | SMB_MAGIC | SMB2_MAGIC | CIFS_MAGIC => FileSystem::Network,
            OVERLAYFS_MAGIC => FileSystem::Overlay,
            _ => FileSystem::Suitable,
        })
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let disk = rustix::fs::statvfs(&self.root)?;
        Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
    }

    fn now_us(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }

    fn random(&self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        // Eight bytes come whole. No file is opened for them: descriptors may be short.
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn pause_ms(&self, ms: u64) {
        std::thread::sleep(Duration::from_millis(ms));
    }

    fn display(&self, path: &str) -> String {
        self.path(path).display().to_string()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn a_file_renamed_while_its_directory_is_listed_fails_no_list() {
        let dir = tempfile::tempdir().unwrap();
        let device = PosixDevice::new(dir.path());
        device.create_zeroed("a", 1).unwrap();
        let listed = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !listed.load(Ordering::Relaxed) {
                    device.rename("a", "b").unwrap();
                    device.rename("b", "a").unwrap();
                }
            });
            let lists: Vec<_> = (0..5_000).map(|_| device.list("")).collect();
            listed.store(true, Ordering::Relaxed);
            for list in lists {
                list.unwrap();
            }
        });
    }
}
