//! H2: the k-th device operation fails, for k = 1, 2, 3 .. until a workload passes untouched; once
//! and from then on; in every way an operation can fail.
//!
//! An error stops the process for good. Then it is gone, by a kill or a power cut; the next start
//! meets no fault, and must find all that was ever acknowledged.

use std::collections::BTreeSet;

use wal::device::sim::{Fault, FaultKind, Image, Op};
use wal::{Busy, Class, SpareMade};

use crate::crash::{survives, told, write_on};
use crate::fates::{Cut, Random, some_cuts};
use crate::process::{Process, Stopped};
use crate::report::{Report, Settings, spread};
use crate::truth::Truth;
use crate::workload::{Step, parse, word};

/// Every step in the neighbourhood of every other that matters to it.
const WORKLOADS: [&str; 43] = [
    "nnr", "snnr", "sis", "bsb", "rs", "prsr", "pprir", "sco", "scs", "ckb", "kos", "ksk", "rko",
    "brc", "isis", "cooc", "psocr", "bibk", "rrs", "kick", "porb", "skrs", "cccs", "obis", "srk",
    "rir", "bop", "pppprr", "krkr", "sbis", "ocok", "irc", "rok", "bcb", "kkk", "sosos", "rscr",
    "ibo", "nn", "nnrs", "nnk", "snocn", "pnnrr",
];

/// What the process was doing when an operation came.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Site {
    op: Op,
    /// The letter of the step; `-` while the log was formatted and first opened.
    step: char,
}

/// What a campaign found.
pub struct Errors {
    /// The counts.
    pub report: Report,
    /// Every operation of every step that the workloads reach, and whether it was made to fail.
    pub sites: Vec<(Site, bool)>,
}

/// Runs the campaign.
pub fn run(settings: Settings) -> Errors {
    let workloads = &WORKLOADS[..settings.scale.pick(12, WORKLOADS.len(), WORKLOADS.len())];
    let reached = std::sync::Mutex::new((BTreeSet::new(), BTreeSet::new()));
    let report = spread("errors", settings, workloads.len(), |index, report| {
        let steps = parse(workloads[index]).expect("the list names steps");
        let mut sites = Vec::new();
        let untouched = Run::take(&steps, settings.seed, None, Some(&mut sites));
        if let Err(what) = untouched.map(drop) {
            return report.fail(replay(settings.seed, workloads[index], None), what);
        }
        let mut hit = BTreeSet::new();
        for (number, site) in (1..).zip(&sites) {
            if fail(&steps, number, settings, report) {
                hit.insert(*site);
            }
        }
        let mut reached = reached.lock().expect("a worker does not panic");
        reached.0.extend(sites);
        reached.1.append(&mut hit);
    });
    let (all, hit) = reached.into_inner().expect("a worker does not panic");
    Errors { report, sites: all.iter().map(|site| (*site, hit.contains(site))).collect() }
}

/// Makes operation `at` fail in every way. Tells whether it failed at all.
fn fail(steps: &[Step], at: u64, settings: Settings, report: &mut Report) -> bool {
    let mut hit = false;
    for kind in FaultKind::ALL {
        for lasting in [false, true] {
            let fault = Fault { at, lasting, kind: *kind };
            hit |= fail_so(steps, fault, settings, report, None);
        }
    }
    hit
}

fn fail_so(
    steps: &[Step],
    fault: Fault,
    settings: Settings,
    report: &mut Report,
    only: Option<usize>,
) -> bool {
    let word = word(steps);
    let seed = settings.seed;
    let mut run = None;
    report.run(
        || replay(seed, &word, Some((fault, None))),
        || Run::take(steps, seed, Some(fault), None).map(|taken| run = Some(taken)),
    );
    let Some(run) = run else { return true };
    if run.faults_hit == 0 {
        return false;
    }
    report.add(if run.stopped { "stopped" } else { "went on" }, 1);
    let mut random = Random(seed ^ fault.at << 16);
    let cuts = some_cuts(&run.image, settings.scale.pick(4, 8, 16), &mut random);
    for (number, cut) in cuts.into_iter().enumerate() {
        if only.is_some_and(|only| only != number) {
            continue;
        }
        report.add("runs", 1);
        report.run(
            || replay(seed, &word, Some((fault, Some(number)))),
            || survives(cut.of(&run.image), &run.truth, run.truth.acked),
        );
    }
    report.run(|| replay(seed, &word, Some((fault, None))), || rests(&run, fault.lasting));
    true
}

/// A process that met a fault, and what it left.
pub(crate) struct Run {
    pub(crate) truth: Truth,
    pub(crate) image: Image,
    pub(crate) stopped: bool,
    faults_hit: u64,
    /// Operations begun, failed ones included.
    pub(crate) ops: u64,
}

impl Run {
    /// Takes the steps under `fault`; `sites` gets what each operation was.
    pub(crate) fn take(
        steps: &[Step],
        seed: u64,
        fault: Option<Fault>,
        sites: Option<&mut Vec<Site>>,
    ) -> Result<Self, String> {
        let mut process = Process::new(Image::empty(seed), Truth::default(), 1);
        process.persist_fault(fault);
        let mut noted = Vec::new();
        let mut ended = Ok(());
        for step in [None].into_iter().chain(steps.iter().copied().map(Some)) {
            if sites.is_some() {
                process.observe();
            }
            ended = match step {
                None => process.open().map(drop),
                Some(step) => process.step(step),
            };
            if sites.is_some() {
                let step = step.map_or('-', Step::letter);
                let points = process.points();
                noted.extend(points.iter().filter_map(|point| Some(Site { op: point.op?, step })));
            }
            if ended.is_err() {
                break;
            }
        }
        if let Some(sites) = sites {
            *sites = noted;
        }
        let faults_hit = process.faults_hit();
        let stopped = ended.is_err();
        match ended {
            Ok(()) => {}
            Err(Stopped::Wrong(what)) => return Err(what),
            Err(stopped) if faults_hit == 0 => return Err(told(stopped)),
            Err(Stopped::Refused) => resumes(&mut process, fault)?,
            Err(stopped) => judge(&mut process, fault, stopped)?,
        }
        if !stopped && process.failures() > 0 {
            return Err("the log failed and said nothing to its caller".to_owned());
        }
        process.drop_log();
        Ok(Self {
            truth: process.truth.clone(),
            image: process.device().image(),
            stopped,
            faults_hit,
            ops: process.ops(),
        })
    }
}

/// A file that saw an I/O error is never used again, not even where a disk that goes on failing
/// refused every note of it: all that is there is given back and every spare is used up, and it
/// becomes no segment and no spare. But a spare that such a disk gives back as nothing but zeros is
/// used: nothing tells it from one that was just made, and a start makes as sure of it.
fn rests(run: &Run, lasting: bool) -> Result<(), String> {
    let mut image = run.image.clone();
    let spares = image.paths().into_iter().filter(|path| lasting && path.starts_with("wal/spare-"));
    for path in spares.collect::<Vec<_>>() {
        if image.content(&path).is_some_and(|bytes| bytes.iter().all(|byte| *byte == 0)) {
            image.forget_failure(&path);
        }
    }
    let mut process = Process::new(image, run.truth.clone(), 4);
    process.open().map_err(told)?;
    for _ in 0..3 {
        process.step(Step::Snapshot).map_err(told)?;
    }
    let disk = process.device().image();
    match disk.renamed_after_error().iter().find(|name| name.starts_with("wal/")) {
        None => Ok(()),
        Some(name) => Err(format!("W7: a file that saw an I/O error became {name}")),
    }
}

/// What must hold of a process that let nothing in: only a full disk does that to it, it has not
/// failed, and it goes on by itself once there is room.
fn resumes(process: &mut Process, fault: Option<Fault>) -> Result<(), String> {
    let Some(log) = process.log().cloned() else { return Ok(()) };
    let full = fault.is_some_and(|fault| fault.kind == FaultKind::Full);
    if !full || log.is_poisoned() || process.failures() > 0 {
        return Err("work was refused though the disk is not full".to_owned());
    }
    process.device().set_fault(None);
    let room = log.make_spare();
    if !matches!(room, Ok(SpareMade::Made | SpareMade::Enough)) {
        return Err(format!("room came back, and the log did not notice: {room:?}"));
    }
    write_on(process)
}

/// What must hold of a process that a fault has stopped.
fn judge(process: &mut Process, fault: Option<Fault>, stopped: Stopped) -> Result<(), String> {
    if matches!(fault.map(|fault| fault.kind), Some(FaultKind::ShortWrite | FaultKind::Interrupted))
    {
        return Err(format!("a short or interrupted operation is no error: {}", told(stopped)));
    }
    if matches!(stopped, Stopped::Open(_)) {
        return Ok(());
    }
    let Some(log) = process.log().cloned() else { return Ok(()) };
    let spare = log.make_spare();
    if process.failures() != 1 || !log.is_poisoned() || spare.is_ok() {
        return Err(format!("W16: the log failed and told so {} times", process.failures()));
    }
    let acked = log.durable_lsn();
    process.truth.acked = process.truth.acked.max(acked.0);
    process.device().set_fault(None);
    let silent = log.commit().is_err()
        && log.seal_idle().is_err()
        && log.close().is_err()
        && matches!(log.begin(0, 64, Class::Reserved).map(drop), Err(Busy::LogUnavailable))
        && log.wait_durable(wal::Ticket { shard: 0, shard_seq: 0 }).is_err()
        && log.durable_lsn() == acked;
    if !silent {
        return Err("W16: a failed log still answers".to_owned());
    }
    let before = process.device().counts().0;
    drop(log);
    process.drop_log();
    match process.device().counts().0 == before {
        true => Ok(()),
        false => Err("W16: a failed log touched the disk while it was dropped".to_owned()),
    }
}

/// Fills the disk: purchases are refused while spares are low, everything else goes on, and
/// purchases come back with the room.
///
/// # Errors
/// What was otherwise.
pub fn full_disk(seed: u64) -> Result<(), String> {
    let mut process = Process::new(Image::empty(seed), Truth::default(), 1);
    process.open().map_err(told)?;
    let log = process.log().cloned().ok_or("no log is open")?;
    let make = || log.make_spare().map_err(|_| "a full disk is no failure of the log".to_owned());
    while make()? == SpareMade::Made {}
    process.device().set_free_bytes(Some(0));
    let mut purchases = true;
    for _ in 0..2 {
        process.step(Step::Rotate).map_err(told)?;
        if make()? != SpareMade::NoRoom {
            return Err("a spare was made on a full disk".to_owned());
        }
        purchases = log.begin(0, 64, Class::New).is_ok();
        process.step(Step::Block).map_err(told)?;
    }
    if purchases {
        return Err("purchases go on without spares".to_owned());
    }
    process.device().set_free_bytes(None);
    while make()? == SpareMade::Made {}
    match log.begin(0, 64, Class::New).is_ok() {
        true => survives(
            Cut::NOTHING_SURVIVES.of(&process.device().image()),
            &process.truth,
            process.truth.acked,
        ),
        false => Err("O11: purchases do not come back with the room".to_owned()),
    }
}

fn replay(seed: u64, word: &str, case: Option<(Fault, Option<usize>)>) -> String {
    let mut command = format!("errors --seed {seed} --workload '{word}'");
    if let Some((Fault { at, lasting, kind }, cut)) = case {
        command += &format!(" --at {at} --kind {kind:?}");
        command += if lasting { " --lasting" } else { "" };
        command += &cut.map_or(String::new(), |cut| format!(" --cut {cut}"));
    }
    command
}

/// Runs one fault again.
pub fn again(steps: &[Step], fault: Fault, settings: Settings, cut: Option<usize>) -> Report {
    spread("errors", settings, 1, |_, report| {
        fail_so(steps, fault, settings, report, cut);
    })
}
