//! Who may come in: blacklist, kill switch, limits, in the order of the contract, on the running
//! server.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeMap;
use std::path::Path;

use common::{Answer, Server, Signal, token};
use serde_json::{Value, json};

fn path(activity: u64) -> String {
    format!("/api/flashsales/{activity}/purchase")
}

/// A purchase with further headers.
fn buy_with(
    server: &Server,
    user: u64,
    activity: u64,
    id: &str,
    headers: &[(&str, &str)],
) -> Answer {
    let body = json!({"client_request_id": id});
    server.authorized(&token(user, "user"), "POST", &path(activity), headers, Some(&body))
}

fn refused(answer: &Answer, status: u16, code: &str) {
    assert_eq!(answer.verdict(), (status, code.to_owned()), "{answer:?}");
    assert!(answer.json().get("pre_deduction_id").is_none());
}

fn set_limits(server: &Server, fields: &Value) -> Value {
    let answer = server.as_admin("PUT", "/api/admin/limits", Some(fields));
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

fn switch(server: &Server, to: &str) {
    assert_eq!(server.as_admin("POST", &format!("/api/admin/{to}"), None).status, 204);
}

fn list(server: &Server, entry: &Value) {
    let answer = server.as_admin("POST", "/api/admin/blacklist", Some(entry));
    assert_eq!(answer.status, 201, "{answer:?}");
}

/// The value of a metric's sample by its name and labels.
fn metric(server: &Server, sample: &str) -> u64 {
    let text = server.call("GET", "/metrics", &[], "").body;
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{sample} ")));
    line.unwrap_or_else(|| panic!("{sample} is not in {text}")).parse().unwrap()
}

#[test]
fn who_is_on_the_blacklist_buys_nothing_from_the_next_request_on() {
    let env = [("SLUICE_HTTP__TRUSTED_PROXIES", "127.0.0.1")];
    let server = Server::start_with(&[], &env);
    let activity = server.activity(&json!({"stock": 100}));
    let from = |user: u64, ip: &str, device: &str, id: &str| {
        let headers = [("X-Forwarded-For", ip), ("X-Device-Id", device)];
        buy_with(&server, user, activity, id, &headers)
    };
    assert_eq!(from(1, "1.1.1.1", "d1", "a").status, 202);
    list(&server, &json!({"kind": "user", "value": "2", "reason": "bot"}));
    list(&server, &json!({"kind": "user", "value": 3}));
    list(&server, &json!({"kind": "ip", "value": "::ffff:6.6.6.6"}));
    list(&server, &json!({"kind": "device", "value": "farm-7"}));
    refused(&from(2, "1.1.1.1", "d1", "a"), 403, "blacklisted");
    refused(&from(3, "1.1.1.1", "d1", "a"), 403, "blacklisted");
    refused(&from(4, "6.6.6.6", "d1", "a"), 403, "blacklisted");
    refused(&from(4, "1.1.1.1", "farm-7", "a"), 403, "blacklisted");
    assert_eq!(from(4, "1.1.1.1", "d1", "a").status, 202);
    let shown = server.as_admin("GET", "/api/admin/blacklist", None).json();
    assert_eq!(shown["total"], 4);
    assert_eq!(shown["items"][0]["value"], "2");
    assert_eq!(shown["items"][0]["reason"], "bot");
    assert_eq!(metric(&server, "sluice_gate_refusals_total{reason=\"blacklisted_user\"}"), 2);
    let query = "/api/admin/blacklist?kind=ip&value=6.6.6.6";
    assert_eq!(server.as_admin("DELETE", query, None).status, 204);
    assert_eq!(server.as_admin("DELETE", query, None).status, 404);
    let body = json!({"kind": "device", "value": "farm-7"});
    assert_eq!(server.as_admin("DELETE", "/api/admin/blacklist", Some(&body)).status, 204);
    assert_eq!(from(5, "6.6.6.6", "farm-7", "a").status, 202);
}

#[test]
fn an_entry_is_kept_over_a_kill_and_one_with_an_end_ends_by_itself() {
    let scratch = tempfile::tempdir().unwrap();
    let data_dir = scratch.path().join("data");
    let activity = {
        let mut server = Server::start_in(&data_dir, &[], &[]);
        let activity = server.activity(&json!({"stock": 100}));
        list(&server, &json!({"kind": "user", "value": "2"}));
        list(&server, &json!({"kind": "user", "value": "3", "expires_at": soon()}));
        refused(&server.buy(2, activity, "a", 1), 403, "blacklisted");
        switch(&server, "stop");
        server.signal(Signal::KILL);
        server.wait();
        activity
    };
    let server = Server::start_in(&data_dir, &[], &[]);
    refused(&server.buy(2, activity, "a", 1), 403, "blacklisted");
    refused(&server.buy(4, activity, "a", 1), 409, "paused");
    switch(&server, "start");
    let deadline = std::time::Instant::now() + common::PATIENCE;
    while server.buy(3, activity, "a", 1).status != 202 {
        assert!(std::time::Instant::now() < deadline, "the entry does not end");
    }
    refused(&server.buy(2, activity, "a", 1), 403, "blacklisted");
}

/// An instant some two seconds ahead, as JSON has it.
fn soon() -> String {
    let server_now = std::time::SystemTime::now() + std::time::Duration::from_secs(2);
    let since = server_now.duration_since(std::time::UNIX_EPOCH).unwrap();
    let days = since.as_secs() / 86_400;
    let (hour, rest) = (since.as_secs() % 86_400 / 3600, since.as_secs() % 3600);
    // Civil from days, after Howard Hinnant.
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{:02}:{:02}Z", rest / 60, rest % 60)
}

#[test]
fn an_entry_that_names_nobody_is_refused() {
    let server = Server::start();
    for entry in [
        json!({"kind": "user", "value": "x"}),
        json!({"kind": "user", "value": 0}),
        json!({"kind": "ip", "value": "1.2.3"}),
        json!({"kind": "device", "value": ""}),
        json!({"kind": "phone", "value": "1"}),
        json!({"kind": "user", "value": "1", "expires_at": "2020-01-01T00:00:00Z"}),
        json!({"kind": "user", "value": "1", "reason": "x".repeat(300)}),
        json!({"kind": "user"}),
        json!({}),
    ] {
        let answer = server.as_admin("POST", "/api/admin/blacklist", Some(&entry));
        refused(&answer, 400, "invalid_request");
    }
    for (method, path) in [
        ("GET", "/api/admin/blacklist"),
        ("POST", "/api/admin/blacklist"),
        ("DELETE", "/api/admin/blacklist?kind=user&value=1"),
        ("GET", "/api/admin/limits"),
        ("PUT", "/api/admin/limits"),
        ("POST", "/api/admin/canary"),
        ("POST", "/api/admin/stop"),
        ("POST", "/api/admin/start"),
        ("PUT", "/api/admin/users/1/password"),
        ("POST", "/api/admin/users/1/disable"),
    ] {
        assert_eq!(server.as_user(7, method, path, None).code(), "forbidden", "{method} {path}");
    }
}

#[test]
fn the_kill_switch_stops_every_sale_at_once_and_leaves_what_is_sold() {
    let server = Server::start();
    let (one, other) = (server.activity(&json!({})), server.activity(&json!({})));
    let bought = server.buy(1, one, "a", 1).json();
    switch(&server, "stop");
    for activity in [one, other, 999_999] {
        refused(&server.buy(2, activity, "a", 1), 409, "paused");
    }
    let again = server.buy(1, one, "a", 1);
    assert_eq!(again.status, 202, "a repeat shows what was bought");
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(server.as_admin("GET", "/api/admin/limits", None).json()["stopped"], true);
    let cancel = format!("/api/orders/{}/cancel", bought["order_no"].as_str().unwrap());
    assert_eq!(server.as_user(1, "POST", &cancel, None).status, 200);
    switch(&server, "stop");
    let admin = token(42, "admin");
    let headers = [("X-Request-Id", "ops-7")];
    let start = server.authorized(&admin, "POST", "/api/admin/start", &headers, None);
    assert_eq!(start.status, 204);
    assert_eq!(server.buy(2, other, "a", 1).status, 202);
    switch(&server, "start");
    // Who did it, and in which request, stands in the log.
    let dumped = common::sluice(["dump", "--data-dir"]).arg(server.data_dir()).output().unwrap();
    let dumped = String::from_utf8(dumped.stdout).unwrap();
    let lifted = dumped.lines().find(|line| line.contains("ops-7")).unwrap();
    assert!(lifted.contains("stop") && lifted.contains("42"), "{lifted}");
}

#[test]
fn the_checks_answer_in_the_order_of_the_contract() {
    let server = Server::start();
    let activity = server.activity(&json!({"stock": 100, "per_user_limit": 5}));
    assert_eq!(server.buy(7, activity, "known", 1).status, 202);
    assert_eq!(server.buy(8, activity, "known", 1).status, 202);
    list(&server, &json!({"kind": "user", "value": "7"}));
    set_limits(&server, &json!({"global": "1/1h"}));
    assert_eq!(server.buy(8, activity, "the last", 1).status, 202);
    let bad = json!({"client_request_id": "", "quantity": 1});
    let shape = |user| server.as_user(user, "POST", &path(activity), Some(&bad));
    let no_token = server.call("POST", &path(activity), &[], &bad.to_string());
    // Limits come before everything about the activity, known or not.
    refused(&no_token, 401, "unauthenticated");
    refused(&shape(7), 400, "invalid_request");
    refused(&server.buy(7, activity, "known", 1), 403, "blacklisted");
    assert_eq!(server.buy(8, activity, "known", 1).status, 202);
    refused(&server.buy(8, activity, "known", 2), 422, "request_id_reused");
    refused(&server.buy(8, activity, "new", 1), 429, "rate_limited");
    refused(&server.buy(8, 999_999, "new", 1), 429, "rate_limited");
    switch(&server, "stop");
    assert_eq!(server.buy(8, activity, "known", 1).status, 202);
    refused(&server.buy(8, activity, "new", 1), 409, "paused");
}

#[test]
fn a_limited_call_says_when_to_come_back_and_takes_nothing() {
    let server = Server::start();
    let activity = server.activity(&json!({"stock": 100, "per_user_limit": 50}));
    set_limits(&server, &json!({"frequency": "3/1h", "global": "10/1h"}));
    for id in ["a", "b", "c"] {
        assert_eq!(server.buy(7, activity, id, 1).status, 202);
    }
    for id in ["d", "e", "f", "g", "h", "i", "j", "k", "l"] {
        let answer = server.buy(7, activity, id, 1);
        refused(&answer, 429, "rate_limited");
        let wait: u64 = answer.header("retry-after").unwrap().parse().unwrap();
        assert!((3500..=3601).contains(&wait), "{wait}");
        let limit = answer.header("ratelimit").unwrap();
        assert_eq!(limit, format!("\"frequency\";r=0;t={wait}"));
        assert_eq!(answer.header("ratelimit-policy"), Some("\"frequency\";q=3;w=3600"));
    }
    // Seven of ten are left: what was refused took nothing. Repeats take nothing either.
    for user in 11..=17 {
        assert_eq!(server.buy(user, activity, "a", 1).status, 202, "{user}");
        assert_eq!(server.buy(user, activity, "a", 1).status, 202, "{user}");
    }
    refused(&server.buy(18, activity, "a", 1), 429, "rate_limited");
    assert_eq!(server.figures(activity), [100, 90, 10, 0]);
    assert_eq!(metric(&server, "sluice_gate_refusals_total{reason=\"frequency\"}"), 9);
}

#[test]
fn neither_query_nor_headers_nor_a_parallel_burst_get_around_a_limit() {
    let server = Server::start();
    let activity = server.activity(&json!({"stock": 100, "per_user_limit": 90}));
    set_limits(&server, &json!({"user": "5/1h", "ip": "50/1h"}));
    let accepted: usize = std::thread::scope(|scope| {
        let burst = |thread: usize| {
            let server = &server;
            move || {
                let mut accepted = 0;
                for try_no in 0..10 {
                    let path = format!("/api/flashsales/{activity}/purchase?n={thread}-{try_no}");
                    let address = format!("10.{thread}.{try_no}.1");
                    let headers = [
                        ("X-Forwarded-For", address.as_str()),
                        ("X-Real-IP", address.as_str()),
                        ("Forwarded", "for=9.9.9.9"),
                        ("X-Device-Id", address.as_str()),
                        ("X-Canary", "canary"),
                    ];
                    let body = json!({"client_request_id": format!("{thread}-{try_no}")});
                    let token = token(7, "user");
                    let answer = server.authorized(&token, "POST", &path, &headers, Some(&body));
                    assert!(matches!(answer.status, 202 | 429), "{answer:?}");
                    accepted += usize::from(answer.status == 202);
                }
                accepted
            }
        };
        let threads: Vec<_> = (0..4).map(|thread| scope.spawn(burst(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(accepted, 5);
    // All came from one address, whatever they wrote: 45 more pass from it.
    let others = (100..200).filter(|user| server.buy(*user, activity, "a", 1).status == 202);
    assert_eq!(others.count(), 45);
}

#[test]
fn a_client_behind_a_trusted_proxy_is_limited_by_its_own_address() {
    let env = [
        ("SLUICE_HTTP__TRUSTED_PROXIES", "127.0.0.0/8, 10.0.0.0/8"),
        ("SLUICE_LIMITS__IP", "2/1h"),
    ];
    let server = Server::start_with(&[], &env);
    let activity = server.activity(&json!({"stock": 100}));
    let mut user = 0;
    let mut from = |forwarded: &str| {
        user += 1;
        let headers = [("X-Forwarded-For", forwarded)];
        buy_with(&server, user, activity, "a", &headers).status
    };
    assert_eq!(["1.1.1.1", "1.1.1.1", "1.1.1.1"].map(&mut from), [202, 202, 429]);
    assert_eq!(from("9.9.9.9, 1.1.1.1"), 429);
    assert_eq!(from("1.1.1.1, 10.0.0.3"), 429);
    assert_eq!(["2.2.2.2", "1.1.1.1, 2.2.2.2", "2.2.2.2"].map(&mut from), [202, 202, 429]);
    let site = ["2001:db8::1", "2001:db8::2", "2001:db8::3"].map(&mut from);
    assert_eq!(site, [202, 202, 429], "a site is one caller");
}

#[test]
fn what_did_not_come_over_tls_is_refused_where_that_is_asked_for() {
    let served = |proxies: &str| {
        let env = [("SLUICE_HTTP__REQUIRE_TLS", "true"), ("SLUICE_HTTP__TRUSTED_PROXIES", proxies)];
        let server = Server::start_with(&[], &env);
        let by = |headers: &[(&str, &str)]| {
            server.authorized(&token(1, "admin"), "GET", "/api/flashsales", headers, None).status
        };
        let https = [("X-Forwarded-Proto", "https")];
        let twice = [("X-Forwarded-Proto", "https"), ("X-Forwarded-Proto", "http")];
        assert_eq!(server.call("GET", "/readyz", &[], "").status, 200);
        [by(&https), by(&[("X-Forwarded-Proto", "http")]), by(&twice), by(&[])]
    };
    assert_eq!(served("127.0.0.1"), [200, 403, 403, 403]);
    assert_eq!(served("10.0.0.0/8"), [403; 4], "nobody else's word counts");
}

#[test]
fn in_a_demo_loopback_clients_are_exempt_from_limits_by_address() {
    let server = Server::start_with(&["--demo"], &[("SLUICE_LIMITS__IP", "1/1h")]);
    for user in 1..=5 {
        assert_eq!(server.buy(user, 30_001, "a", 1).status, 202);
    }
}

#[test]
fn limits_change_while_it_runs_are_kept_over_a_kill_and_win_over_the_file() {
    let scratch = tempfile::tempdir().unwrap();
    let (data_dir, file) = (scratch.path().join("data"), scratch.path().join("sluice.toml"));
    write(&file, "user = '2/1h'\nip = '77/1h'\nhot_users = '9=off'\n");
    let args = ["--config", file.to_str().unwrap()];
    let activity = {
        let mut server = Server::start_in(&data_dir, &args, &[]);
        let activity = server.activity(&json!({"stock": 100, "per_user_limit": 9}));
        let tries = |user| ["a", "b", "c"].map(|id| server.buy(user, activity, id, 1).status);
        assert_eq!([tries(1), tries(9)], [[202, 202, 429], [202, 202, 202]]);
        let shown = set_limits(&server, &json!({"user": "1/1h", "hot_users": {"8": "off"}}));
        assert_eq!((&shown["user"], &shown["ip"]), (&json!("1/1h"), &json!("77/1h")));
        assert_eq!(shown["overrides"], json!({"user": "1/1h", "hot_users": {"8": "off"}}));
        assert_eq!(tries(2), [202, 429, 429]);
        server.signal(Signal::KILL);
        server.wait();
        activity
    };
    let mut server = Server::start_in(&data_dir, &args, &[]);
    let tries =
        |server: &Server, user| ["d", "e", "f"].map(|id| server.buy(user, activity, id, 1).status);
    assert_eq!([tries(&server, 3), tries(&server, 8)], [[202, 429, 429], [202, 202, 202]]);
    write(&file, "user = '3/1h'\nip = '66/1h'\n");
    server.signal(Signal::HUP);
    server.error_with("the configuration was reloaded");
    let shown = server.as_admin("GET", "/api/admin/limits", None).json();
    assert_eq!((&shown["user"], &shown["ip"]), (&json!("1/1h"), &json!("66/1h")));
    let shown = set_limits(&server, &json!({"user": null, "hot_users": null}));
    assert_eq!((&shown["user"], &shown["overrides"]), (&json!("3/1h"), &json!({})));
    assert_eq!(tries(&server, 4), [202, 202, 202]);
    write(&file, "user = 'often'\n");
    server.signal(Signal::HUP);
    server.error_with("the old configuration stays");
    assert_eq!(server.as_admin("GET", "/api/admin/limits", None).json()["user"], "3/1h");
}

fn write(file: &Path, limits: &str) {
    std::fs::write(file, format!("[limits]\n{limits}")).unwrap();
}

#[test]
fn a_limit_that_is_none_is_refused_and_changes_nothing() {
    let server = Server::start();
    let before = server.as_admin("GET", "/api/admin/limits", None).json();
    for fields in [
        json!({"user": "often"}),
        json!({"user": 5}),
        json!({"usr": "1/1s"}),
        json!({"adaptive": true}),
        json!({"canary": {"percent": 101}}),
        json!({"proof_bits": 99}),
        json!({"hot_users": {"x": "1/1s"}}),
        json!({"hot_users": (1..500).map(|id| (id.to_string(), "1/1s"))
            .collect::<BTreeMap<_, _>>()}),
    ] {
        let answer = server.as_admin("PUT", "/api/admin/limits", Some(&fields));
        refused(&answer, 400, "invalid_request");
    }
    assert_eq!(server.as_admin("GET", "/api/admin/limits", None).json(), before);
    assert_eq!(before["user"], "off");
    assert_eq!(before["overrides"], json!(null));
}

#[test]
fn the_canary_has_limits_of_its_own_and_ends_at_once() {
    let server = Server::start();
    let activity = server.activity(&json!({"stock": 1000, "per_user_limit": 9}));
    set_limits(
        &server,
        &json!({
            "canary": {"percent": 50, "testers": [7], "limits": {"user": "1/1h"}},
        }),
    );
    let twice = |user: u64| {
        let buy = |id| server.buy(user, activity, id, 1).status;
        assert_eq!(buy("a"), 202);
        buy("b")
    };
    let canaries = (100..150).filter(|user| twice(*user) == 429).count();
    assert!((5..45).contains(&canaries), "{canaries} of fifty");
    let count = |arm: &str, outcome: &str| {
        let labels = format!("arm=\"{arm}\",outcome=\"{outcome}\"");
        metric(&server, &format!("sluice_arm_purchases_total{{{labels}}}"))
    };
    assert_eq!(count("canary", "refused"), canaries as u64);
    assert_eq!(count("canary", "accepted"), canaries as u64);
    assert_eq!(count("stable", "accepted"), 2 * (50 - canaries as u64));
    // Who may ask for an arm gets it.
    let ask = |arm, id| buy_with(&server, 7, activity, id, &[("X-Canary", arm)]).status;
    assert_eq!([ask("canary", "a"), ask("canary", "b"), ask("stable", "c")], [202, 429, 202]);
    let zero = json!({"percent": 0});
    assert_eq!(server.as_admin("POST", "/api/admin/canary", Some(&zero)).status, 200);
    assert!((100..150).all(|user| server.buy(user, activity, "c", 1).status == 202));
    assert_eq!(ask("canary", "d"), 202);
}

#[test]
fn a_flood_from_many_addresses_and_users_leaves_memory_flat() {
    let env = [("SLUICE_HTTP__TRUSTED_PROXIES", "127.0.0.1")];
    let server = Server::start_with(&[], &env);
    let activity = server.activity(&json!({"stock": 1}));
    let all = json!({"user": "1/1h", "ip": "1/1h", "frequency": "1/1h", "user_window": "1/1h"});
    set_limits(&server, &all);
    assert_eq!(server.buy(1, activity, "a", 1).status, 202);
    let flood = |from: u64| {
        let mut connection = server.connect();
        for number in from..from + 2000 {
            let bearer = format!("Bearer {}", token(number, "user"));
            let address = format!("2001:db8:{:x}:{:x}::1", number >> 16, number & 0xffff);
            let headers =
                [("Authorization", bearer.as_str()), ("X-Forwarded-For", address.as_str())];
            let body = format!("{{\"client_request_id\":\"{number}\"}}");
            let answer = connection.call("POST", &path(activity), &headers, &body);
            assert_eq!(answer.code(), "sold_out", "{answer:?}");
            let again = connection.call("POST", &path(activity), &headers, &body);
            assert_eq!(again.code(), "rate_limited", "{again:?}");
        }
    };
    flood(1_000_000);
    let before = resident_kib(&server);
    flood(2_000_000);
    flood(3_000_000);
    let after = resident_kib(&server);
    // Tables are made of pages that are touched as keys fall into them: at most all of them.
    assert!(after < before + 24 * 1024, "{before} KiB became {after} KiB");
    assert_eq!(server.figures(activity), [1, 0, 1, 0]);
}

fn resident_kib(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn repeats_are_bounded_by_connection_alone() {
    let env = [("SLUICE_HTTP__REPLAYS_PER_CONNECTION", "3/1h")];
    let server = Server::start_with(&[], &env);
    let activity = server.activity(&json!({}));
    assert_eq!(server.buy(7, activity, "a", 1).status, 202);
    let bearer = format!("Bearer {}", token(7, "user"));
    let headers = [("Authorization", bearer.as_str())];
    let body = "{\"client_request_id\":\"a\"}";
    for _ in 0..2 {
        let mut connection = server.connect();
        let mut click = || connection.call("POST", &path(activity), &headers, body);
        let first: Vec<u16> = (0..3).map(|_| click().status).collect();
        assert_eq!(first, [202, 202, 202]);
        let last = (0..3).map(|_| click()).next_back().unwrap();
        refused(&last, 429, "rate_limited");
        assert!(last.header("ratelimit").unwrap().starts_with("\"replays\""));
    }
}

#[test]
fn an_amount_that_none_can_be_is_no_purchase_whatever_else_stands_in_its_way() {
    let server = Server::start_with(&[], &[("SLUICE_LIMITS__USER", "1/1h")]);
    let dear = json!({"price": 1_u64 << 52, "per_user_limit": 10});
    let activity = server.activity(&dear);
    for _ in 0..2 {
        refused(&server.buy(7, activity, "a", 4), 400, "invalid_request");
    }
    assert_eq!(server.buy(7, activity, "a", 1).status, 202, "it cost no limit anything");
    assert_eq!(server.as_admin("POST", "/api/admin/stop", None).status, 204);
    refused(&server.buy(7, activity, "b", 4), 400, "invalid_request");
    refused(&server.buy(7, activity, "b", 1), 409, "paused");
}
