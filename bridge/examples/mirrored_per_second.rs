//! How many reservations a second reach a Valkey, with all their keys, beside the same purchases
//! made by the function library call by call: `cargo run --release -p bridge --example
//! mirrored_per_second -- [RESERVATIONS] [ROUNDS]`. Needs `valkey-server`, or the Redis that
//! `SLUICE_REDIS_SERVER` names.
//!
//! Both sides run on one private server that appends every write to its file, in turns, in the
//! same run. The mirror reads a log in memory; the calls are pipelined, 64 at a time, as a shop's
//! back end would at best. Client and server share the machine.
#![allow(clippy::unwrap_used, reason = "a measurement fails by panicking")]
#![allow(dead_code, unreachable_pub, reason = "a part of the tests' support code is used")]

#[path = "../tests/mirror/library.rs"]
mod library;
#[path = "../tests/mirror/sale.rs"]
mod sale;
#[path = "../tests/support/mod.rs"]
mod support;

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bridge::host::Host as _;
use bridge::redis::layouts::Layout;
use bridge::redis::sink::{Bounds, Mirror, Step};
use bridge::tail::{Batch, EventSource as _};
use engine::core::codec;
use wal::Lsn;

use sale::{Sale, activity_id};

/// Calls that are on their way at once.
const PIPELINE: usize = 64;

/// Ends with the value.
struct Server(Child, tempfile::TempDir);

impl Server {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let process = Command::new(functions::kit::process::program())
            .args(["--port", "0", "--save", "", "--appendonly", "yes"])
            .args(["--appendfsync", "everysec", "--unixsocket"])
            .arg(directory.path().join("s"))
            .arg("--dir")
            .arg(directory.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let server = Self(process, directory);
        let deadline = Instant::now() + Duration::from_secs(20);
        while redis::Client::open(server.url(0)).unwrap().get_connection().is_err() {
            assert!(Instant::now() < deadline, "valkey-server does not start");
            std::thread::sleep(Duration::from_millis(10));
        }
        server
    }

    fn url(&self, database: u8) -> String {
        format!("redis+unix://{}?db={database}", self.1.path().join("s").display())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// The calls that make the log's events happen.
fn calls(sale: &Sale) -> Vec<redis::Cmd> {
    let mut source = sale.source();
    source.seek(Lsn(0)).unwrap();
    let (mut batch, mut calls) = (Batch::default(), Vec::new());
    loop {
        batch.fill(&mut source, 1_000).unwrap();
        if batch.is_empty() {
            return calls;
        }
        for entry in batch.entries() {
            let event = codec::decode(entry.kind, entry.version, entry.body).unwrap();
            calls.extend(library::call(&event).map(|(call, _)| call));
        }
    }
}

fn by_calls(server: &Server, calls: &[redis::Cmd]) -> f64 {
    let mut connection = redis::Client::open(server.url(0)).unwrap().get_connection().unwrap();
    let () = redis::cmd("FLUSHALL").query(&mut connection).unwrap();
    let mut library = library::Library::load(connection);
    let started = Instant::now();
    for some in calls.chunks(PIPELINE) {
        let mut pipe = redis::Pipeline::new();
        some.iter().for_each(|call| _ = pipe.add_command(call.clone()).ignore());
        let () = pipe.query(&mut library.connection).unwrap();
    }
    started.elapsed().as_secs_f64()
}

async fn by_mirror(server: &Server, sale: &Sale, from: &str) -> f64 {
    let mut connection = redis::Client::open(server.url(0)).unwrap().get_connection().unwrap();
    let () = redis::cmd("FLUSHALL").query(&mut connection).unwrap();
    // As if the log had just begun: there is nothing to be written anew.
    let () = redis::cmd("SET").arg("sluice:cursor").arg(from).query(&mut connection).unwrap();
    let started = Instant::now();
    let url = server.url(0);
    let mut mirror = Mirror::meet(sale, &url, Layout::Flashsale, Bounds::default()).await.unwrap();
    while mirror.step().await.unwrap() != Step::CaughtUp {}
    assert!(!mirror.was_resynced());
    started.elapsed().as_secs_f64()
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number =
        |default| arguments.next().map_or(default, |text| text.parse::<u32>().unwrap());
    let (reservations, rounds) = (number(200_000), number(3));
    let sale = Sale::empty(1);
    let activity = sale.create(20_001, reservations);
    assert_eq!(activity, activity_id(0));
    let publish = engine::core::command::Command::Publish { actor: sale::ACTOR };
    assert!(sale.command(activity, publish));
    sale.commit();
    for user in 1..=reservations {
        sale.buy(activity, user.into(), 1);
        if user % 100 == 0 {
            sale.commit();
        }
    }
    sale.commit();
    let calls = calls(&sale);
    let from = format!("{} {} 0 00000000 0", sale.identity().uuid, sale.identity().epoch);
    let server = Server::start();
    for round in 1..=rounds {
        let count = f64::from(reservations);
        let library = count / by_calls(&server, &calls);
        let mirror = count / by_mirror(&server, &sale, &from).await;
        let ratio = mirror / library;
        println!(
            "round {round}: library, {PIPELINE} calls on their way: {library:.0} reservations/s; \
             mirror, all keys: {mirror:.0} reservations/s; ratio {ratio:.2}"
        );
    }
}
