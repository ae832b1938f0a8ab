//! The order of a run: workload by workload, round by round, each contender its turn.

use std::path::{Path, PathBuf};
use std::time::Instant;

use benches::data_dir;

use crate::client::{self, Check, Report};
use crate::contenders::{Contender, Stage};
use crate::cost::{Cost, Usage};
use crate::figures::{CostSeries, Series};
use crate::report::{self, CostRow, Row, Table};
use crate::trouble::Trouble;
use crate::workloads::{Answer, COSTS, WORKLOADS, Workload};
use crate::{in_process, machine};

/// Arguments of `peers run`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The sluice binary, server and client in one
    #[arg(long, value_name = "FILE")]
    sluice: PathBuf,
    /// The profile that all of it is built with, for the page
    #[arg(long, value_name = "NAME", default_value = "dist")]
    profile: String,
    /// Turns of each contender at each workload
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Seconds of a load
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=60))]
    seconds: u32,
    /// Only workloads whose name contains this; may be given more than once
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Write benchmarks.md and benchmarks/*.svg into this folder; print the table alone without it
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Say what there is to measure, and measure nothing
    #[arg(long)]
    list: bool,
}

impl Args {
    fn is_wanted(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|text| name.contains(text.as_str()))
    }
}

/// Measures, and reports.
pub(crate) fn run(args: &Args) -> Result<(), Trouble> {
    let names = || {
        let loads = WORKLOADS.iter().map(|workload| workload.name);
        loads.chain(in_process::names()).chain(COSTS.iter().map(|workload| workload.name))
    };
    if args.list {
        names().for_each(|name| println!("{name}"));
        return Ok(());
    }
    let is_known = |text: &&String| !names().any(|name| name.contains(text.as_str()));
    if let Some(text) = args.only.iter().find(is_known) {
        return Err(Trouble::NoWorkload(text.clone()));
    }
    let started = Instant::now();
    let plots = args.out.as_ref().map(|out| out.join(report::FOLDER));
    if let Some(folder) = &plots {
        std::fs::create_dir_all(folder).map_err(Trouble::io("make the folder of the plots"))?;
    }
    let sluice = args.sluice.canonicalize().map_err(Trouble::io("find the sluice binary"))?;
    let me = std::env::current_exe().map_err(Trouble::io("find this program"))?;
    let mut rows = Vec::new();
    for workload in WORKLOADS.iter().filter(|workload| args.is_wanted(workload.name)) {
        rows.extend(measure(workload, args, (&sluice, &me), plots.as_deref())?);
    }
    rows.extend(in_process::measure(args.rounds, |name| args.is_wanted(name)));
    let mut costs = Vec::new();
    for workload in COSTS.iter().filter(|workload| args.is_wanted(workload.name)) {
        costs.extend(measure_costs(workload, args, (&sluice, &me))?);
    }
    let table = Table {
        rows,
        costs,
        rounds: args.rounds,
        seconds: args.seconds,
        profile: args.profile.clone(),
        facts: machine::facts(data_dir().path(), &sluice),
        took: started.elapsed(),
    };
    match &args.out {
        Some(out) => report::write(&table, out),
        None => {
            print!("{}", report::render(&table));
            Ok(())
        }
    }
}

type Programs<'a> = (&'a PathBuf, &'a PathBuf);

/// All rounds of one workload.
fn measure(
    workload: &Workload,
    args: &Args,
    programs: Programs<'_>,
    plots: Option<&Path>,
) -> Result<Vec<Row>, Trouble> {
    let contenders = workload.contenders();
    let mut series = vec![Series::default(); contenders.len()];
    for round in 0..args.rounds {
        for turn in 0..contenders.len() {
            // Another one begins in each round: what warms or wears the machine favours nobody.
            let index = (turn + round as usize) % contenders.len();
            let contender = contenders[index];
            let plot = workload.plot.filter(|_| round == 0 && index == 0);
            let plot = plots.zip(plot).map(|(folder, file)| folder.join(file));
            let (report, answer) = take_turn(contender, workload, (args.seconds, plot), programs)?;
            let kind = answer.of(&report.answers);
            eprintln!(
                "round {} {}: {}: {:.0}/s, p50 {} us, p99 {} us, {} answers",
                round + 1,
                workload.name,
                contender.name,
                kind.per_second,
                kind.p50_us,
                kind.p99_us,
                kind.count
            );
            let series = &mut series[index];
            series.per_second.push(kind.per_second);
            series.p50_us.push(micros(kind.p50_us));
            series.p99_us.push(micros(kind.p99_us));
            if let Some(drain_s) = report.drain_s {
                series.drain_s.push(drain_s);
            }
        }
    }
    let rows = contenders.into_iter().zip(series);
    Ok(rows.map(|(contender, series)| Row::new(workload.name, contender.name, series)).collect())
}

/// All rounds of one workload, for what its answers cost.
fn measure_costs(
    workload: &Workload,
    args: &Args,
    programs: Programs<'_>,
) -> Result<Vec<CostRow>, Trouble> {
    let contenders = workload.contenders();
    let mut series = vec![CostSeries::default(); contenders.len()];
    for round in 0..args.rounds {
        for (contender, series) in contenders.iter().zip(&mut series) {
            let cost = take_cost(contender, workload, args.seconds, programs)?;
            eprintln!("round {} {}: {}: {cost:?}", round + 1, workload.name, contender.name);
            series.processor_us.push(cost.processor_us);
            series.resident_bytes.push(cost.resident_bytes);
            if let Some(bytes) = cost.log_bytes {
                series.log_bytes.push(bytes);
            }
        }
    }
    let rows = contenders.into_iter().zip(series);
    let row = |(contender, series): (&Contender, _)| CostRow {
        workload: workload.name,
        contender: contender.name,
        series,
    };
    Ok(rows.map(row).collect())
}

/// What an answer costs one contender on an empty directory, all that it does afterwards included.
fn take_cost(
    contender: &Contender,
    workload: &Workload,
    seconds: u32,
    (sluice, me): Programs<'_>,
) -> Result<Cost, Trouble> {
    let dir = data_dir();
    let mut standing = contender.start(&Stage { sluice, me, dir: dir.path() })?;
    // To look each purchase up would be paid by who allows it.
    standing.target.check = standing.target.check.min(Check::Figures);
    let arguments = workload.arguments(seconds, &standing.target);
    let before = Usage::at_rest(&standing.log)?;
    let names = (contender.name, workload.name);
    let front = workload.front.command();
    let report = client::load(sluice, front, &standing.target, &arguments, names)?;
    let answers = workload.answer_at(&standing.target).of(&report.answers).count;
    Ok(Usage::at_rest(&standing.log)?.since(before, answers))
}

#[expect(clippy::cast_precision_loss, reason = "a latency is far below 2^53 microseconds")]
const fn micros(us: u64) -> f64 {
    us as f64
}

/// One contender on an empty directory, from its start to its end: what the client reports, and
/// the kind of answers that count.
fn take_turn(
    contender: &Contender,
    workload: &Workload,
    (seconds, plot): (u32, Option<PathBuf>),
    (sluice, me): Programs<'_>,
) -> Result<(Report, Answer), Trouble> {
    let dir = data_dir();
    let standing = contender.start(&Stage { sluice, me, dir: dir.path() })?;
    let mut arguments = workload.arguments(seconds, &standing.target);
    if let Some(plot) = plot {
        arguments.extend(["--plot".to_owned(), plot.display().to_string()]);
    }
    let names = (contender.name, workload.name);
    let front = workload.front.command();
    let report = client::load(sluice, front, &standing.target, &arguments, names)?;
    Ok((report, workload.answer_at(&standing.target)))
}
