//! Starts the real binary in a directory of its own and speaks HTTP/1.1 to it over a plain socket,
//! so that tests can also say what no well-behaved client says.

#![allow(dead_code, reason = "each test binary uses its own part of the harness")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../../sim/src/counts.rs"]
pub(crate) mod counts;
pub(crate) mod python;
pub(crate) mod resp;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jsonwebtoken::{Algorithm, EncodingKey, Header};
pub(crate) use rustix::process::Signal;
use rustix::process::{Pid, kill_process};
use serde_json::{Value, json};

/// The secret that test servers sign with.
pub(crate) const SECRET: &str = "k3J9x0ZpQw7LmN2vB8rT5yHs1dFgA4cE";

/// Nothing in a test takes this long; what does has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A running server. Dropping it kills the process.
pub(crate) struct Server {
    child: Child,
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// Where it speaks the Redis protocol, if it does.
    pub(crate) resp: Option<SocketAddr>,
    // Behind locks, so that shoppers in several threads can share a server.
    lines: Mutex<Receiver<String>>,
    errors: Mutex<Receiver<String>>,
    data_dir: PathBuf,
    _scratch: Option<tempfile::TempDir>,
}

/// `sluice` with `args`, an environment free of our variables, and the tests' secret.
pub(crate) fn sluice<I: IntoIterator<Item = S>, S: AsRef<std::ffi::OsStr>>(args: I) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("SLUICE_") {
            command.env_remove(name);
        }
    }
    command.args(args).env("SLUICE_TOKEN__SECRET", SECRET);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The shim of that name in `tests/shim`, compiled, for `LD_PRELOAD`. A Rust toolchain needs a C
/// compiler to link, so that there is one.
pub(crate) fn shim(name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/shim/{name}.c"));
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.so"));
    // Under a name of its own first: tests side by side compile the same shim.
    static DRAFTS: AtomicU64 = AtomicU64::new(0);
    let draft = DRAFTS.fetch_add(1, Ordering::Relaxed);
    let draft = library.with_extension(format!("{}-{draft}", std::process::id()));
    let mut compiler = Command::new("cc");
    compiler.args(["-Wall", "-Werror", "-shared", "-fPIC", "-O2", "-o"]);
    let status = compiler.arg(&draft).arg(&source).arg("-ldl").status().expect("a C compiler");
    assert!(status.success(), "{name} does not compile");
    std::fs::rename(draft, &library).unwrap();
    library
}

/// Waits for `child` to end, and no longer than [`PATIENCE`].
pub(crate) fn wait(child: &mut Child) -> ExitStatus {
    let deadline = std::time::Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if std::time::Instant::now() > deadline {
            let _ = child.kill();
            panic!("the process did not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The lines of `pipe` as they come; it is read to its end whether or not anybody listens.
fn lines_of(pipe: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    lines
}

impl Server {
    /// A fresh server, ready.
    pub(crate) fn start() -> Self {
        Self::start_with(&[], &[])
    }

    /// A fresh server with further flags and variables, ready.
    pub(crate) fn start_with(args: &[&str], env: &[(&str, &str)]) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let data_dir = scratch.path().join("data");
        let mut server = Self::start_in(&data_dir, args, env);
        server._scratch = Some(scratch);
        server
    }

    /// A server on `data_dir`, ready.
    pub(crate) fn start_in(data_dir: &Path, args: &[&str], env: &[(&str, &str)]) -> Self {
        let mut command = sluice(["serve", "--listen", "127.0.0.1:0", "--data-dir"]);
        command.arg(data_dir).args(args).envs(env.iter().copied());
        Self::of(command, data_dir)
    }

    /// The server that `command` starts on `data_dir`, ready.
    pub(crate) fn of(command: Command, data_dir: &Path) -> Self {
        let mut server = Self::listening(command, data_dir);
        server.line_with("ready");
        server
    }

    /// The same as soon as it listens: it is still reading its log.
    pub(crate) fn listening(mut command: Command, data_dir: &Path) -> Self {
        // Small segments: a test writes little, and they are filled with zeros ahead.
        if command.get_envs().all(|(name, _)| name != "SLUICE_FORMAT__SEGMENT_BYTES") {
            command.env("SLUICE_FORMAT__SEGMENT_BYTES", "4194304");
        }
        // A test's shoppers have no address unless it says so.
        if command.get_envs().all(|(name, _)| name != "SLUICE_ORDERS__REQUIRE_ADDRESS") {
            command.env("SLUICE_ORDERS__REQUIRE_ADDRESS", "false");
        }
        let speaks_resp = command.get_args().any(|it| it == "--resp-listen");
        let mut child = command.spawn().unwrap();
        let lines = Mutex::new(lines_of(child.stdout.take().unwrap()));
        let errors = Mutex::new(lines_of(child.stderr.take().unwrap()));
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let data_dir = data_dir.to_path_buf();
        let mut server =
            Self { child, address, resp: None, lines, errors, data_dir, _scratch: None };
        let announced = server.line_with("listening on http");
        server.address = announced.split_once("://").unwrap().1.parse().unwrap();
        if speaks_resp {
            let announced = server.line_with("listening on redis");
            let (_, address) = announced.split_once("://").unwrap();
            server.resp = Some(address.parse().unwrap());
        }
        server
    }

    /// The next line of standard error that contains `text`.
    pub(crate) fn error_with(&mut self, text: &str) -> String {
        loop {
            match self.errors.get_mut().unwrap().recv_timeout(PATIENCE) {
                Ok(line) if line.contains(text) => return line,
                Ok(_) => {}
                Err(error) => panic!("no line with {text:?} on standard error: {error}"),
            }
        }
    }

    /// Ends it, and returns all that it wrote on standard error and nobody has read.
    pub(crate) fn said(&mut self) -> Vec<String> {
        self.stop();
        // The pipe's reader hangs up at its end.
        self.errors.get_mut().unwrap().iter().collect()
    }

    /// The next line of standard output that starts with `prefix`.
    pub(crate) fn line_with(&mut self, prefix: &str) -> String {
        loop {
            match self.lines.get_mut().unwrap().recv_timeout(PATIENCE) {
                Ok(line) if line.starts_with(prefix) => return line,
                Ok(_) => {}
                Err(error) => {
                    let said: Vec<_> = self.errors.get_mut().unwrap().try_iter().collect();
                    let status = self.child.try_wait();
                    panic!("no line {prefix:?}: {error}; {status:?}; stderr: {said:?}")
                }
            }
        }
    }

    /// The process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where it keeps its data.
    pub(crate) fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// Sends `signal`.
    pub(crate) fn signal(&self, signal: Signal) {
        send(&self.child, signal);
    }

    /// Waits for the process to end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        wait(&mut self.child)
    }

    /// Ends it with SIGTERM and returns how it ended.
    pub(crate) fn stop(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait()
    }

    /// Where it speaks the Redis protocol.
    pub(crate) fn resp(&self) -> SocketAddr {
        self.resp.expect("the server was started with --resp-listen")
    }

    /// A connection.
    pub(crate) fn connect(&self) -> Connection {
        Connection::to(self.address)
    }

    /// One request on a connection of its own.
    pub(crate) fn call(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        self.connect().call(method, path, headers, body)
    }

    /// One request by `user`, JSON in and out.
    pub(crate) fn as_user(
        &self,
        user: u64,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Answer {
        self.authorized(&token(user, "user"), method, path, &[], body)
    }

    /// One request by an admin, JSON in and out.
    pub(crate) fn as_admin(&self, method: &str, path: &str, body: Option<&Value>) -> Answer {
        self.authorized(&token(1, "admin"), method, path, &[], body)
    }

    /// One request with `token` and further headers.
    pub(crate) fn authorized(
        &self,
        token: &str,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Answer {
        let bearer = format!("Bearer {token}");
        let mut all = vec![("Authorization", bearer.as_str())];
        if body.is_some() {
            all.push(("Content-Type", "application/json"));
        }
        all.extend_from_slice(headers);
        self.call(method, path, &all, &body.map(Value::to_string).unwrap_or_default())
    }

    /// Makes an activity of `fields` over sensible ones, published unless told otherwise, and
    /// returns its id.
    pub(crate) fn activity(&self, fields: &Value) -> u64 {
        let mut body = json!({
            "sku_id": 1, "title": "秒杀", "price": 1999, "stock": 10,
            "start_at": "2020-01-01T00:00:00Z", "end_at": "2099-01-01T00:00:00Z",
        });
        for (name, value) in fields.as_object().unwrap() {
            body[name] = value.clone();
        }
        let publish = body.as_object_mut().unwrap().remove("publish") != Some(json!(false));
        let made = self.as_admin("POST", "/api/admin/flashsales", Some(&body));
        assert_eq!(made.status, 201, "{}", made.body);
        let id = made.json()["id"].as_u64().unwrap();
        if publish {
            let path = format!("/api/admin/flashsales/{id}/publish");
            assert_eq!(self.as_admin("POST", &path, None).status, 204);
        }
        id
    }

    /// Tries to buy `quantity` units.
    pub(crate) fn buy(&self, user: u64, activity: u64, request_id: &str, quantity: u32) -> Answer {
        let path = format!("/api/flashsales/{activity}/purchase");
        let body = json!({"client_request_id": request_id, "quantity": quantity});
        self.as_user(user, "POST", &path, Some(&body))
    }

    /// The figures of an activity: total, available, locked, sold.
    pub(crate) fn figures(&self, activity: u64) -> [u64; 4] {
        let seen = self.as_admin("GET", &format!("/api/admin/flashsales/{activity}"), None).json();
        ["total", "available", "locked", "sold"].map(|name| seen[name].as_u64().unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Already gone is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A token for `user` under [`SECRET`].
pub(crate) fn token(user: u64, role: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let claims = json!({
        "sub": user.to_string(), "role": role, "exp": now + 3600, "iat": now, "jti": "test",
    });
    signed(&claims, SECRET)
}

/// A token of any claims under any secret.
pub(crate) fn signed(claims: &Value, secret: &str) -> String {
    let key = EncodingKey::from_secret(secret.as_bytes()).unwrap();
    jsonwebtoken::encode(&Header::new(Algorithm::HS256), claims, &key).unwrap()
}

/// One connection.
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    /// A connection to `address`.
    pub(crate) fn to(address: SocketAddr) -> Self {
        Self::try_to(address).unwrap()
    }

    /// One to a server that may be gone.
    pub(crate) fn try_to(address: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// The socket.
    pub(crate) fn socket(&self) -> &TcpStream {
        self.stream.get_ref()
    }

    /// Sends bytes as they are. A server that hung up is no failure here: the answer tells.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.stream.get_mut().write_all(bytes.as_ref());
    }

    /// One request, and its answer.
    pub(crate) fn call(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        self.send(request(method, path, headers, body));
        self.answer().expect("an answer")
    }

    /// The next answer; `None` where the server closed the connection instead.
    pub(crate) fn answer(&mut self) -> Option<Answer> {
        let answer = self.head()?;
        let length = answer.header("content-length");
        let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
        self.stream.read_exact(&mut body).ok()?;
        Some(Answer { body: String::from_utf8(body).unwrap(), ..answer })
    }

    /// The head of the next answer; its body is not read.
    pub(crate) fn head(&mut self) -> Option<Answer> {
        let mut line = String::new();
        if self.stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let status = line.split(' ').nth(1)?.parse().ok()?;
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line).ok()?;
            let line = line.trim_end();
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':')?;
            headers.push((name.to_lowercase(), value.trim().to_owned()));
        }
        Some(Answer { status, headers, body: String::new() })
    }

    /// Whether the server closes the connection without another byte, within [`PATIENCE`].
    pub(crate) fn is_closed(&mut self) -> bool {
        match self.stream.read(&mut [0]) {
            Ok(count) => count == 0,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

/// The bytes of a request.
pub(crate) fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> String {
    let mut request = format!("{method} {path} HTTP/1.1\r\nHost: test\r\n");
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    if !body.is_empty() || method == "POST" || method == "PUT" {
        request.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    request.push_str("\r\n");
    request.push_str(body);
    request
}

/// An answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Answer {
    /// A header's value.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|header| header.0 == name).map(|header| header.1.as_str())
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// The stable code of a problem document, after checking that it is a whole one.
    pub(crate) fn code(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        assert!(self.header("x-request-id").is_some(), "{self:?}");
        let document = self.json();
        assert_eq!(document["status"], self.status, "{self:?}");
        assert!(document["title"].is_string() && document["type"].is_string(), "{self:?}");
        if self.status == 503 {
            assert!(self.header("retry-after").is_some(), "{self:?}");
        }
        document["code"].as_str().unwrap().to_owned()
    }

    /// Status and code, for comparing with a table.
    pub(crate) fn verdict(&self) -> (u16, String) {
        (self.status, self.code())
    }
}

/// Sends `signal` to `child`, which has not been waited for.
pub(crate) fn send(child: &Child, signal: Signal) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).unwrap();
    kill_process(pid, signal).unwrap();
}
