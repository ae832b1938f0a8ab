//! `sluice serve --check-config`: everything that speaks against a start, in one go.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Output;

use common::{SECRET, sluice};

fn check(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = sluice(["serve", "--check-config"]);
    command.env_remove("SLUICE_TOKEN__SECRET");
    command.args(arguments).envs(variables.iter().copied()).output().unwrap()
}

fn lines(output: &Output) -> Vec<String> {
    String::from_utf8(output.stderr.clone()).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn all_findings_are_listed_with_exit_code_2_and_no_secret_in_them() {
    let dir = tempfile::tempdir().unwrap();
    let secret = dir.path().join("secret");
    fs::write(&secret, SECRET).unwrap();
    fs::set_permissions(&secret, Permissions::from_mode(0o644)).unwrap();
    let secret = secret.display().to_string();
    let found = check(
        &["--demo", "--listen", "0.0.0.0:8080"],
        &[
            ("SLUICE_TOKEN__SECRET_FILE", &secret),
            ("SLUICE_TOKEN__VERIFY_KEYS", "old=HS256:/nonexistent"),
            ("SLUICE_HTTP__REQUIRE_TLS", "true"),
        ],
    );
    assert_eq!(found.status.code(), Some(2));
    let lines = lines(&found);
    assert_eq!(lines.len(), 4, "{lines:?}");
    for part in ["/nonexistent", "chmod 600", "--demo on 0.0.0.0:8080", "trusted_proxies"] {
        assert!(lines.iter().any(|line| line.contains(part)), "{part}: {lines:?}");
    }
    assert!(lines.iter().all(|line| line.starts_with("sluice: ") && !line.contains(SECRET)));
}

#[test]
fn a_start_is_refused_for_what_the_check_finds_and_touches_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let data_dir = dir.path().join("data");
    let mut command = sluice(["serve", "--demo", "--listen", "0.0.0.0:0", "--data-dir"]);
    let refused = command.arg(&data_dir).output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(lines(&refused)[0].contains("--demo on 0.0.0.0"), "{refused:?}");
    assert!(!data_dir.exists());
}

#[test]
fn a_default_short_or_missing_secret_is_found_and_a_good_one_is_not() {
    for (secret, code) in [
        (None, 2),
        (Some("changeme-changeme-changeme-changeme"), 2),
        (Some("short"), 2),
        (Some("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"), 2),
        (Some(SECRET), 0),
    ] {
        let variables: Vec<_> = secret.iter().map(|it| ("SLUICE_TOKEN__SECRET", *it)).collect();
        let found = check(&[], &variables);
        assert_eq!(found.status.code(), Some(code), "{secret:?}: {found:?}");
    }
}

#[test]
fn limits_that_do_not_fit_are_found_by_their_names() {
    for (name, value, part) in [
        ("SLUICE_LIMITS__USER", "often", "a rate reads"),
        ("SLUICE_LIMITS__ADAPTIVE", "true", "adaptive"),
        ("SLUICE_CANARY__PERCENT", "101", "percent"),
        ("SLUICE_HTTP__TRUSTED_PROXIES", "10.0.0.0/99", "proxy"),
    ] {
        let found = check(&[], &[("SLUICE_TOKEN__SECRET", SECRET), (name, value)]);
        assert_eq!(found.status.code(), Some(2), "{name}: {found:?}");
        let lines = lines(&found);
        assert!(lines.len() == 1 && lines[0].contains(part), "{name}: {lines:?}");
    }
}

#[test]
fn the_example_that_is_shipped_is_good() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/sluice.toml");
    let found = check(&["--config", example], &[("SLUICE_TOKEN__SECRET", SECRET)]);
    assert_eq!(found.status.code(), Some(0), "{:?}", lines(&found));
    // And what it only shows, with the mark of a comment taken away.
    let dir = tempfile::tempdir().unwrap();
    let (secret, whole) = (dir.path().join("payments"), dir.path().join("sluice.toml"));
    fs::write(&secret, format!("card:{SECRET}")).unwrap();
    fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
    let text = fs::read_to_string(example).unwrap();
    let bare = |line: &str| match line.contains(" = ") {
        true => line.trim_start_matches("# ").to_owned(),
        false => line.to_owned(),
    };
    let text = text.lines().map(bare).collect::<Vec<_>>().join("\n");
    let text = text.replace("/etc/sluice/payments", &secret.display().to_string());
    fs::write(&whole, text).unwrap();
    fs::set_permissions(&whole, Permissions::from_mode(0o640)).unwrap();
    let whole = whole.display().to_string();
    let found = check(&["--config", &whole], &[("SLUICE_TOKEN__SECRET", SECRET)]);
    assert_eq!(found.status.code(), Some(0), "{:?}", lines(&found));
}
