//! A Valkey process of one's own; a Redis, where [`REDIS_SERVER`] names one, as
//! `cargo xtask test redis` does.

use std::io::{BufRead, BufReader, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

/// The variable that names a Redis to start in place of Valkey, by its path.
pub const REDIS_SERVER: &str = "SLUICE_REDIS_SERVER";

/// The server that tests start.
pub fn program() -> PathBuf {
    std::env::var_os(REDIS_SERVER).map_or_else(|| "valkey-server".into(), PathBuf::from)
}

/// A server that is ready; it is killed with the value.
pub struct Process {
    child: Child,
    /// Kept open: the server would stop at a log line that nobody can read.
    _log: BufReader<ChildStdout>,
}

impl Process {
    /// Starts one in `directory`, on the Unix socket `s` there, that saves no snapshot by itself,
    /// and waits until it is ready.
    pub fn start(directory: &Path, arguments: &[&str]) -> Self {
        let program = program();
        let spawned = Command::new(&program)
            .arg("--unixsocket")
            .arg(directory.join("s"))
            .arg("--dir")
            .arg(directory)
            .args(["--save", "", "--daemonize", "no", "--logfile", ""])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn();
        let mut child = match spawned {
            Ok(child) => child,
            Err(error) if error.kind() == ErrorKind::NotFound => panic!(
                "valkey-server is missing: install the package valkey-server, in Debian 12 from \
                 the backports suite, or let `cargo xtask test packages` do it as root"
            ),
            Err(error) => panic!("{} cannot be started: {error}", program.display()),
        };
        let mut log = BufReader::new(child.stdout.take().unwrap());
        let (mut line, mut told) = (String::new(), String::new());
        while !line.contains("Ready to accept connections") {
            line.clear();
            let bytes = log.read_line(&mut line).unwrap();
            told += &line;
            assert_ne!(bytes, 0, "the server ended: {told}");
        }
        Self { child, _log: log }
    }
}

impl Drop for Process {
    /// Ends it as a power cut does.
    fn drop(&mut self) {
        if let Err(error) = self.child.kill().and_then(|()| self.child.wait()) {
            eprintln!("server {} may still run: {error}", self.child.id());
        }
    }
}
