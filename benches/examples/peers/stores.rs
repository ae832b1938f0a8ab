//! How soon purchases are orders in MariaDB and keys in Valkey: after a burst, at a steady rate.
//!
//! Server, stores and client share the machine, as in the rest of this program. The stores are
//! private ones, as durable as a shop has them.

use std::path::{Path, PathBuf};
use std::process::Command;

use benches::data_dir;

use crate::contenders::{Stage, mirror_store};
use crate::process::Running;
use crate::support::baseline::{self, DURABLE};
use crate::support::mariadb::MariaDb;
use crate::trouble::Trouble;

/// Connections that send the burst, and those that keep the rate.
const CONNECTIONS: [&str; 2] = ["256", "64"];

/// Arguments of `peers stores`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The sluice binary, server and client in one
    #[arg(long, value_name = "FILE")]
    sluice: PathBuf,
    /// Purchases of the burst
    #[arg(long, default_value_t = 50_000)]
    burst: u32,
    /// Purchases a second of the steady load
    #[arg(long, default_value_t = 10_000)]
    rate: u32,
    /// Seconds of it
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
}

/// Measures both; the client prints what it found.
pub(crate) fn run(args: &Args) -> Result<(), Trouble> {
    let dir = data_dir();
    let sluice = args.sluice.canonicalize().map_err(Trouble::io("find the sluice binary"))?;
    let me = std::env::current_exe().map_err(Trouble::io("find this program"))?;
    let stage = Stage { sluice: &sluice, me: &me, dir: dir.path() };
    let database = MariaDb::start_in(dir.path(), &DURABLE);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(Trouble::io("make a runtime"))?;
    let database_url = runtime.block_on(baseline::create(&database, "shop"));
    let (_redis, redis_url) = mirror_store(&stage)?;

    let data = dir.path().join("data");
    let mut command = Command::new(&sluice);
    command.args(["serve", "--demo", "--listen", "127.0.0.1:0", "--log-level", "warn"]);
    command.args(["--database", &database_url, "--redis", &redis_url, "--data-dir"]).arg(&data);
    let errors = dir.path().join("server");
    std::fs::create_dir(&errors).map_err(Trouble::io("make a server's directory"))?;
    let mut server = Running::start(command, &errors)?;
    let url = format!("http://{}", server.line_after("listening on http://")?);
    server.line_after("ready")?;

    let client = |arguments: &[&str]| load(&sluice, &data, arguments);
    let stores = ["--url", &url, "--database", &database_url, "--redis", &redis_url];
    let burst = args.burst.to_string();
    println!("\na burst of {burst} purchases");
    let sale = ["--stock", &burst, "--shoppers", &burst, "--connections", CONNECTIONS[0]];
    client(&[stores.as_slice(), &sale].concat())?;
    let (rate, steady) =
        (args.rate.to_string(), (u64::from(args.rate) * u64::from(args.seconds)).to_string());
    let first = (args.burst + 1).to_string();
    println!("\n{rate} purchases a second for {} s", args.seconds);
    let sale = ["--stock", &steady, "--shoppers", &steady, "--connections", CONNECTIONS[1]];
    let others = ["--first-user", &first, "--rate", &rate];
    client(&[stores.as_slice(), &sale, &others].concat())
}

/// One load of the client, which prints its table here.
fn load(sluice: &Path, data: &Path, arguments: &[&str]) -> Result<(), Trouble> {
    let mut command = Command::new(sluice);
    command.args(["bench", "http", "--quiet", "--data-dir"]).arg(data).args(arguments);
    let program = sluice.display().to_string();
    let status = command.status().map_err(|source| Trouble::Spawn { program, source })?;
    if status.success() {
        return Ok(());
    }
    let (contender, workload) = ("Sluice".to_owned(), "its stores".to_owned());
    Err(Trouble::Client { contender, workload, said: "its words are above".to_owned() })
}
