//! Private Valkey servers on Unix sockets, and a cluster of three masters; they end with the test.

use std::net::TcpListener;
use std::time::Duration;

use functions::kit::process::Process;
use redis::{Connection, FromRedisValue};
use tempfile::TempDir;

/// No answer takes this long: a test fails rather than hangs.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

pub struct Valkey {
    process: Option<Process>,
    directory: TempDir,
    arguments: Vec<String>,
}

impl Valkey {
    /// One that keeps nothing on disk but what SAVE is told to.
    pub fn start() -> Self {
        Self::start_with(&["--port", "0", "--appendonly", "no"])
    }

    pub fn start_with(arguments: &[&str]) -> Self {
        let directory = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let arguments = arguments.iter().map(|&word| word.to_owned()).collect();
        let mut server = Self { process: None, directory, arguments };
        server.resume();
        server
    }

    /// Starts it again, with the files it left.
    pub fn resume(&mut self) {
        assert!(self.process.is_none(), "it runs");
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        self.process = Some(Process::start(self.directory.path(), &arguments));
    }

    /// Ends it as a power cut does.
    pub fn kill(&mut self) {
        self.process = None;
    }

    pub fn url(&self, database: u8) -> String {
        self.url_speaking(database, "resp3")
    }

    pub fn url_speaking(&self, database: u8, protocol: &str) -> String {
        let path = self.directory.path().join("s");
        format!("redis+unix://{}?db={database}&protocol={protocol}", path.display())
    }

    pub fn connect(&self, database: u8) -> Connection {
        connect(&self.url(database))
    }
}

pub fn connect(url: &str) -> Connection {
    let connection = redis::Client::open(url).unwrap().get_connection().unwrap();
    connection.set_read_timeout(Some(ANSWER_TIMEOUT)).unwrap();
    connection
}

/// Any command, its words separated by spaces.
pub fn say<T: FromRedisValue>(connection: &mut Connection, line: &str) -> T {
    let mut words = line.split(' ');
    let mut command = redis::cmd(words.next().unwrap());
    words.for_each(|word| _ = command.arg(word));
    command.query(connection).unwrap_or_else(|error| panic!("{line}: {error}"))
}

/// Three masters, each with a third of the slots.
pub struct Cluster {
    pub nodes: Vec<Valkey>,
    ports: Vec<u16>,
}

impl Cluster {
    pub fn start() -> Self {
        let ports = free_ports(6);
        let (ports, buses) = (ports[..3].to_vec(), &ports[3..]);
        let each = ports.iter().zip(buses);
        let nodes: Vec<_> = each.map(|(port, bus)| cluster_node(*port, *bus)).collect();
        let mut connections: Vec<_> = nodes.iter().map(|node| node.connect(0)).collect();
        for (index, connection) in connections.iter_mut().enumerate() {
            let (first, last) =
                (index * 5461, if index == 2 { 16_383 } else { index * 5461 + 5460 });
            let () = say(connection, &format!("CLUSTER ADDSLOTSRANGE {first} {last}"));
            for (port, bus) in ports.iter().zip(buses) {
                let () = say(connection, &format!("CLUSTER MEET 127.0.0.1 {port} {bus}"));
            }
        }
        for connection in &mut connections {
            wait_for(|| {
                let info: String = say(connection, "CLUSTER INFO");
                info.contains("cluster_state:ok") && info.contains("cluster_size:3")
            });
        }
        Self { nodes, ports }
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}?protocol=resp3", self.ports[0])
    }
}

fn cluster_node(port: u16, bus: u16) -> Valkey {
    let (port, bus) = (port.to_string(), bus.to_string());
    Valkey::start_with(&[
        "--port",
        &port,
        "--bind",
        "127.0.0.1",
        "--cluster-enabled",
        "yes",
        "--cluster-port",
        &bus,
        "--cluster-node-timeout",
        "2000",
        "--appendonly",
        "yes",
    ])
}

/// Ports that nobody listens at.
pub fn free_ports(count: usize) -> Vec<u16> {
    let held: Vec<_> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    held.iter().map(|socket| socket.local_addr().unwrap().port()).collect()
}

/// How long what must come is waited for.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `done`, or fails.
pub fn wait_for(mut done: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + PATIENCE;
    while !done() {
        assert!(std::time::Instant::now() < deadline, "this takes too long");
        std::thread::sleep(Duration::from_millis(20));
    }
}
