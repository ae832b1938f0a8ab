//! Where the frames of an intact log lie, read by the format's tables alone and not by the code
//! under test.

use wal::device::sim::Image;

/// A block, as the format has it.
pub const BLOCK: usize = 4096;
/// A frame's header.
pub const FRAME_HEADER: usize = 64;
/// A segment's header.
pub const SEGMENT_HEADER: usize = 128;

const FRAME_MAGIC: u32 = 0x4657_4C53;

/// A frame in its segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameAt {
    /// Where it begins.
    pub offset: usize,
    /// Its length with padding.
    pub bytes: usize,
    /// Records before it in the log.
    pub before: u64,
    /// Its records; none in a watermark.
    pub records: u64,
    /// What it promises.
    pub synced_through: usize,
}

impl FrameAt {
    /// Where it ends.
    pub fn end(&self) -> usize {
        self.offset + self.bytes
    }
}

/// A segment with its acknowledged frames.
#[derive(Clone, Debug)]
pub struct SegmentAt {
    /// Its path.
    pub path: String,
    /// Its content.
    pub content: Vec<u8>,
    /// Records before it in the log.
    pub before: u64,
    /// Its frames, in order.
    pub frames: Vec<FrameAt>,
    /// Whether a successor says where it ends.
    pub sealed: bool,
}

impl SegmentAt {
    /// Where its acknowledged frames end.
    pub fn end(&self) -> usize {
        self.frames.last().map_or(BLOCK, FrameAt::end)
    }
}

/// A field of `bytes`, little endian.
pub fn field<const WIDTH: usize>(bytes: &[u8], at: usize) -> usize {
    let mut wide = [0; 8];
    wide[..WIDTH].copy_from_slice(&bytes[at..at + WIDTH]);
    usize::try_from(u64::from_le_bytes(wide)).expect("64 bits")
}

/// The segments of an intact log, with the frames up to LSN `acked`.
pub fn segments(image: &Image, acked: u64) -> Vec<SegmentAt> {
    let paths: Vec<_> =
        image.paths().into_iter().filter(|path| path.starts_with("wal/seg-")).collect();
    let contents: Vec<_> = paths.iter().filter_map(|path| image.content(path)).collect();
    let mut segments = Vec::new();
    for (index, path) in paths.into_iter().enumerate() {
        let content = contents[index].clone();
        let seal = contents.get(index + 1).map(|next| field::<8>(next, 80));
        let before = field::<8>(&content, 48) as u64 - 1;
        let frames = frames(&content, before, seal.unwrap_or(content.len()), acked);
        segments.push(SegmentAt { path, content, before, frames, sealed: seal.is_some() });
    }
    segments
}

/// The frames after the `next` records before them; one that does not follow is of a life before.
fn frames(content: &[u8], mut next: u64, end: usize, acked: u64) -> Vec<FrameAt> {
    let mut frames = Vec::new();
    let mut at = BLOCK;
    while at < end {
        let header = &content[at..at + FRAME_HEADER];
        if field::<4>(header, 0) != FRAME_MAGIC as usize {
            break;
        }
        let bytes = (FRAME_HEADER + field::<4>(header, 8)).next_multiple_of(BLOCK);
        let frame = FrameAt {
            offset: at,
            bytes,
            before: field::<8>(header, 16) as u64 - 1,
            records: field::<4>(header, 12) as u64,
            synced_through: field::<8>(header, 24),
        };
        if frame.before != next || frame.before + frame.records > acked {
            break;
        }
        next += frame.records;
        frames.push(frame);
        at += bytes;
    }
    frames
}
