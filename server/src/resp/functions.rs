//! The calls of the function library: which there are, what they take, and what they answer.

use engine::core::command::Refusal;
use engine::core::limits::OPERATIONS_PER_ACTIVITY_MAX;

use super::access::Class;
use super::arguments::{Invalid, is_name};
use super::request::Words;

/// A call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Function {
    Reserve,
    Confirm,
    Restore,
    Warm,
    Publish,
    Unpublish,
    Pause,
    Resume,
    Decrease,
    Restock,
    Get,
    Activity,
}

/// A call as it is written.
pub(super) struct Signature {
    pub(super) function: Function,
    pub(super) name: &'static str,
    /// Behind the activity; one more, `now_ms`, may follow.
    pub(super) arguments: &'static [&'static str],
    /// Whether `FCALL_RO` may not make it.
    pub(super) writes: bool,
    /// Who may make it at least.
    pub(super) class: Class,
}

const fn writes(
    function: Function,
    name: &'static str,
    arguments: &'static [&'static str],
) -> Signature {
    Signature { function, name, arguments, writes: true, class: Class::Admin }
}

/// All calls, the one that a sale is made of first.
pub(super) const SIGNATURES: &[Signature] = &[
    Signature {
        function: Function::Reserve,
        name: "sluice_reserve",
        arguments: &["user", "request_id", "quantity"],
        writes: true,
        class: Class::Buyer,
    },
    writes(Function::Confirm, "sluice_confirm", &["reservation_id", "payment_no"]),
    writes(Function::Restore, "sluice_restore", &["reservation_id"]),
    writes(
        Function::Warm,
        "sluice_warm",
        &["sku", "price", "total", "limit", "start_ms", "end_ms"],
    ),
    writes(Function::Publish, "sluice_publish", &[]),
    writes(Function::Unpublish, "sluice_unpublish", &[]),
    writes(Function::Pause, "sluice_pause", &[]),
    writes(Function::Resume, "sluice_resume", &[]),
    writes(Function::Decrease, "sluice_decrease", &["op_id", "delta"]),
    writes(Function::Restock, "sluice_restock", &["op_id", "delta"]),
    Signature {
        function: Function::Get,
        name: "sluice_get",
        arguments: &["reservation_id"],
        writes: false,
        class: Class::Buyer,
    },
    Signature {
        function: Function::Activity,
        name: "sluice_activity",
        arguments: &[],
        writes: false,
        class: Class::Admin,
    },
];

/// A call with its activity, its arguments, and the time its caller gave.
pub(super) struct Invocation<'a> {
    pub(super) signature: &'static Signature,
    pub(super) activity: &'a [u8],
    pub(super) arguments: Words<'a>,
    pub(super) now_ms: Option<&'a [u8]>,
}

/// Why what stands behind `FCALL` is no call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum CallError {
    #[error("ERR Function not found")]
    NotFound,
    #[error("ERR Bad number of keys provided")]
    BadKeyCount,
    #[error("ERR Number of keys can't be negative")]
    NegativeKeyCount,
    #[error("ERR Number of keys can't be greater than number of args")]
    KeyCountBeyond,
    #[error("ERR Can not execute a script with write flag using *_ro command.")]
    Writes,
    /// The counts are not the library's.
    #[error("INVALID {}", Usage(.0))]
    Usage(&'static str),
}

struct Usage<'a>(&'a &'static str);

impl std::fmt::Display for Usage<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} takes 1 key, the activity, then", self.0)?;
        let signature = SIGNATURES.iter().find(|it| it.name == *self.0);
        let arguments = signature.map_or(&[][..], |it| it.arguments);
        arguments.iter().try_for_each(|argument| write!(f, " {argument}"))?;
        f.write_str(" [now_ms]")
    }
}

fn key_count(text: &[u8]) -> Result<usize, CallError> {
    let count = std::str::from_utf8(text).ok().and_then(|text| text.parse::<i64>().ok());
    match count.ok_or(CallError::BadKeyCount)? {
        negative if negative < 0 => Err(CallError::NegativeKeyCount),
        keys => Ok(usize::try_from(keys).unwrap_or(usize::MAX)),
    }
}

/// The call in the words of an `FCALL` or `FCALL_RO`, which are 3 at least.
///
/// # Errors
/// [`CallError`], in the order in which Redis looks.
pub(super) fn invocation(words: Words<'_>, read_only: bool) -> Result<Invocation<'_>, CallError> {
    let name = words.at(1);
    let named = SIGNATURES.iter().find(|it| is_name(it.name, name));
    let signature = named.ok_or(CallError::NotFound)?;
    let keys = match words.at(2) {
        b"1" => 1,
        text => key_count(text)?,
    };
    let rest = words.skip(3);
    if keys > rest.len() {
        return Err(CallError::KeyCountBeyond);
    }
    if read_only && signature.writes {
        return Err(CallError::Writes);
    }
    let given = rest.len() - keys;
    let wanted = signature.arguments.len();
    if keys != 1 || given < wanted || given > wanted + 1 {
        return Err(CallError::Usage(signature.name));
    }
    let arguments = rest.skip(1);
    let now_ms = (given > wanted).then(|| arguments.at(wanted));
    Ok(Invocation { signature, activity: rest.at(0), arguments, now_ms })
}

/// What a call that changes something answers.
pub(super) struct Codes {
    /// It was done.
    pub(super) done: Code,
    /// It had been done before.
    pub(super) again: Code,
    /// It was refused for this; any other refusal is an error.
    pub(super) refused: &'static [(Refusal, i64)],
}

/// A number that is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Code {
    /// This one.
    Is(i64),
    /// The units available.
    Available,
}

/// Of `sluice_reserve`, which answers more than a number.
pub(super) const RESERVED: i64 = 1;
/// The same request made the reservation before.
pub(super) const REPLAYED: i64 = 2;

/// Out of the activity's window.
pub(super) const ENDED: i64 = -1;
/// New purchases are stopped.
pub(super) const PAUSED: i64 = -4;
/// The request id made another purchase.
pub(super) const REUSED: i64 = -6;

/// The codes of purchases that are refused.
pub(super) const RESERVE_REFUSED: &[(Refusal, i64)] = &[
    (Refusal::SoldOut, 0),
    (Refusal::NotStarted, ENDED),
    (Refusal::Ended, ENDED),
    (Refusal::LimitReached, -2),
    (Refusal::OffSale, -3),
    (Refusal::Paused, PAUSED),
    (Refusal::UnknownActivity, -5),
    (Refusal::RequestIdReused, REUSED),
];

pub(super) const CONFIRM: Codes = Codes {
    done: Code::Is(1),
    again: Code::Is(2),
    refused: &[
        (Refusal::PaidByAnother, 3),
        (Refusal::RolledBack, -1),
        (Refusal::UnknownReservation, 0),
    ],
};

pub(super) const RESTORE: Codes = Codes {
    done: Code::Is(1),
    again: Code::Is(2),
    refused: &[(Refusal::AlreadyPaid, 3), (Refusal::UnknownReservation, 0)],
};

/// The library has forgotten what is archived here: to its callers it is unknown.
pub(super) const SWITCH: Codes = Codes {
    done: Code::Is(1),
    again: Code::Is(1),
    refused: &[(Refusal::UnknownActivity, 0), (Refusal::Ended, 0)],
};

pub(super) const CHANGE_TOTAL: Codes =
    Codes { done: Code::Available, again: Code::Available, refused: &[] };

pub(super) const WARM_MADE: i64 = 1;
pub(super) const WARM_KEPT: i64 = 0;

/// The code of a refusal in a table.
pub(super) fn code(table: &[(Refusal, i64)], refusal: Refusal) -> Option<i64> {
    table.iter().find(|(known, _)| *known == refusal).map(|(_, code)| *code)
}

/// What is wrong with a call that has no code for its refusal.
pub(super) fn reason(refusal: Refusal) -> Invalid {
    const _: () = assert!(OPERATIONS_PER_ACTIVITY_MAX == 65_536, "the text below says so");
    Invalid::Because(match refusal {
        Refusal::Invalid(text) => text,
        Refusal::UnknownActivity => "activity is unknown",
        Refusal::Ended => "the activity is over",
        Refusal::RequestIdReused => "op_id was used with another operation",
        Refusal::TooManyOperations => "the activity remembers 65536 operations, all it can",
        Refusal::StockBelowReserved => "the total would fall below what is reserved and sold",
        Refusal::OrdinalsExhausted => "all ordinals are used: no activity can be added",
        _ => "the activity does not allow it now",
    })
}
