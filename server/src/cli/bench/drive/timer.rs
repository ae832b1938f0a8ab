//! A timer with the kernel's resolution, for a loop that waits for sockets as well: in an open loop
//! a tick of a millisecond would appear as latency that no server caused.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

/// The timer.
pub(super) struct Timer(OwnedFd);

impl Timer {
    /// A timer that is not set.
    ///
    /// # Errors
    /// No descriptor is left.
    pub(super) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        Ok(Self(timerfd_create(TimerfdClockId::Monotonic, flags)?))
    }

    /// Lets a loop hear of it.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(super) fn register(&self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(&mut SourceFd(&self.0.as_raw_fd()), token, Interest::READABLE)
    }

    /// Sets it to `instant`, or to now where that is over.
    ///
    /// # Errors
    /// Never in practice: the timer is this process's own.
    pub(super) fn arm(&self, instant: Instant) -> io::Result<()> {
        // A timer of 0 would be none.
        let wait = instant.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
        let timespec = |duration: Duration| Timespec {
            tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: duration.subsec_nanos().into(),
        };
        let value = Itimerspec { it_interval: timespec(Duration::ZERO), it_value: timespec(wait) };
        timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &value)?;
        Ok(())
    }

    /// Takes note that it went off: only then will it be heard again.
    pub(super) fn hush(&self) {
        // It may have been set anew meanwhile, and then there is nothing to read.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}
