//! `sluice token`: tokens that a running server honours, and one line where there is no secret.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
#[path = "common/shop.rs"]
mod shop;

use common::sluice;
use shop::{Connection, scratch};

#[test]
fn a_printed_token_is_honoured_as_its_role_by_a_running_server() {
    let data_dir = scratch();
    let server = shop::demo(data_dir.path());
    let mut connection = Connection::new(server.address);
    let mut status =
        |path: &str, token: &str| connection.call(("GET", path), token, None).unwrap().status;
    let users = shop::tokens(data_dir.path(), 7, 3);
    assert_eq!(users.len(), 3);
    let admin = shop::admin_token(data_dir.path());
    for user in &users {
        assert_eq!(status("/api/flashsales", user), 200);
        assert_ne!(status("/api/admin/flashsales", user), 200, "a user is no admin");
    }
    assert_eq!(status("/api/admin/flashsales", &admin), 200);
}

#[test]
fn without_a_secret_there_is_one_line_and_a_usage_error() {
    let dir = scratch();
    let output = sluice(["token", "--data-dir"])
        .arg(dir.path().join("none"))
        .env_remove("SLUICE_TOKEN__SECRET")
        .output()
        .unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), errors.lines().count()), (Some(2), 1), "{errors}");
    assert!(output.stdout.is_empty());
}
