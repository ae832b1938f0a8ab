//! The flags of `sluice bench resp`, and what they add up to.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;

use super::super::BenchError;
use super::super::shared::LoadArgs;

/// Calls that a connection keeps in flight at most.
pub(super) const DEPTH_MAX: u32 = 4096;

/// Arguments of `sluice bench resp`.
#[derive(Clone, Debug, clap::Args)]
pub(in super::super) struct RespArgs {
    /// The server: Sluice's Redis port, or a Redis or Valkey with the function library loaded
    #[arg(
        long,
        visible_alias = "peer",
        default_value = "127.0.0.1:6379",
        value_name = "HOST:PORT"
    )]
    address: String,
    /// The user to authenticate as
    #[arg(long, requires = "password_file")]
    user: Option<String>,
    /// File with the user's password
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    #[command(flatten)]
    pub(super) load: LoadArgs,
    /// Calls that each connection keeps in flight
    #[arg(long, default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(DEPTH_MAX)))]
    pub(super) depth: u32,
    /// Follow each batch of calls with `WAITAOF 1 0`, and count an answer from there: what a Redis
    /// needs for an answer that is on disk
    #[arg(long = "waitaof")]
    pub(super) wait_aof: bool,
}

impl RespArgs {
    /// The address.
    ///
    /// # Errors
    /// It is none.
    pub(super) fn server(&self) -> Result<SocketAddr, BenchError> {
        let source = |source| BenchError::Host { authority: self.address.clone(), source };
        let found = self.address.to_socket_addrs().map_err(source)?.next();
        found.ok_or_else(|| BenchError::Url { url: self.address.clone() })
    }

    /// User and password.
    ///
    /// # Errors
    /// The password's file can't be read.
    pub(super) fn credentials(&self) -> Result<Option<(String, String)>, BenchError> {
        let (Some(user), Some(path)) = (&self.user, &self.password_file) else { return Ok(None) };
        let password = std::fs::read_to_string(path)?;
        Ok(Some((user.clone(), password.trim_end_matches(['\r', '\n']).to_owned())))
    }

    /// The run in words.
    pub(super) fn describe(&self, activity: u64, requests: Option<u64>) -> String {
        let durable = if self.wait_aof { ", WAITAOF" } else { "" };
        format!(
            "sluice bench resp {}: {}, depth {}{durable}",
            self.address,
            self.load.describe(activity, requests),
            self.depth
        )
    }
}
