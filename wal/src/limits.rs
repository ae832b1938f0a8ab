//! Every bound of the log, with its reason.

/// A block: the unit frames are padded to. No durable block is ever written twice (W5), so the
/// log does not rely on a disk that keeps the old bytes around a torn rewrite.
pub const BLOCK_BYTES: usize = 4096;

/// A frame with its header: large enough that one sync carries thousands of records, small enough
/// that a lost tail is small.
pub const FRAME_BYTES_MAX: usize = 1 << 20;

/// Bytes appended but not yet durable, over all shards. Past it callers are refused before
/// anything is decided. Also how far a torn tail can reach: damage beyond it is no torn tail.
pub const IN_FLIGHT_BYTES_MAX: u64 = 8 << 20;

/// New work leaves this share of the bytes in flight (an eighth) to what must go on.
pub const IN_FLIGHT_RESERVED_DIVISOR: u64 = 8;

/// The open batches of all shards together may exceed a frame; one shard's never does, so that a
/// frame takes whole batches and no command is split (the divisor leaves room for its neighbours).
pub const BATCH_FRAME_DIVISOR: usize = 4;

/// A batch that has room for so much of a chunk (a quarter) takes longer to fill than a committer
/// to wake up: the committing thread does not wait for it, and it is worth a chunk of its own.
pub(crate) const LONG_CHUNK_DIVISOR: usize = 4;

/// A segment unless a directory was formatted otherwise.
pub const SEGMENT_BYTES_DEFAULT: u64 = 64 << 20;

/// The smallest segment: a header, two largest frames, and a watermark. Simulations use far
/// smaller frames and keep the relation.
pub const SEGMENT_FRAMES_MIN: u64 = 2;

/// A record's length is a 16-bit field; eight-byte alignment takes the rest.
pub const RECORD_BYTES_MAX: usize = 65_528;

/// Segments made ahead: zeroing one takes a fraction of the time that filling it takes.
pub const SPARES: usize = 3;

/// Segments made ahead at most, where the log fills them faster than [`SPARES_AHEAD_US`], or will:
/// half a gigabyte, which four million purchases fill.
pub const SPARES_MAX: usize = 8;

/// Segments' worth of room that a spare beyond [`SPARES`] leaves: whoever shares the disk, an order
/// database or a snapshot, must not meet its end because a sale waits.
pub const EXTRA_MARGIN_SEGMENTS: u64 = 4;

/// Spares last at least this long at the rate at which the last segment was filled: a disk that
/// stalls while it zeroes the next one must not stop the sale.
pub const SPARES_AHEAD_US: u64 = 2_000_000;

/// Spares that new work never uses, so that what must go on does when the disk is full.
pub const SPARES_RESERVED: usize = 1;

/// Lanes of records: one a shard, one for control records.
pub const SHARDS_MAX: u16 = 1024;

/// The lane of records that belong to no shard.
pub const CONTROL_SHARD: u16 = 0xFFFF;

/// Idle this long, the committer writes a watermark: the last acknowledged frame is then promised
/// by a later one, and damage to it can be told from a torn tail.
pub const IDLE_SEAL_MS: u64 = 50;

/// Snapshots kept: where the newest turns out to be damaged, the log reaches back to the other.
pub const SNAPSHOTS_KEPT: usize = 2;

/// Segments that are kept though nobody needs them: a sink whose store came back a little older
/// than it had confirmed still finds its place.
pub const RETIRE_MARGIN_SEGMENTS: usize = 2;

/// Undelivered log beyond which a sink that can be rebuilt no longer holds the log back, and an
/// operator should look.
pub const BACKLOG_BYTES_SOFT: u64 = 2 << 30;

/// Undelivered log beyond which new work is refused: what is acknowledged is never dropped.
pub const BACKLOG_BYTES_HARD: u64 = 8 << 30;

/// Sinks that can pin the log.
pub const SINKS_MAX: usize = 16;

/// Segments that saw an I/O error and wait for retirement to be set aside.
pub const NEVER_RECYCLE_MAX: usize = 64;

/// Pause and number of tries for the directory lock: a server that is just ending lets go.
pub const LOCK_RETRY_MS: u64 = 50;
/// See [`LOCK_RETRY_MS`].
pub const LOCK_TRIES: u32 = 5;

// How the bounds hang together: a change of one that breaks another does not compile.
const _: () = assert!(BLOCK_BYTES.is_power_of_two() && BLOCK_BYTES.is_multiple_of(512));
const _: () = assert!(FRAME_BYTES_MAX.is_multiple_of(BLOCK_BYTES));
const _: () = assert!(FRAME_BYTES_MAX as u64 <= IN_FLIGHT_BYTES_MAX, "a frame is in flight whole");
const _: () = assert!(IN_FLIGHT_RESERVED_DIVISOR > 1, "new work has a share");
const _: () = assert!(
    FRAME_BYTES_MAX as u64 <= IN_FLIGHT_BYTES_MAX / IN_FLIGHT_RESERVED_DIVISOR,
    "what must go on has room for a frame while new work is refused"
);
const _: () = assert!(SEGMENT_BYTES_DEFAULT.is_multiple_of(BLOCK_BYTES as u64));
const _: () = assert!(
    SEGMENT_BYTES_DEFAULT >= SEGMENT_FRAMES_MIN * FRAME_BYTES_MAX as u64 + 2 * BLOCK_BYTES as u64
);
const _: () = assert!(
    SEGMENT_BYTES_DEFAULT / 2 >= IN_FLIGHT_BYTES_MAX * 3 / 2 + 2 * FRAME_BYTES_MAX as u64,
    "a spare is looked for while the segment has room for all that is in flight"
);
const _: () = {
    // Two chunks of a batch, one after the other, are more than a full one, and a long batch leaves
    // a remainder: no more chunks than the smallest long batches that fit have.
    let long_bytes_min = FRAME_BYTES_MAX / BATCH_FRAME_DIVISOR / LONG_CHUNK_DIVISOR;
    let frames = IN_FLIGHT_BYTES_MAX.div_ceil(long_bytes_min as u64);
    // Of each the header, and padding of less than a block.
    assert!(
        frames * 2 * BLOCK_BYTES as u64 <= IN_FLIGHT_BYTES_MAX / 2,
        "what is in flight fits the room that is looked ahead, were each chunk a frame of its own"
    );
};
const _: () = assert!(RECORD_BYTES_MAX < FRAME_BYTES_MAX / BATCH_FRAME_DIVISOR);
const _: () = assert!(RECORD_BYTES_MAX <= u16::MAX as usize && RECORD_BYTES_MAX.is_multiple_of(8));
const _: () = assert!(SPARES_RESERVED < SPARES && SPARES <= SPARES_MAX);
const _: () = assert!(SHARDS_MAX < CONTROL_SHARD, "no shard has the control lane's number");
const _: () = assert!(SNAPSHOTS_KEPT >= 2, "one may turn out damaged");
const _: () = assert!(BACKLOG_BYTES_SOFT < BACKLOG_BYTES_HARD);
const _: () = assert!(
    BACKLOG_BYTES_SOFT > (RETIRE_MARGIN_SEGMENTS as u64 + 2) * SEGMENT_BYTES_DEFAULT,
    "a sink at the margin is not late"
);
const _: () = assert!(LOCK_TRIES >= 1);
