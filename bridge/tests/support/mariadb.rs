//! A MariaDB of the test's own: a directory, a Unix socket, a process that ends with it.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Long enough for any machine; it is ready within a second where all is well.
const START_TIMEOUT: Duration = Duration::from_secs(60);

pub struct MariaDb {
    process: Mutex<Child>,
    directory: tempfile::TempDir,
}

impl MariaDb {
    /// Starts an empty one.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts an empty one with more `options`.
    pub fn start_with(options: &[&str]) -> Self {
        let parent = option_env!("CARGO_TARGET_TMPDIR").map(PathBuf::from);
        Self::start_in(&parent.unwrap_or_else(std::env::temp_dir), options)
    }

    /// The same in a folder of its own in `parent`.
    pub fn start_in(parent: &Path, options: &[&str]) -> Self {
        let directory = tempfile::Builder::new().prefix("db").tempdir_in(parent).unwrap();
        let mut install = command("mariadb-install-db", directory.path());
        install.args(["--auth-root-authentication-method=normal", "--skip-test-db"]);
        let made = install.output().unwrap_or_else(|error| missing("mariadb-install-db", &error));
        let said = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.success(), "mariadb-install-db: {said}");
        let process = Mutex::new(run(directory.path(), options));
        Self { process, directory }
    }

    /// The URL of one of its databases.
    pub fn url(&self, database: &str) -> String {
        self.url_of("root", database)
    }

    /// The URL of one of its databases for `user`, which may have `:` and a password in it.
    pub fn url_of(&self, user: &str, database: &str) -> String {
        let socket = self.socket();
        format!("mysql://{user}@localhost/{database}?socket={}", socket.display())
    }

    /// Its Unix socket.
    pub fn socket(&self) -> PathBuf {
        socket(self.directory.path())
    }

    /// Ends it by SIGKILL.
    pub fn kill(&self) {
        let mut process = self.process.lock().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }

    /// Starts it again, after a kill, on what is on its disk.
    pub fn start_again(&self) {
        *self.process.lock().unwrap() = run(self.directory.path(), &[]);
    }
}

impl Drop for MariaDb {
    fn drop(&mut self) {
        let process = self.process.get_mut().unwrap();
        // Killed already is as good.
        let _ = process.kill();
        let _ = process.wait();
    }
}

fn socket(directory: &Path) -> PathBuf {
    directory.join("s.sock")
}

fn command(program: &str, directory: &Path) -> Command {
    // Where Debian has it; outside root's search path.
    let path = Path::new("/usr/sbin").join(program);
    let mut command = if path.exists() { Command::new(path) } else { Command::new(program) };
    command.arg("--no-defaults").arg(format!("--datadir={}", directory.join("data").display()));
    // As root, they refuse to run unless told that it is meant.
    if rustix::process::geteuid().is_root() {
        command.arg("--user=root");
    }
    // A server that starts deletes what it takes for its own old files there: others' live ones.
    command.env("TMPDIR", directory).stdin(Stdio::null());
    command
}

fn run(directory: &Path, options: &[&str]) -> Child {
    let socket = socket(directory);
    // What a killed one left would refuse connections like one that is not ready yet.
    let _ = std::fs::remove_file(&socket);
    let mut mariadbd = command("mariadbd", directory);
    mariadbd
        .arg(format!("--socket={}", socket.display()))
        .arg(format!("--pid-file={}", directory.join("pid").display()))
        .arg(format!("--log-error={}", directory.join("log").display()))
        .args(["--skip-networking", "--performance-schema=OFF", "--skip-log-bin"])
        .args(["--innodb-buffer-pool-size=64M", "--innodb-log-file-size=32M"])
        // Processes are killed here, never the machine: the page cache survives.
        .args(["--innodb-flush-method=nosync", "--innodb-doublewrite=OFF"])
        .args(options)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut process = mariadbd.spawn().unwrap_or_else(|error| missing("mariadbd", &error));
    let deadline = Instant::now() + START_TIMEOUT;
    while UnixStream::connect(&socket).is_err() {
        let ended = process.try_wait().unwrap();
        let log = || std::fs::read_to_string(directory.join("log")).unwrap_or_default();
        assert!(ended.is_none(), "mariadbd ended: {}", log());
        assert!(Instant::now() < deadline, "mariadbd is not ready: {}", log());
        std::thread::sleep(Duration::from_millis(5));
    }
    process
}

fn missing(program: &str, error: &std::io::Error) -> ! {
    panic!("{program}: {error}; install mariadb-server-core and mariadb-client-core (Debian)")
}
