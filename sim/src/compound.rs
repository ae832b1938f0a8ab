//! H3: a second blow while the first is being recovered from.
//!
//! The disks that a crash leaves are recovered under observation; at every operation of that
//! recovery the power is cut again, or the process killed, and every operation of it is made to
//! fail. The next recovery must find what the first one had to find.

use wal::device::sim::{Fault, FaultKind, Image};

use crate::crash::{distinct, point_random, survives, take, told};
use crate::errors::Run;
use crate::fates::{Cut, Random, some_cuts};
use crate::process::{Point, Process, Stopped};
use crate::report::{Report, Settings, spread};
use crate::truth::Truth;
use crate::workload::{Step, all, parse, word};

/// Crashes of one point that are taken further.
const FIRST_CUTS: usize = 4;

/// Runs the campaign.
pub fn run(settings: Settings) -> Report {
    let mut workloads = all(settings.scale.pick(1, 1, 3));
    // A file's second life, and what a crash leaves of the hand-over.
    workloads.extend(["nn", "nnr"].map(|word| parse(word).unwrap_or_default()));
    spread("compound", settings, workloads.len(), |index, report| {
        report.add("workloads", 1);
        blows(&workloads[index], settings, report, None);
    })
}

/// Which first blow of a workload (they are numbered), and which operation of the recovery.
pub type Case = (usize, usize);

/// Runs one case again, or all cases of a workload.
pub fn again(steps: &[Step], settings: Settings, case: Option<Case>) -> Report {
    spread("compound", settings, 1, |_, report| blows(steps, settings, report, case))
}

fn blows(steps: &[Step], settings: Settings, report: &mut Report, only: Option<Case>) {
    let (word, seed) = (word(steps), settings.seed);
    let firsts = match first_blows(steps, seed) {
        Ok(firsts) => firsts,
        Err(what) => return report.fail(replay(seed, &word, None), what),
    };
    // A snapshot's step has many operations, most of them alike: some of its blows are taken.
    let stride = match steps.contains(&Step::Snapshot) {
        true => settings.scale.pick(24, 12, 1),
        false => 1,
    };
    for (number, first) in firsts.into_iter().enumerate().step_by(stride) {
        if only.is_some_and(|case| case.0 != number) {
            continue;
        }
        report.add("first blows", 1);
        let command = &|at| replay(seed, &word, Some((number, at)));
        Second { first: &first, command, only: only.map(|case| case.1) }.strike(settings, report);
    }
}

/// What crashes and errors can leave of a workload.
fn first_blows(steps: &[Step], seed: u64) -> Result<Vec<First>, String> {
    let first = |image, truth| First { image, truth };
    let word = word(steps);
    let taken = take(steps, seed)?;
    let mut firsts = Vec::new();
    for index in distinct(&taken.points) {
        let point = &taken.points[index];
        let mut truth = taken.truth.clone();
        truth.acked = point.acked;
        let mut random = point_random(seed, &word, index);
        for cut in some_cuts(&point.image, FIRST_CUTS, &mut random) {
            firsts.push(first(cut.of(&point.image), truth.clone()));
        }
    }
    for kind in [FaultKind::ErrorOldContent, FaultKind::ErrorNewContent] {
        for at in 1.. {
            let fault = Fault { at, lasting: false, kind };
            let run = Run::take(steps, seed, Some(fault), None)?;
            if run.ops < at {
                break;
            }
            if run.stopped {
                firsts.push(first(Cut::Killed.of(&run.image), run.truth));
            }
        }
    }
    Ok(firsts)
}

/// What the first blow left.
struct First {
    image: Image,
    truth: Truth,
}

/// The second blow, and how to name its cases.
struct Second<'a> {
    first: &'a First,
    command: &'a dyn Fn(usize) -> String,
    only: Option<usize>,
}

impl Second<'_> {
    fn strike(&self, settings: Settings, report: &mut Report) {
        self.crash_again(settings, report);
        self.fail(settings, report);
    }

    fn skips(&self, at: usize) -> bool {
        self.only.is_some_and(|only| only != at)
    }

    /// The recovery, watched.
    fn watched(&self) -> Result<Vec<Point>, String> {
        let mut process = Process::new(self.first.image.clone(), self.first.truth.clone(), 4);
        process.observe();
        process.open().map_err(told)?;
        Ok(process.points())
    }

    /// Crashes the recovery at every operation of it.
    fn crash_again(&self, settings: Settings, report: &mut Report) {
        let mut points = Vec::new();
        report.run(|| (self.command)(0), || self.watched().map(|watched| points = watched));
        let count = settings.scale.pick(4, 6, 10);
        for at in distinct(&points).filter(|at| !self.skips(*at)) {
            let point = &points[at];
            let mut random = Random(settings.seed ^ at as u64);
            for cut in some_cuts(&point.image, count, &mut random) {
                report.add("second crashes", 1);
                report.run(
                    || (self.command)(at),
                    || survives(cut.of(&point.image), &self.first.truth, point.acked),
                );
            }
        }
    }

    /// Fails every operation of the recovery, and starts again on what it left.
    fn fail(&self, settings: Settings, report: &mut Report) {
        let kinds = settings.scale.pick(&FaultKind::ALL[..2], FaultKind::ALL, FaultKind::ALL);
        for kind in kinds {
            for at in 1.. {
                let fault = Fault { at, lasting: false, kind: *kind };
                let mut process =
                    Process::new(self.first.image.clone(), self.first.truth.clone(), 4);
                process.persist_fault(Some(fault));
                let opened = process.open();
                if process.device().counts().0 < at {
                    break;
                }
                let case = usize::try_from(at).unwrap_or(usize::MAX);
                if process.faults_hit() > 0 && !self.skips(case) {
                    report.add("faults in recovery", 1);
                    report.run(|| (self.command)(case), || self.retried(process, opened));
                }
            }
        }
    }

    fn retried(
        &self,
        mut process: Process,
        opened: Result<wal::OpenReport, Stopped>,
    ) -> Result<(), String> {
        if let Err(stopped @ (Stopped::Wrong(_) | Stopped::Failed)) = opened {
            return Err(told(stopped));
        }
        process.persist_fault(None);
        process.drop_log();
        let image = process.device().image();
        [Cut::Killed, Cut::NOTHING_SURVIVES]
            .into_iter()
            .try_for_each(|cut| survives(cut.of(&image), &process.truth, process.truth.acked))
    }
}

fn replay(seed: u64, word: &str, case: Option<Case>) -> String {
    let case =
        case.map_or(String::new(), |(first, at)| format!(" --first {first} --operation {at}"));
    format!("compound --seed {seed} --workload '{word}'{case}")
}
