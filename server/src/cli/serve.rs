//! `sluice serve`: flags, and what they become.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use super::{EXIT_OK, EXIT_USAGE};
use crate::config::{self, Flags};
use crate::production::{self, Finding};
use crate::serve::{self, ServeError};

/// Arguments of `sluice serve`. Each can stand in the configuration file and in the environment
/// as well; a flag wins.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Read settings from this TOML file (also SLUICE_CONFIG).
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where the log and the embedded database live [default: ./data].
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// The HTTP address; port 0 takes a free one [default: 127.0.0.1:8080].
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// The Redis protocol address; loopback unless resp.users are configured.
    #[arg(long, value_name = "ADDR")]
    resp_listen: Option<String>,
    /// Where orders go: sqlite:PATH or mysql://USER@HOST/DATABASE
    /// [default: sqlite:DATA_DIR/orders.db].
    #[arg(long, value_name = "URL")]
    database: Option<String>,
    /// The Redis to mirror to: redis://HOST:PORT/DB or redis+unix://PATH.
    #[arg(long, value_name = "URL")]
    redis: Option<String>,
    /// Take over the reservations of the older system in this database, which is only read:
    /// sqlite:PATH or mysql://USER@HOST/DATABASE.
    #[arg(long, value_name = "URL")]
    legacy_database: Option<String>,
    /// Make a sale and shoppers to play with, and print how to buy.
    #[arg(long)]
    demo: bool,
    /// Print every setting with its value and where it came from, and exit.
    #[arg(long)]
    print_config: bool,
    /// Check the configuration and exit: 0 where it is good, 2 where it isn't.
    #[arg(long)]
    check_config: bool,
    /// Start although the wall clock is behind the log's last time.
    #[arg(long)]
    accept_clock: bool,
    /// Start although the file system can't keep what it promises.
    #[arg(long)]
    accept_file_system: bool,
    /// For tests: decide a call of the Redis port at the time it gives.
    #[arg(long)]
    test_clock: bool,
    /// Write log lines as JSON.
    #[arg(long)]
    log_json: bool,
    /// What to log: error, warn, info, or a filter such as warn,bridge=info [default: info].
    #[arg(long, value_name = "FILTER")]
    log_level: Option<String>,
}

impl Args {
    fn flags(self) -> Flags {
        let mut flags = Flags { file: self.config, values: Vec::new() };
        flags.set("data_dir", self.data_dir.map(|path| path.display().to_string()));
        flags.set("listen", self.listen);
        flags.set("resp_listen", self.resp_listen);
        flags.set("database", self.database);
        flags.set("redis", self.redis);
        flags.set("legacy_database", self.legacy_database);
        flags.set("demo", self.demo.then_some(true));
        flags.set("accept_clock", self.accept_clock.then_some(true));
        flags.set("accept_file_system", self.accept_file_system.then_some(true));
        flags.set("test_clock", self.test_clock.then_some(true));
        flags.set("log_json", self.log_json.then_some(true));
        flags.set("log_level", self.log_level);
        flags
    }
}

/// Runs `sluice serve`.
pub(crate) fn run(args: Args) -> ExitCode {
    let (print, check) = (args.print_config, args.check_config);
    let flags = args.flags();
    let loaded = match config::load(&flags) {
        Ok(loaded) => loaded,
        Err(error) => return usage(&error),
    };
    if print {
        return say(&config::render(&loaded.origins));
    }
    if check {
        let findings = production::findings(&loaded);
        if findings.is_empty() {
            return say("the configuration is good\n");
        }
        return all(&findings);
    }
    match serve::run(flags, loaded) {
        Ok(()) => ExitCode::from(EXIT_OK),
        Err(ServeError::Findings(findings)) => all(&findings),
        Err(error) => {
            eprintln!("sluice: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

/// A reader that went away has seen what it wanted.
fn say(text: &str) -> ExitCode {
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitCode::from(EXIT_OK)
}

/// All that speaks against a start, a line each.
fn all(findings: &[Finding]) -> ExitCode {
    findings.iter().for_each(|finding| eprintln!("sluice: {finding}"));
    ExitCode::from(EXIT_USAGE)
}

fn usage(error: &dyn std::fmt::Display) -> ExitCode {
    eprintln!("sluice: {error}");
    ExitCode::from(EXIT_USAGE)
}
