//! The damages a log is put through.

use wal::device::sim::Image;

use super::layout::{BLOCK, FRAME_HEADER, SEGMENT_HEADER, SegmentAt};
use crate::fates::Random;

/// CONTROL, as the format names it.
pub const CONTROL: &str = "CONTROL";

/// One damage.
#[derive(Clone, Debug)]
pub enum Mutation {
    /// A bit of a file is flipped.
    Flip {
        /// The file.
        path: String,
        /// The bit, from the file's start.
        bit: usize,
    },
    /// A piece of a file becomes what is given.
    Overwrite {
        /// The file.
        path: String,
        /// Where.
        at: usize,
        /// The new bytes.
        bytes: Vec<u8>,
    },
    /// Two blocks of a file change places.
    Swap {
        /// The file.
        path: String,
        /// One block.
        one: usize,
        /// The other.
        two: usize,
    },
    /// A file gets another length.
    Resize {
        /// The file.
        path: String,
        /// The length.
        bytes: usize,
    },
    /// A file is gone.
    Delete {
        /// The file.
        path: String,
    },
    /// A block can't be read.
    Unreadable {
        /// The file.
        path: String,
        /// The block.
        block: usize,
    },
}

impl Mutation {
    /// The file that is damaged.
    pub fn path(&self) -> &str {
        match self {
            Self::Flip { path, .. }
            | Self::Overwrite { path, .. }
            | Self::Swap { path, .. }
            | Self::Resize { path, .. }
            | Self::Delete { path }
            | Self::Unreadable { path, .. } => path,
        }
    }

    /// The file's content afterwards; `None` where it is gone.
    pub fn content(&self, mut content: Vec<u8>) -> Option<Vec<u8>> {
        match self {
            Self::Flip { bit, .. } => content[bit / 8] ^= 1 << (bit % 8),
            Self::Overwrite { at, bytes, .. } => {
                content[*at..at + bytes.len()].copy_from_slice(bytes);
            }
            Self::Swap { one, two, .. } => {
                for at in 0..BLOCK {
                    content.swap(one * BLOCK + at, two * BLOCK + at);
                }
            }
            Self::Resize { bytes, .. } => content.resize(*bytes, 0),
            Self::Delete { .. } => return None,
            Self::Unreadable { .. } => {}
        }
        Some(content)
    }
}

/// What a log is damaged with besides its own bytes.
pub struct Sources {
    /// The same segments of a log with another identity.
    pub strangers: Vec<SegmentAt>,
    /// The same segments of a log with the same identity and stamps, and other records.
    pub twins: Vec<SegmentAt>,
}

/// Every damage of a log, `samples` of each kind that is too large to enumerate.
pub fn mutations(
    image: &Image,
    segments: &[SegmentAt],
    sources: &Sources,
    samples: usize,
    random: &mut Random,
) -> Vec<Mutation> {
    let mut all = Vec::new();
    for (index, segment) in segments.iter().enumerate() {
        bits(segment, samples, random, &mut all);
        blocks(segment, samples, random, &mut all);
        spliced(segment, index, segments, sources, &mut all);
        whole(&segment.path, segment.content.len(), samples / 8, random, &mut all);
    }
    control(image, samples, random, &mut all);
    for path in image.paths().into_iter().filter(|path| path.starts_with("snap/")) {
        let content = image.content(&path).unwrap_or_default();
        for block in 0..content.len() / BLOCK {
            // Every header and every item, and some of the padding.
            let first = block * BLOCK * 8;
            let flip = |bit: usize| Mutation::Flip { path: path.clone(), bit };
            all.extend((first..first + 128 * 8).map(flip));
            all.extend((0..samples / 8).map(|_| flip(first + random.index(BLOCK * 8))));
            all.push(Mutation::Unreadable { path: path.clone(), block });
            let bytes = vec![0; BLOCK];
            all.push(Mutation::Overwrite { path: path.clone(), at: block * BLOCK, bytes });
        }
        whole(&path, content.len(), samples / 8, random, &mut all);
    }
    for path in image.paths().into_iter().filter(|path| path.starts_with("wal/spare-")) {
        for _ in 0..samples / 8 {
            all.push(Mutation::Flip { path: path.clone(), bit: random.index(8 * 12 * BLOCK) });
        }
        whole(&path, 12 * BLOCK, samples / 8, random, &mut all);
    }
    all
}

/// Every bit of every header; some of everything else.
fn bits(segment: &SegmentAt, samples: usize, random: &mut Random, all: &mut Vec<Mutation>) {
    let path = &segment.path;
    let mut flip = |bit: usize| all.push(Mutation::Flip { path: path.clone(), bit });
    (0..SEGMENT_HEADER * 8).for_each(&mut flip);
    for frame in &segment.frames {
        (frame.offset * 8..(frame.offset + FRAME_HEADER) * 8).for_each(&mut flip);
        (0..samples).for_each(|_| flip(frame.offset * 8 + random.index(frame.bytes * 8)));
    }
    (0..samples).for_each(|_| flip(random.index(segment.content.len() * 8)));
}

/// Every block zeroed, unreadable, swapped with and copied over every other; garbage of any
/// length anywhere.
fn blocks(segment: &SegmentAt, samples: usize, random: &mut Random, all: &mut Vec<Mutation>) {
    let SegmentAt { path, content, .. } = segment;
    let count = content.len() / BLOCK;
    let overwrite = |at: usize, bytes: &[u8]| Mutation::Overwrite {
        path: path.clone(),
        at,
        bytes: bytes.into(),
    };
    for one in 0..count {
        all.push(overwrite(one * BLOCK, &[0; BLOCK]));
        all.push(Mutation::Unreadable { path: path.clone(), block: one });
        for two in 0..count {
            all.push(overwrite(two * BLOCK, &content[one * BLOCK..][..BLOCK]));
            if one < two {
                all.push(Mutation::Swap { path: path.clone(), one, two });
            }
        }
    }
    for _ in 0..samples {
        let at = random.index(content.len());
        let bytes = 1 + random.index(2 * BLOCK).min(content.len() - at - 1);
        let garbage: Vec<u8> = (0..bytes).map(|_| random.draw().to_le_bytes()[0]).collect();
        all.push(overwrite(at, &garbage));
    }
}

/// Blocks of other segments and other logs in every place; frames of the twin in their own.
fn spliced(
    segment: &SegmentAt,
    index: usize,
    segments: &[SegmentAt],
    sources: &Sources,
    all: &mut Vec<Mutation>,
) {
    let own = segments.iter().enumerate().filter(|(other, _)| *other != index);
    let strangers = sources.strangers.get(index).map(|stranger| (index, stranger));
    for (_, other) in own.chain(strangers) {
        let ends = other.frames.iter().map(|frame| frame.offset).chain([0]);
        for from in ends {
            for to in (0..segment.content.len()).step_by(BLOCK) {
                let bytes = other.content[from..][..BLOCK].to_vec();
                all.push(Mutation::Overwrite { path: segment.path.clone(), at: to, bytes });
            }
        }
    }
    let Some(twin) = sources.twins.get(index) else { return };
    for frame in segment.frames.iter().filter(|frame| twin.frames.contains(frame)) {
        let bytes = twin.content[frame.offset..frame.end()].to_vec();
        all.push(Mutation::Overwrite { path: segment.path.clone(), at: frame.offset, bytes });
    }
}

/// A file that is cut, longer, or gone.
fn whole(path: &str, bytes: usize, samples: usize, random: &mut Random, all: &mut Vec<Mutation>) {
    let mut resize = |bytes: usize| all.push(Mutation::Resize { path: path.to_owned(), bytes });
    (0..bytes).step_by(BLOCK).for_each(&mut resize);
    (0..samples).for_each(|_| resize(random.index(bytes)));
    resize(bytes + BLOCK);
    all.push(Mutation::Delete { path: path.to_owned() });
}

/// CONTROL's slots damaged, rolled back, doubled, swapped.
fn control(image: &Image, samples: usize, random: &mut Random, all: &mut Vec<Mutation>) {
    let Some(content) = image.content(CONTROL) else { return };
    let path = || CONTROL.to_owned();
    for _ in 0..4 * samples {
        all.push(Mutation::Flip { path: path(), bit: random.index(content.len() * 8) });
    }
    for slot in [0, BLOCK] {
        let other = content[BLOCK - slot..][..BLOCK].to_vec();
        for bytes in [vec![0; BLOCK], vec![0xA5; BLOCK], other] {
            all.push(Mutation::Overwrite { path: path(), at: slot, bytes });
        }
    }
    all.push(Mutation::Overwrite { path: path(), at: 0, bytes: vec![0; 2 * BLOCK] });
    all.push(Mutation::Swap { path: path(), one: 0, two: 1 });
    (0..2).for_each(|block| all.push(Mutation::Unreadable { path: path(), block }));
    whole(CONTROL, content.len(), samples / 8, random, all);
}
