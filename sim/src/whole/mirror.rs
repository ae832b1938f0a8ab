//! The mirror's sessions with Redis, and what befalls Redis between them.

use bridge::redis::layouts::Layout;
use bridge::redis::sink::{Bounds, Mirror, Step};
use bridge::redis::{Confirmed, MirrorError, Present as _};
use engine::TimeSource as _;
use wal::{Lsn, ReadError};

use super::host::SimHost;
use super::keys::{self, Mark};
use super::planted::{self, Bug};
use super::redis::{SimRedis, SimServers};
use super::shop::{Shop, Stop, ready};

/// What befalls a Redis.
#[derive(Clone, Copy)]
pub(super) enum Blow {
    /// It goes away or comes back.
    Down,
    /// It is killed and starts again.
    Crash,
    /// Another one takes over that was behind.
    FailOver,
    /// FLUSHALL.
    Flush,
    /// FUNCTION FLUSH.
    FlushFunctions,
    /// A key is evicted or changed.
    Disturb,
}

/// Sessions of a run, for the report.
#[derive(Default)]
pub(super) struct Sessions {
    /// Those that ended with an error.
    pub(super) failed: u64,
    /// Times the keys were written anew.
    pub(super) resyncs: u64,
    /// Keys that were found wrong and written right.
    pub(super) repairs: u64,
    /// Up to here the log may be given back for the mirror's part.
    released: Lsn,
}

/// A session as the simulation drives it.
type Session<'h> = Mirror<'h, SimHost, SimServers>;

impl Shop {
    /// Lets the mirror follow for `steps` batches, with `between` before each.
    pub(super) fn mirror(
        &mut self,
        steps: u64,
        mut between: impl FnMut(&mut Self) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        let host = self.host()?;
        let run = self.crashes;
        let life = self.redis.life();
        let Some(mut session) = self.meet_redis(&host)? else { return Ok(()) };
        let mut folded_us = host.wall_us();
        for _ in 0..steps {
            between(self)?;
            if self.crashes != run || !self.is_open() {
                return Ok(());
            }
            let stepped = self.mirror_step(&host, &mut session);
            // A Redis that changed hands says what it is told by the next session.
            let is_followed = stepped.is_ok() && self.redis.life() == life;
            self.check_mirror(if is_followed { folded_us } else { 0 })?;
            folded_us = host.wall_us();
            if let Err(error) = stepped {
                return self.end_session(&error);
            }
        }
        self.sessions.resyncs += session.resyncs();
        self.sessions.repairs += session.take_repairs().len() as u64;
        Ok(())
    }

    fn meet_redis<'h>(&mut self, host: &'h SimHost) -> Result<Option<Session<'h>>, Stop> {
        let bounds = Bounds {
            call_records_max: 1 + self.random.index(12),
            step_records_max: 1 + self.random.index(40),
        };
        let met = self
            .redis
            .connect()
            .and_then(|servers| ready(Mirror::meet_on(host, servers, self.layout, bounds)));
        self.check_mirror(0)?;
        match met {
            Ok(session) => Ok(Some(session)),
            Err(error) => self.end_session(&error).map(|()| None),
        }
    }

    /// A step, and what a session does now and then.
    fn mirror_step(
        &mut self,
        host: &SimHost,
        session: &mut Session<'_>,
    ) -> Result<Step, MirrorError> {
        let step = ready(session.step())?;
        if planted::is(Bug::ConfirmedUnsynced) {
            self.release(host, session.applied());
        }
        if self.random.below(3) == 0 {
            ready(session.scrub())?;
        }
        // What is quiet must not pin the log.
        if self.layout == Layout::Cluster && self.random.below(4) == 0 {
            ready(session.advance())?;
        }
        if self.random.below(4) == 0
            && let Confirmed::Upto(lsn) = ready(session.confirm())?
        {
            self.release(host, lsn);
        }
        Ok(step)
    }

    fn release(&mut self, host: &SimHost, lsn: Lsn) {
        self.sessions.released = lsn;
        host.mirror_confirmed(lsn);
    }

    fn end_session(&mut self, error: &MirrorError) -> Result<(), Stop> {
        self.sessions.failed += 1;
        match error.is_transient() {
            true => Ok(()),
            false => Err(Stop::Wrong(format!("O7: the mirror can't go on: {error}"))),
        }
    }

    /// Compares what is in Redis with the log, where the cursor is.
    fn check_mirror(&mut self, folded_us: u64) -> Result<(), Stop> {
        let reader = self.engine()?.reader();
        self.ledger.read(reader).map_err(Stop::Wrong)?;
        let history = &mut self.ledger.keys;
        for (number, redis) in self.redis.each() {
            let holds = |lane| self.redis.holds(number, lane);
            let look = |keys: &_, now_ms| history.check(keys, holds, (now_ms, folded_us), false);
            redis.look(look).map_err(Stop::Wrong)?;
        }
        Ok(())
    }

    /// Something befalls Redis.
    pub(super) fn strike(&mut self, blow: Blow) -> Result<(), Stop> {
        let redis = self.redis.any(&mut self.random);
        match blow {
            Blow::Down => {
                let is_down = self.random.below(2) == 0;
                redis.set_down(is_down);
            }
            Blow::Crash => {
                redis.crash();
                if redis.keeps_file() {
                    return self.check_released(&redis);
                }
                self.sessions.released = Lsn(0);
            }
            Blow::FailOver => {
                redis.fail_over();
                self.sessions.released = Lsn(0);
            }
            Blow::Flush => {
                redis.flush();
                self.sessions.released = Lsn(0);
            }
            Blow::FlushFunctions => redis.flush_functions(),
            Blow::Disturb => {
                if redis.disturb(self.layout).is_some_and(|key| key == keys::CURSOR) {
                    self.sessions.released = Lsn(0);
                }
            }
        }
        Ok(())
    }

    /// What a crash leaves on the disk must be followed by what the log still has. On a cluster
    /// the cursor of a quiet activity may be passed by: its keys are written anew then.
    fn check_released(&mut self, redis: &SimRedis) -> Result<(), Stop> {
        if self.layout == Layout::Cluster {
            return Ok(());
        }
        let mark = redis.look(|keys, now_ms| keys::mark(keys, keys::CURSOR, now_ms));
        let released = self.sessions.released;
        let Some(Mark::At { frame_end, reached }) = mark else { return Ok(()) };
        if released == Lsn(0) {
            return Ok(());
        }
        if reached < released {
            let what = format!("O7: {released} was confirmed, a crash left {reached}");
            return Err(Stop::Wrong(what));
        }
        match self.engine()?.reader().seek(frame_end) {
            Err(ReadError::Retired { .. }) => {
                Err(Stop::Wrong(format!("O7: the log behind {frame_end} is given back")))
            }
            _ => Ok(()),
        }
    }

    /// Nothing fails any more: Redis must heal, and be what the engine's state asks for.
    ///
    /// # Errors
    /// What does not heal.
    pub(super) fn heal_redis(&mut self) -> Result<(), Stop> {
        self.redis.set_rates(super::redis::Rates::default());
        self.redis.bring_up();
        let host = self.host()?;
        let Some(mut session) = self.meet_redis(&host)? else {
            return Err(Stop::Wrong("O11: the mirror does not meet Redis".to_owned()));
        };
        let mut folded_us = host.wall_us();
        for _ in 0..HEALING_STEPS_MAX {
            let step = ready(session.step()).and_then(|step| {
                ready(session.scrub())?;
                Ok(step)
            });
            let step = step.map_err(|error| Stop::Wrong(format!("O11: {error}")))?;
            self.check_mirror(folded_us)?;
            folded_us = self.time.wall_ms() * 1_000;
            if step == Step::CaughtUp && session.scrub_rounds() >= 2 {
                let advanced = ready(session.advance());
                advanced.map_err(|error| Stop::Wrong(format!("O11: {error}")))?;
                self.sessions.resyncs += session.resyncs();
                self.sessions.repairs += session.take_repairs().len() as u64;
                let durable = host.0.durable_lsn();
                let history = &mut self.ledger.keys;
                for (number, redis) in self.redis.each() {
                    let holds = |lane| self.redis.holds(number, lane);
                    let look = |keys: &_, now_ms| history.check_end(keys, holds, now_ms, durable);
                    redis.look(look).map_err(Stop::Wrong)?;
                }
                return Ok(());
            }
        }
        Err(Stop::Wrong("O11: Redis does not heal".to_owned()))
    }
}

/// O11: a step takes a batch and a piece of the state; what is small heals within this many.
const HEALING_STEPS_MAX: u64 = 2_000;
