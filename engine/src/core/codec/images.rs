//! The bytes of a snapshot's items, format version 1.
//!
//! The kind and its version stand in the item's header; the body is the fields in the order of the
//! table `layout!`, coded as those of events are. `Hash` is 16 bytes, `Refunding` one byte: 0
//! requested, 1 settled, 2 failed; `Paying` one byte: 0 pending, 1 paid, 2 failed; `Letter` one
//! byte (0 open, 1 delivered, 2 rolled back) and a sequence, 0 unless delivered.
//!
//! An activity's items follow its `Activity`, up to the next `Activity` or `Archived`: first its
//! reservations by position, then its users, then the adopted reservations by id, then the rest in
//! any order. Users may stand in any order, too; this build writes them in that of the table that
//! holds them, so that the table of who loads them is filled from one end to the other. Activities
//! ascend by id, so that equal states give equal bytes but for the order of users, payments and
//! operations. `Link` is a position as 4 bytes, 0 for none.

use super::fields::{
    Activity, ActivityOrdinal, AnyReservation, Attempt, Code, Flag, Marks, Money, Number, Quantity,
    Reservation, Terms, Time, UnitFigures, Units, User, Version,
};
use super::reader::Reader;
use super::state_fields::{Hash, Letter, Link, Paying, Refunding, put_field};
use super::texts::{Bytes, Short};
use super::writer::Writer;
use super::{CodecError, Name, Note, PaymentNo, RefundNo, RequestId, Transaction, take_field};
use crate::core::event::{Definition, Figures, RefundScope, ShardMarks, Status};
use crate::core::ids::{ActivityId, Ordinal, Position, ReservationId, UserId};
use crate::core::limits::{
    CONTROL_KEY_BYTES_MAX, CONTROL_VALUE_BYTES_MAX, NAME_BYTES_MAX, ORDER_NO_BYTES_MAX,
    PAYMENT_NO_BYTES_MAX,
};
use crate::core::side::{DeadLetterState, PaymentStatus, RefundStatus};

/// The version of every kind that this build writes and reads.
pub const IMAGE_VERSION: u8 = 1;

macro_rules! layout {
    ($(
        $(#[$doc:meta])*
        $kind:literal $image:ident {
            $($(#[$fdoc:meta])* $field:ident: $codec:ident $(<$($arg:tt),*>)? as $value:ty),* $(,)?
        }
    )*) => {
        /// A piece of state as a snapshot holds it.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[non_exhaustive]
        pub enum Image<'a> {
            $($(#[$doc])* $image { $($(#[$fdoc])* $field: $value),* },)*
        }

        /// Every kind with its name, ascending.
        pub const IMAGE_KINDS: &[(u8, &str)] = &[$(($kind, stringify!($image))),*];

        /// The byte that stands for the kind of `image` in an item's header.
        pub const fn image_kind(image: &Image<'_>) -> u8 {
            match image { $(Image::$image { .. } => $kind,)* }
        }

        /// Appends the bytes of `image` to `out`.
        ///
        /// # Panics
        /// Where a field is outside its bounds: state never is.
        pub fn encode_image(image: &Image<'_>, out: &mut Vec<u8>) {
            let start = out.len();
            let mut writer = Writer::new(out);
            match *image {
                $(Image::$image { $($field),* } => {
                    $(put_field::<$codec $(<$($arg),*>)?>(
                        stringify!($field), $field, &mut writer,
                    );)*
                })*
            }
            writer.flush();
            // Of all of a shop's state, so in release builds the digest alone says it.
            debug_assert_eq!(
                decode_image(image_kind(image), IMAGE_VERSION, &out[start..]).as_ref(),
                Ok(image),
                "W14: an image must read back"
            );
        }

        #[inline(always)]
        fn take<'a>(kind: u8, reader: &mut Reader<'a>) -> Result<Image<'a>, CodecError> {
            Ok(match kind {
                $($kind => Image::$image { $(
                    $field: take_field::<$codec $(<$($arg),*>)?>(
                        kind, stringify!($field), reader,
                    )?
                ),* },)*
                _ => return Err(CodecError::UnknownKind { kind }),
            })
        }
    };
}

layout! {
    /// A live activity.
    1 Activity {
        /// Its id.
        activity: Activity as ActivityId,
        /// The high part of its reservations' ids.
        ordinal: ActivityOrdinal as Ordinal,
        /// Version of the definition.
        version: Version as u32,
        /// Its units.
        figures: UnitFigures as Figures,
        /// All of them.
        total: Units as u32,
        /// Units sold before the log began.
        sold_before: Units as u32,
        /// Published.
        on_sale: Flag as bool,
        /// New purchases are stopped.
        paused: Flag as bool,
        /// New purchases are stopped for good.
        drained: Flag as bool,
        /// It does not publish itself any more.
        schedule_over: Flag as bool,
        /// Index of the first unpaid reservation by position.
        unpaid_from: Number as u64,
        /// Its definition.
        definition: Terms as Definition<'a>,
    }
    /// A reservation accepted here; positions ascend from 1 without gaps.
    2 Reservation {
        /// Its id.
        reservation: Reservation as ReservationId,
        /// Its buyer.
        user: User as UserId,
        /// Its units.
        quantity: Quantity as u32,
        /// Where it is in its life.
        status: Code<Status> as Status,
        /// Payments opened.
        attempts: Attempt as u8,
        /// When it was accepted, Unix milliseconds.
        created_ms: Time as u64,
        /// When its status last changed, Unix milliseconds.
        updated_ms: Time as u64,
        /// Sequence in the shard of the record that accepted it.
        shard_seq: Number as u64,
        /// Keyed hash of its request id.
        request_hash: Hash as u128,
        /// Its user's reservation before it in this activity.
        previous: Link as Option<Position>,
    }
    /// A reservation whose id came from elsewhere.
    3 Adopted {
        /// Its id.
        reservation: AnyReservation as ReservationId,
        /// Its id there, 0 for none.
        old_id: Number as u64,
        /// Its buyer.
        user: User as UserId,
        /// Its units.
        quantity: Quantity as u32,
        /// Where it is in its life.
        status: Code<Status> as Status,
        /// Payments opened.
        attempts: Attempt as u8,
        /// When it was accepted, Unix milliseconds.
        created_ms: Time as u64,
        /// When its status last changed, Unix milliseconds.
        updated_ms: Time as u64,
        /// Sequence in the shard of the record that adopted it.
        shard_seq: Number as u64,
        /// Keyed hash of its request id.
        request_hash: Hash as u128,
        /// Its order number there; empty where it follows from the id.
        order_no: Short<0, ORDER_NO_BYTES_MAX> as &'a str,
    }
    /// What is known of a user.
    4 User {
        /// The user.
        user: User as UserId,
        /// Units that the user holds.
        held: Units as u32,
        /// The user's newest reservation that was accepted here.
        last: Link as Option<Position>,
    }
    /// The payment that paid a reservation.
    5 Payment {
        /// The reservation.
        reservation: AnyReservation as ReservationId,
        /// The payment.
        payment_no: PaymentNo as &'a str,
    }
    /// A restock or decrease that was done.
    6 Operation {
        /// Its key.
        op: RequestId as &'a str,
        /// A decrease; else a restock.
        decrease: Flag as bool,
        /// Units asked for.
        quantity: Quantity as u32,
        /// The version it was answered.
        version: Version as u32,
        /// The figures it was answered.
        figures: UnitFigures as Figures,
    }
    /// A refund of a reservation.
    7 Refund {
        /// The reservation.
        reservation: AnyReservation as ReservationId,
        /// The refund.
        refund_no: RefundNo as &'a str,
        /// Whose money it gives back.
        scope: Code<RefundScope> as RefundScope,
        /// Its units go back on sale.
        restock: Flag as bool,
        /// Its units no longer count against the limit.
        free_limit: Flag as bool,
        /// Where it is.
        status: Refunding as RefundStatus,
    }
    /// A reservation that no order could hold.
    8 DeadLetter {
        /// The reservation.
        reservation: AnyReservation as ReservationId,
        /// What became of it.
        state: Letter as DeadLetterState,
        /// When it was opened, Unix milliseconds.
        opened_ms: Time as u64,
        /// Why; empty once it is closed.
        note: Note as &'a str,
    }
    /// What is left of an archived activity.
    9 Archived {
        /// Its id.
        activity: Activity as ActivityId,
        /// Its ordinal.
        ordinal: ActivityOrdinal as Ordinal,
        /// The end of its window, Unix milliseconds.
        end_ms: Time as u64,
    }
    /// A payment that was opened; a reservation's ascend by attempt.
    10 Opening {
        /// The reservation.
        reservation: AnyReservation as ReservationId,
        /// Its number among them.
        attempt: Attempt as u8,
        /// The way it is paid.
        channel: Name as &'a str,
        /// What is to be paid.
        amount: Money as u64,
        /// Until when, Unix milliseconds.
        expires_ms: Time as u64,
        /// Where it is.
        status: Paying as PaymentStatus,
        /// The provider's transaction that paid it; empty where none did.
        transaction: Transaction as &'a str,
    }
    /// A provider's transaction, with the reservation whose callback brought it.
    11 Receipt {
        /// Its hash.
        receipt: Hash as u128,
        /// The reservation.
        reservation: AnyReservation as ReservationId,
    }
    /// A refund that the provider has yet to settle, behind all activities.
    12 OpenRefund {
        /// The activity.
        activity: Activity as ActivityId,
        /// The reservation.
        reservation: AnyReservation as ReservationId,
        /// The refund.
        refund_no: RefundNo as &'a str,
        /// Whose it is.
        user: User as UserId,
        /// Whose money it gives back.
        scope: Code<RefundScope> as RefundScope,
        /// Its units go back on sale.
        restock: Flag as bool,
        /// Its units no longer count against the limit.
        free_limit: Flag as bool,
        /// The way it was paid.
        channel: Short<0, NAME_BYTES_MAX> as &'a str,
        /// The payment.
        payment_no: Short<0, PAYMENT_NO_BYTES_MAX> as &'a str,
        /// The provider's transaction.
        transaction: Transaction as &'a str,
        /// The money.
        amount: Money as u64,
        /// When it was asked for, Unix milliseconds.
        requested_ms: Time as u64,
        /// Sequence of the record that asked for it.
        shard_seq: Number as u64,
    }

    /// A run-time control, in the control lane.
    16 Control {
        /// Its key.
        key: Short<1, CONTROL_KEY_BYTES_MAX> as &'a str,
        /// Its value.
        value: Bytes<CONTROL_VALUE_BYTES_MAX> as &'a [u8],
        /// When it ends by itself, Unix milliseconds; 0 for never.
        expires_ms: Number as u64,
    }
    /// How far a sink has said that it is, in the control lane.
    17 Sink {
        /// The sink.
        sink: Name as &'a str,
        /// It holds everything up to here.
        lsn: Number as u64,
        /// Sequence it covers, by shard.
        shards: Marks as ShardMarks<'a>,
    }
    /// The time of the last decision in the log, in the control lane.
    18 LastDecision {
        /// Unix milliseconds.
        at_ms: Time as u64,
    }
}

/// The image behind `body`, the bytes after an item's header that names `kind` and `version`.
///
/// # Errors
/// What is wrong with the bytes: see [`CodecError`].
#[inline(always)]
pub fn decode_image(kind: u8, version: u8, body: &[u8]) -> Result<Image<'_>, CodecError> {
    if version != IMAGE_VERSION && IMAGE_KINDS.iter().any(|(known, _)| *known == kind) {
        return Err(CodecError::UnknownVersion { kind, version });
    }
    let mut reader = Reader::new(body);
    let image = take(kind, &mut reader)?;
    match reader.remaining() {
        0 => Ok(image),
        bytes => Err(CodecError::Trailing { kind, bytes }),
    }
}
