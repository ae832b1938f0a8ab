//! A private Valkey with the library loaded.

use std::time::Duration;

use tempfile::TempDir;

use super::call::Call;
use super::process::Process;
use super::reply::Reply;

/// No answer takes this long: a test fails rather than hangs.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// A server on a Unix socket in a folder of its own; both end with the value.
pub struct Valkey {
    _process: Process,
    directory: TempDir,
    pub connection: redis::Connection,
}

impl Valkey {
    /// Starts it and loads the library.
    pub fn start() -> Self {
        let directory = TempDir::new().unwrap();
        let process = Process::start(directory.path(), &["--port", "0", "--appendonly", "no"]);
        let connection = connect(&directory, "resp3");
        let mut server = Self { _process: process, directory, connection };
        let load = ["FUNCTION", "LOAD", crate::LIBRARY];
        assert_eq!(server.command(&load), Reply::text("sluice"));
        server
    }

    /// Another connection, speaking RESP2 as older clients do.
    pub fn connect_resp2(&self) -> redis::Connection {
        connect(&self.directory, "resp2")
    }

    /// Any command.
    pub fn command(&mut self, words: &[&str]) -> Reply {
        let mut command = redis::Cmd::new();
        for word in words {
            command.arg(word);
        }
        Reply::of(command.query(&mut self.connection))
    }

    /// A call of the library.
    pub fn call(&mut self, call: &Call) -> Reply {
        Reply::of(call.command().query(&mut self.connection))
    }

    /// A call of the library, written as its name, the activity and the arguments.
    pub fn say(&mut self, line: &str) -> Reply {
        self.call(&Call::parse(line))
    }

    /// The value of a string key.
    pub fn value(&mut self, key: &str) -> Option<String> {
        redis::cmd("GET").arg(key).query(&mut self.connection).unwrap()
    }

    /// When a key ends, Unix milliseconds; `None` for a key that lives until it is deleted.
    pub fn ends_ms(&mut self, key: &str) -> Option<u64> {
        let ends: i64 = redis::cmd("PEXPIRETIME").arg(key).query(&mut self.connection).unwrap();
        assert_ne!(ends, -2, "there is no key {key}");
        u64::try_from(ends).ok()
    }

    /// The server's clock, Unix milliseconds.
    pub fn now_ms(&mut self) -> u64 {
        let (seconds, micros): (u64, u64) = redis::cmd("TIME").query(&mut self.connection).unwrap();
        seconds * 1000 + micros / 1000
    }
}

fn connect(directory: &TempDir, protocol: &str) -> redis::Connection {
    let path = directory.path().join("s");
    let url = format!("redis+unix://{}?protocol={protocol}", path.to_str().unwrap());
    let connection = redis::Client::open(url).unwrap().get_connection().unwrap();
    connection.set_read_timeout(Some(ANSWER_TIMEOUT)).unwrap();
    connection
}
