//! The bytes of a purchase, at places that are known beforehand.
//!
//! Nearly every record of a log is one: a shopper waits while it is written, and a start for all of
//! them. Both go through the same fields as [`encode`](super::encode) and
//! [`decode`](super::decode), without an event that could be any other. [`Purchase::read`] takes
//! what is in order and leaves the rest to `decode`, which can say what is wrong.

use super::super::event::{Figures, Front};
use super::super::ids::{ActivityId, ReservationId, UserId};
use super::super::limits::REQUEST_ID_BYTES_MAX;
use super::fields::{
    Activity, Code, Field, Quantity, Reservation, Time, UnitFigures, User, Version,
};
use super::reader::Reader;
use super::writer::Writer;
use super::{FORMAT_VERSION, RESERVED};

/// The kind of a purchase and its version, as a record's header names them.
pub const PURCHASE_KIND: (u8, u8) = (RESERVED, FORMAT_VERSION);

/// Bytes before the text of the request id.
const HEAD_BYTES: usize = 58;

/// A purchase as its record has it: what `Body::Reserved` says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Purchase<'a> {
    /// When it was decided, Unix milliseconds.
    pub at_ms: u64,
    /// The activity.
    pub activity: ActivityId,
    /// The reservation.
    pub reservation: ReservationId,
    /// The buyer.
    pub user: UserId,
    /// Units.
    pub quantity: u32,
    /// The buyer's units after it.
    pub held: u32,
    /// Version of the activity's definition.
    pub version: u32,
    /// The activity's units after it.
    pub figures: Figures,
    /// The door it came in by.
    pub front: Front,
    /// The client's id for it: UTF-8.
    pub request_id: &'a [u8],
}

impl<'a> Purchase<'a> {
    /// The purchase behind `body`, the bytes after a record's header that names `kind` and
    /// `version`. `None` where they are another event's, or not as they should be.
    #[inline]
    pub fn read(kind: u8, version: u8, body: &'a [u8]) -> Option<Self> {
        if kind != RESERVED || version != FORMAT_VERSION {
            return None;
        }
        let (head, request_id) = body.split_first_chunk::<HEAD_BYTES>()?;
        let mut reader = Reader::new(head);
        let purchase = Self {
            at_ms: field::<Time>(&mut reader)?,
            activity: field::<Activity>(&mut reader)?,
            reservation: field::<Reservation>(&mut reader)?,
            user: field::<User>(&mut reader)?,
            quantity: field::<Quantity>(&mut reader)?,
            held: field::<Quantity>(&mut reader)?,
            version: field::<Version>(&mut reader)?,
            figures: field::<UnitFigures>(&mut reader)?,
            front: field::<Code<Front>>(&mut reader)?,
            request_id,
        };
        let bytes = usize::from(reader.u8()?);
        let fits = bytes == request_id.len() && (1..=REQUEST_ID_BYTES_MAX).contains(&bytes);
        // Most are ASCII, which is seen sixteen bytes at a time.
        let is_text = request_id.is_ascii() || str::from_utf8(request_id).is_ok();
        (fits && is_text).then_some(purchase)
    }

    /// The bytes before those of the request id; with them, what `encode` gives.
    ///
    /// # Panics
    /// Where a field is outside its bounds, as [`encode`](super::encode).
    #[inline]
    pub fn head(&self) -> [u8; HEAD_BYTES] {
        let mut nowhere = Vec::new();
        let mut head = Writer::new(&mut nowhere);
        put::<Time>(self.at_ms, &mut head);
        put::<Activity>(self.activity, &mut head);
        put::<Reservation>(self.reservation, &mut head);
        put::<User>(self.user, &mut head);
        put::<Quantity>(self.quantity, &mut head);
        put::<Quantity>(self.held, &mut head);
        put::<Version>(self.version, &mut head);
        put::<UnitFigures>(self.figures, &mut head);
        put::<Code<Front>>(self.front, &mut head);
        let bytes = self.request_id.len();
        assert!((1..=REQUEST_ID_BYTES_MAX).contains(&bytes), "a request id has 1..=64 bytes");
        #[expect(clippy::cast_possible_truncation, reason = "just checked")]
        head.fixed([bytes as u8]);
        head.head()
    }
}

#[inline(always)]
fn put<F: Field>(value: F::Value<'_>, head: &mut Writer<'_>) {
    assert!(F::fits(value), "a purchase's field is outside its bounds");
    F::put(value, head);
}

#[inline(always)]
fn field<'a, F: Field>(reader: &mut Reader<'a>) -> Option<F::Value<'a>> {
    F::take(reader).filter(|value| F::fits(*value))
}

#[cfg(test)]
mod tests {
    use super::super::super::event::{Body, Event};
    use super::super::super::ids::{Ordinal, Position};
    use super::super::{decode, encode};
    use super::*;

    fn bytes(request_id: &str) -> Vec<u8> {
        let (ordinal, position) = (Ordinal::new(3).unwrap(), Position::new(9).unwrap());
        let body = Body::Reserved {
            activity: ActivityId::new(11).unwrap(),
            front: Front::Resp,
            reservation: ReservationId::compose(ordinal, position),
            user: UserId::new(77).unwrap(),
            quantity: 2,
            held: 3,
            version: 4,
            figures: Figures { available: 5, locked: 6, sold: 7 },
            request_id,
        };
        let mut bytes = Vec::new();
        encode(&Event { at_ms: 1_700_000_000_000, body }, &mut bytes);
        bytes
    }

    #[test]
    fn it_is_read_as_the_general_reader_reads_it_whatever_the_bytes() {
        let long = "x".repeat(REQUEST_ID_BYTES_MAX);
        for request_id in ["r", "0190a6f0-7b7e-7cc1", "\u{8BF7}\u{6C42}", &long] {
            let whole = bytes(request_id);
            let changed = (0..whole.len()).flat_map(|at| {
                let whole = &whole;
                [0, 1, 0x7F, 0x80, 0xFF].map(move |byte| {
                    let mut changed = whole.clone();
                    changed[at] = byte;
                    changed
                })
            });
            let cut = (0..whole.len()).map(|count| whole[..count].to_vec());
            let longer = [whole.clone(), [whole.as_slice(), b"x"].concat()];
            for bytes in changed.chain(cut).chain(longer) {
                let expected = decode(RESERVED, FORMAT_VERSION, &bytes).ok().map(|event| {
                    let Body::Reserved {
                        activity,
                        reservation,
                        user,
                        quantity,
                        held,
                        version,
                        figures,
                        front,
                        request_id,
                    } = event.body
                    else {
                        panic!("a purchase is none: {event:?}");
                    };
                    let (at_ms, request_id) = (event.at_ms, request_id.as_bytes());
                    Purchase {
                        at_ms,
                        activity,
                        reservation,
                        user,
                        quantity,
                        held,
                        version,
                        figures,
                        front,
                        request_id,
                    }
                });
                assert_eq!(Purchase::read(RESERVED, FORMAT_VERSION, &bytes), expected, "{bytes:?}");
                if let Some(purchase) = expected {
                    assert_eq!([&purchase.head(), purchase.request_id].concat(), bytes);
                }
            }
        }
        assert_eq!(Purchase::read(RESERVED, FORMAT_VERSION + 1, &bytes("r")), None);
        assert_eq!(Purchase::read(RESERVED + 1, FORMAT_VERSION, &bytes("r")), None);
    }
}
