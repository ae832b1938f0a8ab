//! Pythons with what a test needs, made once and kept.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;

/// One at a time: tests side by side may want the same.
static MAKING: Mutex<()> = Mutex::new(());

/// Runs `command`, which comes from `package`, and returns what it said.
pub(crate) fn run(command: &mut Command, package: &str) -> String {
    let (succeeded, said) = attempt(command, package);
    assert!(succeeded, "{command:?} failed\n{said}");
    said
}

/// Runs `command`, and returns whether it succeeded and what it said.
pub(crate) fn attempt(command: &mut Command, package: &str) -> (bool, String) {
    let program = command.get_program().to_string_lossy().into_owned();
    let Output { status, stdout, stderr } = command.output().unwrap_or_else(|error| {
        panic!(
            "{program}: {error}; install the package {package}, or let `cargo xtask test packages` \
             do it as root"
        )
    });
    let (said, errors) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    (status.success(), format!("{said}{errors}"))
}

/// A folder for programs of a Python that has what `tests/clients/<name>.txt` lists. Every release
/// there is pinned, so that no test changes by itself.
pub(crate) fn programs(name: &str) -> PathBuf {
    let _making = MAKING.lock().unwrap();
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/clients/{name}.txt"));
    let wanted = std::fs::read_to_string(&list).unwrap();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("python-{name}"));
    let (programs, made) = (folder.join("bin"), folder.join("made-from.txt"));
    // Written last: what was broken off is made anew.
    if std::fs::read_to_string(&made).is_ok_and(|known| known == wanted) {
        return programs;
    }
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder), "python3-venv");
    let mut install = Command::new(programs.join("python"));
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"]);
    run(install.arg(&list), "python3-venv");
    std::fs::write(made, wanted).unwrap();
    programs
}
