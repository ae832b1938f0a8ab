//! The record: one event of the engine, inside a frame's payload, 8-byte aligned.
//!
//! | off | size | field        | meaning                                            |
//! |----:|-----:|--------------|----------------------------------------------------|
//! |   0 |    2 | rec_len      | header included, padding not                       |
//! |   2 |    1 | type         | the engine's; it refuses one that it does not know |
//! |   3 |    1 | type_version |                                                    |
//! |   4 |    2 | shard_id     | 0xFFFF: control                                    |
//! |   6 |    2 | reserved     | 0, checked                                         |
//! |   8 |    8 | shard_seq    | dense per shard (W4)                               |
//! |  16 |   .. | body         | the engine's; then zeros to the next multiple of 8 |
//!
//! The LSN of record i of a frame is the frame's `first_lsn + i`.

use crate::fields::Fields;
use crate::ids::Lsn;
use crate::limits::RECORD_BYTES_MAX;

/// Bytes of a record before its body.
pub const RECORD_HEADER_BYTES: usize = 16;
const _: () = assert!(RECORD_HEADER_BYTES.is_multiple_of(8), "a body is aligned as its record is");

/// A record as it was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// Its place in the log.
    pub lsn: Lsn,
    /// What it is, for the engine.
    pub kind: u8,
    /// Version of that kind's body.
    pub kind_version: u8,
    /// The shard that decided it, or [`CONTROL_SHARD`](crate::CONTROL_SHARD).
    pub shard: u16,
    /// Its place in that shard, from 1.
    pub shard_seq: u64,
    /// The engine's bytes.
    pub body: &'a [u8],
}

/// Bytes a record with `body_bytes` of body takes in a frame.
pub const fn record_bytes(body_bytes: usize) -> usize {
    (RECORD_HEADER_BYTES + body_bytes).next_multiple_of(8)
}

/// Appends a record to `buffer`; `write` appends its body.
///
/// # Panics
/// Where the body is longer than a record can say: the engine bounds its events.
#[inline]
pub(crate) fn append(
    buffer: &mut Vec<u8>,
    (kind, kind_version): (u8, u8),
    shard: u16,
    shard_seq: u64,
    write: impl FnOnce(&mut Vec<u8>),
) {
    let start = buffer.len();
    assert!(start.is_multiple_of(8), "records are aligned");
    buffer.extend_from_slice(&[0; RECORD_HEADER_BYTES]);
    write(buffer);
    let bytes = buffer.len() - start;
    assert!(bytes <= RECORD_BYTES_MAX, "a record of {bytes} bytes does not fit its length field");
    let header = header(bytes, (kind, kind_version), shard, shard_seq);
    buffer[start..start + RECORD_HEADER_BYTES].copy_from_slice(&header);
    // Eight zeros and then the surplus off: a count that the compiler knows needs no call.
    buffer.extend_from_slice(&[0; 8]);
    buffer.truncate(start + bytes.next_multiple_of(8));
}

/// [`append`] for a body of `head` and then `tail`: what is `N` bytes long is put together on the
/// stack, with the header, and appended in one piece.
///
/// # Panics
/// As [`append`].
#[inline]
pub(crate) fn append_parts<const N: usize>(
    buffer: &mut Vec<u8>,
    kind: (u8, u8),
    shard: u16,
    shard_seq: u64,
    head: &[u8; N],
    tail: &[u8],
) {
    let bytes = RECORD_HEADER_BYTES + N + tail.len();
    assert!(bytes <= RECORD_BYTES_MAX, "a record of {bytes} bytes does not fit its length field");
    let end = buffer.len() + bytes.next_multiple_of(8);
    // One look at the room: the appends below find that they have it.
    if buffer.capacity() - buffer.len() < bytes + 8 {
        make_room(buffer, bytes + 8);
    }
    buffer.extend_from_slice(&header(bytes, kind, shard, shard_seq));
    buffer.extend_from_slice(head);
    buffer.extend_from_slice(tail);
    buffer.extend_from_slice(&[0; 8]);
    buffer.truncate(end);
}

#[cold]
fn make_room(buffer: &mut Vec<u8>, bytes: usize) {
    buffer.reserve(bytes);
}

/// A record's header as one number: it is put together in a register.
#[inline]
fn header(
    bytes: usize,
    (kind, kind_version): (u8, u8),
    shard: u16,
    shard_seq: u64,
) -> [u8; RECORD_HEADER_BYTES] {
    let low = bytes as u64
        | u64::from(kind) << 16
        | u64::from(kind_version) << 24
        | u64::from(shard) << 32;
    (u128::from(low) | u128::from(shard_seq) << 64).to_le_bytes()
}

/// The records of a frame's payload.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    payload: &'a [u8],
    next_lsn: Lsn,
}

/// A payload whose checksum is right and whose records are not: a fault of the writer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the record at LSN {0} does not fit its frame")]
pub struct RecordError(pub Lsn);

impl<'a> Records<'a> {
    pub(crate) fn new(payload: &'a [u8], first_lsn: Lsn) -> Self {
        Self { payload, next_lsn: first_lsn }
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.payload.is_empty() {
            return None;
        }
        let lsn = self.next_lsn;
        self.next_lsn = lsn.plus(1);
        let parsed = split(self.payload, lsn);
        self.payload = parsed.map_or(&[], |(_, rest)| rest);
        Some(parsed.map(|(record, _)| record).ok_or(RecordError(lsn)))
    }
}

/// The record that `payload` begins with, and what follows it.
#[inline]
pub(crate) fn split(payload: &[u8], lsn: Lsn) -> Option<(Record<'_>, &[u8])> {
    let fields = Fields::<RECORD_HEADER_BYTES>::of(payload)?;
    let bytes = usize::from(fields.u16(0));
    if bytes < RECORD_HEADER_BYTES || fields.u16(6) != 0 {
        return None;
    }
    let (record, rest) = payload.split_at_checked(bytes.next_multiple_of(8))?;
    let (record, padding) = record.split_at(bytes);
    let [kind, kind_version] = fields.array(2);
    padding.iter().all(|byte| *byte == 0).then_some((
        Record {
            lsn,
            kind,
            kind_version,
            shard: fields.u16(4),
            shard_seq: fields.u64(8),
            body: &record[RECORD_HEADER_BYTES..],
        },
        rest,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_read_back_in_order_with_dense_lsns() {
        let mut payload = Vec::new();
        for body in [&b"a"[..], b"", b"12345678", b"123456789"] {
            append(&mut payload, (3, 1), 5, 9, |out| out.extend_from_slice(body));
        }
        assert!(payload.len().is_multiple_of(8));
        let records: Vec<_> = Records::new(&payload, Lsn(4)).map(Result::unwrap).collect();
        let bodies: Vec<_> = records.iter().map(|record| record.body).collect();
        assert_eq!(bodies, [&b"a"[..], b"", b"12345678", b"123456789"]);
        assert_eq!(records[3].lsn, Lsn(7));
        assert_eq!((records[0].kind, records[0].shard, records[0].shard_seq), (3, 5, 9));
    }

    #[test]
    fn a_record_of_two_parts_is_the_record_of_both_together() {
        for tail in [&b""[..], b"1", b"12345678", &[7; 300]] {
            let (mut whole, mut parts) = (Vec::new(), Vec::new());
            for seq in 1..=3 {
                append(&mut whole, (3, 1), 5, seq, |out| {
                    out.extend_from_slice(b"head!");
                    out.extend_from_slice(tail);
                });
                append_parts(&mut parts, (3, 1), 5, seq, b"head!", tail);
            }
            assert_eq!(whole, parts);
        }
    }

    #[test]
    fn a_length_that_leads_out_of_the_frame_ends_the_reading_with_an_error() {
        let mut payload = Vec::new();
        append(&mut payload, (3, 1), 5, 9, |out| out.extend_from_slice(b"body"));
        for length in [0u16, 15, 25, 0xFFFF] {
            let mut damaged = payload.clone();
            damaged[..2].copy_from_slice(&length.to_le_bytes());
            let read: Vec<_> = Records::new(&damaged, Lsn(1)).collect();
            assert_eq!(read, [Err(RecordError(Lsn(1)))], "{length}");
        }
    }
}
