//! A MariaDB of the test's own: a directory, a Unix socket, a process that ends with it. Where
//! [`MYSQLD`] names one, a MySQL in its place: `cargo xtask test mysql`.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use sqlx::{Connection as _, MySqlConnection};

/// Long enough for any machine; it is ready within a second where all is well.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// The variable that names a MySQL's `mysqld`, by its path.
const MYSQLD: &str = "SLUICE_MYSQLD";

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
        install(directory.path());
        let process = Mutex::new(run(directory.path(), options));
        Self { process, directory }
    }

    /// The option of a server that offers no TLS.
    pub fn without_tls() -> &'static str {
        if mysqld().is_some() { "--tls-version=" } else { "--skip-ssl" }
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

    /// What it says that it is.
    pub async fn version(&self) -> String {
        let mut connection = MySqlConnection::connect(&self.url("mysql")).await.unwrap();
        let version = sqlx::query_scalar("SELECT VERSION()").fetch_one(&mut connection).await;
        let version: String = version.unwrap();
        if version.contains("MariaDB") { version } else { format!("MySQL {version}") }
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

/// The MySQL to start, where one is named.
fn mysqld() -> Option<PathBuf> {
    std::env::var_os(MYSQLD).map(PathBuf::from)
}

/// Makes an empty server's files, root's password empty.
fn install(directory: &Path) {
    let (program, options) = match mysqld() {
        Some(mysqld) => (mysqld, ["--initialize-insecure", REDO_LOG_MYSQL]),
        None => {
            let normal = "--auth-root-authentication-method=normal";
            (in_sbin("mariadb-install-db"), [normal, "--skip-test-db"])
        }
    };
    let made = command(&program, directory).args(options).output();
    let made = made.unwrap_or_else(|error| missing(&program, &error));
    let said = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "{}: {said}", program.display());
}

/// Where Debian has it; outside root's search path.
fn in_sbin(program: &str) -> PathBuf {
    let path = Path::new("/usr/sbin").join(program);
    if path.exists() { path } else { PathBuf::from(program) }
}

fn command(program: &Path, directory: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg("--no-defaults").arg(format!("--datadir={}", directory.join("data").display()));
    // As root, they refuse to run unless told that it is meant.
    if rustix::process::geteuid().is_root() {
        command.arg("--user=root");
    }
    // A server that starts deletes what it takes for its own old files there: others' live ones.
    command.env("TMPDIR", directory).stdin(Stdio::null());
    command
}

/// A small log is written and read soon.
const REDO_LOG_MYSQL: &str = "--innodb-redo-log-capacity=32M";

/// What each product calls the size of its log, in front of whatever size a test asks for.
const LOG_SIZES: [&str; 2] = ["--innodb-log-file-size=", "--innodb-redo-log-capacity="];

fn run(directory: &Path, options: &[&str]) -> Child {
    let socket = socket(directory);
    // What a killed one left would refuse connections like one that is not ready yet.
    let _ = std::fs::remove_file(&socket);
    let mysql = mysqld();
    let program = mysql.clone().unwrap_or_else(|| in_sbin("mariadbd"));
    let mut server = command(&program, directory);
    server
        .arg(format!("--socket={}", socket.display()))
        .arg(format!("--pid-file={}", directory.join("pid").display()))
        .arg(format!("--log-error={}", directory.join("error.log").display()))
        .args(["--skip-networking", "--performance-schema=OFF", "--skip-log-bin"])
        // Processes are killed here, never the machine: the page cache survives.
        .args(["--innodb-flush-method=nosync", "--innodb-doublewrite=OFF"])
        .arg("--innodb-buffer-pool-size=64M");
    if mysql.is_some() {
        let renamed = |option: &&str| option.replace(LOG_SIZES[0], LOG_SIZES[1]);
        // Where a package would have it write files for SQL, nobody has made the folder.
        server
            .args(["--secure-file-priv=NULL", "--mysqlx=OFF", REDO_LOG_MYSQL])
            .args(options.iter().map(renamed));
    } else {
        server.arg("--innodb-log-file-size=32M").args(options);
    }
    server.stdout(Stdio::null()).stderr(Stdio::null());
    let mut process = server.spawn().unwrap_or_else(|error| missing(&program, &error));
    let deadline = Instant::now() + START_TIMEOUT;
    while UnixStream::connect(&socket).is_err() {
        let ended = process.try_wait().unwrap();
        let log = || std::fs::read_to_string(directory.join("error.log")).unwrap_or_default();
        assert!(ended.is_none(), "the database ended: {}", log());
        assert!(Instant::now() < deadline, "the database is not ready: {}", log());
        std::thread::sleep(Duration::from_millis(5));
    }
    process
}

fn missing(program: &Path, error: &std::io::Error) -> ! {
    panic!(
        "{}: {error}; install mariadb-server-core and mariadb-client-core (Debian)",
        program.display()
    )
}
