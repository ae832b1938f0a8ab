//! A snapshot beside a log.

use wal::Inspecting;
use wal::device::sim::SimDevice;

use crate::disk::{GOLDEN, Spelled, edit};

pub(crate) fn run(input: &[u8]) {
    let mut image = GOLDEN.clone();
    let paths: Vec<_> =
        image.paths().into_iter().filter(|path| path.starts_with("snap/")).collect();
    edit(&mut image, &paths, &mut Spelled(input));
    let device = SimDevice::new(image);
    let Ok(mut inspecting) = Inspecting::begin(&device) else { return };
    for snapshot in inspecting.snapshots() {
        for _ in 0..2 {
            while let Ok(Some(piece)) = snapshot.next_piece() {
                piece.items().for_each(drop);
            }
            snapshot.rewind();
        }
    }
    let _ = inspecting.read(None, &mut |_| Ok(()));
}
