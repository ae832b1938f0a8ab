//! The keyed hash under which memory knows a client's request id.

use siphasher::sip128::SipHasher24;

/// Hashes request ids with a directory's key. The key is fixed when the directory is formatted
/// and is secret: who knew it could make two ids of one user meet. SipHash-2-4 with 128 bits;
/// SQL keeps the hash as well, so the function is part of the format.
#[derive(Clone, Copy)]
pub struct RequestHasher(SipHasher24);

impl RequestHasher {
    /// A hasher with the directory's key.
    pub fn new(key: &[u8; 16]) -> Self {
        Self(SipHasher24::new_with_key(key))
    }

    /// The hash of a request id, byte by byte: no two spellings of an id are one id.
    pub fn hash(&self, request_id: &str) -> u128 {
        self.0.hash(request_id.as_bytes()).as_u128()
    }
}

impl std::fmt::Debug for RequestHasher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RequestHasher(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_published_siphash_2_4_128() {
        let key: [u8; 16] = std::array::from_fn(|at| u8::try_from(at).unwrap());
        // The reference implementation's vector for an empty input, read as a little-endian number.
        let expected = u128::from_le_bytes([
            0xA3, 0x81, 0x7F, 0x04, 0xBA, 0x25, 0xA8, 0xE6, 0x6D, 0xF6, 0x72, 0x14, 0xC7, 0x55,
            0x02, 0x93,
        ]);
        assert_eq!(RequestHasher::new(&key).hash(""), expected);
    }

    #[test]
    fn another_key_gives_another_hash() {
        let one = RequestHasher::new(&[1; 16]).hash("request");
        assert_ne!(one, RequestHasher::new(&[2; 16]).hash("request"));
        assert_ne!(one, RequestHasher::new(&[1; 16]).hash("Request"));
    }
}
