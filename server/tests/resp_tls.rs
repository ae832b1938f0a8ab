//! The Redis port under TLS: known clients, pipelines and slow readers as without it; a peer that
//! speaks something else, or nothing, is hung up on; files that can't be used refuse the start.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "common/certificates.rs"]
mod certificates;
mod common;

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use certificates::{Certificates, Conversation};
use common::python::run;
use common::{PATIENCE, Server, Signal, python, sluice, wait};

/// A server whose Redis port has the certificate.
fn serve(certificates: &Certificates) -> Server {
    serve_with(certificates, "10s")
}

/// Where a request may take so long.
fn serve_with(certificates: &Certificates, request_timeout: &str) -> Server {
    let [certificate, key] = certificates.files();
    let env = [
        ("SLUICE_RESP__TLS_CERTIFICATE_FILE", certificate.as_str()),
        ("SLUICE_RESP__TLS_KEY_FILE", key.as_str()),
        ("SLUICE_RESP__REQUEST_TIMEOUT", request_timeout),
    ];
    Server::start_with(&["--resp-listen", "127.0.0.1:0"], &env)
}

/// A conversation that has not begun yet.
fn connect(certificates: &Certificates, server: &Server) -> Conversation {
    certificates.connect(server.resp())
}

fn plain(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.resp()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// `count` times the same command, and the replies to them.
fn echoes(count: usize, bytes: usize) -> (Vec<u8>, Vec<u8>) {
    let text = "x".repeat(bytes);
    let command = format!("*2\r\n$4\r\nECHO\r\n${bytes}\r\n{text}\r\n");
    (command.repeat(count).into_bytes(), format!("${bytes}\r\n{text}\r\n").repeat(count).into())
}

#[test]
fn known_clients_are_content_under_tls() {
    let certificates = Certificates::new();
    let server = serve(&certificates);
    let mut command = Command::new("valkey-cli");
    command.args(["--tls", "--cacert", &certificates.path("authority.pem"), "-h", "localhost"]);
    command.args(["-p", &server.resp().port().to_string(), "WAITAOF", "1", "0", "0"]);
    assert_eq!(run(&mut command, "valkey-tools").trim_end(), "1\n0");

    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/redis_py.py");
    let mut command = Command::new(python::programs("redis_py").join("python"));
    command.arg(script).arg(server.resp().port().to_string());
    command.arg(certificates.path("authority.pem"));
    assert!(run(&mut command, "python3-venv").contains("is content"));
}

#[test]
fn pipelines_of_any_size_are_answered_in_order_and_whole() {
    let certificates = Certificates::new();
    let server = serve(&certificates);
    let mut peer = connect(&certificates, &server);
    for (count, bytes) in [(1, 1), (1, 4_000), (3_000, 3), (500, 1_500), (300, 4_000)] {
        let (commands, replies) = echoes(count, bytes);
        peer.write_all(&commands).unwrap();
        let mut heard = vec![0; replies.len()];
        peer.read_exact(&mut heard).unwrap();
        assert!(heard == replies, "{count} of {bytes} bytes");
    }
}

#[test]
fn many_who_begin_at_once_are_all_served() {
    const PEERS: usize = 48;
    let certificates = Certificates::new();
    let server = serve(&certificates);
    let (command, reply) = echoes(1, 5);
    // All of them before the first begins: a connection that fails leaves nobody waiting for it.
    let peers: Vec<_> = (0..PEERS).map(|_| connect(&certificates, &server)).collect();
    let all_are_there = std::sync::Barrier::new(PEERS);
    std::thread::scope(|scope| {
        for mut peer in peers {
            let (command, reply, all_are_there) = (&command, &reply, &all_are_there);
            scope.spawn(move || {
                all_are_there.wait();
                peer.write_all(command).unwrap();
                let mut heard = vec![0; reply.len()];
                peer.read_exact(&mut heard).unwrap();
                assert!(heard == *reply);
            });
        }
    });
}

/// Commands cut at every place into records of their own.
#[test]
fn a_record_may_end_anywhere_in_a_command() {
    let certificates = Certificates::new();
    let server = serve(&certificates);
    let mut peer = connect(&certificates, &server);
    let (commands, replies) = echoes(3, 5);
    for step in [1, 2, 3, 7] {
        for piece in commands.chunks(step) {
            peer.write_all(piece).unwrap();
            peer.flush().unwrap();
        }
        let mut heard = vec![0; replies.len()];
        peer.read_exact(&mut heard).unwrap();
        assert!(heard == replies, "in pieces of {step}");
    }
}

#[test]
fn a_slow_reader_gets_all_of_its_answers_and_the_end_is_told() {
    let certificates = Certificates::new();
    let server = serve(&certificates);
    let mut peer = connect(&certificates, &server);
    let (commands, replies) = echoes(1_500, 4_000);
    let writer = peer.sock.try_clone().unwrap();
    std::thread::scope(|scope| {
        // More than all the buffers between the two hold: the server stops to read.
        let mut sealed = Vec::new();
        while peer.conn.is_handshaking() {
            peer.conn.complete_io(&mut peer.sock).unwrap();
        }
        for piece in commands.chunks(16_000) {
            peer.conn.writer().write_all(piece).unwrap();
            while peer.conn.wants_write() {
                peer.conn.write_tls(&mut sealed).unwrap();
            }
        }
        scope.spawn(move || (&writer).write_all(&sealed).unwrap());
        let mut heard = vec![0; replies.len()];
        peer.read_exact(&mut heard).unwrap();
        assert!(heard == replies);
    });
    peer.write_all(b"QUIT\r\n").unwrap();
    let mut rest = Vec::new();
    // Without a word of the end this is an error: a cut line looks the same.
    peer.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"+OK\r\n");
}

#[test]
fn what_is_no_tls_is_hung_up_on_and_others_are_undisturbed() {
    let certificates = Certificates::new();
    let server = serve(&certificates);
    let mut peer = connect(&certificates, &server);
    let hello = b"\x16\x03\x01\x40\x00half of a hello";
    let noises: [&[u8]; 4] = [b"*1\r\n$4\r\nPING\r\n", b"GET / HTTP/1.1\r\n\r\n", &[0; 100], hello];
    for noise in noises {
        let mut stranger = plain(&server);
        stranger.write_all(noise).unwrap();
        stranger.shutdown(Shutdown::Write).unwrap();
        let mut heard = Vec::new();
        let _ = stranger.read_to_end(&mut heard);
        assert!(!heard.windows(4).any(|it| it == b"PONG"), "{heard:?}");
    }
    let (commands, replies) = echoes(1, 3);
    peer.write_all(&commands).unwrap();
    let mut heard = vec![0; replies.len()];
    peer.read_exact(&mut heard).unwrap();
    assert_eq!(heard, replies);
}

#[test]
fn a_request_that_comes_byte_by_byte_is_given_no_more_time_than_without_tls() {
    let certificates = Certificates::new();
    let server = serve_with(&certificates, "300ms");
    let mut slow = connect(&certificates, &server);
    let (commands, _) = echoes(1, 60_000);
    // Each byte is a record of its own.
    for byte in commands {
        if slow.write_all(&[byte]).and_then(|()| slow.flush()).is_err() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("it was waited for, ten minutes long");
}

#[test]
fn a_peer_that_never_begins_is_hung_up_on_and_one_that_is_idle_is_not() {
    let certificates = Certificates::new();
    let server = serve(&certificates);
    let mut idle = connect(&certificates, &server);
    let (commands, replies) = echoes(1, 3);
    let mut heard = vec![0; replies.len()];
    idle.write_all(&commands).unwrap();
    idle.read_exact(&mut heard).unwrap();
    assert_eq!(plain(&server).read(&mut [0; 10]).unwrap(), 0);
    idle.write_all(&commands).unwrap();
    idle.read_exact(&mut heard).unwrap();
    assert_eq!(heard, replies);
}

#[test]
fn a_certificate_is_renewed_at_sighup_and_one_that_cannot_be_used_is_not() {
    let (ours, renewed) = (Certificates::new(), Certificates::new());
    let mut server = serve(&ours);
    let reload = |server: &mut Server| {
        server.signal(Signal::HUP);
        server.error_with("the configuration was reloaded");
    };
    let talks = |peer: &mut Conversation| {
        let (commands, replies) = echoes(1, 3);
        let mut heard = vec![0; replies.len()];
        let talked = peer.write_all(&commands).and_then(|()| peer.read_exact(&mut heard));
        talked.is_ok_and(|()| heard == replies)
    };
    let mut old = connect(&ours, &server);
    assert!(talks(&mut old) && !talks(&mut connect(&renewed, &server)));
    std::fs::write(ours.path("certificate.pem"), "no PEM at all").unwrap();
    reload(&mut server);
    assert!(talks(&mut connect(&ours, &server)), "what can't be used changes nothing");
    for name in ["certificate.pem", "key.pem"] {
        std::fs::write(ours.path(name), std::fs::read(renewed.path(name)).unwrap()).unwrap();
    }
    reload(&mut server);
    assert!(talks(&mut connect(&renewed, &server)) && !talks(&mut connect(&ours, &server)));
    assert!(talks(&mut old), "a connection keeps what it began with");
}

#[test]
fn files_that_tls_cannot_use_refuse_the_start_in_one_line() {
    let (ours, theirs) = (Certificates::new(), Certificates::new());
    std::fs::write(ours.path("noise.pem"), "no PEM at all").unwrap();
    std::fs::write(ours.path("empty.pem"), "").unwrap();
    ["noise.pem", "certificate.pem"].iter().for_each(|name| ours.keep_to_ourselves(name));
    let (certificate, key) = (ours.path("certificate.pem"), ours.path("key.pem"));
    std::fs::write(ours.path("open.pem"), std::fs::read(&key).unwrap()).unwrap();
    let cases = [
        (Some(certificate.clone()), None, "resp.tls_key_file"),
        (None, Some(key.clone()), "resp.tls_certificate_file"),
        (Some(ours.path("absent.pem")), Some(key.clone()), "absent.pem"),
        (Some(ours.path("noise.pem")), Some(key.clone()), "noise.pem"),
        (Some(ours.path("empty.pem")), Some(key.clone()), "empty.pem"),
        (Some(certificate.clone()), Some(ours.path("noise.pem")), "noise.pem"),
        (Some(certificate.clone()), Some(certificate.clone()), "certificate.pem"),
        (Some(certificate.clone()), Some(theirs.path("key.pem")), "key.pem"),
        (Some(certificate), Some(ours.path("open.pem")), "chmod 600"),
    ];
    let dir = tempfile::tempdir().unwrap();
    for (certificate, key, word) in cases {
        assert_refused(dir.path(), certificate.as_deref(), key.as_deref(), word);
    }
}

fn assert_refused(dir: &Path, certificate: Option<&str>, key: Option<&str>, word: &str) {
    let mut command = sluice(["serve", "--demo", "--listen", "127.0.0.1:0"]);
    command.args(["--resp-listen", "127.0.0.1:0", "--data-dir"]).arg(dir.join("data"));
    command.envs(certificate.map(|path| ("SLUICE_RESP__TLS_CERTIFICATE_FILE", path)));
    command.envs(key.map(|path| ("SLUICE_RESP__TLS_KEY_FILE", path)));
    let mut child = command.spawn().unwrap();
    assert_eq!(wait(&mut child).code(), Some(2), "{word}");
    let errors = String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap();
    assert!(errors.lines().count() == 1 && errors.contains(word), "{word}: {errors}");
}
