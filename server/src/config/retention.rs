//! How much of the log is kept.

use engine::RetentionLimits;
use serde::Deserialize;
use wal::limits::RETIRE_MARGIN_SEGMENTS;

/// `[retention]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Retention {
    /// Log beyond the newest snapshot after which the next is made.
    pub(crate) snapshot_after_bytes: u64,
    /// Undelivered log that raises an alarm.
    backlog_soft_bytes: u64,
    /// Undelivered log past which purchases are refused.
    backlog_hard_bytes: u64,
}

impl Retention {
    /// The bounds of what is undelivered.
    pub(crate) const fn limits(&self) -> RetentionLimits {
        RetentionLimits {
            soft_bytes: self.backlog_soft_bytes,
            hard_bytes: self.backlog_hard_bytes,
            margin_segments: RETIRE_MARGIN_SEGMENTS,
        }
    }

    /// What no kind of value can express of them.
    pub(super) fn bounds(&self, segment_bytes: u64) -> [(&'static str, bool, &'static str); 2] {
        [
            (
                "retention.snapshot_after_bytes",
                self.snapshot_after_bytes >= segment_bytes,
                "must be at least format.segment_bytes",
            ),
            (
                "retention.backlog_hard_bytes",
                self.backlog_hard_bytes > self.backlog_soft_bytes,
                "must be more than retention.backlog_soft_bytes",
            ),
        ]
    }
}
