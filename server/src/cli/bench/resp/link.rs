//! One connection of the load, and what its answers mean.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::time::{Duration, Instant};

use mio::net::TcpStream;

use super::super::plan::Request;
use super::super::wire::Malformed;
use super::load::Load;
use super::wire::{self, Answer};

/// Errors that say for sure that nothing was reserved.
const NOTHING_RESERVED: [&str; 4] = ["OVERLOADED", "RECOVERING", "INVALID", "BLACKLISTED"];

/// A call in flight.
pub(super) struct Sent {
    pub(super) request: Request,
    /// When it was to be sent.
    pub(super) due: Instant,
}

/// What a call was answered, until its `WAITAOF` is.
pub(super) type Outcome = Result<(u64, bool), (Cow<'static, str>, bool)>;

/// One connection.
pub(super) struct Link {
    pub(super) stream: TcpStream,
    pub(super) output: Vec<u8>,
    pub(super) written: usize,
    pub(super) input: Vec<u8>,
    /// Calls without an answer, oldest first; `None` is a `WAITAOF`.
    pub(super) flight: VecDeque<Option<Sent>>,
    /// Answers that wait for their `WAITAOF`.
    pub(super) answered: Vec<(Sent, Outcome)>,
    pub(super) is_lost: bool,
}

impl Link {
    /// Connects, and says who it is.
    ///
    /// # Errors
    /// Nobody is there, or they do not know us.
    pub(super) fn connect(load: &Load) -> io::Result<Self> {
        let stream = std::net::TcpStream::connect_timeout(&load.address, load.time_out)?;
        stream.set_nodelay(true)?;
        if let Some((user, password)) = &load.credentials {
            authenticate(&stream, load.time_out, user, password)?;
        }
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream: TcpStream::from_std(stream),
            output: Vec::new(),
            written: 0,
            input: Vec::new(),
            flight: VecDeque::new(),
            answered: Vec::new(),
            is_lost: false,
        })
    }
}

/// What a purchase was answered.
pub(super) fn outcome(answer: &Answer<'_>) -> Result<Outcome, Malformed> {
    match answer {
        Answer::List(items) => {
            let [Answer::Integer(code), id, _, _] = items.as_slice() else {
                return Err(Malformed);
            };
            let id = id.unsigned().ok_or(Malformed)?;
            Ok(match code {
                1 => Ok((id, false)),
                2 => Ok((id, true)),
                other => Err((Cow::Borrowed(name(*other)), false)),
            })
        }
        Answer::Error(text) => {
            let text = String::from_utf8_lossy(text);
            let word = text.split(' ').next().unwrap_or_default();
            Ok(Err((Cow::Owned(word.to_owned()), !NOTHING_RESERVED.contains(&word))))
        }
        _ => Err(Malformed),
    }
}

/// The code as it is called over HTTP.
const fn name(code: i64) -> &'static str {
    match code {
        0 => "sold_out",
        -1 => "not_in_window",
        -2 => "limit_reached",
        -3 => "off_sale",
        -4 => "paused",
        -5 => "activity_not_found",
        -6 => "request_id_reused",
        _ => "other_codes",
    }
}

/// Whether a `WAITAOF` says that everything is on disk.
///
/// # Errors
/// It does not: nothing before it may count as answered.
pub(super) fn synced(answer: &Answer<'_>) -> Result<(), Malformed> {
    match answer {
        Answer::List(items) if items.first() == Some(&Answer::Integer(1)) => Ok(()),
        _ => Err(Malformed),
    }
}

fn authenticate(
    mut stream: &std::net::TcpStream,
    time_out: Duration,
    user: &str,
    password: &str,
) -> io::Result<()> {
    let mut request = Vec::new();
    wire::command(&[b"AUTH", user.as_bytes(), password.as_bytes()], &mut request);
    stream.set_read_timeout(Some(time_out))?;
    stream.write_all(&request)?;
    let mut answer = [0; 5];
    stream.read_exact(&mut answer)?;
    match &answer {
        b"+OK\r\n" => Ok(()),
        _ => Err(io::Error::other("the user or the password is refused")),
    }
}
