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
use std::os::unix::fs::{FileExt, OpenOptionsExt};
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
        let flags = (OFlags::DIRECT | OFlags::DSYNC).bits();
        let flags = i32::try_from(flags).map_err(io::Error::other)?;
        OpenOptions::new().read(true).write(true).custom_flags(flags).open(path).map(Self)
    }
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
        Ok(self.0.metadata()?.len())
    }
}

/// Decides by the table above. `probe` is a file of [`probe_bytes`] zeros.
pub(super) fn decide(choice: AppendChoice, probe: &Path) -> io::Result<Appends> {
    let (buffered_us, direct_us) = measure(probe)?;
    let direct = match choice {
        AppendChoice::Buffered => false,
        AppendChoice::Direct if direct_us.is_none() => {
            let why = "the file system takes no direct writes: set wal.device to auto";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        AppendChoice::Direct => true,
        AppendChoice::Auto => direct_us.is_some_and(|direct_us| pays(direct_us, buffered_us)),
    };
    Ok(Appends { direct, buffered_us: Some(buffered_us), direct_us })
}

/// The size of the probe's file.
pub(super) const fn probe_bytes() -> u64 {
    PROBE_WRITES * 2 * BLOCK
}

fn pays(direct_us: u64, buffered_us: u64) -> bool {
    direct_us.saturating_mul(100) <= buffered_us.saturating_mul(DIRECT_PERCENT_MAX)
}

/// Median time of a durable block, microseconds: buffered, and direct where it is taken.
fn measure(probe: &Path) -> io::Result<(u64, Option<u64>)> {
    let buffered = OpenOptions::new().write(true).open(probe)?;
    let direct = match DirectFile::open(probe) {
        Ok(file) => Some(file),
        Err(error) if is_refusal(&error) => None,
        Err(error) => return Err(error),
    };
    let mut block = Blocks::new(1);
    block.bytes_mut().fill(0xA5);
    let (mut buffered_us, mut direct_us) = (Vec::new(), Vec::new());
    let began = Instant::now();
    let mut taken = direct.is_some();
    for write in 0..PROBE_WRITES {
        // In turn, so that a disk that is busy for a moment slows both.
        let offset = write * 2 * BLOCK;
        buffered_us.push(timed(|| {
            buffered.write_all_at(block.bytes(), offset)?;
            buffered.sync_data()
        })?);
        if let Some(file) = direct.as_ref().filter(|_| taken) {
            match timed(|| super::write_full(file, block.bytes(), offset + BLOCK)) {
                Ok(us) => direct_us.push(us),
                Err(error) if is_refusal(&error) => taken = false,
                Err(error) => return Err(error),
            }
        }
        if began.elapsed() > PROBE_TIME_MAX {
            break;
        }
    }
    Ok((median(buffered_us).unwrap_or(0), median(direct_us).filter(|_| taken)))
}

/// Whether the file system says that it has no direct writes, or none of a block's size.
pub(super) fn is_refusal(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    [Errno::INVAL, Errno::OPNOTSUPP].iter().any(|errno| code == Some(errno.raw_os_error()))
}

fn timed(write: impl FnOnce() -> io::Result<()>) -> io::Result<u64> {
    let began = Instant::now();
    write()?;
    Ok(u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX))
}

fn median(mut us: Vec<u64>) -> Option<u64> {
    us.sort_unstable();
    us.get(us.len() / 2).copied()
}

#[cfg(test)]
mod tests {
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
        for fill in 1..=9 {
            block.bytes_mut().fill(fill);
            super::super::write_full(&file, block.bytes(), BLOCK).unwrap();
            file.sync_data().unwrap();
            let seen = fs::read(&probe).unwrap();
            assert_eq!((seen[4095], seen[4096], seen[3 * 4096 - 1]), (0, fill, fill));
        }
    }
}
