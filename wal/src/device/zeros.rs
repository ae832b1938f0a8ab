//! Files of zeros, made beside a log that is being written to.
//!
//! A sync waits for all that the disk was given before it, whoever gave it: where 64 MiB of zeros
//! go out of the page cache at once, an answer beside them waits for tens of milliseconds. So they
//! go past it, piece by piece, which takes no longer and costs no memory.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{FallocateFlags, OFlags, fallocate};
use rustix::io::Errno;

use super::direct::{open, unless_refused};
use crate::block::{BLOCK, Blocks};

/// What the disk is given at once: a sync beside it waits no longer than for another frame. With
/// four times as much the slowest hundredth of them took twenty times as long.
const PIECE_BYTES: u64 = 256 << 10;
const _: () =
    assert!(PIECE_BYTES.is_multiple_of(BLOCK), "what goes past the cache is whole blocks");

/// Makes `path`, replacing what is there, a file of `bytes` zeros, and syncs it.
pub(super) fn create(path: &Path, bytes: u64) -> io::Result<()> {
    let file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
    allot(&file, bytes)?;
    let zeros = Blocks::for_bytes(usize::try_from(bytes.min(PIECE_BYTES)).unwrap_or(0));
    let blocks_bytes = bytes / BLOCK * BLOCK;
    let past = unless_refused(past_the_cache(path, &zeros, blocks_bytes))?;
    let from = past.map_or(0, |()| blocks_bytes);
    through_the_cache(&file, &zeros, from, bytes)?;
    file.sync_all()
}

/// Has the file system find the room in one piece, where it can; a full disk says so at once. The
/// length grows with the zeros alone: who finds a file that was left half made sees that.
fn allot(file: &File, bytes: u64) -> io::Result<()> {
    match bytes {
        0 => Ok(()),
        _ => allotted(fallocate(file, FallocateFlags::KEEP_SIZE, 0, bytes)),
    }
}

/// An error only where there is no room: of a file system that can't do this, or not now, the
/// writes find room themselves, or say why not.
fn allotted(told: Result<(), Errno>) -> io::Result<()> {
    match told {
        Err(Errno::NOSPC) => Err(Errno::NOSPC.into()),
        _ => Ok(()),
    }
}

fn past_the_cache(path: &Path, zeros: &Blocks, bytes: u64) -> io::Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    let file = open(path, OFlags::WRONLY | OFlags::DIRECT)?;
    each_piece(0, bytes, |at, count| file.write_all_at(&zeros.bytes()[..count], at))
}

fn through_the_cache(file: &File, zeros: &Blocks, from: u64, to: u64) -> io::Result<()> {
    each_piece(from, to, |at, count| {
        file.write_all_at(&zeros.bytes()[..count], at).and_then(|()| file.sync_data())
    })
}

fn each_piece(from: u64, to: u64, write: impl Fn(u64, usize) -> io::Result<()>) -> io::Result<()> {
    let mut at = from;
    while at < to {
        let count = (to - at).min(PIECE_BYTES);
        write(at, usize::try_from(count).unwrap_or(0))?;
        at += count;
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_as_many_zeros_as_asked_for_and_nothing_of_the_one_before() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        for bytes in [0, 1, BLOCK, PIECE_BYTES, 3 * PIECE_BYTES + 5 * BLOCK + 7] {
            std::fs::write(&path, vec![7; 4 * usize::try_from(PIECE_BYTES).unwrap()]).unwrap();
            create(&path, bytes).unwrap();
            let content = std::fs::read(&path).unwrap();
            assert_eq!(content.len() as u64, bytes);
            assert!(content.iter().all(|byte| *byte == 0), "{bytes}");
        }
    }

    /// `/dev/full` takes no direct writes, and has no room for others.
    #[test]
    fn a_disk_without_room_and_a_file_that_can_t_be_made_are_told() {
        for bytes in [1, BLOCK, 3 * PIECE_BYTES] {
            let told = create(Path::new("/dev/full"), bytes).unwrap_err();
            assert_eq!(told.kind(), io::ErrorKind::StorageFull, "{bytes}");
        }
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(create(dir.path(), 1).unwrap_err().kind(), io::ErrorKind::IsADirectory);
        for (told, is_full) in
            [(Ok(()), false), (Err(Errno::OPNOTSUPP), false), (Err(Errno::NOSPC), true)]
        {
            assert_eq!(allotted(told).is_err(), is_full, "{told:?}");
        }
    }

    #[test]
    fn a_file_system_without_direct_writes_gets_the_same_zeros() {
        let dir = tempfile::tempdir().unwrap();
        let file = File::create(dir.path().join("file")).unwrap();
        let zeros = Blocks::for_bytes(usize::try_from(PIECE_BYTES).unwrap());
        through_the_cache(&file, &zeros, 0, 2 * PIECE_BYTES + 9).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 2 * PIECE_BYTES + 9);
    }
}
