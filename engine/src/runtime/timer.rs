//! Time passing: unpaid reservations are given back, activities publish themselves, the clock is
//! steered.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use wal::limits::IN_FLIGHT_BYTES_MAX;
use wal::{AbortOnPanic, Busy, Class, Ticket};

use super::engine::{COMMAND_ROOM, Engine, Inner, RESTORE_ROOM, record};
use super::error::OpenError;
use super::handle::Handle;
use crate::core::command::Command;
use crate::core::decide::{Outcome, decide};
use crate::core::event::Actor;
use crate::core::ids::ActivityId;

/// A reservation is given back within this long of falling due.
const TICK: Duration = Duration::from_millis(100);

/// Reservations given back under one hold of a shard: buyers wait no longer than these take.
const GIVE_BACKS_PER_HOLD: usize = 128;

/// Holds whose give-backs are not yet durable: some 4,000 give-backs, well below what may be in
/// flight. A whole sale that times out at once must leave room for those who buy meanwhile.
const HOLDS_IN_FLIGHT_MAX: usize = 32;
const _: () = assert!(
    ((HOLDS_IN_FLIGHT_MAX + 1) * GIVE_BACKS_PER_HOLD * RESTORE_ROOM) as u64
        <= IN_FLIGHT_BYTES_MAX / 2,
    "those who buy meanwhile have room"
);

/// Ticks between two looks for activities that publish themselves.
const PUBLISH_TICKS: u32 = 5;

/// Ticks between two looks for activities whose life is over: a minute.
const ARCHIVE_TICKS: u32 = 600;

/// The running timer; ended when dropped.
pub(crate) struct Timer {
    stop: Option<Sender<()>>,
    handle: Option<JoinHandle<()>>,
}

impl Timer {
    /// Starts the timer of an engine. It ends by itself when the engine is gone.
    pub(crate) fn start(engine: &Engine) -> Result<Self, OpenError> {
        let (stop, stopped) = mpsc::channel();
        let weak = std::sync::Arc::downgrade(&engine.inner);
        let body = move || {
            // Without time-outs stock would never come back, and nobody would notice.
            let _guard = AbortOnPanic;
            for tick in 0u32.. {
                if stopped.recv_timeout(TICK) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
                let Some(inner) = weak.upgrade() else { return };
                Engine { inner, handle: Handle::default() }.tick(tick);
            }
        };
        let builder = std::thread::Builder::new().name("engine-timer".to_owned());
        let handle = builder.spawn(body).map_err(OpenError::Thread)?;
        Ok(Self { stop: Some(stop), handle: Some(handle) })
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        drop(self.stop.take());
        let Some(handle) = self.handle.take() else { return };
        // The timer itself may hold the engine's last handle, and then drops this.
        if handle.thread().id() != std::thread::current().id() {
            let _ = handle.join();
        }
    }
}

impl Engine {
    /// Does what has fallen due: what the timer's thread does all the time, for simulations that
    /// run without it.
    pub fn pass_time(&self) {
        self.tick(0);
    }

    fn tick(&self, tick: u32) {
        self.inner.clock.steer();
        if self.is_poisoned() {
            return;
        }
        self.publish_controls();
        let serving_since_ms = self.inner.serving_since_ms.load(Ordering::Acquire);
        if serving_since_ms == u64::MAX {
            return;
        }
        // Time-outs wait for an operator after a restore; what opens and what is over does not.
        let held = self.timers_held();
        let mut in_flight = VecDeque::with_capacity(HOLDS_IN_FLIGHT_MAX + 1);
        for index in 0..self.inner.log.format().shard_count {
            if !held {
                self.expire_shard(index, serving_since_ms, &mut in_flight);
            }
            if tick.is_multiple_of(PUBLISH_TICKS) {
                self.publish_due(index);
            }
        }
        if tick.is_multiple_of(ARCHIVE_TICKS) && self.inner.archives.load(Ordering::Acquire) {
            // Where there is no room now, the next look tries again.
            let _ = self.archive_ended();
        }
    }

    /// Time-outs run again: shoppers could not rely on the time they were told, so that, as after a
    /// start, each has some time yet.
    pub(crate) fn timers_released(&self) {
        let (now_ms, serving) = (self.inner.clock.now_ms(), &self.inner.serving_since_ms);
        let later = |since: u64| (since != u64::MAX).then_some(now_ms);
        let _ = serving.fetch_update(Ordering::AcqRel, Ordering::Acquire, later);
    }

    /// Gives everything back that is overdue in a shard, letting others in between. `in_flight` are
    /// the last records of the holds that are not known to be durable.
    fn expire_shard(&self, index: u16, serving_since_ms: u64, in_flight: &mut VecDeque<Ticket>) {
        let now_ms = self.inner.clock.now_ms();
        loop {
            let mut shard = self.lock(index);
            if shard.due_ms_min() > now_ms {
                return;
            }
            let due = shard.next_due(serving_since_ms);
            drop(shard);
            match due {
                Some((due_ms, activity)) if due_ms <= now_ms => {
                    // No room now: the next tick tries again.
                    let held = self.expire_activity(index, activity, serving_since_ms);
                    let Ok(last) = held else { return };
                    in_flight.push_back(last);
                    if in_flight.len() > HOLDS_IN_FLIGHT_MAX
                        && let Some(oldest) = in_flight.pop_front()
                        && self.inner.log.wait_durable(oldest).is_err()
                    {
                        return;
                    }
                    assert!(in_flight.len() <= HOLDS_IN_FLIGHT_MAX, "buyers are left some room");
                }
                _ => return,
            }
        }
    }

    /// Gives back what is overdue in an activity, as much as goes under one hold; the last record
    /// of its shard.
    fn expire_activity(
        &self,
        index: u16,
        activity: ActivityId,
        serving_since_ms: u64,
    ) -> Result<Ticket, Busy> {
        let command = Command::Expire { serving_since_ms };
        let mut shard = self.lock(index);
        let room = RESTORE_ROOM * GIVE_BACKS_PER_HOLD;
        let mut batch = self.inner.log.begin(index, room, Class::Reserved)?;
        let at_ms = self.inner.clock.now_ms();
        for _ in 0..GIVE_BACKS_PER_HOLD {
            let Outcome::Accepted { events } = decide(&shard, activity, &command, at_ms) else {
                break;
            };
            let before = shard.applied_seq();
            record(&mut shard, &mut batch, RESTORE_ROOM, events.iter(), 0);
            assert!(shard.applied_seq() > before, "what is due is given back, or this never ends");
        }
        Ok(Ticket { shard: index, shard_seq: shard.applied_seq() })
    }

    fn publish_due(&self, index: u16) {
        let now_ms = self.inner.clock.now_ms();
        let due: Vec<ActivityId> = {
            let shard = self.lock(index);
            let activities = shard.activities();
            let due =
                activities.filter(|(_, it)| it.publish_due_ms().is_some_and(|at| at <= now_ms));
            due.map(|(id, _)| id).collect()
        };
        for id in due {
            // Where there is no room now, the next look tries again; nobody waits for it.
            let _ = self.publish_scheduled(index, id, now_ms);
        }
    }

    /// Publishes `id`, if it still wants to be: an operator may have been here since the look.
    fn publish_scheduled(&self, index: u16, id: ActivityId, now_ms: u64) -> Result<(), Busy> {
        let actor = Actor { name: "schedule", request_id: "publish_at" };
        let turn = self.sale_turn();
        if self.is_sku_taken(&turn, id, None) {
            // Until the other one has ended or an operator has decided.
            return Ok(());
        }
        let mut shard = self.lock(index);
        let due = shard.activity(id).and_then(|activity| activity.publish_due_ms());
        if due.is_none_or(|at| at > now_ms) {
            return Ok(());
        }
        let mut batch = self.inner.log.begin(index, COMMAND_ROOM, Class::Reserved)?;
        let command = Command::Publish { actor };
        let at_ms = self.inner.clock.now_ms();
        if let Outcome::Accepted { events } = decide(&shard, id, &command, at_ms) {
            record(&mut shard, &mut batch, COMMAND_ROOM, events.iter(), 0);
        }
        Ok(())
    }
}

impl Inner {
    /// Ends what runs by itself.
    pub(crate) fn stop(&self) {
        drop(self.housekeeper.lock().take());
        drop(self.timer.lock().take());
        drop(self.threads.lock().take());
        drop(self.supplies.lock().take());
        drop(self.provider.lock().take());
    }
}

impl Drop for Inner {
    /// Answers that are still waited for would wait for ever: nobody commits any more.
    fn drop(&mut self) {
        self.stop();
        self.log.abandon();
    }
}
