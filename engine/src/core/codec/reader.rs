//! A cursor over bytes that never reads beyond them.

/// Takes values off the front of a slice.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
    /// A take has asked for more than was left: nothing is taken from then on.
    exhausted: bool,
}

impl<'a> Reader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, exhausted: false }
    }

    /// Bytes not yet taken.
    pub(super) const fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Whether a take found too few bytes.
    pub(super) const fn is_exhausted(&self) -> bool {
        self.exhausted
    }

    #[inline(always)]
    pub(super) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let Some((taken, rest)) = self.rest.split_at_checked(count) else {
            self.exhausted = true;
            return None;
        };
        self.rest = rest;
        Some(taken)
    }

    #[inline(always)]
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    #[inline(always)]
    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    #[inline(always)]
    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    #[inline(always)]
    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    #[inline(always)]
    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
}
