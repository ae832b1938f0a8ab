//! Steps: commands that are run one after another, timed, and ended at the first failure.
//!
//! Lanes run side by side: the first shows what its commands print as it comes, each other one
//! shows a step's output whole when the step has ended, so that no two are mixed.

use std::ffi::OsString;
use std::fmt;
use std::io::{BufRead, BufReader, PipeReader, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::counts;
use crate::failure::Failure;
use crate::foreign::Foreign;
use crate::totals::Totals;

/// One thing to do, under a name that a person can ask for.
pub(crate) struct Step {
    /// Its name on the command line and in the summary.
    pub(crate) name: &'static str,
    /// What it does.
    pub(crate) work: Work,
    /// Minutes it should take at most on two cores. At four times that it fails, so that a
    /// slow-down cannot quietly eat the time that campaigns are given.
    pub(crate) budget_minutes: u64,
}

/// What a step does.
#[derive(Clone, Copy)]
pub(crate) enum Work {
    /// Runs cargo with these arguments, split at spaces, under these variables, beside a server
    /// that is fetched where it is not there.
    Cargo {
        arguments: &'static str,
        environment: &'static [(&'static str, &'static str)],
        server: Option<&'static Foreign>,
    },
    /// Calls a function of this program.
    Call(fn() -> Result<(), Failure>),
}

impl Work {
    /// Cargo with these arguments and nothing else.
    pub(crate) const fn cargo(arguments: &'static str) -> Self {
        Self::Cargo { arguments, environment: &[], server: None }
    }

    /// The same under these variables.
    pub(crate) const fn with(self, environment: &'static [(&'static str, &'static str)]) -> Self {
        match self {
            Self::Cargo { arguments, server, .. } => Self::Cargo { arguments, environment, server },
            Self::Call(function) => Self::Call(function),
        }
    }

    /// The same with a server of another version than the machine's.
    pub(crate) const fn beside(self, server: &'static Foreign) -> Self {
        match self {
            Self::Cargo { arguments, environment, .. } => {
                Self::Cargo { arguments, environment, server: Some(server) }
            }
            Self::Call(function) => Self::Call(function),
        }
    }
}

/// The command line a person would type.
impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cargo { arguments, environment, server } => {
                for (name, value) in *environment {
                    write!(f, "{name}='{value}' ")?;
                }
                if let Some(server) = server {
                    write!(f, "{}={} ", server.variable, server.starter().display())?;
                }
                f.write_str("cargo")?;
                arguments.split_whitespace().try_for_each(|word| match word.contains('\'') {
                    true => write!(f, " \"{word}\""),
                    false => write!(f, " {word}"),
                })
            }
            Self::Call(_) => f.write_str("(in this program)"),
        }
    }
}

/// How one step went.
pub(crate) struct Outcome {
    pub(crate) name: &'static str,
    pub(crate) took: Duration,
    pub(crate) totals: Totals,
    pub(crate) failure: Option<Failure>,
}

/// Where a lane's output goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    /// On the terminal, line by line.
    AsItComes,
    /// On the terminal when the step has ended.
    AtTheEnd,
}

/// Runs the steps in order and stops after the first that fails.
pub(crate) fn run_all(steps: &[Step]) -> Vec<Outcome> {
    run_lane(steps, Shown::AsItComes, &AtomicBool::new(false))
}

/// Runs the lanes side by side, each in order. After a failure no lane begins another step.
pub(crate) fn run_lanes(lanes: &[Vec<Step>]) -> Vec<Outcome> {
    let failed = AtomicBool::new(false);
    thread::scope(|scope| {
        let mut running = Vec::new();
        for (index, lane) in lanes.iter().enumerate() {
            let shown = if index == 0 { Shown::AsItComes } else { Shown::AtTheEnd };
            let failed = &failed;
            running.push(scope.spawn(move || run_lane(lane, shown, failed)));
        }
        running.into_iter().flat_map(|lane| lane.join().expect("a lane does not panic")).collect()
    })
}

fn run_lane(steps: &[Step], shown: Shown, any_failed: &AtomicBool) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for step in steps {
        if any_failed.load(Ordering::Relaxed) {
            break;
        }
        println!("\n==> {}: {}", step.name, step.work);
        let outcome = run_one(step, shown, &mut std::io::stdout());
        if let Some(failure) = &outcome.failure {
            println!("==> {}: FAILED: {failure}", step.name);
            any_failed.store(true, Ordering::Relaxed);
        }
        outcomes.push(outcome);
    }
    outcomes
}

/// Runs a step, and keeps to itself what it prints, errors too.
pub(crate) fn run_unseen(step: &Step) -> (Outcome, String) {
    let mut told = Vec::new();
    let outcome = run_one(step, Shown::AtTheEnd, &mut told);
    (outcome, String::from_utf8_lossy(&told).into_owned())
}

fn run_one(step: &Step, shown: Shown, terminal: &mut impl Write) -> Outcome {
    let started = Instant::now();
    let mut totals = Totals::default();
    let result = match step.work {
        Work::Call(function) => function(),
        Work::Cargo { arguments, environment, server } => {
            let mut command = cargo();
            command.args(arguments.split_whitespace()).envs(environment.iter().copied());
            command.env(counts::VARIABLE, counts::file());
            let provided = server.map_or(Ok(()), |server| {
                command.env(server.variable, server.provide()?);
                Ok(())
            });
            provided.and_then(|()| run_command(command, shown, terminal, &mut totals))
        }
    };
    let took = started.elapsed();
    Outcome { name: step.name, took, totals, failure: judge(result, totals, took, step).err() }
}

/// Runs `command`, shows its output on `terminal`, and sums the result lines. Of a lane beside the
/// first both outputs are kept, in their order.
fn run_command(
    mut command: Command,
    shown: Shown,
    terminal: &mut impl Write,
    totals: &mut Totals,
) -> Result<(), Failure> {
    let failed = |source| Failure::Io { what: "make a pipe", source };
    let (reader, writer) = std::io::pipe().map_err(failed)?;
    if shown == Shown::AtTheEnd {
        command.stderr(writer.try_clone().map_err(failed)?);
    }
    command.stdout(writer);
    if shown == Shown::AsItComes {
        return follow(command, reader, terminal, totals);
    }
    let mut kept = Vec::new();
    let result = follow(command, reader, &mut kept, totals);
    let told = terminal.write_all(&kept);
    result.and(told.map_err(|source| Failure::Io { what: "write to the terminal", source }))
}

/// A step has succeeded when its command did, no test failed, and it kept its limit.
fn judge(
    result: Result<(), Failure>,
    totals: Totals,
    took: Duration,
    step: &Step,
) -> Result<(), Failure> {
    if totals.failed > 0 {
        return Err(Failure::Tests { failed: totals.failed });
    }
    result?;
    let limit_minutes = 4 * step.budget_minutes;
    if took > Duration::from_secs(60 * limit_minutes) {
        return Err(Failure::TooSlow { limit_minutes });
    }
    Ok(())
}

/// Runs `command`, which writes into the other end of `pipe`, passes that on to `terminal` line by
/// line, and sums the result lines.
fn follow(
    mut command: Command,
    pipe: PipeReader,
    terminal: &mut impl Write,
    totals: &mut Totals,
) -> Result<(), Failure> {
    let failed_to_read = |source| Failure::Io { what: "read a command's output", source };
    let child = command.spawn();
    let exit = exit(&command);
    let program = command.get_program().to_string_lossy().into_owned();
    // It holds the pipe open, which then never ends.
    drop(command);
    let mut child = child.map_err(|source| Failure::Spawn { program, source })?;
    let mut lines = BufReader::new(pipe);
    let mut line = Vec::new();
    // By bytes: what a test prints need not be UTF-8, and must not end the run.
    while lines.read_until(b'\n', &mut line).map_err(failed_to_read)? > 0 {
        terminal.write_all(&line).map_err(failed_to_read)?;
        if let Some(counts) = Totals::parse(&String::from_utf8_lossy(&line)) {
            *totals += counts;
        }
        line.clear();
    }
    let status = child.wait().map_err(failed_to_read)?;
    if status.success() { Ok(()) } else { Err(exit) }
}

/// Runs cargo with `arguments` and then `rest`, on this terminal.
///
/// # Errors
/// [`Failure::Exit`] where it failed.
pub(crate) fn pass_through(arguments: &str, rest: &[String]) -> Result<(), Failure> {
    succeed(cargo().args(arguments.split_whitespace()).args(rest))
}

/// The same under an environment variable.
///
/// # Errors
/// [`Failure::Exit`] where it failed.
pub(crate) fn pass_through_with(
    arguments: &str,
    (name, value): (&str, OsString),
) -> Result<(), Failure> {
    succeed(cargo().args(arguments.split_whitespace()).env(name, value))
}

/// What cargo prints with `arguments`.
///
/// # Errors
/// [`Failure::Spawn`] where it could not be started, [`Failure::Exit`] where it failed.
pub(crate) fn output(arguments: &str) -> Result<Vec<u8>, Failure> {
    output_of(cargo().args(arguments.split_whitespace()))
}

/// What `command` prints.
///
/// # Errors
/// As [`output`].
pub(crate) fn output_of(command: &mut Command) -> Result<Vec<u8>, Failure> {
    let output = command.stderr(Stdio::inherit()).output().map_err(|source| Failure::Spawn {
        program: command.get_program().to_string_lossy().into_owned(),
        source,
    })?;
    if output.status.success() { Ok(output.stdout) } else { Err(exit(command)) }
}

/// What `command` prints as errors, which are passed on to this terminal; the rest goes there.
///
/// # Errors
/// [`Failure::Exit`] where it failed.
pub(crate) fn errors_of(command: &mut Command) -> Result<String, Failure> {
    let failed_to_read = |source| Failure::Io { what: "read a command's output", source };
    let mut child = command.stderr(Stdio::piped()).spawn().map_err(|source| Failure::Spawn {
        program: command.get_program().to_string_lossy().into_owned(),
        source,
    })?;
    let mut told = String::new();
    if let Some(errors) = child.stderr.take() {
        for line in BufReader::new(errors).split(b'\n') {
            let line = String::from_utf8_lossy(&line.map_err(failed_to_read)?).into_owned();
            eprintln!("{line}");
            told.push_str(&line);
            told.push('\n');
        }
    }
    let status = child.wait().map_err(failed_to_read)?;
    if status.success() { Ok(told) } else { Err(exit(command)) }
}

/// Runs `command` on this terminal.
///
/// # Errors
/// [`Failure::Spawn`] where it could not be started, [`Failure::Exit`] where it failed.
pub(crate) fn succeed(command: &mut Command) -> Result<(), Failure> {
    let status = command.status().map_err(|source| Failure::Spawn {
        program: command.get_program().to_string_lossy().into_owned(),
        source,
    })?;
    if status.success() { Ok(()) } else { Err(exit(command)) }
}

fn exit(command: &Command) -> Failure {
    let mut words = vec![command.get_program().to_string_lossy()];
    words.extend(command.get_args().map(|argument| argument.to_string_lossy()));
    Failure::Exit { command: words.join(" ") }
}

/// The cargo that runs this program, so that every step uses one toolchain.
pub(crate) fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    fn step(work: Work) -> Step {
        Step { name: "probe", work, budget_minutes: 1 }
    }

    fn fails() -> Result<(), Failure> {
        Err(Failure::Untidy { problems: 1 })
    }

    #[test]
    fn the_first_failure_ends_the_run() {
        let steps = [
            step(Work::Call(|| Ok(()))),
            step(Work::Call(fails)),
            step(Work::Call(|| unreachable!("a step after a failed one"))),
        ];
        let outcomes = run_all(&steps);
        let failed: Vec<bool> = outcomes.iter().map(|outcome| outcome.failure.is_some()).collect();
        assert_eq!(failed, [false, true]);
    }

    /// The steps of two lanes that have begun.
    static BEGUN: Barrier = Barrier::new(2);

    #[test]
    fn after_a_failure_no_lane_begins_another_step() {
        let fast = || {
            BEGUN.wait();
            fails()
        };
        let slow = || {
            BEGUN.wait();
            // The other lane has nothing left to do but to say that it failed.
            thread::sleep(Duration::from_secs(1));
            Ok(())
        };
        let never = || unreachable!("a step after a failed one");
        let lanes = [fast as fn() -> _, slow].map(|first| {
            [first, never].map(|function| step(Work::Call(function))).into_iter().collect()
        });
        let outcomes = run_lanes(&lanes);
        let failed: Vec<bool> = outcomes.iter().map(|outcome| outcome.failure.is_some()).collect();
        assert_eq!(failed, [true, false], "in the order of the lanes");
    }

    #[test]
    fn a_lane_beside_the_first_keeps_both_outputs_until_the_step_ends() {
        let mut totals = Totals::default();
        let line = "test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured";
        let mut command = Command::new("sh");
        command.args(["-c", &format!("echo '{line}'; echo '{line}' >&2")]);
        let mut terminal = Vec::new();
        run_command(command, Shown::AtTheEnd, &mut terminal, &mut totals).unwrap();
        assert_eq!(totals, Totals { passed: 4, failed: 0, ignored: 2 });
        assert_eq!(String::from_utf8(terminal).unwrap(), format!("{line}\n{line}\n"));
    }

    #[test]
    fn result_lines_in_a_commands_output_are_summed() {
        let mut totals = Totals::default();
        let line = "test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured\\n";
        let mut command = Command::new("printf");
        command.arg(format!("{line}noise \\377\\n{line}"));
        let mut terminal = Vec::new();
        run_command(command, Shown::AsItComes, &mut terminal, &mut totals).unwrap();
        assert_eq!(totals, Totals { passed: 4, failed: 0, ignored: 2 });
        assert!(terminal.ends_with(b"measured\n"), "the output is passed on");
    }

    #[test]
    fn a_failed_test_fails_the_step_even_where_the_command_succeeds() {
        let totals = Totals { passed: 1, failed: 1, ignored: 0 };
        let verdict = judge(Ok(()), totals, Duration::ZERO, &step(Work::Call(|| Ok(()))));
        assert!(matches!(verdict, Err(Failure::Tests { failed: 1 })));
    }

    #[test]
    fn a_step_over_four_times_its_budget_fails() {
        let step = step(Work::Call(|| Ok(())));
        let verdict =
            |seconds| judge(Ok(()), Totals::default(), Duration::from_secs(seconds), &step);
        assert!(verdict(4 * 60).is_ok());
        assert!(matches!(verdict(4 * 60 + 1), Err(Failure::TooSlow { limit_minutes: 4 })));
    }

    #[test]
    fn a_command_that_fails_or_is_not_there_is_named() {
        let failed = succeed(Command::new("false").arg("now")).unwrap_err().to_string();
        assert!(failed.contains("`false now`"), "{failed}");
        let absent = succeed(&mut Command::new("no-such-program-here")).unwrap_err().to_string();
        assert!(absent.contains("no-such-program-here"), "{absent}");
    }
}
