//! The ring: the only unsafe code of the repository, and no part of the product.
//!
//! Every call waits for the completion of all that it handed over before it returns, so that file
//! and buffer outlive their use by the kernel.

#![allow(unsafe_code, reason = "entries of a ring hold raw pointers")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use io_uring::squeue::{Entry, Flags};
use io_uring::types::{Fd, FsyncFlags};
use io_uring::{IoUring, opcode};
use rustix::io::ReadWriteFlags;
use wal::device::Blocks;

/// The call was interrupted, or the kernel is short of something: asked again it goes on.
const EINTR: i32 = 4;
const EAGAIN: i32 = 11;
const EBUSY: i32 = 16;

/// A ring for one write at a time.
pub(crate) struct Ring(IoUring);

impl Ring {
    pub(crate) fn new() -> io::Result<Self> {
        IoUring::new(4).map(Self)
    }

    /// A write and, linked to it, a sync of the file's data.
    pub(crate) fn write_then_sync(
        &mut self,
        file: &File,
        blocks: &Blocks,
        offset: u64,
    ) -> io::Result<usize> {
        let fd = Fd(file.as_raw_fd());
        let sync = opcode::Fsync::new(fd).flags(FsyncFlags::DATASYNC).build();
        self.run([Some(write(fd, blocks, offset, 0)?.flags(Flags::IO_LINK)), Some(sync)])
    }

    /// A write that is durable when it completes.
    pub(crate) fn write_synced(
        &mut self,
        file: &File,
        blocks: &Blocks,
        offset: u64,
    ) -> io::Result<usize> {
        let dsync = ReadWriteFlags::DSYNC.bits();
        self.run([Some(write(Fd(file.as_raw_fd()), blocks, offset, dsync)?), None])
    }

    /// Hands `entries` over and waits for all of them; returns what the first came to.
    fn run(&mut self, entries: [Option<Entry>; 2]) -> io::Result<usize> {
        let entries: Vec<Entry> =
            (0..).zip(entries.into_iter().flatten()).map(|(n, it)| it.user_data(n)).collect();
        // SAFETY: the caller's file and buffer live until this returns, and it does so only once
        // each entry has completed: all are pushed or none, and the loop below ends in no other
        // way, neither by an error nor by a panic.
        unsafe { self.0.submission().push_multiple(&entries) }.map_err(io::Error::other)?;
        let mut outcome = Ok(0);
        let mut left = entries.len();
        while left > 0 {
            // A wait may end early: interrupted, or with fewer completions than it was asked for.
            if let Err(error) = self.0.submit_and_wait(left)
                && !matches!(error.raw_os_error(), Some(EINTR | EAGAIN | EBUSY))
            {
                // What became of the entries is unknown: the kernel may write to the buffer still.
                std::process::abort();
            }
            for completion in self.0.completion() {
                left = left.saturating_sub(1);
                match usize::try_from(completion.result()) {
                    Ok(bytes) if completion.user_data() == 0 => {
                        outcome = outcome.map(|_| bytes);
                    }
                    Ok(_) => {}
                    Err(_) => outcome = Err(io::Error::from_raw_os_error(-completion.result())),
                }
            }
        }
        outcome
    }
}

fn write(fd: Fd, blocks: &Blocks, offset: u64, flags: u32) -> io::Result<Entry> {
    let bytes = blocks.bytes();
    let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    let flags = i32::try_from(flags).map_err(io::Error::other)?;
    Ok(opcode::Write::new(fd, bytes.as_ptr(), length).offset(offset).rw_flags(flags).build())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::io::ErrorKind;
    use std::os::unix::fs::FileExt as _;

    use super::*;

    /// A ring, where the kernel gives one: containers and valgrind may not.
    fn ring() -> Option<Ring> {
        match Ring::new() {
            Ok(ring) => Some(ring),
            Err(error) => {
                let refused = [ErrorKind::PermissionDenied, ErrorKind::Unsupported];
                let no_such_call = error.raw_os_error() == Some(38);
                assert!(refused.contains(&error.kind()) || no_such_call, "{error}");
                println!("no ring here: {error}");
                None
            }
        }
    }

    fn blocks(fill: u8) -> Blocks {
        let mut blocks = Blocks::new(2);
        blocks.bytes_mut().fill(fill);
        blocks
    }

    #[test]
    fn what_a_ring_wrote_is_in_the_file_and_the_buffer_may_go() {
        let Some(mut ring) = ring() else { return };
        let file = tempfile::tempfile().unwrap();
        for (number, fill) in [1_u8, 2, 3, 4, 5, 6, 7].into_iter().enumerate() {
            let offset = number as u64 * 8192;
            let written = match number % 2 {
                0 => ring.write_then_sync(&file, &blocks(fill), offset),
                _ => ring.write_synced(&file, &blocks(fill), offset),
            };
            assert_eq!(written.unwrap(), 8192);
            let mut read = [0; 8192];
            file.read_exact_at(&mut read, offset).unwrap();
            assert_eq!(read, [fill; 8192]);
        }
    }

    #[test]
    fn an_error_of_the_kernel_is_told_and_the_ring_goes_on() {
        let Some(mut ring) = ring() else { return };
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("read-only");
        std::fs::write(&path, b"").unwrap();
        let read_only = File::open(&path).unwrap();
        assert!(ring.write_then_sync(&read_only, &blocks(1), 0).is_err());
        let file = tempfile::tempfile().unwrap();
        assert_eq!(ring.write_then_sync(&file, &blocks(2), 0).unwrap(), 8192);
    }
}
