//! Admission tokens and proofs of work: nothing is bought without, nothing twice with one.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Answer, Server, token};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

fn set_limits(server: &Server, fields: &Value) {
    let answer = server.as_admin("PUT", "/api/admin/limits", Some(fields));
    assert_eq!(answer.status, 200, "{answer:?}");
}

fn ask(server: &Server, user: u64, activity: u64, body: &Value) -> Answer {
    server.as_user(user, "POST", &format!("/api/flashsales/{activity}/admission"), Some(body))
}

fn admission(server: &Server, user: u64, activity: u64) -> String {
    let answer = ask(server, user, activity, &json!({}));
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["token"].as_str().unwrap().to_owned()
}

fn buy(server: &Server, user: u64, activity: u64, id: &str, admission: &str) -> Answer {
    let body = json!({"client_request_id": id});
    let path = format!("/api/flashsales/{activity}/purchase");
    let headers = [("X-Admission-Token", admission)];
    server.authorized(&token(user, "user"), "POST", &path, &headers, Some(&body))
}

fn refused(answer: &Answer) {
    assert_eq!(answer.verdict(), (403, "admission_required".to_owned()), "{answer:?}");
}

/// What a shopper's page does: SHA-256 over `challenge.solution` until it begins with zeros.
fn solve(challenge: &str, zero_bits: u64) -> String {
    let zeros = |solution: &String| {
        let hash = Sha256::digest(format!("{challenge}.{solution}"));
        let number = u64::from_be_bytes(hash[..8].try_into().unwrap());
        u64::from(number.leading_zeros()) >= zero_bits
    };
    (0_u64..).map(|number| number.to_string()).find(zeros).unwrap()
}

#[test]
fn a_purchase_needs_a_token_of_this_shopper_for_this_sale_and_uses_it_up() {
    let server = Server::start();
    let fields = json!({"stock": 100, "per_user_limit": 9});
    let (sale, other) = (server.activity(&fields), server.activity(&fields));
    assert_eq!(server.buy(7, sale, "before", 1).status, 202);
    set_limits(&server, &json!({"admission": true}));
    refused(&server.buy(7, sale, "a", 1));
    assert_eq!(server.buy(7, sale, "before", 1).status, 202, "a repeat needs none");
    let mine = admission(&server, 7, sale);
    refused(&buy(&server, 8, sale, "a", &mine));
    refused(&buy(&server, 7, other, "a", &mine));
    refused(&buy(&server, 7, sale, "a", &mine.replace('.', "")));
    assert_eq!(buy(&server, 7, sale, "a", &mine).status, 202);
    refused(&buy(&server, 7, sale, "b", &mine));
    assert_eq!(server.figures(sale), [100, 98, 2, 0]);
    assert_eq!(server.figures(other), [100, 100, 0, 0]);
}

#[test]
fn a_token_that_a_limit_refused_is_still_good() {
    let server = Server::start();
    let sale = server.activity(&json!({"stock": 100, "per_user_limit": 9}));
    set_limits(&server, &json!({"admission": true, "user": "1/1h"}));
    let first = admission(&server, 7, sale);
    assert_eq!(buy(&server, 7, sale, "a", &first).status, 202);
    let second = admission(&server, 7, sale);
    assert_eq!(buy(&server, 7, sale, "b", &second).code(), "rate_limited");
    set_limits(&server, &json!({"user": "off"}));
    assert_eq!(buy(&server, 7, sale, "b", &second).status, 202);
}

#[test]
fn no_token_is_given_before_its_time() {
    let server = Server::start();
    let early = server.activity(&json!({"start_at": "2098-01-01T00:00:00Z"}));
    set_limits(&server, &json!({"admission": true, "admission_lead": "1m"}));
    assert_eq!(ask(&server, 7, early, &json!({})).verdict(), (409, "not_started".to_owned()));
    assert_eq!(ask(&server, 7, 999_999, &json!({})).code(), "activity_not_found");
}

#[test]
fn a_token_may_cost_a_proof_of_work_that_counts_once() {
    let server = Server::start();
    let sale = server.activity(&json!({"stock": 100, "per_user_limit": 9}));
    set_limits(&server, &json!({"admission": true, "proof_bits": 10}));
    let asked = ask(&server, 7, sale, &json!({})).json();
    assert!(asked.get("token").is_none(), "{asked}");
    let challenge = asked["challenge"].as_str().unwrap();
    let solution = solve(challenge, asked["zero_bits"].as_u64().unwrap());
    let proof = json!({"challenge": challenge, "solution": solution});
    refused(&ask(&server, 8, sale, &proof));
    refused(&ask(&server, 7, sale, &json!({"challenge": challenge, "solution": "x"})));
    let solved = ask(&server, 7, sale, &proof);
    assert_eq!(solved.status, 200, "{solved:?}");
    let token = solved.json()["token"].as_str().unwrap().to_owned();
    refused(&ask(&server, 7, sale, &proof));
    assert_eq!(buy(&server, 7, sale, "a", &token).status, 202);
}
