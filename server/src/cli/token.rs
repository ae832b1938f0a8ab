//! `sluice token`: signed bearer tokens for scripts, load and first steps.
//!
//! Needs only the secret, so it works beside a running server, which never hears of it.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use engine::core::ids::UserId;
use engine::core::limits::ID_MAX;

use crate::config::{ConfigError, secret_for_tokens};
use crate::duration;
use crate::identity::{KeyError, Role, SignError, Tokens, tokens_of};

/// Tokens that one call prints: more would be a slip of the keyboard.
const COUNT_MAX: u64 = 10_000_000;

/// Arguments of `sluice token`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The user that the token is for
    #[arg(long, default_value = "1", value_name = "ID", value_parser = parse_user)]
    user: UserId,
    /// Make it an admin's token
    #[arg(long)]
    admin: bool,
    /// How long it is valid, for example 30s, 2h, 7d
    #[arg(long, default_value = "2h", value_parser = parse_ttl)]
    ttl: Duration,
    /// Print this many tokens, one a line, for users ID, ID+1, ...
    #[arg(long, default_value_t = 1,
        value_parser = clap::value_parser!(u64).range(1..=COUNT_MAX))]
    count: u64,
    /// Configuration file that names the secret
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Data directory with a demo's secret
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

/// Why there is no token. Each message is one line that says what to do.
#[derive(Debug, thiserror::Error)]
pub(super) enum TokenError {
    /// There is no secret to sign with.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A key can't be used.
    #[error(transparent)]
    Key(Box<KeyError>),
    /// Signing failed.
    #[error(transparent)]
    Sign(#[from] SignError),
    /// Users beyond the largest id were asked for.
    #[error("there is no user {0}: ids end at {ID_MAX}")]
    NoSuchUser(u64),
    /// Standard output failed.
    #[error("the tokens could not be written: {0}")]
    Output(io::Error),
}

impl From<KeyError> for TokenError {
    fn from(error: KeyError) -> Self {
        Self::Key(Box::new(error))
    }
}

fn parse_user(text: &str) -> Result<UserId, String> {
    let id = text.parse().ok().and_then(UserId::new);
    id.ok_or_else(|| format!("a user id is a number in 1..={ID_MAX}"))
}

fn parse_ttl(text: &str) -> Result<Duration, &'static str> {
    match duration::parse(text) {
        Some(ttl) if ttl >= Duration::from_secs(1) => Ok(ttl),
        _ => Err("at least a second is wanted, for example 30s, 2h, 7d"),
    }
}

/// Signs tokens with the configured secret, or with the one in a demo's data directory.
pub(super) struct Signer(Tokens);

impl Signer {
    /// Finds the secret.
    ///
    /// # Errors
    /// Where there is none, or the configuration can't be read.
    pub(super) fn open(config: Option<&Path>, data_dir: Option<&Path>) -> Result<Self, TokenError> {
        let (loaded, secret) = secret_for_tokens(config, data_dir)?;
        Ok(Self(tokens_of(&loaded, secret.as_ref())?))
    }

    /// A token for user number `user`.
    ///
    /// # Errors
    /// Where no user can have that number.
    pub(super) fn sign(&self, user: u64, role: Role, ttl: Duration) -> Result<String, TokenError> {
        let user = UserId::new(user).ok_or(TokenError::NoSuchUser(user))?;
        Ok(self.0.sign(user, role, ttl)?)
    }
}

/// Runs `sluice token`.
pub(crate) fn run(args: Args) -> ExitCode {
    match print(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sluice token: {error}");
            ExitCode::from(super::EXIT_USAGE)
        }
    }
}

fn print(args: &Args) -> Result<(), TokenError> {
    let signer = Signer::open(args.config.as_deref(), args.data_dir.as_deref())?;
    let role = if args.admin { Role::Admin } else { Role::User };
    let mut out = io::BufWriter::new(io::stdout().lock());
    for user in (args.user.get()..).take(usize::try_from(args.count).unwrap_or(usize::MAX)) {
        let token = signer.sign(user, role, args.ttl)?;
        match writeln!(out, "{token}") {
            // Whoever reads has enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            written => written.map_err(TokenError::Output)?,
        }
    }
    out.flush().map_err(TokenError::Output)
}
