//! One address that several servers answer in turn, as behind a name that a failover moves.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// Its threads end with the process.
pub struct Relay {
    pub address: SocketAddr,
    state: Arc<State>,
}

struct State {
    target: Mutex<Option<u16>>,
    tied: Mutex<Vec<TcpStream>>,
}

impl Relay {
    /// To the server that listens at `port`.
    pub fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = State { target: Mutex::new(Some(port)), tied: Mutex::default() };
        let state = Arc::new(state);
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                shared.tie(client);
            }
        });
        Self { address, state }
    }

    /// Hangs up on everybody; who comes is sent to `target`, or away.
    pub fn lead_to(&self, target: Option<u16>) {
        let mut leads = self.state.target.lock().unwrap();
        *leads = target;
        for stream in self.state.tied.lock().unwrap().drain(..) {
            // Hung up already is as good.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl State {
    fn tie(&self, client: TcpStream) {
        // Held until the two are tied: nobody slips through while the way is changed.
        let target = self.target.lock().unwrap();
        let server = target.and_then(|port| TcpStream::connect(("127.0.0.1", port)).ok());
        let Some(server) = server else { return };
        let mut tied = self.tied.lock().unwrap();
        for (from, to) in [(&client, &server), (&server, &client)] {
            let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            std::thread::spawn(move || pass_on(from, to));
        }
        tied.extend([client, server]);
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream) {
    let mut bytes = [0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
