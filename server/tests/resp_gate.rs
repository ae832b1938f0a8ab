//! Who may buy over the Redis port: blacklist, kill switch and limits, as over HTTP.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::resp::{Client, Reply, open_sale};
use common::{Server, token};
use serde_json::{Value, json};

const ACTIVITY: u64 = 7;

/// A server with a sale of plenty, and a connection to it.
fn start() -> (Server, Client) {
    let server = Server::start_with(&["--resp-listen", "127.0.0.1:0"], &[]);
    let mut client = Client::to(server.resp());
    open_sale(&mut client, ACTIVITY, 1_000, 100);
    (server, client)
}

fn set_limits(server: &Server, fields: &Value) {
    let answer = server.as_admin("PUT", "/api/admin/limits", Some(fields));
    assert_eq!(answer.status, 200, "{answer:?}");
}

fn buy(client: &mut Client, user: u64, id: &str) -> Reply {
    client.say(&format!("FCALL sluice_reserve 1 {ACTIVITY} {user} {id} 1"))
}

fn code(reply: &Reply) -> i64 {
    match reply {
        Reply::Array(items) => match items[0] {
            Reply::Integer(code) => code,
            _ => panic!("{reply:?}"),
        },
        _ => panic!("{reply:?}"),
    }
}

fn over_http(server: &Server, user: u64, id: &str) -> u16 {
    let body = json!({"client_request_id": id});
    let path = format!("/api/flashsales/{ACTIVITY}/purchase");
    server.authorized(&token(user, "user"), "POST", &path, &[], Some(&body)).status
}

fn metric(server: &Server, sample: &str) -> u64 {
    let text = server.call("GET", "/metrics", &[], "").body;
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{sample} ")));
    line.unwrap_or_else(|| panic!("{sample} is not in {text}")).parse().unwrap()
}

fn limited_by(reply: &Reply, scope: &str) {
    let Reply::Error(text) = reply else { panic!("{reply:?}") };
    let holds = reply.word() == "OVERLOADED" && text.contains(&format!("'{scope}'"));
    assert!(holds && text.contains("nothing was reserved"), "{text}");
}

#[test]
fn a_users_limit_holds_a_repeat_takes_nothing_and_others_are_not_touched() {
    let (server, mut client) = start();
    set_limits(&server, &json!({"user": "2/1h"}));
    assert_eq!(code(&buy(&mut client, 1, "a")), 1);
    for _ in 0..5 {
        assert_eq!(code(&buy(&mut client, 1, "a")), 2);
    }
    assert_eq!(code(&buy(&mut client, 1, "b")), 1);
    limited_by(&buy(&mut client, 1, "c"), "user");
    assert_eq!(code(&buy(&mut client, 1, "b")), 2);
    assert_eq!(code(&buy(&mut client, 2, "a")), 1);
    assert_eq!(metric(&server, "sluice_gate_refusals_total{reason=\"user\"}"), 1);
    assert_eq!(metric(&server, "sluice_purchases_total{outcome=\"rate_limited\"}"), 1);
    set_limits(&server, &json!({"user": null}));
    assert_eq!(code(&buy(&mut client, 1, "c")), 1);
}

#[test]
fn in_a_pipeline_a_repeat_is_known_though_its_first_time_came_with_it() {
    let (server, mut client) = start();
    set_limits(&server, &json!({"user": "2/1h"}));
    let ids = ["a", "a", "a", "b", "a", "c", "b"];
    for id in ids {
        let words = ["FCALL", "sluice_reserve", "1", "7", "5", id, "1"];
        client.send(common::resp::request(&words));
    }
    let replies: Vec<Reply> = ids.iter().map(|_| client.reply().unwrap()).collect();
    let codes: Vec<i64> = [0, 1, 2, 3, 4, 6].map(|at| code(&replies[at])).to_vec();
    assert_eq!(codes, [1, 2, 2, 1, 2, 2]);
    limited_by(&replies[5], "user");
}

#[test]
fn limits_that_span_users_are_one_for_both_ports() {
    for scope in ["global", "activity"] {
        let (server, mut client) = start();
        set_limits(&server, &json!({scope: "3/1h"}));
        assert_eq!(over_http(&server, 1, "a"), 202);
        assert_eq!(code(&buy(&mut client, 2, "a")), 1);
        assert_eq!(over_http(&server, 3, "a"), 202);
        limited_by(&buy(&mut client, 4, "a"), scope);
        assert_eq!(over_http(&server, 5, "a"), 429);
    }
}

#[test]
fn limits_by_address_and_admission_are_about_shoppers_own_connections() {
    let (server, mut client) = start();
    set_limits(&server, &json!({"ip": "1/1h", "admission": true}));
    for user in 1..=5 {
        assert_eq!(code(&buy(&mut client, user, "a")), 1);
    }
}

#[test]
fn while_everything_is_stopped_a_purchase_is_paused_and_takes_from_no_limit() {
    let (server, mut client) = start();
    set_limits(&server, &json!({"user": "1/1h"}));
    assert_eq!(server.as_admin("POST", "/api/admin/stop", None).status, 204);
    for id in ["a", "b", "c"] {
        assert_eq!(code(&buy(&mut client, 1, id)), -4);
    }
    assert_eq!(server.as_admin("POST", "/api/admin/start", None).status, 204);
    assert_eq!(code(&buy(&mut client, 1, "a")), 1);
    limited_by(&buy(&mut client, 1, "b"), "user");
}

#[test]
fn users_of_the_canary_have_its_limits_here_too() {
    let (server, mut client) = start();
    let canary = json!({"percent": 100, "limits": {"user": "1/1h"}});
    set_limits(&server, &json!({"canary": canary}));
    assert_eq!(code(&buy(&mut client, 1, "a")), 1);
    limited_by(&buy(&mut client, 1, "b"), "user");
}

#[test]
fn who_is_on_the_blacklist_is_refused_first_and_counted() {
    let (server, mut client) = start();
    set_limits(&server, &json!({"user": "1/1h"}));
    assert_eq!(code(&buy(&mut client, 1, "a")), 1);
    let entry = json!({"kind": "user", "value": "1"});
    assert_eq!(server.as_admin("POST", "/api/admin/blacklist", Some(&entry)).status, 201);
    for id in ["a", "b"] {
        assert_eq!(buy(&mut client, 1, id).word(), "BLACKLISTED");
    }
    assert_eq!(metric(&server, "sluice_gate_refusals_total{reason=\"blacklisted_user\"}"), 2);
    assert_eq!(metric(&server, "sluice_purchases_total{outcome=\"blacklisted\"}"), 2);
}
