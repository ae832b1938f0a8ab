//! How an answer looks on the wire.

use engine::core::command::Reservation;
use engine::core::event::Status;
use engine::core::ids::OrderPrefix;
use engine::{ActivityView, BatchAnswer, Busy, Engine, LogUnavailable, Pending};

use super::functions::{self, Code, Codes};
use super::keys;
use super::reply::Reply;
use super::turn::{Answer, PurchaseOutcome};

/// Digits of the id in an order number.
const ID_DIGITS: usize = 17;

/// Nothing was decided, or nobody knows: the first word tells clients which.
pub(super) fn busy(busy: Busy, reply: &mut Reply<'_>) {
    reply.error(busy_text(busy));
}

/// See [`busy`].
pub(super) const fn busy_text(busy: Busy) -> &'static str {
    match busy {
        Busy::Overloaded => "OVERLOADED more is in flight than the log takes; nothing was reserved",
        Busy::LogUnavailable => "LOGUNAVAILABLE the outcome is unknown; repeat with the same id",
    }
}

/// `[code, reservation_id, order_no, remaining]`
pub(super) fn purchase(
    outcome: PurchaseOutcome,
    engine: Option<&Engine>,
    prefix: OrderPrefix,
    reply: &mut Reply<'_>,
) {
    let answer = match outcome {
        Ok(answer) => answer,
        Err(error) => return busy(error, reply),
    };
    // What was reserved here has the number of its id; what was taken over may have brought one.
    let (code, reservation, brought) = match answer.answer {
        BatchAnswer::Reserved(id) => (functions::RESERVED, Some(id), None),
        BatchAnswer::Replayed(id) => {
            let brought = engine.and_then(|engine| engine.brought_order_no(id));
            (functions::REPLAYED, Some(id), brought)
        }
        BatchAnswer::Refused(refusal) => {
            match functions::code(functions::RESERVE_REFUSED, refusal) {
                Some(code) => (code, None, None),
                None => return refused(refusal, reply),
            }
        }
    };
    reply.array(4);
    reply.integer(code);
    match reservation {
        None => {
            reply.unsigned(0);
            reply.bulk(b"");
        }
        Some(id) => {
            reply.unsigned(id.get());
            match brought {
                Some(brought) => reply.bulk(brought.as_bytes()),
                None => order_no(prefix, id.get(), reply),
            }
        }
    }
    reply.unsigned(answer.remaining.into());
}

/// The order number of a reservation: its id in seventeen digits behind the prefix, written without
/// the standard library's formatter, which would cost as much as the rest of an answer.
fn order_no(prefix: OrderPrefix, id: u64, reply: &mut Reply<'_>) {
    const ZEROS: &[u8] = &[b'0'; ID_DIGITS];
    let (mut prefix_digits, mut id_digits) = (itoa::Buffer::new(), itoa::Buffer::new());
    let prefix = prefix_digits.format(prefix.get()).as_bytes();
    let id = id_digits.format(id).as_bytes();
    // Ids are below 2^53, which has sixteen digits.
    let zeros = ZEROS.get(id.len()..).unwrap_or_default();
    reply.bulk_of([prefix, zeros, id]);
}

/// An answer that was held.
pub(super) fn held(
    answer: Answer,
    engine: Option<&Engine>,
    prefix: OrderPrefix,
    reply: &mut Reply<'_>,
) {
    match answer {
        Answer::Written(_) | Answer::Purchase { .. } | Answer::Archived(_) => {
            unreachable!("those are not held")
        }
        Answer::Called { pending, codes } => match durable(pending, engine) {
            Err(LogUnavailable) => busy(Busy::LogUnavailable, reply),
            Ok(Err(refusal)) => match functions::code(codes.refused, refusal) {
                Some(code) => reply.integer(code),
                None => refused(refusal, reply),
            },
            Ok(Ok(called)) => called_code(codes, called, reply),
        },
        Answer::Made(pending) => match durable(pending, engine) {
            Err(LogUnavailable) => busy(Busy::LogUnavailable, reply),
            Ok(Ok(_)) => reply.integer(functions::WARM_MADE),
            Ok(Err(engine::core::command::Refusal::ActivityExists)) => {
                reply.integer(functions::WARM_KEPT);
            }
            Ok(Err(refusal)) => refused(refusal, reply),
        },
        Answer::Reservation(pending) => match durable(pending, engine) {
            Err(LogUnavailable) => busy(Busy::LogUnavailable, reply),
            Ok(found) => match found {
                Some((found, brought)) => reservation(&found, &brought, prefix, reply),
                None => reply.map(0),
            },
        },
        Answer::Activity(pending) => match durable(pending, engine) {
            Err(LogUnavailable) => busy(Busy::LogUnavailable, reply),
            Ok(found) => activity(found.as_ref(), reply),
        },
        Answer::Key { pending, question } => match durable(pending, engine) {
            Err(LogUnavailable) => busy(Busy::LogUnavailable, reply),
            Ok(found) => {
                let now_ms = engine.map_or(0, Engine::now_ms);
                keys::answer(question, found, now_ms, reply);
            }
        },
    }
}

fn durable<T>(pending: Pending<T>, engine: Option<&Engine>) -> Result<T, LogUnavailable> {
    match engine {
        Some(engine) => engine.commit_until(pending),
        None => Err(LogUnavailable),
    }
}

fn refused(refusal: engine::core::command::Refusal, reply: &mut Reply<'_>) {
    reply.error_of(format_args!("INVALID {}", functions::reason(refusal)));
}

fn called_code(codes: &Codes, called: engine::Called, reply: &mut Reply<'_>) {
    match if called.repeated { codes.again } else { codes.done } {
        Code::Is(code) => reply.integer(code),
        Code::Available => reply.unsigned(called.figures.available.into()),
    }
}

/// `brought` is the order number that the reservation was taken over with; empty where it has that
/// of its id.
fn reservation(it: &Reservation, brought: &str, prefix: OrderPrefix, reply: &mut Reply<'_>) {
    let numbers = [
        ("id", it.id.get()),
        ("activity", it.activity.get()),
        ("user", it.user.get()),
        ("sku", it.sku.get()),
        ("price", it.price),
        ("quantity", it.quantity.into()),
        ("created_ms", it.created_ms),
    ];
    reply.map(numbers.len() + 3);
    for (name, number) in numbers {
        reply.text(name);
        reply.unsigned(number);
    }
    reply.text("order_no");
    match brought {
        "" => order_no(prefix, it.id.get(), reply),
        brought => reply.text(brought),
    }
    reply.text("status");
    reply.text(match it.status {
        Status::Reserved => "reserved",
        Status::Confirmed => "confirmed",
        Status::RolledBack(_) => "rolled_back",
    });
    reply.text("payment_no");
    reply.text(&it.payment_no);
}

/// A map of numbers, then texts.
pub(super) fn fields(numbers: &[(&str, u64)], texts: &[(&str, &str)], reply: &mut Reply<'_>) {
    reply.map(numbers.len() + texts.len());
    for (name, number) in numbers {
        reply.text(name);
        reply.unsigned(*number);
    }
    for (name, text) in texts {
        reply.text(name);
        reply.text(text);
    }
}

fn activity(found: Option<&ActivityView>, reply: &mut Reply<'_>) {
    let Some(it) = found else { return reply.map(0) };
    let (terms, figures) = (&it.terms, it.figures);
    let numbers = [
        ("id", it.id.get()),
        ("sku", terms.sku.get()),
        ("price", terms.price),
        ("total", it.total()),
        ("available", figures.available.into()),
        ("locked", figures.locked.into()),
        ("sold", figures.sold.into()),
        ("limit", terms.per_user_limit.into()),
        ("start_ms", terms.start_ms),
        ("end_ms", terms.end_ms),
        ("on_sale", it.on_sale.into()),
        ("paused", (it.paused || it.drained).into()),
    ];
    fields(&numbers, &[], reply);
}
