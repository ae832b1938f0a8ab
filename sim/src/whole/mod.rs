//! H5: the whole system in one thread. The engine on the simulated disk, the real projection over
//! a database in memory, the real mirror over a Redis in memory, shoppers who repeat themselves,
//! and everything that can befall them.
//!
//! One seed is one run of some hundred steps, with fault rates of its own. The power is cut at any
//! operation of the disk; the database refuses, loses the answer of a COMMIT, goes away, loses the
//! commits that it need not have synced, and comes back as an older self or empty, sometimes when
//! the log has passed that by; [`redis`] loses keys, functions, calls and whole lives. After every
//! step of the mirror the keys of its layout must be those of the log where its cursor is (O7). In
//! the end the faults stop, everything must meet within a bounded number of steps (O11), and five
//! books that were kept apart must agree:
//!
//! | book | what must hold |
//! |---|---|
//! | what clients were told | every accepted purchase is in the log, under the id that was told |
//! | the [`ledger`] of the log | units add up at every record; a request is one reservation |
//! | the engine | its state is the ledger's, and that of the same log opened anew |
//! | SQL | every reservation one order or one dead letter, units and flows as in the ledger |
//! | Redis | every key, its end, the cursor, as the ledger's events have them |

mod host;
mod keys;
mod ledger;
mod meet;
mod mirror;
mod orders;
pub mod planted;
mod readers;
pub mod redis;
mod relations;
mod shop;
mod shoppers;
mod sql;
mod told;

use self::planted::Fault;
use self::shop::{Shop, Stop};
use self::shoppers::{Rates, step};
use crate::fates::Random;
use crate::report::{self, Report, Settings};

/// Steps of a run.
const STEPS: u64 = 120;

/// Runs of a part, so that workers share them evenly.
const RUNS_PER_PART: u64 = 50;

/// Where the simulated clock starts: 2026-11-29T00:00:00Z.
const START_MS: u64 = 1_795_910_400_000;

/// Runs the campaign.
pub fn run(settings: Settings, fault: Option<Fault>) -> Report {
    let runs: u64 = settings.scale.pick(1_000, 50_000, 1_500_000);
    let parts = usize::try_from(runs.div_ceil(RUNS_PER_PART)).unwrap_or(usize::MAX);
    let spread = report::spread("whole", settings, parts, |part, report| {
        planted::choose(fault);
        for index in 0..RUNS_PER_PART {
            if fault.is_some() && report.failed > 0 {
                break;
            }
            let seed = settings.seed.wrapping_add(part as u64 * RUNS_PER_PART + index);
            one(seed, fault, report);
        }
        planted::choose(None);
    });
    // How much is done changes nothing of a run.
    Report { settings: None, ..spread }
}

/// Runs one seed again.
pub fn again(seed: u64, fault: Option<Fault>) -> Report {
    let mut report = Report { name: "whole", ..Report::default() };
    planted::choose(fault);
    one(seed, fault, &mut report);
    planted::choose(None);
    report
}

fn one(seed: u64, fault: Option<Fault>, report: &mut Report) {
    let mut counts = Vec::new();
    let flag = fault.map_or(String::new(), |fault| format!(" --fault {fault:?}"));
    report.run(
        || format!("whole --seed {seed}{flag}"),
        || match live(seed) {
            Ok(shop) => {
                counts = vec![
                    ("seeds", 1),
                    ("steps", STEPS),
                    ("reservations", shop.ledger.reservations.len() as u64),
                    ("give-backs", shop.ledger.give_backs),
                    ("crashes", shop.crashes),
                    ("sink failures", shop.failures),
                    ("commits undone", shop.commits_undone),
                    ("segments given back", shop.segments_retired),
                    ("portions filled", shop.portions_filled),
                    ("transactions", shop.sql.commits()),
                    ("mirror calls", shop.redis.counts().0),
                    ("mirror failures", shop.sessions.failed),
                    ("redis faults", shop.redis.counts().1),
                    ("resyncs", shop.sessions.resyncs),
                    ("repairs", shop.sessions.repairs),
                ];
                Ok(())
            }
            Err(what) => Err(what),
        },
    );
    for (name, count) in counts {
        report.add(name, count);
    }
}

/// One run: its steps, and the meeting at the end.
fn live(seed: u64) -> Result<Shop, String> {
    let mut random = Random(seed);
    let rates = Rates::draw(&mut random);
    let mut shop = Shop::new(random.draw(), START_MS);
    let told = |stop: Stop| match stop {
        Stop::LogFailed => "the log failed though no operation of the disk did".to_owned(),
        Stop::Wrong(what) => what,
    };
    for _ in 0..STEPS {
        step(&mut shop, &rates).map_err(told)?;
    }
    meet::meet(&mut shop).map_err(told)?;
    Ok(shop)
}
