//! The server as one process on a simulated disk: its engine, its bridge, and what it told.
//!
//! Nothing runs by itself. Time passes when it is told to, a commit is made when it is asked for,
//! and a crash can come before any operation of the disk. What a client was told is kept apart
//! from what the log says: the one must follow from the other.

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use bridge::redis::layouts::Layout;
use bridge::sql::sink::SINK_NAME;
use engine::core::ids::{ActivityId, ReservationId};
use engine::{Busy, Engine, EngineOptions, Pending, PublicStatus, Purchase, Refused, TimeSource};
use wal::device::sim::{Fate, Image, SimDevice};
use wal::{LogUnavailable, SinkClass};

use super::host::{SimHost, SimTime};
use super::ledger::{Ledger, Request};
use super::mirror::Sessions;
use super::planted::{self, Bug};
use super::redis::Masters;
use super::sql::SimSql;
use super::told::Told;
use crate::fates::Random;

/// Small, so that a run fills several and gives some back.
const SEGMENT_BYTES: u64 = 128 * 1024;

/// Layouts, each as often.
const LAYOUTS: [Layout; 4] =
    [Layout::Flashsale, Layout::Cluster, Layout::FlashSale, Layout::Seckill];

/// A purchase whose answer is not told yet.
pub(super) struct Asked {
    /// What was asked.
    pub(super) request: Request,
    /// Units wanted.
    pub(super) quantity: u32,
    /// The answer.
    pub(super) answer: Pending<Result<Purchase, Refused>>,
}

/// What ends a run.
#[derive(Debug)]
pub(super) enum Stop {
    /// The log failed: the process ends, another one starts.
    LogFailed,
    /// A promise is broken.
    Wrong(String),
}

impl From<LogUnavailable> for Stop {
    fn from(_: LogUnavailable) -> Self {
        Self::LogFailed
    }
}

/// The process, its disk, its database and its Redis.
pub(super) struct Shop {
    device: SimDevice,
    engine: Option<Engine>,
    /// The machine's clock.
    pub(super) time: Arc<SimTime>,
    /// The database.
    pub(super) sql: SimSql,
    /// The servers that Redis is.
    pub(super) redis: Masters,
    /// Which keys are there.
    pub(super) layout: Layout,
    /// The mirror's sessions with it.
    pub(super) sessions: Sessions,
    /// What the log says.
    pub(super) ledger: Ledger,
    /// What was said.
    pub(super) told: Told,
    asked: Vec<Asked>,
    /// Where every choice comes from.
    pub(super) random: Random,
    /// Crashes, for the report.
    pub(super) crashes: u64,
    /// Commits of the database that its machine took back, for the report.
    pub(super) commits_undone: u64,
    /// Meetings with the database that failed, for the report.
    pub(super) failures: u64,
    /// Segments of the log that were given back, for the report.
    pub(super) segments_retired: u64,
    /// Portions of a snapshot that a database was filled with, for the report.
    pub(super) portions_filled: u64,
}

impl Shop {
    /// A shop that has not opened yet.
    pub(super) fn new(seed: u64, start_ms: u64) -> Self {
        let time = Arc::new(SimTime::new(start_ms));
        let layout = LAYOUTS[Random(seed ^ 0x1A).index(LAYOUTS.len())];
        Self {
            device: SimDevice::new(Image::empty(seed)),
            engine: None,
            redis: Masters::of(layout, seed ^ 0x4ED15, &time),
            sessions: Sessions::default(),
            time,
            sql: SimSql::new(seed ^ 0x51),
            layout,
            ledger: Ledger::of(layout),
            told: Told::default(),
            asked: Vec::new(),
            random: Random(seed),
            crashes: 0,
            commits_undone: 0,
            failures: 0,
            segments_retired: 0,
            portions_filled: 0,
        }
    }

    /// The engine, opened where it is not.
    ///
    /// # Errors
    /// Where what was durable is not what it finds.
    pub(super) fn engine(&mut self) -> Result<Engine, Stop> {
        if let Some(engine) = &self.engine {
            return Ok(engine.clone());
        }
        let options = EngineOptions {
            shard_count: 4,
            segment_bytes: SEGMENT_BYTES,
            frame_bytes_max: 48 * 1024,
            in_flight_bytes_max: 256 * 1024,
            threads: false,
            on_fatal: Box::new(|_| {}),
            sinks: vec![(SINK_NAME.to_owned(), SinkClass::MustDeliver)],
            time: Some(Arc::clone(&self.time) as Arc<dyn TimeSource>),
            ..EngineOptions::new("sim")
        };
        self.device.clock_reaches_us(self.time.wall_ms() * 1_000);
        let (engine, _) = Engine::open_on(Arc::new(self.device.clone()), options)
            .map_err(|error| Stop::Wrong(format!("the engine does not open: {error}")))?;
        self.ledger.read(engine.reader()).map_err(Stop::Wrong)?;
        engine.serving();
        self.engine = Some(engine.clone());
        Ok(engine)
    }

    /// The engine, as its sinks see it.
    ///
    /// # Errors
    /// As [`Shop::engine`].
    pub(super) fn host(&mut self) -> Result<SimHost, Stop> {
        Ok(SimHost(self.engine()?, Arc::clone(&self.time)))
    }

    /// Whether the process runs.
    pub(super) const fn is_open(&self) -> bool {
        self.engine.is_some()
    }

    /// Lets time pass, and the engine do what has fallen due.
    ///
    /// # Errors
    /// As [`Shop::engine`].
    pub(super) fn pass(&mut self, ms: u64) -> Result<(), Stop> {
        self.time.advance_ms(ms);
        self.device.clock_reaches_us(self.time.wall_ms() * 1_000);
        self.engine()?.pass_time();
        Ok(())
    }

    /// Makes a snapshot and gives back what of the log nobody needs.
    ///
    /// # Errors
    /// Where the disk of this simulation refuses.
    pub(super) fn snapshot(&mut self) -> Result<(), Stop> {
        let made = self.engine()?.snapshot();
        let made = made.map_err(|error| Stop::Wrong(format!("no snapshot is made: {error}")))?;
        self.segments_retired += made.map_or(0, |made| made.segments_retired);
        Ok(())
    }

    /// Asks for a purchase; what it comes to is told at once where all that it rests on is durable,
    /// else with the next commit.
    pub(super) fn ask(&mut self, request: Request, quantity: u32) -> Result<(), Stop> {
        let engine = self.engine()?;
        let (user, activity, id) = &request;
        let renamed = planted::is(Bug::RetryUnderNewId)
            && self.told.in_doubt.iter().any(|(doubt, _)| *doubt == request);
        let id = if renamed { format!("{id}'") } else { id.clone() };
        let front = engine::core::event::Front::Http;
        let answer = match engine.reserve(*activity, *user, &id, quantity, front) {
            Ok(answer) => answer,
            Err(Busy::Overloaded) => return Ok(()),
            Err(Busy::LogUnavailable) => return Err(Stop::LogFailed),
        };
        match answer.try_durable() {
            Err(answer) => self.asked.push(Asked { request, quantity, answer }),
            Ok(known) => {
                self.ledger.read(engine.reader()).map_err(Stop::Wrong)?;
                self.tell_known()?;
                // What is decided on the ground of it can't be known before it is.
                if let Some(first) = self.asked.iter().find(|it| it.request.1 == request.1) {
                    let (first, then) = (&first.request, &request);
                    return Err(Stop::Wrong(format!("W1: {then:?} is told before {first:?}")));
                }
                self.told.take(&self.ledger, request, quantity, known?).map_err(Stop::Wrong)?;
            }
        }
        Ok(())
    }

    /// Tells what has become durable by others' commits.
    fn tell_known(&mut self) -> Result<(), Stop> {
        for Asked { request, quantity, answer } in std::mem::take(&mut self.asked) {
            match answer.try_durable() {
                Err(answer) => self.asked.push(Asked { request, quantity, answer }),
                Ok(known) => {
                    self.told.take(&self.ledger, request, quantity, known?).map_err(Stop::Wrong)?;
                }
            }
        }
        Ok(())
    }

    /// Makes what was decided durable and tells it; where the power is cut meanwhile, nothing is
    /// told.
    pub(super) fn commit(&mut self, crash_rate: u64) -> Result<(), Stop> {
        let engine = self.engine()?;
        let cut = self.random.below(1_000) < crash_rate;
        let before = if cut { self.random.below(4) } else { u64::MAX };
        let caught: Arc<Mutex<Option<Image>>> = Arc::default();
        if cut {
            let (caught, mut seen) = (Arc::clone(&caught), 0);
            self.device.observe(Some(Box::new(move |_, image| {
                if seen == before {
                    *caught.lock().unwrap_or_else(PoisonError::into_inner) = Some(image.clone());
                }
                seen += 1;
            })));
        }
        let committed = engine.commit();
        self.device.observe(None);
        let caught = caught.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(image) = caught {
            self.crash(&image);
            return Ok(());
        }
        committed?;
        self.ledger.read(engine.reader()).map_err(Stop::Wrong)?;
        for Asked { request, quantity, answer } in std::mem::take(&mut self.asked) {
            let answer = answer.wait()?;
            self.told.take(&self.ledger, request, quantity, answer).map_err(Stop::Wrong)?;
        }
        engine.make_spare()?;
        Ok(())
    }

    /// The power is cut while the disk is `image`.
    fn crash(&mut self, image: &Image) {
        self.crashes += 1;
        self.engine = None;
        let doubts = std::mem::take(&mut self.asked).into_iter();
        self.told.in_doubt.extend(doubts.map(|asked| (asked.request, asked.quantity)));
        let random = &mut self.random;
        // A database may have a machine of its own.
        let fate = random.below(8);
        if fate > 0 && random.below(2) == 0 {
            self.commits_undone += self.sql.power_cut();
        }
        // As a disk does it: mostly all or nothing, sometimes anything.
        let image = match fate {
            0 => image.killed(),
            1 | 2 => image.power_cut(|_| Fate::Old, |_| false),
            3 | 4 => image.power_cut(|_| Fate::New, |_| true),
            _ => {
                let mut names = *random;
                let fate = |_| match random.below(5) {
                    0 => Fate::Garbage,
                    1 | 2 => Fate::Old,
                    _ => Fate::New,
                };
                image.power_cut(fate, |_| names.below(2) == 0)
            }
        };
        random.draw();
        self.device = SimDevice::new(image);
    }

    /// The power is cut now, or the process is killed.
    pub(super) fn cut(&mut self) {
        let image = self.device.image();
        self.crash(&image);
    }

    /// Ends the process as an operator does, and drops what was asked of it.
    pub(super) fn close(&mut self) -> Result<(), Stop> {
        let engine = self.engine()?;
        self.commit(0)?;
        engine.close().map_err(|_| Stop::LogFailed)?;
        self.engine = None;
        Ok(())
    }

    /// Looks at a reservation as its buyer does.
    pub(super) fn look(&mut self, id: ReservationId) -> Result<(), Stop> {
        let engine = self.engine()?;
        let Ok(pending) = engine.reservation(id) else { return Err(Stop::LogFailed) };
        self.commit(0)?;
        let view = pending.wait()?;
        let Some(view) = view else {
            return Err(Stop::Wrong(format!("O2: {id} is unknown to its buyer")));
        };
        match view.status {
            PublicStatus::Ordered => {
                if self.sql.never_failed_over() && !self.sql.holds(id) {
                    return Err(Stop::Wrong(format!("O7: {id} is ordered, and SQL has no row")));
                }
                self.told.ordered.push(id);
            }
            PublicStatus::PendingOrder if self.told.ordered.contains(&id) => {
                let dead = self.ledger.reservations.get(&id).is_some_and(|it| it.is_dead_letter);
                if !dead {
                    return Err(Stop::Wrong(format!("{id} was ordered and is pending again")));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The activities that exist.
    pub(super) fn activities(&self) -> Vec<ActivityId> {
        self.ledger.activities.keys().copied().collect()
    }

    /// The engine's digest, and that of the same log opened anew.
    pub(super) fn digests(&mut self) -> Result<(u128, u128), Stop> {
        self.commit(0)?;
        let live = self.engine()?.digest();
        self.engine = None;
        let image = self.device.image().killed();
        self.device = SimDevice::new(image);
        Ok((live, self.engine()?.digest()))
    }
}

/// Turns that a future may leave to others.
const TURNS_MAX: usize = 16;

/// What a future gives that never waits, though it may let others have their turn.
pub(super) fn ready<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    for _ in 0..TURNS_MAX {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return output;
        }
    }
    panic!("nothing in the simulation waits")
}
