//! A disk that says a sync is done and drops the data. The log does not survive it; it must notice
//! wherever anything vouches for what is gone.
//!
//! Every sync of every short workload is a lie, once or from then on; the power is cut at the end.
//!
//! | what the power cut took                                      | verdict                       |
//! |--------------------------------------------------------------|-------------------------------|
//! | an acknowledged frame, and an intact header of a later frame | refused                       |
//! | promises more, an intact successor seals its segment, or an  |                               |
//! | intact CONTROL knows of a clean end                          |                               |
//! | acknowledged frames, and whatever could vouch for them       | refused, or the residual: the |
//! |                                                              | log ends earlier, and nothing |
//! |                                                              | on this disk tells            |
//! | no acknowledged frame, but a header, a name or CONTROL       | refused, or served            |
//! | nothing                                                      | served whole                  |
//!
//! Whatever the verdict, nothing is served that was not appended, and a refusal changes nothing on
//! the disk. The residual is what the places of the sinks are for: each carries the LSN and the
//! chain that it has confirmed, and a log that ends before one of them is refused by its owner.

use wal::device::sim::{Image, Lie};

use crate::corrupt::layout::{BLOCK, FRAME_HEADER, SegmentAt, segments};
use crate::corrupt::unchanged;
use crate::crash::told;
use crate::fates::Cut;
use crate::process::{Process, Stopped};
use crate::report::{Report, Settings, spread};
use crate::truth::Truth;
use crate::workload::{Step, all, parse, word};

/// Beside the short ones: segments that are sealed, given back and filled again.
const WORKLOADS: [&str; 6] = ["nnrs", "rsrs", "bsisbc", "sosobs", "rsbirsc", "nnrbisc"];

const CONTROL: &str = "CONTROL";

/// Runs the campaign.
pub fn run(settings: Settings) -> Report {
    let mut workloads = all(settings.scale.pick(2, 3, 4));
    workloads.extend(WORKLOADS.iter().filter_map(|word| parse(word)));
    // A killed process goes on with a cache that no lie is told from.
    workloads.retain(|steps| !steps.contains(&Step::Kill));
    spread("lies", settings, workloads.len(), |index, report| {
        report.add("workloads", 1);
        let steps = &workloads[index];
        for at in 1.. {
            let told =
                [false, true].map(|lasting| tell(steps, Lie { at, lasting }, settings, report));
            if told == [false; 2] {
                break;
            }
        }
    })
}

/// Runs one lie again.
pub fn again(steps: &[Step], lie: Lie, settings: Settings) -> Report {
    spread("lies", settings, 1, |_, report| {
        tell(steps, lie, settings, report);
    })
}

/// Takes the steps on a disk that tells `lie`, and judges what a start makes of it. Tells whether
/// it was told.
fn tell(steps: &[Step], lie: Lie, settings: Settings, report: &mut Report) -> bool {
    let (mut lied, mut verdict) = (true, None);
    report.run(
        || {
            let lasting = if lie.lasting { " --lasting" } else { "" };
            let (seed, word) = (settings.seed, word(steps));
            format!("lies --seed {seed} --workload '{word}' --at {}{lasting}", lie.at)
        },
        || {
            let Some(deceived) = Deceived::take(steps, lie, settings.seed)? else {
                lied = false;
                return Ok(());
            };
            verdict = Some(deceived.judge()?);
            Ok(())
        },
    );
    if lied {
        report.add("lies", 1);
    }
    if let Some(verdict) = verdict {
        report.add(verdict, 1);
    }
    lied
}

/// What a process was told, and what is left of it.
struct Deceived {
    truth: Truth,
    /// What everybody read before the power cut.
    intact: Image,
    left: Image,
}

impl Deceived {
    /// Takes the steps; `None` where there are fewer syncs.
    fn take(steps: &[Step], lie: Lie, seed: u64) -> Result<Option<Self>, String> {
        let mut process = Process::new(Image::empty(seed), Truth::default(), 1);
        process.device().set_lie(Some(lie));
        process.open().map_err(told)?;
        for step in steps {
            process.step(*step).map_err(told)?;
        }
        process.drop_log();
        let (_, lies) = process.device().syncs();
        let intact = process.device().image();
        let left = Cut::NOTHING_SURVIVES.of(&intact);
        Ok((lies > 0).then(|| Self { truth: process.truth.clone(), intact, left }))
    }

    /// Starts on what is left, and holds the verdict against what still vouches.
    fn judge(&self) -> Result<&'static str, String> {
        let acked = self.truth.acked;
        let mut truth = self.truth.clone();
        truth.acked = 0;
        let mut process = Process::new(self.left.clone(), truth, 2);
        let whole = self.intact.paths() == self.left.paths()
            && self.intact.paths().iter().all(|path| self.is_left(path));
        match process.open() {
            Ok(_) if process.truth.acked == acked => Ok("served whole"),
            Ok(_) if self.is_vouched_for() => {
                let served = process.truth.acked;
                Err(format!(
                    "served {served} of {acked} records, and what is left vouches for more"
                ))
            }
            Ok(_) => Ok("residual"),
            Err(Stopped::Open(error)) if whole => Err(format!("O8: nothing is lost: {error}")),
            Err(Stopped::Open(_)) => {
                unchanged(&self.left, &process.device().image()).map(|()| "refused")
            }
            Err(stopped) => Err(told(stopped)),
        }
    }

    fn is_left(&self, path: &str) -> bool {
        self.intact.same_content(&self.left, path)
    }

    /// Whether a frame that was acknowledged is gone, and something that is left says so.
    fn is_vouched_for(&self) -> bool {
        let segments = segments(&self.intact, self.truth.acked);
        let left: Vec<_> = segments.iter().map(|it| self.left.content(&it.path)).collect();
        let same = |index: usize, (start, end): (usize, usize)| {
            let left = left.get(index).and_then(Option::as_deref);
            left.and_then(|left| left.get(start..end)) == segments[index].content.get(start..end)
        };
        let clean = self.is_left(CONTROL) && self.ended_cleanly();
        segments.iter().enumerate().any(|(index, SegmentAt { frames, .. })| {
            let sealed = index + 1 < segments.len() && same(index + 1, (0, BLOCK));
            let gone = frames.iter().position(|it| !same(index, (it.offset, it.end())));
            gone.is_some_and(|at| {
                let promised = frames[at + 1..].iter().any(|later| {
                    later.synced_through > frames[at].offset
                        && same(index, (later.offset, later.offset + FRAME_HEADER))
                });
                same(index, (0, BLOCK)) && promised || sealed || clean
            })
        })
    }

    /// Whether the newer slot of CONTROL says so: see the table of the format.
    fn ended_cleanly(&self) -> bool {
        let control = self.intact.content(CONTROL).unwrap_or_default();
        let number = |slot: &[u8], at: usize| {
            let bytes = slot.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
            bytes.map_or(0, u64::from_le_bytes)
        };
        let newest = control.chunks(BLOCK).max_by_key(|slot| number(slot, 16));
        newest.is_some_and(|slot| number(slot, 168) == 1)
    }
}
