//! The reader: durable frames, in order, never beyond the durable mark. The log is the outbox, and
//! this is how sinks read it.

use std::io;
use std::sync::Arc;

use crate::block::Blocks;
use crate::control::Format;
use crate::device::{Device, File, read_full};
use crate::error::ReadError;
use crate::frame::{FrameHeader, FrameKind, HEADER_BYTES};
use crate::ids::{Epoch, Lsn, SegmentId};
use crate::names;
use crate::planted::{self, Bug};
use crate::record::Records;
use crate::scan::{Scanned, Scanner, Stop};
use crate::segment::SegmentHeader;

/// A durable frame with records.
#[derive(Clone, Debug)]
pub struct Frame<'a> {
    /// Its first record.
    pub first_lsn: Lsn,
    /// Its last record: where a reader's cursor stands after it.
    pub last_lsn: Lsn,
    /// The incarnation that wrote it.
    pub epoch: Epoch,
    /// Its header's CRC, which the next frame repeats: two logs that differ anywhere before here
    /// differ in it.
    pub chain: u32,
    /// When it was committed, Unix microseconds.
    pub commit_us: u64,
    payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// The frame of `header` in `bytes`, which were checked to hold it.
    pub(crate) fn new(header: &FrameHeader, bytes: &'a [u8]) -> Self {
        let payload_bytes = header.payload_bytes as usize;
        Self {
            first_lsn: header.first_lsn,
            last_lsn: header.last_lsn(),
            epoch: header.epoch,
            chain: header.header_crc,
            commit_us: header.commit_us,
            payload: &bytes[HEADER_BYTES..][..payload_bytes],
        }
    }

    /// Its records.
    pub fn records(&self) -> Records<'a> {
        Records::new(self.payload, self.first_lsn)
    }
}

/// Tells how far the log is durable.
pub(crate) type Mark = Box<dyn Fn() -> Result<Lsn, ReadError> + Send>;

/// Reads the log from a place on.
pub struct Reader {
    device: Arc<dyn Device>,
    format: Format,
    durable_lsn: Mark,
    /// The mark when it was last asked for. It only grows (W2), so it is asked for again only
    /// where this one is reached: a bystander pays for the answer with a scan.
    known_durable: Lsn,
    scanner: Option<Scanner>,
    /// Where the scanned segment ends. Beyond a seal the page cache may keep frames of a failed
    /// sync that the disk never got, and their LSNs were given to others since.
    limit: u64,
}

impl Reader {
    pub(crate) fn new(device: Arc<dyn Device>, format: Format, durable_lsn: Mark) -> Self {
        Self { device, format, durable_lsn, known_durable: Lsn(0), scanner: None, limit: 0 }
    }

    /// Goes to the end of the frame whose last record is `lsn` (`Lsn(0)`: before the first), so
    /// that [`Reader::next_frame`] gives the one after it. Returns that frame's chain, 0 for none.
    pub fn seek(&mut self, lsn: Lsn) -> Result<u32, ReadError> {
        self.scanner = None;
        let end = (self.durable_lsn)()?;
        if lsn > end {
            return Err(ReadError::BeyondEnd { asked: lsn, end });
        }
        let ids = self.segments()?;
        let mut scanner = None;
        for id in ids.iter().rev() {
            let candidate = self.open(*id)?;
            let starts_at_or_before = candidate.header.first_lsn.0 <= lsn.0.max(1);
            let first_lsn = candidate.header.first_lsn;
            scanner = Some(candidate);
            if starts_at_or_before {
                break;
            }
            if Some(id) == ids.first() {
                return Err(ReadError::Retired { asked: lsn, oldest: first_lsn });
            }
        }
        // Restarts leave segments without frames that begin at the same LSN: the oldest of those
        // is where reading starts.
        let Some(mut scanner) = scanner else { return Ok(0) };
        while lsn == Lsn(0) && ids.contains(&scanner.header.prev_segment_id) {
            scanner = self.open(scanner.header.prev_segment_id)?;
        }
        self.limit = self.limit(&scanner.header)?;
        self.scanner = Some(scanner);
        if lsn == Lsn(0) {
            return Ok(0);
        }
        loop {
            match self.step(end)? {
                Some((last_lsn, chain)) if last_lsn == lsn => return Ok(chain),
                Some((last_lsn, _)) if last_lsn < lsn => {}
                _ => return Err(ReadError::NotAFrameEnd(lsn)),
            }
        }
    }

    /// Goes to the first frame that is still there, so that [`Reader::next_frame`] gives it.
    /// Returns the LSN before it, `Lsn(0)` where nothing was given back yet.
    pub fn seek_oldest(&mut self) -> Result<Lsn, ReadError> {
        self.scanner = None;
        let Some(oldest) = self.segments()?.first().copied() else { return Ok(Lsn(0)) };
        let scanner = self.open(oldest)?;
        let before = Lsn(scanner.header.first_lsn.0.saturating_sub(1));
        self.limit = self.limit(&scanner.header)?;
        self.scanner = Some(scanner);
        Ok(before)
    }

    /// The next durable frame, or `None` where the reader has caught up with the durable mark.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, ReadError> {
        if self.scanner.is_none() {
            self.seek(Lsn(0))?;
        }
        let next_lsn = self.scanner.as_ref().map_or(Lsn(0), |scanner| scanner.position.next_lsn);
        if next_lsn > self.known_durable {
            self.known_durable = (self.durable_lsn)()?;
            // What was read ahead is older than this mark: frames up to it may be missing there,
            // and the segment may have been sealed.
            if let Some(scanner) = &mut self.scanner {
                scanner.refresh();
                let header = scanner.header;
                self.limit = self.limit(&header)?;
            }
        }
        if self.step(self.known_durable)?.is_none() {
            return Ok(None);
        }
        let last = self.scanner.as_ref().and_then(Scanner::last);
        Ok(last.map(|Scanned { header, payload }| {
            assert!(header.first_lsn == next_lsn, "W4: a reader passes no record over");
            assert!(header.last_lsn() <= self.known_durable, "W2: what is read is durable");
            assert!(header.record_count > 0, "W4: a frame without records is no news");
            Frame {
                first_lsn: header.first_lsn,
                last_lsn: header.last_lsn(),
                epoch: header.epoch,
                chain: header.header_crc,
                commit_us: header.commit_us,
                payload,
            }
        }))
    }

    /// Steps over the next frame with records up to `durable_lsn`: its last LSN and chain.
    fn step(&mut self, durable_lsn: Lsn) -> Result<Option<(Lsn, u32)>, ReadError> {
        loop {
            let Some(scanner) = &mut self.scanner else { return Ok(None) };
            // Bytes beyond the durable mark may be half written: they are not even looked at.
            if scanner.position.next_lsn > durable_lsn {
                scanner.refresh();
                return Ok(None);
            }
            match scanner.next(self.limit) {
                Ok(scanned) if scanned.header.kind == FrameKind::Watermark => {}
                Ok(scanned) => {
                    let header = scanned.header;
                    return Ok(Some((header.last_lsn(), header.header_crc)));
                }
                Err(Stop::Unreadable(source)) if source.kind() != io::ErrorKind::UnexpectedEof => {
                    return Err(self.io("read", scanner_path(&self.scanner), source));
                }
                Err(_) => self.next_segment()?,
            }
        }
    }

    /// Goes on in the successor, if the present segment is sealed exactly here.
    fn next_segment(&mut self) -> Result<(), ReadError> {
        let Some(scanner) = &self.scanner else { return Ok(()) };
        let (sealed, end) = (scanner.header, scanner.end());
        let id = sealed.segment_id;
        let damaged = || {
            // A reader that holds nothing back may be overtaken: the file has another life by now.
            match self.header(id) {
                Ok((_, header)) if header.stamp == sealed.stamp => {}
                _ => return self.retired(end.last_lsn.plus(1)),
            }
            ReadError::Damaged {
                path: self.device.display(&names::segment(id)),
                offset: end.offset,
            }
        };
        if !self.segments()?.contains(&id.plus(1)) {
            return Err(damaged());
        }
        let next = self.open(id.plus(1))?;
        if !next.header.seals(&sealed, &end) {
            return Err(damaged());
        }
        self.limit = self.limit(&next.header)?;
        self.scanner = Some(next);
        Ok(())
    }

    /// Where a segment ends, as things stand.
    fn limit(&self, header: &SegmentHeader) -> Result<u64, ReadError> {
        match self.header(header.segment_id.plus(1)) {
            Ok(_) if planted::has(Bug::ReaderPassesSeal) => Ok(header.limit(None)),
            Ok((_, next)) => Ok(header.limit(Some(&next))),
            Err(ReadError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Ok(header.limit(None))
            }
            Err(error) => Err(error),
        }
    }

    fn segments(&self) -> Result<Vec<SegmentId>, ReadError> {
        let entries = self
            .device
            .list(names::WAL_DIR)
            .map_err(|source| self.io("list", names::WAL_DIR.to_owned(), source))?;
        let mut ids: Vec<_> =
            entries.iter().filter_map(|entry| names::parse_segment(&entry.name)).collect();
        ids.sort_unstable();
        Ok(ids)
    }

    fn open(&self, id: SegmentId) -> Result<Scanner, ReadError> {
        let (file, header) = self.header(id)?;
        Ok(Scanner::new(file, header, self.format.frame_bytes_max as usize).following())
    }

    fn header(&self, id: SegmentId) -> Result<(Arc<dyn File>, SegmentHeader), ReadError> {
        let path = names::segment(id);
        let file = self
            .device
            .open_to_read(&path)
            .map_err(|source| self.io("open", path.clone(), source))?;
        let mut block = Blocks::new(1);
        let read = read_full(&*file, block.bytes_mut(), 0)
            .map_err(|source| self.io("read", path.clone(), source))?;
        let header = SegmentHeader::parse(&block.bytes()[..read])
            .map_err(|_| ReadError::Damaged { path: self.device.display(&path), offset: 0 })?;
        Ok((file, header))
    }

    /// The error of a reader whose place is gone.
    fn retired(&self, asked: Lsn) -> ReadError {
        let oldest = self.segments().ok().and_then(|ids| ids.first().copied());
        let header = oldest.and_then(|id| self.header(id).ok());
        ReadError::Retired { asked, oldest: header.map_or(Lsn(0), |(_, it)| it.first_lsn) }
    }

    fn io(&self, op: &'static str, path: String, source: io::Error) -> ReadError {
        ReadError::Io { op, path: self.device.display(&path), source }
    }
}

fn scanner_path(scanner: &Option<Scanner>) -> String {
    scanner.as_ref().map_or(String::new(), |scanner| names::segment(scanner.header.segment_id))
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#[path = "reader_tests.rs"]
mod tests;
