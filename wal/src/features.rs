//! Incompatible features of the format: what an older build must not read past.
//!
//! | bit | feature | since |
//! |----:|---------|-------|
//! | 31  | none: what tests switch on, unknown to every build that is shipped | |
//!
//! CONTROL says which features a log uses; segments carry the same bits from the next one on. A
//! build that knows a new feature goes on writing without it until [`upgrade`] is asked for, so
//! that one can go back to the build before; a fresh log begins with [`FRESH`]. A build that meets
//! a bit it does not know refuses, and says so.

use crate::control::CONTROL_PATH;
use crate::device::Device;
use crate::error::OpenError;
use crate::open::{io_error, lock, read_control, sync_control};
use crate::premises::{Found, look};

/// What tests switch on.
const TESTS_ALONE: u32 = 1 << 31;

/// The features this build can read and write.
pub(crate) const KNOWN: u32 = if cfg!(test) { TESTS_ALONE } else { 0 };

/// The features of a fresh log. A feature joins them a release after it became known.
pub(crate) const FRESH: u32 = 0;

/// Whether this build knows all of `features`.
pub(crate) const fn known(features: u32) -> bool {
    features & !KNOWN == 0
}

/// What [`upgrade`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Upgraded {
    /// The log already uses all that this build knows.
    Already,
    /// It does from now on; older builds refuse it.
    Now {
        /// The bits before.
        from: u32,
        /// The bits now.
        to: u32,
    },
}

/// Lets a log that no process has open use every feature this build knows, from its next segment
/// on. There is no way back.
///
/// # Errors
/// [`OpenError`]; nothing was changed.
pub fn upgrade(device: &dyn Device) -> Result<Upgraded, OpenError> {
    if matches!(look(device)?, Found::Nothing(_)) {
        return Err(OpenError::NoLog { dir: device.display("") });
    }
    let _lock = lock(device)?;
    sync_control(device)?;
    let (mut control, file) = read_control(device)?;
    let from = std::mem::replace(&mut control.features, KNOWN);
    if from == KNOWN {
        return Ok(Upgraded::Already);
    }
    control.write(&*file).map_err(io_error(device, "write", CONTROL_PATH))?;
    Ok(Upgraded::Now { from, to: KNOWN })
}
