//! Reads a segment frame by frame, trusting nothing: the one way frames come back from disk, for
//! recovery, readers and tools alike.

use std::io;
use std::sync::Arc;

use crate::block::{BLOCK, Blocks, is_zero};
use crate::control::LogEnd;
use crate::device::{File, read_full};
use crate::frame::{self, FrameHeader};
use crate::ids::Lsn;
use crate::limits::BLOCK_BYTES;
use crate::planted::{self, Bug};
use crate::segment::SegmentHeader;

/// Why a scan found no next frame.
#[derive(Debug)]
pub(crate) enum Stop {
    /// No room is left before the limit.
    Full,
    /// The block is all zero.
    Zero,
    /// The block begins a frame of the file's earlier life.
    Stale,
    /// The block is anything else: torn, or damaged.
    Invalid,
    /// A frame whose checksums are right and which does not follow from the one before.
    BrokenLink,
    /// The disk does not give the block back.
    Unreadable(io::Error),
}

/// A frame that checked.
pub(crate) struct Scanned<'a> {
    pub(crate) header: FrameHeader,
    pub(crate) payload: &'a [u8],
}

/// Where the next frame must stand, and what it must follow from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Position {
    pub(crate) offset: u64,
    pub(crate) next_lsn: Lsn,
    pub(crate) chain: u32,
    synced_through: u64,
}

impl Position {
    /// # Panics
    /// Where a scan did not come on by whole blocks, or passed its limit: beyond a seal or the
    /// durable mark there are bytes that never happened.
    fn assert_beyond(&self, before: u64, limit: u64) {
        assert!(self.offset > before && self.offset <= limit, "a scan goes on within its limit");
        assert!(self.offset.is_multiple_of(BLOCK), "frames begin at blocks");
        assert!(self.synced_through <= before, "W6: a frame promises what lies before it");
    }
}

/// What a scan that follows a log being written reads first, and at most: the log's own writes wait
/// behind every byte of it, and what lies beyond the durable mark is read for nothing. It doubles
/// as long as what was read was wanted.
const FOLLOW_BYTES: (usize, usize) = (16 << 10, 256 << 10);
const _: () = assert!(FOLLOW_BYTES.0 <= FOLLOW_BYTES.1, "what is read ahead grows");
const _: () = assert!(
    FOLLOW_BYTES.0.is_multiple_of(BLOCK_BYTES) && FOLLOW_BYTES.1.is_multiple_of(BLOCK_BYTES),
    "what is read past the page cache is whole blocks"
);

/// A scan through one segment.
pub(crate) struct Scanner {
    file: Arc<dyn File>,
    pub(crate) header: SegmentHeader,
    pub(crate) position: Position,
    frame_bytes_max: usize,
    last: Option<(u64, FrameHeader)>,
    window: Blocks,
    window_at: u64,
    window_bytes: usize,
    /// What the next read takes, beyond what it must.
    ahead_bytes: usize,
    ahead_bytes_max: usize,
    /// What [`Scanner::refresh`] goes back to.
    ahead_bytes_min: usize,
}

impl Scanner {
    /// A scan from the first frame of the segment in `file`.
    pub(crate) fn new(file: Arc<dyn File>, header: SegmentHeader, frame_bytes_max: usize) -> Self {
        assert!(frame_bytes_max >= BLOCK_BYTES, "a scan's window holds a block");
        let window = usize::try_from(header.segment_bytes).unwrap_or(usize::MAX);
        let window = window.min(frame_bytes_max);
        Self {
            file,
            header,
            position: Position {
                offset: BLOCK,
                next_lsn: header.first_lsn,
                chain: header.prev_chain,
                synced_through: 0,
            },
            frame_bytes_max,
            last: None,
            window: Blocks::for_bytes(window),
            window_at: 0,
            window_bytes: 0,
            ahead_bytes: window,
            ahead_bytes_max: window,
            ahead_bytes_min: window,
        }
    }

    /// The same, of a segment that may be written to meanwhile.
    pub(crate) fn following(self) -> Self {
        let (ahead_bytes_min, ahead_bytes_max) = FOLLOW_BYTES;
        Self { ahead_bytes: ahead_bytes_min, ahead_bytes_min, ahead_bytes_max, ..self }
    }

    /// Forgets what was read ahead: the file may have grown behind it.
    pub(crate) fn refresh(&mut self) {
        self.window_bytes = 0;
        self.last = None;
        self.ahead_bytes = self.ahead_bytes_min;
    }

    /// The next frame, which must end at or before `limit`.
    pub(crate) fn next(&mut self, limit: u64) -> Result<Scanned<'_>, Stop> {
        let at = self.position.offset;
        if at + BLOCK > limit {
            return Err(Stop::Full);
        }
        let (stamp, stale_stamp) = (self.header.stamp, self.header.stale_stamp);
        let frame_bytes_max = self.frame_bytes_max;
        let block = self.read(at, BLOCK_BYTES, limit)?;
        let Some(header) = FrameHeader::probe(block, stamp) else {
            let stale = stale_stamp != 0 && FrameHeader::probe(block, stale_stamp).is_some();
            return Err(match is_zero(block) {
                true => Stop::Zero,
                false if stale => Stop::Stale,
                false => Stop::Invalid,
            });
        };
        let frame_bytes = header.frame_bytes();
        if !header.fields_ok(at, frame_bytes_max) || at + frame_bytes as u64 > limit {
            return Err(Stop::Invalid);
        }
        if !self
            .read(at, frame_bytes, limit)?
            .get(..frame_bytes)
            .is_some_and(|bytes| header.body_ok(bytes, stamp))
        {
            return Err(Stop::Invalid);
        }
        if !self.follows(&header) {
            return Err(Stop::BrokenLink);
        }
        self.position = Position {
            offset: at + frame_bytes as u64,
            next_lsn: header.last_lsn().plus(1),
            chain: header.header_crc,
            synced_through: header.synced_through,
        };
        self.position.assert_beyond(at, limit);
        self.last = Some((at, header));
        Ok(Scanned { header, payload: self.payload(at, &header) })
    }

    /// Where the frames end that were read.
    pub(crate) fn end(&self) -> LogEnd {
        LogEnd {
            segment: self.header.segment_id,
            offset: self.position.offset,
            last_lsn: Lsn(self.position.next_lsn.0 - 1),
            chain: self.position.chain,
        }
    }

    /// The frame that [`Scanner::next`] gave last, once more.
    pub(crate) fn last(&self) -> Option<Scanned<'_>> {
        let (at, header) = self.last?;
        Some(Scanned { header, payload: self.payload(at, &header) })
    }

    fn payload(&self, at: u64, header: &FrameHeader) -> &[u8] {
        let frame = &self.window.bytes()[index(at - self.window_at)..];
        &frame[frame::HEADER_BYTES..][..header.payload_bytes as usize]
    }

    /// Whether a frame that checks is the next one: epoch, LSN, chain, and a promise that does not
    /// fall behind the promise before it (W6).
    fn follows(&self, header: &FrameHeader) -> bool {
        let linked = header.chain == self.position.chain || planted::has(Bug::ChainUnchecked);
        linked
            && header.epoch == self.header.epoch
            && header.first_lsn == self.position.next_lsn
            && header.synced_through >= self.position.synced_through
    }

    /// At least `bytes` bytes at `at`, where the file has them, and what follows in the window.
    fn read(&mut self, at: u64, bytes: usize, limit: u64) -> Result<&[u8], Stop> {
        let inside =
            at >= self.window_at && at + bytes as u64 <= self.window_at + self.window_bytes as u64;
        if !inside {
            let ahead = self.ahead_bytes.max(bytes).min(self.window.bytes().len());
            let ahead = index(limit - at).min(ahead);
            self.ahead_bytes = (self.ahead_bytes * 2).min(self.ahead_bytes_max);
            self.window_at = at;
            self.window_bytes = 0;
            let window = self.window.bytes_mut();
            // Reading ahead may meet a bad block that the frame itself does not touch.
            self.window_bytes = read_full(&*self.file, &mut window[..ahead], at)
                .or_else(|_| read_full(&*self.file, &mut window[..bytes], at))
                .map_err(Stop::Unreadable)?;
        }
        let window = &self.window.bytes()[..self.window_bytes];
        window
            .get(index(at - self.window_at)..)
            .filter(|left| left.len() >= bytes)
            .ok_or_else(|| Stop::Unreadable(io::ErrorKind::UnexpectedEof.into()))
    }
}

/// A length within a window as an index.
fn index(length: u64) -> usize {
    usize::try_from(length).expect("a segment fits the address space")
}

/// What lies beyond the end of the valid frames of a last segment.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Survey {
    /// The highest offset that a frame of this life promises as synced.
    pub(crate) promised_through: u64,
    /// The last LSN that a frame of this life names.
    pub(crate) last_lsn: Option<Lsn>,
    /// Bytes from the end to the last block that holds anything of this life.
    pub(crate) damage_bytes: u64,
}

/// Looks at every block from `end` on: a later frame of this life that promises more than `end`
/// proves that something acknowledged is damaged.
pub(crate) fn survey(file: &dyn File, header: &SegmentHeader, end: u64) -> Survey {
    const PIECE_BLOCKS: usize = 256;
    assert!(end.is_multiple_of(BLOCK) && end <= header.segment_bytes, "a survey begins in it");
    let pieces = (header.segment_bytes - end) / BLOCK;
    let mut piece = Blocks::new(PIECE_BLOCKS.min(usize::try_from(pieces).unwrap_or(0)));
    let mut survey = Survey::default();
    let mut stale_until = 0;
    let mut at = end;
    while at < header.segment_bytes {
        let bytes = index((header.segment_bytes - at).min(piece.bytes().len() as u64));
        let read = read_full(file, &mut piece.bytes_mut()[..bytes], at);
        let step = match read {
            Ok(read) if read == bytes => {
                for block in piece.bytes()[..bytes].chunks_exact(BLOCK_BYTES) {
                    look(block, at, end, header, &mut stale_until, &mut survey);
                    at += BLOCK;
                }
                continue;
            }
            // Beyond a bad block or a cut file: block by block, what can be read still counts.
            _ => BLOCK_BYTES,
        };
        for offset in (at..at + bytes as u64).step_by(step) {
            let block = &mut piece.bytes_mut()[..BLOCK_BYTES];
            if read_full(file, block, offset).is_ok_and(|read| read == BLOCK_BYTES) {
                look(block, offset, end, header, &mut stale_until, &mut survey);
            }
        }
        at += bytes as u64;
    }
    assert!(survey.damage_bytes <= header.segment_bytes - end, "damage lies within the segment");
    survey
}

fn look(
    block: &[u8],
    at: u64,
    end: u64,
    header: &SegmentHeader,
    stale_until: &mut u64,
    survey: &mut Survey,
) {
    if let Some(frame) = FrameHeader::probe(block, header.stamp) {
        survey.promised_through = survey.promised_through.max(frame.synced_through);
        survey.last_lsn = survey.last_lsn.max(Some(frame.last_lsn()));
    } else if header.stale_stamp != 0 {
        if let Some(frame) = FrameHeader::probe(block, header.stale_stamp) {
            *stale_until = at + frame.frame_bytes() as u64;
        }
        if at < *stale_until {
            return;
        }
    }
    if !is_zero(block) {
        survey.damage_bytes = at + BLOCK - end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::Mutex;

    /// Zeros, and how much of them was asked for at a time.
    struct Zeros(Mutex<Vec<usize>>);

    impl File for Zeros {
        fn write_at(&self, _bytes: &[u8], _offset: u64) -> io::Result<usize> {
            unreachable!("a scan writes nothing")
        }

        fn read_at(&self, buffer: &mut [u8], _offset: u64) -> io::Result<usize> {
            self.0.lock().push(buffer.len());
            buffer.fill(0);
            Ok(buffer.len())
        }

        fn sync_data(&self) -> io::Result<()> {
            unreachable!("a scan writes nothing")
        }

        fn length(&self) -> io::Result<u64> {
            Ok(1 << 20)
        }
    }

    #[test]
    fn a_follower_reads_little_beyond_the_end_and_more_as_long_as_there_is_more() {
        let header = SegmentHeader { segment_bytes: 1 << 20, ..crate::segment::tests::header() };
        let zeros = Arc::new(Zeros(Mutex::new(Vec::new())));
        let mut scanner = Scanner::new(zeros.clone(), header, 1 << 20).following();
        let mut at = BLOCK;
        for _ in 0..6 {
            scanner.read(at, BLOCK_BYTES, header.segment_bytes).unwrap();
            at += scanner.window_bytes as u64;
        }
        scanner.refresh();
        scanner.read(at, BLOCK_BYTES, header.segment_bytes).unwrap();
        let kib: Vec<_> = zeros.0.lock().iter().map(|bytes| bytes >> 10).collect();
        assert_eq!(kib, [16, 32, 64, 128, 256, 256, 16]);
    }
}
