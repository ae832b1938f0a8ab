//! One turn of a loop: everything that had arrived is decided, then made durable, then answered.
//!
//! Answers are kept in the order in which their requests came, each with the connection it goes
//! to, and are written when the turn ends: those that rest on the log wait for it there, and the
//! first that is not durable yet makes the loop commit, with all that was decided in the turn. So
//! one durable write answers a whole turn, and a turn of refusals on durable state writes none.
//!
//! Purchases of one activity that follow each other, from whichever connections, are one batch:
//! one lock, one hold of the log. Anything else that the engine is asked ends the batch first, so
//! that every connection's commands happen in its order.

use std::ops::Range;

use engine::core::command::{Refusal, Reservation};
use engine::core::event::Front;
use engine::core::ids::{ActivityId, OrderPrefix, UserId};
use engine::{
    ActivityView, BatchAnswer, BatchRequest, Busy, Called, CountedAnswer, Engine, LogUnavailable,
    Pending, Purchase, Refused,
};

use super::archived::Question;
use super::blacklist::Blacklist;
use super::functions::Codes;
use super::keys;
use super::render;
use super::reply::{Protocol, Reply};

/// Purchases of one batch: its events are a part of what may be in flight.
const BATCH_MAX: usize = 1024;

/// Answers of one turn: about a frame of the log.
const ANSWERS_MAX: usize = 8192;

/// Bytes of answers that rest on nothing: they may be longer than what asks for them.
const WRITTEN_BYTES_MAX: usize = 1 << 20;

/// Where an answer goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Address {
    /// The connection's place in the loop's table.
    pub(super) connection: usize,
    /// The version that the connection spoke when it asked.
    pub(super) protocol: Protocol,
}

/// An answer that was decided and may not be told yet.
pub(super) enum Answer {
    /// Written already; it rests on nothing.
    Written(Range<usize>),
    /// One of a batch of purchases.
    Purchase { batch: usize, index: usize },
    /// A call that changes something.
    Called { pending: Pending<Result<Called, Refusal>>, codes: &'static Codes },
    /// `sluice_warm`.
    Made(Pending<Result<ActivityView, Refusal>>),
    /// `sluice_get`, with the order number that the reservation brought along.
    Reservation(Pending<Option<(Reservation, Box<str>)>>),
    /// `sluice_activity`.
    Activity(Pending<Option<ActivityView>>),
    /// A compatibility key.
    Key { pending: Pending<Option<keys::Entry>>, question: keys::Question },
    /// About an activity that has left memory: SQL is asked.
    Archived(Question),
}

/// What came of one purchase.
pub(super) type PurchaseOutcome = Result<CountedAnswer, Busy>;

/// Where answers are gathered.
pub(super) trait Outputs {
    /// The output of a connection that asked in this turn.
    fn output(&mut self, connection: usize) -> &mut Vec<u8>;

    /// Has SQL asked: the answer takes its place among those of its connection.
    fn ask(&mut self, to: Address, question: Question);
}

/// The answers of a turn.
#[derive(Default)]
pub(super) struct Turn {
    answers: Vec<(Address, Answer)>,
    written: Vec<u8>,
    group: Group,
    batches: Vec<Batch>,
    /// Users who may not buy. It outlives the turn.
    pub(super) blacklist: Blacklist,
}

/// Purchases that came one after the other.
#[derive(Default)]
struct Group {
    /// Their activity, and the instant that their callers gave.
    of: Option<(ActivityId, Option<u64>)>,
    purchases: Vec<(UserId, u32, Range<usize>)>,
    request_ids: String,
}

enum Batch {
    Held(Pending<Vec<CountedAnswer>>),
    Told(Vec<PurchaseOutcome>),
    /// The activity has left memory: what each purchase comes to, SQL knows. Each is taken once.
    Archived(Vec<Option<Question>>),
}

impl Turn {
    /// Whether nothing was asked.
    pub(super) fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }

    /// Whether as much was asked as one turn should hold: the rest has the next.
    pub(super) fn is_full(&self) -> bool {
        self.answers.len() >= ANSWERS_MAX || self.written.len() >= WRITTEN_BYTES_MAX
    }

    /// Answers what rests on nothing.
    pub(super) fn write(&mut self, to: Address, write: impl FnOnce(&mut Reply<'_>)) {
        let from = self.written.len();
        write(&mut Reply { out: &mut self.written, protocol: to.protocol });
        self.answers.push((to, Answer::Written(from..self.written.len())));
    }

    /// Answers once durable.
    pub(super) fn hold(&mut self, to: Address, answer: Answer) {
        self.answers.push((to, answer));
    }

    /// Takes a purchase into the present batch, or into the next.
    pub(super) fn purchase(
        &mut self,
        to: Address,
        engine: &Engine,
        of: (ActivityId, Option<u64>),
        (user, request_id, quantity): (UserId, &str, u32),
    ) {
        if self.group.of != Some(of) || self.group.purchases.len() == BATCH_MAX {
            self.decide(engine);
            self.group.of = Some(of);
        }
        let group = &mut self.group;
        let from = group.request_ids.len();
        group.request_ids.push_str(request_id);
        let (batch, index) = (self.batches.len(), group.purchases.len());
        group.purchases.push((user, quantity, from..group.request_ids.len()));
        self.answers.push((to, Answer::Purchase { batch, index }));
    }

    /// Decides the purchases gathered so far: before anything else that asks the engine.
    pub(super) fn decide(&mut self, engine: &Engine) {
        let Some((activity, at_ms)) = self.group.of.take() else { return };
        let Group { purchases, request_ids, .. } = &self.group;
        let request = |(user, quantity, id): &(UserId, u32, Range<usize>)| BatchRequest {
            user: *user,
            request_id: &request_ids[id.clone()],
            quantity: *quantity,
        };
        let requests: Vec<_> = purchases.iter().map(request).collect();
        let mut batch = match at_ms {
            None => reserve(engine, activity, &requests),
            Some(at_ms) => reserve(&engine.at(at_ms), activity, &requests),
        };
        // Looked at afterwards: else one that was archived in between would be refused what it had
        // bought. Of what is archived nothing was taken here.
        if engine.archived(activity).is_some() {
            let question = |request: &BatchRequest<'_>| {
                let &BatchRequest { user, request_id, quantity } = request;
                let request_id = request_id.to_owned();
                Some(Question::Purchase { activity, user, request_id, quantity })
            };
            batch = Batch::Archived(requests.iter().map(question).collect());
        }
        self.batches.push(batch);
        self.group.purchases.clear();
        self.group.request_ids.clear();
    }

    /// Decides the purchases gathered so far if one of them is by `user`.
    pub(super) fn decide_those_of(&mut self, engine: &Engine, user: UserId) {
        if self.group.purchases.iter().any(|(buyer, ..)| *buyer == user) {
            self.decide(engine);
        }
    }

    /// Ends the turn: makes durable what its answers rest on, and writes each into the output of
    /// its connection. `seen` is shown every purchase.
    pub(super) fn finish(
        &mut self,
        engine: Option<&Engine>,
        outputs: &mut impl Outputs,
        mut seen: impl FnMut(&PurchaseOutcome),
    ) {
        let prefix = engine.map_or(OrderPrefix::DEFAULT, Engine::order_prefix);
        if let Some(engine) = engine {
            self.decide(engine);
        }
        let mut batches: Vec<Told> =
            self.batches.drain(..).map(|batch| batch.told(engine)).collect();
        for (to, answer) in self.answers.drain(..) {
            let Address { connection, protocol } = to;
            let answer = match answerable(answer, &mut batches) {
                Ok(answer) => answer,
                Err(question) => {
                    outputs.ask(to, question);
                    continue;
                }
            };
            let mut reply = Reply { out: outputs.output(connection), protocol };
            match answer {
                Answer::Written(range) => reply.out.extend_from_slice(&self.written[range]),
                Answer::Purchase { batch, index } => {
                    let outcome = match batches.get(batch) {
                        Some(Told::Durable(answers)) => Ok(answers[index]),
                        Some(Told::One(outcomes)) => outcomes[index],
                        Some(Told::Nothing | Told::Archived(_)) | None => Err(Busy::LogUnavailable),
                    };
                    seen(&outcome);
                    render::purchase(outcome, engine, prefix, &mut reply);
                }
                held => render::held(held, engine, prefix, &mut reply),
            }
        }
        self.written.clear();
    }
}

/// What may be told of a batch.
enum Told {
    /// All of it: it is durable.
    Durable(Vec<CountedAnswer>),
    /// What came of each purchase by itself.
    One(Vec<PurchaseOutcome>),
    /// The log failed first.
    Nothing,
    /// SQL says.
    Archived(Vec<Option<Question>>),
}

impl Batch {
    fn told(self, engine: Option<&Engine>) -> Told {
        match (self, engine) {
            (Self::Told(outcomes), _) => Told::One(outcomes),
            (Self::Held(pending), Some(engine)) => {
                engine.commit_until(pending).map_or(Told::Nothing, Told::Durable)
            }
            (Self::Held(_), None) => Told::Nothing,
            (Self::Archived(questions), _) => Told::Archived(questions),
        }
    }
}

/// The answer, where it can be told.
///
/// # Errors
/// What SQL must be asked first.
fn answerable(answer: Answer, batches: &mut [Told]) -> Result<Answer, Question> {
    match answer {
        Answer::Archived(question) => Err(question),
        Answer::Purchase { batch, index } => {
            let asked = match batches.get_mut(batch) {
                Some(Told::Archived(questions)) => questions[index].take(),
                _ => None,
            };
            asked.map_or(Ok(Answer::Purchase { batch, index }), Err)
        }
        answer => Ok(answer),
    }
}

/// Decides a batch. Where the log has no room for it, what is in flight is made durable, which
/// makes room; where others fill it again, each purchase is tried by itself: a repeat and a
/// refusal need no room.
fn reserve(engine: &Engine, activity: ActivityId, requests: &[BatchRequest<'_>]) -> Batch {
    for _ in 0..2 {
        match engine.reserve_batch_counted(activity, requests, Front::Resp) {
            Ok(pending) => return Batch::Held(pending),
            Err(Busy::Overloaded) if engine.commit().is_ok() => {}
            Err(_) => break,
        }
    }
    let one = |request: &BatchRequest<'_>| {
        let &BatchRequest { user, request_id, quantity } = request;
        let pending = engine.reserve(activity, user, request_id, quantity, Front::Resp)?;
        let told = engine.commit_until(pending).map_err(|LogUnavailable| Busy::LogUnavailable)?;
        Ok(answer_of(told))
    };
    Batch::Told(requests.iter().map(one).collect())
}

fn answer_of(told: Result<Purchase, Refused>) -> CountedAnswer {
    match told {
        Ok(Purchase { replayed, reservation }) => {
            let reservation = reservation.reservation;
            let (id, remaining) = (reservation.id, reservation.remaining);
            let answer =
                if replayed { BatchAnswer::Replayed(id) } else { BatchAnswer::Reserved(id) };
            CountedAnswer { answer, remaining }
        }
        Err(Refused { refusal, remaining }) => {
            CountedAnswer { answer: BatchAnswer::Refused(refusal), remaining }
        }
    }
}
