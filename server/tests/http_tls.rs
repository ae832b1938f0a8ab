//! The HTTP port under TLS: purchases and everything else as without it, whole and in order; a peer
//! that speaks something else is hung up on; certificates are renewed; the admin's commands trust
//! whom they are told to.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "common/certificates.rs"]
mod certificates;
mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use certificates::{Certificates, Conversation};
use common::{PATIENCE, Server, Signal, sluice, token, wait};
use serde_json::Value;

/// The demo's activity.
const ACTIVITY: u64 = 30_001;

fn serve(certificates: &Certificates) -> Server {
    serve_with(certificates, &[])
}

fn serve_with(certificates: &Certificates, more: &[(&str, &str)]) -> Server {
    let [certificate, key] = certificates.files();
    let env = [
        ("SLUICE_HTTP__TLS_CERTIFICATE_FILE", certificate.as_str()),
        ("SLUICE_HTTP__TLS_KEY_FILE", key.as_str()),
        ("SLUICE_HTTP__REQUIRE_TLS", "true"),
        // A flood of repeats is what one of the tests sends.
        ("SLUICE_HTTP__REPLAYS_PER_CONNECTION", "off"),
    ];
    Server::start_with(&["--demo"], &[&env, more].concat())
}

/// A purchase, as a client sends it.
fn purchase(user: u64, request_id: &str) -> String {
    let body = format!("{{\"client_request_id\":\"{request_id}\"}}");
    format!(
        "POST /api/flashsales/{ACTIVITY}/purchase HTTP/1.1\r\nHost: localhost\r\n\
         Authorization: Bearer {}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        token(user, "user"),
        body.len()
    )
}

fn get(path: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\r\n",
        token(7, "user")
    )
}

/// The next answer: its status and its body.
fn answer(peer: &mut impl Read) -> (u16, Vec<u8>) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        peer.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    let length = head.split("\r\n").find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |text| text.parse().unwrap())];
    peer.read_exact(&mut body).unwrap();
    (head[9..12].parse().unwrap(), body)
}

fn ask(peer: &mut Conversation, request: &str) -> (u16, Value) {
    peer.write_all(request.as_bytes()).unwrap();
    let (status, body) = answer(peer);
    (status, serde_json::from_slice(&body).unwrap())
}

fn can_talk(mut peer: Conversation) -> bool {
    let asked = peer.write_all(get("/healthz").as_bytes());
    asked.and_then(|()| peer.read_exact(&mut [0; 12])).is_ok()
}

#[test]
fn a_connection_buys_and_looks_under_tls_as_without_it() {
    let certificates = Certificates::new();
    let server = serve(&certificates);
    let mut peer = certificates.connect(server.address);
    let (status, accepted) = ask(&mut peer, &purchase(7, "first"));
    assert_eq!(status, 202, "{accepted}");
    let (status, replayed) = ask(&mut peer, &purchase(7, "first"));
    assert_eq!((status, &replayed["order_no"]), (202, &accepted["order_no"]));
    let (status, list) = ask(&mut peer, &get("/api/flashsales"));
    assert_eq!((status, &list["items"][0]["id"]), (200, &ACTIVITY.into()));
    let (status, again) = ask(&mut peer, &purchase(7, "first"));
    assert_eq!((status, &again["order_no"]), (202, &accepted["order_no"]), "by the router");
    // More than one record, and more than the sockets between the two hold.
    let (status, document) = ask(&mut peer, &get("/openapi.json"));
    assert_eq!((status, &document["openapi"]), (200, &"3.1.0".into()));
}

#[test]
fn a_trusted_proxy_knows_better_than_the_connection_whether_a_buyer_came_by_tls() {
    let certificates = Certificates::new();
    let buy = |server: &Server, proto: &str| {
        let header = format!("Host: localhost\r\nX-Forwarded-Proto: {proto}\r\n");
        let request = purchase(7, "first").replacen("Host: localhost\r\n", &header, 1);
        ask(&mut certificates.connect(server.address), &request)
    };
    let proxied = serve_with(&certificates, &[("SLUICE_HTTP__TRUSTED_PROXIES", "127.0.0.1")]);
    let (status, refused) = buy(&proxied, "http");
    assert_eq!((status, &refused["code"]), (403, &"tls_required".into()), "{refused}");
    assert_eq!(buy(&proxied, "https").0, 202);
    assert_eq!(buy(&serve(&certificates), "http").0, 202, "nobody is believed here");
}

#[test]
fn a_reader_slower_than_the_socket_gets_every_answer() {
    let certificates = Certificates::new();
    let server = serve(&certificates);
    let mut peer = certificates.connect(server.address);
    let (_, accepted) = ask(&mut peer, &purchase(7, "first"));
    // Far more than all the buffers between the two hold: the server has to wait for the reader.
    let count = 30_000;
    let request = purchase(7, "first");
    let mut sealed = Vec::new();
    for _ in 0..count {
        peer.conn.writer().write_all(request.as_bytes()).unwrap();
        while peer.conn.wants_write() {
            peer.conn.write_tls(&mut sealed).unwrap();
        }
    }
    let writer = peer.sock.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || (&writer).write_all(&sealed).unwrap());
        let mut reader = std::io::BufReader::with_capacity(256, &mut peer);
        for _ in 0..count {
            let (status, body) = answer(&mut reader);
            let body: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!((status, &body["order_no"]), (202, &accepted["order_no"]));
        }
    });
}

#[test]
fn what_is_no_tls_is_hung_up_on_and_hinders_neither_others_nor_the_end() {
    let certificates = Certificates::new();
    let mut server = serve(&certificates);
    let plain = get("/healthz");
    let noises: [&[u8]; 3] = [plain.as_bytes(), &[0; 100], b"\x16\x03\x01\x40\x00half of a hello"];
    for noise in noises {
        let mut stranger = TcpStream::connect(server.address).unwrap();
        stranger.set_read_timeout(Some(PATIENCE)).unwrap();
        stranger.write_all(noise).unwrap();
        stranger.shutdown(Shutdown::Write).unwrap();
        let mut heard = Vec::new();
        let _ = stranger.read_to_end(&mut heard);
        assert!(!heard.windows(4).any(|it| it == b"HTTP"), "{heard:?}");
    }
    assert!(can_talk(certificates.connect(server.address)));
    // It has begun to shake hands, and never ends.
    let mut silent = TcpStream::connect(server.address).unwrap();
    silent.write_all(noises[2]).unwrap();
    assert!(server.stop().success());
    assert_eq!(silent.read(&mut [0; 8]).unwrap_or(0), 0);
}

#[test]
fn a_certificate_is_renewed_at_sighup_and_one_that_cannot_be_used_is_not() {
    let (ours, renewed) = (Certificates::new(), Certificates::new());
    let mut server = serve(&ours);
    let address = server.address;
    let reload = |server: &mut Server| {
        server.signal(Signal::HUP);
        server.error_with("the configuration was reloaded");
    };
    let mut old = ours.connect(address);
    assert_eq!(ask(&mut old, &purchase(7, "first")).0, 202);
    std::fs::write(ours.path("certificate.pem"), "no PEM at all").unwrap();
    reload(&mut server);
    assert!(can_talk(ours.connect(address)), "what can't be used changes nothing");
    for name in ["certificate.pem", "key.pem"] {
        std::fs::write(ours.path(name), std::fs::read(renewed.path(name)).unwrap()).unwrap();
    }
    reload(&mut server);
    assert!(can_talk(renewed.connect(address)) && !can_talk(ours.connect(address)));
    assert_eq!(ask(&mut old, &purchase(8, "first")).0, 202, "it keeps what it began with");
}

#[test]
fn the_admins_commands_trust_whom_they_are_told_to() {
    let (ours, theirs) = (Certificates::new(), Certificates::new());
    let server = serve(&ours);
    let run = |url: &str, ca: Option<String>| {
        let mut command = sluice(["reconcile", "--url", url, "--data-dir"]);
        command.arg(server.data_dir());
        ca.iter().for_each(|path| _ = command.args(["--ca", path]));
        let output = command.output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(said).unwrap())
    };
    let url = format!("https://localhost:{}", server.address.port());
    let (code, said) = run(&url, Some(ours.path("authority.pem")));
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("1 activity and 0 reservations compared"), "{said}");
    let elsewhere = Certificates::of(["elsewhere.example"]);
    let misnamed = serve(&elsewhere);
    let other = format!("https://localhost:{}", misnamed.address.port());
    for (url, ca, word) in [
        (&url, None, "--ca"),
        (&url, Some(theirs.path("authority.pem")), "certificate"),
        (&url, Some(theirs.path("key.pem")), "--ca"),
        (&other, Some(elsewhere.path("authority.pem")), "certificate"),
    ] {
        let (code, said) = run(url, ca);
        assert!(code == Some(2) && said.contains(word), "{word}: {code:?} {said}");
    }
}

#[test]
fn half_of_what_tls_needs_refuses_the_start_in_one_line() {
    let ours = Certificates::new();
    let [certificate, key] = ours.files();
    std::fs::write(ours.path("noise.pem"), "no PEM at all").unwrap();
    ours.keep_to_ourselves("noise.pem");
    let noise = ours.path("noise.pem");
    let cases = [
        (Some(&certificate), None, "http.tls_key_file"),
        (None, Some(&key), "http.tls_certificate_file"),
        (Some(&noise), Some(&key), "noise.pem"),
        (Some(&certificate), Some(&noise), "noise.pem"),
    ];
    let scratch = tempfile::tempdir().unwrap();
    for (certificate, key, word) in cases {
        let mut command = sluice(["serve", "--demo", "--listen", "127.0.0.1:0", "--data-dir"]);
        command.arg(scratch.path().join("data"));
        command.envs(certificate.map(|path| ("SLUICE_HTTP__TLS_CERTIFICATE_FILE", path)));
        command.envs(key.map(|path| ("SLUICE_HTTP__TLS_KEY_FILE", path)));
        let mut child = command.spawn().unwrap();
        assert_eq!(wait(&mut child).code(), Some(2), "{word}");
        let errors = String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap();
        assert!(errors.lines().count() == 1 && errors.contains(word), "{word}: {errors}");
    }
}
