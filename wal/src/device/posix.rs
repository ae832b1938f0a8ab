//! Plain files: buffered writes and `fdatasync`, which work on every file system; segments past
//! the page cache where that was [asked for or pays](super::direct).

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::OFlags;

use super::ahead::AheadFile;
use super::direct::{self, AppendChoice, Appends, DirectFile};
use super::{Device, Entry, File, FileSystem, Lock, if_found, zeros};

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
        self.0.metadata().map(|it| it.len())
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
        if_found(self.remove(direct::PROBE_PATH))?;
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
        let past = direct::unless_refused(direct::open(&path, OFlags::RDONLY | OFlags::DIRECT))?;
        let file = past.map_or_else(|| open_forgotten(&path), Ok)?;
        Ok(Arc::new(PosixFile(file)))
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
            // Renamed or removed since its name was read, as spares are beside every reader.
            let Some(metadata) = if_found(entry.metadata())? else { continue };
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
            .try_for_each(|parent| fs::File::open(parent).and_then(|dir| dir.sync_all()))
    }

    fn lock(&self) -> io::Result<Box<dyn Lock>> {
        let path = self.path("LOCK");
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        file.try_lock()?;
        Ok(Box::new(PosixLock(file)))
    }

    fn file_system(&self) -> io::Result<FileSystem> {
        // The directory may not exist yet: its nearest ancestor that does decides.
        let absolute = std::path::absolute(&self.root)?;
        let existing = absolute.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
        let told = rustix::fs::statfs(existing).map_err(io::Error::from);
        told.map(|it| kind(u64::try_from(it.f_type).unwrap_or(0)))
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
        let drawn = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
        drawn.map(|_| u64::from_le_bytes(bytes)).map_err(io::Error::from)
    }

    fn pause_ms(&self, ms: u64) {
        std::thread::sleep(Duration::from_millis(ms));
    }

    fn display(&self, path: &str) -> String {
        self.path(path).display().to_string()
    }
}

/// Opens a file of a file system that has no direct reads, and lets the kernel forget what it holds
/// of it instead.
fn open_forgotten(path: &Path) -> io::Result<fs::File> {
    let file = fs::File::open(path)?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    Ok(file)
}

/// What a file system is, by the number that it goes by.
const fn kind(magic: u64) -> FileSystem {
    match magic {
        TMPFS_MAGIC | RAMFS_MAGIC => FileSystem::Volatile,
        NFS_MAGIC | SMB_MAGIC | SMB2_MAGIC | CIFS_MAGIC => FileSystem::Network,
        OVERLAYFS_MAGIC => FileSystem::Overlay,
        _ => FileSystem::Suitable,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::device::{read_full, write_full};

    /// A device, and the directory that it is.
    fn device() -> (PosixDevice, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let device = PosixDevice::new(dir.path());
        device.create_dir("wal").unwrap();
        (device, dir)
    }

    /// What a call was refused with, whatever it would have given.
    fn refused<T>(result: io::Result<T>) -> io::ErrorKind {
        result.map(drop).unwrap_err().kind()
    }

    #[test]
    fn what_is_not_there_is_not_found_by_any_call() {
        let (device, _dir) = device();
        let missing = "wal/missing";
        for (call, told) in [
            ("open", refused(device.open(missing))),
            ("open_to_append", refused(device.open_to_append(missing))),
            ("open_to_read", refused(device.open_to_read(missing))),
            ("open_uncached", refused(device.open_uncached(missing))),
            ("open_ahead", refused(device.open_ahead(missing, 0, 4096))),
            ("open_direct", refused(device.open_direct(missing))),
            ("create_zeroed", refused(device.create_zeroed("missing/file", 1))),
            ("rename", refused(device.rename(missing, "wal/other"))),
            ("link", refused(device.link(missing, "wal/other"))),
            ("list", refused(device.list(missing))),
            ("remove", refused(device.remove(missing))),
            ("sync_dir", refused(device.sync_dir(missing))),
        ] {
            assert_eq!(told, io::ErrorKind::NotFound, "{call}");
        }
        let nowhere = PosixDevice::new(device.path("missing"));
        assert_eq!(refused(nowhere.free_bytes()), io::ErrorKind::NotFound);
        assert_eq!(refused(nowhere.lock()), io::ErrorKind::NotFound, "made by nobody's lock");
        // Where it would be made decides what it would lie on.
        assert_eq!(nowhere.file_system().unwrap(), device.file_system().unwrap());
    }

    #[test]
    fn a_device_without_a_name_is_no_directory() {
        let device = PosixDevice::new("");
        assert_eq!(refused(device.create_dir("")), io::ErrorKind::InvalidInput);
        assert_eq!(refused(device.file_system()), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn a_file_in_a_directory_s_place_is_left_there() {
        let (device, dir) = device();
        fs::write(dir.path().join("snap"), b"a file").unwrap();
        for path in ["snap", "snap/deeper"] {
            assert!(device.create_dir(path).is_err(), "{path}");
        }
        assert_eq!(fs::read(dir.path().join("snap")).unwrap(), b"a file");
    }

    #[test]
    fn a_directory_is_held_by_one_and_its_note_replaces_the_one_before() {
        let (device, dir) = device();
        let lock = device.lock().unwrap();
        assert_eq!(refused(device.lock()), io::ErrorKind::WouldBlock);
        for note in ["pid 1 and much more\n", "pid 2\n"] {
            lock.note(note).unwrap();
            assert_eq!(fs::read_to_string(dir.path().join("LOCK")).unwrap(), note);
        }
        drop(lock);
        // One that may not be written to says so.
        let file = fs::File::open(dir.path().join("LOCK")).unwrap();
        assert!(PosixLock(file).note("pid 3\n").is_err());
        device.lock().unwrap().note("pid 4\n").unwrap();
    }

    #[test]
    fn every_way_to_open_a_file_gives_its_bytes_and_its_length() {
        let (device, dir) = device();
        let mut content = vec![7; 3 * 4096];
        content[4096..].fill(9);
        fs::write(dir.path().join("wal/a"), &content).unwrap();
        let ways = [
            device.open("wal/a"),
            device.open_to_append("wal/a"),
            device.open_to_read("wal/a"),
            device.open_uncached("wal/a"),
            device.open_ahead("wal/a", 0, 3 * 4096),
        ];
        for (number, file) in ways.into_iter().enumerate() {
            let file = file.unwrap();
            let mut blocks = super::super::Blocks::new(4);
            assert_eq!(read_full(&*file, blocks.bytes_mut(), 0).unwrap(), content.len());
            assert!(blocks.bytes()[..content.len()] == content, "way {number}");
            assert_eq!(file.length().unwrap(), 3 * 4096);
            // Whoever reads ahead has all of a file's other calls.
            file.sync_data().unwrap();
        }
        let read_only = device.open_ahead("wal/a", 0, 4096).unwrap();
        assert!(write_full(&*read_only, &[1], 0).is_err());
        assert_eq!(fs::read(dir.path().join("wal/a")).unwrap(), content);
    }

    /// `/proc` is one: it refuses to be opened past the cache.
    #[test]
    fn a_file_system_without_direct_reads_is_read_all_the_same() {
        let device = PosixDevice::new("/proc/self");
        let file = device.open_uncached("status").unwrap();
        let mut text = [0; 5];
        assert_eq!(file.read_at(&mut text, 0).unwrap(), 5);
        assert_eq!(&text, b"Name:");
        assert_eq!(
            refused(open_forgotten(Path::new("/proc/self/missing"))),
            io::ErrorKind::NotFound
        );
        let (_, pipe) = io::pipe().unwrap();
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&pipe));
        let told = open_forgotten(Path::new(&path)).unwrap_err().raw_os_error();
        assert_eq!(told, Some(rustix::io::Errno::SPIPE.raw_os_error()), "none that can be read so");
    }

    #[test]
    fn how_segments_are_written_is_not_measured_where_nobody_asked() {
        let (device, dir) = device();
        assert_eq!(device.settle_appends().unwrap(), Appends::default());
        assert_eq!(fs::read_dir(dir.path().join("wal")).unwrap().count(), 0);
    }

    #[test]
    fn a_probe_is_made_and_removed_and_what_stands_in_its_place_is_told() {
        let (device, dir) = device();
        let device = device.with_appends(AppendChoice::Auto);
        assert!(device.settle_appends().unwrap().buffered_us.is_some());
        assert_eq!(fs::read_dir(dir.path().join("wal")).unwrap().count(), 0);
        fs::create_dir(dir.path().join(direct::PROBE_PATH)).unwrap();
        assert_eq!(refused(device.settle_appends()), io::ErrorKind::IsADirectory);
        fs::remove_dir_all(dir.path().join("wal")).unwrap();
        assert_eq!(refused(device.settle_appends()), io::ErrorKind::NotFound);
    }

    /// `/dev/full` is a disk without room.
    #[test]
    fn a_full_disk_keeps_no_log_from_opening_and_gets_plain_writes() {
        let (device, dir) = device();
        let device = device.with_appends(AppendChoice::Auto);
        symlink("/dev/full", dir.path().join(direct::PROBE_PATH)).unwrap();
        assert_eq!(device.settle_appends().unwrap(), Appends::default());
        assert_eq!(fs::read_dir(dir.path().join("wal")).unwrap().count(), 0, "the probe is gone");
    }

    #[test]
    fn file_systems_are_told_apart_by_what_a_sync_is_worth_on_them() {
        for (magic, expected) in [
            (TMPFS_MAGIC, FileSystem::Volatile),
            (RAMFS_MAGIC, FileSystem::Volatile),
            (NFS_MAGIC, FileSystem::Network),
            (SMB_MAGIC, FileSystem::Network),
            (SMB2_MAGIC, FileSystem::Network),
            (CIFS_MAGIC, FileSystem::Network),
            (OVERLAYFS_MAGIC, FileSystem::Overlay),
            (0xEF53, FileSystem::Suitable),
            (0, FileSystem::Suitable),
        ] {
            assert_eq!(kind(magic), expected, "{magic:#x}");
        }
    }

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
