//! The Redis port and what no client should send: an error or a closed connection, bounded memory,
//! and nobody else disturbed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::io::Write as _;
use std::net::Shutdown;
use std::time::Duration;

use common::Server;
use common::resp::{Client, Reply, open_sale, request};

fn start() -> Server {
    Server::start_with(&["--resp-listen", "127.0.0.1:0"], &[])
}

fn pong() -> Reply {
    Reply::Simple("PONG".to_owned())
}

#[test]
fn bytes_that_are_no_request_end_their_connection_with_the_error_of_redis() {
    let server = start();
    let mut other = Client::to(server.resp());
    let (long, huge) = ("1".repeat(40), "x".repeat(70_000));
    for (input, expected) in [
        ("*a\r\n", "invalid multibulk length"),
        ("*65\r\n", "invalid multibulk length"),
        ("*2147483648\r\n", "invalid multibulk length"),
        (&format!("*{long}"), "too big mbulk count string"),
        ("*1\r\n+PING\r\n", "expected '$', got '+'"),
        ("*1\r\n$-1\r\n", "invalid bulk length"),
        ("*1\r\n$-2147483649\r\n", "invalid bulk length"),
        ("*1\r\n$4097\r\n", "invalid bulk length"),
        ("*1\r\n$99999999999999999999\r\n", "invalid bulk length"),
        ("*1\r\n$4\r\nPINGPING\r\n", "expected CRLF after a bulk string"),
        ("PING \"\r\n", "unbalanced quotes in request"),
        (&huge, "too big inline request"),
    ] {
        let mut client = Client::to(server.resp());
        // A good request before it is answered first.
        client.send([request(&["PING"]), input.as_bytes().to_vec()].concat());
        assert_eq!(client.reply(), Some(pong()), "{input:.20}");
        let error = client.reply().unwrap_or_else(|| panic!("no error for {input:.20}"));
        assert_eq!(error, Reply::Error(format!("ERR Protocol error: {expected}")));
        assert!(client.is_closed(), "{input:.20}");
        assert_eq!(other.say("PING"), pong());
    }
}

#[test]
fn lines_and_empty_requests_are_taken_as_redis_takes_them() {
    let server = start();
    let mut client = Client::to(server.resp());
    client.send("\r\n*0\r\n*-1\r\nPING\r\n  ping \"a b\"\nECHO ''\r\n");
    assert_eq!(client.reply(), Some(pong()));
    assert_eq!(client.reply(), Some(Reply::bulk("a b")));
    assert_eq!(client.reply(), Some(Reply::bulk("")));
}

#[test]
fn a_browser_that_is_made_to_speak_to_the_port_hears_nothing() {
    let server = start();
    for input in ["POST / HTTP/1.1\r\nHost: a\r\n\r\nPING\r\n", "Host: a\r\nPING\r\n"] {
        let mut client = Client::to(server.resp());
        client.send(input);
        assert!(client.is_closed(), "{input}");
    }
}

#[test]
fn a_request_may_come_byte_by_byte_and_a_pipeline_may_be_cut_anywhere() {
    let server = start();
    let mut client = Client::to(server.resp());
    open_sale(&mut client, 7, 1000, 1);
    for byte in request(&["FCALL", "sluice_reserve", "1", "7", "1", "slow", "1"]) {
        client.send([byte]);
    }
    assert!(matches!(client.reply(), Some(Reply::Array(_))));
    let pipeline: Vec<u8> = (2..200_u32)
        .flat_map(|user| {
            request(&["FCALL", "sluice_reserve", "1", "7", &user.to_string(), "a", "1"])
        })
        .collect();
    for piece in pipeline.chunks(37) {
        client.send(piece);
    }
    for user in 2..200 {
        let Some(Reply::Array(items)) = client.reply() else { panic!("no answer for {user}") };
        assert_eq!((&items[0], &items[3]), (&Reply::Integer(1), &Reply::Integer(1000 - user)));
    }
    // Cut in the middle, and gone: what was whole has happened, what was not has not.
    let mut cut = Client::to(server.resp());
    let whole = request(&["FCALL", "sluice_reserve", "1", "7", "500", "a", "1"]);
    let half = request(&["FCALL", "sluice_reserve", "1", "7", "501", "a", "1"]);
    cut.send([&whole[..], &half[..half.len() - 3]].concat());
    cut.socket().shutdown(Shutdown::Write).unwrap();
    let Some(Reply::Array(items)) = cut.reply() else { panic!("no answer before the end") };
    assert_eq!(items[0], Reply::Integer(1));
    assert!(cut.is_closed());
    assert_eq!(client.say("GET flashsale:stock:7"), Reply::bulk("800"));
}

#[test]
fn many_at_once_each_have_their_own_answers_in_order_also_those_that_hang_up() {
    const CLIENTS: usize = 64;
    let server = start();
    let mut other = Client::to(server.resp());
    open_sale(&mut other, 7, 100_000, 1000);
    let mut clients: Vec<_> = (1..=CLIENTS).map(|_| Client::to(server.resp())).collect();
    for round in 0..20 {
        for (user, client) in (1..).zip(&mut clients) {
            let buy = |id: &str| {
                request(&["FCALL", "sluice_reserve", "1", "7", &user.to_string(), id, "1"])
            };
            // The last repeats the first.
            let ids = ["a", "b", "c", "a"].map(|id| format!("{round}-{id}"));
            client.send(ids.iter().flat_map(|id| buy(id)).collect::<Vec<_>>());
            if round == 19 && user % 2 == 0 {
                client.socket().shutdown(Shutdown::Write).unwrap();
            }
        }
        for client in &mut clients {
            let mut answer = || match client.reply() {
                Some(Reply::Array(items)) => (items[0].clone(), items[1].clone()),
                other => panic!("no purchase: {other:?}"),
            };
            let answers: [_; 4] = std::array::from_fn(|_| answer());
            let codes = answers.each_ref().map(|(code, _)| code.clone());
            assert_eq!(codes, [1, 1, 1, 2].map(Reply::Integer));
            assert!(answers[0].1 == answers[3].1 && answers[0].1 != answers[1].1);
        }
    }
    let ends = clients.iter_mut().skip(1).step_by(2).all(Client::is_closed);
    assert!(ends, "who hung up has heard all and is let go");
    let left = (100_000 - 20 * 3 * CLIENTS).to_string();
    assert_eq!(other.say("GET flashsale:stock:7"), Reply::bulk(&left));
}

#[test]
fn a_client_that_does_not_read_is_closed_and_disturbs_nobody() {
    let server = Server::start_with(
        &["--resp-listen", "127.0.0.1:0"],
        &[("SLUICE_RESP__WRITE_TIMEOUT", "300ms")],
    );
    let mut slow = Client::to(server.resp());
    let mut other = Client::to(server.resp());
    let word = "x".repeat(4000);
    let request = request(&["ECHO", &word]);
    let socket = slow.socket().try_clone().unwrap();
    socket.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    // Until nobody takes it any more: the server stops reading, then gives up.
    let mut sent = 0_usize;
    while (&socket).write_all(&request).is_ok() {
        sent += request.len();
        assert!(sent < 256 << 20, "the server reads on although nobody reads its answers");
    }
    assert_eq!(other.say("PING"), pong());
    let mut answers = 0;
    while slow.reply().is_some() {
        answers += 1;
    }
    assert!(answers * word.len() < sent, "some were never answered");
    assert_eq!(other.say("PING"), pong());
}

#[test]
fn a_request_that_does_not_become_whole_in_time_ends_its_connection_alone() {
    let server = Server::start_with(
        &["--resp-listen", "127.0.0.1:0"],
        &[("SLUICE_RESP__REQUEST_TIMEOUT", "300ms")],
    );
    let mut idle = Client::to(server.resp());
    let mut slow = Client::to(server.resp());
    let mut socket = slow.socket().try_clone().unwrap();
    // A byte now and then is no reason to wait for ever.
    let trickle = std::thread::spawn(move || {
        let word = "x".repeat(4000);
        let request = request(&["ECHO", &word]);
        for byte in request {
            if socket.write_all(&[byte]).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    assert!(slow.is_closed());
    // Sends on until it is reset.
    drop(slow);
    trickle.join().unwrap();
    assert_eq!(idle.say("PING"), pong(), "who says nothing is not late");
}

#[test]
fn requests_that_overlap_their_reads_are_each_given_their_time() {
    let server = Server::start_with(
        &["--resp-listen", "127.0.0.1:0"],
        &[("SLUICE_RESP__REQUEST_TIMEOUT", "2s")],
    );
    let mut client = Client::to(server.resp());
    let whole = request(&["ECHO", "word"]);
    let (begin, end) = whole.split_at(9);
    client.send(begin);
    // Longer than one may take: there is always a part of one, never the same for long.
    for _ in 0..12 {
        std::thread::sleep(Duration::from_millis(250));
        client.send([end, begin].concat());
        assert_eq!(client.reply(), Some(Reply::bulk("word")));
    }
    client.send(end);
    assert_eq!(client.reply(), Some(Reply::bulk("word")));
}

#[test]
fn parts_of_requests_hold_a_bounded_part_of_the_memory() {
    /// As the server has it, for each loop.
    const PART_BYTES_MAX: usize = 64 << 20;
    // None is late while the others come.
    let env = [("SLUICE_RESP__LOOPS", "1"), ("SLUICE_RESP__REQUEST_TIMEOUT", "10m")];
    let server = Server::start_with(&["--resp-listen", "127.0.0.1:0"], &env);
    let words: Vec<String> = (0..15).map(|_| "x".repeat(4000)).collect();
    let words: Vec<&str> = ["MGET"].into_iter().chain(words.iter().map(String::as_str)).collect();
    let whole = request(&words);
    let (part, rest) = whole.split_at(whole.len() - 10);
    let most = PART_BYTES_MAX / part.len();
    let mut other = Client::to(server.resp());
    let mut clients: Vec<_> = (0..most + 100).map(|_| Client::to(server.resp())).collect();
    for client in &mut clients {
        client.send(part);
    }
    assert_eq!(other.say("PING"), pong());
    let refused = clients.last_mut().unwrap().reply().expect("a word before the end");
    assert!(matches!(&refused, Reply::Error(text) if text.contains("not whole")), "{refused:?}");
    assert!(clients.last_mut().unwrap().is_closed());
    // Whoever was there first is served, and what it held is free again.
    clients[0].send(rest);
    assert!(matches!(clients[0].reply(), Some(Reply::Array(_))));
    drop(clients);
    let mut again = Client::to(server.resp());
    again.send(part);
    assert_eq!(other.say("PING"), pong());
    again.send(rest);
    assert!(matches!(again.reply(), Some(Reply::Array(_))));
}

/// Idle connections held at once, where the limit of open files allows them.
const IDLE: usize = 10_000;

/// What must be allowed.
const IDLE_MIN: usize = 9_000;

/// What an idle connection costs the server at most: its place, its session, no buffers.
const IDLE_BYTES_MAX: u64 = 2048;

/// The memory that a process has in use, in bytes.
fn resident_bytes(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

#[test]
fn ten_thousand_idle_connections_cost_little_and_nobody_their_answer() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }).unwrap();
    // The server gives each port half of what it has left.
    let most = limit.maximum.map_or(IDLE, |most| usize::try_from(most).unwrap() / 2 - 200);
    assert!(most >= IDLE_MIN, "the hard limit of open files must be {} (ulimit -Hn)", 2 * IDLE);
    let server = start();
    let mut client = Client::to(server.resp());
    open_sale(&mut client, 7, 10, 1);
    let before = resident_bytes(&server);
    let idle: Vec<_> = (0..most.min(IDLE)).map(|_| Client::to(server.resp())).collect();
    assert!(matches!(client.say("FCALL sluice_reserve 1 7 1 a 1"), Reply::Array(_)));
    let Reply::Bulk(info) = client.say("INFO") else { panic!("no text") };
    assert!(info.contains(&format!("connected_clients:{}\r\n", idle.len() + 1)), "{info}");
    let each = resident_bytes(&server).saturating_sub(before) / idle.len() as u64;
    println!("{} idle connections of {each} bytes", idle.len());
    assert!(each <= IDLE_BYTES_MAX, "an idle connection holds {each} bytes");
    // The last of them is served as the first.
    let mut last = idle.into_iter().next_back().unwrap();
    assert_eq!(last.say("PING"), pong());
}

#[test]
fn beyond_the_bound_of_connections_a_client_is_told_so() {
    let server = Server::start_with(
        &["--resp-listen", "127.0.0.1:0"],
        &[("SLUICE_RESP__CONNECTIONS_MAX", "2")],
    );
    let mut held: Vec<_> = (0..2).map(|_| Client::to(server.resp())).collect();
    held.iter_mut().for_each(|client| assert_eq!(client.say("PING"), pong()));
    let mut third = Client::to(server.resp());
    let full = Reply::Error("ERR max number of clients reached".to_owned());
    assert_eq!(third.reply(), Some(full));
    assert!(third.is_closed());
    held.pop();
    // Its place is free once the server has seen it go.
    let deadline = std::time::Instant::now() + common::PATIENCE;
    loop {
        let mut client = Client::to(server.resp());
        client.send(request(&["PING"]));
        match client.reply() {
            Some(reply) if reply == pong() => break,
            _ => assert!(std::time::Instant::now() < deadline),
        }
    }
}
