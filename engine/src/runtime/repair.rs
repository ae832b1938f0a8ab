//! Giving up the damaged end of a log, with what is given up in the engine's own words.

use std::path::Path;

use wal::{Lsn, PosixDevice, Progress, RepairError, Repaired};

use super::entries::{Entry, records};

/// Makes the log in `data_dir` end before `first_lost`, the first record that can't be read; with
/// `dry_run` nothing is changed. Records behind it that can still be read are shown to `given_up`.
///
/// # Errors
/// [`RepairError`]: the originals are where they were, or in quarantine.
pub fn repair(
    data_dir: &Path,
    first_lost: Lsn,
    dry_run: bool,
    progress: &Progress,
    given_up: &mut dyn FnMut(&Entry),
) -> Result<Repaired, RepairError> {
    let device = PosixDevice::new(data_dir);
    wal::repair(&device, first_lost, dry_run, progress, &mut |frame| {
        records(frame, first_lost).iter().flatten().for_each(&mut *given_up);
    })
}
