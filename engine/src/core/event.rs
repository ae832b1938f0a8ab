//! The events: what can happen, format version 1. Their bytes are in [`codec`](super::codec).
//!
//! Every change of available, locked, sold or held is one of these, decided in one shard. An
//! event carries the time of its decision, so that replay needs no clock, and the figures after
//! it, so that a reader of the log needs no state of its own. Events borrow what they name:
//! accepting a purchase allocates nothing for its event.

pub use super::codes::{
    DeadLetterPolicy, DeadLetterResolution, Front, LatePayment, PaymentVerdict, RefundScope,
    RestoreReason, Status,
};
use super::ids::{ActivityId, Ordinal, ReservationId, SkuId, UserId};

/// One thing that happened, at `at_ms` (Unix milliseconds of the engine's clock).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event<'a> {
    /// When it was decided.
    pub at_ms: u64,
    /// What was decided.
    pub body: Body<'a>,
}

/// Units of an activity after an event. `available + locked + sold` is its total.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Figures {
    /// Free to buy.
    pub available: u32,
    /// Reserved, not yet paid.
    pub locked: u32,
    /// Paid.
    pub sold: u32,
}

/// Where a unit can be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pool {
    /// Free to buy.
    Available,
    /// Reserved, not yet paid.
    Locked,
    /// Paid.
    Sold,
}

impl Figures {
    /// The figures once `quantity` units went from one pool to another, or `None` where there are
    /// not as many.
    pub const fn moved(mut self, from: Pool, to: Pool, quantity: u32) -> Option<Self> {
        let Some(less) = self.pool(from).checked_sub(quantity) else { return None };
        *self.pool_mut(from) = less;
        let Some(more) = self.pool(to).checked_add(quantity) else { return None };
        *self.pool_mut(to) = more;
        Some(self)
    }

    const fn pool(&self, pool: Pool) -> u32 {
        match pool {
            Pool::Available => self.available,
            Pool::Locked => self.locked,
            Pool::Sold => self.sold,
        }
    }

    const fn pool_mut(&mut self, pool: Pool) -> &mut u32 {
        match pool {
            Pool::Available => &mut self.available,
            Pool::Locked => &mut self.locked,
            Pool::Sold => &mut self.sold,
        }
    }

    /// All units.
    pub const fn total(self) -> u64 {
        self.available as u64 + self.locked as u64 + self.sold as u64
    }
}

/// What an activity's life is ruled by. Frozen, but for the title, once a reservation exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Definition<'a> {
    /// The SKU on sale.
    pub sku: SkuId,
    /// Shown to shoppers; UTF-8.
    pub title: &'a str,
    /// Price of a unit, in the smallest unit of the currency.
    pub price: u64,
    /// Units a user may hold.
    pub per_user_limit: u32,
    /// First instant of the window, inclusive, Unix milliseconds.
    pub start_ms: u64,
    /// Last instant of the window, inclusive, Unix milliseconds.
    pub end_ms: u64,
    /// How long an unpaid reservation is held, milliseconds.
    pub payment_ttl_ms: u64,
    /// What a good payment for a rolled-back reservation does.
    pub late_payment: LatePayment,
    /// What becomes of a reservation that no order can hold.
    pub dead_letter: DeadLetterPolicy,
    /// When the activity publishes itself, Unix milliseconds; 0 for never.
    pub publish_at_ms: u64,
}

/// Who did it, for admin events: the name in the caller's token and the request's id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Actor<'a> {
    /// The caller's subject.
    pub name: &'a str,
    /// The id of the request that carried the command.
    pub request_id: &'a str,
}

impl Actor<'_> {
    /// No operator: the buyer did it, a back end, or time.
    pub const NONE: Actor<'static> = Actor { name: "", request_id: "" };

    /// Whether it is [`Actor::NONE`].
    pub const fn is_none(&self) -> bool {
        self.name.is_empty() && self.request_id.is_empty()
    }

    /// Whether a give-back for `reason` may name it: an operator's release must say whose it is,
    /// and no other give-back may be put down to an operator.
    pub const fn may_restore(&self, reason: RestoreReason) -> bool {
        match reason {
            RestoreReason::Admin => !self.name.is_empty(),
            _ => self.is_none(),
        }
    }
}

/// What makes a decrease happen once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DecreaseKey<'a> {
    /// The caller's key, 1..=64 bytes, unique in the activity.
    Caller(&'a str),
    /// An edit to a lower total: the version that the edit made is its key.
    Edit,
}

/// What can happen.
///
/// Events of an activity name it; `reservation` is a reservation's full id, so that a reader needs
/// no table of ordinals; `figures` are the units after the event, `held` the units the
/// user then holds, `version` the version of the activity's definition they rest on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(
    missing_docs,
    reason = "fields are named for what `core` documents once, in the types above"
)]
pub enum Body<'a> {
    /// An activity exists: off sale, all units available, version 1.
    ActivityCreated {
        activity: ActivityId,
        actor: Actor<'a>,
        ordinal: Ordinal,
        total: u32,
        definition: Definition<'a>,
    },
    /// Its definition changed. Units are untouched but where nothing was ever reserved.
    ActivityEdited {
        activity: ActivityId,
        actor: Actor<'a>,
        version: u32,
        figures: Figures,
        definition: Definition<'a>,
    },
    /// It is on sale.
    Published { activity: ActivityId, actor: Actor<'a> },
    /// It is off sale and does not publish itself (any more); reservations live on.
    Unpublished { activity: ActivityId, actor: Actor<'a> },
    /// New purchases stop.
    Paused { activity: ActivityId, actor: Actor<'a> },
    /// Purchases go on; lifts a pause and a drain.
    Resumed { activity: ActivityId, actor: Actor<'a> },
    /// New purchases stop for good; pay, late pay and cancel go on.
    Drained { activity: ActivityId, actor: Actor<'a> },
    /// Units were added. `op` is the caller's key.
    Restocked {
        activity: ActivityId,
        actor: Actor<'a>,
        op: &'a str,
        quantity: u32,
        version: u32,
        figures: Figures,
    },
    /// Free units were taken away.
    Decreased {
        activity: ActivityId,
        actor: Actor<'a>,
        op: DecreaseKey<'a>,
        quantity: u32,
        version: u32,
        figures: Figures,
    },
    /// The activity left memory but for a tombstone.
    Archived { activity: ActivityId },

    /// A purchase was accepted.
    Reserved {
        activity: ActivityId,
        front: Front,
        reservation: ReservationId,
        user: UserId,
        quantity: u32,
        held: u32,
        version: u32,
        figures: Figures,
        request_id: &'a str,
    },

    /// A payment was opened.
    PaymentOpened {
        activity: ActivityId,
        reservation: ReservationId,
        attempt: u8,
        channel: &'a str,
        amount: u64,
        expires_ms: u64,
    },
    /// A callback was received. `activity` and `reservation` are `None` where it fits no payment.
    PaymentRecorded {
        activity: Option<ActivityId>,
        reservation: Option<ReservationId>,
        channel: &'a str,
        payment_no: &'a str,
        transaction: &'a str,
        amount: u64,
        verdict: PaymentVerdict,
        body: &'a [u8],
    },
    /// Locked units were sold.
    Confirmed {
        activity: ActivityId,
        reservation: ReservationId,
        user: UserId,
        quantity: u32,
        held: u32,
        version: u32,
        figures: Figures,
        payment_no: &'a str,
    },
    /// A late payment was honoured: the units were taken again and sold.
    Reinstated {
        activity: ActivityId,
        reservation: ReservationId,
        user: UserId,
        quantity: u32,
        held: u32,
        version: u32,
        figures: Figures,
        payment_no: &'a str,
    },

    /// Locked units were given back. `actor` is the operator who released them, where one did.
    Restored {
        activity: ActivityId,
        reservation: ReservationId,
        user: UserId,
        quantity: u32,
        held: u32,
        version: u32,
        figures: Figures,
        reason: RestoreReason,
        actor: Actor<'a>,
    },

    /// A refund was asked for: of a paid order, or of a payment that paid nothing. Nothing moves
    /// yet. The payment is named where it is not the one that paid a live activity's order.
    RefundRequested {
        activity: ActivityId,
        actor: Actor<'a>,
        reservation: ReservationId,
        user: UserId,
        refund_no: &'a str,
        scope: RefundScope,
        restock: bool,
        free_limit: bool,
        channel: &'a str,
        payment_no: &'a str,
        transaction: &'a str,
        amount: u64,
        note: &'a str,
    },
    /// The provider refunded: units and limit move as asked.
    RefundSettled {
        activity: ActivityId,
        reservation: ReservationId,
        user: UserId,
        held: u32,
        version: u32,
        figures: Figures,
        refund_no: &'a str,
    },
    /// The provider refused for good: the order is paid again.
    RefundFailed {
        activity: ActivityId,
        reservation: ReservationId,
        refund_no: &'a str,
        note: &'a str,
    },

    /// A sink could not make an order of a reservation.
    DeadLettered { activity: ActivityId, reservation: ReservationId, note: &'a str },
    /// A dead letter was closed. `actor` is the operator who did it, where one did.
    DeadLetterResolved {
        activity: ActivityId,
        reservation: ReservationId,
        resolution: DeadLetterResolution,
        actor: Actor<'a>,
    },
    /// A sink holds everything up to `lsn`. `shards` are the shards it moved in, each with the
    /// sequence it now covers: [`ShardMarks`] reads them. Reservations carry their sequence, so a
    /// status needs no map from LSN to reservation.
    SinkAdvanced { sink: &'a str, lsn: u64, shards: ShardMarks<'a> },

    /// An activity was taken over from an older system or from SQL. `sold` are units that no
    /// reservation to come stands for; what is to be adopted is still `available`, none `locked`.
    ActivityAdopted {
        activity: ActivityId,
        ordinal: Ordinal,
        version: u32,
        figures: Figures,
        on_sale: bool,
        definition: Definition<'a>,
    },
    /// A reservation was taken over. `old_id` is its id there, 0 where it had none. Its units
    /// leave `available` here, for where its status has them. `request_id` is empty where only its
    /// hash is known any more.
    ReservationAdopted {
        activity: ActivityId,
        reservation: ReservationId,
        old_id: u64,
        order_no: &'a str,
        status: Status,
        user: UserId,
        quantity: u32,
        created_ms: u64,
        updated_ms: u64,
        held: u32,
        figures: Figures,
        request_id: &'a str,
        request_hash: u128,
        payment_no: &'a str,
    },

    /// A run-time control was set: blacklist, revoked token, limits, canary, kill switch, timers.
    /// `expires_ms` is when it ends by itself, Unix milliseconds; 0 for never.
    ControlSet { actor: Actor<'a>, key: &'a str, value: &'a [u8], expires_ms: u64 },
    /// A run-time control was cleared.
    ControlCleared { actor: Actor<'a>, key: &'a str },
}

/// (shard, shard sequence) pairs, as their bytes in the log: `u16` shard, `u64` sequence, little
/// endian, ascending by shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShardMarks<'a>(pub(super) &'a [u8]);

impl<'a> ShardMarks<'a> {
    /// Bytes of one pair.
    pub(super) const ENTRY_BYTES: usize = 10;

    /// Writes `marks` into `buffer` and returns the view of them.
    pub fn encode(marks: &[(u16, u64)], buffer: &'a mut Vec<u8>) -> Self {
        buffer.clear();
        for (shard, sequence) in marks {
            buffer.extend_from_slice(&shard.to_le_bytes());
            buffer.extend_from_slice(&sequence.to_le_bytes());
        }
        Self(buffer)
    }

    /// The view of `bytes`, or `None` where they are no whole number of pairs.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        bytes.len().is_multiple_of(Self::ENTRY_BYTES).then_some(Self(bytes))
    }

    /// The pairs.
    pub fn iter(self) -> impl Iterator<Item = (u16, u64)> + 'a {
        self.0.chunks_exact(Self::ENTRY_BYTES).filter_map(|entry| {
            let (shard, sequence) = entry.split_first_chunk::<2>()?;
            Some((u16::from_le_bytes(*shard), u64::from_le_bytes(*sequence.first_chunk::<8>()?)))
        })
    }

    /// The pairs' bytes.
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }
}
