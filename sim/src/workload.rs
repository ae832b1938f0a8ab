//! A workload: a word whose letters are steps for a process to take.
//!
//! | letter | step                                                                        |
//! |--------|-----------------------------------------------------------------------------|
//! | `s`    | append one record whose frame fills a block, so all its 8 sectors are dirty |
//! | `b`    | append to every lane at once: a frame of several blocks                     |
//! | `r`    | append until the log begins a new segment                                   |
//! | `i`    | let it idle: a watermark where the last frame has none                      |
//! | `p`    | make a spare segment                                                        |
//! | `c`    | close cleanly                                                               |
//! | `o`    | let go without closing, and open again                                      |
//! | `k`    | append, be killed between write and sync, and open again                    |
//!
//! | `n`    | begin a new segment, make a snapshot, give back what is not needed, feed a  |
//! |        | sink that pins the log, give back what it held                              |
//!
//! A step that needs an open log opens it first. No segment stays that nobody needs, so that the
//! second `n` of a word gives one back, and the next segment lives in its file.

use wal::{Format, OWNER_BYTES};

/// Small enough that every block of a log is in play within a few steps: a segment holds eleven
/// blocks of frames, a frame at most four.
pub const FORMAT: Format = Format {
    shard_count: 2,
    frame_bytes_max: 16 << 10,
    in_flight_bytes_max: 16 << 10,
    segment_bytes: 48 << 10,
    owner: [0x5A; OWNER_BYTES],
};

/// One step of a workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// A frame of one block.
    Block,
    /// A frame of several blocks and all lanes.
    Span,
    /// Frames until a new segment begins.
    Rotate,
    /// A watermark.
    Idle,
    /// A spare.
    Spare,
    /// A clean end.
    Close,
    /// An unclean end and a new start.
    Reopen,
    /// A kill between write and sync, and a new start.
    Kill,
    /// A snapshot, and segments given back.
    Snapshot,
}

impl Step {
    /// Every step.
    pub const ALL: [Self; 9] = [
        Self::Block,
        Self::Span,
        Self::Rotate,
        Self::Idle,
        Self::Spare,
        Self::Close,
        Self::Reopen,
        Self::Kill,
        Self::Snapshot,
    ];

    /// Its letter.
    pub const fn letter(self) -> char {
        match self {
            Self::Block => 's',
            Self::Span => 'b',
            Self::Rotate => 'r',
            Self::Idle => 'i',
            Self::Spare => 'p',
            Self::Close => 'c',
            Self::Reopen => 'o',
            Self::Kill => 'k',
            Self::Snapshot => 'n',
        }
    }

    /// The step that a letter stands for.
    pub fn parse(letter: char) -> Option<Self> {
        Self::ALL.into_iter().find(|step| step.letter() == letter)
    }
}

/// The steps that a word stands for, or `None` where a letter is none.
pub fn parse(word: &str) -> Option<Vec<Step>> {
    word.chars().map(Step::parse).collect()
}

/// The word for steps.
pub fn word(steps: &[Step]) -> String {
    steps.iter().map(|step| step.letter()).collect()
}

/// Every workload of at most `length` steps, the empty one first.
pub fn all(length: usize) -> Vec<Vec<Step>> {
    let mut every = vec![Vec::new()];
    let mut start = 0;
    for _ in 0..length {
        let end = every.len();
        for index in start..end {
            for step in Step::ALL {
                let mut longer = every[index].clone();
                longer.push(step);
                every.push(longer);
            }
        }
        start = end;
    }
    every
}
