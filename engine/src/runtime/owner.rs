//! The engine's constants in the log's CONTROL, fixed when the directory is formatted.
//!
//! | off | size | field            | meaning                                             |
//! |----:|-----:|------------------|-----------------------------------------------------|
//! |   0 |   16 | request_hash_key | keys the hash under which request ids are kept      |
//! |  16 |    2 | order_prefix     | 1..=999                                             |
//! |  18 |    1 | node_bits        | 0: a version with several nodes gives it a meaning  |
//! |  19 |   45 | reserved         | 0                                                   |

use wal::OWNER_BYTES;

use crate::core::ids::OrderPrefix;
use crate::core::request::RequestHasher;
use crate::core::shard::ShardSeed;

/// The constants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Owner {
    pub(crate) request_hash_key: [u8; 16],
    pub(crate) order_prefix: OrderPrefix,
}

impl Owner {
    pub(crate) fn encode(&self) -> [u8; OWNER_BYTES] {
        let mut bytes = [0; OWNER_BYTES];
        bytes[..16].copy_from_slice(&self.request_hash_key);
        bytes[16..18].copy_from_slice(&self.order_prefix.get().to_le_bytes());
        assert_eq!(Self::decode(&bytes), Some(*self), "the engine's constants must read back");
        bytes
    }

    /// The constants behind `bytes`, or `None` where this version does not know their meaning.
    pub(crate) fn decode(bytes: &[u8; OWNER_BYTES]) -> Option<Self> {
        let mut request_hash_key = [0; 16];
        request_hash_key.copy_from_slice(&bytes[..16]);
        let order_prefix = OrderPrefix::new(u16::from_le_bytes([bytes[16], bytes[17]]))?;
        let reserved = bytes[18..].iter().all(|byte| *byte == 0);
        reserved.then_some(Self { request_hash_key, order_prefix })
    }

    /// What the shards of the directory are told at birth. Hash tables are scattered by a seed of
    /// the directory, not of the process: the order in which a snapshot writes users is that of
    /// the table which the next start fills with them.
    pub(crate) fn shard_seed(&self) -> ShardSeed {
        let requests = RequestHasher::new(&self.request_hash_key);
        // Of a text that no request and no receipt has: whose hash SQL shows tells nothing of it.
        let scattered = requests.hash("\0tables");
        #[expect(clippy::cast_possible_truncation, reason = "half of it is a seed")]
        let table_seed = scattered as u64;
        ShardSeed { table_seed, requests }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_constants_read_back_and_unknown_ones_are_refused() {
        let order_prefix = OrderPrefix::new(42).unwrap();
        let owner = Owner { request_hash_key: [7; 16], order_prefix };
        let bytes = owner.encode();
        assert_eq!(Owner::decode(&bytes), Some(owner));
        let mut newer = bytes;
        newer[18] = 1;
        assert_eq!(Owner::decode(&newer), None);
        assert_eq!(Owner::decode(&[0; OWNER_BYTES]), None);
    }
}
