//! The mirror's cursor as Redis keeps it: `<log uuid> <epoch> <lsn> <chain> <within>`.
//!
//! A call of the library is bounded by records, a frame of the log is not. So a mark may stand
//! inside a frame: `lsn` and `chain` are the last whole frame, `within` counts the records behind
//! it that are in Redis, too. While a resync is under way the place is the word `resync`: whoever
//! finds that begins again, for the keys are of no one instant.

use std::fmt;

use wal::{Epoch, LogIdentity, LogUuid, Lsn};

use crate::cursor::Cursor;

/// Where in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub(super) lsn: Lsn,
    pub(super) chain: u32,
    pub(super) within: u64,
}

impl Place {
    pub(super) const fn frame_end(lsn: Lsn, chain: u32) -> Self {
        Self { lsn, chain, within: 0 }
    }

    /// The last record that is in Redis.
    pub(super) const fn reached(self) -> Lsn {
        // Redis may hold anything: a place beyond every log is refused as such, not computed.
        Lsn(self.lsn.0.saturating_add(self.within))
    }
}

/// A cursor in Redis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mark {
    pub(super) uuid: LogUuid,
    pub(super) epoch: Epoch,
    /// `None` while a resync is under way.
    pub(super) place: Option<Place>,
}

impl Mark {
    pub(super) const fn new(identity: LogIdentity, place: Option<Place>) -> Self {
        Self { uuid: identity.uuid, epoch: identity.epoch, place }
    }

    /// Reads what [`Mark`] writes; `None` for anything else, be it another spelling of a mark.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mark = Self::read(text)?;
        (mark.to_string() == text).then_some(mark)
    }

    fn read(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let (uuid, epoch) = (uuid(words.next()?)?, Epoch(words.next()?.parse().ok()?));
        let place = match words.next()? {
            "resync" => None,
            lsn => Some(Place {
                lsn: Lsn(lsn.parse().ok()?),
                chain: u32::from_str_radix(words.next()?, 16).ok()?,
                within: words.next()?.parse().ok()?,
            }),
        };
        words.next().is_none().then_some(Self { uuid, epoch, place })
    }

    /// As the table of [`cursor`](crate::cursor) judges it.
    pub(super) fn cursor(&self) -> Cursor {
        let (lsn, chain) = self.place.map_or((Lsn(0), 0), |place| (place.lsn, place.chain));
        Cursor { uuid: self.uuid, epoch: self.epoch, lsn, chain }
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ", self.uuid, self.epoch)?;
        match self.place {
            None => f.write_str("resync"),
            Some(Place { lsn, chain, within }) => write!(f, "{lsn} {chain:08x} {within}"),
        }
    }
}

fn uuid(text: &str) -> Option<LogUuid> {
    let mut bytes = [0; 16];
    if text.len() != 32 || !text.is_ascii() {
        return None;
    }
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).ok()?;
    }
    Some(LogUuid(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_reads_back_and_nothing_else_is_one() {
        let identity = LogIdentity { uuid: LogUuid([0xA7; 16]), epoch: Epoch(12) };
        let place = Place { lsn: Lsn(40), chain: 0xABC, within: 3 };
        for place in [Some(place), None] {
            let mark = Mark::new(identity, place);
            assert_eq!(Mark::parse(&mark.to_string()), Some(mark));
        }
        assert_eq!(place.reached(), Lsn(43));
        let text = Mark::new(identity, Some(place)).to_string();
        for wrong in [
            "",
            "1",
            "resync",
            &format!("{text} 1"),
            &text[1..],
            &text[..text.len() - 2],
            &text.replace(" 3", " +3"),
            &text.replacen("a7", "+7", 1),
            &text.to_uppercase(),
        ] {
            assert_eq!(Mark::parse(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_mark_beyond_every_log_is_read_and_not_computed() {
        let identity = LogIdentity { uuid: LogUuid([0xA7; 16]), epoch: Epoch(12) };
        let place = Place { lsn: Lsn(u64::MAX), chain: 0, within: u64::MAX };
        let mark = Mark::parse(&Mark::new(identity, Some(place)).to_string());
        let reached = mark.and_then(|mark| mark.place).map(Place::reached);
        assert_eq!(reached, Some(Lsn(u64::MAX)));
    }
}
