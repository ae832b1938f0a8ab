//! How schedules are drawn: at random, or by PCT, which places few preemptions where they hurt
//! (Burckhardt et al., "A randomized scheduler with probabilistic guarantees of finding bugs").

use std::io::Write as _;
use std::sync::Mutex;

use shuttle::scheduler::{PctScheduler, RandomScheduler, ReplayScheduler};
use shuttle::{Config, Runner};
use wal::planted::{self, Bug};

/// Schedules of one share where `SLUICE_SCHEDULES` does not say: in all tests together the floor
/// of docs/reliability.md.
const SHARE: usize = 50_000;
/// Schedules within which a planted fault must be met.
const HUNT: usize = 20_000;
/// Schedules between two looks at whether it was.
const HUNT_STEP: usize = 250;
/// Priority changes of a PCT schedule.
const DEPTH: usize = 3;
const SEED: u64 = 1;
/// Recovery runs on a thread of the schedule and needs more than shuttle's 32 KiB.
const STACK_BYTES: usize = 256 << 10;

/// How a schedule is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    Random,
    Pct,
}

fn config() -> Config {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.silence_warnings = true;
    config
}

fn draw(way: Way, seed: u64, count: usize, body: impl Fn() + Send + Sync + 'static) -> usize {
    match way {
        Way::Random => Runner::new(RandomScheduler::new_from_seed(seed, count), config()).run(body),
        Way::Pct => {
            Runner::new(PctScheduler::new_from_seed(seed, DEPTH, count), config()).run(body)
        }
    }
}

/// Runs `schedule` under `shares` times as many schedules as asked for; the first that is wrong is
/// printed. `SLUICE_SCHEDULE` holds one that was printed, to be run again.
pub(crate) fn explore(
    way: Way,
    shares: usize,
    schedule: impl Fn() -> Result<(), String> + Send + Sync + 'static,
) {
    let body = move || {
        if let Err(what) = schedule() {
            panic!("{what}");
        }
    };
    if let Ok(printed) = std::env::var("SLUICE_SCHEDULE") {
        Runner::new(ReplayScheduler::new_from_encoded(&printed), config()).run(body);
        return;
    }
    let asked = std::env::var("SLUICE_SCHEDULES").ok().and_then(|text| text.parse().ok());
    let count = shares * asked.unwrap_or(SHARE);
    let done = draw(way, SEED, count, body);
    // Past the test harness, which keeps what a passing test prints.
    let _ = writeln!(std::io::stderr(), "shuttle    {way:?} schedules {done}");
    assert_eq!(done, count, "the floor");
}

/// Runs `schedule` with a planted fault until one schedule shows it.
pub(crate) fn hunt(
    bug: Bug,
    way: Way,
    schedule: impl Fn() -> Result<(), String> + Copy + Send + Sync + 'static,
) {
    static CAUGHT: Mutex<Option<String>> = Mutex::new(None);
    // Tests share the process: one hunt at a time.
    static HUNTING: Mutex<()> = Mutex::new(());
    let _one = HUNTING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    planted::choose(Some(bug));
    let mut done = 0;
    while done < HUNT && CAUGHT.lock().is_ok_and(|caught| caught.is_none()) {
        done += draw(way, SEED + done as u64, HUNT_STEP, move || {
            if let Err(what) = schedule() {
                *CAUGHT.lock().expect("nobody panics with it") = Some(what);
            }
        });
    }
    planted::choose(None);
    let caught = CAUGHT.lock().expect("nobody panics with it").take();
    let _ = writeln!(std::io::stderr(), "shuttle    {bug:?} {way:?}: {caught:?} within {done}");
    assert!(caught.is_some(), "{bug:?} was not met in {done} schedules ({way:?})");
}
