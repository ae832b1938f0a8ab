//! Fixed-width little-endian fields at named offsets of a fixed-size header.

/// A header under construction or under inspection.
#[derive(Clone, Copy)]
pub(crate) struct Fields<const N: usize>(pub(crate) [u8; N]);

macro_rules! width {
    ($get:ident, $put:ident, $type:ty) => {
        pub(crate) fn $get(&self, offset: usize) -> $type {
            <$type>::from_le_bytes(self.array(offset))
        }

        pub(crate) fn $put(&mut self, offset: usize, value: $type) {
            self.put(offset, &value.to_le_bytes());
        }
    };
}

impl<const N: usize> Fields<N> {
    pub(crate) const fn zero() -> Self {
        Self([0; N])
    }

    /// The first `N` bytes of `bytes`, or `None` where there are fewer.
    pub(crate) fn of(bytes: &[u8]) -> Option<Self> {
        bytes.first_chunk::<N>().map(|chunk| Self(*chunk))
    }

    /// `W` bytes from `offset`.
    ///
    /// # Panics
    /// Where they do not lie in the header: offsets are constants of the format.
    pub(crate) fn array<const W: usize>(&self, offset: usize) -> [u8; W] {
        let mut field = [0; W];
        field.copy_from_slice(&self.0[offset..offset + W]);
        field
    }

    pub(crate) fn put(&mut self, offset: usize, bytes: &[u8]) {
        self.0[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    pub(crate) fn is_zero(&self, offset: usize, end: usize) -> bool {
        self.0[offset..end].iter().all(|byte| *byte == 0)
    }

    width!(u16, put_u16, u16);
    width!(u32, put_u32, u32);
    width!(u64, put_u64, u64);
}
