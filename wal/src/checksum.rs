//! CRC-32 (IEEE), seeded.
//!
//! A seed that is drawn anew for every life of a segment makes a frame of an earlier life fail
//! both its checks, whatever it holds (W8). The seed enters as the first eight bytes of the
//! message, so that the same bytes under two seeds differ.

use crc32fast::Hasher;

/// The checksum of `parts`, one after the other, under `seed`.
pub(crate) fn seeded(seed: u64, parts: &[&[u8]]) -> u32 {
    let mut hasher = Hasher::new();
    hasher.update(&seed.to_le_bytes());
    for part in parts {
        hasher.update(part);
    }
    hasher.finalize()
}

/// The checksum of `bytes` without a seed, for what stands outside any segment's life.
pub(crate) fn plain(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_seed_gives_another_sum() {
        assert_ne!(seeded(1, &[b"frame"]), seeded(2, &[b"frame"]));
        assert_eq!(seeded(1, &[b"fr", b"ame"]), seeded(1, &[b"frame"]));
    }

    #[test]
    fn the_polynomial_is_the_one_the_format_names() {
        assert_eq!(plain(b"123456789"), 0xCBF4_3926);
    }
}
