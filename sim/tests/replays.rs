//! A failing case is printed with the command that runs it again: it does, whatever the
//! environment says.

use std::process::Command;

use sim::report::{Report, Scale, Settings};
use sim::whole::{self, planted::Fault};
use sim::{compound, corrupt, crash, errors, lies};
use wal::planted::Bug;

/// Another seed than that of the repository, few cases, and a fault that makes some of them fail.
fn settings(bug: Option<Bug>) -> Settings {
    Settings { scale: Scale::Quick, seed: 7, bug }
}

/// Runs the first failure's command, under another scale of the environment.
fn assert_runs_again(report: &Report) {
    assert!(report.failed > 0, "the fault was not caught: {report}");
    let told = report.to_string();
    let command = told.lines().find_map(|line| line.trim().strip_prefix("cargo xtask sim "));
    let command = command.expect("a failure is told with its command");
    let words = command.split(' ').map(|word| word.trim_matches('\''));
    let again = Command::new(env!("CARGO_BIN_EXE_sim"))
        .args(words)
        .env("SLUICE_SIM_SCALE", "long")
        .output()
        .expect("the program runs");
    let told = String::from_utf8_lossy(&again.stdout);
    assert_eq!(again.status.code(), Some(1), "{command} ends otherwise:\n{told}");
    let what = &report.failures[0].what;
    assert!(told.contains(what.as_str()), "{command} finds something else than {what}:\n{told}");
    assert!(told.contains(command), "{command} tells another command:\n{told}");
}

#[test]
fn the_command_of_a_crash_runs_it_again() {
    assert_runs_again(&crash::run(settings(Some(Bug::AckBeforeSync))));
}

#[test]
fn the_command_of_an_io_error_runs_it_again() {
    assert_runs_again(&errors::run(settings(Some(Bug::RetryAfterFailedSync))).report);
}

#[test]
fn the_command_of_a_damage_runs_it_again() {
    assert_runs_again(&corrupt::run(settings(Some(Bug::PaddingUnchecked))));
}

#[test]
fn the_command_of_a_second_blow_runs_it_again() {
    assert_runs_again(&compound::run(settings(Some(Bug::SkipSyncAtOpen))));
}

#[test]
fn the_command_of_a_lie_runs_it_again() {
    assert_runs_again(&lies::run(settings(Some(Bug::DamageTakenForTornTail))));
}

#[test]
fn the_command_of_a_whole_run_runs_it_again() {
    let fault = Fault::all().into_iter().next();
    assert_runs_again(&whole::run(settings(None), fault));
}
