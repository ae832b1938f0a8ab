//! H4: damage that no crash can do, on logs whose acknowledged records are known.
//!
//! The verdict must follow from what the log can know:
//!
//! | what was damaged                                            | verdict                        |
//! |-------------------------------------------------------------|--------------------------------|
//! | a frame of a sealed segment                                 | refused                        |
//! | a frame of the last segment that an intact later frame or a | refused                        |
//! | clean end vouches for                                       |                                |
//! | the last frame, for which nothing vouches                   | the residual: the log can't    |
//! |                                                             | tell it from a torn write      |
//! | no acknowledged frame; beyond the end, no further than a    | served whole                   |
//! | torn write reaches; a spare; one of two snapshots; a frame  |                                |
//! | that ends before the newest does                            |                                |
//! | anything else (CONTROL, a segment's header, a file's        | refused or served whole        |
//! | length, far beyond the end)                                 |                                |
//!
//! Whatever the verdict, nothing is served that was not appended, and a refusal changes nothing on
//! the disk.

pub mod layout;
pub mod mutate;

use wal::device::sim::{Image, Op};

use crate::crash::take;
use crate::fates::{Cut, Random};
use crate::process::{Process, Stopped};
use crate::report::{Report, Settings, spread};
use crate::truth::Truth;
use crate::workload::{FORMAT, parse};
use layout::{BLOCK, FRAME_HEADER, SegmentAt, segments};
use mutate::{CONTROL, Mutation, Sources, mutations};

/// Logs that end in every way a log can end.
const WORKLOADS: [&str; 21] = [
    "s", "sb", "sbsi", "nnrs", "ssss", "bsi", "sisi", "sbc", "src", "rs", "rsb", "rsbi", "sosos",
    "kosb", "ppsbs", "broc", "rosi", "orbss", "sibs", "nns", "nnrbi",
];

/// Runs the campaign.
pub fn run(settings: Settings) -> Report {
    let workloads = &WORKLOADS[..settings.scale.pick(10, WORKLOADS.len(), WORKLOADS.len())];
    let torn = workloads.len() * 2;
    spread("corrupt", settings, torn, |index, report| {
        damage(workloads[index / 2], index % 2 == 1, settings, report, None);
    })
}

/// An intact log, or one with a torn last write, and what is known of it.
struct Base {
    image: Image,
    truth: Truth,
    segments: Vec<SegmentAt>,
    /// Segments that end before the newest snapshot does: a start reads no frame of theirs.
    covered: usize,
    /// A clean end in CONTROL vouches for the whole log.
    clean: bool,
}

impl Base {
    fn make(word: &str, torn: bool, seed: u64, twin: bool) -> Result<Option<Self>, String> {
        let steps = parse(word).expect("the list names steps");
        let taken = match twin {
            false => take(&steps, seed)?,
            true => crate::crash::take_twin(&steps, seed)?,
        };
        let mut truth = taken.truth;
        // The last sync that something unacknowledged waited for, with half of it on the disk.
        let at = taken
            .points
            .iter()
            .rposition(|point| !torn || point.op == Some(Op::Sync) && point.acked < truth.acked);
        let Some(point) = at.and_then(|at| taken.points.get(at)) else { return Ok(None) };
        truth.acked = point.acked;
        let half = Cut::Power { new: 0x5555 << 1, garbage: 0, names: u128::MAX };
        let image = if torn { half.of(&point.image) } else { Cut::ALL_SURVIVES.of(&point.image) };
        let segments = segments(&image, truth.acked);
        let newest = image.paths().into_iter().rfind(|path| path.starts_with("snap/snap-"));
        let digits = newest.as_deref().and_then(|path| path.get(10..26)).unwrap_or_default();
        let snapshot = u64::from_str_radix(digits, 16).unwrap_or(0);
        let after = segments.iter().skip(1);
        let covered = after.take_while(|next| next.before < snapshot).count();
        Ok(Some(Self { image, truth, segments, covered, clean: word.ends_with('c') }))
    }
}

/// What the log must make of a damage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Expected {
    Refused,
    Served,
    RefusedOrServed,
    /// The last frame may be cut; this many records come before it.
    Residual(u64),
}

fn damage(word: &str, torn: bool, settings: Settings, report: &mut Report, only: Option<usize>) {
    let seed = settings.seed;
    let replay = |case: Option<usize>| {
        let torn = if torn { " --torn" } else { "" };
        let case = case.map_or(String::new(), |case| format!(" --case {case}"));
        format!("corrupt --seed {seed} --workload '{word}'{torn}{case}")
    };
    let made = Base::make(word, torn, seed, false).and_then(|base| {
        let Some(base) = base else { return Ok(None) };
        let of = |seed, twin| {
            Ok::<_, String>(
                Base::make(word, torn, seed, twin)?.map_or(Vec::new(), |base| base.segments),
            )
        };
        Ok(Some((base, Sources { strangers: of(seed + 1, false)?, twins: of(seed, true)? })))
    });
    let (base, sources) = match made {
        Ok(Some(made)) => made,
        Ok(None) => return,
        Err(what) => return report.fail(replay(None), what),
    };
    report.add("logs", 1);
    let samples = settings.scale.pick(64, 512, 8192);
    let mut random = Random(seed);
    let all = mutations(&base.image, &base.segments, &sources, samples, &mut random);
    for (case, mutation) in all.iter().enumerate() {
        if only.is_some_and(|only| only != case) {
            continue;
        }
        let original = base.image.content(mutation.path()).unwrap_or_default();
        let changed = mutation.content(original.clone());
        let unreadable = matches!(mutation, Mutation::Unreadable { .. });
        if changed.as_ref() == Some(&original) && !unreadable {
            continue;
        }
        let Some(expected) = expected(&base, &sources, mutation, changed.as_deref()) else {
            report.add("undetectable forgeries skipped", 1);
            continue;
        };
        if only.is_some() {
            println!("{expected:?}: {mutation:?}");
        }
        let mut outcome = "refused";
        report.add("mutations", 1);
        report.run(
            || replay(Some(case)),
            || judge(&base, mutation, changed.as_deref(), expected).map(|found| outcome = found),
        );
        report.add(outcome, 1);
    }
}

/// What must become of a log with this damage; `None` for a forgery that nothing could tell.
fn expected(
    base: &Base,
    sources: &Sources,
    mutation: &Mutation,
    changed: Option<&[u8]>,
) -> Option<Expected> {
    let path = mutation.path();
    if path.starts_with("wal/spare-") || path.starts_with("snap/") {
        return Some(Expected::Served);
    }
    let found = base.segments.iter().position(|segment| segment.path == path);
    let (Some(index), Some(changed), true) = (found, changed, path != CONTROL) else {
        return Some(Expected::RefusedOrServed);
    };
    let segment = &base.segments[index];
    let original = &segment.content;
    if changed.len() != original.len() {
        return Some(Expected::RefusedOrServed);
    }
    let bad = match mutation {
        Mutation::Unreadable { block, .. } => block * BLOCK..(block + 1) * BLOCK,
        _ => 0..0,
    };
    let touched = |start: usize, end: usize| {
        original[start..end] != changed[start..end] || bad.start < end && start < bad.end
    };
    if touched(0, BLOCK) {
        return Some(Expected::RefusedOrServed);
    }
    let damaged = segment.frames.iter().position(|frame| touched(frame.offset, frame.end()));
    if let (Some(at), Mutation::Overwrite { bytes, .. }) = (damaged, mutation) {
        let frame = &segment.frames[at];
        let forged = sources
            .twins
            .get(index)
            .is_some_and(|twin| twin.content.get(frame.offset..frame.end()) == Some(&bytes[..]));
        // The twin's frame is right in itself: only what follows from the true one can tell.
        if forged && !base.clean && !segment.sealed && at + 2 >= segment.frames.len() {
            return None;
        }
    }
    if index < base.covered {
        return Some(Expected::Served);
    }
    if segment.sealed {
        return Some(if damaged.is_some() { Expected::Refused } else { Expected::Served });
    }
    let reach = usize::try_from(FORMAT.in_flight_bytes_max).expect("a simulated log is small");
    let far = segment.end() + reach;
    let Some(at) = damaged else {
        let near = original.len() <= far || !touched(far, original.len());
        return Some(if near { Expected::Served } else { Expected::RefusedOrServed });
    };
    let frame = &segment.frames[at];
    let vouched = segment.frames[at + 1..].iter().any(|later| {
        !touched(later.offset, later.offset + FRAME_HEADER) && later.synced_through > frame.offset
    });
    Some(match vouched || base.clean {
        true => Expected::Refused,
        false => Expected::Residual(frame.before),
    })
}

/// Opens the damaged log and holds the verdict against what was expected.
fn judge(
    base: &Base,
    mutation: &Mutation,
    changed: Option<&[u8]>,
    expected: Expected,
) -> Result<&'static str, String> {
    let mut image = base.image.clone();
    match (mutation, changed) {
        (Mutation::Unreadable { path, block }, _) => image.make_unreadable(path, *block as u64),
        (_, Some(changed)) => image.set_content(mutation.path(), changed),
        (_, None) => image.remove(mutation.path()),
    }
    let mut truth = base.truth.clone();
    if let Expected::Residual(before) = expected {
        truth.acked = before;
    }
    let mut process = Process::new(image.clone(), truth, 2);
    match process.open() {
        Ok(_) if expected == Expected::Refused => {
            Err(format!("served with {} records what had to be refused", process.truth.acked))
        }
        Ok(_) if process.truth.acked < base.truth.acked => Ok("residual"),
        Ok(_) => Ok("served"),
        Err(Stopped::Wrong(what)) => Err(what),
        Err(Stopped::Failed | Stopped::Refused) => Err("the log failed without a fault".to_owned()),
        Err(Stopped::Open(error)) if expected == Expected::Served => {
            Err(format!("O8: nothing acknowledged is damaged: {error}"))
        }
        Err(Stopped::Open(_)) => unchanged(&image, &process.device().image()).map(|()| "refused"),
    }
}

/// Tells what differs on the disk after a refusal.
pub(crate) fn unchanged(before: &Image, after: &Image) -> Result<(), String> {
    let paths = before.paths();
    match after.paths() == paths && paths.iter().all(|path| before.same_content(after, path)) {
        true => Ok(()),
        false => Err("a refused log was changed on the disk".to_owned()),
    }
}

/// Runs one case again, or all of a log's.
pub fn again(word: &str, torn: bool, settings: Settings, case: Option<usize>) -> Report {
    spread("corrupt", settings, 1, |_, report| damage(word, torn, settings, report, case))
}
