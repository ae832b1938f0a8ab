//! Configuration: flags over environment over file over defaults.
//!
//! [`SETTINGS`] is the one table of keys; each layer is a map from those keys to values that
//! remember where they came from, and the `config` crate lays the layers over one another. A key
//! of the file that is not in the table refuses the start: a misspelt limit must not be a limit
//! that is silently off. Unknown `SLUICE_...` variables are let be, because orchestrators put
//! variables of that shape (`SLUICE_PORT`, `SLUICE_SERVICE_HOST`) beside a service of our name.

mod bounds;
mod payment_channels;
mod print;
mod resp_users;
mod retention;
mod secret;
mod settings;
mod tls;

use std::path::PathBuf;

use config::{Config, File, FileFormat, Map, Source, Value, ValueKind};

use crate::limits::RulesError;

pub(crate) use payment_channels::{demo_channel_secret, payment_channels};
pub(crate) use print::render;
pub(crate) use resp_users::resp_users;
pub(crate) use secret::{Secret, configured_secret, load_secret, secret_for_tokens, secret_in};
pub(crate) use settings::{Http, Login, PaymentSettings, Resp, SETTINGS, Settings};
use tls::TlsFault;
pub(crate) use tls::{http_tls, resp_tls};

/// What keeps a configuration from being used. Each message is one line that says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ConfigError {
    /// The file is not there, not readable, not TOML, or a value is of the wrong kind.
    #[error("configuration: {}", in_one_line(.0))]
    Layers(#[from] config::ConfigError),
    /// A value is outside its bounds.
    #[error("configuration: {key} = {value} (from {origin}): {expected}")]
    Value { key: &'static str, value: String, origin: String, expected: &'static str },
    /// A database of another kind.
    #[error(
        "{key}: a URL must be sqlite:<path> or mysql://<user>@<host>/<database>; others are not \
         supported by this version"
    )]
    UnsupportedDatabase { key: &'static str },
    /// The limits do not fit together.
    #[error("configuration: [limits] or [canary]: {0}")]
    Limits(#[from] RulesError),
    /// No signing secret was given.
    #[error(
        "no token secret: set SLUICE_TOKEN__SECRET or token.secret_file to at least {min} random \
         bytes (or try --demo)",
        min = secret::SECRET_BYTES_MIN
    )]
    SecretMissing,
    /// The signing secret is too short to keep a forger out.
    #[error(
        "the token secret has {bytes} bytes: it needs at least {min}",
        min = secret::SECRET_BYTES_MIN
    )]
    SecretShort { bytes: usize },
    /// The signing secret is one that everybody knows.
    #[error("the token secret is a well-known one: anyone could forge tokens; make a random one")]
    SecretWellKnown,
    /// Two secrets were given.
    #[error("both token.secret and token.secret_file are set: remove one")]
    SecretTwice,
    /// Users of the Redis port were given twice.
    #[error("both resp.users and resp.users_file are set: remove one")]
    UsersTwice,
    /// Secrets of payments were given twice.
    #[error("both payments.secrets and payments.secrets_file are set: remove one")]
    ChannelsTwice,
    /// The ways to pay can't be used.
    #[error(transparent)]
    Channels(#[from] crate::payments::ChannelsError),
    /// The users of the Redis port can't be used.
    #[error("resp.users: {0}")]
    Users(#[from] crate::resp::access::UsersError),
    /// Half of what TLS needs was given.
    #[error("{missing} is missing: TLS needs {certificate} and {key}")]
    TlsHalf { missing: &'static str, certificate: &'static str, key: &'static str },
    /// What a file holds is not what TLS needs.
    #[error("{key}: {}: {what}", path.display())]
    Tls { key: &'static str, path: PathBuf, what: TlsFault },
    /// A file could not be read or written.
    #[error("{op} {}: {source}", path.display())]
    File { op: &'static str, path: PathBuf, source: std::io::Error },
    /// The operating system has no randomness to give.
    #[error("no randomness for a secret: {0}")]
    Random(getrandom::Error),
}

/// The first and the last line of what the library says. Between them it shows the line of the
/// file that it could not read, which may be the one with the secret.
fn in_one_line(error: &config::ConfigError) -> String {
    let text = error.to_string();
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    match (lines.next(), lines.next_back()) {
        (Some(first), Some(last)) => format!("{first}: {last}"),
        (first, _) => first.unwrap_or_default().to_owned(),
    }
}

/// What the command line says: pairs of a key of [`SETTINGS`] and its value.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flags {
    /// `--config`.
    pub(crate) file: Option<PathBuf>,
    /// The settings that were given as flags.
    pub(crate) values: Vec<(&'static str, Value)>,
}

impl Flags {
    /// Notes that `--flag` of the setting `key` was given as `value`; `None` notes nothing.
    pub(crate) fn set(&mut self, key: &'static str, value: Option<impl Into<ValueKind>>) {
        if let Some(value) = value {
            let origin = format!("--{}", key.replace('_', "-"));
            self.values.push((key, Value::new(Some(&origin), value.into())));
        }
    }
}

/// A configuration that was read and checked.
#[derive(Clone, Debug)]
pub(crate) struct Loaded {
    /// The values.
    pub(crate) settings: Settings,
    /// Each key with its value as text and the layer it came from, in the table's order.
    pub(crate) origins: Vec<Entry>,
}

/// One line of `--print-config`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// A key of [`SETTINGS`].
    pub(crate) key: &'static str,
    /// Its value, `None` where it is unset.
    pub(crate) value: Option<String>,
    /// Which layer it came from.
    pub(crate) origin: String,
}

/// A layer: values by key.
#[derive(Clone, Debug)]
struct Layer(Map<String, Value>);

impl Source for Layer {
    fn clone_into_box(&self) -> Box<dyn Source + Send + Sync> {
        Box::new(self.clone())
    }

    fn collect(&self) -> Result<Map<String, Value>, config::ConfigError> {
        Ok(self.0.clone())
    }
}

/// Reads all layers, with the process's environment.
///
/// # Errors
/// [`ConfigError`], where a layer can't be read or the result can't be used.
pub(crate) fn load(flags: &Flags) -> Result<Loaded, ConfigError> {
    load_from(flags, &|name| std::env::var(name).ok())
}

/// [`load`] with the environment given by `env`, for tests.
fn load_from(flags: &Flags, env: &dyn Fn(&str) -> Option<String>) -> Result<Loaded, ConfigError> {
    let merged = merge(flags, env)?;
    let origins = origins(&merged)?;
    let settings: Settings = merged.try_deserialize()?;
    bounds::check(&settings, &origins)?;
    Ok(Loaded { settings, origins })
}

fn merge(flags: &Flags, env: &dyn Fn(&str) -> Option<String>) -> Result<Config, ConfigError> {
    let mut builder = Config::builder().add_source(defaults());
    let file = flags.file.clone().or_else(|| env("SLUICE_CONFIG").map(PathBuf::from));
    if let Some(path) = &file {
        builder = builder.add_source(File::from(path.as_path()).format(FileFormat::Toml));
    }
    builder = builder.add_source(environment(env)).add_source(Layer(
        flags.values.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect(),
    ));
    Ok(builder.build()?)
}

fn defaults() -> Layer {
    let origin = "default".to_owned();
    Layer(
        SETTINGS
            .iter()
            .filter_map(|setting| {
                let value = Value::new(Some(&origin), setting.default?);
                Some((setting.key.to_owned(), value))
            })
            .collect(),
    )
}

/// `SLUICE_` + the key in capitals, `__` where the key has a dot: `SLUICE_TOKEN__SECRET`.
fn env_name(key: &str) -> String {
    format!("SLUICE_{}", key.replace('.', "__").to_uppercase())
}

fn environment(env: &dyn Fn(&str) -> Option<String>) -> Layer {
    Layer(
        SETTINGS
            .iter()
            .filter_map(|setting| {
                let name = env_name(setting.key);
                let value = Value::new(Some(&name), env(&name)?);
                Some((setting.key.to_owned(), value))
            })
            .collect(),
    )
}

fn origins(merged: &Config) -> Result<Vec<Entry>, ConfigError> {
    let top = Value::new(None, ValueKind::Table(merged.collect()?));
    let entry = |setting: &settings::Setting| {
        let value = setting.key.split('.').try_fold(&top, |table, part| match &table.kind {
            ValueKind::Table(values) => values.get(part),
            _ => None,
        });
        let origin = value.and_then(Value::origin).unwrap_or("unset").to_owned();
        let value = value.and_then(|value| value.clone().into_string().ok());
        Entry { key: setting.key, value, origin }
    };
    Ok(SETTINGS.iter().map(entry).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env_of(pairs: &'static [(&'static str, &'static str)]) -> impl Fn(&str) -> Option<String> {
        move |name| pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1.to_owned())
    }

    fn file_with(text: &str) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sluice.toml");
        std::fs::write(&path, text).unwrap();
        (dir, path)
    }

    fn origin_of<'a>(loaded: &'a Loaded, key: &str) -> (&'a str, &'a str) {
        let entry = loaded.origins.iter().find(|entry| entry.key == key).unwrap();
        (entry.value.as_deref().unwrap_or(""), &entry.origin)
    }

    #[test]
    fn defaults_stand_where_nothing_else_is_said() {
        let loaded = load_from(&Flags::default(), &env_of(&[])).unwrap();
        assert_eq!(loaded.settings.listen.to_string(), "127.0.0.1:8080");
        assert_eq!(loaded.settings.data_dir, PathBuf::from("./data"));
        assert_eq!(origin_of(&loaded, "listen"), ("127.0.0.1:8080", "default"));
        assert_eq!(origin_of(&loaded, "database").1, "unset");
    }

    #[test]
    fn a_flag_wins_over_the_environment_which_wins_over_the_file() {
        let (_dir, path) =
            file_with("listen = '127.0.0.1:1'\ndata_dir = '/file'\n[http]\nconnections_max = 7\n");
        let mut flags = Flags { file: Some(path.clone()), values: Vec::new() };
        flags.set("listen", Some("127.0.0.1:3".to_owned()));
        let env = env_of(&[("SLUICE_LISTEN", "127.0.0.1:2"), ("SLUICE_DATA_DIR", "/env")]);
        let loaded = load_from(&flags, &env).unwrap();
        assert_eq!(origin_of(&loaded, "listen"), ("127.0.0.1:3", "--listen"));
        assert_eq!(origin_of(&loaded, "data_dir"), ("/env", "SLUICE_DATA_DIR"));
        assert_eq!(loaded.settings.http.connections_max, 7);
        assert!(origin_of(&loaded, "http.connections_max").1.contains("sluice.toml"));
    }

    #[test]
    fn an_unknown_key_of_the_file_is_refused_at_every_depth() {
        for text in ["listne = 'x'", "[http]\nconections_max = 1", "[ordres]\nsplit = 4"] {
            let (_dir, path) = file_with(text);
            let flags = Flags { file: Some(path), values: Vec::new() };
            let error = load_from(&flags, &env_of(&[])).unwrap_err();
            assert!(error.to_string().contains("unknown field"), "{error}");
        }
    }

    #[test]
    fn a_foreign_variable_of_our_prefix_is_let_be() {
        let env = env_of(&[("SLUICE_PORT", "tcp://10.0.0.1:80")]);
        assert!(load_from(&Flags::default(), &env).is_ok());
    }

    #[test]
    fn a_file_that_is_missing_or_no_toml_is_refused() {
        let missing = Flags { file: Some("/nonexistent/sluice.toml".into()), values: Vec::new() };
        assert!(load_from(&missing, &env_of(&[])).is_err());
        let (_dir, path) = file_with("[token]\nsecret = 'hunter2\n");
        let broken = Flags { file: Some(path), values: Vec::new() };
        let error = load_from(&broken, &env_of(&[])).unwrap_err().to_string();
        assert!(error.contains("line 2") && error.lines().count() == 1, "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }

    #[test]
    fn a_database_of_another_kind_is_refused_by_name() {
        let mut flags = Flags::default();
        flags.set("legacy_database", Some("127.0.0.1:6379".to_owned()));
        let error = load_from(&flags, &env_of(&[])).unwrap_err().to_string();
        assert!(error.contains("not supported by this version"), "{error}");
        assert!(error.contains("legacy_database"), "{error}");
        let mut flags = Flags::default();
        flags.set("database", Some("postgres://u:p@127.0.0.1/x".to_owned()));
        let error = load_from(&flags, &env_of(&[])).unwrap_err().to_string();
        assert!(error.contains("not supported by this version") && !error.contains("u:p"));
    }

    #[test]
    fn the_redis_port_leaves_the_machine_only_with_users() {
        let of = |address: &str, users: Option<&str>| {
            let mut flags = Flags::default();
            flags.set("resp_listen", Some(address.to_owned()));
            flags.set("resp.users", users.map(str::to_owned));
            load_from(&flags, &env_of(&[])).and_then(|loaded| resp_users(&loaded.settings.resp))
        };
        assert!(of("127.0.0.1:6379", None).is_ok() && of("[::1]:6379", None).is_ok());
        let error = of("0.0.0.0:6379", None).unwrap_err().to_string();
        assert!(error.contains("resp.users") && error.contains("--resp-listen"), "{error}");
        let users = format!("shop:buyer:{}", "0123456789abcdef".repeat(4));
        assert!(of("0.0.0.0:6379", Some(&users)).is_ok());
        let error = of("0.0.0.0:6379", Some("shop:buyer:hunter2")).unwrap_err().to_string();
        assert!(error.contains("entry 1") && !error.contains("hunter2"), "{error}");
        assert!(of("0.0.0.0:6379", Some("")).is_err(), "an empty list names nobody");
    }

    #[test]
    fn a_value_outside_its_bounds_is_refused_with_its_origin() {
        for (name, value) in [
            ("SLUICE_RESP__CONNECTIONS_MAX", "0"),
            ("SLUICE_HTTP__CONNECTIONS_MAX", "0"),
            ("SLUICE_HTTP__HEADER_TIMEOUT", "soon"),
            ("SLUICE_LISTEN", "nowhere"),
            ("SLUICE_FORMAT__ORDER_PREFIX", "1000"),
        ] {
            let env = move |asked: &str| (asked == name).then(|| value.to_owned());
            assert!(load_from(&Flags::default(), &env).is_err(), "{name}={value}");
        }
    }
}
