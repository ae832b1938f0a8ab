//! The ceiling: an HTTP server that finds the end of a request and says yes, over epoll, or over
//! io_uring by a runtime made for that. It knows no shop, no token and no disk.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::SocketAddr;

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

use crate::trouble::Trouble;

mod uring;

/// Arguments of `peers hello`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The address; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Over io_uring instead of epoll
    #[arg(long)]
    uring: bool,
}

const LISTENER: Token = Token(usize::MAX);
const EVENTS_MAX: usize = 1024;
const INPUT_BYTES: usize = 64 * 1024;
const HEADERS_MAX: usize = 16;

/// As long as the answer to a purchase.
const BODY: &str = "{\"pre_deduction_id\":4294967297,\"order_no\":\"100000004294967297\",\
                    \"status\":\"pending_order\",\"activity_id\":30001,\"quantity\":1,\
                    \"price\":9900,\"pay_before\":\"2026-01-01T00:00:00.000Z\"}";

struct Link {
    stream: TcpStream,
    input: Vec<u8>,
}

/// Answers until it is killed.
pub(crate) fn run(args: &Args) -> Result<(), Trouble> {
    let head = "HTTP/1.1 202 Accepted\r\ncontent-type: application/json\r\ncontent-length:";
    let answer = format!("{head} {}\r\n\r\n{BODY}", BODY.len());
    if args.uring { uring::run(args.listen, answer) } else { over_epoll(args.listen, &answer) }
}

fn over_epoll(listen: SocketAddr, answer: &str) -> Result<(), Trouble> {
    let failed = |what: &'static str| Trouble::io(what);
    let mut listener = TcpListener::bind(listen).map_err(failed("listen"))?;
    let mut poll = Poll::new().map_err(failed("make a poll"))?;
    let registry = poll.registry();
    registry.register(&mut listener, LISTENER, Interest::READABLE).map_err(failed("register"))?;
    let address = listener.local_addr().map_err(failed("name the listener"))?;
    println!("listening on http://{address}");
    let mut links: Vec<Option<Link>> = Vec::new();
    let mut events = Events::with_capacity(EVENTS_MAX);
    let mut scratch = vec![0; INPUT_BYTES];
    loop {
        poll.poll(&mut events, None).map_err(failed("poll"))?;
        for event in &events {
            if event.token() != LISTENER {
                let Token(index) = event.token();
                let is_alive = links[index]
                    .as_mut()
                    .is_some_and(|link| serve(link, &mut scratch, answer.as_bytes()));
                if !is_alive {
                    links[index] = None;
                }
                continue;
            }
            while let Ok((mut stream, _)) = listener.accept() {
                let _ = stream.set_nodelay(true);
                let token = Token(links.len());
                let registered = poll.registry().register(&mut stream, token, Interest::READABLE);
                registered.map_err(failed("register"))?;
                links.push(Some(Link { stream, input: Vec::new() }));
            }
        }
    }
}

/// Answers every whole request that has come; false where the other side has left.
fn serve(link: &mut Link, scratch: &mut [u8], answer: &[u8]) -> bool {
    loop {
        match link.stream.read(scratch) {
            Ok(0) => return false,
            Ok(read) => link.input.extend_from_slice(&scratch[..read]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(_) => return false,
        }
    }
    let answers = take_requests(&mut link.input);
    // The client waits for each answer, so that its socket takes them.
    (0..answers).all(|_| link.stream.write_all(answer).is_ok())
}

/// Takes the whole requests out of `input`, and counts them.
fn take_requests(input: &mut Vec<u8>) -> usize {
    let (mut count, mut used) = (0, 0);
    while let Some(length) = request_length(&input[used..]) {
        used += length;
        count += 1;
    }
    input.drain(..used);
    count
}

/// Bytes of the first request; `None` while it is not whole.
fn request_length(bytes: &[u8]) -> Option<usize> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let Ok(httparse::Status::Complete(head)) = request.parse(bytes) else { return None };
    let length = request.headers.iter().find(|it| it.name.eq_ignore_ascii_case("content-length"));
    let length = length.and_then(|it| std::str::from_utf8(it.value).ok()?.parse::<usize>().ok());
    let whole = head + length.unwrap_or(0);
    (bytes.len() >= whole).then_some(whole)
}
