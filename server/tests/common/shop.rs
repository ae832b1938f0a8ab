//! Shoppers for the acceptance tests: a plain blocking HTTP client that keeps the history of what
//! it was told. It shares no code with the product, so that the product can't vouch for itself.
#![allow(dead_code, reason = "each test binary uses its own part of the shop")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, RwLock};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::common::{Server, sluice};

/// Small segments: a start makes its spare segments, and zeroing 64 MiB ones again and again
/// would take most of a test's time.
const SEGMENT_BYTES: &str = "4194304";

/// An answer is waited for this long; far above what a loaded machine needs.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// A request is tried this long before the test fails: the server should be back long before.
const RETRY_LIMIT: Duration = Duration::from_secs(120);

/// Between two tries of a request.
const RETRY_WAIT: Duration = Duration::from_millis(5);

/// A scratch directory on the build's own disk: `/tmp` may be a file system that the log refuses.
pub(crate) fn scratch() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// A demo on `data_dir`, ready. Dropping it is a SIGKILL.
pub(crate) fn demo(data_dir: &Path) -> Server {
    Server::start_in(data_dir, &["--demo"], &[("SLUICE_FORMAT__SEGMENT_BYTES", SEGMENT_BYTES)])
}

/// `sluice serve --demo` on `data_dir` without waiting for anything it does.
pub(crate) fn start_demo(data_dir: &Path) -> Child {
    sluice(["serve", "--demo", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(data_dir)
        .env("SLUICE_FORMAT__SEGMENT_BYTES", SEGMENT_BYTES)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Signed tokens of `count` users from `first` on, through `sluice token`.
pub(crate) fn tokens(data_dir: &Path, first: u64, count: usize) -> Vec<String> {
    sign(data_dir, first, count, &[])
}

/// A signed admin token.
pub(crate) fn admin_token(data_dir: &Path) -> String {
    sign(data_dir, 1, 1, &["--admin"]).remove(0)
}

fn sign(data_dir: &Path, first: u64, count: usize, flags: &[&str]) -> Vec<String> {
    let (first, count) = (first.to_string(), count.to_string());
    let output = sluice(["token", "--user", &first, "--count", &count])
        .arg("--data-dir")
        .arg(data_dir)
        .args(flags)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// An answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) is_replay: bool,
    pub(crate) body: Value,
}

/// A keep-alive connection that reconnects where it must.
pub(crate) struct Connection {
    address: SocketAddr,
    stream: Option<BufReader<TcpStream>>,
}

impl Connection {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self { address, stream: None }
    }

    /// One request. An error leaves its outcome unknown.
    pub(crate) fn call(
        &mut self,
        (method, path): (&str, &str),
        token: &str,
        body: Option<&Value>,
    ) -> io::Result<Answer> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => connect(self.address)?,
        };
        let body = body.map(Value::to_string).unwrap_or_default();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {token}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.get_mut().write_all(request.as_bytes())?;
        let answer = read_answer(&mut stream)?;
        self.stream = Some(stream);
        Ok(answer)
    }
}

fn connect(address: SocketAddr) -> io::Result<BufReader<TcpStream>> {
    let stream = TcpStream::connect_timeout(&address, ANSWER_TIMEOUT)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    Ok(BufReader::new(stream))
}

fn read_answer(stream: &mut BufReader<TcpStream>) -> io::Result<Answer> {
    let malformed = || io::Error::from(io::ErrorKind::InvalidData);
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let status = line.split(' ').nth(1).and_then(|code| code.parse().ok());
    // An empty line is the end of the connection.
    let status = status.ok_or_else(malformed)?;
    let (mut length, mut is_replay) = (0, false);
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line)? == 0 {
            return Err(malformed());
        }
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').ok_or_else(malformed)?;
        match name {
            "content-length" => length = value.trim().parse().map_err(|_| malformed())?,
            "idempotency-replayed" => is_replay = value.trim() == "true",
            _ => {}
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok(Answer { status, is_replay, body: serde_json::from_slice(&body).unwrap_or(Value::Null) })
}

/// One purchase request: a shopper (index into the tokens) and a request id.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Click {
    pub(crate) shopper: usize,
    pub(crate) request_id: String,
}

/// What a click was finally told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// 202
    Accepted { reservation: u64, order_no: String },
    /// Any other answer that is final.
    Refused { status: u16, code: String },
}

/// A click with its outcome and when it was under way.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) click: Click,
    pub(crate) outcome: Outcome,
    pub(crate) began: Instant,
    pub(crate) ended: Instant,
    /// How often it was sent; more than once where an answer was missing or not final.
    pub(crate) tries: u32,
}

/// Where the shoppers go: the address changes when the server is restarted.
pub(crate) struct Shop {
    pub(crate) address: RwLock<SocketAddr>,
    pub(crate) activity: u64,
    pub(crate) tokens: Vec<String>,
    /// Clicks that were answered so far.
    pub(crate) answered: AtomicUsize,
    /// Acceptances among them, replays included.
    pub(crate) accepted: AtomicUsize,
}

impl Shop {
    pub(crate) fn new(address: SocketAddr, activity: u64, tokens: Vec<String>) -> Self {
        let (answered, accepted) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { address: RwLock::new(address), activity, tokens, answered, accepted }
    }

    /// Sends all clicks over `connections` threads, in order of the list, and returns what each
    /// was told. A click without a final answer is sent again under the same id.
    pub(crate) fn rush(&self, clicks: &[Click], connections: usize) -> Vec<Told> {
        let next = AtomicUsize::new(0);
        let history = Mutex::new(Vec::with_capacity(clicks.len()));
        std::thread::scope(|threads| {
            for _ in 0..connections {
                threads.spawn(|| {
                    let mut told = Vec::new();
                    let mut connection = Connection::new(*self.address.read().unwrap());
                    while let Some(click) = clicks.get(next.fetch_add(1, Ordering::Relaxed)) {
                        told.push(self.click(click, &mut connection));
                    }
                    history.lock().unwrap().append(&mut told);
                });
            }
        });
        history.into_inner().unwrap()
    }

    /// Sends one click until it has a final answer.
    pub(crate) fn click(&self, click: &Click, connection: &mut Connection) -> Told {
        let began = Instant::now();
        let path = format!("/api/flashsales/{}/purchase", self.activity);
        let body = serde_json::json!({ "client_request_id": click.request_id, "quantity": 1 });
        for tries in 1.. {
            let answer = connection.call(("POST", &path), &self.tokens[click.shopper], Some(&body));
            if let Some(outcome) = answer.as_ref().ok().and_then(outcome) {
                self.answered.fetch_add(1, Ordering::Relaxed);
                let is_accepted = matches!(outcome, Outcome::Accepted { .. });
                self.accepted.fetch_add(is_accepted.into(), Ordering::Relaxed);
                let ended = Instant::now();
                return Told { click: click.clone(), outcome, began, ended, tries };
            }
            assert!(began.elapsed() < RETRY_LIMIT, "{click:?} has no answer: {answer:?}");
            std::thread::sleep(RETRY_WAIT);
            *connection = Connection::new(*self.address.read().unwrap());
        }
        unreachable!("tries are bounded by time")
    }

    /// A GET that is repeated until the server is there to answer it.
    pub(crate) fn get(&self, path: &str, token: &str) -> Value {
        let began = Instant::now();
        loop {
            let mut connection = Connection::new(*self.address.read().unwrap());
            let answer = connection.call(("GET", path), token, None);
            if let Ok(Answer { status: 200, body, .. }) = answer {
                return body;
            }
            assert!(began.elapsed() < RETRY_LIMIT, "{path} has no answer: {answer:?}");
            std::thread::sleep(RETRY_WAIT);
        }
    }
}

/// The final outcome in an answer; `None` where the same id is to be sent again.
fn outcome(answer: &Answer) -> Option<Outcome> {
    match answer.status {
        202 => Some(Outcome::Accepted {
            reservation: answer.body["pre_deduction_id"].as_u64().unwrap(),
            order_no: answer.body["order_no"].as_str().unwrap().to_owned(),
        }),
        503 => None,
        status => {
            let code = answer.body["code"].as_str().unwrap_or_default().to_owned();
            Some(Outcome::Refused { status, code })
        }
    }
}

/// Three clicks a shopper, shuffled by `seed`: a first try, the same id again, and a second try
/// with a new id. Any of them may come first.
pub(crate) fn rush_clicks(shoppers: usize, seed: u64) -> Vec<Click> {
    let mut random = Random::new(seed);
    let mut clicks: Vec<_> = (0..shoppers)
        .flat_map(|shopper| {
            ["first", "first", "second"]
                .map(|name| Click { shopper, request_id: format!("{name}-{shopper}") })
        })
        .collect();
    for index in (1..clicks.len()).rev() {
        clicks.swap(index, random.below(index + 1));
    }
    clicks
}

/// The reservations in a history, each with the click that owns it, after checking what must
/// hold whatever happened meanwhile: one request id has one reservation with one order number,
/// a reservation has one owner, and an id that was once accepted is never refused later.
pub(crate) fn reservations(history: &[Told]) -> BTreeMap<u64, (Click, String)> {
    let mut by_click: BTreeMap<&Click, (u64, &str, Instant)> = BTreeMap::new();
    let mut reservations = BTreeMap::new();
    for told in history {
        let Outcome::Accepted { reservation, order_no } = &told.outcome else { continue };
        let first =
            by_click.entry(&told.click).or_insert((*reservation, order_no.as_str(), told.ended));
        assert_eq!((first.0, first.1), (*reservation, order_no.as_str()), "{:?}", told.click);
        first.2 = first.2.min(told.ended);
        let owner = reservations
            .entry(*reservation)
            .or_insert_with(|| (told.click.clone(), order_no.clone()));
        assert_eq!(owner.0, told.click, "reservation {reservation} has two owners");
    }
    for told in history {
        if let (Outcome::Refused { .. }, Some((_, _, accepted_at))) =
            (&told.outcome, by_click.get(&told.click))
        {
            assert!(told.began < *accepted_at, "accepted, then refused: {told:?}");
        }
    }
    let order_nos: BTreeSet<_> = reservations.values().map(|(_, order_no)| order_no).collect();
    assert_eq!(order_nos.len(), reservations.len(), "two reservations share an order number");
    reservations
}

/// Asserts that no shopper holds more than `limit` of these reservations.
pub(crate) fn assert_limit(reservations: &BTreeMap<u64, (Click, String)>, limit: usize) {
    let mut held: BTreeMap<usize, usize> = BTreeMap::new();
    for (click, _) in reservations.values() {
        *held.entry(click.shopper).or_default() += 1;
    }
    let most = held.iter().max_by_key(|(_, units)| **units);
    assert!(most.is_none_or(|(_, units)| *units <= limit), "shopper over the limit: {most:?}");
}

/// Refusals of a history, by code.
pub(crate) fn refusals(history: &[Told]) -> BTreeMap<String, usize> {
    let mut codes = BTreeMap::new();
    for told in history {
        if let Outcome::Refused { code, .. } = &told.outcome {
            *codes.entry(code.clone()).or_default() += 1;
        }
    }
    codes
}

/// Seeded randomness (SplitMix64): a failed run is repeated by its printed seed.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number in `0..bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }
}

/// The run's seed: `SLUICE_TEST_SEED`, else from the clock. Printed either way.
pub(crate) fn seed() -> u64 {
    let seed = match std::env::var("SLUICE_TEST_SEED") {
        Ok(seed) => seed.parse().unwrap(),
        Err(_) => {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
            u64::from(now.subsec_nanos())
        }
    };
    println!("repeat with SLUICE_TEST_SEED={seed}");
    seed
}
