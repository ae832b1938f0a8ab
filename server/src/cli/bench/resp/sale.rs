//! The sale under load, by calls on a connection of its own: made where none was named, and its
//! figures and reservations read before and after.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::super::BenchError;
use super::super::client::ExchangeError;
use super::super::sale::Activity;
use super::wire::{self, Answer};

/// The window of an activity that the generator makes: it began long ago and outlasts any run.
const WINDOW_MS: (u64, u64) = (0, 253_402_300_799_999);

/// Reservations asked for in one go.
const OWNERS_AT_ONCE: usize = 500;

/// A connection for calls that are waited for.
pub(super) struct Console {
    stream: TcpStream,
    authority: String,
    input: Vec<u8>,
}

impl Console {
    /// Connects, and says who it is.
    ///
    /// # Errors
    /// Nobody is there, or they do not know us.
    pub(super) fn connect(
        address: SocketAddr,
        time_out: Duration,
        credentials: Option<(String, String)>,
    ) -> Result<Self, BenchError> {
        let authority = address.to_string();
        let unreachable = |source: std::io::Error| BenchError::Unreachable {
            authority: authority.clone(),
            source: ExchangeError::Connect(source.kind()),
        };
        let stream = TcpStream::connect_timeout(&address, time_out).map_err(unreachable)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(time_out))?;
        let mut console = Self { stream, authority, input: Vec::new() };
        if let Some((user, password)) = credentials {
            console.call(&["AUTH", &user, &password], |answer| {
                (*answer == Answer::Text(b"OK")).then_some(())
            })?;
        }
        Ok(console)
    }

    /// Makes an activity with `stock` units that is on sale at once; its id.
    ///
    /// # Errors
    /// The server refuses.
    pub(super) fn open_sale(
        &mut self,
        run: u32,
        stock: u32,
        limit: u32,
    ) -> Result<u64, BenchError> {
        let id = 1_000_000_000 + u64::from(run);
        let numbers = [id, 20_001, 100, stock.into(), limit.into(), WINDOW_MS.0, WINDOW_MS.1];
        let numbers = numbers.map(|number| number.to_string());
        let mut warm = vec!["FCALL", "sluice_warm", "1"];
        warm.extend(numbers.iter().map(String::as_str));
        let one = |answer: &Answer<'_>| (*answer == Answer::Integer(1)).then_some(());
        self.call(&warm, one)?;
        self.call(&["FCALL", "sluice_publish", "1", &numbers[0]], one)?;
        Ok(id)
    }

    /// The activity's figures.
    ///
    /// # Errors
    /// The server has no such activity.
    pub(super) fn activity(&mut self, id: u64) -> Result<Activity, BenchError> {
        let words = ["FCALL_RO", "sluice_activity", "1", &id.to_string()];
        self.call(&words, |answer| {
            let field = |name| answer.field(name);
            Some(Activity {
                id: field("id")?,
                total: field("total")?,
                available: field("available")?,
                locked: field("locked")?,
                sold: field("sold")?,
                per_user_limit: field("limit")?,
            })
        })
    }

    /// The buyers of reservations, by id; one that is not known is left out.
    ///
    /// # Errors
    /// The connection broke.
    pub(super) fn owners(
        &mut self,
        activity: u64,
        ids: impl Iterator<Item = u64>,
    ) -> Result<BTreeMap<u64, u64>, BenchError> {
        let ids: Vec<u64> = ids.collect();
        let activity = activity.to_string();
        let mut owners = BTreeMap::new();
        for some in ids.chunks(OWNERS_AT_ONCE) {
            let mut request = Vec::new();
            for id in some {
                let words = ["FCALL_RO", "sluice_get", "1", &activity, &id.to_string()];
                wire::command(&words.map(str::as_bytes), &mut request);
            }
            self.stream.write_all(&request)?;
            for id in some {
                let owner = self.answer(|answer| answer.field("user"))?;
                owners.extend(owner.map(|owner| (*id, owner)));
            }
        }
        Ok(owners)
    }

    /// A call that must be answered as `take` expects.
    fn call<T>(
        &mut self,
        words: &[&str],
        take: impl Fn(&Answer<'_>) -> Option<T>,
    ) -> Result<T, BenchError> {
        let mut request = Vec::new();
        let bytes: Vec<_> = words.iter().map(|word| word.as_bytes()).collect();
        wire::command(&bytes, &mut request);
        self.stream.write_all(&request)?;
        let outcome = self.answer(|answer| take(answer).ok_or_else(|| shown(answer)))?;
        // The second word names the call; a password is none.
        let call = words.iter().take(2).filter(|_| words[0] != "AUTH").copied();
        let call = call.collect::<Vec<_>>().join(" ");
        outcome.map_err(|answer| BenchError::Answered { call, answer })
    }

    /// What `take` makes of the next answer.
    fn answer<T>(&mut self, take: impl FnOnce(&Answer<'_>) -> T) -> Result<T, BenchError> {
        let broken = |source| BenchError::Unreachable { authority: self.authority.clone(), source };
        let mut piece = [0; 64 * 1024];
        loop {
            let parsed = wire::parse(&self.input).map_err(|error| broken(error.into()))?;
            if let Some((answer, length)) = parsed {
                let taken = take(&answer);
                self.input.drain(..length);
                return Ok(taken);
            }
            match self.stream.read(&mut piece) {
                Ok(0) => return Err(broken(ExchangeError::Closed)),
                Ok(length) => self.input.extend_from_slice(&piece[..length]),
                Err(error) => return Err(broken(ExchangeError::Io(error.kind()))),
            }
        }
    }
}

fn shown(answer: &Answer<'_>) -> String {
    match answer {
        Answer::Error(text) | Answer::Text(text) => String::from_utf8_lossy(text).into_owned(),
        other => format!("{other:?}"),
    }
}
