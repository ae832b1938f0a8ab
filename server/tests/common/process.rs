//! The real binary as a child process, on a port of the system's choice.

use std::io::{BufRead as _, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::shop::{Connection, sluice};

/// A start that takes longer has failed.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Small segments: a restart makes its spare segments anew, and zeroing 64 MiB ones would take
/// most of the test's time.
const SEGMENT_BYTES: &str = "4194304";

/// A scratch directory on the build's own disk: `/tmp` may be a file system that the log refuses.
pub fn scratch() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// A server that is killed with its value.
pub struct Server {
    child: Child,
    lines: Receiver<String>,
    /// Where it listens.
    pub address: SocketAddr,
}

impl Server {
    /// Starts a demo on `data_dir` and waits until it is ready.
    pub fn start(data_dir: &Path) -> Self {
        let mut child = spawn(data_dir, &[]);
        let lines = lines(&mut child);
        let Some(address) = address(&lines) else {
            let status = child.wait();
            let rest: Vec<_> = lines.iter().collect();
            panic!("the server names no address and ended with {status:?}: {rest:?}");
        };
        let server = Self { child, lines, address };
        server.wait_until_ready();
        server
    }

    fn wait_until_ready(&self) {
        let began = Instant::now();
        loop {
            let answer = Connection::new(self.address).call(("GET", "/readyz"), "", None);
            if answer.as_ref().is_ok_and(|answer| answer.status == 200) {
                return;
            }
            assert!(began.elapsed() < START_TIMEOUT, "not ready: {answer:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends it with SIGKILL.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends it with SIGTERM; it must close in good order.
    pub fn stop(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        let status = wait(&mut self.child);
        let lines: Vec<_> = self.lines.try_iter().collect();
        assert!(status.success(), "{status}: {lines:?}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Already ended after `kill` and `stop`; these then do nothing.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Spawns `sluice serve --demo` on `data_dir`, with more `flags`, without waiting for anything.
pub fn spawn(data_dir: &Path, flags: &[&str]) -> Child {
    sluice()
        .args(["serve", "--demo", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(data_dir)
        .args(flags)
        .env("SLUICE_FORMAT__SEGMENT_BYTES", SEGMENT_BYTES)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits for the end of a process that should end by itself.
pub fn wait(child: &mut Child) -> ExitStatus {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if began.elapsed() >= START_TIMEOUT {
            let _ = child.kill();
            let _ = child.wait();
            panic!("the process does not end");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// All lines of both outputs, as they come. Reading them keeps the child from blocking.
fn lines(child: &mut Child) -> Receiver<String> {
    let (sender, receiver) = channel();
    forward(child.stdout.take().unwrap(), sender.clone());
    forward(child.stderr.take().unwrap(), sender);
    receiver
}

fn forward(output: impl Read + Send + 'static, sender: Sender<String>) {
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            // Nobody may be listening any more.
            let _ = sender.send(line);
        }
    });
}

/// The first address with a port in the output; `None` where it ends or stays silent.
fn address(lines: &Receiver<String>) -> Option<SocketAddr> {
    let deadline = Instant::now() + START_TIMEOUT;
    loop {
        let line = lines.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok()?;
        let port = line.split("127.0.0.1:").skip(1).find_map(|rest| {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            rest[..digits].parse::<u16>().ok().filter(|port| *port != 0)
        });
        if let Some(port) = port {
            return Some(SocketAddr::from(([127, 0, 0, 1], port)));
        }
    }
}
