//! Segments written past the page cache: `O_DIRECT`, each write durable when it returns.
//!
//! Where a file system takes it this is one system call a commit instead of two, without a copy
//! into pages that nobody reads again, and after a failed write the page cache holds nothing that
//! the disk never got. The file is opened with `O_DSYNC`, which asks of every write what
//! `RWF_DSYNC` asks of one: the kernel treats both alike, and a plain write needs no flag.
//!
//! `io_uring` is not used: it would want unsafe code, and with one commit at a time it has nothing
//! to overlap. `cargo run --release -p uring` measures it beside the others.
//!
//! Whether it pays depends on the disk, so it is measured, not guessed: the two ways write block by
//! block in turn into a small file beside the log, and the medians decide.
//!
//! | asked for | the file system takes it | it is at most a twentieth slower | written |
//! |-----------|--------------------------|----------------------------------|----------|
//! | buffered  |                          |                                  | buffered |
//! | direct    | yes                      |                                  | direct   |
//! | direct    | no                       |                                  | refused  |
//! | auto      | no                       |                                  | buffered |
//! | auto      | yes                      | yes                              | direct   |
//! | auto      | yes                      | no                               | buffered |

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::File;
use crate::block::{BLOCK, Blocks};

/// Beside the segments, so that it lies on the same disk; no name of the log's. What a crash
/// leaves of it is written over by the next start.
pub(super) const PROBE_PATH: &str = "wal/probe.tmp";

/// Writes of each way: enough for a median, a few milliseconds on a disk that is fit for it.
const PROBE_WRITES: u64 = 24;

/// A slow disk is measured with fewer.
const PROBE_TIME_MAX: Duration = Duration::from_millis(250);

/// Direct writes cost the processor less: this much slower (in hundredths) they are still better.
const DIRECT_PERCENT_MAX: u64 = 105;
const _: () =
    assert!(DIRECT_PERCENT_MAX >= 100, "of two that are as fast the cheaper one is taken");

/// How segments are to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AppendChoice {
    /// Whichever of the others is faster here.
    Auto,
    /// Through the page cache, then a sync: works everywhere.
    #[default]
    Buffered,
    /// Past the page cache; refused where the file system does not take it.
    Direct,
}

/// How segments are written, and what was measured to decide it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Appends {
    /// Whether past the page cache.
    pub direct: bool,
    /// Median time of a durable block through the page cache, microseconds; `None` where it was
    /// not measured.
    pub buffered_us: Option<u64>,
    /// The same past it; `None` where it was not measured or is not taken.
    pub direct_us: Option<u64>,
}

/// A segment opened past the page cache. Whole blocks at block boundaries, from aligned memory:
/// the committer writes nothing else.
pub(super) struct DirectFile(fs::File);

impl DirectFile {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        open(path, OFlags::RDWR | OFlags::DIRECT | OFlags::DSYNC).map(Self)
    }
}

/// Opens an existing file with flags that the standard library has no names for; by way of it, for
/// rustix calls the kernel past libc, where the built binary is made to fail at its opens.
pub(super) fn open(path: &Path, flags: OFlags) -> io::Result<fs::File> {
    let access = flags & OFlags::RWMODE;
    let mut options = OpenOptions::new();
    options.read(access != OFlags::WRONLY).write(access != OFlags::RDONLY);
    options.custom_flags(flags.bits().cast_signed()).open(path)
}

impl File for DirectFile {
    /// Durable when it returns, as far as it says.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.0.write_at(bytes, offset)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buffer, offset)
    }

    /// Every write has synced itself, and nobody else writes to the file.
    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        self.0.metadata().map(|it| it.len())
    }
}

/// Decides by the table above. `probe` is a file of [`probe_bytes`] zeros.
pub(super) fn decide(choice: AppendChoice, probe: &Path) -> io::Result<Appends> {
    let buffered = OpenOptions::new().write(true).open(probe)?;
    let direct = unless_refused(DirectFile::open(probe))?;
    let direct = direct.as_ref().map(|file| file as &dyn File);
    let (buffered_us, direct_us) = measure(&buffered, direct, PROBE_TIME_MAX)?;
    let direct = choose(choice, buffered_us, direct_us)?;
    Ok(Appends { direct, buffered_us: Some(buffered_us), direct_us })
}

/// The table: whether segments are written past the page cache.
fn choose(choice: AppendChoice, buffered_us: u64, direct_us: Option<u64>) -> io::Result<bool> {
    match (choice, direct_us) {
        (AppendChoice::Buffered, _) | (AppendChoice::Auto, None) => Ok(false),
        (AppendChoice::Direct, Some(_)) => Ok(true),
        (AppendChoice::Direct, None) => {
            let why = "the file system takes no direct writes: set wal.device to auto";
            Err(io::Error::new(io::ErrorKind::Unsupported, why))
        }
        (AppendChoice::Auto, Some(direct_us)) => Ok(pays(direct_us, buffered_us)),
    }
}

/// The size of the probe's file.
pub(super) const fn probe_bytes() -> u64 {
    PROBE_WRITES * 2 * BLOCK
}

fn pays(direct_us: u64, buffered_us: u64) -> bool {
    direct_us.saturating_mul(100) <= buffered_us.saturating_mul(DIRECT_PERCENT_MAX)
}

/// Median time of a durable block, microseconds: buffered, and direct where it is taken. Ends with
/// the write during which `time_max` is over.
fn measure(
    buffered: &fs::File,
    direct: Option<&dyn File>,
    time_max: Duration,
) -> io::Result<(u64, Option<u64>)> {
    let mut block = Blocks::new(1);
    block.bytes_mut().fill(0xA5);
    let (mut buffered_us, mut direct_us) = (Vec::new(), Vec::new());
    let began = Instant::now();
    let mut taken = direct;
    for write in 0..PROBE_WRITES {
        // In turn, so that a disk that is busy for a moment slows both.
        let offset = write * 2 * BLOCK;
        buffered_us.push(timed(|| {
            buffered.write_all_at(block.bytes(), offset).and_then(|()| buffered.sync_data())
        })?);
        if let Some(file) = taken {
            let us = timed(|| super::write_full(file, block.bytes(), offset + BLOCK));
            let us = unless_refused(us)?;
            taken = us.and(taken);
            direct_us.extend(us);
        }
        if began.elapsed() > time_max {
            break;
        }
    }
    Ok((median(buffered_us).unwrap_or(0), median(direct_us).filter(|_| taken.is_some())))
}

/// What was opened or written; `None` where the file system [refuses](is_refusal) it.
pub(super) fn unless_refused<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if is_refusal(&error) => Ok(None),
        result => result.map(Some),
    }
}

/// Whether the file system says that it has no direct I/O, or none of a block's size.
pub(super) fn is_refusal(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    [Errno::INVAL, Errno::OPNOTSUPP].iter().any(|errno| code == Some(errno.raw_os_error()))
}

fn timed(write: impl FnOnce() -> io::Result<()>) -> io::Result<u64> {
    let began = Instant::now();
    write().map(|()| u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX))
}

fn median(mut us: Vec<u64>) -> Option<u64> {
    us.sort_unstable();
    us.get(us.len() / 2).copied()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    fn probe_in(dir: &Path) -> std::path::PathBuf {
        let probe = dir.join("probe");
        fs::write(&probe, vec![0; usize::try_from(probe_bytes()).unwrap()]).unwrap();
        probe
    }

    #[test]
    fn what_was_asked_for_is_taken_or_refused_and_auto_always_finds_a_way() {
        let dir = tempfile::tempdir().unwrap();
        let probe = probe_in(dir.path());
        assert!(!decide(AppendChoice::Buffered, &probe).unwrap().direct);
        let auto = decide(AppendChoice::Auto, &probe).unwrap();
        assert!(auto.buffered_us.is_some());
        // Which of the two it is, is the file system's to say: both must say the same.
        match decide(AppendChoice::Direct, &probe) {
            Ok(forced) => assert!(forced.direct && forced.direct_us.is_some()),
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::Unsupported);
                assert!(!auto.direct && auto.direct_us.is_none());
            }
        }
    }

    /// The table at the head of the file.
    #[test]
    fn what_was_asked_for_and_what_was_measured_decide() {
        use AppendChoice::{Auto, Buffered, Direct};
        for (choice, direct_us, expected) in [
            (Buffered, None, Some(false)),
            (Buffered, Some(1), Some(false)),
            (Direct, Some(900), Some(true)),
            (Direct, None, None),
            (Auto, None, Some(false)),
            (Auto, Some(105), Some(true)),
            (Auto, Some(106), Some(false)),
        ] {
            let chosen = choose(choice, 100, direct_us);
            assert_eq!(chosen.ok(), expected, "{choice:?} {direct_us:?}");
        }
    }

    /// A disk that takes some direct writes, then answers each with an error.
    struct Takes {
        writes: u64,
        then: Errno,
        written: AtomicU64,
    }

    impl File for Takes {
        fn write_at(&self, bytes: &[u8], _offset: u64) -> io::Result<usize> {
            let taken = self.written.fetch_add(1, Ordering::Relaxed) < self.writes;
            if taken { Ok(bytes.len()) } else { Err(self.then.into()) }
        }

        fn read_at(&self, _buffer: &mut [u8], _offset: u64) -> io::Result<usize> {
            Err(self.then.into())
        }

        fn sync_data(&self) -> io::Result<()> {
            Ok(())
        }

        fn length(&self) -> io::Result<u64> {
            Ok(0)
        }
    }

    fn takes(writes: u64, then: Errno) -> Takes {
        Takes { writes, then, written: AtomicU64::new(0) }
    }

    #[test]
    fn a_disk_that_refuses_direct_writes_at_any_time_is_not_asked_again() {
        let dir = tempfile::tempdir().unwrap();
        let buffered = OpenOptions::new().write(true).open(probe_in(dir.path())).unwrap();
        for writes in [0, 1, PROBE_WRITES - 1] {
            for then in [Errno::INVAL, Errno::OPNOTSUPP] {
                let direct = takes(writes, then);
                let (_, direct_us) = measure(&buffered, Some(&direct), Duration::MAX).unwrap();
                assert_eq!(direct_us, None, "{writes} {then:?}");
                assert_eq!(direct.written.load(Ordering::Relaxed), writes + 1);
            }
        }
        let direct = takes(PROBE_WRITES, Errno::INVAL);
        assert!(measure(&buffered, Some(&direct), Duration::MAX).unwrap().1.is_some());
        assert_eq!(measure(&buffered, None, Duration::MAX).unwrap().1, None);
    }

    #[test]
    fn a_slow_disk_is_measured_with_fewer_writes() {
        let dir = tempfile::tempdir().unwrap();
        let buffered = OpenOptions::new().write(true).open(probe_in(dir.path())).unwrap();
        let direct = takes(PROBE_WRITES, Errno::INVAL);
        assert!(measure(&buffered, Some(&direct), Duration::ZERO).unwrap().1.is_some());
        assert_eq!(direct.written.load(Ordering::Relaxed), 1);
    }

    /// `/dev/full` is a disk without room, `/dev/null` a file that can't be synced.
    #[test]
    fn a_disk_that_fails_is_not_taken_for_one_that_refuses() {
        let dir = tempfile::tempdir().unwrap();
        let buffered = OpenOptions::new().write(true).open(probe_in(dir.path())).unwrap();
        let told = measure(&buffered, Some(&takes(2, Errno::IO)), Duration::MAX).unwrap_err();
        assert_eq!(told.raw_os_error(), Some(Errno::IO.raw_os_error()));
        let full = decide(AppendChoice::Auto, Path::new("/dev/full")).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
        assert!(decide(AppendChoice::Auto, Path::new("/dev/null")).is_err());
        let missing = decide(AppendChoice::Auto, &dir.path().join("missing")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn direct_writes_may_be_a_twentieth_slower_and_no_more() {
        for (direct_us, buffered_us, expected) in
            [(80, 100, true), (105, 100, true), (106, 100, false), (1, 0, false), (0, 0, true)]
        {
            assert_eq!(pays(direct_us, buffered_us), expected, "{direct_us} {buffered_us}");
        }
    }

    #[test]
    fn what_is_written_past_the_cache_is_read_through_it() {
        let dir = tempfile::tempdir().unwrap();
        let probe = probe_in(dir.path());
        let Ok(file) = DirectFile::open(&probe) else { return };
        let mut block = Blocks::new(2);
        assert_eq!(fs::read(&probe).unwrap()[0], 0, "the page cache holds it now");
        assert_eq!(file.length().unwrap(), probe_bytes());
        for fill in 1..=9 {
            block.bytes_mut().fill(fill);
            super::super::write_full(&file, block.bytes(), BLOCK).unwrap();
            file.sync_data().unwrap();
            let mut own = Blocks::new(1);
            assert_eq!(file.read_at(own.bytes_mut(), BLOCK).unwrap(), own.bytes().len());
            assert!(own.bytes().iter().all(|byte| *byte == fill), "by the file itself");
            let seen = fs::read(&probe).unwrap();
            assert_eq!((seen[4095], seen[4096], seen[3 * 4096 - 1]), (0, fill, fill));
        }
    }
}
