//! Checksums made right again after a change, so that what lies behind them is met as well.

const BLOCK: usize = 4096;

/// Makes the checksums right again, as the format's tables say where they stand.
pub(crate) fn make_right(path: &str, bytes: &mut [u8]) {
    let put = |bytes: &mut [u8], at: usize, crc: u32| {
        bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
    };
    if path == "CONTROL" {
        for slot in bytes.chunks_exact_mut(BLOCK) {
            let crc = crc32fast::hash(&slot[..BLOCK - 4]);
            put(slot, BLOCK - 4, crc);
        }
    } else if path.starts_with("wal/seg-") && bytes.len() >= BLOCK {
        let crc = crc32fast::hash(&bytes[..124]);
        put(bytes, 124, crc);
        let stamp: [u8; 8] = bytes[32..40].try_into().expect("eight bytes");
        for at in (BLOCK..bytes.len().saturating_sub(BLOCK - 1)).step_by(BLOCK) {
            let frame = &mut bytes[at..];
            if frame[4..8] != [1, 0, 64, 0] && frame[4..8] != [2, 0, 64, 0] {
                continue;
            }
            let payload_bytes = u32::from_le_bytes(frame[8..12].try_into().expect("four bytes"));
            if let Some(payload) = frame.get(64..64 + payload_bytes as usize) {
                let crc = seeded(stamp, payload);
                put(frame, 52, crc);
            }
            let crc = seeded(stamp, &frame[..60]);
            put(frame, 60, crc);
        }
    }
}

fn seeded(stamp: [u8; 8], bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&stamp);
    hasher.update(bytes);
    hasher.finalize()
}
