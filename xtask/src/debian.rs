//! What the tests need beyond the Rust toolchain, and where Debian keeps it.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::failure::Failure;
use crate::{sources, steps};

/// A program that a step starts, or a file that one compiles with.
struct Need {
    /// Its name, looked for in the search path; or its path.
    program: &'static str,
    package: &'static str,
}

/// The whole list. `cc` builds SQLite and the cryptography, `c++` the fuzzer, `git` lists the files
/// for tidy, the function library is tested on `valkey-server`, the bridge and the shop on
/// `mariadbd`, the Redis port with `valkey-cli`, redis-py and hiredis, the HTTP port with
/// schemathesis and the client examples, `valgrind` counts instructions. The core packages bring no
/// service.
const NEEDS: &[Need] = &[
    Need { program: "cc", package: "gcc" },
    Need { program: "c++", package: "g++" },
    Need { program: "git", package: "git" },
    Need { program: "valgrind", package: "valgrind" },
    Need { program: "valkey-server", package: "valkey-server" },
    Need { program: "mariadbd", package: "mariadb-server-core" },
    Need { program: "mariadb", package: "mariadb-client-core" },
    Need { program: "valkey-cli", package: "valkey-tools" },
    Need { program: "python3", package: "python3-venv" },
    Need { program: "curl", package: "curl" },
    Need { program: "/usr/include/hiredis/hiredis.h", package: "libhiredis-dev" },
];

/// Where servers are, which is in root's search path alone.
const SERVERS_DIR: &str = "/usr/sbin";

/// What Debian asks before it starts a service.
const SERVICE_POLICY: &str = "/usr/sbin/policy-rc.d";

/// Installs what is missing where this user is root, else names it.
///
/// # Errors
/// [`Failure::Missing`] for a user who may not install, [`Failure::Exit`] where apt-get failed,
/// [`Failure::Backports`] where a package is in no source that this machine has.
pub(crate) fn provide() -> Result<(), Failure> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<_> = std::env::split_paths(&path).chain([SERVERS_DIR.into()]).collect();
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
    let _policy = NoServices::hold()?;
    let (known, backported) = packages.into_iter().partition::<Vec<_>, _>(|it| is_known(it));
    let install = ["install", "-q", "-y", "--no-install-recommends"];
    if !known.is_empty() {
        apt_get(&[install.as_slice(), known.as_slice()].concat())?;
    }
    if backported.is_empty() {
        return Ok(());
    }
    let sources = sources::with_backports()?;
    apt_get(&["update", "-q", "-o", &sources])?;
    apt_get(&[install.as_slice(), &["-o", &sources], backported.as_slice()].concat())
}

/// Whether a source of this machine has the package.
fn is_known(package: &str) -> bool {
    let mut command = Command::new("apt-cache");
    command.args(["show", package]).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// While it lives, no package that is installed starts its service: the tests start servers of
/// their own, on sockets of their own. A machine with a policy keeps that one.
struct NoServices {
    is_ours: bool,
}

impl NoServices {
    fn hold() -> Result<Self, Failure> {
        let mut options = OpenOptions::new();
        match options.write(true).create_new(true).mode(0o755).open(SERVICE_POLICY) {
            Ok(mut file) => {
                let policy = Self { is_ours: true };
                let written = file.write_all(b"#!/bin/sh\nexit 101\n");
                let what = "write the policy that no service starts";
                written.map(|()| policy).map_err(|source| Failure::Io { what, source })
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(Self { is_ours: false }),
            Err(source) => {
                Err(Failure::Io { what: "make the policy that no service starts", source })
            }
        }
    }
}

impl Drop for NoServices {
    fn drop(&mut self) {
        if self.is_ours
            && let Err(error) = std::fs::remove_file(SERVICE_POLICY)
        {
            eprintln!("xtask: remove {SERVICE_POLICY}, or no service will start: {error}");
        }
    }
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
        assert!(failure.to_string().contains("apt-get install gcc git"), "{failure}");
    }
}
