//! The same over io_uring: a task a connection, on one thread.

use std::net::SocketAddr;

use compio::BufResult;
use compio::io::{AsyncRead as _, AsyncWriteExt as _};
use compio::net::{TcpListener, TcpStream};
use compio::runtime::{Runtime, spawn};

use super::{INPUT_BYTES, take_requests};
use crate::trouble::Trouble;

/// Answers with `answer` until it is killed.
pub(super) fn run(listen: SocketAddr, answer: String) -> Result<(), Trouble> {
    let failed = |what: &'static str| Trouble::io(what);
    let answer: &'static str = answer.leak();
    let runtime = Runtime::new().map_err(failed("make a ring"))?;
    runtime.block_on(async {
        let listener = TcpListener::bind(listen).await.map_err(failed("listen"))?;
        let address = listener.local_addr().map_err(failed("name the listener"))?;
        println!("listening on http://{address}");
        loop {
            let (stream, _) = listener.accept().await.map_err(failed("accept"))?;
            let _ = stream.set_nodelay(true);
            spawn(serve(stream, answer)).detach();
        }
    })
}

/// Answers every whole request that comes, until the other side leaves.
async fn serve(mut stream: TcpStream, answer: &'static str) {
    let mut scratch = Vec::with_capacity(INPUT_BYTES / 8);
    let mut input = Vec::new();
    loop {
        let BufResult(read, bytes) = stream.read(scratch).await;
        if !read.is_ok_and(|count| count > 0) {
            return;
        }
        input.extend_from_slice(&bytes);
        scratch = bytes;
        scratch.clear();
        for _ in 0..take_requests(&mut input) {
            if stream.write_all(answer.as_bytes()).await.0.is_err() {
                return;
            }
        }
    }
}
