//! The engine's constants in the log's CONTROL, fixed when the directory is formatted.
//!
//! | off | size | field            | meaning                                             |
//! |----:|-----:|------------------|-----------------------------------------------------|
//! |   0 |   16 | request_hash_key | keys the hash under which request ids are kept      |
//! |  16 |    2 | order_prefix     | 1..=999                                             |
//! |  18 |    1 | node_bits        | 0: a version with several nodes gives it a meaning  |
//! |  19 |    1 | state_version    | 1: of request hashes and a snapshot's images        |
//! |  20 |   44 | reserved         | 0                                                   |
//!
//! Builds before the first release wrote 0 there. They hashed request ids otherwise, and their logs
//! hold such hashes: a purchase that is asked for again would be made again. So theirs are refused.

use wal::OWNER_BYTES;

use super::error::OpenError;
use crate::core::ids::OrderPrefix;
use crate::core::request::RequestHasher;
use crate::core::shard::ShardSeed;

const NODE_BITS_AT: usize = 18;
const STATE_VERSION_AT: usize = NODE_BITS_AT + 1;
/// The one that this version writes and reads.
const STATE_VERSION: u8 = 1;

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
        bytes[STATE_VERSION_AT] = STATE_VERSION;
        assert_eq!(Self::decode(&bytes).ok(), Some(*self), "the engine's constants must read back");
        bytes
    }

    /// The constants behind `bytes`.
    ///
    /// # Errors
    /// [`OpenError::Unreleased`], [`OpenError::UnknownConstants`]: another version wrote them.
    pub(crate) fn decode(bytes: &[u8; OWNER_BYTES]) -> Result<Self, OpenError> {
        let mut request_hash_key = [0; 16];
        request_hash_key.copy_from_slice(&bytes[..16]);
        let order_prefix = OrderPrefix::new(u16::from_le_bytes([bytes[16], bytes[17]]));
        let order_prefix = order_prefix.ok_or(OpenError::UnknownConstants)?;
        let (node_bits, rest) = (bytes[NODE_BITS_AT], &bytes[STATE_VERSION_AT + 1..]);
        match bytes[STATE_VERSION_AT] {
            _ if node_bits != 0 || rest.iter().any(|byte| *byte != 0) => {
                Err(OpenError::UnknownConstants)
            }
            STATE_VERSION => Ok(Self { request_hash_key, order_prefix }),
            0 => Err(OpenError::Unreleased),
            _ => Err(OpenError::UnknownConstants),
        }
    }

    /// What the shards of the directory are told at birth. Hash tables are scattered by a seed of
    /// the directory, not of the process: the order in which a snapshot writes users is that of
    /// the table which the next start fills with them.
    pub(crate) fn shard_seed(&self) -> ShardSeed {
        let requests = RequestHasher::new(&self.request_hash_key);
        ShardSeed { table_seed: requests.table_seed(), requests }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_constants_read_back_and_those_of_other_versions_are_refused() {
        let order_prefix = OrderPrefix::new(42).unwrap();
        let owner = Owner { request_hash_key: [7; 16], order_prefix };
        let bytes = owner.encode();
        assert_eq!(Owner::decode(&bytes).unwrap(), owner);
        for (at, value) in [(NODE_BITS_AT, 1), (STATE_VERSION_AT, 2), (OWNER_BYTES - 1, 1)] {
            let mut newer = bytes;
            newer[at] = value;
            assert!(matches!(Owner::decode(&newer), Err(OpenError::UnknownConstants)), "{at}");
        }
        let mut older = bytes;
        older[STATE_VERSION_AT] = 0;
        assert!(matches!(Owner::decode(&older), Err(OpenError::Unreleased)));
        assert!(matches!(Owner::decode(&[0; OWNER_BYTES]), Err(OpenError::UnknownConstants)));
    }
}
