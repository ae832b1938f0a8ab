//! Room set aside for the next snapshot: on a disk that is full it is the snapshot that lets the
//! log give room back.

use std::io;

use crate::device::Device;
use crate::log::Log;
use crate::names;

const RESERVE: &str = "room.reserve";

fn path() -> String {
    format!("{}/{RESERVE}", names::SNAP_DIR)
}

fn reserved(device: &dyn Device) -> io::Result<u64> {
    let entries = device.list(names::SNAP_DIR)?;
    Ok(entries.iter().find(|entry| entry.name == RESERVE).map_or(0, |entry| entry.bytes))
}

impl Log {
    /// Sets `bytes` aside, unless there is as much already. Where the disk has no room now, nothing
    /// is set aside.
    ///
    /// # Errors
    /// The disk's.
    pub fn reserve_room(&self, bytes: u64) -> io::Result<()> {
        let device = &*self.parts().device;
        if reserved(device)? >= bytes {
            return Ok(());
        }
        device.create_zeroed(&path(), bytes).inspect_err(|_| {
            let _ = device.remove(&path());
        })
    }

    /// Bytes that are set aside.
    ///
    /// # Errors
    /// The disk's.
    pub fn reserved_room(&self) -> io::Result<u64> {
        reserved(&*self.parts().device)
    }

    /// Gives back what was set aside; tells whether anything was.
    pub fn give_room(&self) -> bool {
        self.parts().device.remove(&path()).is_ok()
    }
}
