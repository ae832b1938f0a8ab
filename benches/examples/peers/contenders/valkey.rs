//! A private Valkey or Redis, with the function library or with the older systems' script.

use std::ffi::OsString;
use std::net::{SocketAddr, TcpListener};
use std::process::Command;

use super::{Stage, Standing};
use crate::client::{Check, Target};
use crate::cost::Log;
use crate::process::Running;
use crate::trouble::Trouble;

/// The variable that names a Redis 8, by its path; `cargo xtask bench peers` provides one.
const REDIS_SERVER: &str = "SLUICE_REDIS_SERVER";

/// The Redis 8 that takes part, if one does.
pub(crate) fn redis_server() -> Option<OsString> {
    std::env::var_os(REDIS_SERVER)
}

/// Which of the two.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Product {
    /// The machine's own.
    Valkey,
    /// The one that is named: another version would stand under a false name.
    Redis8,
}

/// When it has its file on disk, and who is told.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Sync {
    /// Before it answers.
    Always,
    /// Before it answers, and it is asked besides.
    AlwaysAsked,
    /// Once a second; it is asked.
    EverySecond,
}

/// What is called there.
#[derive(Clone, Copy)]
pub(super) enum Script {
    /// `functions/sluice.lua`: the same answers as Sluice.
    Library,
    /// Stock, counter and slot alone.
    Bare,
}

/// A server with a script, and its address.
pub(super) fn start(
    stage: &Stage<'_>,
    product: Product,
    sync: Sync,
    script: Script,
) -> Result<(Running, SocketAddr), Trouble> {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let address = free.map_err(Trouble::io("find a free port"))?;
    let policy = if sync == Sync::EverySecond { "everysec" } else { "always" };
    let program = match product {
        Product::Valkey => "valkey-server".into(),
        Product::Redis8 => redis_server().ok_or(Trouble::NoRedis)?,
    };
    let mut command = Command::new(program);
    command.args(["--bind", "127.0.0.1", "--port", &address.port().to_string()]);
    command.args(["--save", "", "--appendonly", "yes", "--appendfsync", policy, "--dir"]);
    // A rewrite of the file in the middle of a turn would be measured with it.
    command.arg(stage.dir).args(["--auto-aof-rewrite-percentage", "0"]);
    let mut server = Running::start(command, stage.dir)?;
    server.line_after("Ready to accept connections")?;
    let library = match script {
        Script::Library => include_str!("../../../../functions/sluice.lua"),
        Script::Bare => include_str!("../bare.lua"),
    };
    let mut connection = redis::Client::open(format!("redis://{address}"))?.get_connection()?;
    if product == Product::Redis8 {
        let info: String = redis::cmd("INFO").arg("server").query(&mut connection)?;
        if !info.contains("redis_version:8.") {
            return Err(Trouble::NoRedis);
        }
    }
    let () = redis::cmd("FUNCTION").arg("LOAD").arg(library).query(&mut connection)?;
    Ok((server, address))
}

/// The append-only file of the server on `stage`.
pub(super) fn log(stage: &Stage<'_>) -> Log {
    Log::Files(stage.dir.join("appendonlydir"))
}

pub(super) fn contend(
    stage: &Stage<'_>,
    product: Product,
    sync: Sync,
    script: Script,
) -> Result<Standing, Trouble> {
    let (server, address) = start(stage, product, sync, script)?;
    let check = if matches!(script, Script::Bare) { Check::Figures } else { Check::All };
    let address = address.to_string();
    let mut arguments: Vec<_> = ["--address", &address].map(str::to_owned).into();
    if sync != Sync::Always {
        arguments.push("--waitaof".to_owned());
    }
    let target = Target { arguments, secret: None, sells: true, check };
    Ok(Standing { target, log: log(stage), _parts: vec![Box::new(server)] })
}
