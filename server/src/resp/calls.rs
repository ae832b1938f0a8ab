//! The library's calls but for purchases: read from their words, and asked of the engine.

use engine::core::event::{Actor, DeadLetterPolicy, Definition, LatePayment};
use engine::core::ids::ActivityId;
use engine::{ActivityView, Busy, Call, Engine};

use super::archived::Question;
use super::arguments::{self, Invalid};
use super::functions::{self, Function, Invocation};
use super::request::Words;
use super::turn::Answer;

/// Time to pay in activities made by `sluice_warm`, which names none: as over HTTP.
const PAYMENT_TTL_MS: u64 = 600_000;

/// A call whose arguments have the right shape.
#[derive(Clone, Copy)]
pub(super) enum Request<'a> {
    Change { call: Call<'a>, codes: &'static functions::Codes },
    Warm { actor: Actor<'a>, total: u32, definition: Definition<'a> },
    Get(engine::core::ids::ReservationId),
    Activity,
}

impl<'a> Request<'a> {
    /// The call that an invocation other than a purchase is.
    ///
    /// # Errors
    /// [`Invalid`], where an argument has another shape.
    pub(super) fn read(invocation: &Invocation<'a>, actor: &'a str) -> Result<Self, Invalid> {
        let words = invocation.arguments;
        let actor = Actor { name: actor, request_id: "" };
        let change = |call, codes| Self::Change { call, codes };
        let switch = |call| Self::Change { call, codes: &functions::SWITCH };
        let operation = || {
            let op = arguments::text(words.at(0), "op_id")?;
            Ok::<_, Invalid>((op, arguments::units(words.at(1), "delta")?))
        };
        Ok(match invocation.signature.function {
            Function::Reserve => unreachable!("a purchase goes by another way"),
            Function::Confirm => {
                let reservation = arguments::reservation(words.at(0))?;
                let payment_no = arguments::text(words.at(1), "payment_no")?;
                change(Call::Confirm { reservation, payment_no }, &functions::CONFIRM)
            }
            Function::Restore => {
                let reservation = arguments::reservation(words.at(0))?;
                change(Call::Restore { reservation }, &functions::RESTORE)
            }
            Function::Publish => switch(Call::Publish { actor }),
            Function::Unpublish => switch(Call::Unpublish { actor }),
            Function::Pause => switch(Call::Pause { actor }),
            Function::Resume => switch(Call::Resume { actor }),
            Function::Restock => {
                let (op, quantity) = operation()?;
                change(Call::Restock { actor, op, quantity }, &functions::CHANGE_TOTAL)
            }
            Function::Decrease => {
                let (op, quantity) = operation()?;
                change(Call::Decrease { actor, op, quantity }, &functions::CHANGE_TOTAL)
            }
            Function::Get => Self::Get(arguments::reservation(words.at(0))?),
            Function::Activity => Self::Activity,
            Function::Warm => {
                let (total, definition) = definition(words)?;
                Self::Warm { actor, total, definition }
            }
        })
    }

    /// The same, of an activity that has left memory, where SQL answers it.
    pub(super) fn about_archived(self, activity: ActivityId) -> Option<Question> {
        Some(match self {
            Self::Change { call: Call::Confirm { reservation, payment_no }, .. } => {
                let payment_no = payment_no.to_owned();
                Question::Confirm { activity, reservation, payment_no }
            }
            Self::Change { call: Call::Restore { reservation }, .. } => {
                Question::Restore { activity, reservation }
            }
            Self::Get(reservation) => Question::Get { activity, reservation },
            Self::Activity => Question::Activity(activity),
            Self::Change { .. } | Self::Warm { .. } => return None,
        })
    }

    /// Asks the engine.
    ///
    /// # Errors
    /// [`Busy`]
    pub(super) fn ask(self, engine: &Engine, id: ActivityId) -> Result<Answer, Busy> {
        Ok(match self {
            Self::Change { call, codes } => {
                Answer::Called { pending: engine.call(id, call)?, codes }
            }
            Self::Warm { actor, total, definition } => {
                Answer::Made(engine.create(Some(id), actor, total, definition)?)
            }
            Self::Get(reservation) => Answer::Reservation(engine.look(id, |shard| {
                let adopted = shard.activity(id)?.adopted_reservation(reservation);
                let brought = adopted.map(|it| it.order_no.clone()).unwrap_or_default();
                Some((shard.reservation(id, reservation)?, brought))
            })?),
            Self::Activity => Answer::Activity(engine.look(id, |shard| {
                shard.activity(id).map(|activity| ActivityView::live(id, activity))
            })?),
        })
    }
}

fn definition(words: Words<'_>) -> Result<(u32, Definition<'static>), Invalid> {
    let sku = arguments::sku(words.at(0))?;
    let price = arguments::price(words.at(1))?;
    let total = arguments::units(words.at(2), "total")?;
    let definition = Definition {
        sku,
        title: "",
        price,
        per_user_limit: arguments::units(words.at(3), "limit")?,
        start_ms: arguments::instant(words.at(4), "start_ms")?,
        end_ms: arguments::instant(words.at(5), "end_ms")?,
        payment_ttl_ms: PAYMENT_TTL_MS,
        late_payment: LatePayment::ReinstateOrRefund,
        dead_letter: DeadLetterPolicy::Rollback,
        publish_at_ms: 0,
    };
    Ok((total, definition))
}
