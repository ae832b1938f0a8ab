//! How each sort of field is written, read, and bounded.

use std::marker::PhantomData;

use super::super::event::{
    Actor, DeadLetterPolicy, DeadLetterResolution, DecreaseKey, Definition, Figures, Front,
    LatePayment, PaymentVerdict, RefundScope, RestoreReason, ShardMarks, Status,
};
use super::super::ids::{ActivityId, Ordinal, ReservationId, SkuId, UserId};
use super::super::limits::{
    ACTOR_BYTES_MAX, ID_MAX, PAYMENT_ATTEMPTS_MAX, PAYMENT_TTL_MS_MAX, PAYMENT_TTL_MS_MIN,
    REQUEST_ID_BYTES_MAX, SHARDS_MAX, TIME_MS_MAX, TITLE_BYTES_MAX, UNITS_MAX,
};
use super::reader::Reader;
use super::texts::{Short, Text};
use super::writer::Writer;

/// A sort of field. `fits` holds the bounds that its type alone does not, and is asked on both
/// sides: before `put` and after `take`.
pub(super) trait Field {
    type Value<'a>: Copy;

    fn fits(value: Self::Value<'_>) -> bool;
    fn put(value: Self::Value<'_>, out: &mut Writer<'_>);
    fn take<'a>(reader: &mut Reader<'a>) -> Option<Self::Value<'a>>;
}

macro_rules! integers {
    ($($(#[$doc:meta])* $name:ident: $int:ident, $value:ident => $fits:expr;)*) => {$(
        $(#[$doc])*
        pub(super) struct $name;

        impl Field for $name {
            type Value<'a> = $int;

            #[inline(always)]
            fn fits($value: $int) -> bool {
                $fits
            }

            #[inline(always)]
            fn put(value: $int, out: &mut Writer<'_>) {
                out.fixed(value.to_le_bytes());
            }

            #[inline]
            fn take<'a>(reader: &mut Reader<'a>) -> Option<$int> {
                reader.$int()
            }
        }
    )*};
}

integers!(
    /// Units, none included.
    Units: u32, value => value <= UNITS_MAX;
    /// Units that move.
    Quantity: u32, value => (1..=UNITS_MAX).contains(&value);
    /// The version of a definition.
    Version: u32, value => value >= 1;
    /// An amount in the currency's smallest unit.
    Money: u64, value => value <= ID_MAX;
    /// Unix milliseconds.
    Time: u64, value => value <= TIME_MS_MAX;
    /// Milliseconds to pay.
    PaymentTtl: u64, value => (PAYMENT_TTL_MS_MIN..=PAYMENT_TTL_MS_MAX).contains(&value);
    /// A number with a meaning elsewhere: an LSN, an older system's id.
    Number: u64, _value => true;
    /// The attempt of a payment.
    Attempt: u8, value => value <= PAYMENT_ATTEMPTS_MAX;
);

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident: $id:ident, $value:ident => $fits:expr;)*) => {$(
        $(#[$doc])*
        pub(super) struct $name;

        impl Field for $name {
            type Value<'a> = $id;

            #[inline(always)]
            fn fits($value: $id) -> bool {
                $fits
            }

            #[inline(always)]
            fn put(value: $id, out: &mut Writer<'_>) {
                out.fixed(value.get().to_le_bytes());
            }

            #[inline]
            fn take<'a>(reader: &mut Reader<'a>) -> Option<$id> {
                $id::new(reader.u64()?)
            }
        }
    )*};
}

ids!(
    /// An activity.
    Activity: ActivityId, _value => true;
    /// A shopper.
    User: UserId, _value => true;
    /// A stock keeping unit.
    Sku: SkuId, _value => true;
    /// A reservation accepted here: its id has an ordinal and a position.
    Reservation: ReservationId, value =>
        value.ordinal() != Ordinal::ADOPTED && value.position().is_some();
    /// A reservation accepted here or adopted.
    AnyReservation: ReservationId, _value => true;
);

macro_rules! maybe {
    ($($(#[$doc:meta])* $name:ident: $id:ident;)*) => {$(
        $(#[$doc])*
        pub(super) struct $name;

        impl Field for $name {
            type Value<'a> = Option<$id>;

            fn fits(_value: Option<$id>) -> bool {
                true
            }

            fn put(value: Option<$id>, out: &mut Writer<'_>) {
                out.fixed(value.map_or(0, $id::get).to_le_bytes());
            }

            #[inline]
            fn take<'a>(reader: &mut Reader<'a>) -> Option<Option<$id>> {
                match reader.u64()? {
                    0 => Some(None),
                    value => $id::new(value).map(Some),
                }
            }
        }
    )*};
}

maybe!(
    /// An activity, or none.
    MaybeActivity: ActivityId;
    /// A reservation accepted here or adopted, or none.
    MaybeReservation: ReservationId;
);

/// The ordinal of an activity: never that of adopted ids.
pub(super) struct ActivityOrdinal;

impl Field for ActivityOrdinal {
    type Value<'a> = Ordinal;

    fn fits(value: Ordinal) -> bool {
        value != Ordinal::ADOPTED
    }

    fn put(value: Ordinal, out: &mut Writer<'_>) {
        out.fixed(value.get().to_le_bytes());
    }

    fn take<'a>(reader: &mut Reader<'a>) -> Option<Ordinal> {
        Ordinal::new(reader.u32()?)
    }
}

/// An activity's units.
pub(super) struct UnitFigures;

impl Field for UnitFigures {
    type Value<'a> = Figures;

    #[inline(always)]
    fn fits(value: Figures) -> bool {
        value.total() <= u64::from(UNITS_MAX)
    }

    #[inline(always)]
    fn put(value: Figures, out: &mut Writer<'_>) {
        for units in [value.available, value.locked, value.sold] {
            out.fixed(units.to_le_bytes());
        }
    }

    #[inline]
    fn take<'a>(reader: &mut Reader<'a>) -> Option<Figures> {
        Some(Figures { available: reader.u32()?, locked: reader.u32()?, sold: reader.u32()? })
    }
}

/// Yes or no.
pub(super) struct Flag;

impl Field for Flag {
    type Value<'a> = bool;

    fn fits(_value: bool) -> bool {
        true
    }

    fn put(value: bool, out: &mut Writer<'_>) {
        out.fixed([u8::from(value)]);
    }

    fn take<'a>(reader: &mut Reader<'a>) -> Option<bool> {
        match reader.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

/// The keyed hash of a request id.
pub(super) struct Hash;

impl Field for Hash {
    type Value<'a> = u128;

    fn fits(_value: u128) -> bool {
        true
    }

    fn put(value: u128, out: &mut Writer<'_>) {
        out.fixed(value.to_le_bytes());
    }

    fn take<'a>(reader: &mut Reader<'a>) -> Option<u128> {
        Some(u128::from_le_bytes(reader.bytes(16)?.try_into().ok()?))
    }
}

/// A value of a closed set.
pub(super) struct Code<C>(PhantomData<C>);

macro_rules! coded {
    ($($name:ident)*) => {$(
        impl Field for Code<$name> {
            type Value<'a> = $name;

            #[inline(always)]
            fn fits(_value: $name) -> bool {
                true
            }

            #[inline(always)]
            fn put(value: $name, out: &mut Writer<'_>) {
                out.fixed([value.code()]);
            }

            #[inline]
            fn take<'a>(reader: &mut Reader<'a>) -> Option<$name> {
                $name::from_code(reader.u8()?)
            }
        }
    )*};
}

coded!(
    DeadLetterPolicy DeadLetterResolution Front LatePayment PaymentVerdict RefundScope
    RestoreReason Status
);

/// The key of a decrease: empty where an edit did it.
pub(super) struct DecreaseOp;

impl Field for DecreaseOp {
    type Value<'a> = DecreaseKey<'a>;

    fn fits(value: DecreaseKey<'_>) -> bool {
        match value {
            DecreaseKey::Caller(op) => Short::<1, REQUEST_ID_BYTES_MAX>::fits(op),
            DecreaseKey::Edit => true,
        }
    }

    fn put(value: DecreaseKey<'_>, out: &mut Writer<'_>) {
        let text = match value {
            DecreaseKey::Caller(op) => op,
            DecreaseKey::Edit => "",
        };
        Short::<0, REQUEST_ID_BYTES_MAX>::put(text, out);
    }

    fn take<'a>(reader: &mut Reader<'a>) -> Option<DecreaseKey<'a>> {
        Some(match Short::<0, REQUEST_ID_BYTES_MAX>::take(reader)? {
            "" => DecreaseKey::Edit,
            op => DecreaseKey::Caller(op),
        })
    }
}

/// Who did it.
pub(super) struct By;

impl Field for By {
    type Value<'a> = Actor<'a>;

    fn fits(value: Actor<'_>) -> bool {
        Short::<0, ACTOR_BYTES_MAX>::fits(value.name)
            && Short::<0, REQUEST_ID_BYTES_MAX>::fits(value.request_id)
    }

    fn put(value: Actor<'_>, out: &mut Writer<'_>) {
        Short::<0, ACTOR_BYTES_MAX>::put(value.name, out);
        Short::<0, REQUEST_ID_BYTES_MAX>::put(value.request_id, out);
    }

    fn take<'a>(reader: &mut Reader<'a>) -> Option<Actor<'a>> {
        Some(Actor {
            name: Short::<0, ACTOR_BYTES_MAX>::take(reader)?,
            request_id: Short::<0, REQUEST_ID_BYTES_MAX>::take(reader)?,
        })
    }
}

/// Who did it, if an operator did. A request is somebody's: it does not stand without a name.
pub(super) struct MaybeBy;

impl Field for MaybeBy {
    type Value<'a> = Actor<'a>;

    fn fits(value: Actor<'_>) -> bool {
        By::fits(value) && (value.is_none() || !value.name.is_empty())
    }

    fn put(value: Actor<'_>, out: &mut Writer<'_>) {
        By::put(value, out);
    }

    fn take<'a>(reader: &mut Reader<'a>) -> Option<Actor<'a>> {
        By::take(reader)
    }
}

macro_rules! record {
    ($(#[$doc:meta])* $name:ident = $value:ident { $($field:ident: $codec:ty),* $(,)? }) => {
        $(#[$doc])*
        pub(super) struct $name;

        impl Field for $name {
            type Value<'a> = $value<'a>;

            fn fits(value: $value<'_>) -> bool {
                let $value { $($field),* } = value;
                $(<$codec>::fits($field))&&*
            }

            #[inline(always)]
            fn put(value: $value<'_>, out: &mut Writer<'_>) {
                let $value { $($field),* } = value;
                $(<$codec>::put($field, out);)*
            }

            #[inline]
            fn take<'a>(reader: &mut Reader<'a>) -> Option<$value<'a>> {
                Some($value { $($field: <$codec>::take(reader)?),* })
            }
        }
    };
}

record!(
    /// An activity's definition. That it makes sense as a whole (a window that does not end before
    /// it starts) is for `validate` to say; here stand the bounds of each field.
    Terms = Definition {
        sku: Sku,
        price: Money,
        per_user_limit: Quantity,
        start_ms: Time,
        end_ms: Time,
        payment_ttl_ms: PaymentTtl,
        publish_at_ms: Time,
        late_payment: Code<LatePayment>,
        dead_letter: Code<DeadLetterPolicy>,
        title: Text<0, TITLE_BYTES_MAX>,
    }
);

/// How far a sink is in each shard.
pub(super) struct Marks;

impl Field for Marks {
    type Value<'a> = ShardMarks<'a>;

    fn fits(value: ShardMarks<'_>) -> bool {
        value.iter().count() <= usize::from(SHARDS_MAX)
            && value.iter().zip(value.iter().skip(1)).all(|(one, next)| one.0 < next.0)
    }

    fn put(value: ShardMarks<'_>, out: &mut Writer<'_>) {
        let count = u16::try_from(value.iter().count()).unwrap_or_else(|_| unreachable!("`fits`"));
        out.fixed(count.to_le_bytes());
        out.bytes(value.bytes());
    }

    fn take<'a>(reader: &mut Reader<'a>) -> Option<ShardMarks<'a>> {
        let count = reader.u16()?;
        ShardMarks::parse(reader.bytes(usize::from(count) * ShardMarks::ENTRY_BYTES)?)
    }
}
