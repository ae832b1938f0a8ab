//! Events become keys: what each says of its activity, its user and its reservation.
//!
//! | event | activity | user | reservation |
//! |---|---|---|---|
//! | created, adopted, edited | all of it | | |
//! | published, unpublished, paused, resumed, drained | all of it | | |
//! | restocked, decreased | units | | |
//! | reserved, adopted, given back, reinstated | units | held | all of it |
//! | confirmed | units | | all of it; nothing where dead letters are shown |
//! | refund settled | units | held | |
//! | archived | what has no end of its own | | |
//! | dead letter | | | all of it |
//! | blacklist | | the entry | |
//!
//! Where keys are named by SKU, only the activity that owns the SKU is written: of those with that
//! SKU the one on sale, the one that ends last, the newest. A change of owner leaves keys behind
//! that only a resync can tell from what is due.

use std::collections::{BTreeSet, HashMap};

use engine::core::codec;
use engine::core::event::{Body, Event, Status};
use engine::core::ids::{ActivityId, OrderPrefix};

use super::fault::MirrorError;
use super::layouts::{Keys, Known, Layout, Reserved};
use super::present::{self, BLACKLIST_PREFIX, Present};
use super::writes::{Part, Writes};

/// What events change, until it is sent.
#[derive(Debug, Default)]
pub(super) struct Change {
    pub(super) writes: Writes,
    /// Activities whose units moved: what that asks for is written once, at the end.
    touched: BTreeSet<u64>,
}

/// What an owner of a SKU is chosen by, the greatest first.
type Claim = (bool, u64, u32);

/// The activities as they are at the cursor, and what is made of events.
#[derive(Debug)]
pub(super) struct Projection {
    pub(super) keys: Keys,
    known: HashMap<u64, Known>,
    /// Owners of SKUs; empty where keys are not named by SKU.
    owners: HashMap<u64, u64>,
}

impl Projection {
    pub(super) fn new(layout: Layout, order_prefix: OrderPrefix) -> Self {
        let keys = Keys { layout, order_prefix };
        Self { keys, known: HashMap::new(), owners: HashMap::new() }
    }

    /// Knows `it`, as it stood in Redis or stands in the engine.
    pub(super) fn know(&mut self, it: Known) {
        self.known.insert(it.id.get(), it);
        self.choose_owner(it.sku.get());
    }

    pub(super) fn forget(&mut self, id: u64) {
        if let Some(it) = self.known.remove(&id) {
            self.choose_owner(it.sku.get());
        }
    }

    pub(super) fn forget_all(&mut self) {
        self.known.clear();
        self.owners.clear();
    }

    /// The activity whose keys bear this SKU's name.
    pub(super) fn owner(&self, sku: u64) -> Option<&Known> {
        self.known.get(self.owners.get(&sku)?)
    }

    /// Whether the keys of `it` are written.
    pub(super) fn is_written(&self, it: &Known) -> bool {
        !self.keys.layout.is_keyed_by_sku() || self.owners.get(&it.sku.get()) == Some(&it.id.get())
    }

    fn choose_owner(&mut self, sku: u64) {
        if !self.keys.layout.is_keyed_by_sku() {
            return;
        }
        let claim = |it: &Known| -> Claim { (it.flags.on_sale, it.end_ms, it.ordinal.get()) };
        let rivals = self.known.values().filter(|it| it.sku.get() == sku);
        match rivals.max_by_key(|it| claim(it)) {
            Some(owner) => self.owners.insert(sku, owner.id.get()),
            None => self.owners.remove(&sku),
        };
    }

    /// Takes one event in.
    ///
    /// # Errors
    /// [`MirrorError::Resync`] where the keys can't follow from what is known.
    pub(super) fn take(
        &mut self,
        event: &Event<'_>,
        host: &impl Present,
        out: &mut Change,
    ) -> Result<(), MirrorError> {
        match event.body {
            Body::SinkAdvanced { .. } | Body::PaymentOpened { .. } => Ok(()),
            Body::PaymentRecorded { .. } => Ok(()),
            Body::RefundRequested { .. } | Body::RefundFailed { .. } => Ok(()),
            Body::ControlSet { key, expires_ms, .. } => {
                self.control(key, Some(expires_ms), &mut out.writes);
                Ok(())
            }
            Body::ControlCleared { key, .. } => {
                self.control(key, None, &mut out.writes);
                Ok(())
            }
            body => match codec::activity(&body) {
                Some(activity) => self.of_activity(activity, event, host, out),
                None => Ok(()),
            },
        }
    }

    /// A control with an end (0 for never), or none.
    pub(super) fn control(&self, key: &str, expires_ms: Option<u64>, out: &mut Writes) {
        let Some(user) = present::blacklisted(key) else { return };
        debug_assert!(key.starts_with(BLACKLIST_PREFIX));
        let entry = expires_ms.map(|ends_ms| (ends_ms != 0).then_some(ends_ms));
        self.keys.blacklisted(user, entry, out);
    }

    fn of_activity(
        &mut self,
        id: ActivityId,
        event: &Event<'_>,
        host: &impl Present,
        out: &mut Change,
    ) -> Result<(), MirrorError> {
        if let Body::Archived { .. } = event.body {
            if let Some(it) = self.known.get(&id.get()).copied() {
                self.keys.archived(&it, &mut out.writes);
                out.touched.insert(id.get());
                self.forget(id.get());
            }
            return Ok(());
        }
        let before = self.known.get(&id.get()).copied();
        let Some(mut it) = before.or_else(|| created(event)) else {
            // Its life is over in the engine, too: refunds of an archived activity.
            return match host.look(id, |_| ()) {
                Some(_) => Err(MirrorError::Resync("an activity is not in the mirror's own hash")),
                None => Ok(()),
            };
        };
        let defines = change(&mut it, &event.body);
        self.known.insert(id.get(), it);
        if defines && self.keys.layout.is_keyed_by_sku() {
            let owner = self.owners.get(&it.sku.get()).copied();
            self.choose_owner(it.sku.get());
            let changed = owner.is_some() && self.owners.get(&it.sku.get()).copied() != owner;
            let moved = before.is_some_and(|before| before.sku != it.sku);
            if changed || moved {
                return Err(MirrorError::Resync("another activity took over its SKU's keys"));
            }
        }
        out.touched.insert(id.get());
        if self.is_written(&it) {
            self.write(&it, defines, event, host, &mut out.writes);
        }
        Ok(())
    }

    /// What `change` asks for, all told: the units as they are now, and the activities as the
    /// mirror keeps them in its own hash, whose key is `own`.
    pub(super) fn finish(&self, change: Change, own: &str) -> Writes {
        let Change { mut writes, touched } = change;
        for id in touched {
            let kept = self.known.get(&id).map(|it| {
                if self.is_written(it) {
                    self.keys.units(it, &mut writes);
                }
                it.encode()
            });
            let part = kept.map_or(Part::NoField, Part::Field);
            writes.part(own.to_owned(), id.to_string(), part);
        }
        writes
    }

    fn write(
        &self,
        it: &Known,
        defines: bool,
        event: &Event<'_>,
        host: &impl Present,
        out: &mut Writes,
    ) {
        if defines {
            self.keys.activity(it, out);
        }
        match event.body {
            Body::Reserved { user, held, .. }
            | Body::Restored { user, held, .. }
            | Body::Reinstated { user, held, .. }
            | Body::RefundSettled { user, held, .. }
            | Body::ReservationAdopted { user, held, .. } => self.keys.user(it, user, held, out),
            _ => {}
        }
        // Only one layout shows dead letters; the others need not ask the engine, which is ahead.
        let shows_dead_letters = self.keys.layout == Layout::FlashSale;
        let of_dead_letter =
            matches!(event.body, Body::DeadLettered { .. } | Body::DeadLetterResolved { .. });
        if of_dead_letter && !shows_dead_letters {
            return;
        }
        // Where they are shown, a payment changes nothing: paid, a dead letter is one still.
        if shows_dead_letters && matches!(event.body, Body::Confirmed { .. }) {
            return;
        }
        if let Some(mut reserved) = reserved(it.id, event, host) {
            // As with dead letters: one layout alone shows order numbers.
            if self.keys.layout == Layout::FlashSale && reserved.order_no.is_none() {
                reserved.order_no = present::order_no(host, it, reserved.id);
            }
            self.keys.reservation(it, &reserved, out);
        }
    }
}

/// The activity that an event makes.
fn created(event: &Event<'_>) -> Option<Known> {
    use engine::core::activity::Flags;
    use engine::core::event::Figures;
    match event.body {
        Body::ActivityCreated { activity, ordinal, total, ref definition, .. } => {
            let figures = Figures { available: total, ..Figures::default() };
            Some(Known::new(activity, ordinal, Flags::default(), figures, definition))
        }
        Body::ActivityAdopted { activity, ordinal, figures, on_sale, ref definition, .. } => {
            let flags = Flags { on_sale, ..Flags::default() };
            Some(Known::new(activity, ordinal, flags, figures, definition))
        }
        _ => None,
    }
}

/// Changes an activity as an event says; whether more than its units may have changed.
fn change(it: &mut Known, body: &Body<'_>) -> bool {
    match *body {
        Body::ActivityCreated { .. } | Body::ActivityAdopted { .. } => {}
        Body::ActivityEdited { figures, ref definition, .. } => {
            it.figures = figures;
            it.define(definition);
        }
        Body::Published { .. } => it.flags.on_sale = true,
        Body::Unpublished { .. } => it.flags.on_sale = false,
        Body::Paused { .. } => it.flags.paused = true,
        Body::Drained { .. } => it.flags.drained = true,
        Body::Resumed { .. } => (it.flags.paused, it.flags.drained) = (false, false),
        Body::Restocked { figures, .. }
        | Body::Decreased { figures, .. }
        | Body::Reserved { figures, .. }
        | Body::Confirmed { figures, .. }
        | Body::Reinstated { figures, .. }
        | Body::Restored { figures, .. }
        | Body::RefundSettled { figures, .. }
        | Body::ReservationAdopted { figures, .. } => {
            it.figures = figures;
            return false;
        }
        _ => return false,
    }
    true
}

/// The reservation that an event leaves.
fn reserved(activity: ActivityId, event: &Event<'_>, host: &impl Present) -> Option<Reserved> {
    let at_ms = event.at_ms;
    let mut brought = None;
    let (id, user, status, created_ms, updated_ms) = match event.body {
        Body::Reserved { reservation, user, .. } => {
            (reservation, user, Status::Reserved, Some(at_ms), at_ms)
        }
        Body::Confirmed { reservation, user, .. } => {
            (reservation, user, Status::Confirmed, None, at_ms)
        }
        Body::Restored { reservation, user, reason, .. } => {
            (reservation, user, Status::RolledBack(reason), None, at_ms)
        }
        Body::Reinstated { reservation, user, .. } => {
            // What its give-back deleted is due again, for the rest of its time.
            let created_ms = present::created_ms(host, activity, reservation);
            (reservation, user, Status::Confirmed, created_ms, at_ms)
        }
        Body::ReservationAdopted {
            reservation,
            user,
            status,
            created_ms,
            updated_ms,
            order_no,
            ..
        } => {
            brought = Some(order_no).filter(|brought| !brought.is_empty()).map(Box::from);
            (reservation, user, status, Some(created_ms), updated_ms)
        }
        Body::DeadLettered { reservation, .. } | Body::DeadLetterResolved { reservation, .. } => {
            let look = |it: &_| present::reservation(it, reservation);
            let (now, _) = host.look(activity, look)??;
            // Its units are told by other events, in their order.
            if matches!(now.status, Status::RolledBack(_)) {
                return None;
            }
            let is_dead_letter = matches!(event.body, Body::DeadLettered { .. });
            return Some(Reserved { is_dead_letter, created_ms: None, ..now });
        }
        _ => return None,
    };
    let order_no = brought;
    Some(Reserved { id, user, status, created_ms, updated_ms, is_dead_letter: false, order_no })
}
