//! What the callers and the reader of one schedule were told, and whether it was true.

use std::sync::{Mutex, MutexGuard, PoisonError};

use wal::device::sim::{Image, SimDevice};

/// A record: its shard, and its place there.
pub(crate) type Name = (u16, u64);

#[derive(Default)]
struct Notes {
    asked: Vec<Name>,
    acked: Vec<Name>,
    read: Vec<Name>,
    /// The disk at the chosen moment, and how much had been told by then.
    cut: Option<(Image, Vec<Name>, Vec<Name>)>,
    wrong: Vec<String>,
}

/// Everything that was told, by whom the scheduler liked. Its lock is a plain one: no schedule
/// depends on it.
pub(crate) struct Told {
    sim: SimDevice,
    /// Behind which telling the power is cut.
    moment: usize,
    notes: Mutex<Notes>,
}

impl Told {
    pub(crate) fn new(sim: SimDevice, moment: usize) -> Self {
        Self { sim, moment, notes: Mutex::default() }
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A caller has appended.
    pub(crate) fn asked(&self, name: Name) {
        self.notes().asked.push(name);
    }

    /// A waiter was told that its record is durable.
    pub(crate) fn acked(&self, name: Name) {
        self.tell(|notes| notes.acked.push(name));
    }

    /// The reader was given a record.
    pub(crate) fn read(&self, name: Name) {
        self.tell(|notes| notes.read.push(name));
    }

    fn tell(&self, note: impl FnOnce(&mut Notes)) {
        let mut notes = self.notes();
        note(&mut notes);
        if notes.acked.len() + notes.read.len() == self.moment + 1 {
            notes.cut = Some((self.sim.image(), notes.acked.clone(), notes.read.clone()));
        }
    }

    /// Something went wrong.
    pub(crate) fn wrong(&self, what: String) {
        self.notes().wrong.push(what);
    }

    /// Holds what was told against the log that `recover` reads from the disk after the cut, and
    /// against the durable sequences of a log that ended well.
    pub(crate) fn verdict(
        &self,
        durable: Option<[u64; 2]>,
        recover: impl FnOnce(&Image, &mut Vec<Name>) -> Result<(), String>,
    ) -> Result<(), String> {
        let notes = self.notes();
        if let Some(wrong) = notes.wrong.first() {
            return Err(wrong.clone());
        }
        for shard in 0..2 {
            let of = |names: &[Name]| -> Vec<u64> {
                names.iter().filter(|name| name.0 == shard).map(|name| name.1).collect()
            };
            let in_order = |seqs: &[u64]| seqs.iter().copied().eq(1..=seqs.len() as u64);
            let (asked, acked, read) = (of(&notes.asked), of(&notes.acked), of(&notes.read));
            if !in_order(&acked) || !in_order(&read) {
                return Err(format!("W3: shard {shard}: told {acked:?}, read {read:?}"));
            }
            if let Some(durable) = durable
                && (durable[usize::from(shard)], acked.len()) != (asked.len() as u64, asked.len())
            {
                return Err(format!("shard {shard}: {durable:?} of {asked:?}, told {acked:?}"));
            }
        }
        let Some((image, acked, read)) = &notes.cut else { return Ok(()) };
        let mut kept = Vec::new();
        recover(image, &mut kept)?;
        // The reader has the log's order: what is kept must begin with what it was given.
        let same = kept.len().min(notes.read.len());
        if kept[..same] != notes.read[..same] || kept.len() < read.len() {
            return Err(format!("W3: read {:?}, kept {kept:?}", notes.read));
        }
        match acked.iter().find(|name| !kept.contains(name)) {
            Some(lost) => Err(format!("W2: {lost:?} was told, and only {kept:?} is kept")),
            None => Ok(()),
        }
    }
}
