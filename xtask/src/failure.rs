//! What can go wrong in a run, and who must act.

use std::fmt;
use std::io;

/// Why a command of `cargo xtask` did not succeed. Each says what to do in one line.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line is wrong; the text is the usage.
    Usage(String),
    /// A program or a file could not be used.
    Io {
        /// The attempt, to stand after "cannot".
        what: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// A program could not be started.
    Spawn {
        /// Its name.
        program: String,
        /// The system's reason.
        source: io::Error,
    },
    /// A program ended with a failure; it has said why.
    Exit {
        /// The command line.
        command: String,
    },
    /// Tests failed; they have said why.
    Tests {
        /// How many.
        failed: u64,
    },
    /// A step took several times its budget: a slow-down must not hide as patience.
    TooSlow {
        /// Minutes that the step may take at most.
        limit_minutes: u64,
    },
    /// The tree breaks rules of the house; they were printed.
    Untidy {
        /// How many places.
        problems: usize,
    },
    /// The test that must fail was not seen to: what else fails may not be seen either.
    Blind {
        /// Whether it was run and failed.
        has_died: bool,
        /// Whether it counts as one failed test.
        is_counted: bool,
        /// Whether a run in which it failed has failed.
        is_red: bool,
    },
    /// Tests reach less of the code than they did.
    Uncovered {
        /// How many bounds are broken.
        bounds: usize,
    },
    /// Something takes more than its bound; the table says what.
    Slower {
        /// How many bounds are broken.
        bounds: usize,
    },
    /// The fuzzer found an input that breaks a claim.
    Found {
        /// The target.
        target: String,
    },
    /// A program printed what is not understood.
    Unread {
        /// Its name.
        program: &'static str,
    },
    /// Programs are missing and this user may not install them.
    Missing {
        /// The Debian packages that hold them.
        packages: Vec<&'static str>,
    },
    /// A package is in no source that this machine has, nor can its backports suite be derived.
    Backports,
    /// The machine has no source that a suite of Debian could be derived from.
    NoSuite {
        /// The suite.
        suite: &'static str,
    },
    /// A package, unpacked with all that it needs, has no such file.
    NotInPackage {
        /// The package.
        package: &'static str,
        /// The file, as a path in the package.
        file: &'static str,
    },
    /// A step failed, and the run ended there.
    Step {
        /// The step's name.
        name: &'static str,
    },
}

impl Failure {
    /// The exit status that stands for this failure.
    pub(crate) fn exit_code(&self) -> u8 {
        if matches!(self, Self::Usage(_)) { 2 } else { 1 }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(usage) => f.write_str(usage),
            Self::Io { what, source } => write!(f, "cannot {what}: {source}"),
            Self::Spawn { program, source } => write!(f, "cannot start {program}: {source}"),
            Self::Exit { command } => write!(f, "`{command}` failed; its output says why"),
            Self::Tests { failed } => write!(f, "{failed} tests failed; see their output above"),
            Self::TooSlow { limit_minutes } => write!(
                f,
                "took longer than {limit_minutes} minutes, four times its budget: find what \
                 slowed down, or raise the budget in xtask/src/plan.rs with a reason"
            ),
            Self::Blind { has_died, is_counted, is_red } => write!(
                f,
                "the test that must fail was not seen to fail (it failed: {has_died}, it was \
                 counted: {is_counted}, its run was red: {is_red}): no other green can be believed \
                 until xtask/src/canary.rs is seen to die again"
            ),
            Self::Uncovered { bounds } => write!(
                f,
                "{bounds} bounds of xtask/src/coverage.rs are broken: write a test for what is no \
                 longer reached, or change the bound with a reason"
            ),
            Self::Slower { bounds } => write!(
                f,
                "{bounds} bounds of xtask/src/instructions.rs are broken: find what grew, or raise \
                 the bound with a reason"
            ),
            Self::Found { target } => write!(
                f,
                "the fuzzer broke a claim of {target}: mend it, move the input from \
                 target/fuzz/found to sim/fuzz/corpus/{target}, and run cargo test -p fuzz"
            ),
            Self::Unread { program } => {
                write!(f, "what {program} printed is not understood: does it run by itself?")
            }
            Self::Untidy { problems } => write!(f, "tidy: {problems} to mend, listed above"),
            Self::Missing { packages } => write!(
                f,
                "programs are missing; as root run: apt-get install {} (valkey-server: in Debian \
                 12 from the suite bookworm-backports)",
                packages.join(" ")
            ),
            Self::Backports => f.write_str(
                "no source of apt's lists this release, so its backports cannot be found; install \
                 valkey-server 8 or later by hand",
            ),
            Self::NoSuite { suite } => write!(
                f,
                "no source of apt's lists this release, so Debian's suite {suite} cannot be found \
                 beside it; name a server of your own in the variable that cargo xtask test --list \
                 shows"
            ),
            Self::NotInPackage { package, file } => write!(
                f,
                "the package {package} has no {file} any more: mend xtask/src/foreign.rs, or name \
                 a server of your own in the variable that cargo xtask test --list shows"
            ),
            Self::Step { name } => {
                write!(f, "step `{name}` failed; run it alone: the same command and `{name}`")
            }
        }
    }
}
