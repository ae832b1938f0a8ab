//! Images, in portions that one transaction can write.
//!
//! Everything here is pure: an image becomes a reservation as its rows would say it, or a change of
//! one, whose rows may have been written with an earlier portion.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::core::control::keys::BLACKLIST_PREFIX;
use engine::core::event::{RefundScope, Status as Life};
use engine::core::ids::{ActivityId, OrderPrefix, ReservationId, UserId};
use engine::core::side::{DeadLetterState, PaymentStatus, RefundStatus};
use engine::core::snapshot::Image;

use super::flows::Operation;
use crate::images::ImageSource;
use crate::sql::activities::Activity;
use crate::sql::reservations::Reservation;
use crate::sql::store::Value;
use crate::tail::Unreadable;

/// What is said of a reservation beside its own image.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) reservation: ReservationId,
    /// Its activity; `None` where that is archived, or unknown in this place.
    pub(super) activity: Option<Arc<Activity>>,
    pub(super) what: What,
}

#[derive(Clone, Debug)]
pub(super) enum What {
    /// The payment that paid it.
    Paid(String),
    Refund(Refund),
    RefundDetails(RefundDetails),
    Letter {
        state: DeadLetterState,
        opened_ms: u64,
        note: String,
    },
    Opening(Opening),
}

#[derive(Clone, Debug)]
pub(super) struct Refund {
    pub(super) refund_no: String,
    pub(super) scope: RefundScope,
    pub(super) restock: bool,
    pub(super) free_limit: bool,
    pub(super) status: RefundStatus,
}

/// What only an open refund still says.
#[derive(Clone, Debug)]
pub(super) struct RefundDetails {
    pub(super) refund_no: String,
    pub(super) payment_no: String,
    pub(super) amount: u64,
    pub(super) requested_ms: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Opening {
    pub(super) attempt: u8,
    pub(super) channel: String,
    pub(super) amount: u64,
    pub(super) expires_ms: u64,
    pub(super) status: PaymentStatus,
    pub(super) transaction: String,
}

/// An activity all of whose images have come.
#[derive(Clone, Debug)]
pub(super) struct Ended {
    pub(super) row: Arc<Activity>,
    pub(super) operations: Vec<Operation>,
}

/// What is left of an archived activity.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tombstone {
    pub(super) id: ActivityId,
    pub(super) ordinal: u32,
    pub(super) end_ms: u64,
}

/// An entry of the blacklist: its control's key, value and end.
pub(super) type Listed = (String, Vec<u8>, u64);

/// What one transaction writes.
#[derive(Debug, Default)]
pub(crate) struct Portion {
    /// Reservations as their images say.
    pub(super) born: BTreeMap<ReservationId, Reservation<'static>>,
    pub(super) changes: Vec<Change>,
    pub(super) ended: Vec<Ended>,
    pub(super) archived: Vec<Tombstone>,
    pub(super) receipts: u64,
    /// The whole blacklist, with the last portion.
    pub(super) blacklist: Option<Vec<Listed>>,
    /// The snapshot's time, for what has none of its own any more.
    pub(super) made_ms: u64,
    /// The shards met, each with the sequence that the images cover.
    pub(crate) marks: BTreeMap<u16, u64>,
    /// Whom the images speak of, each with the sequence that its shard's images cover: what they say
    /// was so by then.
    said: BTreeMap<ReservationId, u64>,
    images: usize,
}

impl Portion {
    /// Images it holds.
    pub(crate) fn len(&self) -> usize {
        self.images
    }

    /// Whether it is the last one.
    pub(crate) fn is_last(&self) -> bool {
        self.blacklist.is_some()
    }

    /// As of which record of its shard the order of `id` is asked for here, if it is.
    pub(crate) fn asked_seq(&self, id: ReservationId) -> Option<u64> {
        self.said.get(&id).copied()
    }
}

/// Makes portions.
#[derive(Debug)]
pub(crate) struct Folder {
    order_prefix: OrderPrefix,
    /// The activity whose images are coming.
    open: Option<Ended>,
    blacklist: Vec<Listed>,
}

impl Folder {
    /// A folder at the beginning of the images.
    pub(crate) fn new(order_prefix: OrderPrefix) -> Self {
        Self { order_prefix, open: None, blacklist: Vec::new() }
    }

    /// The next images, `images_max` at most.
    ///
    /// # Errors
    /// Where they can't be read.
    pub(crate) fn next_portion(
        &mut self,
        images: &mut impl ImageSource,
        images_max: usize,
    ) -> Result<Portion, Unreadable> {
        let mut portion = Portion { made_ms: images.created_ms(), ..Portion::default() };
        while portion.images < images_max {
            let Some(image) = images.next_image()? else {
                portion.ended.extend(self.open.take());
                portion.blacklist = Some(std::mem::take(&mut self.blacklist));
                break;
            };
            let of = subject(&image);
            self.take(&image, &mut portion);
            portion.images += 1;
            let (shard, seq) = images.shard();
            portion.said.extend(of.map(|id| (id, seq)));
            if shard != wal::CONTROL_SHARD {
                portion.marks.insert(shard, seq);
            }
        }
        Ok(portion)
    }

    fn take(&mut self, image: &Image<'_>, portion: &mut Portion) {
        match *image {
            Image::Activity { .. } => {
                portion.ended.extend(self.open.take());
                self.open = activity(image, portion.made_ms)
                    .map(|row| Ended { row: Arc::new(row), operations: Vec::new() });
            }
            Image::Archived { activity, ordinal, end_ms } => {
                portion.ended.extend(self.open.take());
                portion.archived.push(Tombstone { id: activity, ordinal: ordinal.get(), end_ms });
            }
            Image::Reservation { reservation, .. } => {
                let order_no = self.order_prefix.order_no(reservation);
                self.bear(image, order_no, portion);
            }
            Image::Adopted { reservation, order_no, .. } => {
                let order_no = match order_no {
                    "" => self.order_prefix.order_no(reservation),
                    order_no => order_no.to_owned(),
                };
                self.bear(image, order_no, portion);
            }
            Image::Operation { op, decrease, quantity, figures, .. } => {
                let Some(open) = &mut self.open else { return };
                let op = op.to_owned();
                let available = figures.available;
                open.operations.push(Operation { op, decrease, quantity, available });
            }
            Image::OpenRefund { .. } => {
                // Behind all activities, archived ones among them.
                portion.ended.extend(self.open.take());
                self.change(image, portion);
            }
            Image::Receipt { .. } => portion.receipts += 1,
            Image::Control { key, value, expires_ms } if key.starts_with(BLACKLIST_PREFIX) => {
                self.blacklist.push((key.to_owned(), value.to_vec(), expires_ms));
            }
            _ => self.change(image, portion),
        }
    }

    /// A reservation's image.
    fn bear(&self, image: &Image<'_>, order_no: String, portion: &mut Portion) {
        let (Some(open), Some(said)) = (&self.open, Said::of(image)) else { return };
        let request = (None, said.request_hash);
        let (id, user) = (said.id, said.user);
        let mut reservation = Reservation::new(
            id,
            order_no,
            user,
            said.quantity,
            &open.row,
            request,
            said.created_ms,
        );
        reservation.had_order = true;
        match said.status {
            Life::Reserved => {}
            Life::Confirmed => {
                reservation.confirm("", said.updated_ms);
                // Which payment it was comes with an image of its own.
                reservation.payment_no = Value::Null;
            }
            Life::RolledBack(reason) => reservation.restore(reason, said.updated_ms),
        }
        portion.born.insert(id, reservation);
    }

    /// Anything that is said of a reservation beside its own image.
    fn change(&self, image: &Image<'_>, portion: &mut Portion) {
        let (reservation, what) = match *image {
            Image::Payment { reservation, payment_no } => {
                (reservation, What::Paid(payment_no.to_owned()))
            }
            Image::Refund { reservation, refund_no, scope, restock, free_limit, status } => {
                let refund_no = refund_no.to_owned();
                let refund = Refund { refund_no, scope, restock, free_limit, status };
                (reservation, What::Refund(refund))
            }
            Image::OpenRefund {
                reservation, refund_no, payment_no, amount, requested_ms, ..
            } => {
                let (refund_no, payment_no) = (refund_no.to_owned(), payment_no.to_owned());
                let details = RefundDetails { refund_no, payment_no, amount, requested_ms };
                (reservation, What::RefundDetails(details))
            }
            Image::DeadLetter { reservation, state, opened_ms, note } => {
                (reservation, What::Letter { state, opened_ms, note: note.to_owned() })
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
                let (channel, transaction) = (channel.to_owned(), transaction.to_owned());
                let opening = Opening { attempt, channel, amount, expires_ms, status, transaction };
                (reservation, What::Opening(opening))
            }
            // What users hold follows from their reservations; marks and other controls are no
            // rows.
            _ => return,
        };
        let activity = self.open.as_ref().map(|open| Arc::clone(&open.row));
        portion.changes.push(Change { reservation, activity, what });
    }
}

/// The reservation that an image speaks of.
fn subject(image: &Image<'_>) -> Option<ReservationId> {
    match *image {
        Image::Reservation { reservation, .. }
        | Image::Adopted { reservation, .. }
        | Image::Payment { reservation, .. }
        | Image::Refund { reservation, .. }
        | Image::OpenRefund { reservation, .. }
        | Image::DeadLetter { reservation, .. }
        | Image::Opening { reservation, .. } => Some(reservation),
        _ => None,
    }
}

/// What both kinds of reservations say.
struct Said {
    id: ReservationId,
    user: UserId,
    quantity: u32,
    status: Life,
    created_ms: u64,
    updated_ms: u64,
    request_hash: u128,
}

impl Said {
    fn of(image: &Image<'_>) -> Option<Self> {
        let (Image::Reservation {
            reservation: id,
            user,
            quantity,
            status,
            created_ms,
            updated_ms,
            request_hash,
            ..
        }
        | Image::Adopted {
            reservation: id,
            user,
            quantity,
            status,
            created_ms,
            updated_ms,
            request_hash,
            ..
        }) = *image
        else {
            return None;
        };
        Some(Self { id, user, quantity, status, created_ms, updated_ms, request_hash })
    }
}

fn activity(image: &Image<'_>, made_ms: u64) -> Option<Activity> {
    let Image::Activity {
        activity,
        ordinal,
        version,
        figures,
        on_sale,
        paused,
        drained,
        definition,
        ..
    } = *image
    else {
        return None;
    };
    let row = Activity::new(activity, ordinal.get(), figures, &definition, made_ms);
    Some(Activity { version, on_sale, paused, drained, ..row })
}
