//! The settings: one table of keys, and the struct they are read into.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bridge::redis::layouts::Layout;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use wal::device::AppendChoice;

use super::Secret;
use super::retention::Retention;
use crate::duration;
use crate::limits::Limit;
use crate::limits::address::Proxies;

/// One key.
pub(crate) struct Setting {
    /// Its name in the file; a dot is a table.
    pub(crate) key: &'static str,
    /// What it is where nobody says.
    pub(crate) default: Option<&'static str>,
    /// Never printed.
    pub(crate) secret: bool,
    /// Taken over from the file at `SIGHUP`; the others need a restart.
    pub(crate) reloadable: bool,
}

const fn fixed(key: &'static str, default: Option<&'static str>) -> Setting {
    Setting { key, default, secret: false, reloadable: false }
}

const fn live(key: &'static str, default: &'static str) -> Setting {
    Setting { key, default: Some(default), secret: false, reloadable: true }
}

/// Every key there is, in the order in which they are printed.
pub(crate) const SETTINGS: &[Setting] = &[
    fixed("data_dir", Some("./data")),
    fixed("listen", Some("127.0.0.1:8080")),
    fixed("metrics_listen", None),
    fixed("resp_listen", None),
    fixed("database", None),
    fixed("redis", None),
    fixed("legacy_database", None),
    fixed("demo", Some("false")),
    fixed("accept_clock", Some("false")),
    fixed("accept_file_system", Some("false")),
    fixed("test_clock", Some("false")),
    fixed("log_json", Some("false")),
    fixed("mirror.layout", Some("flashsale")),
    fixed("mirror.call_records_max", Some("128")),
    fixed("mirror.step_records_max", Some("2000")),
    live("log_level", "info"),
    Setting { key: "token.secret", default: None, secret: true, reloadable: false },
    fixed("token.secret_file", None),
    fixed("token.algorithm", None),
    fixed("token.private_key_file", None),
    fixed("token.kid", None),
    fixed("token.verify_keys", None),
    fixed("token.ttl", Some("2h")),
    fixed("login.per_account", Some("10/1m")),
    fixed("login.per_ip", Some("off")),
    fixed("format.order_prefix", Some("1")),
    fixed("format.segment_bytes", Some("67108864")),
    fixed("wal.device", Some("auto")),
    fixed("memory.ahead_bytes_max", Some("536870912")),
    fixed("orders.split", Some("1")),
    fixed("orders.require_address", None),
    fixed("retention.snapshot_after_bytes", Some("268435456")),
    fixed("retention.backlog_soft_bytes", Some("2147483648")),
    fixed("retention.backlog_hard_bytes", Some("8589934592")),
    fixed("http.loops", Some("0")),
    fixed("http.connections_max", Some("8192")),
    fixed("http.waiters_max", Some("4096")),
    live("http.header_timeout", "5s"),
    live("http.body_timeout", "10s"),
    live("http.idle_timeout", "75s"),
    live("http.write_timeout", "10s"),
    live("http.drain_timeout", "10s"),
    fixed("http.trusted_proxies", Some("")),
    fixed("http.require_tls", Some("false")),
    fixed("http.tls_certificate_file", None),
    fixed("http.tls_key_file", None),
    live("http.replays_per_connection", "5000/1s"),
    live("limits.global", "off"),
    live("limits.activity", "off"),
    live("limits.user", "off"),
    live("limits.user_window", "off"),
    live("limits.ip", "off"),
    live("limits.frequency", "off"),
    live("limits.hot_activities", ""),
    live("limits.hot_users", ""),
    live("limits.ramp", "0s"),
    live("limits.ramp_from_percent", "10"),
    live("limits.adaptive", "false"),
    live("limits.admission", "false"),
    live("limits.admission_lead", "0s"),
    live("limits.proof_bits", "0"),
    live("canary.percent", "0"),
    live("canary.testers", ""),
    Setting { key: "canary.limits", default: None, secret: false, reloadable: true },
    fixed("resp.loops", Some("0")),
    fixed("resp.connections_max", Some("16384")),
    fixed("resp.request_timeout", Some("10s")),
    fixed("resp.write_timeout", Some("10s")),
    Setting { key: "resp.users", default: None, secret: true, reloadable: false },
    fixed("resp.users_file", None),
    fixed("resp.tls_certificate_file", None),
    fixed("resp.tls_key_file", None),
    Setting { key: "payments.secrets", default: None, secret: true, reloadable: false },
    fixed("payments.secrets_file", None),
    fixed("payments.providers", Some("")),
    fixed("payments.ttl", Some("15m")),
];

/// The configuration of `sluice serve`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    /// Where the log, the embedded database and a demo's secret live.
    pub(crate) data_dir: PathBuf,
    /// The HTTP address; port 0 takes a free one.
    pub(crate) listen: SocketAddr,
    /// Where `/metrics` is served instead of on `listen`.
    pub(crate) metrics_listen: Option<SocketAddr>,
    /// The address of the Redis protocol; port 0 takes a free one.
    pub(crate) resp_listen: Option<SocketAddr>,
    /// `sqlite:<path>` or `mysql://<user>@<host>/<database>`; `None` is `<data_dir>/orders.db`.
    pub(crate) database: Option<String>,
    /// `redis://<user>:<password>@<host>:<port>/<db>`; no mirror without it.
    pub(crate) redis: Option<String>,
    /// The older system's database, whose reservations are taken over; a URL as above.
    pub(crate) legacy_database: Option<String>,
    /// A ready-made sale with shoppers, and a generated secret.
    pub(crate) demo: bool,
    /// Start although the wall clock is behind the log.
    pub(crate) accept_clock: bool,
    /// Start although the file system can't keep what it promises.
    pub(crate) accept_file_system: bool,
    /// Honour the times that callers give.
    pub(crate) test_clock: bool,
    /// Log lines as JSON.
    pub(crate) log_json: bool,
    /// A `tracing` filter: `info`, `warn,bridge=debug`.
    pub(crate) log_level: String,
    /// How tokens are signed.
    #[serde(default)]
    pub(crate) token: Token,
    /// How Redis is written.
    pub(crate) mirror: Mirror,
    /// How often passwords may be tried.
    pub(crate) login: Login,
    /// How often everybody may call: fields of [`crate::limits::Limits`], read from
    /// [`Settings::limits`].
    limits: Map<String, Value>,
    /// Who gets other limits, and which.
    canary: Map<String, Value>,
    /// What is fixed when a data directory is made.
    pub(crate) format: Format,
    /// How the log is written.
    pub(crate) wal: Wal,
    /// Memory made before it is needed.
    pub(crate) memory: Memory,
    /// How orders are written.
    pub(crate) orders: Orders,
    /// How much of the log is kept.
    pub(crate) retention: Retention,
    /// Bounds of the HTTP listener.
    pub(crate) http: Http,
    /// Bounds and users of the Redis port.
    pub(crate) resp: Resp,
    /// The ways to pay.
    pub(crate) payments: PaymentSettings,
}

/// `[payments]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PaymentSettings {
    /// What callbacks are signed with: `<channel>:<secret>, ...`.
    pub(crate) secrets: Option<Secret>,
    /// The file that holds them.
    pub(crate) secrets_file: Option<PathBuf>,
    /// Who makes refunds: `<channel>=<address>, ...`.
    pub(crate) providers: String,
    /// How long a provider may take a payment.
    #[serde(deserialize_with = "duration_text")]
    pub(crate) ttl: Duration,
}

/// `[resp]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Resp {
    /// Event loops; 0 makes one for each core but one.
    pub(crate) loops: usize,
    /// Connections held at once; more are turned away.
    pub(crate) connections_max: usize,
    /// From the first byte of a request to its last.
    #[serde(deserialize_with = "duration_text")]
    pub(crate) request_timeout: Duration,
    /// Without the client taking a byte of its answers.
    #[serde(deserialize_with = "duration_text")]
    pub(crate) write_timeout: Duration,
    /// Users, each with class and hashed password.
    pub(crate) users: Option<Secret>,
    /// The file that holds them.
    pub(crate) users_file: Option<PathBuf>,
    /// The certificate and those that lead up to its root, as PEM: the port speaks TLS alone then.
    pub(crate) tls_certificate_file: Option<PathBuf>,
    /// Its private key, as PEM.
    pub(crate) tls_key_file: Option<PathBuf>,
}

/// `[token]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Token {
    /// The HS256 key itself.
    pub(crate) secret: Option<Secret>,
    /// The file that holds it.
    pub(crate) secret_file: Option<PathBuf>,
    /// What signs: `HS256` where nobody says.
    pub(crate) algorithm: Option<String>,
    /// The key of another algorithm, as PEM.
    pub(crate) private_key_file: Option<PathBuf>,
    /// The name of the key that signs.
    pub(crate) kid: Option<String>,
    /// Further keys that tokens may be signed under: `name=ALGORITHM:path, ...`.
    pub(crate) verify_keys: Option<String>,
    /// How long a login lasts.
    #[serde(deserialize_with = "duration_text", default = "token_ttl")]
    pub(crate) ttl: Duration,
}

/// A login lasts as long as a visit.
const fn token_ttl() -> Duration {
    Duration::from_secs(2 * 3600)
}

/// `[login]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Login {
    /// Failed tries of one account.
    pub(crate) per_account: Limit,
    /// Tries from one address.
    pub(crate) per_ip: Limit,
}

/// `[mirror]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mirror {
    /// Which keys are written.
    #[serde(deserialize_with = "layout_name")]
    pub(crate) layout: Layout,
    /// Records of one atomic call.
    pub(crate) call_records_max: usize,
    /// Records of the calls that go out in one write.
    pub(crate) step_records_max: usize,
}

fn layout_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Layout, D::Error> {
    let text = String::deserialize(deserializer)?;
    crate::mirror::layout(&text).map_err(serde::de::Error::custom)
}

/// `[format]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Format {
    /// First digits of every order number, 1..=999.
    pub(crate) order_prefix: u16,
    /// Bytes of a log segment.
    pub(crate) segment_bytes: u64,
}

/// `[memory]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Memory {
    /// Memory made ahead for what is for sale at most.
    pub(crate) ahead_bytes_max: u64,
}

/// `[wal]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wal {
    /// How its segments are written.
    pub(crate) device: WalDevice,
}

/// Ways to write a segment.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum WalDevice {
    /// Measured at the start: whichever is faster.
    Auto,
    /// Past the page cache.
    Direct,
    /// Through the page cache, then a sync.
    Buffered,
}

impl From<WalDevice> for AppendChoice {
    fn from(device: WalDevice) -> Self {
        match device {
            WalDevice::Auto => Self::Auto,
            WalDevice::Direct => Self::Direct,
            WalDevice::Buffered => Self::Buffered,
        }
    }
}

/// `[orders]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Orders {
    /// Over how many tables they are spread; fixed by the first order.
    pub(crate) split: u16,
    /// Whether a purchase over HTTP becomes an order only where its buyer has a default address;
    /// `None`: outside a demo.
    pub(crate) require_address: Option<bool>,
}

/// `[http]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Http {
    /// Event loops; 0 makes one for each core but one.
    pub(crate) loops: usize,
    /// Connections held at once; more are turned away with 503.
    pub(crate) connections_max: usize,
    /// From the first byte of a request to the end of its headers.
    #[serde(deserialize_with = "duration_text")]
    pub(crate) header_timeout: Duration,
    /// From the end of the headers to the end of the body.
    #[serde(deserialize_with = "duration_text")]
    pub(crate) body_timeout: Duration,
    /// Between two requests of one connection.
    #[serde(deserialize_with = "duration_text")]
    pub(crate) idle_timeout: Duration,
    /// Without the client taking a byte of its answer.
    #[serde(deserialize_with = "duration_text")]
    pub(crate) write_timeout: Duration,
    /// For requests in flight when the server is told to stop.
    #[serde(deserialize_with = "duration_text")]
    pub(crate) drain_timeout: Duration,
    /// Queries that wait for their order at once; more are answered at once.
    pub(crate) waiters_max: usize,
    /// Whose `X-Forwarded-For` counts.
    #[serde(deserialize_with = "proxies_text")]
    pub(crate) trusted_proxies: Proxies,
    /// Refuse what did not come over TLS, our own or by the word of a trusted proxy.
    pub(crate) require_tls: bool,
    /// The certificate and those that lead up to its root, as PEM: the port speaks TLS alone then.
    pub(crate) tls_certificate_file: Option<PathBuf>,
    /// Its private key, as PEM.
    pub(crate) tls_key_file: Option<PathBuf>,
    /// Repeats of known request ids that one connection may ask for.
    pub(crate) replays_per_connection: Limit,
}

impl Settings {
    /// The document of limits in the file, as operators' overrides are laid over it.
    pub(crate) fn limits(&self) -> Value {
        let mut document = self.limits.clone();
        document.insert("canary".to_owned(), Value::Object(self.canary.clone()));
        Value::Object(document)
    }
}

fn proxies_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Proxies, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
}

fn duration_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    duration::parse(&text).filter(|value| !value.is_zero()).ok_or_else(|| {
        serde::de::Error::custom(format!("{text:?} is no length of time such as 500ms, 5s or 2m"))
    })
}
