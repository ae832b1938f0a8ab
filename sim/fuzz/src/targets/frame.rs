//! A frame as recovery meets it.

use wal::internals::{FRAME_HEADER_BYTES, parse_frame, seal_frame};

const STAMP: u64 = 0x1122_3344_5566_7788;
/// Blocks of the room that frames stand in.
const ROOM_BYTES: usize = 8192;

/// The first byte says where the frame comes from, the next two which bit of it is changed.
pub(crate) fn run(input: &[u8]) {
    let [how, low, high, rest @ ..] = input else { return };
    let mut bytes = vec![0; ROOM_BYTES];
    if how & 1 == 0 {
        // As it came.
        bytes[..rest.len()].copy_from_slice(rest);
        let _ = parse_frame(&bytes, STAMP);
        return;
    }
    bytes[FRAME_HEADER_BYTES..][..rest.len()].copy_from_slice(rest);
    let records = u32::from(how >> 1);
    let length = seal_frame(&mut bytes, rest.len(), records, STAMP);
    assert_eq!(parse_frame(&bytes, STAMP), Some(records), "a frame is read as it was sealed");
    assert_eq!(parse_frame(&bytes, STAMP ^ 1), None, "a frame of another life is none");
    assert_eq!(parse_frame(&bytes[..length - 1], STAMP), None, "a part of a frame is none");
    let bit = usize::from(u16::from_le_bytes([*low, *high])) % (length * 8);
    bytes[bit / 8] ^= 1 << (bit % 8);
    assert_eq!(parse_frame(&bytes, STAMP), None, "bit {bit} of {length} bytes was changed");
}
