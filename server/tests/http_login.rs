//! Who is calling: logins, tokens, and what ends them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use common::{Answer, SECRET, Server, signed, sluice, token};
use serde_json::{Value, json};

const PASSWORD: &str = "correct horse battery";

const ED_PRIVATE: &str = include_str!("keys/ed25519-private.pem");
const ED_PUBLIC: &str = include_str!("keys/ed25519-public.pem");

fn make_user(server: &Server, id: u64, fields: &Value) -> Answer {
    let mut body = json!({"id": id, "username": format!("user-{id}"), "password": PASSWORD});
    for (name, value) in fields.as_object().unwrap() {
        body[name] = value.clone();
    }
    body.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    server.as_admin("POST", "/api/admin/users", Some(&body))
}

fn login(server: &Server, username: &str, password: &str) -> Answer {
    let body = json!({"username": username, "password": password}).to_string();
    let headers = [("Content-Type", "application/json")];
    server.call("POST", "/api/auth/login", &headers, &body)
}

fn token_of(answer: &Answer) -> String {
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["token"].as_str().unwrap().to_owned()
}

fn list(server: &Server, token: &str) -> u16 {
    server.authorized(token, "GET", "/api/flashsales", &[], None).status
}

#[test]
fn a_login_gives_a_token_with_the_accounts_id_and_role() {
    let server = Server::start();
    assert_eq!(make_user(&server, 7, &json!({})).status, 201);
    assert_eq!(make_user(&server, 8, &json!({"role": "admin"})).status, 201);
    let answer = login(&server, "user-7", PASSWORD);
    let shopper = token_of(&answer);
    assert!(answer.json()["expires_at"].as_str().unwrap().ends_with('Z'), "{answer:?}");
    let activity = server.activity(&json!({}));
    let path = format!("/api/flashsales/{activity}/purchase");
    let body = json!({"client_request_id": "a"});
    let bought = server.authorized(&shopper, "POST", &path, &[], Some(&body));
    assert_eq!(bought.status, 202, "{bought:?}");
    let query = format!("/api/flashsales/purchases/{}", bought.json()["pre_deduction_id"]);
    assert_eq!(server.as_user(7, "GET", &query, None).status, 200, "it is user 7's");
    let admin_list =
        |token: &str| server.authorized(token, "GET", "/api/admin/flashsales", &[], None).status;
    let admin = token_of(&login(&server, "user-8", PASSWORD));
    assert_eq!([admin_list(&shopper), admin_list(&admin)], [403, 200]);
}

#[test]
fn a_wrong_name_a_wrong_password_and_an_account_without_one_are_the_same_answer() {
    let server = Server::start();
    assert_eq!(make_user(&server, 7, &json!({})).status, 201);
    let body = json!({"id": 8, "username": "user-8"});
    assert_eq!(server.as_admin("POST", "/api/admin/users", Some(&body)).status, 201);
    let mut bodies = Vec::new();
    for (name, password) in [
        ("user-7", "wrong horse battery"),
        ("USER-7", PASSWORD),
        ("user-7 ", PASSWORD),
        ("nobody", PASSWORD),
        ("user-8", PASSWORD),
        ("' OR 1=1 --", PASSWORD),
    ] {
        let answer = login(&server, name, password);
        assert_eq!(answer.verdict(), (401, "unauthenticated".to_owned()), "{name}");
        bodies.push(answer.body);
    }
    bodies.dedup();
    assert_eq!(bodies.len(), 1, "{bodies:?}");
    for body in ["{}", "[]", "{\"username\":\"a\"}", "{\"username\":\"\",\"password\":\"x\"}"] {
        let headers = [("Content-Type", "application/json")];
        let answer = server.call("POST", "/api/auth/login", &headers, body);
        assert_eq!(answer.verdict(), (400, "invalid_request".to_owned()), "{body}");
    }
}

#[test]
fn failures_close_an_account_for_a_while_and_successes_do_not_count() {
    let server = Server::start_with(&[], &[("SLUICE_LOGIN__PER_ACCOUNT", "2/1h")]);
    assert_eq!(make_user(&server, 7, &json!({})).status, 201);
    assert_eq!(make_user(&server, 8, &json!({})).status, 201);
    for _ in 0..4 {
        token_of(&login(&server, "user-7", PASSWORD));
    }
    for _ in 0..2 {
        assert_eq!(login(&server, "user-7", "wrong horse battery").status, 401);
    }
    let closed = login(&server, "user-7", PASSWORD);
    assert_eq!(closed.verdict(), (429, "rate_limited".to_owned()));
    assert!(closed.header("retry-after").is_some(), "{closed:?}");
    token_of(&login(&server, "user-8", PASSWORD));
    // A name that nobody has is closed like one that somebody has.
    for status in [401, 401, 429] {
        assert_eq!(login(&server, "nobody", PASSWORD).status, status);
    }
}

#[test]
fn tries_are_limited_by_address_where_that_is_asked_for() {
    let env = [("SLUICE_LOGIN__PER_IP", "3/1h"), ("SLUICE_HTTP__TRUSTED_PROXIES", "127.0.0.1")];
    let server = Server::start_with(&[], &env);
    let try_from = |address: &str, name: &str| {
        let body = json!({"username": name, "password": PASSWORD}).to_string();
        let headers = [("Content-Type", "application/json"), ("X-Forwarded-For", address)];
        server.call("POST", "/api/auth/login", &headers, &body).status
    };
    let tries = ["a", "b", "c", "d"].map(|name| try_from("1.2.3.4", name));
    assert_eq!(tries, [401, 401, 401, 429]);
    assert_eq!(try_from("6.6.6.6, 1.2.3.4", "e"), 429, "what the client wrote is not believed");
    assert_eq!(try_from("1.2.3.5", "a"), 401);
}

#[test]
fn a_token_that_was_logged_out_stays_so_over_restarts_and_without_sql() {
    let scratch = tempfile::tempdir().unwrap();
    let data_dir = scratch.path().join("data");
    let (gone, kept) = {
        let mut server = Server::start_in(&data_dir, &[], &[]);
        assert_eq!(make_user(&server, 7, &json!({})).status, 201);
        let gone = token_of(&login(&server, "user-7", PASSWORD));
        let kept = token_of(&login(&server, "user-7", PASSWORD));
        let out = server.authorized(&gone, "POST", "/api/auth/logout", &[], None);
        assert_eq!(out.status, 204, "{out:?}");
        assert_eq!([list(&server, &gone), list(&server, &kept)], [401, 200]);
        let again = server.authorized(&gone, "POST", "/api/auth/logout", &[], None);
        assert_eq!(again.status, 401);
        server.signal(common::Signal::KILL);
        server.wait();
        (gone, kept)
    };
    // Another, empty database: what is revoked is in the log.
    let elsewhere = format!("sqlite:{}", scratch.path().join("other.db").display());
    let server = Server::start_in(&data_dir, &["--database", &elsewhere], &[]);
    assert_eq!([list(&server, &gone), list(&server, &kept)], [401, 200]);
}

#[test]
fn a_disabled_account_can_neither_log_in_nor_use_a_token_it_has() {
    let server = Server::start();
    assert_eq!(make_user(&server, 7, &json!({})).status, 201);
    let shopper = token_of(&login(&server, "user-7", PASSWORD));
    let switch = |to: &str| {
        let path = format!("/api/admin/users/7/{to}");
        assert_eq!(server.as_admin("POST", &path, None).status, 204, "{to}");
    };
    switch("disable");
    assert_eq!(list(&server, &shopper), 401);
    assert_eq!(login(&server, "user-7", PASSWORD).status, 401);
    switch("enable");
    assert_eq!(list(&server, &shopper), 200);
    token_of(&login(&server, "user-7", PASSWORD));
    assert_eq!(server.as_admin("POST", "/api/admin/users/x/disable", None).status, 404);
}

#[test]
fn passwords_come_with_accounts_and_can_be_changed() {
    let server = Server::start();
    for (fields, status) in [
        (json!({"password": "short"}), 400),
        (json!({"password": null}), 201),
        (json!({"password": null, "password_hash": "plain text"}), 400),
    ] {
        let id = 20 + u64::from(status == 400);
        assert_eq!(make_user(&server, id, &fields).status, status, "{fields}");
    }
    let csv = format!("id,username,password\n7,amy,{PASSWORD}\n8,bob,\n");
    let admin = format!("Bearer {}", token(1, "admin"));
    let headers = [("Authorization", admin.as_str()), ("Content-Type", "text/csv")];
    let made = server.call("POST", "/api/admin/users", &headers, &csv);
    assert_eq!(made.status, 201, "{made:?}");
    token_of(&login(&server, "amy", PASSWORD));
    let set = |id: u64, password: &str| {
        let path = format!("/api/admin/users/{id}/password");
        let body = json!({"password": password});
        server.as_admin("PUT", &path, Some(&body)).status
    };
    assert_eq!([set(7, "another horse"), set(8, PASSWORD), set(99, PASSWORD)], [204, 204, 404]);
    assert_eq!(login(&server, "amy", PASSWORD).status, 401);
    token_of(&login(&server, "amy", "another horse"));
    token_of(&login(&server, "bob", PASSWORD));
}

/// A server that verifies EdDSA tokens alone, and the directory with its keys.
fn verifier(dir: &Path) -> Server {
    fs::write(dir.join("ed.pub"), ED_PUBLIC).unwrap();
    let keys = format!("ed-1=EdDSA:{}", dir.join("ed.pub").display());
    let mut command = sluice(["serve", "--listen", "127.0.0.1:0", "--data-dir"]);
    command.arg(dir.join("data")).env_remove("SLUICE_TOKEN__SECRET");
    command.env("SLUICE_TOKEN__VERIFY_KEYS", keys);
    Server::of(command, &dir.join("data"))
}

fn ed_token(dir: &Path) -> String {
    let private = dir.join("ed.pem");
    fs::write(&private, ED_PRIVATE).unwrap();
    fs::set_permissions(&private, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(dir.join("ed.pub"), ED_PUBLIC).unwrap();
    let mut command: Command = sluice(["token", "--user", "7"]);
    command.env_remove("SLUICE_TOKEN__SECRET");
    command.env("SLUICE_TOKEN__PRIVATE_KEY_FILE", &private);
    command.env("SLUICE_TOKEN__ALGORITHM", "EdDSA");
    command.env("SLUICE_TOKEN__KID", "ed-1");
    let keys = format!("ed-1=EdDSA:{}", dir.join("ed.pub").display());
    let printed = command.env("SLUICE_TOKEN__VERIFY_KEYS", keys).output().unwrap();
    assert!(printed.status.success(), "{printed:?}");
    String::from_utf8(printed.stdout).unwrap().trim().to_owned()
}

#[test]
fn a_server_with_a_public_key_takes_tokens_from_elsewhere_and_makes_none() {
    let dir = tempfile::tempdir().unwrap();
    let theirs = ed_token(dir.path());
    let server = verifier(dir.path());
    assert_eq!(list(&server, &theirs), 200);
    assert_eq!(login(&server, "amy", PASSWORD).status, 404);
    // Ours, the public key for a secret, and no signature at all.
    let ours = token(7, "admin");
    let claims =
        json!({"sub": "7", "role": "admin", "exp": 99_999_999_999_u64, "iat": 1, "jti": "x"});
    let unsigned = format!("eyJhbGciOiJub25lIn0.{}.", theirs.split('.').nth(1).unwrap());
    for forged in [ours, signed(&claims, ED_PUBLIC), signed(&claims, ED_PUBLIC.trim()), unsigned] {
        assert_eq!(list(&server, &forged), 401, "{forged}");
    }
}

#[test]
fn nothing_secret_is_written_into_the_log_whatever_is_asked() {
    let env = [("SLUICE_LOGIN__PER_ACCOUNT", "3/1h"), ("SLUICE_LIMITS__USER", "1/1h")];
    let mut server = Server::start_with(&["--log-level", "trace"], &env);
    assert_eq!(make_user(&server, 7, &json!({})).status, 201);
    let shopper = token_of(&login(&server, "user-7", PASSWORD));
    for password in ["wrong horse battery", "staple wrong horse", "a third wrong horse"] {
        login(&server, "user-7", password);
    }
    let activity = server.activity(&json!({}));
    let path = format!("/api/flashsales/{activity}/purchase");
    for id in ["a", "b", "c"] {
        let body = json!({"client_request_id": id});
        server.authorized(&shopper, "POST", &path, &[], Some(&body));
    }
    server.authorized(&shopper, "POST", "/api/auth/logout", &[], None);
    let admin = token(1, "admin");
    let said = server.said();
    assert!(said.iter().any(|line| line.contains("refused")), "the log says who was refused");
    let signature = |token: &str| token.rsplit('.').next().unwrap().to_owned();
    let secrets =
        [SECRET, PASSWORD, "wrong horse", "argon2id", &signature(&shopper), &signature(&admin)];
    for secret in secrets {
        let shown: Vec<_> = said.iter().filter(|line| line.contains(secret)).collect();
        assert!(shown.is_empty(), "{secret}: {shown:?}");
    }
}
