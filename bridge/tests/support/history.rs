//! A random history: commands decided and applied by the engine's own core, and the events that
//! no command leads to yet, made by hand and let through by `apply`.

use std::collections::BTreeSet;

use engine::core::apply::apply;
use engine::core::command::{Command, Reserve, Status};
use engine::core::decide::{Outcome, decide};
use engine::core::event::{
    Actor, Body, DeadLetterPolicy, DeadLetterResolution, Definition, Event, Front, LatePayment,
    PaymentVerdict, Pool, RefundScope, RestoreReason,
};
use engine::core::ids::{ActivityId, Ordinal, ReservationId, SkuId, UserId};
use engine::core::request::RequestHasher;
use engine::core::shard::{Shard, ShardSeed};

use super::images::images_of;
use super::{HASH_KEY, MemoryHost, Random};

pub const SHARDS: u64 = 2;
pub const ACTIVITIES: u64 = 4;
pub const ACTOR: Actor<'static> = Actor { name: "ops", request_id: "req-1" };

pub const DEFINITION: Definition<'static> = Definition {
    sku: SkuId::new(20_001).unwrap(),
    title: "限量 'sneaker'; -- 👟",
    price: 1_999,
    per_user_limit: 3,
    start_ms: 0,
    end_ms: 1 << 41,
    payment_ttl_ms: 600_000,
    late_payment: LatePayment::ReinstateOrRefund,
    dead_letter: DeadLetterPolicy::Hold,
    publish_at_ms: 0,
};

/// Shards and the host's log that they fill.
pub struct History {
    pub host: MemoryHost,
    pub shards: Vec<Shard>,
    pub reservations: Vec<(ActivityId, ReservationId)>,
    /// What happened, counted: the check compares SQL with it.
    pub counts: Counts,
    /// Open dead letters.
    pub dead: BTreeSet<(ActivityId, ReservationId)>,
    /// Dead letters that were rolled back.
    pub without_order: BTreeSet<ReservationId>,
    random: Random,
    at_ms: u64,
    requests: u64,
    refunds: u64,
    frame: Vec<(u16, u64, Vec<u8>, u8)>,
}

#[derive(Default, Clone, Debug)]
pub struct Counts {
    pub restored: u64,
    pub reinstated: u64,
    pub audit: u64,
    pub callbacks: u64,
    pub payments: u64,
}

pub fn activity_id(index: u64) -> ActivityId {
    ActivityId::new(30_001 + index).unwrap()
}

impl History {
    pub fn new(host: MemoryHost, seed: u64) -> Self {
        let requests = RequestHasher::new(&HASH_KEY);
        let shard = || Shard::new(ShardSeed { table_seed: 1, requests });
        let mut history = Self {
            host,
            shards: (0..SHARDS).map(|_| shard()).collect(),
            reservations: Vec::new(),
            counts: Counts::default(),
            dead: BTreeSet::new(),
            without_order: BTreeSet::new(),
            random: Random::new(seed),
            at_ms: 1_000_000,
            requests: 0,
            refunds: 0,
            frame: Vec::new(),
        };
        for index in 0..ACTIVITIES {
            let ordinal = Ordinal::new(u32::try_from(index).unwrap() + 1).unwrap();
            let total = 40 + u32::try_from(index).unwrap();
            let definition = DEFINITION;
            history.command(index, Command::Create { actor: ACTOR, ordinal, total, definition });
            history.command(index, Command::Publish { actor: ACTOR });
        }
        history.end_frame();
        history
    }

    /// What happens from now on happens at `at_ms`.
    pub fn set_time(&mut self, at_ms: u64) {
        self.at_ms = at_ms;
    }

    /// `buyer` buys one unit over HTTP.
    pub fn buy(&mut self, index: u64, buyer: u64) {
        self.requests += 1;
        let (user, request_id) = (UserId::new(buyer).unwrap(), self.requests.to_string());
        let request_hash = RequestHasher::new(&HASH_KEY).hash(&request_id);
        let front = Front::Http;
        let request_id = request_id.as_str();
        let reserve = Reserve { user, request_id, request_hash, quantity: 1, front };
        self.command(index, Command::Reserve(reserve));
    }

    /// Lets `steps` things happen, in frames of random sizes.
    pub fn run(&mut self, steps: u64) {
        for _ in 0..steps {
            self.at_ms += self.random.below(50);
            self.step();
            if self.random.below(4) == 0 {
                self.end_frame();
            }
        }
        self.end_frame();
    }

    fn step(&mut self) {
        let index = self.random.below(ACTIVITIES);
        match self.random.below(20) {
            0..=8 => self.reserve(index),
            9..=10 => self.confirm(),
            11..=12 => self.restore(),
            13 => self.operate(index),
            14 => self.reinstate(),
            15..=16 => self.refund(),
            17 => self.open_payment(),
            18 => self.record_callback(),
            _ => self.dead_letter(),
        }
    }

    fn reserve(&mut self, index: u64) {
        let user = UserId::new(1 + self.random.below(30)).unwrap();
        let hostile = ["a'b\"", "A'B\"", "é", "e\u{301}", "x ", "x", "x\0", "👟", "%_\\"];
        self.requests += 1;
        let pick = self.random.below(hostile.len() as u64);
        let text = hostile[usize::try_from(pick).unwrap()];
        let request_id = format!("{text}{}", self.requests);
        let quantity = u32::try_from(1 + self.random.below(2)).unwrap();
        let request_hash = RequestHasher::new(&HASH_KEY).hash(&request_id);
        let front = Front::Http;
        let reserve = Reserve { user, request_id: &request_id, request_hash, quantity, front };
        self.command(index, Command::Reserve(reserve));
    }

    fn pick(&mut self, wanted: fn(Status) -> bool) -> Option<(ActivityId, ReservationId)> {
        let candidates: Vec<_> = self
            .reservations
            .iter()
            .copied()
            .filter(|(activity, id)| wanted(self.reservation(*activity, *id).status))
            .collect();
        let count = candidates.len() as u64;
        (count > 0).then(|| candidates[usize::try_from(self.random.below(count)).unwrap()])
    }

    pub fn reservation(
        &self,
        activity: ActivityId,
        id: ReservationId,
    ) -> engine::core::command::Reservation {
        self.shards[shard_of(activity)].reservation(activity, id).unwrap()
    }

    fn confirm(&mut self) {
        let Some((activity, reservation)) = self.pick(|status| status == Status::Reserved) else {
            return;
        };
        let payment_no = format!("P{reservation}");
        let command = Command::Confirm { reservation, payment_no: &payment_no };
        self.command(activity.get() - 30_001, command);
    }

    fn restore(&mut self) {
        let Some((activity, reservation)) = self.pick(|status| status == Status::Reserved) else {
            return;
        };
        let (reason, actor) = match self.random.below(3) {
            0 => (RestoreReason::Cancelled, Actor::NONE),
            1 => (RestoreReason::Timeout, Actor::NONE),
            _ => (RestoreReason::Admin, ACTOR),
        };
        let command = Command::Restore { reservation, owner: None, reason, actor };
        self.command(activity.get() - 30_001, command);
    }

    fn operate(&mut self, index: u64) {
        let actor = ACTOR;
        self.requests += 1;
        let op = format!("op'{}", self.requests);
        let quantity = u32::try_from(1 + self.random.below(5)).unwrap();
        let shard = &self.shards[shard_of(activity_id(index))];
        let total = shard.activity(activity_id(index)).unwrap().total();
        let command = match self.random.below(6) {
            0 => Command::Pause { actor },
            1 => Command::Unpublish { actor },
            2 => Command::Restock { actor, op: &op, quantity },
            3 => Command::Decrease { actor, op: &op, quantity },
            4 => {
                let title = "another title";
                let definition = Definition { title, ..DEFINITION };
                let total = total.saturating_sub(1);
                Command::Edit { actor, version: None, total, definition }
            }
            _ => Command::Resume { actor },
        };
        self.command(index, command);
        self.command(index, Command::Publish { actor });
        self.command(index, Command::Resume { actor });
    }

    fn reinstate(&mut self) {
        let picked = self.pick(|status| matches!(status, Status::RolledBack(_)));
        let Some((activity, reservation)) = picked else { return };
        let it = self.reservation(activity, reservation);
        let shard = &self.shards[shard_of(activity)];
        let row = shard.activity(activity).unwrap();
        let (held, version) = (row.held(it.user) + it.quantity, row.version());
        let moved = row.figures().moved(Pool::Available, Pool::Sold, it.quantity);
        let Some(figures) = moved else { return };
        let payment_no = format!("L{reservation}");
        let (user, quantity, payment_no) = (it.user, it.quantity, payment_no.as_str());
        self.event(Body::Reinstated {
            activity,
            reservation,
            user,
            quantity,
            held,
            version,
            figures,
            payment_no,
        });
    }

    fn refund(&mut self) {
        let Some((activity, reservation)) = self.pick(|status| status == Status::Confirmed) else {
            return;
        };
        let it = self.reservation(activity, reservation);
        self.refunds += 1;
        // Often the same number again, after a refusal.
        let refund_no = format!("R{}", self.refunds / 2);
        let refund_no = refund_no.as_str();
        let (restock, free_limit) = (self.random.below(2) == 0, self.random.below(2) == 0);
        let note = "changed my mind";
        let requested = self.event(Body::RefundRequested {
            activity,
            actor: ACTOR,
            reservation,
            user: it.user,
            refund_no,
            scope: RefundScope::Order,
            restock,
            free_limit,
            channel: "",
            payment_no: "",
            transaction: "",
            amount: it.price * u64::from(it.quantity),
            note,
        });
        if !requested {
            return;
        }
        if self.random.below(2) == 0 {
            self.end_frame();
        }
        if self.random.below(2) == 0 {
            let note = "provider says no";
            self.event(Body::RefundFailed { activity, reservation, refund_no, note });
            return;
        }
        let row = self.shards[shard_of(activity)].activity(activity).unwrap();
        let back = |moves: bool| if moves { it.quantity } else { 0 };
        let figures = row.figures().moved(Pool::Sold, Pool::Available, back(restock)).unwrap();
        let held = row.held(it.user) - back(free_limit);
        let (user, version) = (it.user, row.version());
        self.event(Body::RefundSettled {
            activity,
            reservation,
            user,
            held,
            version,
            figures,
            refund_no,
        });
    }

    fn open_payment(&mut self) {
        let Some((activity, reservation)) = self.pick(|status| status == Status::Reserved) else {
            return;
        };
        let attempt = u8::try_from(1 + self.requests % 90).unwrap();
        let (channel, amount) = ("mock", 1_999);
        let expires_ms = self.at_ms + 1;
        let opened =
            Body::PaymentOpened { activity, reservation, attempt, channel, amount, expires_ms };
        self.requests += 1;
        if self.event(opened) {
            self.counts.payments += 1;
        }
    }

    fn record_callback(&mut self) {
        let Some((activity, reservation)) = self.pick(|_| true) else { return };
        self.requests += 1;
        let transaction = format!("T{}", self.requests);
        let recorded = self.event(Body::PaymentRecorded {
            activity: Some(activity),
            reservation: Some(reservation),
            channel: "mock",
            payment_no: "nobody's",
            transaction: &transaction,
            amount: 5,
            verdict: PaymentVerdict::Unknown,
            body: b"\0\xff{}",
        });
        self.counts.callbacks += u64::from(recorded);
    }

    fn dead_letter(&mut self) {
        // Rarely: such reservations are out of the game.
        if self.random.below(3) != 0 {
            return;
        }
        let open = self.dead.iter().copied().next();
        match (open, self.random.below(2)) {
            (Some((activity, reservation)), 0) => self.resolve_dead_letter(activity, reservation),
            _ => {
                let picked = self.pick(|status| !matches!(status, Status::RolledBack(_)));
                let Some((activity, reservation)) = picked else { return };
                let note = "no address 限";
                self.event(Body::DeadLettered { activity, reservation, note });
            }
        }
    }

    /// Tries it again, or gives its units back.
    fn resolve_dead_letter(&mut self, activity: ActivityId, reservation: ReservationId) {
        let actor = if self.requests.is_multiple_of(2) { ACTOR } else { Actor::NONE };
        let resolution = match self.random.below(2) {
            0 if self.restore_dead_letter(activity, reservation) => {
                DeadLetterResolution::RolledBack
            }
            _ => DeadLetterResolution::Delivered,
        };
        self.event(Body::DeadLetterResolved { activity, reservation, resolution, actor });
    }

    /// Gives the units of a dead letter back; whether it held any unpaid.
    pub fn restore_dead_letter(
        &mut self,
        activity: ActivityId,
        reservation: ReservationId,
    ) -> bool {
        let it = self.reservation(activity, reservation);
        if it.status != Status::Reserved {
            return false;
        }
        let (reason, actor) = (RestoreReason::DeadLetter, Actor::NONE);
        let command = Command::Restore { reservation, owner: None, reason, actor };
        self.command(activity.get() - 30_001, command);
        true
    }

    /// Decides and applies; what is refused does not happen.
    pub fn command(&mut self, index: u64, command: Command<'_>) {
        let activity = activity_id(index);
        let outcome = decide(&self.shards[shard_of(activity)], activity, &command, self.at_ms);
        if let Outcome::Accepted { events } = outcome {
            for event in events.iter() {
                assert!(self.event(event.body), "{event:?} was decided");
            }
        }
    }

    /// Applies one event, where the state allows it.
    pub fn event(&mut self, body: Body<'_>) -> bool {
        let event = Event { at_ms: self.at_ms, body };
        let activity = engine::core::codec::activity(&body).unwrap();
        let shard = &mut self.shards[shard_of(activity)];
        let seq = shard.applied_seq() + 1;
        if apply(shard, &event, seq).is_err() {
            return false;
        }
        match body {
            Body::Reserved { reservation, .. } => self.reservations.push((activity, reservation)),
            Body::Restored { actor, .. } => {
                self.counts.restored += 1;
                self.counts.audit += u64::from(actor == ACTOR);
            }
            Body::DeadLettered { activity, reservation, .. } => {
                self.dead.insert((activity, reservation));
            }
            Body::DeadLetterResolved { actor, activity, reservation, resolution } => {
                self.counts.audit += u64::from(actor == ACTOR);
                if resolution == DeadLetterResolution::RolledBack {
                    self.without_order.insert(reservation);
                } else {
                    self.without_order.remove(&reservation);
                }
                self.dead.remove(&(activity, reservation));
            }
            Body::Reinstated { .. } => self.counts.reinstated += 1,
            Body::ActivityCreated { .. }
            | Body::ActivityEdited { .. }
            | Body::Published { .. }
            | Body::Unpublished { .. }
            | Body::Paused { .. }
            | Body::Resumed { .. }
            | Body::Drained { .. }
            | Body::Restocked { .. }
            | Body::Decreased { .. }
            | Body::RefundRequested { .. } => self.counts.audit += 1,
            _ => {}
        }
        let mut bytes = Vec::new();
        engine::core::codec::encode(&event, &mut bytes);
        let kind = engine::core::codec::kind(&body);
        self.frame.push((u16::try_from(shard_of(activity)).unwrap(), seq, bytes, kind));
        true
    }

    /// Makes a snapshot of everything that happened so far.
    pub fn snapshot(&mut self) {
        self.end_frame();
        let shards = (0u16..).zip(&self.shards);
        self.host.keep_images(shards.flat_map(|(id, shard)| images_of(id, shard)).collect());
    }

    /// Closes the frame: what happened since is durable.
    pub fn end_frame(&mut self) {
        if self.frame.is_empty() {
            return;
        }
        let events: Vec<_> = self
            .frame
            .iter()
            .map(|(shard, seq, bytes, kind)| {
                let event =
                    engine::core::codec::decode(*kind, engine::core::codec::FORMAT_VERSION, bytes);
                (*shard, *seq, event.unwrap())
            })
            .collect();
        self.host.append(&events);
        drop(events);
        self.frame.clear();
    }
}

pub fn shard_of(activity: ActivityId) -> usize {
    usize::try_from(activity.get() % SHARDS).unwrap()
}
