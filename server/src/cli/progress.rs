//! Something that moves on a terminal while long work goes on, and nothing elsewhere.

use std::io::IsTerminal as _;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Between two movements: often enough to be seen to live.
const TICK: Duration = Duration::from_millis(120);

/// A spinner with the time that has passed; gone when dropped.
pub(crate) struct Spinner(Option<ProgressBar>);

impl Spinner {
    /// Shows that `what` goes on, where standard error is a terminal.
    pub(crate) fn start(what: &'static str) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self(None);
        }
        let bar = ProgressBar::new_spinner().with_message(what);
        // A constant that does not parse would only cost the style.
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed_precise}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(TICK);
        Self(Some(bar))
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
