//! Many short byte strings in one buffer, each with a head: what is filled and emptied again and
//! again must not allocate for each of them.

/// Byte strings and their heads, in the order in which they came.
#[derive(Debug)]
pub(crate) struct Packed<T> {
    /// Each with where its bytes end, which is where those of the next begin.
    heads: Vec<(T, usize)>,
    bytes: Vec<u8>,
}

impl<T> Default for Packed<T> {
    fn default() -> Self {
        Self { heads: Vec::new(), bytes: Vec::new() }
    }
}

impl<T> Packed<T> {
    /// Adds one; its index.
    pub(crate) fn push(&mut self, head: T, body: &[u8]) -> usize {
        self.bytes.extend_from_slice(body);
        self.heads.push((head, self.bytes.len()));
        self.heads.len() - 1
    }

    /// The one at `index`.
    pub(crate) fn get(&self, index: usize) -> Option<(&T, &[u8])> {
        let before = index.checked_sub(1).and_then(|before| self.heads.get(before));
        let begin = before.map_or(0, |(_, end)| *end);
        let (head, end) = self.heads.get(index)?;
        Some((head, self.bytes.get(begin..*end)?))
    }

    /// How many there are.
    pub(crate) const fn len(&self) -> usize {
        self.heads.len()
    }

    /// Bytes of all of them.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Empties it; the memory stays.
    pub(crate) fn clear(&mut self) {
        self.heads.clear();
        self.bytes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_comes_back_with_its_own_bytes() {
        let mut packed = Packed::default();
        for (index, body) in [&b"one"[..], b"", b"three"].into_iter().enumerate() {
            assert_eq!(packed.push(index * 10, body), index);
        }
        assert_eq!((packed.len(), packed.bytes()), (3, 8));
        assert_eq!(packed.get(0), Some((&0, &b"one"[..])));
        assert_eq!(packed.get(1), Some((&10, &b""[..])));
        assert_eq!(packed.get(2), Some((&20, &b"three"[..])));
        assert_eq!(packed.get(3), None);
        packed.clear();
        assert_eq!((packed.len(), packed.bytes(), packed.get(0)), (0, 0, None));
    }
}
