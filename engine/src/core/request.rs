//! The keyed hash under which memory knows a client's request id.

use siphasher::sip128::SipHasher13;

/// Hashes request ids with a directory's key. The key is fixed when the directory is formatted
/// and is secret: who knew it could make two ids of one user meet. SipHash-1-3 with 128 bits,
/// as hash tables that face strangers use it: nobody is ever shown a hash. SQL keeps it as well,
/// so the function is part of the format.
#[derive(Clone, Copy)]
pub struct RequestHasher(SipHasher13);

impl RequestHasher {
    /// A hasher with the directory's key.
    pub fn new(key: &[u8; 16]) -> Self {
        Self(SipHasher13::new_with_key(key))
    }

    /// The hash of a request id, byte by byte: no two spellings of an id are one id.
    pub fn hash(&self, request_id: &str) -> u128 {
        self.hash_bytes(request_id.as_bytes())
    }

    /// [`RequestHasher::hash`] of an id's bytes.
    pub(crate) fn hash_bytes(&self, request_id: &[u8]) -> u128 {
        self.0.hash(request_id).as_u128()
    }

    /// The hash of a provider's transaction: two channels may number theirs alike.
    pub fn receipt(&self, channel: &str, transaction: &str) -> u128 {
        self.hash(&format!("{channel}\0{transaction}"))
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

    /// SipHash-C-D with 128 bits, as its paper has it.
    fn siphash<const C: usize, const D: usize>(key: &[u8; 16], text: &[u8]) -> u128 {
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
        let (k0, k1) = (word(&key[..8]), word(&key[8..]));
        let mut v = [
            k0 ^ 0x736F_6D65_7073_6575,
            k1 ^ 0x646F_7261_6E64_6F6D ^ 0xEE,
            k0 ^ 0x6C79_6765_6E65_7261,
            k1 ^ 0x7465_6462_7974_6573,
        ];
        fn rounds(v: &mut [u64; 4], count: usize) {
            for _ in 0..count {
                v[0] = v[0].wrapping_add(v[1]);
                v[1] = v[1].rotate_left(13) ^ v[0];
                v[0] = v[0].rotate_left(32);
                v[2] = v[2].wrapping_add(v[3]);
                v[3] = v[3].rotate_left(16) ^ v[2];
                v[0] = v[0].wrapping_add(v[3]);
                v[3] = v[3].rotate_left(21) ^ v[0];
                v[2] = v[2].wrapping_add(v[1]);
                v[1] = v[1].rotate_left(17) ^ v[2];
                v[2] = v[2].rotate_left(32);
            }
        }
        let mut padded = text.to_vec();
        padded.resize((text.len() + 1).next_multiple_of(8), 0);
        *padded.last_mut().unwrap() = u8::try_from(text.len() % 256).unwrap();
        for block in padded.chunks_exact(8) {
            v[3] ^= word(block);
            rounds(&mut v, C);
            v[0] ^= word(block);
        }
        v[2] ^= 0xEE;
        rounds(&mut v, D);
        let low = v[0] ^ v[1] ^ v[2] ^ v[3];
        v[1] ^= 0xDD;
        rounds(&mut v, D);
        let high = v[0] ^ v[1] ^ v[2] ^ v[3];
        u128::from(high) << 64 | u128::from(low)
    }

    #[test]
    fn the_hash_is_siphash_1_3_with_128_bits() {
        let key: [u8; 16] = std::array::from_fn(|at| u8::try_from(at).unwrap());
        // The reference implementation's vector for an empty input, read as a little-endian number.
        let published = u128::from_le_bytes([
            0xA3, 0x81, 0x7F, 0x04, 0xBA, 0x25, 0xA8, 0xE6, 0x6D, 0xF6, 0x72, 0x14, 0xC7, 0x55,
            0x02, 0x93,
        ]);
        assert_eq!(siphash::<2, 4>(&key, b""), published);
        let text = "0190a6f0-7b7e-7cc1-9b57-3f1a2c0d4e5f, sixty-four bytes at the most";
        for length in 0..text.len() {
            let expected = siphash::<1, 3>(&key, &text.as_bytes()[..length]);
            assert_eq!(RequestHasher::new(&key).hash(&text[..length]), expected, "{length}");
        }
    }

    #[test]
    fn another_key_gives_another_hash() {
        let one = RequestHasher::new(&[1; 16]).hash("request");
        assert_ne!(one, RequestHasher::new(&[2; 16]).hash("request"));
        assert_ne!(one, RequestHasher::new(&[1; 16]).hash("Request"));
    }
}
