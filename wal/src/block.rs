//! Memory aligned to blocks, as direct I/O wants it, without unsafe code.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

use crate::limits::BLOCK_BYTES;

/// A block's size as an offset in a file.
pub(crate) const BLOCK: u64 = BLOCK_BYTES as u64;

#[derive(Clone, FromBytes, IntoBytes, Immutable)]
#[repr(C, align(4096))]
struct Block([u8; BLOCK_BYTES]);

const _: () = assert!(size_of::<Block>() == BLOCK_BYTES && align_of::<Block>() == BLOCK_BYTES);

/// A buffer of whole blocks, aligned as direct I/O wants it.
pub struct Blocks(Vec<Block>);

impl Blocks {
    /// `count` zero blocks.
    pub fn new(count: usize) -> Self {
        Self(vec![Block::new_zeroed(); count])
    }

    /// Blocks enough for `bytes` bytes.
    pub fn for_bytes(bytes: usize) -> Self {
        Self::new(bytes.div_ceil(BLOCK_BYTES))
    }

    /// Its content.
    pub fn bytes(&self) -> &[u8] {
        self.0.as_slice().as_bytes()
    }

    /// Its content, to be filled.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.0.as_mut_slice().as_mut_bytes()
    }
}

/// `bytes` rounded up to whole blocks.
pub(crate) const fn round_up(bytes: usize) -> usize {
    bytes.div_ceil(BLOCK_BYTES) * BLOCK_BYTES
}

/// Whether every byte is zero. Recovery asks it of every block: in pieces that the processor looks
/// at in a few instructions each.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    let (pieces, rest) = bytes.as_chunks::<64>();
    let piece_is_zero = |piece: &[u8; 64]| piece.iter().fold(0, |any, byte| any | byte) == 0;
    pieces.iter().all(piece_is_zero) && rest.iter().all(|byte| *byte == 0)
}
