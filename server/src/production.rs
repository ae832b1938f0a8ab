//! What a server must not be started with where others can reach it.
//!
//! Everything is looked at before anything is started, and all that is found is told at once:
//! whoever sets a server up mends five things in one go, not one after five restarts.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::config::{self, ConfigError, Entry, Loaded};
use crate::identity::{KeyError, secret_files, tokens_of};
use crate::mirror::MirrorError;

/// The bits of a file's mode that let anybody on the machine read or change it.
const OTHERS: u32 = 0o006;

/// One reason not to start. Each message is one line that says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Finding {
    /// The secret is missing, short, well known, or given twice.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A key of tokens can't be used.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// Everybody on the machine can read a secret.
    #[error("{}: anybody on this machine can read the {what} in it: chmod 600 it", path.display())]
    Exposed {
        /// What is exposed.
        what: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// A demo has passwords that everybody knows.
    #[error(
        "--demo on {address}: its accounts have passwords that everybody knows; listen on \
         127.0.0.1, or start without --demo"
    )]
    PublicDemo {
        /// Where it would listen.
        address: SocketAddr,
    },
    /// Redis can't be named so.
    #[error(transparent)]
    Mirror(#[from] MirrorError),
    /// TLS is asked for, and nobody could say that it was there.
    #[error(
        "http.require_tls needs http.tls_certificate_file, or http.trusted_proxies: TLS ends here, \
         or at a proxy whose X-Forwarded-Proto says so"
    )]
    TlsNowhere,
}

/// All that speaks against starting with `loaded`.
pub(crate) fn findings(loaded: &Loaded) -> Vec<Finding> {
    let settings = &loaded.settings;
    let mut findings = Vec::new();
    match config::configured_secret(loaded) {
        Err(error) => findings.push(error.into()),
        // A demo makes its secret when it starts.
        Ok(None) if settings.demo => {}
        Ok(secret) => {
            findings.extend(tokens_of(loaded, secret.as_ref()).err().map(Finding::Key));
        }
    }
    let files = secret_files(loaded).into_iter().map(|path| ("token key", path));
    let payments = settings.payments.secrets_file.clone();
    let files = files.chain(payments.map(|path| ("secrets of payments", path)));
    let users = settings.resp.users_file.clone();
    let files = files.chain(users.map(|path| ("passwords of the Redis port's users", path)));
    let tls_key = settings.resp.tls_key_file.clone();
    let files = files.chain(tls_key.map(|path| ("key of the Redis port", path)));
    let tls_key = settings.http.tls_key_file.clone();
    let files = files.chain(tls_key.map(|path| ("key of the HTTP port", path)));
    let files = files.chain(loaded.origins.iter().filter_map(in_the_file));
    let exposed = files.filter(|(_, path)| is_exposed(path));
    findings.extend(exposed.map(|(what, path)| Finding::Exposed { what, path }));
    if settings.demo && !settings.listen.ip().to_canonical().is_loopback() {
        findings.push(Finding::PublicDemo { address: settings.listen });
    }
    findings.extend(config::resp_users(&settings.resp).err().map(Finding::Config));
    findings.extend(config::resp_tls(&settings.resp).err().map(Finding::Config));
    findings.extend(config::http_tls(&settings.http).err().map(Finding::Config));
    findings.extend(config::payment_channels(&settings.payments).err().map(Finding::Config));
    if let Some(url) = &settings.redis {
        let named = bridge::redis::run::check(url).map_err(MirrorError::from);
        findings.extend(named.err().map(Finding::Mirror));
    }
    let ends_here = settings.http.tls_certificate_file.is_some();
    if settings.http.require_tls && settings.http.trusted_proxies.is_empty() && !ends_here {
        findings.push(Finding::TlsNowhere);
    }
    findings
}

/// The configuration file, where `entry` is a secret that stands in it.
fn in_the_file(entry: &Entry) -> Option<(&'static str, PathBuf)> {
    let value = entry.value.as_deref()?;
    let what = match entry.key {
        "token.secret" => "token secret",
        "payments.secrets" => "secrets of payments",
        "resp.users" => "passwords of the Redis port's users",
        "database" if has_password(value) => "database's password",
        "legacy_database" if has_password(value) => "older database's password",
        "redis" if has_password(value) => "password of Redis",
        _ => return None,
    };
    let path = PathBuf::from(&entry.origin);
    path.is_file().then_some((what, path))
}

/// Whether a URL of a database or of Redis carries a password.
fn has_password(url: &str) -> bool {
    let authority = url.split_once("://").map(|(_, rest)| rest.split('/').next().unwrap_or(rest));
    let account = authority.and_then(|authority| authority.rsplit_once('@'));
    account.is_some_and(|(account, _)| account.contains(':'))
}

fn is_exposed(path: &Path) -> bool {
    // One that can't be looked at is another finding: it can't be read.
    std::fs::metadata(path).is_ok_and(|found| found.permissions().mode() & OTHERS != 0)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};

    use super::*;
    use crate::config::{Flags, load};

    const SECRET: &str = "k3J9x0ZpQw7LmN2vB8rT5yHs1dFgA4cE";

    /// What a user's password is written as.
    fn sha256() -> String {
        "0123456789abcdef".repeat(4)
    }

    fn found(settings: &[(&'static str, &str)]) -> Vec<String> {
        let mut flags = Flags::default();
        for (key, value) in settings {
            flags.set(key, Some((*value).to_owned()));
        }
        findings(&load(&flags).unwrap()).iter().map(ToString::to_string).collect()
    }

    fn secret_file(mode: u32) -> (tempfile::TempDir, String) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        fs::write(&path, SECRET).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        let path = path.display().to_string();
        (dir, path)
    }

    #[test]
    fn a_server_that_may_be_started_is_not_spoken_against() {
        for (mode, good) in [(0o600, true), (0o640, true), (0o644, false), (0o604, false)] {
            let (_dir, path) = secret_file(mode);
            assert_eq!(found(&[("token.secret_file", &path)]).is_empty(), good, "{mode:o}");
        }
        assert_eq!(found(&[("demo", "true")]), Vec::<String>::new());
        let tls = [
            ("token.secret", SECRET),
            ("http.require_tls", "true"),
            ("http.trusted_proxies", "10.0.0.0/8"),
            ("listen", "0.0.0.0:80"),
        ];
        assert_eq!(found(&tls), Vec::<String>::new());
    }

    #[test]
    fn everything_that_is_wrong_is_told_at_once_and_no_secret_with_it() {
        let (_dir, path) = secret_file(0o644);
        let all = found(&[
            ("token.secret_file", &path),
            ("token.algorithm", "none"),
            ("demo", "true"),
            ("listen", "0.0.0.0:8080"),
            ("http.require_tls", "true"),
        ]);
        assert_eq!(all.len(), 4, "{all:?}");
        for part in ["token.algorithm", "chmod 600", "--demo on 0.0.0.0", "http.trusted_proxies"] {
            assert!(all.iter().any(|line| line.contains(part)), "{part}: {all:?}");
        }
        assert!(all.iter().all(|line| !line.contains(SECRET) && line.lines().count() == 1));
    }

    #[test]
    fn a_secret_in_a_configuration_that_everybody_reads_is_exposed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sluice.toml");
        let passwords = "database = 'mysql://u:p@h/d'\nlegacy_database = 'mysql://u:p@h/e'\n\
                         redis = 'redis://:p@127.0.0.1'\n";
        let users = format!("[resp]\nusers = 'shop:buyer:{}'\n", sha256());
        fs::write(&path, format!("{passwords}[token]\nsecret = '{SECRET}'\n{users}")).unwrap();
        let findings_at = |mode| {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let flags = Flags { file: Some(path.clone()), values: Vec::new() };
            findings(&load(&flags).unwrap()).len()
        };
        assert_eq!([findings_at(0o600), findings_at(0o644)], [0, 5]);
    }

    #[test]
    fn a_file_of_passwords_that_everybody_reads_is_exposed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("users");
        fs::write(&path, format!("shop:buyer:{}\n", sha256())).unwrap();
        let text = path.display().to_string();
        let findings_at = |mode| {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            found(&[("token.secret", SECRET), ("resp.users_file", &text)]).len()
        };
        assert_eq!([findings_at(0o600), findings_at(0o644)], [0, 1]);
    }

    #[test]
    fn a_password_of_a_database_is_told_from_a_name() {
        for (url, has) in [
            ("mysql://u:p@h/d", true),
            ("mysql://u@h:3306/d", false),
            ("mysql://h/d?x=a:b@c", false),
            ("sqlite:/a@b:c", false),
        ] {
            assert_eq!(has_password(url), has, "{url}");
        }
    }
}
