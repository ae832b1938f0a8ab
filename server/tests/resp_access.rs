//! Who may do what on the Redis port.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::Server;
use common::resp::{Client, Reply, open_sale};

/// SHA-256 of `open sesame`.
const HASH: &str = "41ef4bb0b23661e66301aac36066912dac037827b4ae63a7b1165a5aa93ed4eb";

fn start() -> Server {
    let users = format!("shop:buyer:{HASH} ops:admin:{HASH}");
    Server::start_with(&["--resp-listen", "127.0.0.1:0"], &[("SLUICE_RESP__USERS", &users)])
}

fn ok() -> Reply {
    Reply::Simple("OK".to_owned())
}

#[test]
fn nobody_does_anything_before_they_said_who_they_are() {
    let server = start();
    let mut client = Client::to(server.resp());
    for line in
        ["PING", "INFO", "FCALL sluice_reserve 1 7 1 a 1", "GET flashsale:stock:7", "HELLO 3"]
    {
        assert_eq!(client.say(line).word(), "NOAUTH", "{line}");
    }
    assert_eq!(client.command(&["AUTH", "shop", "open sesame"]), ok());
    assert_eq!(client.say("PING"), Reply::Simple("PONG".to_owned()));
    assert_eq!(client.say("RESET"), Reply::Simple("RESET".to_owned()));
    assert_eq!(client.say("PING").word(), "NOAUTH");
}

#[test]
fn a_buyer_reserves_and_looks_and_an_admin_does_everything() {
    let server = start();
    let mut admin = Client::to(server.resp());
    let hello = ["HELLO", "3", "AUTH", "ops", "open sesame", "SETNAME", "console"];
    assert!(matches!(admin.command(&hello), Reply::Map(_)));
    assert_eq!(admin.say("CLIENT GETNAME"), Reply::bulk("console"));
    open_sale(&mut admin, 7, 10, 1);
    let mut buyer = Client::to(server.resp());
    assert_eq!(buyer.command(&["AUTH", "shop", "open sesame"]), ok());
    let id = 4_294_967_297_i64;
    let made = Reply::purchase(1, id, "100000004294967297", 9);
    assert_eq!(buyer.say("FCALL sluice_reserve 1 7 1 a 1"), made);
    assert!(matches!(buyer.say(&format!("FCALL_RO sluice_get 1 7 {id}")), Reply::Array(_)));
    assert_eq!(buyer.say("GET flashsale:stock:7"), Reply::bulk("9"));
    for line in [
        format!("sluice_confirm 1 7 {id} p"),
        format!("sluice_restore 1 7 {id}"),
        "sluice_warm 1 8 1 1 1 1 1 2".to_owned(),
        "sluice_pause 1 7".to_owned(),
        "sluice_restock 1 7 op 1".to_owned(),
    ] {
        assert_eq!(buyer.say(&format!("FCALL {line}")).word(), "NOPERM", "{line}");
    }
    assert_eq!(admin.say("GET flashsale:stock:7"), Reply::bulk("9"));
}

#[test]
fn wrong_credentials_change_nothing_and_end_the_connection_at_last() {
    let server = start();
    let mut client = Client::to(server.resp());
    let hello = ["HELLO", "3", "AUTH", "ops", "wrong"];
    for _ in 0..7 {
        assert_eq!(client.command(&hello).word(), "WRONGPASS");
    }
    assert_eq!(client.say("PING").word(), "NOAUTH");
    assert_eq!(client.command(&["AUTH", "nobody", "open sesame"]).word(), "WRONGPASS");
    assert!(client.is_closed());
    let mut other = Client::to(server.resp());
    assert_eq!(other.command(&["AUTH", "ops", "open sesame"]), ok());
}

#[test]
fn a_port_beyond_loopback_without_users_is_refused() {
    let output = common::sluice(["serve", "--check-config", "--resp-listen", "0.0.0.0:6379"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("resp.users") && said.lines().count() == 1, "{said}");
}

#[test]
fn an_address_that_is_taken_is_refused_though_sockets_could_share_it() {
    let server = Server::start_with(&["--resp-listen", "127.0.0.1:0"], &[]);
    let (dir, address) = (tempfile::tempdir().unwrap(), server.resp().to_string());
    let mut command = common::sluice(["serve", "--listen", "127.0.0.1:0", "--resp-listen"]);
    command.arg(&address).arg("--data-dir").arg(dir.path());
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains(&format!("listen on {address}")), "{said}");
}
