//! CONTROL of a directory that was well.

use std::sync::Arc;

use wal::device::sim::SimDevice;
use wal::{Inspecting, Log, read_format};

use crate::checksums::make_right;
use crate::disk::{GOLDEN, Spelled, options};

const CONTROL: &str = "CONTROL";

/// The first byte says whether checksums are made right; the others, in threes, which byte of
/// CONTROL is set to what; what is left of them is the end that is cut off.
pub(crate) fn run(input: &[u8]) {
    let mut image = GOLDEN.clone();
    let mut bytes = image.content(CONTROL).unwrap_or_default();
    let mut spelled = Spelled(input);
    let how = spelled.byte();
    while !spelled.is_over() {
        let at = spelled.number() % bytes.len();
        bytes[at] = spelled.byte();
    }
    match how % 4 {
        0 => {}
        1 => bytes.truncate(usize::from(how) * 37),
        _ => make_right(CONTROL, &mut bytes),
    }
    image.set_content(CONTROL, &bytes);
    let device = SimDevice::new(image);
    let _ = read_format(&device);
    if let Ok(inspecting) = Inspecting::begin(&device) {
        let _ = inspecting.read(None, &mut |_| Ok(()));
    }
    if let Err(error) = Log::open(Arc::new(device), options(), &mut |_| Ok(())) {
        assert_eq!(error.to_string().lines().count(), 1, "{error}");
    }
}
