//! The fields that only state has, in snapshots.

use super::fields::Field;
use super::reader::Reader;
use super::writer::Writer;
use crate::core::ids::Position;
use crate::core::side::{DeadLetterState, PaymentStatus, RefundStatus};

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
        Some(u128::from(reader.u64()?) | u128::from(reader.u64()?) << 64)
    }
}

/// A reservation of the same activity by its position, or none.
pub(super) struct Link;

impl Field for Link {
    type Value<'a> = Option<Position>;

    #[inline(always)]
    fn fits(_value: Option<Position>) -> bool {
        true
    }

    #[inline(always)]
    fn put(value: Option<Position>, out: &mut Writer<'_>) {
        out.fixed(value.map_or(0, Position::get).to_le_bytes());
    }

    #[inline]
    fn take<'a>(reader: &mut Reader<'a>) -> Option<Option<Position>> {
        reader.u32().map(Position::new)
    }
}

/// Where a refund is.
pub(super) struct Refunding;

impl Field for Refunding {
    type Value<'a> = RefundStatus;

    fn fits(_value: RefundStatus) -> bool {
        true
    }

    fn put(value: RefundStatus, out: &mut Writer<'_>) {
        out.fixed([match value {
            RefundStatus::Requested => 0,
            RefundStatus::Settled => 1,
            RefundStatus::Failed => 2,
        }]);
    }

    fn take<'a>(reader: &mut Reader<'a>) -> Option<RefundStatus> {
        match reader.u8()? {
            0 => Some(RefundStatus::Requested),
            1 => Some(RefundStatus::Settled),
            2 => Some(RefundStatus::Failed),
            _ => None,
        }
    }
}

/// Where a payment is.
pub(super) struct Paying;

impl Field for Paying {
    type Value<'a> = PaymentStatus;

    fn fits(_value: PaymentStatus) -> bool {
        true
    }

    fn put(value: PaymentStatus, out: &mut Writer<'_>) {
        out.fixed([match value {
            PaymentStatus::Pending => 0,
            PaymentStatus::Paid => 1,
            PaymentStatus::Failed => 2,
        }]);
    }

    fn take<'a>(reader: &mut Reader<'a>) -> Option<PaymentStatus> {
        match reader.u8()? {
            0 => Some(PaymentStatus::Pending),
            1 => Some(PaymentStatus::Paid),
            2 => Some(PaymentStatus::Failed),
            _ => None,
        }
    }
}

/// Where a dead letter is.
pub(super) struct Letter;

impl Field for Letter {
    type Value<'a> = DeadLetterState;

    fn fits(_value: DeadLetterState) -> bool {
        true
    }

    fn put(value: DeadLetterState, out: &mut Writer<'_>) {
        let (code, shard_seq) = match value {
            DeadLetterState::Open => (0, 0),
            DeadLetterState::Delivered { shard_seq } => (1, shard_seq),
            DeadLetterState::RolledBack => (2, 0),
        };
        out.fixed([code]);
        out.fixed(u64::to_le_bytes(shard_seq));
    }

    fn take<'a>(reader: &mut Reader<'a>) -> Option<DeadLetterState> {
        match (reader.u8()?, reader.u64()?) {
            (0, 0) => Some(DeadLetterState::Open),
            (1, shard_seq) => Some(DeadLetterState::Delivered { shard_seq }),
            (2, 0) => Some(DeadLetterState::RolledBack),
            _ => None,
        }
    }
}

/// Writes a field, whose value state holds within its bounds.
pub(super) fn put_field<F: Field>(name: &'static str, value: F::Value<'_>, out: &mut Writer<'_>) {
    assert!(F::fits(value), "the {name} of a snapshot is outside its bounds");
    F::put(value, out);
}
