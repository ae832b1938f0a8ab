//! Signals: which ones are heeded, and what they ask for.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that the server acts upon.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

/// What a signal asks for.
pub(super) enum Asked {
    /// To end.
    Stop,
    /// To read the configuration again.
    Reload,
}

impl Signals {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    pub(super) async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.terminate.recv() => Asked::Stop,
            _ = self.interrupt.recv() => Asked::Stop,
            _ = self.hang_up.recv() => Asked::Reload,
        }
    }

    /// Waits for a signal to stop; one to reload is let pass.
    pub(super) async fn stop(&mut self) {
        while matches!(self.next().await, Asked::Reload) {}
    }
}
