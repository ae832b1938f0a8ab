//! `--print-config`: every key, its value, and where the value came from.

use std::fmt::Write as _;

use bridge::sql::database::without_secrets;

use super::{Entry, SETTINGS};

/// The configuration as TOML, each line with its origin as a comment; secrets are redacted.
pub(crate) fn render(origins: &[Entry]) -> String {
    let mut out = String::new();
    for entry in origins {
        let secret = SETTINGS.iter().any(|setting| setting.key == entry.key && setting.secret);
        let line = match &entry.value {
            None => format!("# {} is unset", entry.key),
            Some(_) if secret => format!("{} = \"<redacted>\" # {}", entry.key, entry.origin),
            // The place is worth knowing, the account's password is not for this output.
            Some(url) if matches!(entry.key, "database" | "legacy_database" | "redis") => {
                format!("{} = {} # {}", entry.key, toml(&without_secrets(url)), entry.origin)
            }
            Some(value) => format!("{} = {} # {}", entry.key, toml(value), entry.origin),
        };
        // Writing to a String can't fail.
        let _ = writeln!(out, "{line}");
    }
    out
}

/// A number or a boolean as it is, anything else as a basic string.
fn toml(value: &str) -> String {
    if value.parse::<u64>().is_ok() || value == "true" || value == "false" {
        return value.to_owned();
    }
    // A JSON string is a TOML basic string.
    serde_json::Value::from(value).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_never_printed_and_every_line_names_its_origin() {
        let entry = |key, value: Option<&str>, origin: &str| Entry {
            key,
            value: value.map(ToOwned::to_owned),
            origin: origin.to_owned(),
        };
        let text = render(&[
            entry("token.secret", Some("hunter2hunter2hunter2"), "SLUICE_TOKEN__SECRET"),
            entry("listen", Some("127.0.0.1:1"), "--listen"),
            entry("database", Some("mysql://u:hunter2@h/d"), "--database"),
            entry("legacy_database", Some("mysql://u:hunter2@o/old"), "SLUICE_X"),
            entry("demo", Some("false"), "default"),
            entry("redis", None, "unset"),
        ]);
        assert_eq!(
            text,
            "token.secret = \"<redacted>\" # SLUICE_TOKEN__SECRET\n\
             listen = \"127.0.0.1:1\" # --listen\n\
             database = \"mysql://h/d\" # --database\n\
             legacy_database = \"mysql://o/old\" # SLUICE_X\n\
             demo = false # default\n# redis is unset\n"
        );
    }
}
