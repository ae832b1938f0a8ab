//! The settings: one table of keys, and the struct they are read into.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bridge::sql::split::Split;
use serde::{Deserialize, Deserializer};
use wal::device::AppendChoice;

use super::{ConfigError, Entry, Secret};
use crate::duration;

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
    live("log_level", "info"),
    Setting { key: "token.secret", default: None, secret: true, reloadable: false },
    fixed("token.secret_file", None),
    fixed("format.order_prefix", Some("1")),
    fixed("format.segment_bytes", Some("67108864")),
    fixed("wal.device", Some("auto")),
    fixed("orders.split", Some("1")),
    fixed("orders.require_address", None),
    fixed("http.connections_max", Some("8192")),
    fixed("http.waiters_max", Some("4096")),
    live("http.header_timeout", "5s"),
    live("http.body_timeout", "10s"),
    live("http.idle_timeout", "75s"),
    live("http.write_timeout", "10s"),
    live("http.drain_timeout", "10s"),
    fixed("resp.loops", Some("0")),
    fixed("resp.connections_max", Some("16384")),
    fixed("resp.write_timeout", Some("10s")),
    Setting { key: "resp.users", default: None, secret: true, reloadable: false },
    fixed("resp.users_file", None),
];

/// Event loops of the Redis port: each is a thread.
const RESP_LOOPS_MAX: usize = 256;

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
    redis: Option<String>,
    legacy_database: Option<String>,
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
    /// What is fixed when a data directory is made.
    pub(crate) format: Format,
    /// How the log is written.
    pub(crate) wal: Wal,
    /// How orders are written.
    pub(crate) orders: Orders,
    /// Bounds of the HTTP listener.
    pub(crate) http: Http,
    /// Bounds and users of the Redis port.
    pub(crate) resp: Resp,
}

/// `[resp]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Resp {
    /// Event loops; 0 makes one for each core.
    pub(crate) loops: usize,
    /// Connections held at once; more are turned away.
    pub(crate) connections_max: usize,
    /// Without the client taking a byte of its answers.
    #[serde(deserialize_with = "duration_text")]
    pub(crate) write_timeout: Duration,
    /// Users, each with class and hashed password.
    pub(crate) users: Option<Secret>,
    /// The file that holds them.
    pub(crate) users_file: Option<PathBuf>,
}

/// `[token]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Token {
    /// The HS256 key itself.
    pub(crate) secret: Option<Secret>,
    /// The file that holds it.
    pub(crate) secret_file: Option<PathBuf>,
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
}

fn duration_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    duration::parse(&text).filter(|value| !value.is_zero()).ok_or_else(|| {
        serde::de::Error::custom(format!("{text:?} is no length of time such as 500ms, 5s or 2m"))
    })
}

/// Refuses what no kind of value can express: bounds, and settings of features to come.
pub(super) fn check(settings: &Settings, origins: &[Entry]) -> Result<(), ConfigError> {
    let origin = |key: &str| {
        let entry = origins.iter().find(|entry| entry.key == key);
        entry.map_or_else(String::new, |entry| entry.origin.clone())
    };
    let given = [
        ("redis", settings.redis.is_some()),
        ("legacy_database", settings.legacy_database.is_some()),
    ];
    if let Some((key, _)) = given.into_iter().find(|(_, given)| *given) {
        return Err(ConfigError::Unsupported { key, origin: origin(key) });
    }
    let schemes = ["sqlite:", "mysql:", "mariadb:"];
    let known = |url: &String| schemes.iter().any(|scheme| url.starts_with(scheme));
    if settings.database.as_ref().is_some_and(|url| !known(url)) {
        return Err(ConfigError::UnsupportedDatabase);
    }
    let segment_bytes = settings.format.segment_bytes;
    let is_loopback = settings.resp_listen.is_none_or(|address| address.ip().is_loopback());
    let has_users = settings.resp.users.is_some() || settings.resp.users_file.is_some();
    let bounds: [(&'static str, bool, &'static str); 8] = [
        ("orders.split", Split::new(settings.orders.split).is_some(), "must be 1 to 64"),
        (
            "resp_listen",
            is_loopback || has_users,
            "must be a loopback address unless resp.users or resp.users_file says who may call",
        ),
        ("resp.connections_max", settings.resp.connections_max > 0, "must be at least 1"),
        ("resp.loops", settings.resp.loops <= RESP_LOOPS_MAX, "must be at most 256"),
        ("http.connections_max", settings.http.connections_max > 0, "must be at least 1"),
        ("http.waiters_max", settings.http.waiters_max > 0, "must be at least 1"),
        (
            "format.order_prefix",
            (1..=999).contains(&settings.format.order_prefix),
            "must be 1 to 3 digits",
        ),
        (
            "format.segment_bytes",
            segment_bytes >= 1 << 20 && segment_bytes.is_multiple_of(4096),
            "must be at least 1048576 and a multiple of 4096",
        ),
    ];
    match bounds.into_iter().find(|(_, kept, _)| !kept) {
        None => Ok(()),
        Some((key, _, expected)) => Err(ConfigError::Value {
            key,
            value: origins
                .iter()
                .find(|entry| entry.key == key)
                .and_then(|entry| entry.value.clone())
                .unwrap_or_default(),
            origin: origin(key),
            expected,
        }),
    }
}
