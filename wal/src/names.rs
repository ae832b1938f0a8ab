//! The names of the files, and which names a data directory may hold.

use crate::ids::{Lsn, SegmentId};

/// The directory of segments and spares.
pub(crate) const WAL_DIR: &str = "wal";
/// The directory of snapshots.
pub(crate) const SNAP_DIR: &str = "snap";
/// The directory of files that are set aside: they saw an I/O error, or are damaged.
pub(crate) const QUARANTINE_DIR: &str = "quarantine";
/// The directories of a formatted log.
pub(crate) const DIRS: [&str; 3] = [WAL_DIR, SNAP_DIR, QUARANTINE_DIR];

const SEGMENT_PREFIX: &str = "seg-";
const SPARE_PREFIX: &str = "spare-";
const SUFFIX: &str = ".log";
/// Beyond it a name is none that a log has given: the numbers behind it would run out.
const SPARE_NUMBER_MAX: u64 = u64::MAX / 2;
const DRAFT_SUFFIX: &str = ".tmp";
const SNAPSHOT_PREFIX: &str = "snap-";
const SNAPSHOT_SUFFIX: &str = ".snap";

/// Path of a segment.
pub(crate) fn segment(id: SegmentId) -> String {
    format!("{WAL_DIR}/{SEGMENT_PREFIX}{:016x}{SUFFIX}", id.0)
}

/// Path of a spare.
pub(crate) fn spare(number: u64) -> String {
    format!("{WAL_DIR}/{SPARE_PREFIX}{number:016x}{SUFFIX}")
}

/// Path of the spare at `path` while it is made: it gets its name once it is synced.
pub(crate) fn draft_of_spare(path: &str) -> String {
    let stem = path.strip_suffix(SUFFIX).unwrap_or(path);
    format!("{stem}{DRAFT_SUFFIX}")
}

/// Path of the snapshot that covers everything up to `lsn`.
pub(crate) fn snapshot(lsn: Lsn) -> String {
    format!("{SNAP_DIR}/{SNAPSHOT_PREFIX}{:016x}{SNAPSHOT_SUFFIX}", lsn.0)
}

/// Where the file at `path` is set aside.
pub(crate) fn quarantined(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    format!("{QUARANTINE_DIR}/{name}")
}

/// What the snapshot covers that a name in [`SNAP_DIR`] stands for.
pub(crate) fn parse_snapshot(name: &str) -> Option<Lsn> {
    parse(name, SNAPSHOT_PREFIX, SNAPSHOT_SUFFIX).map(Lsn)
}

/// The segment that a name in [`WAL_DIR`] stands for.
pub(crate) fn parse_segment(name: &str) -> Option<SegmentId> {
    parse(name, SEGMENT_PREFIX, SUFFIX).map(SegmentId)
}

/// The number of the spare that a name in [`WAL_DIR`] stands for.
pub(crate) fn parse_spare(name: &str) -> Option<u64> {
    parse(name, SPARE_PREFIX, SUFFIX).filter(|number| *number <= SPARE_NUMBER_MAX)
}

/// Whether a name in [`WAL_DIR`] is that of a spare that was never finished.
pub(crate) fn is_draft_of_spare(name: &str) -> bool {
    parse(name, SPARE_PREFIX, DRAFT_SUFFIX).is_some()
}

fn parse(name: &str, prefix: &str, suffix: &str) -> Option<u64> {
    let digits = name.strip_prefix(prefix)?.strip_suffix(suffix)?;
    let number = u64::from_str_radix(digits, 16).ok()?;
    (format!("{number:016x}") == digits).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_back_to_its_number_and_no_other_name_does() {
        assert_eq!(segment(SegmentId(255)), "wal/seg-00000000000000ff.log");
        assert_eq!(parse_segment("seg-00000000000000ff.log"), Some(SegmentId(255)));
        for name in ["seg-ff.log", "seg-00000000000000FF.log", "seg-+0000000000000ff.log", "x"] {
            assert_eq!(parse_segment(name), None, "{name}");
        }
        assert_eq!(parse_spare("spare-0000000000000001.log"), Some(1));
        for beyond in [SPARE_NUMBER_MAX + 1, u64::MAX] {
            assert_eq!(parse_spare(spare(beyond).strip_prefix("wal/").unwrap_or_default()), None);
        }
        let draft = draft_of_spare(&spare(1));
        assert_eq!(draft, "wal/spare-0000000000000001.tmp");
        assert!(is_draft_of_spare(&draft[4..]) && parse_spare(&draft[4..]).is_none());
        assert!(
            !is_draft_of_spare("spare-0000000000000001.log") && !is_draft_of_spare("probe.tmp")
        );
        assert_eq!(parse_snapshot("snap-0000000000000010.snap"), Some(Lsn(16)));
        assert_eq!(snapshot(Lsn(16)), "snap/snap-0000000000000010.snap");
        assert_eq!(quarantined(&segment(SegmentId(1))), "quarantine/seg-0000000000000001.log");
    }
}
