//! Progress on stderr: a bar on a terminal, a line now and then elsewhere.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::drive::Progress;

/// Between two lines where stderr is no terminal: a log should not fill with them.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

const TEMPLATE: &str = "{elapsed_precise} {bar:30} {pos}/{len} {per_sec} {msg}";
/// Without an end there is nothing to fill a bar towards.
const TEMPLATE_ENDLESS: &str = "{elapsed_precise} {spinner} {pos} {per_sec} {msg}";

/// Where progress is shown.
pub(super) enum Display {
    /// On a terminal.
    Bar(ProgressBar),
    /// Into a file or a pipe.
    Lines {
        /// Requests of the whole run, where that is known.
        requests: Option<u64>,
        /// When the last line was written.
        last: Instant,
    },
    /// Nowhere.
    Off,
}

impl Display {
    /// The display for a run of `requests`, where their number is known.
    pub(super) fn new(requests: Option<u64>, is_off: bool) -> Self {
        if is_off {
            return Self::Off;
        }
        if !std::io::stderr().is_terminal() {
            return Self::Lines { requests, last: Instant::now() };
        }
        let (bar, template) = match requests {
            Some(requests) => (ProgressBar::new(requests), TEMPLATE),
            None => (ProgressBar::new_spinner(), TEMPLATE_ENDLESS),
        };
        // A constant that does not parse would only cost the style.
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Self::Bar(bar)
    }

    /// Shows how far the run is.
    pub(super) fn show(&mut self, progress: Progress) {
        let Progress { answered, accepted } = progress;
        match self {
            Self::Bar(bar) => {
                bar.set_position(answered);
                bar.set_message(format!("{accepted} accepted"));
            }
            Self::Lines { requests, last } if last.elapsed() >= LINE_INTERVAL => {
                *last = Instant::now();
                let of = requests.map(|requests| format!(" of {requests}")).unwrap_or_default();
                eprintln!("{answered}{of} answered, {accepted} accepted");
            }
            Self::Lines { .. } | Self::Off => {}
        }
    }

    /// Says that the orders are waited for.
    pub(super) fn show_drain(&self, orders_missing: usize) {
        if let Self::Bar(bar) = self {
            bar.set_message(format!("waiting for {orders_missing} orders"));
        }
    }

    /// Takes the bar away.
    pub(super) fn finish(&self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}
