//! Server-sent events: figures as they change, one purchase to its end, and who may listen.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use common::{PATIENCE, Server, request, token};
use serde_json::{Value, json};

/// One event.
#[derive(Debug)]
struct Event {
    id: String,
    name: String,
    data: Value,
}

/// A stream of events, read as it comes.
struct Stream {
    status: u16,
    head: String,
    reader: BufReader<TcpStream>,
    text: String,
}

impl Stream {
    fn open(server: &Server, path: &str, headers: &[(&str, &str)]) -> Self {
        let mut socket = TcpStream::connect(server.address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.write_all(request("GET", path, headers, "").as_bytes()).unwrap();
        let mut reader = BufReader::new(socket);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(reader.read_line(&mut head).unwrap() > 0, "{head}");
        }
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self { status, head: head.to_lowercase(), reader, text: String::new() }
    }

    /// With `user`'s token.
    fn of(server: &Server, user: u64, path: &str, seen: Option<&str>) -> Self {
        let bearer = format!("Bearer {}", token(user, "user"));
        let mut headers = vec![("Authorization", bearer.as_str())];
        headers.extend(seen.map(|seen| ("Last-Event-ID", seen)));
        Self::open(server, path, &headers)
    }

    /// The next event; `None` at the stream's end.
    fn next(&mut self) -> Option<Event> {
        loop {
            while let Some(end) = self.text.find("\n\n") {
                let block: String = self.text.drain(..end + 2).collect();
                let field = |name: &str| {
                    let prefix = format!("{name}: ");
                    block.lines().find_map(|line| line.strip_prefix(&prefix)).map(str::to_owned)
                };
                if let (Some(id), Some(name), Some(data)) =
                    (field("id"), field("event"), field("data"))
                {
                    return Some(Event { id, name, data: serde_json::from_str(&data).unwrap() });
                }
            }
            let mut size = String::new();
            self.reader.read_line(&mut size).unwrap();
            let size = usize::from_str_radix(size.trim_end(), 16).ok().filter(|size| *size > 0)?;
            let mut chunk = vec![0; size + 2];
            self.reader.read_exact(&mut chunk).unwrap();
            self.text.push_str(std::str::from_utf8(&chunk[..size]).unwrap());
        }
    }
}

fn ticket(server: &Server, user: u64) -> String {
    let answer = server.as_user(user, "POST", "/api/events/ticket", None).json();
    answer["ticket"].as_str().unwrap().to_owned()
}

fn purchase_events(accepted: &Value) -> String {
    format!("/api/flashsales/purchases/{}/events", accepted["pre_deduction_id"])
}

#[test]
fn figures_come_as_they_change_and_whoever_comes_back_misses_none() {
    let server = Server::start();
    let (first, second) = (server.activity(&json!({})), server.activity(&json!({})));
    let path = format!("/api/flashsales/events?ticket={}", ticket(&server, 7));
    let mut stream = Stream::open(&server, &path, &[]);
    assert_eq!(stream.status, 200, "{}", stream.head);
    assert!(stream.head.contains("content-type: text/event-stream"), "{}", stream.head);
    let shown = [stream.next().unwrap(), stream.next().unwrap()];
    let mut ids = shown.each_ref().map(|event| event.data["id"].as_u64().unwrap());
    ids.sort_unstable();
    assert_eq!(ids, [first, second]);
    assert_eq!((&shown[0].name, &shown[0].data["remaining"]), (&"activity".to_owned(), &json!(10)));

    assert_eq!(server.buy(7, first, "a", 1).status, 202);
    let change = stream.next().unwrap();
    assert_eq!((&change.data["id"], &change.data["remaining"]), (&json!(first), &json!(9)));
    drop(stream);
    for buyer in 8..12 {
        assert_eq!(server.buy(buyer, second, "a", 1).status, 202);
    }
    let mut back = Stream::of(&server, 7, "/api/flashsales/events", Some(&change.id));
    let mut missed = back.next().unwrap();
    while missed.data["remaining"] != 6 {
        assert_eq!(missed.data["id"], second, "nothing but what has changed");
        missed = back.next().unwrap();
    }
    let pause = format!("/api/admin/flashsales/{first}/pause");
    assert_eq!(server.as_admin("POST", &pause, None).status, 204);
    let paused = back.next().unwrap();
    assert_eq!((&paused.data["id"], &paused.data["state"]), (&json!(first), &json!("paused")));
    let mut stranger = Stream::of(&server, 7, "/api/flashsales/events", Some("0badc0de-1"));
    let all = [stranger.next().unwrap(), stranger.next().unwrap()];
    assert!(all.iter().any(|event| event.data["id"] == first), "{all:?}");
}

#[test]
fn a_purchase_is_followed_until_it_is_ordered_or_rolled_back() {
    let server = Server::start();
    let activity = server.activity(&json!({"per_user_limit": 5}));
    let accepted = server.buy(7, activity, "a", 1).json();
    let path = purchase_events(&accepted);
    let mut stream = Stream::of(&server, 7, &path, None);
    let mut last = stream.next().unwrap();
    while last.data["status"] == "pending_order" {
        last = stream.next().unwrap();
    }
    assert_eq!((&last.data["status"], last.name.as_str()), (&json!("ordered"), "purchase"));
    assert_eq!(last.data["order_no"], accepted["order_no"]);
    assert!(stream.next().is_none(), "it is over");
    assert_eq!(Stream::of(&server, 7, &path, Some(&last.id)).status, 204, "for good");
    assert_eq!(Stream::of(&server, 7, &path, Some("ordered-1")).status, 200);
    for (user, path) in [(8, path.as_str()), (7, "/api/flashsales/purchases/1/events")] {
        assert_eq!(Stream::of(&server, user, path, None).status, 404, "{user} {path}");
    }

    let without = Server::start_with(&["--database", "sqlite:/nonexistent/orders.db"], &[]);
    let activity = without.activity(&json!({}));
    let accepted = without.buy(7, activity, "a", 1).json();
    let mut stream = Stream::of(&without, 7, &purchase_events(&accepted), None);
    assert_eq!(stream.next().unwrap().data["status"], "pending_order");
    let cancel = format!("/api/orders/{}/cancel", accepted["order_no"].as_str().unwrap());
    assert_eq!(without.as_user(7, "POST", &cancel, None).status, 200);
    let over = stream.next().unwrap();
    assert_eq!(
        (&over.data["status"], &over.data["reason"]),
        (&json!("rolled_back"), &json!("cancelled"))
    );
    assert!(stream.next().is_none());
}

#[test]
fn a_ticket_opens_streams_of_its_user_and_nothing_else() {
    let server = Server::start();
    let activity = server.activity(&json!({}));
    let accepted = server.buy(7, activity, "a", 1).json();
    let path = purchase_events(&accepted);
    let (own, others) = (ticket(&server, 7), ticket(&server, 8));
    let status = |path: &str| Stream::open(&server, path, &[]).status;
    assert_eq!(status(&format!("{path}?ticket={own}")), 200);
    assert_eq!(status(&format!("{path}?ticket={others}")), 404);
    for bad in ["", "x", &own[1..], &own.replace("7.", "8.")] {
        assert_eq!(status(&format!("{path}?ticket={bad}")), 401, "{bad}");
    }
    assert_eq!(status(&path), 401);
    let bearer = format!("Bearer {own}");
    let orders = server.call("GET", "/api/orders", &[("Authorization", &bearer)], "");
    assert_eq!(orders.status, 401);
    assert_eq!(server.call("GET", &format!("/api/orders?ticket={own}"), &[], "").status, 401);
    assert_eq!(server.as_admin("POST", "/api/admin/users/7/disable", None).status, 204);
    assert_eq!(status(&format!("{path}?ticket={own}")), 401, "the account is closed");
}

#[test]
fn one_user_has_so_many_streams_and_a_place_that_is_left_is_free() {
    let server = Server::start();
    let activity = server.activity(&json!({"stock": 1_000_000}));
    let open = |user| Stream::of(&server, user, "/api/flashsales/events", None);
    let mut streams: Vec<Stream> = (0..8).map(|_| open(7)).collect();
    assert!(streams.iter().all(|stream| stream.status == 200));
    assert_eq!(open(7).status, 429);
    assert_eq!(open(8).status, 200, "and others have theirs");
    drop(streams.pop());
    let deadline = std::time::Instant::now() + PATIENCE;
    // That its client is gone is noticed when the next figures are sent.
    for buyer in 100.. {
        if open(7).status == 200 {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "the place was never free again");
        server.buy(buyer, activity, "a", 1);
    }
}

#[test]
fn a_silent_stream_is_no_idle_connection_and_ends_with_the_server() {
    let mut server = Server::start_with(&[], &[("SLUICE_HTTP__IDLE_TIMEOUT", "200ms")]);
    let activity = server.activity(&json!({}));
    let mut stream = Stream::of(&server, 7, "/api/flashsales/events", None);
    stream.next().unwrap();
    // Opened later, and ended for its silence.
    assert!(server.connect().is_closed());
    assert_eq!(server.buy(7, activity, "a", 1).status, 202);
    assert_eq!(stream.next().unwrap().data["remaining"], 9);
    assert!(server.stop().success());
    assert!(stream.next().is_none());
}

#[test]
fn a_rush_is_told_a_few_times_a_second_not_sale_by_sale() {
    let server = Server::start();
    let activity = server.activity(&json!({"stock": 10_000, "per_user_limit": 10_000}));
    let mut stream = Stream::of(&server, 7, "/api/flashsales/events", None);
    assert_eq!(stream.next().unwrap().data["remaining"], 10_000);
    let started = std::time::Instant::now();
    let bought = 500;
    for number in 0..bought {
        assert_eq!(server.buy(7, activity, &number.to_string(), 1).status, 202);
    }
    let mut events = 0;
    while stream.next().unwrap().data["remaining"] != 10_000 - bought {
        events += 1;
    }
    // Four rounds a second, and one that was due when the clock began.
    let rounds = started.elapsed().as_millis() / 250 + 2;
    assert!(events <= rounds, "{events} events in {rounds} rounds");
}
