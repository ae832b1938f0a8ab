//! Adoption events of all that SQL knows.
//!
//! First come the reservations whose units went back on sale with a refund, while all units are
//! free; then the others. In both, those come last that are a dead letter alone. So every unit is
//! there when its reservation comes, in whatever order they once came.

use std::collections::{BTreeMap, BTreeSet};

use engine::core::control::keys::TIMERS_HELD;
use engine::core::decide::{AdoptActivity, AdoptReservation};
use engine::core::event::{Actor, Body, Definition, Event, Status};
use engine::core::ids::{ActivityId, Ordinal, ReservationId, SkuId, UserId};
use engine::{Busy, Engine, LogUnavailable, OldId, Pending};

use super::controls;
use super::facts::{self, ActivityRow, Money, PaymentRow, RefundRow, ReservationRow, Which};
use super::money::requested;
use super::operations::{self, Operations};
use super::source::Source;
use super::{RestoreError, Unknown};
use crate::sql::fill::GONE_SKU;
use crate::sql::readers::Snapshot;

/// Rows that contradict others and are named; more are counted.
const ROWS_NAMED_MAX: usize = 100;

/// Who does it, in the log.
pub(super) const ACTOR: Actor<'static> = Actor { name: "restore", request_id: "" };

/// What came over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Restored {
    /// Activities.
    pub activities: u64,
    /// Activities that are archived: SQL answers for them.
    pub archived: u64,
    /// Reservations.
    pub reservations: u64,
    /// What could not be known.
    pub unknown: Unknown,
}

/// What is to be durable before the next page, by name.
type Wait = Box<dyn FnOnce() -> Result<Result<(), String>, LogUnavailable>>;

pub(super) struct Rebuild<'e> {
    pub(super) engine: &'e Engine,
    restored: Restored,
    waiting: Vec<(String, Wait)>,
    /// Units per activity that the reservations to come have sold.
    sold: BTreeMap<u64, u64>,
    done: BTreeSet<ReservationId>,
    operations: Operations,
    watch: &'e dyn Fn(u64, u64),
    /// Reservations that there are.
    reservations: u64,
}

impl Source {
    /// Fills the engine of a directory that was just formatted, with this source's key, and takes
    /// the database over.
    ///
    /// # Errors
    /// [`RestoreError`]; the database is as it was.
    pub async fn rebuild(self, engine: &Engine) -> Result<Restored, RestoreError> {
        self.rebuild_watched(engine, &|_, _| ()).await
    }

    /// The same; `watch` is told now and then how many reservations have come over, of how many.
    ///
    /// # Errors
    /// As [`rebuild`](Self::rebuild).
    pub async fn rebuild_watched(
        self,
        engine: &Engine,
        watch: &dyn Fn(u64, u64),
    ) -> Result<Restored, RestoreError> {
        let unknown = Unknown {
            uuid: self.cursor.uuid,
            epoch: self.cursor.epoch,
            lsn: self.cursor.lsn,
            rows: Vec::new(),
            rows_count: 0,
        };
        let restored = Restored { activities: 0, archived: 0, reservations: 0, unknown };
        let (waiting, sold, done) = (Vec::new(), BTreeMap::new(), BTreeSet::new());
        let (operations, reservations) = (Operations::new(), 0);
        let mut rebuild =
            Rebuild { engine, restored, waiting, sold, done, operations, watch, reservations };
        let mut snapshot = self.readers.snapshot().await?;
        rebuild.run(&mut snapshot).await?;
        drop(snapshot);
        let restored = rebuild.restored;
        self.readers.close().await;
        engine.all_durable().map_err(|_| RestoreError::Log)?;
        super::take::take(&self, engine).await?;
        Ok(restored)
    }
}

impl Rebuild<'_> {
    async fn run(&mut self, snapshot: &mut Snapshot) -> Result<(), RestoreError> {
        self.control(TIMERS_HELD, b"1", 0)?;
        self.count_sold(snapshot).await?;
        self.numbers(snapshot).await?;
        self.operations = operations::read(snapshot).await?;
        let mut after = 0;
        loop {
            let page = facts::activities(snapshot, after).await?;
            let Some(last) = page.last() else { break };
            after = last.id;
            page.iter().try_for_each(|row| self.activity(row))?;
            self.settle()?;
        }
        for which in Which::RESTOCKED.into_iter().chain(Which::ALL) {
            let mut after = 0;
            loop {
                let page = facts::reservations(snapshot, after, which).await?;
                let Some(last) = page.last() else { break };
                after = last.id.get();
                let order_nos: Vec<_> = page.iter().map(|row| row.order_no.clone()).collect();
                let money = facts::money(snapshot, &order_nos).await?;
                for row in &page {
                    if !self.done.contains(&row.id) {
                        self.reservation(row, &money)?;
                    }
                    if which.is_restocked() {
                        self.done.insert(row.id);
                    }
                }
                self.settle()?;
                (self.watch)(self.restored.reservations, self.reservations);
            }
        }
        let listed = controls::blacklist(snapshot, ACTOR.name, self.engine.now_ms()).await?;
        let disabled = controls::disabled_accounts(snapshot).await?;
        for (key, value, expires_ms) in listed.into_iter().chain(disabled) {
            self.control(&key, &value, expires_ms)?;
        }
        Ok(())
    }

    /// What an activity has sold beyond what its reservations stand for was sold before them.
    async fn count_sold(&mut self, snapshot: &mut Snapshot) -> Result<(), RestoreError> {
        for which in Which::ALL.into_iter().chain(Which::RESTOCKED) {
            let mut after = 0;
            loop {
                let page = facts::reservations(snapshot, after, which).await?;
                let Some(last) = page.last() else { break };
                after = last.id.get();
                if !which.is_restocked() {
                    self.reservations += page.len() as u64;
                }
                for row in page.iter().filter(|row| row.status == Status::Confirmed) {
                    let sold = self.sold.entry(row.activity).or_default();
                    *sold = match which.is_restocked() {
                        true => sold.saturating_sub(row.quantity),
                        false => sold.saturating_add(row.quantity),
                    };
                }
            }
        }
        Ok(())
    }

    pub(super) fn control(
        &mut self,
        key: &str,
        value: &[u8],
        expires_ms: u64,
    ) -> Result<(), RestoreError> {
        let set = retried(|| self.engine.control_set(ACTOR, key, value, expires_ms))?;
        match set.wait() {
            Err(_) => Err(RestoreError::Log),
            Ok(Err(refusal)) => {
                self.doubt(format!("control {key}: {refusal:?}"));
                Ok(())
            }
            Ok(Ok(_)) => Ok(()),
        }
    }

    fn activity(&mut self, row: &ActivityRow) -> Result<(), RestoreError> {
        let name = format!("flashsale_activities {}", row.id);
        if row.sku == GONE_SKU && row.is_archived {
            // Of a database that was filled from a snapshot: its id and its ordinal stay used.
            return Ok(());
        }
        let (Some(id), Some(sku)) = (ActivityId::new(row.id), SkuId::new(row.sku)) else {
            self.doubt(format!("{name}: its id or its SKU is none"));
            return Ok(());
        };
        let definition = definition(row, sku, self.engine.now_ms());
        let total = row.stock.saturating_add(row.locked).saturating_add(row.sold);
        let to_come = self.sold.get(&row.id).copied().unwrap_or_default();
        if row.sold < to_come {
            self.doubt(format!("{name}: {} sold, {to_come} are paid for", row.sold));
        }
        let sold = match row.is_archived {
            true => row.sold,
            false => row.sold.saturating_sub(to_come),
        };
        let (version, free) = (narrow(row.version), narrow(total.saturating_sub(sold)));
        let operations = match row.is_archived {
            true => Vec::new(),
            false => self.operations.remove(&row.id).unwrap_or_default(),
        };
        let before = operations::units_before(free, &operations);
        if before.is_none() {
            self.doubt(format!("{name}: its restocks don't fit: their keys count as unused"));
        }
        let adopted = AdoptActivity {
            version,
            available: before.unwrap_or(free),
            sold: narrow(sold),
            on_sale: row.on_sale,
            definition,
        };
        // One that is archived gives no more ids: its own ordinal still leads to it.
        let own = u32::try_from(row.ordinal).ok().and_then(Ordinal::new);
        let ordinal = own.filter(|_| row.is_archived);
        let told = retried(|| self.engine.adopt_activity(id, ordinal, &adopted))?;
        self.wait(name, told);
        self.restored.activities += 1;
        if row.is_archived {
            self.restored.archived += 1;
            self.settle()?;
            retried(|| self.engine.adopt_archived(id))?.wait().map_err(|_| RestoreError::Log)?;
            return Ok(());
        }
        if let Some(before) = before {
            self.operations(id, &operations, (before, free, narrow(sold)), version)?;
        }
        let at_ms = self.engine.now_ms();
        if row.paused {
            self.fact(id, at_ms, Body::Paused { activity: id, actor: ACTOR })?;
        }
        if row.drained {
            self.fact(id, at_ms, Body::Drained { activity: id, actor: ACTOR })?;
        }
        Ok(())
    }

    fn reservation(&mut self, row: &ReservationRow, money: &Money) -> Result<(), RestoreError> {
        let name = format!("flashsale_pre_deductions {}", row.id);
        let (Some(activity), Some(user)) = (ActivityId::new(row.activity), UserId::new(row.user))
        else {
            self.doubt(format!("{name}: its activity or its user is none"));
            return Ok(());
        };
        if row.is_doubtful {
            self.doubt(format!("{name}: its order says otherwise; {:?} is taken", row.status));
        }
        let payments = money.payments.get(&row.order_no).map_or(&[][..], Vec::as_slice);
        let refunds = money.refunds.get(&row.order_no).map_or(&[][..], Vec::as_slice);
        if self.engine.archived(activity).is_some() {
            return self.of_archived(row.id, activity, user, payments, refunds);
        }
        let natural = self.engine.order_prefix().order_no(row.id);
        let adopted = AdoptReservation {
            // What has an id under ordinal 0 had it before: the floor of those that are given is
            // known otherwise.
            old_id: if row.id.ordinal() == Ordinal::ADOPTED { row.id.get() } else { 0 },
            order_no: if row.order_no == natural { "" } else { &row.order_no },
            status: row.status,
            user,
            quantity: u32::try_from(row.quantity).unwrap_or_default(),
            created_ms: row.created_ms,
            updated_ms: row.updated_ms,
            request_id: row.request_id.as_deref().unwrap_or_default(),
            request_hash: row.request_hash,
            payment_no: &row.payment_no,
        };
        let old = OldId::Sluice(row.id);
        let told = retried(|| self.engine.adopt_reservation(activity, old, &adopted))?;
        self.wait(name, told);
        self.restored.reservations += 1;
        self.payments(row.id, activity, payments)?;
        for refund in refunds {
            self.refund((row.id, activity, user), payments, refund)?;
        }
        self.letter(row, activity)
    }

    /// Of an archived activity only what a provider has yet to settle is left to do.
    fn of_archived(
        &mut self,
        id: ReservationId,
        activity: ActivityId,
        user: UserId,
        payments: &[PaymentRow],
        refunds: &[RefundRow],
    ) -> Result<(), RestoreError> {
        let is_open = |refund: &&RefundRow| matches!(refund.status.as_str(), "PENDING" | "SENT");
        for refund in refunds.iter().filter(is_open) {
            let event = requested((id, activity, user), payments, refund);
            self.fact(activity, refund.created_ms, event)?;
        }
        Ok(())
    }

    pub(super) fn fact(
        &mut self,
        activity: ActivityId,
        at_ms: u64,
        body: Body<'_>,
    ) -> Result<(), RestoreError> {
        let event = Event { at_ms, body };
        let told = retried(|| self.engine.adopt_fact(activity, &event))?;
        self.wait(format!("a fact of activity {activity}"), told);
        Ok(())
    }

    pub(super) fn wait<T: 'static, E: std::fmt::Debug + 'static>(
        &mut self,
        name: String,
        told: Pending<Result<T, E>>,
    ) {
        let wait =
            move || told.wait().map(|told| told.map(drop).map_err(|error| format!("{error:?}")));
        self.waiting.push((name, Box::new(wait)));
    }

    fn settle(&mut self) -> Result<(), RestoreError> {
        for (name, told) in std::mem::take(&mut self.waiting) {
            if let Err(why) = told().map_err(|_| RestoreError::Log)? {
                self.doubt(format!("{name}: {why}"));
            }
        }
        Ok(())
    }

    fn doubt(&mut self, row: String) {
        let unknown = &mut self.restored.unknown;
        unknown.rows_count += 1;
        if unknown.rows.len() < ROWS_NAMED_MAX {
            unknown.rows.push(row);
        }
    }
}

fn narrow(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

fn definition(row: &ActivityRow, sku: SkuId, now_ms: u64) -> Definition<'_> {
    // A schedule that has passed may have been taken back: SQL does not say.
    let is_due = row.publish_at_ms != 0 && row.publish_at_ms <= now_ms;
    Definition {
        sku,
        title: &row.title,
        price: row.price,
        per_user_limit: narrow(row.per_user_limit),
        start_ms: row.start_ms,
        end_ms: row.end_ms,
        payment_ttl_ms: row.payment_ttl_ms,
        late_payment: row.late_payment,
        dead_letter: row.dead_letter,
        publish_at_ms: if is_due { 0 } else { row.publish_at_ms },
    }
}

/// Asks until there is room: the log's threads make it.
pub(crate) fn retried<T>(mut ask: impl FnMut() -> Result<T, Busy>) -> Result<T, RestoreError> {
    loop {
        match ask() {
            Ok(told) => return Ok(told),
            Err(Busy::LogUnavailable) => return Err(RestoreError::Log),
            Err(_) => std::thread::yield_now(),
        }
    }
}
