//! Something that moves on a terminal while long work goes on, and nothing elsewhere.

use std::io::IsTerminal as _;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use wal::Progress;

/// Between two movements: often enough to be seen to live.
const TICK: Duration = Duration::from_millis(120);

/// A constant that does not parse would only cost the style.
const BYTES: &str = "{msg} {bar:40} {bytes}/{total_bytes} {elapsed_precise}, {eta} left";
const STEPS: &str = "{msg} {bar:40} {pos}/{len} {elapsed_precise}, {eta} left";
/// Until it is known how much there is to do.
const SPINNER: &str = "{spinner} {msg} {elapsed_precise}";

/// A bar with the time that has passed; gone when dropped.
pub(crate) struct Bar(Option<Drawn>);

struct Drawn {
    bar: ProgressBar,
    /// Hung up to end the thread that looks at the count.
    watching: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Bar {
    /// Shows how far the reading of a log has come, where standard error is a terminal.
    pub(crate) fn of_reading(what: &'static str, progress: &Progress) -> Self {
        let Some(bar) = spinner(what) else { return Self(None) };
        let (drawn, progress) = (bar.clone(), progress.clone());
        let (hang_up, ended) = mpsc::channel();
        let watch = move || {
            while ended.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                show(&drawn, BYTES, progress.done_bytes(), progress.total_bytes());
            }
        };
        // Without a thread for it the spinner stays one.
        let thread = thread::Builder::new().spawn(watch).ok();
        Self(Some(Drawn { bar, watching: thread.map(|thread| (hang_up, thread)) }))
    }

    /// Shows that `what` goes on; its author says how far it has come.
    pub(crate) fn of_steps(what: &'static str) -> Self {
        Self(spinner(what).map(|bar| Drawn { bar, watching: None }))
    }

    /// Notes that `done` steps of `total` are done.
    pub(crate) fn reach(&self, done: u64, total: u64) {
        if let Some(drawn) = &self.0 {
            show(&drawn.bar, STEPS, done, total);
        }
    }
}

fn spinner(what: &'static str) -> Option<ProgressBar> {
    if !std::io::stderr().is_terminal() {
        return None;
    }
    let bar = ProgressBar::new_spinner().with_message(what);
    style(&bar, SPINNER);
    bar.enable_steady_tick(TICK);
    Some(bar)
}

/// Moves a bar; the spinner becomes one with its first length.
fn show(bar: &ProgressBar, template: &str, done: u64, total: u64) {
    if total == 0 {
        return;
    }
    if bar.length().is_none() {
        style(bar, template);
    }
    bar.set_length(total);
    bar.set_position(done.min(total));
}

fn style(bar: &ProgressBar, template: &str) {
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        let Some(drawn) = self.0.take() else { return };
        if let Some((hang_up, thread)) = drawn.watching {
            drop(hang_up);
            let _ = thread.join();
        }
        drawn.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use indicatif::ProgressDrawTarget;

    use super::*;

    #[test]
    fn a_spinner_becomes_a_bar_once_there_is_a_length_and_never_overshoots() {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        show(&bar, BYTES, 7, 0);
        assert_eq!((bar.length(), bar.position()), (None, 0));
        show(&bar, BYTES, 7, 10);
        assert_eq!((bar.length(), bar.position()), (Some(10), 7));
        show(&bar, BYTES, 12, 11);
        assert_eq!((bar.length(), bar.position()), (Some(11), 11));
    }

    #[test]
    fn nothing_is_drawn_where_standard_error_is_no_terminal() {
        // Test runners capture it.
        if !std::io::stderr().is_terminal() {
            assert!(Bar::of_steps("work").0.is_none());
            assert!(Bar::of_reading("reading", &Progress::default()).0.is_none());
        }
    }
}
