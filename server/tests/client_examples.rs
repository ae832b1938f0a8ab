//! The clients in `examples/clients` do what they are there to show: they buy, they repeat with the
//! same id when they are told to come back, they wait for the order, and they name a refusal.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::thread::JoinHandle;

use common::python::attempt;
use common::{Server, token};
use serde_json::{Value, json};

const CLIENTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/clients");

/// What starts a client, and the package that it comes from.
struct Client {
    words: &'static [&'static str],
    file: &'static str,
    package: &'static str,
}

const CURL: Client = Client { words: &["sh"], file: "purchase.sh", package: "curl" };
const PYTHON: Client = Client { words: &["python3"], file: "purchase.py", package: "python3" };
const GO: Client = Client { words: &["go", "run"], file: "purchase.go", package: "golang-go" };
const JAVA: Client =
    Client { words: &["java"], file: "Purchase.java", package: "default-jdk-headless" };

impl Client {
    /// Whether it bought, and what it said.
    fn buy(&self, address: SocketAddr, user: u64, request_id: &str) -> (bool, String) {
        let mut command = Command::new(self.words[0]);
        command.args(&self.words[1..]).arg(format!("{CLIENTS}/{}", self.file));
        command.env("SLUICE_URL", format!("http://{address}")).env("ACTIVITY", "30001");
        command.env("TOKEN", token(user, "user")).env("REQUEST_ID", request_id);
        attempt(&mut command, self.package)
    }
}

/// Answers in the order of `script`, each on a connection of its own, and returns the bodies that
/// came.
fn scripted(script: Vec<(&'static str, Value)>) -> (SocketAddr, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serve = move || {
        let answers = script.into_iter();
        answers.map(|(head, body)| answer(listener.accept().unwrap().0, head, &body)).collect()
    };
    (address, std::thread::spawn(serve))
}

fn answer(stream: TcpStream, head: &str, body: &Value) -> String {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        assert!(reader.read_line(&mut line).unwrap() > 0, "a request ends with an empty line");
        let line = line.trim_end().to_lowercase();
        if line.is_empty() {
            break;
        }
        length = line.strip_prefix("content-length: ").map_or(length, |it| it.parse().unwrap());
    }
    let mut sent = vec![0; length];
    reader.read_exact(&mut sent).unwrap();
    let body = body.to_string();
    let mut stream = reader.into_inner();
    let length = body.len();
    let text =
        format!("HTTP/1.1 {head}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
    stream.write_all(text.as_bytes()).unwrap();
    String::from_utf8(sent).unwrap()
}

fn purchase(status: &str) -> Value {
    let (id, order_no) = (4_294_967_297_u64, "100000004294967297");
    json!({"pre_deduction_id": id, "order_no": order_no, "status": status})
}

/// Told to come back twice, it sends the same again, and waits until there is an order.
fn comes_back(client: &Client) {
    let problem = |code: &str| json!({"code": code});
    let (address, served) = scripted(vec![
        ("503 Service Unavailable\r\nRetry-After: 1", problem("log_unavailable")),
        ("429 Too Many Requests\r\nRetry-After: 1", problem("rate_limited")),
        ("202 Accepted", purchase("pending_order")),
        ("200 OK", purchase("pending_order")),
        ("200 OK", purchase("ordered")),
    ]);
    let (bought, said) = client.buy(address, 1, "click-1");
    assert!(bought, "{said}");
    assert!(said.contains("100000004294967297 ordered"), "{said}");
    let bodies = served.join().unwrap();
    for body in &bodies[..3] {
        let sent: Value = serde_json::from_str(body).unwrap();
        assert_eq!(sent["client_request_id"], "click-1", "a repeat is the same purchase");
    }
    assert_eq!(bodies[3..], ["", ""]);
}

/// Of the real server it gets an order, the same one again, and a refusal by its code.
fn buys(client: &Client) {
    let server = Server::start_with(&["--demo"], &[]);
    let (bought, said) = client.buy(server.address, 7, "click-1");
    assert!(bought && said.contains("ordered"), "{said}");
    assert_eq!(client.buy(server.address, 7, "click-1"), (true, said));
    let (bought, said) = client.buy(server.address, 7, "click-2");
    assert!(!bought && said.contains("limit_reached"), "{said}");
    assert_eq!(server.figures(30_001)[2], 1, "one unit is reserved");
}

#[test]
fn curl_buys_once_and_comes_back_when_it_is_told_to() {
    comes_back(&CURL);
    buys(&CURL);
}

#[test]
fn python_buys_once_and_comes_back_when_it_is_told_to() {
    comes_back(&PYTHON);
    buys(&PYTHON);
}

#[test]
#[ignore = "needs a Go compiler, half a gigabyte that CI does not install"]
fn go_buys_once_and_comes_back_when_it_is_told_to() {
    comes_back(&GO);
    buys(&GO);
}

#[test]
#[ignore = "needs a JDK, which CI does not install"]
fn java_buys_once_and_comes_back_when_it_is_told_to() {
    comes_back(&JAVA);
    buys(&JAVA);
}
