//! Run-time controls: set by operators, durable before they are answered, heeded from then on.
//!
//! Whoever heeds controls (the gate of a server, the timer, [`Engine::reserve`]) must see neither
//! what a crash could take back nor less than what was answered. So beside the live state, which
//! is ahead of the disk, stands a published copy: a change waits in a queue until its record is
//! durable, and whoever waits for the answer publishes what has become so. The timer does too, for
//! answers that nobody waited for.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use wal::{AbortOnPanic, Busy, CONTROL_SHARD, Class, LogUnavailable, Ticket};

use super::directory::Directory;
use super::engine::{COMMAND_ROOM, Engine};
use super::pending::Pending;
use crate::core::codec;
use crate::core::command::Refusal;
use crate::core::control::{Control, ControlTable, Setting, keys};
use crate::core::decide::{SetControl, clear_control, set_control};
use crate::core::event::{Actor, Body, Event};
use crate::core::ids::Ordinal;

type Listener = Box<dyn Fn() + Send + Sync>;

/// The controls, as far as they are durable.
pub(crate) struct Controls {
    published: RwLock<ControlTable>,
    /// In order of the log. Bounded by what may be in flight.
    waiting: Mutex<VecDeque<Change>>,
    generation: AtomicU64,
    stopped: AtomicBool,
    timers_held: AtomicBool,
    listeners: RwLock<Vec<Listener>>,
}

struct Change {
    shard_seq: u64,
    key: Arc<str>,
    setting: Option<Setting>,
}

impl Controls {
    /// The controls that the log holds at `now_ms`.
    pub(crate) fn new(control: &Control, now_ms: u64) -> Self {
        let mut table = control.table().clone();
        table.drop_expired(now_ms);
        let controls = Self {
            published: RwLock::new(ControlTable::default()),
            waiting: Mutex::new(VecDeque::new()),
            generation: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
            timers_held: AtomicBool::new(false),
            listeners: RwLock::new(Vec::new()),
        };
        controls.note_switches(&table);
        *controls.published.write() = table;
        controls
    }

    fn note_switches(&self, table: &ControlTable) {
        self.stopped.store(table.get(keys::STOP).is_some(), Ordering::Release);
        self.timers_held.store(table.get(keys::TIMERS_HELD).is_some(), Ordering::Release);
    }

    /// Shows what is durable up to `durable_seq`, and no longer what has expired.
    pub(crate) fn publish(&self, durable_seq: u64, now_ms: u64) {
        let mut waiting = self.waiting.lock();
        let mut table = self.published.write();
        let mut changes = table.drop_expired(now_ms);
        while waiting.front().is_some_and(|change| change.shard_seq <= durable_seq) {
            let Some(Change { key, setting, .. }) = waiting.pop_front() else { break };
            match setting {
                Some(Setting { value, expires_ms }) => table.set(&key, &value, expires_ms),
                None => table.clear(&key),
            }
            changes += 1;
        }
        if changes == 0 {
            return;
        }
        self.note_switches(&table);
        self.generation.fetch_add(1, Ordering::AcqRel);
        drop((table, waiting));
        for listener in self.listeners.read().iter() {
            listener();
        }
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    pub(crate) fn timers_held(&self) -> bool {
        self.timers_held.load(Ordering::Acquire)
    }
}

/// What a change of a control came to, once durable and heeded.
#[must_use = "a change is not heeded before it is waited for"]
pub struct PendingControl {
    engine: Engine,
    pending: Pending<Result<bool, Refusal>>,
}

impl PendingControl {
    /// Whether it changed anything, or why it could not, once durable.
    ///
    /// # Errors
    /// [`LogUnavailable`] where the log failed first: the outcome is unknown.
    pub async fn durable(self) -> Result<Result<bool, Refusal>, LogUnavailable> {
        let told = self.pending.durable().await?;
        self.engine.publish_controls();
        Ok(told)
    }

    /// As [`PendingControl::durable`]; blocks this thread until then.
    ///
    /// # Errors
    /// As [`PendingControl::durable`].
    pub fn wait(self) -> Result<Result<bool, Refusal>, LogUnavailable> {
        let told = self.pending.wait()?;
        self.engine.publish_controls();
        Ok(told)
    }
}

impl Engine {
    /// Sets a control, until `expires_ms` (Unix milliseconds) where that is not 0. The answer is
    /// whether that changed anything. See [`keys`] for what there is.
    ///
    /// # Errors
    /// [`Busy`]: nothing was decided.
    pub fn control_set(
        &self,
        actor: Actor<'_>,
        key: &str,
        value: &[u8],
        expires_ms: u64,
    ) -> Result<PendingControl, Busy> {
        let set = SetControl { actor, key, value, expires_ms };
        // Held over the decision: what raises a floor must stand before the next is given.
        let mut directory = self.inner.directory.write();
        let pending = self.change_control(key, |table, at_ms| set_control(table, &set, at_ms))?;
        note_floor(&mut directory, key);
        Ok(pending)
    }

    /// Clears a control. The answer is whether it was set.
    ///
    /// # Errors
    /// [`Busy`]: nothing was decided.
    pub fn control_clear(&self, actor: Actor<'_>, key: &str) -> Result<PendingControl, Busy> {
        let pending = self.change_control(key, |table, _| clear_control(table, actor, key))?;
        Ok(pending)
    }

    fn change_control<'a>(
        &self,
        key: &str,
        decide: impl FnOnce(&ControlTable, u64) -> Result<Option<Body<'a>>, Refusal>,
    ) -> Result<PendingControl, Busy> {
        let mut control = self.inner.control.lock();
        let at_ms = self.inner.clock.now_ms();
        let told = match decide(control.table(), at_ms) {
            Err(refusal) => Err(refusal),
            Ok(None) => Ok(false),
            Ok(Some(body)) => {
                let shard_seq = self.record_control(&mut control, &Event { at_ms, body })?;
                let key: Arc<str> = key.into();
                let setting = control.table().get(&key).cloned();
                let change = Change { shard_seq, key, setting };
                let mut waiting = self.inner.controls.waiting.lock();
                let last = waiting.back().map_or(0, |before| before.shard_seq);
                assert!(last < shard_seq, "controls are published in the order of the log");
                waiting.push_back(change);
                Ok(true)
            }
        };
        if self.is_poisoned() {
            return Err(Busy::LogUnavailable);
        }
        let ticket = Ticket { shard: CONTROL_SHARD, shard_seq: control.applied_seq() };
        let pending = Pending::new(told, &self.inner.log, ticket);
        Ok(PendingControl { engine: self.clone(), pending })
    }

    /// Applies an event of the control shard and appends it, in one piece; its sequence.
    pub(crate) fn record_control(
        &self,
        control: &mut Control,
        event: &Event<'_>,
    ) -> Result<u64, Busy> {
        let mut batch = self.inner.log.begin(CONTROL_SHARD, COMMAND_ROOM, Class::Reserved)?;
        let _guard = AbortOnPanic;
        batch.command(COMMAND_ROOM);
        let kind = (codec::kind(&event.body), codec::FORMAT_VERSION);
        let seq = batch.append(kind, |out| codec::encode(event, out));
        let applied = control.apply(event, seq);
        assert_eq!(applied, Ok(()), "what was decided under this lock must apply under it");
        Ok(seq)
    }

    /// Lets what has become durable be heeded.
    pub(crate) fn publish_controls(&self) {
        let held = self.inner.controls.timers_held();
        let durable_seq = self.inner.log.durable_seq(CONTROL_SHARD);
        self.inner.controls.publish(durable_seq, self.inner.clock.now_ms());
        if held && !self.inner.controls.timers_held() {
            self.timers_released();
        }
    }

    /// The value and end of a control, as far as it is durable.
    pub fn control(&self, key: &str) -> Option<Setting> {
        let now_ms = self.inner.clock.now_ms();
        let table = self.inner.controls.published.read();
        table.get(key).filter(|setting| setting.holds(now_ms)).cloned()
    }

    /// The controls whose keys begin with `prefix`, by key: all of them for the empty one. Costs a
    /// copy: ask again where [`Engine::controls_generation`] has moved.
    pub fn controls(&self, prefix: &str) -> Vec<(Arc<str>, Setting)> {
        let now_ms = self.inner.clock.now_ms();
        let table = self.inner.controls.published.read();
        let holding = table.under(prefix).filter(|(_, setting)| setting.holds(now_ms));
        holding.map(|(key, setting)| (Arc::clone(key), setting.clone())).collect()
    }

    /// A number that moves whenever a control changes: one load.
    pub fn controls_generation(&self) -> u64 {
        self.inner.controls.generation.load(Ordering::Acquire)
    }

    /// Calls `listener` after controls have changed. It must not block.
    pub fn on_controls(&self, listener: Box<dyn Fn() + Send + Sync>) {
        self.inner.controls.listeners.write().push(listener);
    }

    /// Whether the global kill switch is thrown: new purchases are refused as paused.
    pub fn is_stopped(&self) -> bool {
        self.inner.controls.is_stopped()
    }

    /// Whether time-outs, schedules and archives wait for an operator.
    pub fn timers_held(&self) -> bool {
        self.inner.controls.timers_held()
    }
}

/// Heeds a control that says which numbers are used elsewhere.
pub(crate) fn note_floor(directory: &mut Directory, key: &str) {
    let ordinal = keys::number(key, keys::ORDINALS_PREFIX);
    if let Some(ordinal) = ordinal.and_then(|it| Ordinal::new(u32::try_from(it).ok()?)) {
        directory.raise_ordinals(ordinal);
    }
    if let Some(id) = keys::number(key, keys::ACTIVITIES_PREFIX) {
        directory.raise_ids(id);
    }
    let adopted = keys::number(key, keys::ADOPTED_PREFIX);
    if let Some(id) = adopted.and_then(|it| u32::try_from(it).ok()) {
        directory.lower_adopted(id);
    }
}
