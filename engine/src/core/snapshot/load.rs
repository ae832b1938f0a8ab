//! From images back to state.

use super::Image;
use super::images::{Images, Run, image_kinds, slot};
use super::loading::Loading;
use crate::core::activity::{Activity, Flags};
use crate::core::command::ActivityFigures;
use crate::core::control::Control;
use crate::core::digest::{digest, digest_with};
use crate::core::event::Status;
use crate::core::ids::ActivityId;
use crate::core::publication::Publication;
use crate::core::shard::{Place, Shard, ShardSeed, Tombstone};
use crate::core::side::{
    Adopted, DeadLetter, OpenRefund, Operation, OperationKind, Payment, Refund, Refunds,
};
use crate::core::stock::Stock;

/// Why images are not the state of a shard. Their checksums held: the program that wrote them, or
/// this one, has a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// It stands where no such image can stand.
    #[error("an item of kind {kind} of a snapshot is out of place")]
    OutOfPlace {
        /// The image's kind.
        kind: u8,
    },
    /// Its activity is there already.
    #[error("activity {0} is twice in a snapshot")]
    Repeated(ActivityId),
    /// The images are not those of the state that was written (W14).
    #[error("a snapshot does not hold the state that was written: its digest differs")]
    Digest,
}

/// Loads one shard.
#[derive(Debug)]
pub struct ShardLoader {
    shard: Shard,
    current: Option<Begun>,
    /// The digests of the activities that are whole, summed up.
    live: u128,
}

/// What the next images belong to.
#[derive(Debug)]
enum Begun {
    Live(Box<Loading>),
    Archived(ActivityId, Tombstone),
}

impl ShardLoader {
    /// A loader of the shard's state after its record `seq`.
    pub fn new(seed: ShardSeed, seq: u64) -> Self {
        let mut shard = Shard::new(seed);
        shard.applied_seq = seq;
        Self { shard, current: None, live: 0 }
    }

    /// Takes the next images.
    ///
    /// # Errors
    /// [`LoadError`]; the shard is of no use any more.
    pub fn take(&mut self, images: &Images) -> Result<(), LoadError> {
        self.take_into(images, &mut ())
    }

    /// The same, into memory of `stock` where it has some.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn take_into(&mut self, images: &Images, stock: &mut dyn Stock) -> Result<(), LoadError> {
        let mut reservations = images.reservations.as_slice();
        let mut users = images.users.as_slice();
        for run in &images.runs {
            match *run {
                Run::Reservations(count) => {
                    let (these, others) = reservations.split_at_checked(count).unwrap_or_default();
                    self.live(image_kinds::RESERVATION)?.add_reservations(these, stock)?;
                    reservations = others;
                }
                Run::Users(count) => {
                    let (these, others) = users.split_at_checked(count).unwrap_or_default();
                    self.live(image_kinds::USER)?.add_users(these, stock)?;
                    users = others;
                }
                Run::Other(index) => self.take_other(&images.other(index))?,
            }
        }
        let left = reservations.len() + users.len();
        assert!(left == 0, "W14: {left} images of a snapshot are in no run");
        Ok(())
    }

    /// The activity begun last, to which an image of `kind` belongs.
    fn live(&mut self, kind: u8) -> Result<&mut Loading, LoadError> {
        match &mut self.current {
            Some(Begun::Live(loading)) => Ok(loading),
            _ => Err(LoadError::OutOfPlace { kind }),
        }
    }

    fn take_other(&mut self, image: &Image<'_>) -> Result<(), LoadError> {
        let out_of_place = LoadError::OutOfPlace { kind: super::image_kind(image) };
        match *image {
            Image::Activity { activity, .. } => {
                self.end_activity()?;
                let begun = self.begin(image).ok_or(out_of_place)?;
                self.current = Some(Begun::Live(Box::new(Loading::begin(activity, begun))));
                Ok(())
            }
            Image::Archived { activity, ordinal, end_ms } => {
                self.end_activity()?;
                let tombstone = Tombstone { ordinal, end_ms, refunds: Refunds::new() };
                self.current = Some(Begun::Archived(activity, tombstone));
                Ok(())
            }
            Image::OpenRefund { reservation, refund_no, .. } => {
                self.end_activity()?;
                let refund = open_refund(image).ok_or(out_of_place)?;
                self.shard.open_refunds.insert((reservation, refund_no.into()), refund);
                Ok(())
            }
            _ => match self.current.as_mut().ok_or(out_of_place)? {
                Begun::Live(loading) => fill(loading.id, &mut loading.activity, image),
                Begun::Archived(_, tombstone) => refund(&mut tombstone.refunds, image),
            }
            .ok_or(out_of_place),
        }
    }

    /// The shard. The digest of its images must be `expected`; that they have become state as they
    /// should is what tests hold, and a build with debug assertions.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn finish(mut self, expected: u128) -> Result<Shard, LoadError> {
        self.end_activity()?;
        let due = self.shard.activities().filter_map(|(_, activity)| activity.next_due_ms(0)).min();
        self.shard.due_ms_min = due.unwrap_or(u64::MAX);
        let found = digest_with(&self.shard, self.live);
        debug_assert_eq!(found, digest(&self.shard), "W14: what was added is what is there");
        if found == expected { Ok(self.shard) } else { Err(LoadError::Digest) }
    }

    fn begin(&self, image: &Image<'_>) -> Option<Activity> {
        let Image::Activity {
            ordinal,
            version,
            figures,
            total,
            sold_before,
            on_sale,
            paused,
            drained,
            schedule_over,
            unpaid_from,
            definition,
            ..
        } = *image
        else {
            return None;
        };
        let (seq, tables) = (self.shard.applied_seq, self.shard.seed.tables());
        let flags = Flags { on_sale, paused, drained };
        let mut activity =
            Activity::new(ordinal, version, figures, flags, &definition, seq, tables);
        activity.total = total;
        activity.sold_before = sold_before;
        activity.schedule_over = schedule_over;
        activity.published = Publication::new(seq, activity.view());
        activity.unpaid_from = usize::try_from(unpaid_from).ok()?;
        Some(activity)
    }

    fn end_activity(&mut self) -> Result<(), LoadError> {
        match self.current.take() {
            Some(Begun::Live(loading)) => {
                let (id, digest, activity) = loading.end()?;
                self.live = self.live.wrapping_add(digest);
                self.place(id, Place::Live(Box::new(activity)))
            }
            Some(Begun::Archived(id, tombstone)) => self.place(id, Place::Archived(tombstone)),
            None => Ok(()),
        }
    }

    fn place(&mut self, id: ActivityId, place: Place) -> Result<(), LoadError> {
        match self.shard.places.insert(id, place) {
            None => Ok(()),
            Some(_) => Err(LoadError::Repeated(id)),
        }
    }
}

/// Adds an image to its activity; `None` where it does not fit.
fn fill(id: ActivityId, activity: &mut Activity, image: &Image<'_>) -> Option<()> {
    match *image {
        Image::Adopted { .. } => adopted(activity, image)?,
        Image::Payment { reservation, payment_no } => {
            activity.payments.insert(reservation, payment_no.into());
        }
        Image::Operation { op, decrease, quantity, version, figures } => {
            let kind = if decrease { OperationKind::Decrease } else { OperationKind::Restock };
            let answer = ActivityFigures { activity: id, version, figures };
            activity.operations.insert(op.into(), Operation { kind, quantity, answer });
        }
        Image::Refund { .. } => refund(&mut activity.refunds, image)?,
        Image::DeadLetter { reservation, state, opened_ms, note } => {
            let letter = DeadLetter { state, note: note.into(), opened_ms };
            activity.dead_letters.insert(reservation, letter);
        }
        Image::Opening {
            reservation,
            attempt,
            channel,
            amount,
            expires_ms,
            status,
            transaction,
        } => {
            let (channel, transaction) = (channel.into(), transaction.into());
            let payment = Payment { attempt, channel, amount, expires_ms, status, transaction };
            activity.openings.entry(reservation).or_default().push(payment);
        }
        Image::Receipt { receipt, reservation } => {
            activity.receipts.insert(receipt, reservation);
        }
        _ => return None,
    }
    Some(())
}

fn refund(refunds: &mut Refunds, image: &Image<'_>) -> Option<()> {
    let Image::Refund { reservation, refund_no, scope, restock, free_limit, status } = *image
    else {
        return None;
    };
    let refund = Refund { scope, restock, free_limit, status };
    refunds.insert((reservation, refund_no.into()), refund);
    Some(())
}

fn open_refund(image: &Image<'_>) -> Option<OpenRefund> {
    let Image::OpenRefund {
        activity,
        user,
        scope,
        restock,
        free_limit,
        channel,
        payment_no,
        transaction,
        amount,
        requested_ms,
        shard_seq,
        ..
    } = *image
    else {
        return None;
    };
    Some(OpenRefund {
        activity,
        user,
        scope,
        restock,
        free_limit,
        channel: channel.into(),
        payment_no: payment_no.into(),
        transaction: transaction.into(),
        amount,
        requested_ms,
        shard_seq,
    })
}

fn adopted(activity: &mut Activity, image: &Image<'_>) -> Option<()> {
    let Image::Adopted { reservation: id, old_id, order_no, .. } = *image else { return None };
    let slot = slot(image)?;
    // Told apart, before or after.
    let held = activity.users.held(slot.user());
    activity.users.adopt(&slot, held, id, &activity.slots, activity.ordinal);
    if slot.status() == Status::Reserved {
        activity.adopted_unpaid.insert((slot.created_ms(), id));
    }
    let before = activity.adopted.insert(id, Adopted { slot, old_id, order_no: order_no.into() });
    before.is_none().then_some(())
}

/// Loads the control lane.
#[derive(Debug)]
pub struct ControlLoader {
    control: Control,
    last_ms: u64,
}

impl ControlLoader {
    /// A loader of the control state after its record `seq`.
    pub fn new(seq: u64) -> Self {
        Self { control: Control::after(seq), last_ms: 0 }
    }

    /// Takes the next images.
    ///
    /// # Errors
    /// [`LoadError`]; the state is of no use any more.
    pub fn take(&mut self, images: &Images) -> Result<(), LoadError> {
        images.runs.iter().try_for_each(|run| match *run {
            Run::Reservations(_) => Err(LoadError::OutOfPlace { kind: image_kinds::RESERVATION }),
            Run::Users(_) => Err(LoadError::OutOfPlace { kind: image_kinds::USER }),
            Run::Other(index) => self.take_one(&images.other(index)),
        })
    }

    fn take_one(&mut self, image: &Image<'_>) -> Result<(), LoadError> {
        match *image {
            Image::Control { key, value, expires_ms } => {
                self.control.restore_setting(key, value, expires_ms);
            }
            Image::Sink { sink, lsn, shards } => self.control.restore_sink(sink, lsn, shards),
            Image::LastDecision { at_ms } => self.last_ms = at_ms,
            _ => return Err(LoadError::OutOfPlace { kind: super::image_kind(image) }),
        }
        Ok(())
    }

    /// The control state, whose digest must be `expected`, and the time of the last decision.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn finish(self, expected: u128) -> Result<(Control, u64), LoadError> {
        if self.control.digest() == expected {
            Ok((self.control, self.last_ms))
        } else {
            Err(LoadError::Digest)
        }
    }
}
