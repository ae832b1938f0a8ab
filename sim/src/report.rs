//! How a campaign is scaled, spread over the cores, and reported.

use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use wal::planted::{self, Bug};

use crate::counts;

/// Failures beyond these are counted, not kept.
const FAILURES_KEPT: usize = 8;

/// How much a campaign does: `SLUICE_SIM_SCALE`, `ci` where it is not set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// Enough to meet a planted bug, in seconds.
    Quick,
    /// The floors of docs/reliability.md.
    Ci,
    /// Hours.
    Long,
}

impl Scale {
    /// What the environment asks for.
    pub fn from_environment() -> Self {
        match std::env::var("SLUICE_SIM_SCALE").as_deref() {
            Ok("quick") => Self::Quick,
            Ok("long") => Self::Long,
            _ => Self::Ci,
        }
    }

    /// The figure for this scale.
    pub fn pick<T>(self, quick: T, ci: T, long: T) -> T {
        match self {
            Self::Quick => quick,
            Self::Ci => ci,
            Self::Long => long,
        }
    }
}

/// What goes into a run of a campaign.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How much.
    pub scale: Scale,
    /// Where the random numbers start.
    pub seed: u64,
    /// The fault that every worker runs with.
    pub bug: Option<Bug>,
}

impl Settings {
    /// The scale of the environment, the seed of the repository, no fault.
    pub fn standard() -> Self {
        Self { scale: Scale::from_environment(), seed: 1, bug: None }
    }

    /// What goes into every case beside the seed, as arguments: how much is done decides which
    /// cases there are.
    fn arguments(self) -> String {
        let scale = self.scale.pick("quick", "ci", "long");
        let bug = self.bug.map_or(String::new(), |bug| format!(" --bug {bug:?}"));
        format!(" --scale {scale}{bug}")
    }
}

/// A case that failed, and the command that runs it again.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Arguments of `cargo xtask sim`, but for those of all cases of a report.
    pub replay: String,
    /// What was wrong.
    pub what: String,
}

/// What a campaign did.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The campaign.
    pub name: &'static str,
    /// What went into it; `None` where a case depends on its seed alone.
    pub settings: Option<Settings>,
    /// Its figures, in the order in which they are told.
    pub counts: Vec<(&'static str, u64)>,
    /// The first failures.
    pub failures: Vec<Failure>,
    /// All of them.
    pub failed: u64,
    /// How long it took.
    pub took: Duration,
}

impl Report {
    /// Adds to a figure.
    pub fn add(&mut self, name: &'static str, count: u64) {
        match self.counts.iter_mut().find(|(known, _)| *known == name) {
            Some((_, total)) => *total += count,
            None => self.counts.push((name, count)),
        }
    }

    /// A figure, 0 where nothing was counted.
    pub fn count(&self, name: &str) -> u64 {
        self.counts.iter().find(|(known, _)| *known == name).map_or(0, |(_, count)| *count)
    }

    /// Notes a failure.
    pub fn fail(&mut self, replay: String, what: String) {
        self.failed += 1;
        if self.failures.len() < FAILURES_KEPT {
            self.failures.push(Failure { replay, what });
        }
    }

    /// Runs `case`; a wrong outcome or a panic is a failure that `replay` runs again.
    pub fn run(
        &mut self,
        replay: impl FnOnce() -> String,
        case: impl FnOnce() -> Result<(), String>,
    ) {
        let what = match catch_unwind(AssertUnwindSafe(case)) {
            Ok(Ok(())) => return,
            Ok(Err(what)) => what,
            Err(panic) => match panic.downcast_ref::<String>() {
                Some(message) => format!("panic: {message}"),
                None => match panic.downcast_ref::<&str>() {
                    Some(message) => format!("panic: {message}"),
                    None => "panic".to_owned(),
                },
            },
        };
        self.fail(replay(), what);
    }

    /// Takes over what another part of the same campaign did.
    pub fn merge(&mut self, other: Self) {
        for (name, count) in other.counts {
            self.add(name, count);
        }
        self.failed += other.failed;
        self.failures.extend(other.failures);
        self.failures.truncate(FAILURES_KEPT);
    }

    /// Writes the report past the test harness, which keeps what a passing test prints to itself.
    pub fn tell(&self) {
        let _ = writeln!(std::io::stderr(), "{self}");
        counts::note(&format!("campaign `{}`", self.name), &self.counts);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = format!("{:<10}", self.name);
        for (name, count) in &self.counts {
            write!(line, " {name} {count},")?;
        }
        write!(line, " failed {}, {:.1} s", self.failed, self.took.as_secs_f64())?;
        f.write_str(&line)?;
        let arguments = self.settings.map_or(String::new(), Settings::arguments);
        for Failure { replay, what } in &self.failures {
            write!(f, "\n  {what}\n    cargo xtask sim {replay}{arguments}")?;
        }
        Ok(())
    }
}

/// Runs `part` for every index below `parts` on all cores, and adds up the reports.
pub fn spread(
    name: &'static str,
    settings: Settings,
    parts: usize,
    part: impl Fn(usize, &mut Report) + Sync,
) -> Report {
    let started = Instant::now();
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    let bug = settings.bug;
    let new = || Report { name, settings: Some(settings), ..Report::default() };
    let total = Mutex::new(new());
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                planted::choose(bug);
                let mut report = new();
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    // One case is enough to catch a planted fault.
                    if index >= parts || bug.is_some() && report.failed > 0 {
                        break;
                    }
                    part(index, &mut report);
                }
                total.lock().expect("a worker does not panic").merge(report);
            });
        }
    });
    let mut report = total.into_inner().expect("a worker does not panic");
    report.took = started.elapsed();
    report
}
