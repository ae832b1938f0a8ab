//! A line to MariaDB that is cut at a chosen packet: the instants around a COMMIT that no kill
//! hits often enough.
//!
//! ```text
//!  server ---> [line] ---> MariaDB      BeforeCommit: the COMMIT never gets there
//!         <---        <---              AfterCommit:  it does, and its answer never comes back
//!                                       MidBatch:     a statement of the transaction is lost
//! ```
#![allow(dead_code, reason = "each test binary uses its own part of the line")]

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Where a line is cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cut {
    BeforeCommit,
    AfterCommit,
    MidBatch,
}

/// All of them, in the order in which they are counted.
pub(crate) const CUTS: [Cut; 3] = [Cut::BeforeCommit, Cut::AfterCommit, Cut::MidBatch];

/// The packet of a transaction that [`Cut::MidBatch`] loses, counted from its beginning.
const MID_BATCH_PACKET: usize = 3;

/// A batch is on its way long before.
const CUT_TIMEOUT: Duration = Duration::from_secs(60);

/// The command byte of a packet with a statement as text.
const COM_QUERY: u8 = 3;

/// The line. Its threads end with the process.
pub(crate) struct Line {
    directory: TempDir,
    state: Arc<State>,
}

struct State {
    upstream: PathBuf,
    armed: Mutex<Option<Cut>>,
    made: [AtomicUsize; CUTS.len()],
}

impl Line {
    /// A line to the socket at `upstream`, whether or not anybody listens there.
    pub(crate) fn to(upstream: &Path) -> Self {
        let directory = TempDir::with_prefix_in("line", env!("CARGO_TARGET_TMPDIR")).unwrap();
        let listener = UnixListener::bind(directory.path().join("s")).unwrap();
        let state = State {
            upstream: upstream.to_owned(),
            armed: Mutex::new(None),
            made: [const { AtomicUsize::new(0) }; CUTS.len()],
        };
        let state = Arc::new(state);
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                shared.connect(client);
            }
        });
        Self { directory, state }
    }

    /// The URL of `database` at its other end. What is encrypted could not be cut where it should:
    /// so without TLS, and for a user without a password, which MySQL takes over TLS alone.
    pub(crate) fn url(&self, user: &str, database: &str) -> String {
        let socket = self.directory.path().join("s");
        format!("mysql://{user}@localhost/{database}?socket={}&ssl-mode=DISABLED", socket.display())
    }

    /// Cuts the next connection that comes to such a packet; one cut, then it is whole again.
    pub(crate) fn arm(&self, cut: Cut) {
        *self.state.armed.lock().unwrap() = Some(cut);
    }

    /// Waits until what was armed has happened.
    pub(crate) fn wait_for_cut(&self) {
        let began = Instant::now();
        while self.state.armed.lock().unwrap().is_some() {
            assert!(began.elapsed() < CUT_TIMEOUT, "nothing came to the cut");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Takes back what was armed and not met.
    pub(crate) fn disarm(&self) {
        *self.state.armed.lock().unwrap() = None;
    }

    /// How many cuts of each kind were made.
    pub(crate) fn made(&self) -> [usize; CUTS.len()] {
        std::array::from_fn(|index| self.state.made[index].load(Ordering::Relaxed))
    }
}

impl State {
    /// Ties `client` to the database; a database that is not there hangs up, as its socket would.
    fn connect(self: &Arc<Self>, client: UnixStream) {
        let Ok(server) = UnixStream::connect(&self.upstream) else { return };
        let (Ok(to_client), Ok(from_server)) = (client.try_clone(), server.try_clone()) else {
            return;
        };
        let swallows = Arc::new(AtomicBool::new(false));
        let swallowing = Arc::clone(&swallows);
        std::thread::spawn(move || answers(from_server, to_client, &swallowing));
        let state = Arc::clone(self);
        std::thread::spawn(move || state.requests(client, server, &swallows));
    }

    /// Hands packets on until one of the two hangs up, or a cut is due.
    fn requests(&self, mut client: UnixStream, mut server: UnixStream, swallows: &AtomicBool) {
        // Packets since the transaction began; 0 outside of one.
        let mut since_begin = 0;
        while let Ok(packet) = read_packet(&mut client) {
            since_begin = match statement(&packet) {
                Some(b"START TRANSACTION") => 1,
                Some(b"COMMIT") => 0,
                _ if since_begin > 0 => since_begin + 1,
                _ => 0,
            };
            match self.take(&packet, since_begin) {
                Some(Cut::BeforeCommit | Cut::MidBatch) => break,
                Some(Cut::AfterCommit) => swallows.store(true, Ordering::Release),
                None => {}
            }
            if server.write_all(&packet).is_err() {
                break;
            }
        }
        if !swallows.load(Ordering::Acquire) {
            hang_up(&client, &server);
        }
    }

    /// The cut that is armed, where this is its packet.
    fn take(&self, packet: &[u8], since_begin: usize) -> Option<Cut> {
        let mut armed = self.armed.lock().unwrap();
        let is_due = match (*armed)? {
            Cut::BeforeCommit | Cut::AfterCommit => statement(packet) == Some(b"COMMIT"),
            Cut::MidBatch => since_begin == MID_BATCH_PACKET,
        };
        let cut = armed.take_if(|_| is_due)?;
        self.made[cut as usize].fetch_add(1, Ordering::Relaxed);
        Some(cut)
    }
}

/// Hands answers on; with `swallows`, the next one is lost and the line with it.
fn answers(mut server: UnixStream, mut client: UnixStream, swallows: &AtomicBool) {
    let mut bytes = [0; 16 * 1024];
    while let Ok(count @ 1..) = server.read(&mut bytes) {
        if swallows.load(Ordering::Acquire) || client.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    hang_up(&client, &server);
}

fn hang_up(client: &UnixStream, server: &UnixStream) {
    // Hung up already is as good.
    let _ = client.shutdown(Shutdown::Both);
    let _ = server.shutdown(Shutdown::Both);
}

/// One packet with its header: three bytes of length, one of sequence.
fn read_packet(stream: &mut UnixStream) -> std::io::Result<Vec<u8>> {
    let mut header = [0; 4];
    stream.read_exact(&mut header)?;
    let length = u32::from_le_bytes([header[0], header[1], header[2], 0]);
    let mut packet = header.to_vec();
    packet.resize(header.len() + usize::try_from(length).unwrap(), 0);
    stream.read_exact(&mut packet[header.len()..])?;
    Ok(packet)
}

/// The statement in a packet that carries one as text.
fn statement(packet: &[u8]) -> Option<&[u8]> {
    let (command, text) = packet.get(4..)?.split_first()?;
    (*command == COM_QUERY).then_some(text)
}
