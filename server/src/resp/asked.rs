//! What SQL is asked for a connection, and the way back to its loop.
//!
//! Answers leave a connection in the order of its requests. So from the first [`Question`] on, the
//! answers of its turn are kept in pieces, and it is not read from; a task beside the loops asks
//! one question after the other, and hands the whole rest back as bytes. The loop is woken, sends
//! them, and reads on.

use std::sync::{Arc, Mutex, PoisonError};

use mio::Waker;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use super::archived::{Question, Told};
use super::reply::{Protocol, Reply};
use crate::app::Shared;

/// Connections for which SQL is asked at once, of all loops. Those beyond are told at once that it
/// does not answer: a flood of calls about what is over must not pile up here.
const ASKING_MAX: usize = 256;

/// A piece of a connection's answers.
pub(super) enum Piece {
    /// Known already.
    Bytes(Vec<u8>),
    /// Not yet.
    Question(Question, Protocol),
}

/// Answers of a connection from its first question on.
#[derive(Default)]
pub(super) struct Asked(Vec<Piece>);

impl Asked {
    /// Keeps a question in its place.
    pub(super) fn question(&mut self, question: Question, protocol: Protocol) {
        self.0.push(Piece::Question(question, protocol));
    }

    /// Where the answers behind it go.
    pub(super) fn rest(&mut self) -> &mut Vec<u8> {
        if !matches!(self.0.last(), Some(Piece::Bytes(_))) {
            self.0.push(Piece::Bytes(Vec::new()));
        }
        match self.0.last_mut() {
            Some(Piece::Bytes(bytes)) => bytes,
            _ => unreachable!("it was just pushed"),
        }
    }

    /// Bytes kept.
    pub(super) fn bytes(&self) -> usize {
        let of_piece = |piece: &Piece| match piece {
            Piece::Bytes(bytes) => bytes.len(),
            Piece::Question(..) => size_of::<Question>(),
        };
        self.0.iter().map(of_piece).sum()
    }
}

/// Answers on their way back: the connection's place and number, and the bytes.
type Answered = (usize, u64, Vec<u8>);

/// The way back to a loop.
#[derive(Clone)]
pub(super) struct Inbox {
    waker: Arc<Waker>,
    answered: Arc<Mutex<Vec<Answered>>>,
}

impl Inbox {
    /// One that wakes its loop by `waker`.
    pub(super) fn new(waker: Arc<Waker>) -> Self {
        Self { waker, answered: Arc::default() }
    }

    /// What has come back.
    pub(super) fn take(&self) -> Vec<Answered> {
        std::mem::take(&mut *self.answered.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn put(&self, answered: Answered) {
        self.answered.lock().unwrap_or_else(PoisonError::into_inner).push(answered);
        if let Err(error) = self.waker.wake() {
            tracing::warn!("a loop of the Redis port hears of an answer later: {error}");
        }
    }
}

/// Asks SQL beside the loops.
pub(super) struct Asker {
    shared: Arc<Shared>,
    runtime: Handle,
    places: Arc<Semaphore>,
}

impl Asker {
    /// One whose tasks run on `runtime`.
    pub(super) fn new(shared: &Arc<Shared>, runtime: Handle) -> Self {
        let places = Arc::new(Semaphore::new(ASKING_MAX));
        Self { shared: Arc::clone(shared), runtime, places }
    }

    /// Has the questions of `asked` answered; `inbox` is told, with the connection's place and
    /// number.
    pub(super) fn ask(&self, asked: Asked, (index, id): (usize, u64), inbox: &Inbox) {
        let (shared, inbox) = (Arc::clone(&self.shared), inbox.clone());
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            let mut out = Vec::new();
            for piece in asked.0 {
                match piece {
                    Piece::Bytes(bytes) => out.extend(bytes),
                    Piece::Question(_, protocol) => write(&Told::Nothing, protocol, &mut out),
                }
            }
            return inbox.put((index, id, out));
        };
        self.runtime.spawn(async move {
            let _place = place;
            let mut out = Vec::new();
            for piece in asked.0 {
                match piece {
                    Piece::Bytes(bytes) => out.extend(bytes),
                    Piece::Question(question, protocol) => {
                        let told = match shared.app() {
                            Ok(app) => question.ask(app).await,
                            Err(_) => Told::Nothing,
                        };
                        told.outcome().into_iter().for_each(|kind| shared.metrics.purchase(kind));
                        write(&told, protocol, &mut out);
                    }
                }
            }
            inbox.put((index, id, out));
        });
    }
}

fn write(told: &Told, protocol: Protocol, out: &mut Vec<u8>) {
    told.write(&mut Reply { out, protocol });
}
