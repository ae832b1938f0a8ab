//! The key that signs tokens: where it comes from, and which ones are refused.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use serde::Deserialize;

use super::{ConfigError, Flags, Loaded, load};

/// HS256 needs a key no shorter than its hash (RFC 7518, 3.2).
pub(crate) const SECRET_BYTES_MIN: usize = 32;

/// Random bytes of a generated secret; written as twice as many hexadecimal digits.
const GENERATED_BYTES: usize = 32;

/// A demo's generated secret, in the data directory.
const SECRET_FILE: &str = "secret";

/// Parts of secrets out of examples, tutorials and default configurations. A random secret holds
/// none of them.
const WELL_KNOWN: &[&str] = &[
    "changeme",
    "change-me",
    "change_me",
    "your-256-bit-secret",
    "your-secret",
    "your_secret",
    "yoursecret",
    "secret-key",
    "secret_key",
    "secretkey",
    "jwt-secret",
    "jwt_secret",
    "a-string-secret-at-least-256-bits-long",
    "0123456789abcdef0123456789abcdef",
    "12345678901234567890123456789012",
    "abcdefghijklmnopqrstuvwxyz",
    "passwordpassword",
    "example",
];

/// Fewer different bytes than this are a pattern, not a secret.
const DISTINCT_BYTES_MIN: usize = 10;

/// A signing key. It prints as `<redacted>` whatever formats it.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(crate) struct Secret(String);

impl Secret {
    /// The key's bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// `text`, where it is a good one.
    ///
    /// # Errors
    /// It is missing, short or well known.
    pub(crate) fn of(text: &str) -> Result<Self, ConfigError> {
        Self(text.to_owned()).checked()
    }

    /// The text, for what is no key but as secret.
    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    /// Refuses a key that does not keep a forger out.
    fn checked(self) -> Result<Self, ConfigError> {
        if self.0.is_empty() {
            return Err(ConfigError::SecretMissing);
        }
        let lower = self.0.to_lowercase();
        if WELL_KNOWN.iter().any(|known| lower.contains(known)) {
            return Err(ConfigError::SecretWellKnown);
        }
        if self.0.len() < SECRET_BYTES_MIN {
            return Err(ConfigError::SecretShort { bytes: self.0.len() });
        }
        let mut seen = [false; 256];
        self.0.bytes().for_each(|byte| seen[usize::from(byte)] = true);
        if seen.iter().filter(|seen| **seen).count() < DISTINCT_BYTES_MIN {
            return Err(ConfigError::SecretWellKnown);
        }
        Ok(self)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<redacted>")
    }
}

/// The configured secret; under `--demo`, where none is configured, the data directory's own,
/// which is made at first.
///
/// # Errors
/// The secret is missing, short or well known; its file can't be read or made.
pub(crate) fn load_secret(loaded: &Loaded) -> Result<Secret, ConfigError> {
    let settings = &loaded.settings;
    match configured_secret(loaded)? {
        Some(secret) => Ok(secret),
        None if settings.demo => demo_secret(&settings.data_dir),
        None => Err(ConfigError::SecretMissing),
    }
}

/// What `sluice token` signs with: the configuration, and its secret, else the one that a demo
/// left in the data directory. With a private key there need be none.
///
/// # Errors
/// As [`load_secret`]; and there is no demo's secret either.
pub(crate) fn secret_for_tokens(
    file: Option<&Path>,
    data_dir: Option<&Path>,
) -> Result<(Loaded, Option<Secret>), ConfigError> {
    let mut flags = Flags { file: file.map(Path::to_path_buf), values: Vec::new() };
    flags.set("data_dir", data_dir.map(|path| path.display().to_string()));
    let loaded = load(&flags)?;
    let mut secret = configured_secret(&loaded)?;
    if secret.is_none() && loaded.settings.token.private_key_file.is_none() {
        secret = Some(read(&loaded.settings.data_dir.join(SECRET_FILE))?.checked()?);
    }
    Ok((loaded, secret))
}

/// The secret that flags, environment or file name, checked.
///
/// # Errors
/// It is short or well known, given twice, or its file can't be read.
pub(crate) fn configured_secret(loaded: &Loaded) -> Result<Option<Secret>, ConfigError> {
    let token = &loaded.settings.token;
    match (&token.secret, &token.secret_file) {
        (Some(_), Some(_)) => Err(ConfigError::SecretTwice),
        (Some(secret), None) => secret.clone().checked().map(Some),
        (None, Some(path)) => read(path)?.checked().map(Some),
        (None, None) => Ok(None),
    }
}

/// The secret in the file at `path`, checked.
///
/// # Errors
/// As [`configured_secret`].
pub(crate) fn secret_in(path: &Path) -> Result<Secret, ConfigError> {
    read(path)?.checked()
}

/// The data directory's own secret, made with mode 0600 where it isn't there.
///
/// # Errors
/// The directory or the file can't be made or read.
fn demo_secret(data_dir: &Path) -> Result<Secret, ConfigError> {
    let path = data_dir.join(SECRET_FILE);
    if path.exists() {
        return read(&path)?.checked();
    }
    let mut random = [0_u8; GENERATED_BYTES];
    getrandom::fill(&mut random).map_err(ConfigError::Random)?;
    let secret: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let wrap = |op, path: &Path| {
        let path = path.to_path_buf();
        move |source| ConfigError::File { op, path, source }
    };
    fs::create_dir_all(data_dir).map_err(wrap("create", data_dir))?;
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)
        .map_err(wrap("create", &path))?;
    file.write_all(secret.as_bytes()).map_err(wrap("write", &path))?;
    Ok(Secret(secret))
}

fn read(path: &Path) -> Result<Secret, ConfigError> {
    let text = fs::read_to_string(path).map_err(|source| ConfigError::File {
        op: "read the token secret from",
        path: path.to_path_buf(),
        source,
    })?;
    Ok(Secret(text.trim_end_matches(['\r', '\n']).to_owned()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn verdict(text: &str) -> Result<Secret, ConfigError> {
        Secret(text.to_owned()).checked()
    }

    #[test]
    fn a_missing_short_or_well_known_secret_is_refused() {
        assert!(matches!(verdict(""), Err(ConfigError::SecretMissing)));
        let short = "k3J9x0ZpQw7LmN2vB8rT5yHs1dFgA4c";
        assert_eq!(short.len(), SECRET_BYTES_MIN - 1);
        assert!(matches!(verdict(short), Err(ConfigError::SecretShort { bytes: 31 })));
        for known in [
            "ChangeMeChangeMeChangeMeChangeMe",
            "your-256-bit-secret",
            "a-string-secret-at-least-256-bits-long",
            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
            "0123456789abcdef0123456789abcdef0123",
        ] {
            assert!(matches!(verdict(known), Err(ConfigError::SecretWellKnown)), "{known}");
        }
    }

    #[test]
    fn a_random_secret_is_taken_and_never_shown() {
        let secret = verdict("k3J9x0ZpQw7LmN2vB8rT5yHs1dFgA4cE").unwrap();
        assert_eq!(format!("{secret:?}"), "<redacted>");
    }

    #[test]
    fn a_demo_makes_its_secret_once_and_for_its_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = dir.path().join("data");
        let first = demo_secret(&data_dir).unwrap();
        assert_eq!(demo_secret(&data_dir).unwrap(), first);
        let mode = fs::metadata(data_dir.join(SECRET_FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(secret_for_tokens(None, Some(&data_dir)).unwrap().1, Some(first));
    }
}
