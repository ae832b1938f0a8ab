//! A number that is equal where states are equal.
//!
//! It covers all that answers depend on, and nothing else: no table's layout or seed, no view,
//! no hint. Tables are summed entry by entry, so that their order does not matter; each entry is
//! hashed with 128 bits, so that no two differences cancel but by design. The key is fixed: this
//! finds faults, not enemies.

use siphasher::sip128::{Hasher128, SipHasher13};
use std::hash::Hasher;

use super::activity::Activity;
use super::ids::{ActivityId, Position};
use super::reservation::Slot;
use super::shard::Shard;
use super::side::{DeadLetterState, Refunds};
use super::user::User;

/// The digest of a shard's state.
pub fn digest(shard: &Shard) -> u128 {
    let live = shard.activities().map(|(id, activity)| {
        let mut digest = ActivityDigest::begin(id, activity);
        activity.slots.iter().for_each(|slot| digest.slot(slot));
        activity.users.iter().for_each(|user| digest.user(user));
        digest.finish(activity)
    });
    digest_with(shard, sum(live))
}

/// The same, where the digests of the live activities come to `live`.
pub(super) fn digest_with(shard: &Shard, live: u128) -> u128 {
    let archived = sum(shard.tombstones().map(|(id, tombstone)| {
        let mut hash = Hash::of("archived");
        hash.numbers(&[id.get(), u64::from(tombstone.ordinal.get()), tombstone.end_ms]);
        refunds(&mut hash, &tombstone.refunds);
        hash.finish()
    }));
    let mut hash = Hash::of("shard");
    hash.numbers(&[shard.applied_seq()]);
    hash.wide(live.wrapping_add(archived));
    open_refunds(&mut hash, shard);
    hash.finish()
}

fn open_refunds(hash: &mut Hash, shard: &Shard) {
    hash.numbers(&[shard.open_refunds.len() as u64]);
    for ((reservation, refund_no), it) in &shard.open_refunds {
        let small = [u64::from(it.scope.code()), u64::from(it.restock), u64::from(it.free_limit)];
        hash.numbers(&[reservation.get(), it.activity.get(), it.user.get()]);
        hash.numbers(&[it.amount, it.requested_ms, it.shard_seq]);
        hash.numbers(&small);
        for text in [refund_no, &it.channel, &it.payment_no, &it.transaction] {
            hash.text(text);
        }
    }
}

fn refunds(hash: &mut Hash, refunds: &Refunds) {
    hash.numbers(&[refunds.len() as u64]);
    for ((reservation, refund_no), refund) in refunds {
        hash.numbers(&[reservation.get(), refund.status as u64, refund.scope.code().into()]);
        hash.numbers(&[refund.restock, refund.free_limit].map(u64::from));
        hash.text(refund_no);
    }
}

/// The digest of an activity, found while its reservations and users are added to it, or gone
/// through: a start that waits for the disk has time for it, and the state is at hand still.
#[derive(Debug)]
pub(super) struct ActivityDigest {
    hash: Hash,
    of_user: Hash,
    users: u128,
}

impl ActivityDigest {
    /// Of an activity that has its definition and its figures.
    pub(super) fn begin(id: ActivityId, activity: &Activity) -> Self {
        let mut hash = Hash::of("activity");
        let Activity { ordinal, version, figures, total, sold_before, flags, .. } = activity;
        let numbers =
            [ordinal.get(), *version, figures.available, figures.locked, figures.sold, *total];
        hash.numbers(&[id.get(), u64::from(*sold_before)]);
        hash.numbers(&numbers.map(u64::from));
        let schedule_over = activity.schedule_over;
        hash.numbers(&[flags.on_sale, flags.paused, flags.drained, schedule_over].map(u64::from));
        terms(&mut hash, activity);
        Self { hash, of_user: Hash::of("user"), users: 0 }
    }

    /// Takes the next reservation by position.
    #[inline]
    pub(super) fn slot(&mut self, slot: &Slot) {
        hash_slot(&mut self.hash, slot);
    }

    /// Takes a user.
    #[inline]
    pub(super) fn user(&mut self, user: &User) {
        let mut hash = self.of_user.clone();
        let last = user.last.map_or(0, Position::get);
        hash.numbers(&[user.id.get(), u64::from(user.held), u64::from(last)]);
        self.users = self.users.wrapping_add(hash.finish());
    }

    /// Takes the rest of `activity`.
    pub(super) fn finish(self, activity: &Activity) -> u128 {
        let Self { mut hash, users, .. } = self;
        hash.numbers(&[activity.slots.len() as u64, activity.unpaid_from as u64]);
        hash.wide(users);
        beside(&mut hash, activity);
        hash.finish()
    }
}

/// What hangs on reservations.
fn beside(hash: &mut Hash, activity: &Activity) {
    hash.wide(sum(activity.payments.iter().map(|(reservation, payment_no)| {
        let mut hash = Hash::of("payment");
        hash.numbers(&[reservation.get()]);
        hash.text(payment_no);
        hash.finish()
    })));
    hash.wide(sum(activity.operations.iter().map(|(op, done)| {
        let mut hash = Hash::of("operation");
        hash.text(op);
        let figures = done.answer.figures;
        let numbers = [done.answer.version, figures.available, figures.locked, figures.sold];
        hash.numbers(&[done.kind as u64, u64::from(done.quantity)]);
        hash.numbers(&numbers.map(u64::from));
        hash.finish()
    })));
    rare(hash, activity);
}

fn terms(hash: &mut Hash, activity: &Activity) {
    let it = activity.terms.definition();
    hash.text(it.title);
    hash.numbers(&[it.sku.get(), it.price, u64::from(it.per_user_limit), it.start_ms, it.end_ms]);
    hash.numbers(&[it.payment_ttl_ms, it.publish_at_ms]);
    hash.numbers(&[it.late_payment.code(), it.dead_letter.code()].map(u64::from));
}

/// What is ordered already.
fn rare(hash: &mut Hash, activity: &Activity) {
    refunds(hash, &activity.refunds);
    hash.numbers(&[activity.dead_letters.len() as u64]);
    for (reservation, letter) in &activity.dead_letters {
        let (state, shard_seq) = match letter.state {
            DeadLetterState::Open => (0, 0),
            DeadLetterState::Delivered { shard_seq } => (1, shard_seq),
            DeadLetterState::RolledBack => (2, 0),
        };
        hash.numbers(&[reservation.get(), state, shard_seq, letter.opened_ms]);
        hash.text(&letter.note);
    }
    hash.numbers(&[activity.openings.len() as u64]);
    for (reservation, payments) in &activity.openings {
        hash.numbers(&[reservation.get(), payments.len() as u64]);
        for it in payments {
            hash.numbers(&[it.attempt.into(), it.amount, it.expires_ms, it.status as u64]);
            hash.text(&it.channel);
            hash.text(&it.transaction);
        }
    }
    hash.wide(sum(activity.receipts.iter().map(|(receipt, reservation)| {
        let mut hash = Hash::of("receipt");
        hash.wide(*receipt);
        hash.numbers(&[reservation.get()]);
        hash.finish()
    })));
    hash.numbers(&[activity.adopted.len() as u64, activity.adopted_unpaid.len() as u64]);
    for (reservation, adopted) in &activity.adopted {
        hash.numbers(&[reservation.get(), adopted.old_id]);
        hash.text(&adopted.order_no);
        hash_slot(hash, &adopted.slot);
    }
}

fn hash_slot(hash: &mut Hash, slot: &Slot) {
    let previous = slot.previous().map_or(0, Position::get);
    let small = [slot.quantity(), previous, u32::from(slot.status().code())];
    hash.wide(slot.request_hash());
    hash.numbers(&[slot.user().get(), slot.created_ms(), slot.updated_ms(), slot.shard_seq()]);
    hash.numbers(&small.map(u64::from));
    hash.numbers(&[u64::from(slot.attempts())]);
}

fn sum(hashes: impl Iterator<Item = u128>) -> u128 {
    hashes.fold(0, u128::wrapping_add)
}

#[derive(Clone, Debug)]
pub(super) struct Hash(SipHasher13);

impl Hash {
    /// A hash of something of this sort: equal numbers of two sorts are not equal.
    pub(super) fn of(sort: &str) -> Self {
        let mut hash = Self(SipHasher13::new_with_keys(0, 0));
        hash.text(sort);
        hash
    }

    pub(super) fn numbers(&mut self, numbers: &[u64]) {
        for number in numbers {
            // As its bytes, little endian, but in one piece: a start digests every reservation.
            self.0.write_u64(number.to_le());
        }
    }

    pub(super) fn wide(&mut self, number: u128) {
        let [low, high] = [number, number >> 64].map(|half| {
            #[expect(clippy::cast_possible_truncation, reason = "the two halves are taken apart")]
            let half = half as u64;
            half
        });
        self.numbers(&[low, high]);
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.numbers(&[bytes.len() as u64]);
        self.0.write(bytes);
    }

    pub(super) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    pub(super) fn finish(&self) -> u128 {
        self.0.finish128().as_u128()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_counts_as_its_bytes_wherever_it_stands() {
        for before in ["", "a", "user", "activity"] {
            let (mut numbers, mut bytes) = (Hash::of(before), Hash::of(before));
            numbers.numbers(&[1, u64::MAX, 0x0123_4567_89AB_CDEF]);
            numbers.wide(0x0123_4567_89AB_CDEF_FEDC_BA98_7654_3210);
            for number in [1u64, u64::MAX, 0x0123_4567_89AB_CDEF] {
                bytes.0.write(&number.to_le_bytes());
            }
            bytes.0.write(&0x0123_4567_89AB_CDEF_FEDC_BA98_7654_3210_u128.to_le_bytes());
            assert_eq!(numbers.finish(), bytes.finish());
        }
    }
}
