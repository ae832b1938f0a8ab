use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::http::{Request, Response};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

const LINE: &str = "POST /api/flashsales/30001/purchase HTTP/1.1\r\n";

fn verdict(text: &str) -> Option<(usize, usize)> {
    match read(text.as_bytes()) {
        Verdict::Plain(head) => Some((head.bytes, head.body_bytes)),
        _ => None,
    }
}

#[test]
fn a_plain_purchase_is_read_where_it_lies() {
    let text = format!(
        "{LINE}hOST: shop\r\nAuthorization: Bearer a.b.c\r\nUser-Agent: \u{fc}\r\n\
         Content-Length: 2\r\nConnection: Keep-Alive\r\n\r\n{{}}"
    );
    let Verdict::Plain(head) = read(text.as_bytes()) else { panic!("{text}") };
    assert_eq!((head.activity, head.body_bytes, head.bytes + 2), ("30001", 2, text.len()));
    assert_eq!(head.get(Field::Authorization), Some("Bearer a.b.c"));
    assert_eq!(head.get(Field::Device), None);
}

#[test]
fn a_head_that_is_not_whole_is_waited_for_from_its_first_byte() {
    let text = format!("{LINE}Host: t\r\n\r\n");
    for cut in 0..text.len() {
        assert_eq!(read(&text.as_bytes()[..cut]), Verdict::Incomplete, "{cut}");
    }
    let endless = format!("{LINE}Host: {}", "x".repeat(HEAD_BYTES_MAX));
    assert_eq!(read(endless.as_bytes()), Verdict::Elsewhere);
}

#[test]
fn whatever_could_be_read_in_two_ways_goes_to_the_router() {
    assert!(verdict(&format!("{LINE}Host: t\r\n\r\n")).is_some());
    for line in [
        "GET /api/flashsales/1/purchase HTTP/1.1",
        "POST /api/flashsales/1/purchase HTTP/1.0",
        "POST /api/flashsales/1/purchase?a=1 HTTP/1.1",
        "POST /api/flashsales/%31/purchase HTTP/1.1",
        "POST /api/flashsales/1/purchase/ HTTP/1.1",
        "POST /api/flashsales//purchase HTTP/1.1",
        "POST /api/flashsales/12345678901234567/purchase HTTP/1.1",
        "POST http://t/api/flashsales/1/purchase HTTP/1.1",
    ] {
        assert_eq!(verdict(&format!("{line}\r\nHost: t\r\n\r\n")), None, "{line}");
    }
    for headers in [
        "",
        "Host: a\r\nHost: a\r\n",
        "Host: t\r\nTransfer-Encoding: chunked\r\n",
        "Host: t\r\nExpect: 100-continue\r\n",
        "Host: t\r\nUpgrade: websocket\r\n",
        "Host: t\r\nConnection: close\r\n",
        "Host: t\r\nConnection: keep-alive, content-length\r\n",
        "Host: t\r\nContent-Length: 2\r\nContent-Length: 2\r\n",
        "Host: t\r\nContent-Length: +2\r\n",
        "Host: t\r\nContent-Length: 2, 2\r\n",
        "Host: t\r\nContent-Length:\r\n",
        "Host: t\r\nContent-Length: 16385\r\n",
        "Host: t\r\nContent-Length: 99999999999999999999\r\n",
        "Host: t\r\nAuthorization: a\r\nauthorization: b\r\n",
        "Host: t\r\nX-Device-Id: \u{fc}\r\n",
        "Host: t\r\nX-Device-Id : a\r\n",
        "Host: t\r\nX-Device-Id: a\r\n folded\r\n",
    ] {
        assert_eq!(verdict(&format!("{LINE}{headers}\r\n")), None, "{headers:?}");
    }
}

/// What hyper made of a request: method, target, the values of a header, the body.
type Seen = (String, String, Vec<String>, Bytes);

/// The requests that hyper finds in `input`.
fn hypers(input: &[u8]) -> Vec<Seen> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let service = service_fn(|request: Request<Incoming>| {
        let seen = Arc::clone(&seen);
        async move {
            let (parts, body) = request.into_parts();
            let values = NAMES.iter().flat_map(|(name, _)| parts.headers.get_all(*name));
            let values = values.map(|it| String::from_utf8_lossy(it.as_bytes()).into_owned());
            let (method, target) = (parts.method.to_string(), parts.uri.to_string());
            let values = values.collect();
            if let Ok(body) = body.collect().await {
                seen.lock().unwrap().push((method, target, values, body.to_bytes()));
            }
            Ok::<_, Infallible>(Response::new(Body::empty()))
        }
    });
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let (mut client, server) = tokio::io::duplex(64 * 1024);
        let serve = http1::Builder::new()
            .header_read_timeout(None)
            .half_close(true)
            .serve_connection(TokioIo::new(server), service);
        let send = async {
            client.write_all(input).await.unwrap();
            client.shutdown().await.unwrap();
            let _ = client.read_to_end(&mut Vec::new()).await;
        };
        let _ = tokio::join!(serve, send);
    });
    Arc::into_inner(seen).unwrap().into_inner().unwrap()
}

fn lines() -> impl Strategy<Value = String> {
    let header = prop_oneof![
        Just("Host: t"),
        Just("host:t"),
        Just("Content-Length: 2"),
        Just("Content-Length: 02"),
        Just("content-length:0"),
        Just("Transfer-Encoding: chunked"),
        Just("Connection: keep-alive"),
        Just("Connection: close"),
        Just("Authorization: Bearer a.b.c "),
        Just("X-Device-Id: \t d-1"),
        Just("Accept: */*"),
        Just("Cookie: a=\u{fc}"),
        Just(" folded"),
        Just("no colon"),
        Just(""),
    ];
    let end = prop_oneof![8 => Just("\r\n"), 1 => Just("\n"), 1 => Just("\r")];
    let headers = proptest::collection::vec((header, end), 0..5);
    let begin = prop_oneof![4 => Just(""), 1 => Just("\r\n"), 1 => Just("\n")];
    let line = prop_oneof![
        8 => Just("POST /api/flashsales/30001/purchase HTTP/1.1"),
        1 => Just("POST  /api/flashsales/30001/purchase HTTP/1.1"),
        1 => Just("POST /api/flashsales/1/purchase HTTP/1.0"),
    ];
    (begin, line, headers).prop_map(|(begin, line, headers)| {
        let mut text = format!("{begin}{line}\r\nHost: t\r\n");
        // Half of them have one host.
        if headers.len() % 2 == 1 {
            text = format!("{begin}{line}\r\n");
        }
        headers.iter().for_each(|(header, end)| text += &format!("{header}{end}"));
        text + "\r\n"
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever this reader takes, hyper reads the same: the same values, the same body, and the
    /// next request from the same byte on.
    #[test]
    fn what_is_plain_is_the_same_request_to_hyper(
        head in lines(),
        change in proptest::option::of((any::<prop::sample::Index>(), any::<u8>())),
    ) {
        let mut input = head.into_bytes();
        if let Some((at, byte)) = change {
            let at = at.index(input.len());
            input[at] = byte;
        }
        input.extend_from_slice(b"{}");
        if let Verdict::Plain(head) = read(&input) {
            let end = head.bytes + head.body_bytes;
            let next = b"GET /next HTTP/1.1\r\nHost: n\r\n\r\n";
            let seen = hypers(&[&input[..end], next].concat());
            let values = head.fields.iter().flatten().map(|value| (*value).to_owned());
            let first = (
                "POST".to_owned(),
                format!("/api/flashsales/{}/purchase", head.activity),
                values.collect::<Vec<_>>(),
                Bytes::copy_from_slice(&input[head.bytes..end]),
            );
            prop_assert_eq!(seen.first(), Some(&first));
            prop_assert_eq!(seen.get(1).map(|it| it.1.as_str()), Some("/next"));
        }
    }
}
