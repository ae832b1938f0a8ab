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
    /// Sets `wished` bytes aside, or `needed` where the disk has no room for more. What is there is
    /// left as it is where it is enough: it is not given up for the chance of more.
    ///
    /// # Errors
    /// The disk's; nothing is set aside then.
    ///
    /// # Panics
    /// Where less is wished for than is needed.
    pub fn reserve_room(&self, needed: u64, wished: u64) -> io::Result<()> {
        assert!(needed <= wished, "{wished} bytes are wished for, {needed} needed");
        let device = &*self.parts().device;
        if reserved(device)? >= needed {
            return Ok(());
        }
        let set_aside = |bytes| {
            device.create_zeroed(&path(), bytes).inspect_err(|_| {
                let _ = device.remove(&path());
            })
        };
        set_aside(wished).or_else(|_| set_aside(needed))
    }

    /// Gives back what was set aside; tells whether anything was.
    pub fn give_room(&self) -> bool {
        self.parts().device.remove(&path()).is_ok()
    }
}
