//! `sluice dump`: the log's records as JSON lines.
//!
//! Reads only, works beside a running server, and never shows a record that a crash could still
//! take back. [`line`] turns one record into its line.

mod line;

use std::io::{self, BufWriter, ErrorKind, StdoutLock, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use engine::{Entry, OpenError};

/// The log can't be read.
const EXIT_DAMAGE: u8 = 1;

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

/// Why the output ends.
enum End {
    /// All was written, or the reader has enough.
    Fine,
    /// The log can't be read.
    Unreadable(OpenError),
    /// Standard output failed.
    Output(io::Error),
}

/// Runs `sluice dump`.
pub(crate) fn run(args: Args) -> ExitCode {
    if let Err(reason) = super::data_dir::require(&args.data_dir) {
        eprintln!("sluice dump: {reason}");
        return ExitCode::from(super::EXIT_USAGE);
    }
    let interrupted = Arc::new(AtomicBool::new(false));
    if args.follow {
        watch_signals(&interrupted);
    }
    match dump(&args, &interrupted) {
        End::Fine => ExitCode::SUCCESS,
        End::Output(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        End::Output(error) => {
            eprintln!("sluice dump: the output failed: {error}");
            ExitCode::from(super::EXIT_USAGE)
        }
        End::Unreadable(error) => {
            eprintln!("sluice dump: {error}");
            ExitCode::from(EXIT_DAMAGE)
        }
    }
}

fn dump(args: &Args, interrupted: &AtomicBool) -> End {
    let mut out = BufWriter::new(io::stdout().lock());
    let mut next = wal::Lsn(args.from.max(1));
    loop {
        let entries = match engine::entries(&args.data_dir, next) {
            Ok(entries) => entries,
            Err(error) => return End::Unreadable(error),
        };
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => return flushed(out, End::Unreadable(error)),
            };
            next = wal::Lsn(entry.lsn.0 + 1);
            if let Err(error) = write_line(&mut out, &entry, args.activity) {
                return End::Output(error);
            }
            if interrupted.load(Ordering::Relaxed) {
                return flushed(out, End::Fine);
            }
        }
        if let Err(error) = out.flush() {
            return End::Output(error);
        }
        if !args.follow || wait_or_interrupted(interrupted) {
            return End::Fine;
        }
    }
}

fn write_line(
    out: &mut BufWriter<StdoutLock<'_>>,
    entry: &Entry,
    activity: Option<u64>,
) -> io::Result<()> {
    let record = line::line(entry);
    if activity.is_some_and(|id| record["activity"] != id) {
        return Ok(());
    }
    serde_json::to_writer(&mut *out, &record)?;
    out.write_all(b"\n")
}

/// `end`, or what went wrong with the lines before it.
fn flushed(mut out: BufWriter<StdoutLock<'_>>, end: End) -> End {
    match out.flush() {
        Ok(()) => end,
        Err(error) => End::Output(error),
    }
}

/// Waits until it is time to look again; true where the user wants to end.
fn wait_or_interrupted(interrupted: &AtomicBool) -> bool {
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
