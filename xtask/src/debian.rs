//! What the tests need beyond the Rust toolchain, and where Debian keeps it.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use crate::failure::Failure;
use crate::steps;

/// A program that a step starts.
struct Need {
    program: &'static str,
    package: &'static str,
}

/// The whole list. `cc` builds SQLite and the cryptography, `git` lists the files for tidy.
const NEEDS: &[Need] =
    &[Need { program: "cc", package: "gcc" }, Need { program: "git", package: "git" }];

/// Installs what is missing where this user is root, else names it.
///
/// # Errors
/// [`Failure::Missing`] for a user who may not install, [`Failure::Exit`] where apt-get failed.
pub(crate) fn provide() -> Result<(), Failure> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<_> = std::env::split_paths(&path).collect();
    let packages = missing(NEEDS, |program| folders.iter().any(|dir| dir.join(program).is_file()));
    if packages.is_empty() {
        println!("nothing is missing");
        return Ok(());
    }
    if !is_root() || !Path::new("/usr/bin/apt-get").exists() {
        return Err(Failure::Missing { packages });
    }
    println!("installing: {}", packages.join(" "));
    apt_get(&["update", "-q"])?;
    let install = ["install", "-q", "-y", "--no-install-recommends"];
    apt_get(&[install.as_slice(), packages.as_slice()].concat())
}

fn missing(needs: &[Need], is_there: impl Fn(&str) -> bool) -> Vec<&'static str> {
    needs.iter().filter(|need| !is_there(need.program)).map(|need| need.package).collect()
}

/// The owner of /proc/self is the effective user.
fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|entry| entry.uid() == 0)
}

fn apt_get(arguments: &[&str]) -> Result<(), Failure> {
    let mut command = Command::new("apt-get");
    command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
    steps::succeed(&mut command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_missing_is_named() {
        let needs = [
            Need { program: "here", package: "package-here" },
            Need { program: "gone", package: "package-gone" },
        ];
        assert_eq!(missing(&needs, |program| program == "here"), ["package-gone"]);
        assert!(missing(&needs, |_| true).is_empty());
    }

    #[test]
    fn someone_without_root_is_told_the_packages() {
        let failure = Failure::Missing { packages: vec!["gcc", "git"] };
        assert!(failure.to_string().ends_with("apt-get install gcc git"));
    }
}
