//! A payment provider that misbehaves as it is told: it listens for refunds, and signs callbacks.

#![allow(dead_code, reason = "each test binary uses its own part of the harness")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;

use super::common::{Answer, Connection, Server, request};

/// What the tests' channel `mock` signs with.
pub(crate) const MOCK_SECRET: &str = "q8Zt1LkV5sXw0RbN7yJc3HfP9dGmA2eU";

/// What their channel `bank` signs with.
pub(crate) const BANK_SECRET: &str = "Vb4nM7kQ2wE9rT1yU6iO3pA8sD5fG0hJ";

/// What a refund is answered.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// The money is back.
    Settled,
    /// It will be.
    Accepted,
    /// It will not be.
    Refused,
    /// Another status.
    Status(u16),
    /// No answer at all.
    HangUp,
    /// An answer that nobody agreed on.
    Garbage,
}

struct State {
    replies: VecDeque<Reply>,
    asked: Vec<Value>,
}

/// The provider. Unless told otherwise it settles.
pub(crate) struct Provider {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl Provider {
    /// Listens on loopback.
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State { replies: VecDeque::new(), asked: Vec::new() }));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                serve(stream, &shared);
            }
        });
        Self { address, state }
    }

    /// What the next questions are answered.
    pub(crate) fn will(&self, replies: impl IntoIterator<Item = Reply>) {
        self.state.lock().unwrap().replies.extend(replies);
    }

    /// All that was asked so far.
    pub(crate) fn asked(&self) -> Vec<Value> {
        self.state.lock().unwrap().asked.clone()
    }

    /// A server that knows this provider as `mock`'s, and a channel `bank` without any.
    pub(crate) fn server(&self, args: &[&str], env: &[(&str, &str)]) -> Server {
        let providers = format!("mock=http://{}/refunds", self.address);
        let secrets = secrets();
        let mut all = vec![
            ("SLUICE_PAYMENTS__SECRETS", secrets.as_str()),
            ("SLUICE_PAYMENTS__PROVIDERS", providers.as_str()),
        ];
        all.extend_from_slice(env);
        Server::start_with(args, &all)
    }
}

/// The secrets of both channels, as the setting has them.
pub(crate) fn secrets() -> String {
    format!("mock:{MOCK_SECRET}, bank:{BANK_SECRET}")
}

fn serve(stream: TcpStream, state: &Mutex<State>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut length, mut timestamp, mut signature) = (0, String::new(), String::new());
    let mut line = String::new();
    while reader.read_line(&mut line).unwrap_or(0) > 0 {
        if line == "\r\n" {
            break;
        }
        if let Some((name, value)) = line.split_once(':') {
            match name.to_lowercase().as_str() {
                "content-length" => length = value.trim().parse().unwrap(),
                "x-timestamp" => timestamp = value.trim().to_owned(),
                "x-signature" => signature = value.trim().to_owned(),
                _ => {}
            }
        }
        line.clear();
    }
    let mut body = vec![0; length];
    if reader.read_exact(&mut body).is_err() {
        return;
    }
    let text = String::from_utf8(body).unwrap();
    let signed = sign(MOCK_SECRET, timestamp.parse().unwrap(), &text);
    assert_eq!(signature, signed, "a question that is not signed");
    let reply = {
        let mut state = state.lock().unwrap();
        state.asked.push(serde_json::from_str(&text).unwrap());
        state.replies.pop_front().unwrap_or(Reply::Settled)
    };
    let (status, body) = match reply {
        Reply::Settled => (200, json!({"status": "settled"}).to_string()),
        Reply::Accepted => (200, json!({"status": "accepted"}).to_string()),
        Reply::Refused => (200, json!({"status": "refused", "reason": "closed"}).to_string()),
        Reply::Status(status) => (status, String::new()),
        Reply::Garbage => (200, "<html>".to_owned()),
        Reply::HangUp => return,
    };
    let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n", body.len());
    let _ = (&stream).write_all((head + &body).as_bytes());
}

/// `X-Signature` of `body`.
pub(crate) fn sign(secret: &str, timestamp: u64, body: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(format!("{timestamp}.{body}").as_bytes());
    mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Unix seconds.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// The body of a callback.
pub(crate) fn body(payment_no: &str, transaction: &str, amount: u64, status: &str) -> String {
    json!({
        "payment_no": payment_no, "transaction_no": transaction, "amount": amount,
        "status": status,
    })
    .to_string()
}

/// Calls back as `mock` does.
pub(crate) fn call_back(server: &Server, body: &str) -> Answer {
    let at = now();
    send(server, "mock", at, &sign(MOCK_SECRET, at, body), body)
}

/// Calls back with whatever signature.
pub(crate) fn send(
    server: &Server,
    channel: &str,
    timestamp: u64,
    signature: &str,
    body: &str,
) -> Answer {
    let at = timestamp.to_string();
    let headers =
        [("Content-Type", "application/json"), ("X-Timestamp", &at), ("X-Signature", signature)];
    server.call("POST", &format!("/api/payments/callback/{channel}"), &headers, body)
}

/// Calls back as `mock` does, to a server that may be gone.
pub(crate) fn try_call_back(address: SocketAddr, body: &str) -> Option<Answer> {
    let (at, path) = (now(), "/api/payments/callback/mock");
    let (signature, at) = (sign(MOCK_SECRET, at, body), at.to_string());
    let headers =
        [("Content-Type", "application/json"), ("X-Timestamp", &at), ("X-Signature", &signature)];
    let mut connection = Connection::try_to(address).ok()?;
    connection.send(request("POST", path, &headers, body));
    connection.answer()
}

/// The verdict on a callback that was recorded.
pub(crate) fn verdict(answer: &Answer) -> String {
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["verdict"].as_str().unwrap().to_owned()
}

/// Opens a payment of `order_no`.
pub(crate) fn open(server: &Server, user: u64, order_no: &Value) -> Answer {
    server.as_user(user, "POST", "/api/payments", Some(&json!({"order_no": order_no})))
}

/// Asks for the refund of `payment_no`.
pub(crate) fn refund(server: &Server, payment_no: &str, fields: &Value) -> Answer {
    server.as_admin("POST", &format!("/api/payments/{payment_no}/refund"), Some(fields))
}
