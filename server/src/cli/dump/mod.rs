//! `sluice dump`: the log's records as JSON lines.
//!
//! Reads only, works beside a running server, and never shows a record that a crash could still
//! take back. [`mod@line`] turns one record into its line.

pub(super) mod line;

use std::io::{self, BufWriter, ErrorKind, StdoutLock, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use engine::{Entry, OpenError};
use wal::Lsn;

use super::check::exit_code;

/// Between two looks at a log that had nothing new.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(100);

/// Arguments of `sluice dump`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The data directory
    #[arg(long, default_value = "./data", env = "SLUICE_DATA_DIR", value_name = "DIR")]
    data_dir: PathBuf,
    /// Begin with this LSN
    #[arg(long, default_value_t = 1, value_name = "LSN")]
    from: u64,
    /// Only what this activity's events say
    #[arg(long, value_name = "ID")]
    activity: Option<u64>,
    /// Go on with what the server appends, until interrupted
    #[arg(long)]
    follow: bool,
}

/// Why there is no more output.
#[derive(Debug, thiserror::Error)]
enum DumpError {
    /// The log can't be read.
    #[error(transparent)]
    Log(#[from] OpenError),
    /// Standard output failed.
    #[error("the output failed: {0}")]
    Output(#[from] io::Error),
}

/// Runs `sluice dump`.
pub(crate) fn run(args: Args) -> ExitCode {
    match dump(&args) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever reads has enough.
        Err(DumpError::Output(error)) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sluice dump: {error}");
            match error {
                DumpError::Log(error) => exit_code(&error).into(),
                DumpError::Output(_) => super::EXIT_USAGE.into(),
            }
        }
    }
}

fn dump(args: &Args) -> Result<(), DumpError> {
    let interrupted = Arc::new(AtomicBool::new(false));
    if args.follow {
        watch_signals(&interrupted);
    }
    let mut entries = engine::entries(&args.data_dir, Lsn(args.from))?;
    let mut out = BufWriter::new(io::stdout().lock());
    loop {
        for entry in entries.by_ref() {
            match entry {
                Ok(entry) => write_line(&mut out, &entry, args.activity)?,
                Err(error) => {
                    // The lines before the damage are worth having.
                    out.flush()?;
                    return Err(error.into());
                }
            }
            if interrupted.load(Ordering::Relaxed) {
                break;
            }
        }
        out.flush()?;
        if !args.follow || wait_or_interrupted(&interrupted) {
            return Ok(());
        }
    }
}

/// Writes the line of `entry`, where it is one of `activity`'s or that does not matter.
fn write_line(
    out: &mut BufWriter<StdoutLock<'_>>,
    entry: &Entry,
    activity: Option<u64>,
) -> io::Result<()> {
    let line = line::line(entry);
    if activity.is_some_and(|id| line["activity"] != id) {
        return Ok(());
    }
    serde_json::to_writer(&mut *out, &line)?;
    out.write_all(b"\n")
}

/// Waits until it is time to look again; true where the user wants to end.
fn wait_or_interrupted(interrupted: &AtomicBool) -> bool {
    if interrupted.load(Ordering::Relaxed) {
        return true;
    }
    // A signal unparks this thread through `watch_signals`.
    std::thread::park_timeout(FOLLOW_INTERVAL);
    interrupted.load(Ordering::Relaxed)
}

/// Lets SIGINT and SIGTERM end the loop between two lines, so that the last line is whole.
fn watch_signals(interrupted: &Arc<AtomicBool>) {
    let (interrupted, dumping) = (Arc::clone(interrupted), std::thread::current());
    let watch = async {
        use tokio::signal::unix::{SignalKind, signal};
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        io::Result::Ok(())
    };
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        // Without a handler the signal ends the process at once, which is as good.
        if runtime.is_ok_and(|runtime| runtime.block_on(watch).is_ok()) {
            interrupted.store(true, Ordering::Relaxed);
            dumping.unpark();
        }
    });
}
