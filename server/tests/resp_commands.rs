//! The Redis port: calls, codes, keys, and what clients say besides.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeMap;

use common::Server;
use common::resp::{Client, Reply, open_sale, request};

const FIRST: i64 = 4_294_967_297;
const FIRST_ORDER: &str = "100000004294967297";

fn start() -> Server {
    Server::start_with(&["--resp-listen", "127.0.0.1:0", "--test-clock"], &[])
}

#[test]
fn every_call_answers_as_the_contract_says() {
    let server = start();
    let mut client = Client::to(server.resp());
    let refused = |code, remaining| Reply::purchase(code, 0, "", remaining);
    let far = 253_402_300_799_999_u64;
    let made = Reply::purchase(1, FIRST, FIRST_ORDER, 9);
    let replayed = Reply::purchase(2, FIRST, FIRST_ORDER, 9);
    let second = Reply::purchase(1, FIRST + 1, "100000004294967298", 1);
    for (line, expected) in [
        ("sluice_reserve 1 7 1 a 1".to_owned(), refused(-5, 0)),
        (format!("sluice_warm 1 7 20001 9900 10 3 1000 {far}"), Reply::Integer(1)),
        (format!("sluice_warm 1 7 1 1 1 1 0 {far}"), Reply::Integer(0)),
        ("sluice_reserve 1 7 1 a 1".to_owned(), refused(-3, 10)),
        ("sluice_publish 1 8".to_owned(), Reply::Integer(0)),
        ("sluice_publish 1 7".to_owned(), Reply::Integer(1)),
        ("sluice_reserve 1 7 1 a 1 999".to_owned(), refused(-1, 10)),
        ("sluice_reserve 1 0007 01 a 0001".to_owned(), made),
        ("sluice_reserve 1 7 1 a 1".to_owned(), replayed),
        ("sluice_reserve 1 7 1 a 2".to_owned(), refused(-6, 9)),
        ("sluice_reserve 1 7 1 b 3".to_owned(), refused(-2, 9)),
        ("sluice_reserve 1 7 2 b 10".to_owned(), refused(0, 9)),
        ("sluice_pause 1 7".to_owned(), Reply::Integer(1)),
        ("sluice_reserve 1 7 2 b 1".to_owned(), refused(-4, 9)),
        ("sluice_resume 1 7".to_owned(), Reply::Integer(1)),
        ("sluice_decrease 1 7 op-1 7".to_owned(), Reply::Integer(2)),
        ("sluice_reserve 1 7 2 b 1".to_owned(), second),
        ("sluice_decrease 1 7 op-1 7".to_owned(), Reply::Integer(2)),
        ("sluice_restock 1 7 op-2 5".to_owned(), Reply::Integer(6)),
        (format!("sluice_confirm 1 7 {FIRST} pay-1"), Reply::Integer(1)),
        (format!("sluice_confirm 1 7 {FIRST} pay-1"), Reply::Integer(2)),
        (format!("sluice_confirm 1 7 {FIRST} pay-2"), Reply::Integer(3)),
        (format!("sluice_confirm 1 8 {FIRST} pay-1"), Reply::Integer(0)),
        (format!("sluice_restore 1 7 {FIRST}"), Reply::Integer(3)),
        (format!("sluice_restore 1 7 {}", FIRST + 1), Reply::Integer(1)),
        (format!("sluice_restore 1 7 {}", FIRST + 1), Reply::Integer(2)),
        (format!("sluice_restore 1 7 {}", FIRST + 2), Reply::Integer(0)),
        (format!("sluice_confirm 1 7 {} pay-3", FIRST + 1), Reply::Integer(-1)),
        ("sluice_unpublish 1 7".to_owned(), Reply::Integer(1)),
    ] {
        assert_eq!(client.say(&format!("FCALL {line}")), expected, "{line}");
    }
    assert_eq!(client.say("WAITAOF 1 0 0"), Reply::Array([1, 0].map(Reply::Integer).to_vec()));
    for line in [
        "sluice_reserve 1 7 1 a 0",
        "sluice_reserve 1 7 0 a 1",
        "sluice_reserve 1 7 1 a",
        "sluice_reserve 1 7 1 a 1 1 1",
        "sluice_reserve 0",
        "sluice_decrease 1 7 op-1 8",
        "sluice_decrease 1 7 op-3 1000",
        "sluice_restock 1 9 op-1 1",
        "sluice_warm 1 9 1 1 1 1 2 1",
    ] {
        assert_eq!(client.say(&format!("FCALL {line}")).word(), "INVALID", "{line}");
    }
    for line in ["nothing 1 7", "sluice_get -1", "sluice_get x", "sluice_get 9 1"] {
        assert_eq!(client.say(&format!("FCALL {line}")).word(), "ERR", "{line}");
    }
    assert_eq!(client.say("FCALL_RO sluice_publish 1 7").word(), "ERR");
}

#[test]
fn queries_are_maps_in_the_words_of_each_protocol() {
    let server = start();
    let mut client = Client::to(server.resp());
    open_sale(&mut client, 7, 10, 3);
    assert!(matches!(client.say("HELLO 3"), Reply::Map(_)));
    client.say("FCALL sluice_reserve 1 7 42 a 2 1700000000000");
    let Reply::Map(found) = client.say(&format!("FCALL_RO sluice_get 1 7 {FIRST}")) else {
        panic!("no map")
    };
    let number = Reply::Integer;
    let expected = [
        ("id", number(FIRST)),
        ("activity", number(7)),
        ("user", number(42)),
        ("sku", number(20_001)),
        ("price", number(9900)),
        ("quantity", number(2)),
        ("order_no", Reply::bulk(FIRST_ORDER)),
        ("status", Reply::bulk("reserved")),
        ("payment_no", Reply::bulk("")),
        ("created_ms", number(1_700_000_000_000)),
    ];
    let expected: BTreeMap<_, _> =
        expected.into_iter().map(|(name, value)| (Reply::bulk(name), value)).collect();
    assert_eq!(found, expected);
    let Reply::Map(found) = client.say("FCALL_RO sluice_activity 1 7") else { panic!("no map") };
    for (name, value) in
        [("total", 10), ("available", 8), ("locked", 2), ("sold", 0), ("on_sale", 1), ("paused", 0)]
    {
        assert_eq!(found[&Reply::bulk(name)], number(value), "{name}");
    }
    for unknown in ["sluice_activity 1 8".to_owned(), format!("sluice_get 1 8 {FIRST}")] {
        assert_eq!(client.say(&format!("FCALL_RO {unknown}")), Reply::Map(BTreeMap::new()));
    }
    client.say("HELLO 2");
    let Reply::Array(flat) = client.say("FCALL_RO sluice_activity 1 7") else { panic!("no array") };
    assert_eq!(flat.len(), 24);
}

#[test]
fn the_compatibility_keys_are_read_without_a_redis() {
    let server = start();
    let mut client = Client::to(server.resp());
    open_sale(&mut client, 7, 10, 3);
    let key = |kind: &str| format!("flashsale:{kind}");
    client.say("FCALL sluice_reserve 1 7 42 a 2");
    client.say("FCALL sluice_reserve 1 7 43 a 1");
    client.say(&format!("FCALL sluice_restore 1 7 {}", FIRST + 1));
    client.say("FCALL sluice_pause 1 7");
    let (token, other) = (FIRST.to_string(), (FIRST + 1).to_string());
    for (name, expected) in [
        (key("stock:7"), Reply::bulk("8")),
        (key("count:7:42"), Reply::bulk("2")),
        (key("count:7:43"), Reply::Null),
        (key(&format!("idem:7:42:{token}")), Reply::bulk(&token)),
        (key(&format!("idem:7:43:{other}")), Reply::Null),
        (key(&format!("reservation:{token}")), Reply::bulk(&token)),
        (key(&format!("reservation:{other}")), Reply::bulk(&format!("rolled_back:{other}"))),
        (key("pause:7"), Reply::bulk("1")),
        (key("stock:8"), Reply::Null),
        ("other".to_owned(), Reply::Null),
    ] {
        assert_eq!(client.say(&format!("GET {name}")), expected, "{name}");
        let exists = Reply::Integer((expected != Reply::Null).into());
        assert_eq!(client.say(&format!("EXISTS {name}")), exists, "{name}");
        let kind = if expected == Reply::Null { "none" } else { "string" };
        assert_eq!(client.say(&format!("TYPE {name}")), Reply::Simple(kind.to_owned()));
    }
    let some = client.say("MGET flashsale:stock:7 nothing flashsale:count:7:42");
    assert_eq!(some, Reply::Array(vec![Reply::bulk("8"), Reply::Null, Reply::bulk("2")]));
    assert_eq!(client.say("EXISTS flashsale:stock:7 nothing flashsale:stock:7"), Reply::Integer(2));
    assert_eq!(client.say("TTL flashsale:pause:7"), Reply::Integer(-1));
    assert_eq!(client.say("TTL nothing"), Reply::Integer(-2));
    let Reply::Integer(ttl) = client.say(&format!("TTL flashsale:idem:7:42:{token}")) else {
        panic!("no number")
    };
    assert!((1..=1800).contains(&ttl), "{ttl}");
}

#[test]
fn what_real_clients_say_besides_is_understood() {
    let server = start();
    let mut client = Client::to(server.resp());
    let ok = Reply::Simple("OK".to_owned());
    for (line, expected) in [
        ("PING", Reply::Simple("PONG".to_owned())),
        ("ping hello", Reply::bulk("hello")),
        ("ECHO hello", Reply::bulk("hello")),
        ("SELECT 0", ok.clone()),
        ("CLIENT SETNAME me", ok.clone()),
        ("CLIENT GETNAME", Reply::bulk("me")),
        ("CLIENT SETINFO LIB-NAME x", ok.clone()),
        ("CLIENT NO-EVICT ON", ok.clone()),
        ("CONFIG GET save", Reply::Array(vec![Reply::bulk("save"), Reply::bulk("")])),
        ("CONFIG GET nothing", Reply::Array(vec![])),
        ("COMMAND", Reply::Array(vec![])),
        ("COMMAND DOCS", Reply::Array(vec![])),
        ("FUNCTION LIST LIBRARYNAME other", Reply::Array(vec![])),
        ("RESET", Reply::Simple("RESET".to_owned())),
        ("CLIENT GETNAME", Reply::Null),
    ] {
        assert_eq!(client.say(line), expected, "{line}");
    }
    for line in [
        "SELECT 1",
        "CLUSTER INFO",
        "CLIENT KILL x",
        "CONFIG SET save x",
        "FUNCTION LOAD x",
        "GET",
        "GET a b",
        "HELLO x",
        "HELLO 3 NONSENSE",
        "SET a b",
        "EVAL x 0",
    ] {
        assert_eq!(client.say(line).word(), "ERR", "{line}");
    }
    assert_eq!(client.say("HELLO 4").word(), "NOPROTO");
    let unknown = client.say("SET a b");
    let text = "ERR unknown command 'SET', with args beginning with: 'a' 'b' ";
    assert_eq!(unknown, Reply::Error(text.to_owned()));
    let Reply::Bulk(info) = client.say("INFO server") else { panic!("no text") };
    assert!(info.contains("redis_version:7.2.4\r\n") && info.contains("role:master\r\n"));
    let Reply::Array(libraries) = client.say("FUNCTION LIST") else { panic!("no array") };
    assert_eq!(libraries.len(), 1);
    assert_eq!(client.say("QUIT"), ok);
    assert!(client.is_closed());
}

#[test]
fn a_pipeline_is_answered_in_order_whatever_is_mixed_in_it() {
    let server = start();
    let mut client = Client::to(server.resp());
    open_sale(&mut client, 7, 50, 1);
    open_sale(&mut client, 8, 1000, 1);
    let mut bytes = Vec::new();
    let mut expected = Vec::new();
    let mut say = |line: &str, reply: Reply| {
        bytes.extend(request(&line.split(' ').collect::<Vec<_>>()));
        expected.push((line.to_owned(), reply));
    };
    let (seventh, eighth) = (FIRST, (2_i64 << 32) + 1);
    for buyer in 0..100_i64 {
        let id = if buyer < 50 { seventh + buyer } else { 0 };
        let order = if id > 0 { format!("1{id:017}") } else { String::new() };
        let remaining = (49 - buyer).max(0);
        let line = format!("FCALL sluice_reserve 1 7 {} a 1", buyer + 1);
        say(&line, Reply::purchase((buyer < 50).into(), id, &order, remaining));
        say(&format!("ECHO {buyer}"), Reply::bulk(&buyer.to_string()));
        say("GET flashsale:stock:7", Reply::bulk(&remaining.to_string()));
        let (line, id) = (format!("FCALL sluice_reserve 1 8 {} a 1", buyer + 1), eighth + buyer);
        say(&line, Reply::purchase(1, id, &format!("1{id:017}"), 999 - buyer));
        say(&format!("FCALL sluice_confirm 1 8 {id} p"), Reply::Integer(1));
        say(
            "NOTHING",
            Reply::Error("ERR unknown command 'NOTHING', with args beginning with: ".to_owned()),
        );
    }
    client.send(bytes);
    for (line, reply) in expected {
        assert_eq!(client.reply(), Some(reply), "{line}");
    }
}

#[test]
fn what_was_answered_survives_the_end_of_the_process() {
    let mut server = start();
    let mut client = Client::to(server.resp());
    open_sale(&mut client, 7, 100, 1);
    let made: Vec<_> =
        (1..=20).map(|user| client.say(&format!("FCALL sluice_reserve 1 7 {user} a 1"))).collect();
    server.signal(common::Signal::KILL);
    server.wait();
    let again = Server::start_in(server.data_dir(), &["--resp-listen", "127.0.0.1:0"], &[]);
    let mut client = Client::to(again.resp());
    for (user, before) in (1..=20).zip(made) {
        let now = client.say(&format!("FCALL sluice_reserve 1 7 {user} a 1"));
        let (Reply::Array(now), Reply::Array(before)) = (now, before) else { panic!("no array") };
        assert_eq!((&now[0], &now[1..3]), (&Reply::Integer(2), &before[1..3]));
    }
}

#[test]
fn a_server_that_is_told_to_stop_answers_what_has_come_and_says_goodbye() {
    let mut server = start();
    let mut client = Client::to(server.resp());
    assert_eq!(client.say("PING"), Reply::Simple("PONG".to_owned()));
    server.signal(common::Signal::TERM);
    assert!(client.is_closed());
    drop(client);
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn a_time_that_a_caller_gives_counts_for_nothing_outside_tests() {
    let server = Server::start_with(&["--resp-listen", "127.0.0.1:0"], &[]);
    let mut client = Client::to(server.resp());
    open_sale(&mut client, 7, 10, 3);
    client.say("FCALL sluice_reserve 1 7 1 a 1 1000");
    client.say("HELLO 3");
    let Reply::Map(found) = client.say(&format!("FCALL_RO sluice_get 1 7 {FIRST}")) else {
        panic!("no map")
    };
    assert_ne!(found[&Reply::bulk("created_ms")], Reply::Integer(1000));
    assert_eq!(client.say("FCALL sluice_reserve 1 7 1 b 1 x").word(), "INVALID");
}

#[test]
fn a_drained_activity_is_paused_in_every_word() {
    let server = start();
    let mut client = Client::to(server.resp());
    open_sale(&mut client, 7, 10, 3);
    let switch = |name: &str| {
        let path = format!("/api/admin/flashsales/7/{name}");
        assert_eq!(server.as_admin("POST", &path, None).status, 204);
    };
    for (name, paused) in [("drain", true), ("resume", false), ("pause", true), ("resume", false)] {
        switch(name);
        let expected = if paused { Reply::bulk("1") } else { Reply::Null };
        assert_eq!(client.say("GET flashsale:pause:7"), expected, "{name}");
        assert_eq!(client.say("EXISTS flashsale:pause:7"), Reply::Integer(paused.into()), "{name}");
    }
}
