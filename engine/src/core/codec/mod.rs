//! The bytes of events, format version 1.
//!
//! ```text
//! | off | size | field                                                    |
//! |-----|------|----------------------------------------------------------|
//! | 0   | 8    | at_ms: when it was decided, Unix milliseconds            |
//! | 8   | ..   | the body's fields, in the order of the table `layout!`   |
//! ```
//!
//! The kind and the kind's version stand in the record's header. Integers are little endian. No
//! field is optional or padded; a body ends where its last field ends. Fields are coded so:
//!
//! ```text
//! | field                 | bytes    | valid                                            |
//! |-----------------------|----------|--------------------------------------------------|
//! | Activity User Sku     | 8        | 1..=2^53-1                                       |
//! | MaybeActivity         | 8        | 0 for none, else as Activity                     |
//! | MaybeReservation      | 8        | 0 for none, else as AnyReservation               |
//! | Reservation           | 8        | 1..=2^53-1, low 32 bits (the position) not 0     |
//! | AnyReservation        | 8        | 1..=2^53-1: another system gave it               |
//! | ActivityOrdinal       | 4        | 1..2^21                                          |
//! | Units / Quantity      | 4        | 0..=2^31-1 / 1..=2^31-1                          |
//! | UnitFigures           | 3 x 4    | available, locked, sold; their sum is Units      |
//! | Version               | 4        | from 1                                           |
//! | Money / Time / Number | 8        | ..=2^53-1 / ..=9999-12-31T23:59:59.999Z / any    |
//! | Attempt / Flag        | 1        | ..=99 / 0 or 1                                   |
//! | Code                  | 1        | a code of its enum                               |
//! | Text<MIN, MAX>        | 2 + n    | u16 length in MIN..=MAX, then UTF-8              |
//! | Short<MIN, MAX>       | 1 + n    | u8 length in MIN..=MAX, then UTF-8               |
//! | Bytes<MAX>            | 2 + n    | u16 length ..=MAX, then bytes                    |
//! | DecreaseOp            | 1 + n    | as Short; empty: an edit did it                  |
//! | By                    | 2 Shorts | the actor's name, its request's id               |
//! | MaybeBy               | 2 Shorts | as By; no name, no request: no operator did it   |
//! | Terms                 | ..       | an activity's definition, see `fields`           |
//! | Marks                 | 2 + 10 n | u16 count, then (u16 shard, u64 sequence)        |
//! ```
//!
//! Rules: (1) a kind keeps its number for ever; (2) a change of a kind's bytes is a new version of
//! that kind; (3) the reader takes exactly what the writer writes: every bound is checked by one
//! and the same function on both sides; (4) no reader passes over a kind or version that it does
//! not know: what it says may have moved units, and a state without it is another one.

mod fields;
pub mod images;
mod purchase;
mod reader;
mod state_fields;
mod texts;
mod writer;

use self::fields::{
    Activity, ActivityOrdinal, AnyReservation, Attempt, By, Code, DecreaseOp, Field, Flag, Hash,
    Marks, MaybeActivity, MaybeBy, MaybeReservation, Money, Number, Quantity, Reservation, Terms,
    Time, UnitFigures, Units, User, Version,
};
pub use self::purchase::{PURCHASE_KIND, Purchase};

use self::reader::Reader;
use self::texts::{Bytes, Short, Text};
use self::writer::Writer;
use super::event::{
    Body, DeadLetterResolution, Event, Front, PaymentVerdict, RefundScope, RestoreReason, Status,
};
use super::ids::ActivityId;
use super::limits::{
    CALLBACK_BYTES_MAX, CONTROL_KEY_BYTES_MAX, CONTROL_VALUE_BYTES_MAX, EVENT_BYTES_MAX,
    NAME_BYTES_MAX, NOTE_BYTES_MAX, ORDER_NO_BYTES_MAX, PAYMENT_NO_BYTES_MAX, REFUND_NO_BYTES_MAX,
    REQUEST_ID_BYTES_MAX,
};

/// The version of every kind that this build writes and reads.
pub const FORMAT_VERSION: u8 = 1;

/// The kind of a purchase.
const RESERVED: u8 = 16;

/// A client's request id, or the key of an operation.
type RequestId = Short<1, REQUEST_ID_BYTES_MAX>;
type PaymentNo = Short<1, PAYMENT_NO_BYTES_MAX>;
type RefundNo = Short<1, REFUND_NO_BYTES_MAX>;
/// A provider's number of a transaction.
type Transaction = Short<0, PAYMENT_NO_BYTES_MAX>;
type Name = Short<1, NAME_BYTES_MAX>;
type Note = Text<0, NOTE_BYTES_MAX>;

/// Why bytes are no event of this format. Where they came from a log whose checksums hold, a
/// newer version wrote them or this program has a fault: nothing may be guessed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// No event has this kind.
    #[error("event kind {kind} is unknown: use the newer program that wrote it")]
    UnknownKind {
        /// The kind in the record's header.
        kind: u8,
    },
    /// The kind is known, its version is not.
    #[error(
        "version {version} of event kind {kind} is unknown: use the newer program that wrote it"
    )]
    UnknownVersion {
        /// The kind in the record's header.
        kind: u8,
        /// The kind's version in the record's header.
        version: u8,
    },
    /// The bytes end within a field.
    #[error("an event of kind {kind} ends within its field {field}")]
    Truncated {
        /// The kind in the record's header.
        kind: u8,
        /// The field.
        field: &'static str,
    },
    /// A field's value is outside its bounds, or its text is not UTF-8.
    #[error("an event of kind {kind} holds an invalid {field}")]
    Invalid {
        /// The kind in the record's header.
        kind: u8,
        /// The field.
        field: &'static str,
    },
    /// Bytes follow the last field.
    #[error("an event of kind {kind} is followed by {bytes} more bytes")]
    Trailing {
        /// The kind in the record's header.
        kind: u8,
        /// How many.
        bytes: usize,
    },
}

macro_rules! layout {
    ($($kind:literal $body:ident { $($field:ident: $codec:ty),* $(,)? })*) => {
        /// Every kind with its name, ascending.
        pub const KINDS: &[(u8, &str)] = &[$(($kind, stringify!($body))),*];

        /// The byte that stands for the kind of `body` in a record's header.
        pub const fn kind(body: &Body<'_>) -> u8 {
            match body { $(Body::$body { .. } => $kind,)* }
        }

        fn put(event: &Event<'_>, out: &mut Vec<u8>) {
            let mut writer = Writer::new(out);
            let fits = Time::fits(event.at_ms);
            Time::put(event.at_ms, &mut writer);
            match event.body {
                $(Body::$body { $($field),* } => {
                    if !(fits $(&& <$codec>::fits($field))*) {
                        outside(event);
                    }
                    $(<$codec>::put($field, &mut writer);)*
                    writer.flush();
                })*
            }
        }

        fn check_body(body: &Body<'_>) -> Result<(), &'static str> {
            match *body {
                $(Body::$body { $($field),* } => {
                    $(if !<$codec>::fits($field) { return Err(stringify!($field)); })*
                })*
            }
            Ok(())
        }

        fn take<'a>(kind: u8, reader: &mut Reader<'a>) -> Result<Body<'a>, CodecError> {
            Ok(match kind {
                $($kind => Body::$body {
                    $($field: take_field::<$codec>(kind, stringify!($field), reader)?),*
                },)*
                _ => return Err(CodecError::UnknownKind { kind }),
            })
        }
    };
}

layout! {
    1 ActivityCreated {
        activity: Activity, ordinal: ActivityOrdinal, total: Units, definition: Terms, actor: By,
    }
    2 ActivityEdited {
        activity: Activity, version: Version, figures: UnitFigures, definition: Terms, actor: By,
    }
    3 Published { activity: Activity, actor: By }
    4 Unpublished { activity: Activity, actor: By }
    5 Paused { activity: Activity, actor: By }
    6 Resumed { activity: Activity, actor: By }
    7 Drained { activity: Activity, actor: By }
    8 Restocked {
        activity: Activity, quantity: Quantity, version: Version, figures: UnitFigures,
        op: RequestId, actor: By,
    }
    9 Decreased {
        activity: Activity, quantity: Quantity, version: Version, figures: UnitFigures,
        op: DecreaseOp, actor: By,
    }
    10 Archived { activity: Activity }

    16 Reserved {
        activity: Activity, reservation: Reservation, user: User, quantity: Quantity,
        held: Quantity, version: Version, figures: UnitFigures, front: Code<Front>,
        request_id: RequestId,
    }
    17 PaymentOpened {
        activity: Activity, reservation: AnyReservation, attempt: Attempt, amount: Money,
        expires_ms: Time, channel: Name,
    }
    18 PaymentRecorded {
        activity: MaybeActivity, reservation: MaybeReservation, amount: Money,
        verdict: Code<PaymentVerdict>, channel: Name, payment_no: PaymentNo,
        transaction: Transaction,
        body: Bytes<CALLBACK_BYTES_MAX>,
    }
    19 Confirmed {
        activity: Activity, reservation: AnyReservation, user: User, quantity: Quantity,
        held: Units, version: Version, figures: UnitFigures, payment_no: PaymentNo,
    }
    20 Reinstated {
        activity: Activity, reservation: AnyReservation, user: User, quantity: Quantity,
        held: Quantity, version: Version, figures: UnitFigures, payment_no: PaymentNo,
    }
    21 Restored {
        activity: Activity, reservation: AnyReservation, user: User, quantity: Quantity,
        held: Units, version: Version, figures: UnitFigures, reason: Code<RestoreReason>,
        actor: MaybeBy,
    }
    22 RefundRequested {
        activity: Activity, reservation: AnyReservation, user: User, scope: Code<RefundScope>,
        restock: Flag, free_limit: Flag, amount: Money, refund_no: RefundNo,
        channel: Short<0, NAME_BYTES_MAX>, payment_no: Short<0, PAYMENT_NO_BYTES_MAX>,
        transaction: Transaction,
        note: Note, actor: MaybeBy,
    }
    23 RefundSettled {
        activity: Activity, reservation: AnyReservation, user: User, held: Units, version: Version,
        figures: UnitFigures, refund_no: RefundNo,
    }
    24 RefundFailed {
        activity: Activity, reservation: AnyReservation, refund_no: RefundNo, note: Note,
    }

    32 DeadLettered { activity: Activity, reservation: AnyReservation, note: Note }
    33 DeadLetterResolved {
        activity: Activity, reservation: AnyReservation, resolution: Code<DeadLetterResolution>,
        actor: MaybeBy,
    }
    34 SinkAdvanced { lsn: Number, sink: Name, shards: Marks }

    48 ActivityAdopted {
        activity: Activity, ordinal: ActivityOrdinal, version: Version, figures: UnitFigures,
        on_sale: Flag, definition: Terms,
    }
    49 ReservationAdopted {
        activity: Activity, reservation: AnyReservation, old_id: Number, status: Code<Status>,
        user: User, quantity: Quantity, created_ms: Time, updated_ms: Time, held: Units,
        figures: UnitFigures, request_hash: Hash, order_no: Short<0, ORDER_NO_BYTES_MAX>,
        request_id: Short<0, REQUEST_ID_BYTES_MAX>, payment_no: Short<0, PAYMENT_NO_BYTES_MAX>,
    }

    64 ControlSet {
        expires_ms: Time, key: Short<1, CONTROL_KEY_BYTES_MAX>,
        value: Bytes<CONTROL_VALUE_BYTES_MAX>, actor: By,
    }
    65 ControlCleared { key: Short<1, CONTROL_KEY_BYTES_MAX>, actor: By }
}

/// Appends the bytes of `event` to `out`, at most `EVENT_BYTES_MAX`.
///
/// Panics where a field is outside its bounds: `decide` checks what comes in, and what it lets
/// through must never become a log that cannot be read. See [`check`] for events made elsewhere.
pub fn encode(event: &Event<'_>, out: &mut Vec<u8>) {
    let start = out.len();
    put(event, out);
    assert!(out.len() - start <= EVENT_BYTES_MAX, "an event is longer than EVENT_BYTES_MAX");
    // Purchases have a reader of their own, and are many: tests compare the two.
    if kind(&event.body) != RESERVED {
        let bytes = out.get(start..).unwrap_or_default();
        let read = decode(kind(&event.body), FORMAT_VERSION, bytes);
        assert_eq!(read.as_ref(), Ok(event), "an event must read back");
    }
}

/// Whether `event` can be encoded.
///
/// # Errors
/// [`CodecError::Invalid`] with the first field outside its bounds.
pub fn check(event: &Event<'_>) -> Result<(), CodecError> {
    let kind = kind(&event.body);
    if !Time::fits(event.at_ms) {
        return Err(CodecError::Invalid { kind, field: "at_ms" });
    }
    check_body(&event.body).map_err(|field| CodecError::Invalid { kind, field })
}

/// The event behind `body`, the bytes after a record's header that names `kind` and `version`.
/// Borrows its texts from there.
///
/// # Errors
/// What is wrong with the bytes: see [`CodecError`].
pub fn decode(kind: u8, version: u8, body: &[u8]) -> Result<Event<'_>, CodecError> {
    if version != FORMAT_VERSION && KINDS.iter().any(|(known, _)| *known == kind) {
        return Err(CodecError::UnknownVersion { kind, version });
    }
    let mut reader = Reader::new(body);
    let at_ms = take_field::<Time>(kind, "at_ms", &mut reader)?;
    let body = take(kind, &mut reader)?;
    match reader.remaining() {
        0 => Ok(Event { at_ms, body }),
        bytes => Err(CodecError::Trailing { kind, bytes }),
    }
}

/// The activity whose shard decides and holds `body`; `None` for events of no activity, which
/// belong to the control shard.
pub const fn activity(body: &Body<'_>) -> Option<ActivityId> {
    match *body {
        Body::ActivityCreated { activity, .. }
        | Body::ActivityEdited { activity, .. }
        | Body::Published { activity, .. }
        | Body::Unpublished { activity, .. }
        | Body::Paused { activity, .. }
        | Body::Resumed { activity, .. }
        | Body::Drained { activity, .. }
        | Body::Restocked { activity, .. }
        | Body::Decreased { activity, .. }
        | Body::Archived { activity }
        | Body::Reserved { activity, .. }
        | Body::PaymentOpened { activity, .. }
        | Body::Confirmed { activity, .. }
        | Body::Reinstated { activity, .. }
        | Body::Restored { activity, .. }
        | Body::RefundRequested { activity, .. }
        | Body::RefundSettled { activity, .. }
        | Body::RefundFailed { activity, .. }
        | Body::DeadLettered { activity, .. }
        | Body::DeadLetterResolved { activity, .. }
        | Body::ActivityAdopted { activity, .. }
        | Body::ReservationAdopted { activity, .. } => Some(activity),
        Body::PaymentRecorded { activity, .. } => activity,
        Body::SinkAdvanced { .. } | Body::ControlSet { .. } | Body::ControlCleared { .. } => None,
    }
}

/// The panic of a field outside its bounds, which it finds out again: those who write well then
/// carry no names along.
#[cold]
fn outside(event: &Event<'_>) -> ! {
    match check(event) {
        Err(CodecError::Invalid { field, .. }) => {
            panic!("an event's {field} is outside its bounds")
        }
        other => panic!("an event is outside its bounds, and then it is not: {other:?}"),
    }
}

fn take_field<'a, F: Field>(
    kind: u8,
    field: &'static str,
    reader: &mut Reader<'a>,
) -> Result<F::Value<'a>, CodecError> {
    match F::take(reader) {
        Some(value) if F::fits(value) => Ok(value),
        _ if reader.is_exhausted() => Err(CodecError::Truncated { kind, field }),
        _ => Err(CodecError::Invalid { kind, field }),
    }
}

const _: () = {
    let mut at = 0;
    while at < KINDS.len() {
        assert!(at == 0 || KINDS[at - 1].0 < KINDS[at].0, "a kind's number is given once");
        at += 1;
    }
};
