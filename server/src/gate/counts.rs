//! What the gate refused, and how each arm of the canary fares.
//!
//! Every refusal is counted; a few a second are written into the server's log with who and from
//! where, so that an operator sees an attack without the attack filling the disk.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use engine::core::ids::UserId;

use super::Kind;
use crate::canary::Arm;
use crate::limits::Scope;
use crate::metrics::PurchaseOutcome;
use crate::time::wall_seconds;

/// Lines about refusals in the log, a second.
const LINES_PER_SECOND: u64 = 5;

/// Why somebody was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reason {
    /// On the blacklist.
    Listed(Kind),
    /// Over a limit.
    Limited(&'static str),
    /// Too many repeats on one connection.
    Repeats,
    /// Without a good admission token.
    NotAdmitted,
    /// A login with a wrong name or password.
    BadPassword,
    /// Everything is stopped.
    Stopped,
}

/// The names of reasons in metrics, in the order in which they are counted.
const NAMES: [&str; 15] = [
    "blacklisted_user",
    "blacklisted_ip",
    "blacklisted_device",
    Scope::Ip.name(),
    Scope::User.name(),
    Scope::UserWindow.name(),
    Scope::Frequency.name(),
    Scope::Activity.name(),
    Scope::Global.name(),
    "login_account",
    "login_ip",
    "replays",
    "not_admitted",
    "bad_password",
    "stopped",
];

impl Reason {
    const fn name(self) -> &'static str {
        match self {
            Self::Listed(Kind::User) => "blacklisted_user",
            Self::Listed(Kind::Ip) => "blacklisted_ip",
            Self::Listed(Kind::Device) => "blacklisted_device",
            Self::Limited(scope) => scope,
            Self::Repeats => "replays",
            Self::NotAdmitted => "not_admitted",
            Self::BadPassword => "bad_password",
            Self::Stopped => "stopped",
        }
    }
}

/// How a purchase ended, for comparing arms.
const ENDS: [&str; 3] = ["accepted", "replayed", "refused"];

/// The gate's counts.
#[derive(Default)]
pub(crate) struct Counts {
    reasons: [AtomicU64; NAMES.len()],
    arms: [[AtomicU64; ENDS.len()]; Arm::ALL.len()],
    /// The second of the last line, and how many were written in it.
    lines: AtomicU64,
}

impl Counts {
    /// Somebody was refused.
    pub(crate) fn refused(&self, reason: Reason, user: Option<UserId>, ip: IpAddr) {
        if let Some(index) = NAMES.iter().position(|name| *name == reason.name()) {
            self.reasons[index].fetch_add(1, Ordering::Relaxed);
        }
        if self.may_write(wall_seconds()) {
            let user = user.map_or(0, UserId::get);
            tracing::info!(target: "risk", reason = reason.name(), user, %ip, "refused");
        }
    }

    /// A purchase of `arm` ended.
    pub(crate) fn purchase(&self, arm: Arm, outcome: PurchaseOutcome) {
        let end = match outcome {
            PurchaseOutcome::Accepted => 0,
            PurchaseOutcome::Replayed => 1,
            PurchaseOutcome::Refused(_) => 2,
        };
        self.arms[arm as usize][end].fetch_add(1, Ordering::Relaxed);
    }

    /// (reason, count) of all reasons.
    pub(crate) fn reasons(&self) -> impl Iterator<Item = (&'static str, u64)> {
        NAMES.iter().zip(&self.reasons).map(|(name, count)| (*name, count.load(Ordering::Relaxed)))
    }

    /// (arm, end, count) of all.
    pub(crate) fn arms(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        Arm::ALL.iter().zip(&self.arms).flat_map(|(arm, ends)| {
            let ends = ENDS.iter().zip(ends);
            ends.map(|(end, count)| (arm.name(), *end, count.load(Ordering::Relaxed)))
        })
    }

    /// Whether one more line may be written in this second.
    fn may_write(&self, second: u64) -> bool {
        let next = |lines: u64| {
            let written = if lines >> 8 == second { lines & 0xff } else { 0 };
            (written < LINES_PER_SECOND).then_some(second << 8 | (written + 1))
        };
        self.lines.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_and_reason_has_a_count() {
        let counts = Counts::default();
        let ip = IpAddr::from([1, 2, 3, 4]);
        let limits = Scope::ALL.iter().map(|scope| Reason::Limited(scope.name()));
        let others = [Kind::User, Kind::Ip, Kind::Device].map(Reason::Listed).into_iter();
        let others = others.chain([Reason::Repeats, Reason::NotAdmitted, Reason::BadPassword]);
        let others = others.chain([Reason::Stopped]);
        for reason in limits.chain(others) {
            counts.refused(reason, None, ip);
        }
        let once = counts.reasons().filter(|(_, count)| *count == 1).count();
        assert_eq!(once, NAMES.len() - 2, "but for those of logins");
    }

    #[test]
    fn a_flood_of_refusals_writes_a_few_lines_a_second() {
        let counts = Counts::default();
        for second in [1, 2] {
            let lines = (0..1000).filter(|_| counts.may_write(second)).count();
            assert_eq!(lines, 5);
        }
    }
}
