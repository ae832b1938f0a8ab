//! Images decoded as far as no state is needed: the half of a load that can be done ahead.

use super::{Image, decode_image};
use crate::core::codec::CodecError;
use crate::core::ids::ReservationId;
use crate::core::packed::Packed;
use crate::core::reservation::Slot;
use crate::core::user::User;

/// Kinds that are told of without an image at hand.
pub(super) mod image_kinds {
    pub(in super::super) const RESERVATION: u8 = 2;
    pub(in super::super) const USER: u8 = 4;
}

/// The next images of a lane.
#[derive(Debug, Default)]
pub struct Images {
    pub(super) runs: Vec<Run>,
    pub(super) reservations: Vec<(ReservationId, Slot)>,
    pub(super) users: Vec<User>,
    others: Packed<Other>,
}

/// Images that follow one another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Run {
    /// As many of the next reservations.
    Reservations(usize),
    /// As many of the next users.
    Users(usize),
    /// The image at this place among the others.
    Other(usize),
}

/// Any other image, but for its bytes.
#[derive(Clone, Copy, Debug)]
struct Other {
    kind: u8,
    version: u8,
}

impl Images {
    /// Adds the image behind `body`, the bytes after an item's header that names `kind` and
    /// `version`.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    pub fn push(&mut self, kind: u8, version: u8, body: &[u8]) -> Result<(), CodecError> {
        // Nearly all are of the first two kinds: each is decoded where its kind is a constant, and
        // no larger image is ever put together.
        match kind {
            image_kinds::RESERVATION => {
                let image = decode_image(image_kinds::RESERVATION, version, body)?;
                if let (&Image::Reservation { reservation, previous, .. }, Some(slot)) =
                    (&image, slot(&image))
                {
                    match self.runs.last_mut() {
                        Some(Run::Reservations(count)) => *count += 1,
                        _ => self.runs.push(Run::Reservations(1)),
                    }
                    self.reservations.push((reservation, slot.after(previous)));
                }
            }
            image_kinds::USER => {
                if let Image::User { user: id, held, last } =
                    decode_image(image_kinds::USER, version, body)?
                {
                    match self.runs.last_mut() {
                        Some(Run::Users(count)) => *count += 1,
                        _ => self.runs.push(Run::Users(1)),
                    }
                    self.users.push(User { id, held, last });
                }
            }
            _ => {
                decode_image(kind, version, body)?;
                self.runs.push(Run::Other(self.others.push(Other { kind, version }, body)));
            }
        }
        Ok(())
    }

    /// The image at `index` among those that are neither reservations nor users.
    ///
    /// # Panics
    /// Where it is not what was [pushed](Self::push), and decoded then: left out, it would be
    /// missing in the state that a start begins with (W14).
    pub(super) fn other(&self, index: usize) -> Image<'_> {
        let image =
            self.others.get(index).map(|(it, body)| decode_image(it.kind, it.version, body));
        let Some(Ok(image)) = image else { panic!("W14: image {index} is not what it was") };
        image
    }

    /// Empties it; the memory stays.
    pub fn clear(&mut self) {
        self.runs.clear();
        self.reservations.clear();
        self.users.clear();
        self.others.clear();
    }
}

/// The slot of a reservation, one's own or an adopted one; `None` for any other image.
#[inline]
pub(super) fn slot(image: &Image<'_>) -> Option<Slot> {
    let (Image::Reservation {
        user,
        quantity,
        status,
        attempts,
        created_ms,
        updated_ms,
        shard_seq,
        request_hash,
        ..
    }
    | Image::Adopted {
        user,
        quantity,
        status,
        attempts,
        created_ms,
        updated_ms,
        shard_seq,
        request_hash,
        ..
    }) = *image
    else {
        return None;
    };
    let mut slot = Slot::new(user, quantity, request_hash, created_ms, shard_seq);
    slot.set_status(status, updated_ms);
    slot.set_attempts(attempts);
    Some(slot)
}

#[cfg(test)]
mod tests {
    use super::super::IMAGE_KINDS;
    use super::image_kinds::{RESERVATION, USER};

    #[test]
    fn kinds_that_are_known_by_number_are_those_of_the_format() {
        for known in [(RESERVATION, "Reservation"), (USER, "User")] {
            assert!(IMAGE_KINDS.contains(&known), "{known:?}");
        }
    }
}
