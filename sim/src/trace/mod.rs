//! H13: real runs, with their threads, on a real file system, every operation written down; then
//! the power is cut at each of them.
//!
//! The simulated disk is told what was done, operation by operation, and cut before each that
//! changes anything; the log is recovered from what is left, by the code that is shipped. What a
//! caller had been told by then must be there, and what is there must be the beginning of what the
//! run wrote. Runs write through the page cache and past it by turns.
//!
//! Threads make no two runs alike: a run that fails is kept in a file, and its cases are run again
//! from there.

mod device;
mod notes;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use wal::device::sim::{Image, SimDevice};
use wal::device::{AppendChoice, Device, File};
use wal::{
    Busy, CONTROL_SHARD, Class, Format, Log, OWNER_BYTES, OpenOptions, PosixDevice, Ticket,
    record_bytes,
};

use crate::fates::{Random, some_cuts};
use crate::report::{Report, Settings, spread};
pub use device::{Noted, TraceDevice};

/// Small segments: a run begins many.
const FORMAT: Format = Format {
    shard_count: 3,
    frame_bytes_max: 8 << 10,
    in_flight_bytes_max: 32 << 10,
    segment_bytes: 48 << 10,
    owner: [3; OWNER_BYTES],
};

/// Callers at once.
const CALLERS: u16 = 4;
/// Records of each caller in each incarnation.
const RECORDS: u64 = 40;
/// Incarnations of a run: the second recovers what the first left, or closed.
const INCARNATIONS: u64 = 3;
/// Power cuts at a point where not all are tried.
const CUTS: usize = 5;

/// A record as it was written: its shard, its place there, its body.
type Written = (u16, u64, Vec<u8>);

/// Runs the campaign in directories under `root`, which should lie on a real disk.
pub fn run(settings: Settings, root: &Path) -> Report {
    let runs = settings.scale.pick(2, 20, 400);
    spread("trace", settings, runs, |index, report| {
        report.add("runs", 1);
        let seed = settings.seed ^ (index as u64) << 32;
        match take(root, index % 2 == 0, seed) {
            Ok(run) => kept(root, &run, seed, report),
            Err(what) => report.fail(format!("trace --seed {}", settings.seed), what.to_string()),
        }
    })
}

/// Cuts a run, and keeps it in a file under `root` if a case fails.
fn kept(root: &Path, run: &notes::Run, seed: u64, report: &mut Report) {
    let path = root.join(format!("trace-{seed:x}.notes"));
    let before = report.failed;
    Cuts { seed, notes: path.clone(), only: (None, None) }.run(run, report);
    if report.failed == before {
        return;
    }
    if let Err(error) = notes::save(&path, run) {
        eprintln!("sim: {} was not written: {error}", path.display());
    }
}

/// Runs the cases of a run again that was kept in `path`: all of them, those of one operation, or
/// one.
pub fn again(
    settings: Settings,
    path: &Path,
    operation: Option<usize>,
    cut: Option<usize>,
) -> Report {
    spread("trace", settings, 1, |_, report| {
        let cuts = Cuts { seed: settings.seed, notes: path.to_owned(), only: (operation, cut) };
        match notes::load(path) {
            Ok(run) => cuts.run(&run, report),
            Err(error) => report.fail(cuts.replay(None), format!("{}: {error}", path.display())),
        }
    })
}

fn options() -> OpenOptions {
    OpenOptions {
        format: FORMAT,
        accept_file_system: true,
        companions: Vec::new(),
        on_fatal: Box::new(|fatal| panic!("{fatal}")),
    }
}

/// Opens the log of `device` and reads all of it.
fn open(device: Arc<dyn Device>) -> Result<(Log, Vec<Written>), wal::OpenError> {
    let mut records = Vec::new();
    let (log, _) = Log::open(device, options(), &mut |it| {
        records.push((it.shard, it.shard_seq, it.body.to_vec()));
        Ok(())
    })?;
    Ok((log, records))
}

/// One real run: what was done, and what it wrote in the end.
fn take(root: &Path, direct: bool, seed: u64) -> io::Result<(Vec<Noted>, Vec<Written>)> {
    let dir = tempfile::tempdir_in(root)?;
    let choice = if direct { AppendChoice::Auto } else { AppendChoice::Buffered };
    let device = TraceDevice::new(PosixDevice::new(dir.path()).with_appends(choice));
    for incarnation in 0..INCARNATIONS {
        let (log, _) = open(Arc::new(device.clone())).map_err(io::Error::other)?;
        let threads = log.start()?;
        std::thread::scope(|scope| {
            for caller in 0..CALLERS {
                let (log, device) = (&log, &device);
                let seed = seed ^ incarnation << 8 ^ u64::from(caller);
                scope.spawn(move || call(log, device, caller, Random(seed)));
            }
        });
        threads.stop();
        if incarnation == 1 {
            log.close().map_err(io::Error::other)?;
        }
    }
    let notes = device.notes();
    let (_, truth) = open(Arc::new(PosixDevice::new(dir.path()))).map_err(io::Error::other)?;
    Ok((notes, truth))
}

/// Appends record after record, and waits for some of them.
fn call(log: &Log, device: &TraceDevice, caller: u16, mut random: Random) {
    let shard = if caller < FORMAT.shard_count { caller } else { CONTROL_SHARD };
    for number in 0..RECORDS {
        let mut body = vec![caller.to_le_bytes()[0]; 16 + random.index(1_200)];
        body[..8].copy_from_slice(&number.to_le_bytes());
        let room = record_bytes(body.len());
        let shard_seq = loop {
            match log.begin(shard, room, Class::Reserved) {
                Ok(mut batch) => {
                    batch.command(room);
                    break batch.append((1, 1), |out| out.extend_from_slice(&body));
                }
                Err(Busy::Overloaded) => std::thread::yield_now(),
                Err(Busy::LogUnavailable) => panic!("a real disk failed"),
            }
        };
        if random.below(3) == 0 {
            log.wait_durable(Ticket { shard, shard_seq }).expect("a real disk works");
            device.note(Noted::Acked { shard, shard_seq });
        }
    }
}

/// The power cuts of a run.
struct Cuts {
    seed: u64,
    /// Where its notes are kept if one fails.
    notes: PathBuf,
    /// The operation and the cut to take, where not all are taken.
    only: (Option<usize>, Option<usize>),
}

impl Cuts {
    fn replay(&self, case: Option<(usize, usize)>) -> String {
        let case =
            case.map_or(String::new(), |(index, cut)| format!(" --operation {index} --cut {cut}"));
        format!("trace --seed {} --notes {}{case}", self.seed, self.notes.display())
    }

    /// Plays the notes to a simulated disk and cuts the power before each that changes it.
    fn run(&self, (notes, truth): &notes::Run, report: &mut Report) {
        let player = SimDevice::new(Image::empty(self.seed));
        let mut files: BTreeMap<usize, Arc<dyn File>> = BTreeMap::new();
        let mut acked: BTreeMap<u16, u64> = BTreeMap::new();
        let mut random = Random(self.seed);
        let skips = |only: Option<usize>, at: usize| only.is_some_and(|only| only != at);
        for (index, noted) in notes.iter().enumerate() {
            if let Noted::Acked { shard, shard_seq } = noted {
                let last = acked.entry(*shard).or_default();
                *last = (*last).max(*shard_seq);
                continue;
            }
            if !matches!(noted, Noted::Open { .. }) {
                report.add("points", 1);
                let image = player.image();
                // Drawn for every point, so that a case alone draws what it drew among all.
                let cuts = some_cuts(&image, CUTS, &mut random);
                for (number, cut) in cuts.into_iter().enumerate() {
                    if skips(self.only.0, index) || skips(self.only.1, number) {
                        continue;
                    }
                    report.add("crash images", 1);
                    let case = || survives(cut.of(&image), truth, &acked);
                    report.run(|| self.replay(Some((index, number))), case);
                }
            }
            if let Err(error) = play(&player, &mut files, noted) {
                let what = format!("operation {index}, {noted:?}: {error}");
                return report.fail(self.replay(None), what);
            }
        }
    }
}

fn play(
    player: &SimDevice,
    files: &mut BTreeMap<usize, Arc<dyn File>>,
    noted: &Noted,
) -> io::Result<()> {
    let unknown = || io::Error::from(io::ErrorKind::NotFound);
    match noted {
        Noted::Create { path, bytes } => player.create_zeroed(path, *bytes),
        Noted::Open { path, handle } => {
            files.insert(*handle, player.open(path)?);
            Ok(())
        }
        Noted::Write { handle, offset, bytes } => {
            files.get(handle).ok_or_else(unknown)?.write_at(bytes, *offset).map(drop)
        }
        Noted::Sync { handle } => files.get(handle).ok_or_else(unknown)?.sync_data(),
        Noted::Rename { from, to } => player.rename(from, to),
        Noted::Link { from, to } => player.link(from, to),
        Noted::SyncDir { path } => player.sync_dir(path),
        Noted::Remove { path } => player.remove(path),
        Noted::CreateDir { path } => player.create_dir(path),
        Noted::Acked { .. } => Ok(()),
    }
}

/// Recovers a crashed disk: the beginning of what was written, with all that was acknowledged.
fn survives(crashed: Image, truth: &[Written], acked: &BTreeMap<u16, u64>) -> Result<(), String> {
    let opened = open(Arc::new(SimDevice::new(crashed)));
    let (_, records) = opened.map_err(|error| format!("a crash is no damage: {error}"))?;
    if !truth.starts_with(&records) {
        return Err("W3: what was recovered is not the beginning of what was written".to_owned());
    }
    for (shard, acked) in acked {
        let found = records.iter().filter(|(of, ..)| of == shard).count() as u64;
        if found < *acked {
            return Err(format!("shard {shard}: {acked} were acknowledged, {found} are there"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_case_is_run_again_from_the_notes_that_were_kept() {
        let root = tempfile::tempdir().expect("a directory");
        let (mut notes, truth) = take(root.path(), false, 5).expect("a real disk works");
        // Told too early: no record is there yet.
        let (shard, shard_seq, _) = truth.last().expect("it wrote").clone();
        notes.insert(0, Noted::Acked { shard, shard_seq });
        let mut first = Report::default();
        kept(root.path(), &(notes, truth), 5, &mut first);
        assert!(first.failed > 0);
        let words: Vec<_> = first.failures[0].replay.split(' ').collect();
        let ["trace", "--seed", "5", "--notes", path, "--operation", operation, "--cut", cut] =
            words[..]
        else {
            panic!("{words:?}");
        };
        let only = (operation.parse().ok(), cut.parse().ok());
        let settings = Settings { seed: 5, ..Settings::standard() };
        let again = again(settings, Path::new(path), only.0, only.1);
        assert_eq!((again.count("crash images"), again.failed), (1, 1), "{again}");
        assert_eq!(again.failures[0].what, first.failures[0].what);
    }
}
