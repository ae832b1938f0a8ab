//! Runs a campaign, or one case of it again: `cargo xtask sim --help`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use sim::report::{Report, Scale, Settings};
use sim::workload::{Step, parse};
use sim::{compound, corrupt, crash, errors, kill, lies, mangle, planted, trace, whole};
use wal::device::sim::{Fault, FaultKind, Lie};
use wal::planted::Bug;

const HELP: &str = "\
sim CAMPAIGN [--seed N] [--scale quick|ci|long] [--bug NAME]
             [--workload WORD [CASE]]

campaigns, and what names a case of a workload:
  crash      --point N --cut N
  errors     --at N --kind NAME [--lasting] [--cut N]
  compound   --first N --operation N
  corrupt    [--torn] --case N
  mangle     --case N (without a workload)
  lies       --at N [--lasting]
  kill       (a real process in the directory for temporary files)
  trace      [--notes FILE [--operation N --cut N]] (real runs in the directory for temporary
             files; one that failed is kept there as FILE)
  planted    (every known fault against every campaign)
  whole      [--seed N] [--fault NAME]: one seed where it is given

A workload is a word; its letters are steps: s one block, b several blocks, r rotate, i idle,
p make a spare, c close, o reopen, k kill and reopen. A failing case prints its command.
";

/// What was asked for cannot be made sense of.
struct Usage(String);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(Usage(what)) => {
            eprintln!("sim: {what}\n\n{HELP}");
            ExitCode::from(2)
        }
    }
}

/// The arguments after the campaign's name.
struct Arguments<'a>(&'a [String]);

impl Arguments<'_> {
    fn flag(&self, name: &str) -> bool {
        self.0.iter().any(|argument| argument == name)
    }

    fn text(&self, name: &str) -> Result<Option<&str>, Usage> {
        let Some(at) = self.0.iter().position(|argument| argument == name) else { return Ok(None) };
        let value = self.0.get(at + 1).ok_or_else(|| Usage(format!("{name} needs a value")))?;
        Ok(Some(value))
    }

    fn number(&self, name: &str) -> Result<Option<u64>, Usage> {
        let wrong = |_| Usage(format!("{name} needs a number"));
        self.text(name)?.map(|text| text.parse().map_err(wrong)).transpose()
    }

    fn index(&self, name: &str) -> Result<Option<usize>, Usage> {
        let wrong = |_| Usage(format!("{name} is too large"));
        self.number(name)?.map(|number| usize::try_from(number).map_err(wrong)).transpose()
    }

    /// The one of `all` whose name in the code was given.
    fn named<T: Copy + std::fmt::Debug>(&self, name: &str, all: &[T]) -> Result<Option<T>, Usage> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let found = all.iter().find(|one| format!("{one:?}") == text);
        found.copied().map(Some).ok_or_else(|| Usage(format!("{name} is one of {all:?}")))
    }

    fn settings(&self) -> Result<Settings, Usage> {
        let standard = Settings::standard();
        let scale = match self.text("--scale")? {
            None => standard.scale,
            Some("quick") => Scale::Quick,
            Some("ci") => Scale::Ci,
            Some("long") => Scale::Long,
            Some(other) => return Err(Usage(format!("there is no scale {other}"))),
        };
        let seed = self.number("--seed")?.unwrap_or(standard.seed);
        Ok(Settings { scale, seed, bug: self.named("--bug", Bug::ALL)? })
    }

    fn workload(&self) -> Result<Option<(&str, Vec<Step>)>, Usage> {
        let Some(word) = self.text("--workload")? else { return Ok(None) };
        let steps = parse(word).ok_or_else(|| Usage(format!("{word} is no workload")))?;
        Ok(Some((word, steps)))
    }
}

/// Runs what was asked for; tells whether all went well.
fn run(arguments: &[String]) -> Result<bool, Usage> {
    let Some((campaign, rest)) = arguments.split_first() else {
        return Err(Usage("name a campaign".to_owned()));
    };
    let rest = Arguments(rest);
    if ["--help", "-h"].contains(&campaign.as_str()) || rest.flag("--help") {
        print!("{HELP}");
        return Ok(true);
    }
    if campaign == "kill" && rest.flag("--child") {
        return child(&rest);
    }
    let settings = rest.settings()?;
    let report = match (campaign.as_str(), rest.workload()?) {
        ("crash", None) => crash::run(settings),
        ("crash", Some((_, steps))) => {
            crash::again(&steps, settings, rest.index("--point")?, rest.index("--cut")?)
        }
        ("errors", None) => errors::run(settings).report,
        ("errors", Some((_, steps))) => again_with_errors(&rest, &steps, settings)?,
        ("compound", None) => compound::run(settings),
        ("compound", Some((_, steps))) => {
            let case = rest.index("--first")?.zip(rest.index("--operation")?);
            compound::again(&steps, settings, case)
        }
        ("corrupt", None) => corrupt::run(settings),
        ("corrupt", Some((word, _))) => {
            corrupt::again(word, rest.flag("--torn"), settings, rest.index("--case")?)
        }
        ("mangle", _) => match rest.number("--case")? {
            Some(case) => mangle::again(settings, case),
            None => mangle::run(settings),
        },
        ("lies", None) => lies::run(settings),
        ("lies", Some((_, steps))) => {
            let Some(at) = rest.number("--at")? else {
                return Err(Usage("--at names the sync that lies".to_owned()));
            };
            lies::again(&steps, Lie { at, lasting: rest.flag("--lasting") }, settings)
        }
        ("kill", _) => {
            let program = std::env::current_exe();
            let program = program.map_err(|error| Usage(format!("this program: {error}")))?;
            kill::run(settings, &std::env::temp_dir(), &program)
        }
        ("trace", _) => match rest.text("--notes")? {
            Some(path) => {
                let (operation, cut) = (rest.index("--operation")?, rest.index("--cut")?);
                trace::again(settings, Path::new(path), operation, cut)
            }
            None => trace::run(settings, &std::env::temp_dir()),
        },
        ("planted", _) => return Ok(hunt(settings)),
        ("whole", _) => {
            let fault = rest.named("--fault", &whole::planted::Fault::all())?;
            match rest.number("--seed")? {
                Some(seed) => whole::again(seed, fault),
                None => whole::run(settings, fault),
            }
        }
        (other, _) => return Err(Usage(format!("there is no campaign {other}"))),
    };
    if report.counts.is_empty() && report.failed == 0 {
        return Err(Usage("there is no such case".to_owned()));
    }
    println!("{report}");
    Ok(report.failed == 0)
}

/// Is the process that the campaign of that name kills.
fn child(rest: &Arguments<'_>) -> Result<bool, Usage> {
    let missing = || Usage("a child needs --child DIR --life N --seed N".to_owned());
    let life = kill::Life {
        dir: rest.text("--child")?.map(PathBuf::from).ok_or_else(missing)?,
        number: rest.number("--life")?.ok_or_else(missing)?,
        seed: rest.number("--seed")?.ok_or_else(missing)?,
        appends: rest.flag("--appends"),
    };
    let lived = kill::live(&life);
    if let Err(error) = &lived {
        eprintln!("sim: life {}: {error}", life.number);
    }
    Ok(lived.is_ok())
}

fn again_with_errors(
    rest: &Arguments<'_>,
    steps: &[Step],
    settings: Settings,
) -> Result<Report, Usage> {
    let Some(at) = rest.number("--at")? else {
        return Err(Usage("--at names the operation that fails".to_owned()));
    };
    let Some(kind) = rest.named("--kind", FaultKind::ALL)? else {
        return Err(Usage("--kind names how it fails".to_owned()));
    };
    let fault = Fault { at, lasting: rest.flag("--lasting"), kind };
    Ok(errors::again(steps, fault, settings, rest.index("--cut")?))
}

fn hunt(settings: Settings) -> bool {
    let bugs = settings.bug.map_or(Bug::ALL.to_vec(), |bug| vec![bug]);
    let hunts: Vec<_> = bugs.into_iter().map(|bug| planted::hunt(bug, settings, true)).collect();
    println!("{}", planted::told(&hunts));
    hunts.iter().all(|hunt| !hunt.caught.is_empty())
}
