//! Waiting for an exact instant.
//!
//! The runtime's own timers tick in milliseconds. In an open loop such a tick would appear as a
//! millisecond of latency that no server caused, so each connection has a timer of the kernel's.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A timer with the kernel's resolution.
pub(super) struct Alarm(AsyncFd<OwnedFd>);

impl Alarm {
    /// Makes a timer. Must be called inside a runtime.
    ///
    /// # Errors
    /// Where the process has no file descriptor left.
    pub(super) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        #[expect(
            deprecated,
            reason = "the flaw is with types that do not own their descriptor; \
            this one does, and the replacement is an unsafe function"
        )]
        let timer = AsyncFd::with_interest(timer, Interest::READABLE)?;
        Ok(Self(timer))
    }

    /// Returns once `instant` has come.
    ///
    /// # Errors
    /// Never in practice: the timer is this process's own.
    pub(super) async fn wait_until(&self, instant: Instant) -> io::Result<()> {
        let wait = instant.saturating_duration_since(Instant::now());
        if wait.is_zero() {
            return Ok(());
        }
        let timer = Itimerspec { it_interval: timespec(Duration::ZERO), it_value: timespec(wait) };
        timerfd_settime(self.0.get_ref(), TimerfdTimerFlags::empty(), &timer)?;
        loop {
            let mut ready = self.0.readable().await?;
            let mut expirations = [0; 8];
            let read = ready.try_io(|timer| {
                rustix::io::read(timer.get_ref(), &mut expirations).map_err(io::Error::from)
            });
            match read {
                Ok(read) => return read.map(|_| ()),
                Err(_would_block) => continue,
            }
        }
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}
