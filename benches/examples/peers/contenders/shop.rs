//! Contenders over HTTP that are not Sluice: this binary's other commands, over private stores.

use std::any::Any;
use std::process::Command;

use super::valkey::{self, Product, Script, Sync};
use super::{SECRET, Stage, Standing};
use crate::client::{Check, Target};
use crate::cost::Log;
use crate::process::Running;
use crate::support::baseline::{self, DURABLE};
use crate::support::mariadb::MariaDb;
use crate::trouble::Trouble;

/// What the service keeps its sale in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Store {
    /// Valkey, all requests over one connection
    Multiplexed,
    /// Valkey, each request on a connection of a pool: the script, then `WAITAOF`
    Pool,
    /// MariaDB, one transaction a purchase
    Mariadb,
}

pub(super) fn contend(stage: &Stage<'_>, store: Store) -> Result<Standing, Trouble> {
    let (keeper, url): (Box<dyn Any>, _) = match store {
        Store::Multiplexed | Store::Pool => {
            let (server, address) =
                valkey::start(stage, Product::Valkey, Sync::Always, Script::Bare)?;
            (Box::new(server), format!("redis://{address}"))
        }
        Store::Mariadb => {
            let server = MariaDb::start_in(stage.dir, &DURABLE);
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(Trouble::io("make a runtime"))?;
            // The client says how many units there are.
            let url = runtime.block_on(baseline::prepare(&server, "shop", 0));
            (Box::new(server), url)
        }
    };
    let name = match store {
        Store::Multiplexed => "multiplexed",
        Store::Pool => "pool",
        Store::Mariadb => "mariadb",
    };
    let mut command = Command::new(stage.me);
    command.args(["service", "--store", name, "--url", &url, "--secret", SECRET]);
    let dir = stage.dir.join("service");
    std::fs::create_dir(&dir).map_err(Trouble::io("make a service's directory"))?;
    let mut service = Running::start(command, &dir)?;
    let address = service.line_after("listening on ")?;
    let target = target(&address, Check::Figures, &[]);
    let log = match store {
        Store::Multiplexed | Store::Pool => valkey::log(stage),
        Store::Mariadb => Log::None,
    };
    Ok(Standing { target, log, _parts: vec![Box::new(service), keeper] })
}

pub(super) fn hello(stage: &Stage<'_>, arguments: &[&str]) -> Result<Standing, Trouble> {
    let mut command = Command::new(stage.me);
    command.arg("hello").args(arguments);
    let mut server = Running::start(command, stage.dir)?;
    let address = server.line_after("listening on ")?;
    let target = target(&address, Check::None, &["--activity", "30001"]);
    Ok(Standing { target, log: Log::None, _parts: vec![Box::new(server)] })
}

fn target(url: &str, check: Check, more: &[&str]) -> Target {
    let arguments = ["--url", url].iter().chain(more).map(|it| (*it).to_owned()).collect();
    Target { arguments, secret: Some(SECRET), sells: check != Check::None, check }
}
