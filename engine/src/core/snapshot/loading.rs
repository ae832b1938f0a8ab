//! The reservations and users of one activity, on their way from images to state.

use super::images::image_kinds;
use super::load::LoadError;
use crate::core::activity::Activity;
use crate::core::digest::ActivityDigest;
use crate::core::ids::{ActivityId, Position, ReservationId};
use crate::core::reservation::Slot;
use crate::core::stock::Stock;
use crate::core::user::User;

/// An activity that is loaded.
#[derive(Debug)]
pub(super) struct Loading {
    pub(super) id: ActivityId,
    pub(super) activity: Activity,
    /// Of what was added: what a start reads it has at hand but once.
    digest: ActivityDigest,
    /// Users who made reservations here, and images of users.
    buyers: usize,
    users: usize,
}

/// Images between two looks at whether memory was made for more.
const STOCKED_TOGETHER: usize = 64;

impl Loading {
    /// `activity`, which has its definition and its figures.
    pub(super) fn begin(id: ActivityId, activity: Activity) -> Self {
        let digest = ActivityDigest::begin(id, &activity);
        Self { id, activity, digest, buyers: 0, users: 0 }
    }

    /// Adds the next reservations by position. What is known of their users comes behind them.
    pub(super) fn add_reservations(
        &mut self,
        reservations: &[(ReservationId, Slot)],
        stock: &mut dyn Stock,
    ) -> Result<(), LoadError> {
        let Self { activity, digest, .. } = self;
        let out_of_place = LoadError::OutOfPlace { kind: image_kinds::RESERVATION };
        if self.users > 0 || !activity.adopted.is_empty() {
            return Err(out_of_place);
        }
        for together in reservations.chunks(STOCKED_TOGETHER) {
            activity.stock_up_slots(stock);
            for (reservation, slot) in together {
                let next = Position::after(activity.slots.len());
                let position = activity.own_position(*reservation).filter(|it| Some(*it) == next);
                let position = position.ok_or(out_of_place)?;
                match slot.previous() {
                    None => self.buyers += 1,
                    Some(previous) => {
                        let (slots, ordinal) = (&activity.slots, activity.ordinal);
                        // A chain that leads anywhere but back would be walked for ever; one that
                        // leads to another user's would find that one's requests.
                        let before = slots.get(previous.index());
                        if before.is_none_or(|it| it.user() != slot.user()) {
                            return Err(out_of_place);
                        }
                        activity.users.restore_link(slot, position, slots, ordinal);
                    }
                }
                digest.slot(slot);
                activity.slots.push(*slot);
            }
        }
        Ok(())
    }

    /// Adds what is known of users, behind their reservations. They come in the order of a table
    /// such as this one, which takes its final size at once: each who buys has one reservation
    /// with none before it.
    pub(super) fn add_users(
        &mut self,
        users: &[User],
        stock: &mut dyn Stock,
    ) -> Result<(), LoadError> {
        let Self { activity, digest, .. } = self;
        let slots = &activity.slots;
        let is_theirs = |user: &User, last: Position| {
            slots.get(last.index()).is_some_and(|slot| slot.user() == user.id)
        };
        let in_place = users.iter().all(|it| it.last.is_none_or(|last| is_theirs(it, last)));
        if !activity.adopted.is_empty() || !in_place {
            return Err(LoadError::OutOfPlace { kind: image_kinds::USER });
        }
        if self.users == 0 {
            activity.users.allot(self.buyers);
        }
        self.users += users.len();
        for together in users.chunks(STOCKED_TOGETHER) {
            activity.stock_up_users(stock);
            for user in together {
                activity.users.restore(*user);
                digest.user(user);
            }
        }
        Ok(())
    }

    /// The activity with its digest.
    pub(super) fn end(self) -> Result<(ActivityId, u128, Activity), LoadError> {
        let Self { id, activity, digest, users, .. } = self;
        // One who came twice would be counted twice, and be there once. Adopted reservations add
        // nobody: who has one has an image.
        match activity.users.count() == users {
            true => Ok((id, digest.finish(&activity), activity)),
            false => Err(LoadError::OutOfPlace { kind: image_kinds::USER }),
        }
    }
}
