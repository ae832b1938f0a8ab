//! H1: every workload of at most three steps, and of those of four all but what `is_telling`
//! leaves out, crashed before every device operation, with every subset of what was not yet synced.
//!
//! A workload's last step is watched; those before it are the last steps of shorter workloads. At
//! each point the disk is put through the cuts of [`fates`](crate::fates), then
//! [`survives`] recovers it and compares with the truth (W3).

use wal::device::sim::{Image, Op};

use crate::fates::{Cut, Random, cuts};
use crate::process::{Point, Process, Stopped};
use crate::report::{Report, Scale, Settings, spread};
use crate::truth::Truth;
use crate::workload::{Step, all, word};

/// Runs the campaign.
pub fn run(settings: Settings) -> Report {
    let length = settings.scale.pick(3, 4, 5);
    let mut workloads = all(length);
    if settings.scale != Scale::Long {
        workloads.retain(|steps| is_telling(steps));
    }
    spread("crash", settings, workloads.len(), |index, report| {
        report.add("workloads", 1);
        crash(&workloads[index], settings.seed, report);
    })
}

/// Of four steps with snapshots among them only those are taken in which two follow each other: it
/// is the second that gives a segment back, and what comes after it lives in that segment's file.
/// The others, a third of all that have four steps and the slowest, are for the long campaign.
fn is_telling(steps: &[Step]) -> bool {
    let snapshots = steps.contains(&Step::Snapshot);
    steps.len() < 4 || !snapshots || steps.windows(2).any(|two| two == [Step::Snapshot; 2])
}

/// A workload taken to its end, with the disk at every operation of its last step.
pub struct Taken {
    /// What was done.
    pub truth: Truth,
    /// The disk at every operation of the last step, and at the end.
    pub points: Vec<Point>,
}

/// Takes a workload from an empty disk to its end. The first opening belongs to the empty one.
pub fn take(steps: &[Step], seed: u64) -> Result<Taken, String> {
    take_as(steps, seed, 1)
}

/// The same steps on the same disk with the same random numbers, and other records.
pub fn take_twin(steps: &[Step], seed: u64) -> Result<Taken, String> {
    take_as(steps, seed, 9)
}

fn take_as(steps: &[Step], seed: u64, generation: u64) -> Result<Taken, String> {
    let mut process = Process::new(Image::empty(seed), Truth::default(), generation);
    let taken = take_steps(&mut process, steps);
    let points = process.points();
    match taken {
        Ok(()) => Ok(Taken { truth: process.truth.clone(), points }),
        Err(stopped) => Err(format!("without any crash: {}", told(stopped))),
    }
}

fn take_steps(process: &mut Process, steps: &[Step]) -> Result<(), Stopped> {
    let Some((last, before)) = steps.split_last() else {
        process.observe();
        return process.open().map(drop);
    };
    process.open()?;
    for step in before {
        process.step(*step)?;
    }
    process.observe();
    process.step(*last)
}

/// Whether the disk after an operation can differ from the disk before it.
pub fn changes(op: Op) -> bool {
    !matches!(op, Op::Open | Op::Read | Op::List)
}

/// Indices of the points with a disk of their own: the start belongs to the workload before, and
/// reading changes nothing.
pub fn distinct(points: &[Point]) -> impl Iterator<Item = usize> {
    (1..points.len()).filter(|index| {
        let [before, point] = [&points[index - 1], &points[*index]];
        before.op.is_some_and(changes) || before.acked != point.acked
    })
}

fn crash(steps: &[Step], seed: u64, report: &mut Report) {
    let word = word(steps);
    let taken = match take(steps, seed) {
        Ok(taken) => taken,
        Err(what) => return report.fail(replay(seed, &word, None), what),
    };
    report.add("crash points", taken.points.len() as u64 - 1);
    for index in distinct(&taken.points) {
        report.add("distinct disks", 1);
        let point = &taken.points[index];
        for (number, cut) in
            cuts(&point.image, &mut point_random(seed, &word, index)).into_iter().enumerate()
        {
            report.add("crash images", 1);
            report.run(
                || replay(seed, &word, Some((index, number))),
                || survives(cut.of(&point.image), &taken.truth, point.acked),
            );
        }
    }
}

/// The random numbers of one point: a case can be run again alone.
pub fn point_random(seed: u64, word: &str, point: usize) -> Random {
    let mixed = word.bytes().fold(seed, |mixed, byte| {
        mixed.wrapping_mul(0x0100_0000_01B3).wrapping_add(u64::from(byte))
    });
    Random(mixed ^ (point as u64) << 48)
}

fn replay(seed: u64, word: &str, case: Option<(usize, usize)>) -> String {
    let mut command = format!("crash --seed {seed} --workload '{word}'");
    if let Some((point, cut)) = case {
        command += &format!(" --point {point} --cut {cut}");
    }
    command
}

/// Runs one case again, or all cases of a workload, or of one of its points.
pub fn again(
    steps: &[Step],
    settings: Settings,
    point: Option<usize>,
    cut: Option<usize>,
) -> Report {
    let word = word(steps);
    spread("crash", settings, 1, |_, report| {
        let (Some(point), Ok(taken)) = (point, take(steps, settings.seed)) else {
            return crash(steps, settings.seed, report);
        };
        let Some(at) = taken.points.get(point) else { return };
        let every = cuts(&at.image, &mut point_random(settings.seed, &word, point));
        for (number, cut) in
            every.into_iter().enumerate().filter(|(number, _)| cut.is_none_or(|cut| cut == *number))
        {
            report.add("crash images", 1);
            println!("before {:?}, acknowledged {}: {cut:x?}", at.op, at.acked);
            report.run(
                || replay(settings.seed, &word, Some((point, number))),
                || survives(cut.of(&at.image), &taken.truth, at.acked),
            );
        }
    })
}

/// Recovers a crashed disk and holds it against the truth; then writes on, cuts the power with
/// nothing unsynced surviving, and recovers once more.
///
/// # Errors
/// What is wrong: a crash is never damage, nothing acknowledged is lost, nothing is there that
/// nobody appended, no old byte is edited, nothing of an earlier life comes back or is taken for a
/// torn write, and readers see the same.
pub fn survives(crashed: Image, truth: &Truth, acked: u64) -> Result<(), String> {
    let mut truth = truth.clone();
    truth.acked = acked;
    let segments: Vec<_> =
        crashed.paths().into_iter().filter(|path| path.starts_with("wal/seg-")).collect();
    let mut process = Process::new(crashed.clone(), truth, 2);
    process.open().map_err(told)?;
    let after = process.device().image();
    // A segment that was given back may still have had its name: it goes, and only it.
    let oldest = after.paths().into_iter().find(|path| path.starts_with("wal/seg-"));
    let kept = |path: &&String| oldest.as_ref().is_some_and(|oldest| *path >= oldest);
    if let Some(path) =
        segments.iter().filter(kept).find(|path| !crashed.same_content(&after, path))
    {
        return Err(format!("W10: recovery edited {path}"));
    }
    write_on(&mut process)?;
    process.read_back()?;
    process.read_sink()?;
    process.drop_log();
    let cut = Cut::NOTHING_SURVIVES.of(&process.device().image());
    let mut again = Process::new(cut, process.truth.clone(), 3);
    let report = again.open().map_err(|stopped| format!("the second start: {}", told(stopped)))?;
    match report.torn_tail {
        None => Ok(()),
        Some(torn) => Err(format!("nothing was being written, and {torn:?} is cut")),
    }
}

/// Appends one more record, which must be acknowledged.
pub fn write_on(process: &mut Process) -> Result<(), String> {
    let Some(log) = process.log().cloned() else { return Err("no log is open".to_owned()) };
    process.append(&log, 0, 64).and_then(|()| process.commit(&log)).map_err(told)
}

/// Why a process stopped, in words.
pub fn told(stopped: Stopped) -> String {
    match stopped {
        Stopped::Failed => "O11: the log failed without a fault".to_owned(),
        Stopped::Refused => "O11: work was refused though there is room".to_owned(),
        Stopped::Open(error) => format!("O8: the log did not open: {error}"),
        Stopped::Wrong(what) => what,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_is_taken_but_those_of_four_steps_whose_snapshots_stand_apart() {
        let all = all(4);
        let left_out: Vec<_> = all.iter().filter(|steps| !is_telling(steps)).collect();
        let stand_apart = |steps: &&Vec<Step>| {
            let word = word(steps);
            word.len() == 4 && word.contains('n') && !word.contains("nn")
        };
        let expected: Vec<_> = all.iter().filter(stand_apart).collect();
        assert_eq!(left_out, expected);
        // docs/reliability.md says as many.
        assert_eq!((all.len(), left_out.len()), (7_381, 2_240));
    }
}
