//! Sluice as a shop starts it: one process, orders into SQLite beside it.

use std::process::Command;

use super::{Stage, Standing};
use crate::client::{Check, Target};
use crate::cost::Log;
use crate::process::Running;
use crate::trouble::Trouble;

/// What Sluice calls the bytes of its log, padding included.
const LOG_BYTES: &str = "sluice_log_bytes_total";

fn start(stage: &Stage<'_>) -> Result<(Running, String, String), Trouble> {
    let data = stage.dir.join("data");
    let mut command = Command::new(stage.sluice);
    // A demo has a SKU to sell; nothing else of it is measured.
    command.args(["serve", "--demo", "--listen", "127.0.0.1:0", "--resp-listen", "127.0.0.1:0"]);
    command.arg("--data-dir").arg(&data).args(["--log-level", "warn"]);
    let mut server = Running::start(command, stage.dir)?;
    let http = server.line_after("listening on http://")?;
    let resp = server.line_after("listening on redis://")?;
    server.line_after("ready")?;
    Ok((server, http, resp))
}

pub(super) fn resp(stage: &Stage<'_>) -> Result<Standing, Trouble> {
    let (server, metrics, address) = start(stage)?;
    let log = Log::Metric(metrics, LOG_BYTES);
    let arguments = ["--address", &address].map(str::to_owned).into();
    let target = Target { arguments, secret: None, sells: true, check: Check::All };
    Ok(Standing { target, log, _parts: vec![Box::new(server)] })
}

pub(super) fn http(stage: &Stage<'_>) -> Result<Standing, Trouble> {
    let (server, address, _) = start(stage)?;
    let data = stage.dir.join("data").display().to_string();
    let url = format!("http://{address}");
    let log = Log::Metric(address, LOG_BYTES);
    let arguments = ["--url", &url, "--data-dir", &data].map(str::to_owned).into();
    let target = Target { arguments, secret: None, sells: true, check: Check::All };
    Ok(Standing { target, log, _parts: vec![Box::new(server)] })
}

/// With a header that no plain purchase has, so that hyper and axum read and answer each.
pub(super) fn http_by_router(stage: &Stage<'_>) -> Result<Standing, Trouble> {
    let mut standing = http(stage)?;
    standing.target.arguments.extend(["--header", "Trailer: none"].map(str::to_owned));
    Ok(standing)
}
