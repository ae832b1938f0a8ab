//! A file that is read from one end to the other, with the next pieces on their way while one is
//! looked at: recovery applies what was read while the disk reads on.
//!
//! A thread of its own reads, and ends with the file, with the first error, or when nobody wants
//! more. Whatever it cannot give, another place or a block that the disk refuses, is read by the
//! caller as from any file: nothing is ever told of a piece that a plain read would not tell.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;

use super::{File, read_full};
use crate::block::{BLOCK, Blocks};
use crate::sync::Mutex;

/// As much as a disk takes at full speed.
const PIECE_BYTES: usize = 1 << 20;
const _: () = assert!((PIECE_BYTES as u64).is_multiple_of(BLOCK), "a piece is whole blocks");

/// Pieces that wait to be looked at; one more is being read.
const PIECES_AHEAD: usize = 2;

/// What was read, and how much of it.
type Piece = (Blocks, usize);

/// A file whose bytes come ahead.
pub(super) struct AheadFile {
    file: Arc<dyn File>,
    ahead: Mutex<Ahead>,
}

struct Ahead {
    /// `None` once there is no more to come.
    pieces: Option<Receiver<Piece>>,
    /// Where the memory of a piece goes to be filled again.
    used: Sender<Blocks>,
    piece: Blocks,
    /// Where the piece begins, and where it ends.
    at: u64,
    end: u64,
}

impl AheadFile {
    /// `file`, read ahead from `from` to `to`.
    pub(super) fn new(file: Arc<dyn File>, from: u64, to: u64) -> Self {
        let (sender, pieces) = sync_channel(PIECES_AHEAD);
        let (used, free) = channel();
        let source = Arc::clone(&file);
        let reads = move || read(&*source, (from, to), &sender, &free);
        // Without a thread for it every read is a plain one.
        let thread = thread::Builder::new().name("wal-ahead".to_owned()).spawn(reads);
        let pieces = thread.is_ok().then_some(pieces);
        let ahead = Ahead { pieces, used, piece: Blocks::new(0), at: from, end: from };
        Self { file, ahead: Mutex::new(ahead) }
    }
}

fn read(
    file: &dyn File,
    (from, to): (u64, u64),
    pieces: &SyncSender<Piece>,
    free: &Receiver<Blocks>,
) {
    let mut at = from;
    while at < to {
        let mut piece = free.try_recv().unwrap_or_else(|_| Blocks::for_bytes(PIECE_BYTES));
        let left = usize::try_from((to - at).next_multiple_of(BLOCK)).unwrap_or(PIECE_BYTES);
        let bytes = left.min(PIECE_BYTES);
        let Ok(read) = read_full(file, &mut piece.bytes_mut()[..bytes], at) else { return };
        if pieces.send((piece, read)).is_err() || read < bytes {
            return;
        }
        at += read as u64;
    }
}

impl Ahead {
    /// What there is of the bytes from `offset` on; nothing where they are not the next ones.
    fn bytes(&mut self, offset: u64) -> &[u8] {
        if offset == self.end
            && let Some(pieces) = &self.pieces
        {
            match pieces.recv() {
                Ok((piece, read)) => {
                    let used = std::mem::replace(&mut self.piece, piece);
                    (self.at, self.end) = (offset, offset + read as u64);
                    if !used.bytes().is_empty() {
                        // A thread that has ended needs none.
                        let _ = self.used.send(used);
                    }
                }
                Err(_) => self.pieces = None,
            }
        }
        if !(self.at..self.end).contains(&offset) {
            return &[];
        }
        let [from, to] =
            [offset, self.end].map(|it| usize::try_from(it - self.at).unwrap_or(usize::MAX));
        self.piece.bytes().get(from..to).unwrap_or_default()
    }
}

impl File for AheadFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.file.write_at(bytes, offset)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut ahead = self.ahead.lock();
        let bytes = ahead.bytes(offset);
        if bytes.is_empty() {
            drop(ahead);
            return self.file.read_at(buffer, offset);
        }
        let count = bytes.len().min(buffer.len());
        buffer[..count].copy_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::device::Device;
    use crate::device::sim::{Image, SimDevice};

    /// Three pieces and a bit, each byte other than its neighbours.
    fn content() -> Vec<u8> {
        let bytes = 3 * PIECE_BYTES as u64 + 5 * BLOCK;
        (0..bytes).map(|at| u8::try_from((at * 31 + (at >> 12)) % 251).unwrap_or(0)).collect()
    }

    fn file(image: Image) -> Arc<dyn File> {
        SimDevice::new(image).open_uncached("file").unwrap()
    }

    fn image() -> Image {
        let mut image = Image::empty(1);
        image.set_content("file", &content());
        image
    }

    #[test]
    fn the_bytes_are_the_file_s_in_whatever_pieces_and_order_they_are_asked_for() {
        let (content, end) = (content(), content().len() as u64);
        for step in [1u64, 3, 255, 256, 257, 700] {
            let ahead = AheadFile::new(file(image()), BLOCK, end);
            let mut at = BLOCK;
            while at < end {
                let bytes = usize::try_from((step * BLOCK).min(end - at)).unwrap();
                let mut buffer = Blocks::for_bytes(bytes);
                assert_eq!(read_full(&ahead, buffer.bytes_mut(), at).unwrap(), bytes);
                let from = usize::try_from(at).unwrap();
                assert!(buffer.bytes() == &content[from..from + bytes], "{bytes} at {at}");
                // A reader goes back a little, where a frame lies over the end of what it has.
                at += (step * BLOCK).saturating_sub(if step > 2 { BLOCK } else { 0 }).max(BLOCK);
            }
        }
    }

    #[test]
    fn a_block_that_the_disk_refuses_is_refused_and_what_comes_before_is_read() {
        let mut image = image();
        let bad = PIECE_BYTES as u64 / BLOCK + 7;
        image.make_unreadable("file", bad);
        let ahead = AheadFile::new(file(image), 0, content().len() as u64);
        let mut block = Blocks::new(1);
        for number in 0..bad {
            assert!(read_full(&ahead, block.bytes_mut(), number * BLOCK).is_ok(), "{number}");
        }
        assert!(read_full(&ahead, block.bytes_mut(), bad * BLOCK).is_err());
        assert!(read_full(&ahead, block.bytes_mut(), (bad + 1) * BLOCK).is_ok());
    }

    #[test]
    fn a_file_that_nobody_reads_to_its_end_is_let_go() {
        let source = file(image());
        drop(AheadFile::new(Arc::clone(&source), 0, content().len() as u64));
        // The thread holds the file until it has found out: that it does is what is waited for.
        while Arc::strong_count(&source) > 1 {
            thread::yield_now();
        }
    }
}
