//! `sluice check`: every sale recomputed from snapshot and log alone.
//!
//! Reads only. Beside a running server it stops at the last offset that a later frame promises
//! as synced, so that what it reports can't be taken back by a crash.

mod probe;

use std::fmt::{self, Write as _};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use engine::{ActivityReport, VerifyReport};

use super::progress::Bar;

/// Damage was found: in the log, or in the sums.
pub(super) const EXIT_DAMAGE: u8 = 1;

/// Arguments of `sluice check`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The data directory
    #[arg(long, default_value = "./data", env = "SLUICE_DATA_DIR", value_name = "DIR")]
    data_dir: PathBuf,
    /// Measure what a durable write costs on the directory's disk, and how batches pay
    #[arg(long)]
    probe: bool,
}

/// Runs `sluice check`.
pub(crate) fn run(args: Args) -> ExitCode {
    let found = if args.probe { probe(&args.data_dir) } else { verify(&args.data_dir) };
    ExitCode::from(found)
}

fn verify(data_dir: &Path) -> u8 {
    let progress = wal::Progress::default();
    let bar = Bar::of_reading("reading the log", &progress);
    let verified = engine::verify_watched(data_dir, &progress);
    drop(bar);
    match verified {
        Ok(report) => {
            show(&Table(&report));
            for problem in &report.problems {
                eprintln!("sluice check: {problem}");
            }
            if report.problems.is_empty() { super::EXIT_OK } else { EXIT_DAMAGE }
        }
        Err(error) => {
            eprintln!("sluice check: {error}");
            exit_code(&error)
        }
    }
}

fn probe(data_dir: &Path) -> u8 {
    let bar = Bar::of_steps("measuring the disk");
    let probed = probe::run(data_dir, &|done, total| bar.reach(done, total));
    drop(bar);
    match probed {
        Ok(probe) => {
            show(&probe);
            super::EXIT_OK
        }
        Err(error) => {
            eprintln!("sluice check: probing {}: {error}", data_dir.display());
            super::EXIT_USAGE
        }
    }
}

/// Prints on standard output. A reader that went away has seen what it wanted; the exit code
/// still tells.
fn show(text: &impl fmt::Display) {
    let _ = write!(io::stdout(), "{text}");
}

/// The exit code of a tool that can't read a log: it is damaged, or why it can't be looked at: the
/// wrong directory was named, a newer version wrote it, the disk does not answer.
pub(super) fn exit_code(error: &engine::OpenError) -> u8 {
    if error.is_damage() { EXIT_DAMAGE } else { error.exit_code() }
}

/// The report as people read it.
struct Table<'a>(&'a VerifyReport);

const COLUMNS: [&str; 7] =
    ["activity", "total", "available", "locked", "sold", "rolled back", "reservations"];

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = self.0;
        let mut rows = vec![COLUMNS.map(str::to_owned)];
        rows.extend(report.activities.iter().map(row));
        for cells in rows {
            let mut line = String::new();
            for cell in cells {
                write!(line, "{cell:>14}")?;
            }
            writeln!(f, "{line}")?;
        }
        writeln!(f, "last LSN: {}", report.last_lsn)?;
        if let Some(lsn) = report.snapshot_lsn {
            writeln!(f, "replayed on the snapshot of LSN {lsn}: what came before was given back")?;
        }
        match &report.torn_tail {
            Some(tail) => writeln!(
                f,
                "torn tail: {} bytes at offset {} of {}, none of them ever acknowledged",
                tail.bytes, tail.offset, tail.path
            )?,
            None => writeln!(f, "torn tail: none")?,
        }
        if report.beside_running_server {
            writeln!(f, "a server is running: checked up to what the log promises as synced")?;
        }
        let verdict = if report.problems.is_empty() { "ok" } else { "DAMAGED" };
        writeln!(f, "{verdict}")
    }
}

fn row(activity: &ActivityReport) -> [String; 7] {
    [
        activity.id.to_string(),
        activity.total.to_string(),
        activity.available.to_string(),
        activity.locked.to_string(),
        activity.sold.to_string(),
        activity.rolled_back.to_string(),
        activity.reservations.to_string(),
    ]
}
