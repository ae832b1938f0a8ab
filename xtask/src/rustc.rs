//! This program in the place of the compiler, for builds that look into what they run.
//!
//! Cargo is told to compile this workspace's crates, and only these, through a copy of this program
//! whose name says what to add. So dependencies are built once for all, and measuring the product
//! does not measure them. The name is part of what cargo keeps its results by.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, ExitCode};

use crate::failure::Failure;

/// How a build is looked into.
pub(crate) struct Instruments {
    /// Name of the copy of this program.
    name: &'static str,
    /// What the compiler is told besides.
    flags: &'static [&'static str],
    /// Whether the compiler must be asked to take flags that are not stable.
    unstable: bool,
}

/// Coverage as the fuzzer wants it: a counter for each edge, and what is compared with what.
pub(crate) const FUZZER: Instruments = Instruments {
    name: "rustc-for-fuzzer",
    flags: &[
        "-Cpasses=sancov-module",
        "-Cllvm-args=-sanitizer-coverage-level=4",
        "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
        "-Cllvm-args=-sanitizer-coverage-pc-table",
        "-Cllvm-args=-sanitizer-coverage-trace-compares",
        // Else the linker drops the tables of some units and the counters do not match them.
        "-Ccodegen-units=1",
    ],
    unstable: false,
};

/// Coverage as people want it, with branches.
pub(crate) const COVERAGE: Instruments = Instruments {
    name: "rustc-for-coverage",
    flags: &[
        "-Cinstrument-coverage",
        "-Zcoverage-options=branch",
        // What is compiled into each crate that calls it is counted in none but the first.
        "-Zcross-crate-inline-threshold=never",
        // The tools at PyPI cannot unpack.
        "-Cllvm-args=-enable-name-compression=false",
    ],
    unstable: true,
};

const ALL: &[Instruments] = &[FUZZER, COVERAGE];

/// The variable that makes cargo compile through `instruments`.
///
/// # Errors
/// [`Failure::Io`] where the copy can't be made.
pub(crate) fn wrapper(instruments: &Instruments) -> Result<(&'static str, OsString), Failure> {
    let failed = |source| Failure::Io { what: "copy this program", source };
    let myself = std::env::current_exe().map_err(failed)?;
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    let folder = std::path::absolute(target).map_err(failed)?.join("xtask");
    std::fs::create_dir_all(&folder).map_err(failed)?;
    let copy = folder.join(instruments.name);
    // Beside and renamed: an older copy may be running.
    let fresh = copy.with_extension(std::process::id().to_string());
    std::fs::copy(myself, &fresh).map_err(failed)?;
    std::fs::rename(fresh, &copy).map_err(failed)?;
    Ok(("RUSTC_WORKSPACE_WRAPPER", copy.into()))
}

/// Compiles, where this program runs under the name of a copy: the arguments are the compiler and
/// its own.
pub(crate) fn stand_in(arguments: &[String]) -> Option<ExitCode> {
    let myself = std::env::args_os().next()?;
    let name = Path::new(&myself).file_name()?.to_str()?;
    let instruments = ALL.iter().find(|it| it.name == name)?;
    let (compiler, arguments) = arguments.split_first()?;
    let mut command = Command::new(compiler);
    command.args(arguments);
    if is_compiling(arguments) {
        command.args(instruments.flags);
        if instruments.unstable {
            command.env("RUSTC_BOOTSTRAP", "1");
        }
    }
    let succeeded = command.status().is_ok_and(|status| status.success());
    Some(if succeeded { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Whether a crate of the product or its tests is compiled: not a question about the compiler, nor
/// a build script, which runs in a process of its own.
fn is_compiling(arguments: &[String]) -> bool {
    let name = arguments.iter().position(|it| it == "--crate-name");
    let name = name.and_then(|at| arguments.get(at + 1));
    name.is_some_and(|name| name != "___" && !name.starts_with("build_script"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_are_looked_into_and_questions_and_build_scripts_are_not() {
        let is = |words: &[&str]| {
            is_compiling(&words.iter().map(|word| word.to_string()).collect::<Vec<_>>())
        };
        assert!(is(&["--crate-name", "wal", "--edition=2024"]));
        assert!(!is(&["-vV"]));
        assert!(!is(&["-", "--crate-name", "___", "--print=file-names"]));
        assert!(!is(&["--crate-name", "build_script_build"]));
    }

    #[test]
    fn under_its_own_name_this_program_compiles_nothing() {
        assert!(stand_in(&["rustc".to_owned()]).is_none());
    }
}
