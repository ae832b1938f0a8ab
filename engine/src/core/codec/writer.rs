//! Bytes on their way out.

/// Fixed bytes that are gathered before they are appended: more than any event has between two
/// texts, but a definition's.
const GATHERED_MAX: usize = 64;

/// Appends fields to a buffer. Those of a fixed width are gathered first, at places that the
/// compiler knows because all of this is inlined, and appended together: one look at the buffer's
/// capacity instead of one a field.
pub(super) struct Writer<'a> {
    out: &'a mut Vec<u8>,
    gathered: [u8; GATHERED_MAX],
    count: usize,
}

impl<'a> Writer<'a> {
    #[inline(always)]
    pub(super) fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out, gathered: [0; GATHERED_MAX], count: 0 }
    }

    /// Appends the bytes of a field of a fixed width.
    #[inline(always)]
    pub(super) fn fixed<const N: usize>(&mut self, bytes: [u8; N]) {
        if self.count + N > GATHERED_MAX {
            self.flush();
        }
        const { assert!(N <= GATHERED_MAX, "a fixed field fits what is gathered") };
        self.gathered[self.count..self.count + N].copy_from_slice(&bytes);
        self.count += N;
    }

    /// What is gathered, where it is `N` bytes that were never flushed.
    #[inline(always)]
    pub(super) fn head<const N: usize>(self) -> [u8; N] {
        assert!(self.count == N, "a head is what was written of it");
        *self.gathered.first_chunk().unwrap_or_else(|| unreachable!("a head is short"))
    }

    /// Appends any bytes.
    #[inline(always)]
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.flush();
        self.out.extend_from_slice(bytes);
    }

    /// Appends what is gathered.
    #[inline(always)]
    pub(super) fn flush(&mut self) {
        self.out.extend_from_slice(&self.gathered[..self.count]);
        self.count = 0;
    }
}
