//! Clients that people use, against the Redis port. One that is not there fails its test: what it
//! would have found is not known.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::process::Command;

use common::python::run;
use common::{Server, python};
use redis::{Commands as _, RedisResult, Value};

fn start() -> Server {
    Server::start_with(&["--resp-listen", "127.0.0.1:0"], &[])
}

fn valkey_cli(server: &Server, words: &str) -> String {
    let mut command = Command::new("valkey-cli");
    command.args(["-p", &server.resp().port().to_string()]).args(words.split(' '));
    run(&mut command, "valkey-tools").trim_end().to_owned()
}

/// Makes activity 7: this many units, on sale.
fn open_sale(server: &Server, stock: u32) {
    let mut client = common::resp::Client::to(server.resp());
    common::resp::open_sale(&mut client, 7, stock.into(), 1);
}

#[test]
fn valkey_cli_is_content() {
    let server = start();
    for (words, expected) in [
        ("PING", "PONG"),
        ("FCALL sluice_warm 1 7 20001 9900 10 2 0 253402300799999", "1"),
        ("FCALL sluice_publish 1 7", "1"),
        ("FCALL sluice_reserve 1 7 1 order-1 1", "1\n4294967297\n100000004294967297\n9"),
        ("WAITAOF 1 0 0", "1\n0"),
        ("GET flashsale:stock:7", "9"),
        ("-3 HELLO 3", "server"),
        ("-3 FCALL_RO sluice_activity 1 7", "available"),
        ("COMMAND COUNT", "22"),
    ] {
        let said = valkey_cli(&server, words);
        let is_part = words.starts_with("-3");
        let holds = if is_part { said.contains(expected) } else { said == expected };
        assert!(holds, "{words}: {said}");
    }
}

#[test]
fn valkey_benchmark_is_content_and_the_sale_it_makes_is_exact() {
    let server = start();
    open_sale(&server, 1_000);
    let mut command = Command::new("valkey-benchmark");
    command.args(["-p", &server.resp().port().to_string(), "-n", "20000", "-c", "20", "-P", "16"]);
    command.args(["-r", "1000000", "--csv"]);
    command.args(["FCALL", "sluice_reserve", "1", "7", "__rand_int__", "order-1", "1"]);
    let said = run(&mut command, "valkey-tools");
    assert!(said.contains("sluice_reserve") && !said.to_lowercase().contains("error"), "{said}");
    assert_eq!(valkey_cli(&server, "GET flashsale:stock:7"), "0");
    assert_eq!(server.figures(7), [1_000, 0, 1_000, 0]);
}

#[test]
fn the_redis_crate_is_content() {
    let server = start();
    open_sale(&server, 100);
    for (protocol, user) in [("resp2", 1_u64), ("resp3", 2)] {
        let url = format!("redis://{}?protocol={protocol}", server.resp());
        let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
        let made: (i64, u64, String, u64) = redis::cmd("FCALL")
            .arg(("sluice_reserve", 1, 7, user, "order-1", 1))
            .query(&mut connection)
            .unwrap();
        assert_eq!((made.0, made.1, made.3), (1, (1 << 32) + user, 100 - user));
        let stock: u64 = connection.get("flashsale:stock:7").unwrap();
        assert_eq!(stock, 100 - user);
        let found: std::collections::HashMap<String, Value> = redis::cmd("FCALL_RO")
            .arg(("sluice_get", 1, 7, made.1))
            .query(&mut connection)
            .unwrap();
        assert_eq!(found.len(), 10);
        let refused: RedisResult<Value> = redis::cmd("FCALL")
            .arg(("sluice_reserve", 1, 7, 0, "order-1", 1))
            .query(&mut connection);
        assert_eq!(refused.unwrap_err().code(), Some("INVALID"));
        let mut pipeline = redis::pipe();
        for again in 0..100 {
            let words = ("sluice_reserve", 1, 7, user, format!("order-{again}"), 1);
            pipeline.cmd("FCALL").arg(words);
        }
        let answers: Vec<(i64, u64, String, u64)> = pipeline.query(&mut connection).unwrap();
        let codes: Vec<_> = answers.iter().map(|answer| answer.0).collect();
        let wanted: Vec<_> = (0..100).map(|again| if again == 1 { 2 } else { -2 }).collect();
        assert_eq!(codes, wanted);
    }
}

#[test]
fn redis_py_is_content_over_both_versions_of_the_protocol() {
    let server = start();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/redis_py.py");
    let mut command = Command::new(python::programs("redis_py").join("python"));
    command.arg(script).arg(server.resp().port().to_string());
    assert!(run(&mut command, "python3-venv").contains("is content"));
}

#[test]
fn hiredis_is_content() {
    let server = start();
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("client");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/hiredis.c");
    let mut compile = Command::new("cc");
    compile.arg(source).arg("-o").arg(&program).arg("-lhiredis");
    run(&mut compile, "libhiredis-dev");
    let mut client = Command::new(&program);
    client.arg(server.resp().port().to_string());
    assert!(run(&mut client, "libhiredis-dev").contains("is content"));
}
