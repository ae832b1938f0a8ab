//! A panic that must not be survived.

/// Aborts the process where it is dropped by a panic.
///
/// Held wherever a panic would leave others waiting for ever, or a state behind that the log does
/// not know: between a decision and the end of its append, in the threads that commit and keep
/// time. A panic in a commit itself fails the log, which ends the process in order. Elsewhere a
/// panic costs one task, not the sale.
#[derive(Debug)]
pub struct AbortOnPanic;

impl AbortOnPanic {
    /// Ends the guard where nothing has panicked: without asking whether anything has.
    #[inline]
    pub fn over(self) {
        std::mem::forget(self);
    }
}

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}
