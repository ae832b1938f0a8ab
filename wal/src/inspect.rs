//! Reading a log without opening it: nothing is written, not even a lock file, and a server may
//! run beside.
//!
//! Beside a running server the end of the log moves, and what lies there may be half written. Only
//! what a later frame or watermark promises as synced is read then.

use std::io;
use std::sync::Arc;

use crate::control::{Control, Format};
use crate::device::{Device, Lock};
use crate::error::OpenError;
use crate::ids::{Epoch, LogUuid, Lsn};
use crate::names;
use crate::open::{io_error, read_control};
use crate::reader::Reader;
use crate::recover::{self, FRAMES_AT, Reach, Replay, TornTail};
use crate::scan::{self, Scanner};

/// What reading the whole log found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inspection {
    /// The log.
    pub uuid: LogUuid,
    /// The incarnation that last opened it to write.
    pub epoch: Epoch,
    /// Its constants.
    pub format: Format,
    /// The last record read.
    pub last_lsn: Lsn,
    /// Segments read.
    pub segments: u64,
    /// What the next start will cut.
    pub torn_tail: Option<TornTail>,
    /// Whether a server has the log open: then its unpromised end was left out.
    pub beside_running_server: bool,
}

/// Reads and judges the whole log, handing every record to `replay`.
pub fn inspect(device: &dyn Device, replay: &mut Replay<'_>) -> Result<Inspection, OpenError> {
    let lock = probe_lock(device)?;
    let (control, _) = read_control(device)?;
    let reach = if lock.is_some() { Reach::Everything } else { Reach::Promised };
    let recovered = recover::recover(device, &control, reach, replay)?;
    Ok(Inspection {
        uuid: control.log_uuid,
        epoch: control.epoch,
        format: control.format,
        last_lsn: recovered.last_lsn,
        segments: recovered.segments,
        torn_tail: recovered.torn_tail,
        beside_running_server: lock.is_none(),
    })
}

/// The constants of a log, without reading it.
pub fn read_format(device: &dyn Device) -> Result<Format, OpenError> {
    Ok(read_control_of_log(device)?.0.format)
}

/// A reader of a log that this process has not opened, which goes on as a server beside it
/// promises more.
pub fn follow(device: Arc<dyn Device>) -> Result<Reader, OpenError> {
    let (control, _) = read_control_of_log(&*device)?;
    let format = control.format;
    let source = Arc::clone(&device);
    let end = move || promised_lsn(&*source).unwrap_or(Lsn(0));
    Ok(Reader::new(device, format, Box::new(end)))
}

fn read_control_of_log(device: &dyn Device) -> Result<(Control, Option<Box<dyn Lock>>), OpenError> {
    let lock = probe_lock(device)?;
    Ok((read_control(device)?.0, lock))
}

/// The last record that is known to be durable, as far as a bystander can tell.
fn promised_lsn(device: &dyn Device) -> Result<Lsn, OpenError> {
    let (control, lock) = read_control_of_log(device)?;
    let ids = recover::list_segments(device, &control)?;
    let Some(last) = ids.last() else { return Ok(Lsn(0)) };
    let header = recover::read_header(device, &control, *last)?;
    let path = names::segment(*last);
    let file = device.open_uncached(&path).map_err(io_error(device, "open", &path))?;
    let limit = match lock {
        Some(_) => header.segment_bytes,
        None => scan::survey(&*file, &header, FRAMES_AT).promised_through.max(FRAMES_AT),
    };
    let mut scanner = Scanner::new(file, header, control.format.frame_bytes_max as usize);
    while scanner.next(limit).is_ok() {}
    Ok(Lsn(scanner.position.next_lsn.0 - 1))
}

/// The directory's lock, or `None` where a server has it. A directory without a lock file never
/// had a server, and is left without one.
fn probe_lock(device: &dyn Device) -> Result<Option<Box<dyn Lock>>, OpenError> {
    let no_log = || OpenError::NoLog { dir: device.display("") };
    let entries = match device.list("") {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(no_log()),
        Err(error) => return Err(io_error(device, "list", "")(error)),
    };
    let has = |name: &str| entries.iter().any(|entry| entry.name == name);
    if !has("LOCK") || !has(crate::control::CONTROL_PATH) {
        return Err(no_log());
    }
    match device.lock() {
        Ok(lock) => Ok(Some(lock)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(io_error(device, "lock", "LOCK")(error)),
    }
}
