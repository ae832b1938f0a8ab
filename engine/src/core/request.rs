//! The keyed hash under which memory knows a client's request id.

use siphasher::sip128::SipHasher13;

use super::limits::REQUEST_ID_BYTES_MAX;

/// Words of eight bytes of the longest id that is hashed by [`Form`].
const WORDS_MAX: usize = REQUEST_ID_BYTES_MAX / 8;
const _: () = assert!(WORDS_MAX * 8 == REQUEST_ID_BYTES_MAX, "each byte of an id counts");
const _: () = assert!(WORDS_MAX < 1 << (128 - 60 - 64), "the sums of a form fit 128 bits");
const _: () = assert!(REQUEST_ID_BYTES_MAX <= 255, "an id's length stands in one byte");

/// The prime 2^127 - 1.
const PRIME: u128 = (1 << 127) - 1;

/// Hashes request ids with a directory's key. The key is fixed when the directory is formatted
/// and is secret. SQL keeps the hashes as well, so the function is part of the format.
#[derive(Clone, Copy)]
pub struct RequestHasher {
    form: Form,
    /// For what is longer than an id.
    long: SipHasher13,
}

/// A linear form over the field of 2^127 - 1: each word of the text times a secret factor of its
/// own, summed up (multilinear hashing, [Carter and Wegman]).
///
/// Why it is enough: take two different ids. Their words differ somewhere, for the last one holds
/// the length. The field has no zero divisors, so for any choice of the other factors at most one
/// value of that word's makes the sums meet: of 2^120 values, whatever the ids are, chosen or not.
/// SipHash gives the factors, so they are as good as drawn unless somebody tells it from chance.
/// That the choice is made without seeing hashes is what this rests on, and nobody is shown any.
/// Who reads them in SQL can work the factors out; but hashes are held against each other only
/// among the requests of one user in one activity, so all that could be done with them is to have
/// a request of one's own taken for another of one's own.
///
/// It takes half the time of SipHash itself, of which a purchase in a batch spent a quarter there.
///
/// [Carter and Wegman]: https://doi.org/10.1016/0022-0000(79)90044-8
#[derive(Clone, Copy)]
struct Form {
    /// Of each word a factor, as two numbers below 2^60: `low + high * 2^60`.
    factors: [[u64; 2]; WORDS_MAX],
    /// That of the bytes that fill no word, below the length.
    last: [u64; 2],
}

impl Form {
    fn new(key: &SipHasher13) -> Self {
        let factor = |at: u8| {
            let (low, high) = key.hash(&[at]).as_u64();
            [low >> 4, high >> 4]
        };
        let mut numbers = 0u8..;
        let mut next = || factor(numbers.next().unwrap_or_default());
        Self { factors: std::array::from_fn(|_| next()), last: next() }
    }

    /// The form of `text`, of at most [`REQUEST_ID_BYTES_MAX`] bytes.
    #[inline(always)]
    fn of(&self, text: &[u8]) -> u128 {
        let (words, rest) = text.as_chunks::<8>();
        let last = rest_of(text, rest) | (text.len() as u64) << 56;
        // Sums of at most nine products of 60 and 64 bits: they fit.
        let mut sums = self.last.map(|factor| u128::from(factor) * u128::from(last));
        for (word, factor) in words.iter().zip(&self.factors) {
            let word = u128::from(u64::from_le_bytes(*word));
            sums[0] += u128::from(factor[0]) * word;
            sums[1] += u128::from(factor[1]) * word;
        }
        reduced(sums)
    }
}

/// `low + high * 2^60` in the field.
#[inline(always)]
fn reduced([low, high]: [u128; 2]) -> u128 {
    // 2^127 is 1: what stands above comes in again below.
    let (sum, carry) = low.overflowing_add(high << 60);
    let above = (high >> 68) + u128::from(carry);
    let sum = (sum & PRIME) + ((sum >> 127) | (above << 1));
    // Below twice the prime now, and not below it only where one more reaches 2^127.
    (sum + ((sum + 1) >> 127)) & PRIME
}

/// The bytes of `rest`, the end of `text` that fills no word, as a number.
#[inline(always)]
fn rest_of(text: &[u8], rest: &[u8]) -> u64 {
    match text.last_chunk::<8>() {
        // The last eight bytes are there at once; those before the rest are shifted out, in two
        // steps, for all of them may be.
        Some(end) => u64::from_le_bytes(*end) >> 8 >> (56 - 8 * rest.len()),
        None => {
            let mut word = [0; 8];
            word.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
            u64::from_le_bytes(word)
        }
    }
}

impl RequestHasher {
    /// A hasher with the directory's key.
    pub fn new(key: &[u8; 16]) -> Self {
        let long = SipHasher13::new_with_key(key);
        Self { form: Form::new(&long), long }
    }

    /// The hash of a request id, byte by byte: no two spellings of an id are one id.
    #[inline(always)]
    pub fn hash(&self, request_id: &str) -> u128 {
        self.hash_bytes(request_id.as_bytes())
    }

    /// [`RequestHasher::hash`] of an id's bytes. One that is too long to be an id has a hash, too:
    /// it is hashed before it is refused.
    #[inline(always)]
    pub(crate) fn hash_bytes(&self, request_id: &[u8]) -> u128 {
        match request_id.len() {
            ..=REQUEST_ID_BYTES_MAX => self.form.of(request_id),
            _ => self.long.hash(request_id).as_u128(),
        }
    }

    /// Scatters the directory's hash tables. By SipHash, of a text that is no id and no word's
    /// number: who has solved the form for its factors knows nothing of it.
    pub(crate) fn table_seed(&self) -> u64 {
        self.long.hash(b"\0tables").as_u64().0
    }

    /// The hash of a provider's transaction: two channels may number theirs alike. By SipHash-1-3
    /// with 128 bits: all users' transactions are held against each other.
    pub fn receipt(&self, channel: &str, transaction: &str) -> u128 {
        self.long.hash(format!("{channel}\0{transaction}").as_bytes()).as_u128()
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

    /// The form as its doc has it, by the pen-and-paper way of multiplying.
    fn form(key: &[u8; 16], text: &[u8]) -> u128 {
        let times = |factor: u128, word: u64| {
            (0..64).rev().fold(0u128, |sum, bit| {
                let doubled = 2 * sum % PRIME;
                (doubled + if word >> bit & 1 == 1 { factor } else { 0 }) % PRIME
            })
        };
        let factor = |at: usize| {
            let hash = siphash::<1, 3>(key, &[u8::try_from(at).unwrap()]);
            let [low, high] = [hash & u128::from(u64::MAX), hash >> 64].map(|half| half >> 4);
            low + (high << 60)
        };
        let mut last = [0; 8];
        let rest = &text[text.len() / 8 * 8..];
        last[..rest.len()].copy_from_slice(rest);
        last[7] = u8::try_from(text.len()).unwrap();
        let words = text.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
        let sum = words.enumerate().map(|(at, word)| times(factor(at), word));
        let last = times(factor(8), u64::from_le_bytes(last));
        sum.fold(last, |sum, one| (sum + one) % PRIME)
    }

    #[test]
    fn an_id_s_hash_is_the_form_of_its_words_and_length() {
        for key in [std::array::from_fn(|at| u8::try_from(at).unwrap()), [0xFF; 16], [0; 16]] {
            let hasher = RequestHasher::new(&key);
            for byte in [0, 1, 0x7F] {
                let text = [b"0190a6f0-7b7e-7cc1-9b57-3f1a2c0d".as_slice(), &[byte; 32]].concat();
                for length in 0..=text.len() {
                    let text = &text[..length];
                    assert_eq!(hasher.hash_bytes(text), form(&key, text), "{length}");
                    let end = [byte; REQUEST_ID_BYTES_MAX];
                    assert_eq!(hasher.hash_bytes(&end[..length]), form(&key, &end[..length]));
                }
            }
        }
        assert_eq!(
            RequestHasher::new(&[7; 16]).hash("0190a6f0-7b7e-7cc1-9b57-3f1a2c0d4e5f"),
            0x3B6E_2BDB_19F2_310C_A64A_BAAF_29A6_7E96,
            "part of the format"
        );
    }

    #[test]
    fn ids_that_differ_little_have_different_hashes() {
        let hasher = RequestHasher::new(&[3; 16]);
        let mut hashes = std::collections::BTreeSet::new();
        let mut count = 0;
        for length in 0..=REQUEST_ID_BYTES_MAX {
            for at in 0..length {
                for byte in [1, 0x80, 0xFF] {
                    let mut text = vec![0; length];
                    text[at] = byte;
                    hashes.insert(hasher.hash_bytes(&text));
                    count += 1;
                }
            }
            hashes.insert(hasher.hash_bytes(&vec![0; length]));
            count += 1;
        }
        assert_eq!(hashes.len(), count);
    }

    #[test]
    fn what_is_longer_than_an_id_is_hashed_by_siphash_1_3_with_128_bits() {
        let key: [u8; 16] = std::array::from_fn(|at| u8::try_from(at).unwrap());
        // The reference implementation's vector for an empty input, read as a little-endian number.
        let published = u128::from_le_bytes([
            0xA3, 0x81, 0x7F, 0x04, 0xBA, 0x25, 0xA8, 0xE6, 0x6D, 0xF6, 0x72, 0x14, 0xC7, 0x55,
            0x02, 0x93,
        ]);
        assert_eq!(siphash::<2, 4>(&key, b""), published);
        let hasher = RequestHasher::new(&key);
        let text = "0190a6f0-7b7e-7cc1-9b57-3f1a2c0d4e5f".repeat(3);
        for length in REQUEST_ID_BYTES_MAX + 1..text.len() {
            let expected = siphash::<1, 3>(&key, &text.as_bytes()[..length]);
            assert_eq!(hasher.hash(&text[..length]), expected, "{length}");
        }
        assert_eq!(hasher.receipt("card", "tx-1"), siphash::<1, 3>(&key, b"card\0tx-1"));
        let scattered = siphash::<1, 3>(&key, b"\0tables");
        assert_eq!(u128::from(hasher.table_seed()), scattered & u128::from(u64::MAX));
    }

    #[test]
    fn another_key_gives_another_hash() {
        let one = RequestHasher::new(&[1; 16]).hash("request");
        assert_ne!(one, RequestHasher::new(&[2; 16]).hash("request"));
        assert_ne!(one, RequestHasher::new(&[1; 16]).hash("Request"));
    }
}
