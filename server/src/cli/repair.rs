//! `sluice repair`: gives up the damaged end of a log, on its operator's word.
//!
//! A refused start or `sluice check` names the first record that can't be read. Naming the same
//! record here accepts that it and all after it are lost. Existing files are moved to quarantine,
//! never written to; what is given up is said in words.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use engine::Entry;
use wal::{Loss, Lsn, RepairError, Repaired};

use super::dump::line;
use super::progress::Bar;

/// Reservations named one by one, for each activity; beyond it their number has to do.
const RESERVATIONS_NAMED_MAX: usize = 50;

/// Arguments of `sluice repair`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The data directory
    #[arg(long, default_value = "./data", env = "SLUICE_DATA_DIR", value_name = "DIR")]
    data_dir: PathBuf,
    /// The first record that can't be read, as a refused start names it: it and all after it are
    /// given up
    #[arg(long, value_name = "LSN", value_parser = clap::value_parser!(u64).range(1..))]
    accept_loss_from: u64,
    /// Only say what would be given up
    #[arg(long)]
    dry_run: bool,
}

/// What the lost records say of one activity.
#[derive(Default)]
struct Touched {
    events: BTreeMap<String, u64>,
    reservations: BTreeSet<u64>,
}

/// Runs `sluice repair`.
pub(crate) fn run(args: Args) -> ExitCode {
    let mut touched: BTreeMap<Option<u64>, Touched> = BTreeMap::new();
    let mut readable = 0;
    let mut note = |entry: &Entry| {
        readable += 1;
        let line = line::line(entry);
        let activity = touched.entry(line["activity"].as_u64()).or_default();
        let event = line["event"].as_str().unwrap_or("unknown").to_owned();
        *activity.events.entry(event).or_default() += 1;
        activity.reservations.extend(line["reservation"].as_u64());
    };
    let progress = wal::Progress::default();
    let bar = Bar::of_reading("reading the log", &progress);
    let lsn = Lsn(args.accept_loss_from);
    let repaired = engine::repair(&args.data_dir, lsn, args.dry_run, &progress, &mut note);
    drop(bar);
    match repaired {
        Ok(Repaired::Whole(last_lsn)) => {
            say(&format_args!(
                "the log can be served up to LSN {last_lsn}: nothing was given up or changed\n"
            ));
            super::EXIT_OK.into()
        }
        Ok(Repaired::Cut(loss)) => {
            say(&Told { loss: &loss, readable, touched: &touched, dry_run: args.dry_run });
            super::EXIT_OK.into()
        }
        Err(error) => {
            eprintln!("sluice repair: {error}");
            exit_code(error).into()
        }
    }
}

/// Prints on standard output, whose reader may have gone away.
fn say(text: &dyn fmt::Display) {
    let _ = write!(io::stdout(), "{text}");
}

fn exit_code(error: RepairError) -> u8 {
    match error {
        RepairError::Open(error) => engine::OpenError::from(error).exit_code(),
        RepairError::OtherLsn { .. } => super::EXIT_USAGE,
        _ => super::EXIT_REFUSED,
    }
}

/// What was given up, in words.
struct Told<'a> {
    loss: &'a Loss,
    readable: u64,
    touched: &'a BTreeMap<Option<u64>, Touched>,
    dry_run: bool,
}

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Loss { first_lsn, last_lsn, path, offset, quarantine, originals } = self.loss;
        let verb = if self.dry_run { "would be given up" } else { "given up" };
        match last_lsn {
            Some(last_lsn) => writeln!(f, "{verb}: LSN {first_lsn} to {last_lsn}")?,
            None => writeln!(f, "{verb}: everything from LSN {first_lsn} on")?,
        }
        let records = last_lsn.map(|last_lsn| (last_lsn.0 + 1).saturating_sub(first_lsn.0));
        let unreadable = records.map_or_else(
            || "of the others nothing is known".to_owned(),
            |records| format!("{} can't", records.saturating_sub(self.readable)),
        );
        writeln!(f, "{} of these records can still be read, {unreadable}", self.readable)?;
        for (activity, touched) in self.touched {
            match activity {
                Some(activity) => write!(f, "activity {activity}:")?,
                None => f.write_str("no activity:")?,
            }
            for (event, count) in &touched.events {
                write!(f, " {count} {event}")?;
            }
            f.write_str("\n")?;
            if !touched.reservations.is_empty() {
                writeln!(f, "  reservations: {}", named(&touched.reservations))?;
            }
        }
        let keeps = if self.dry_run { "would be kept" } else { "are kept" };
        writeln!(f, "the originals {keeps} in {quarantine}: {}", originals.join(", "))?;
        let ends = if self.dry_run { "would end" } else { "now ends" };
        writeln!(f, "the log {ends} with LSN {}, at offset {offset} of {path}", first_lsn.0 - 1)?;
        f.write_str(
            "a database or mirror that holds any of the lost records follows another history: a \
             start will refuse it\n",
        )
    }
}

fn named(reservations: &BTreeSet<u64>) -> String {
    let mut text = String::new();
    for id in reservations.iter().take(RESERVATIONS_NAMED_MAX) {
        let _ = write!(text, "{id} ");
    }
    match reservations.len().checked_sub(RESERVATIONS_NAMED_MAX) {
        Some(more) if more > 0 => text + &format!("and {more} more"),
        _ => text.trim_end().to_owned(),
    }
}
