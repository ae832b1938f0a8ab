//! Events for browsers: figures as they change, without a question each.
//!
//! Nothing is queued for anybody. A [`board`] holds each activity as it was last shown, with the
//! number of that change; a few times a second it is brought up to date, and each subscriber is
//! sent what has changed since the number that it saw last. Who is slow sees fewer steps, who comes
//! back says the last number, and a million reservations in between are one change.
//!
//! | file | idea |
//! |---|---|
//! | [`board`] | what has changed since when |
//! | [`tickets`] | a way in for browsers, which can't set headers here |
//! | [`places`] | how many subscribers there may be |

mod board;
mod places;
mod tickets;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use engine::{ActivityView, Engine};
use tokio::sync::watch;

pub(crate) use board::Board;
pub(crate) use places::{NoPlace, Place, Places};
pub(crate) use tickets::Tickets;

/// How often the board is brought up to date while somebody looks at it.
const PERIOD: Duration = Duration::from_millis(250);

/// The board, and who may look at it.
pub(crate) struct Events {
    /// A way in.
    pub(crate) tickets: Tickets,
    /// How many are in.
    pub(crate) places: Arc<Places>,
    board: watch::Sender<Arc<Board>>,
    refreshed: Mutex<Option<Instant>>,
}

impl Events {
    /// An empty board.
    ///
    /// # Errors
    /// The operating system has no randomness.
    pub(crate) fn new() -> Result<Self, getrandom::Error> {
        let mut epoch = [0; 4];
        getrandom::fill(&mut epoch)?;
        Ok(Self {
            tickets: Tickets::new()?,
            places: Arc::new(Places::default()),
            board: watch::Sender::new(Arc::new(Board::new(u32::from_le_bytes(epoch)))),
            refreshed: Mutex::new(None),
        })
    }

    /// The board from now on, up to date; `render` makes what is shown of an activity.
    pub(crate) fn subscribe(
        &self,
        engine: &Engine,
        render: fn(&ActivityView, u64) -> String,
    ) -> watch::Receiver<Arc<Board>> {
        let board = self.board.subscribe();
        self.refresh(engine, render);
        board
    }

    /// Keeps the board up to date for as long as somebody looks at it.
    pub(crate) async fn keep(&self, engine: &Engine, render: fn(&ActivityView, u64) -> String) {
        let mut ticks = tokio::time::interval(PERIOD);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if self.board.receiver_count() > 0 {
                self.refresh(engine, render);
            }
        }
    }

    fn refresh(&self, engine: &Engine, render: fn(&ActivityView, u64) -> String) {
        let mut refreshed = self.refreshed.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever comes while others look finds it fresh enough.
        if refreshed.is_some_and(|at| at.elapsed() < PERIOD / 2) {
            return;
        }
        let next = self.board.borrow().next(&engine.activities(), engine.now_ms(), render);
        if let Some(next) = next {
            self.board.send_replace(Arc::new(next));
        }
        *refreshed = Some(Instant::now());
    }
}
