//! The confirmed cursor: what is not only in Redis but in its append-only file on disk.
//!
//! Once a second `WAITAOF 1 0` asks on a connection of its own, which first writes a cursor to
//! itself: what WAITAOF waits for is all that was written before the asking connection's last
//! write. The same call notices data that vanished while nothing was sold.
//!
//! A server without an append-only file confirms nothing, ever: the mirror works, the log is kept
//! for it no longer than for any other reader that can be written anew.

use std::time::Duration;

use redis::{Cmd, cmd};
use wal::Lsn;

use super::fault::MirrorError;
use super::library;
use super::present::Present;
use super::servers::{Servers, Waits};
use super::sink::Mirror;

/// How long a server may take to sync; an answer is awaited a little longer.
const SYNC_TIMEOUT: Duration = Duration::from_secs(4);

/// What the servers said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Confirmed {
    /// Everything up to here is on their disks.
    Upto(Lsn),
    /// They have not synced in time.
    NotYet,
    /// They keep no append-only file, or do not know the command.
    Never,
}

impl<H: Present, S: Servers> Mirror<'_, H, S> {
    /// Asks the servers to confirm what is in Redis now. The future is independent of the mirror.
    ///
    /// # Errors
    /// Where a cursor is gone, or a server does not answer: the mirror must be dropped then.
    pub fn confirm(
        &self,
    ) -> impl Future<Output = Result<Confirmed, MirrorError>> + Send + use<H, S> {
        let applied = self.applied();
        let mut touches: Vec<Option<Cmd>> = vec![None; self.nodes.count()];
        for (id, lane) in self.lanes.iter().filter(|(_, lane)| !lane.text.is_empty()) {
            touches[self.nodes.index(*id)].get_or_insert_with(|| library::touch(&lane.keys));
        }
        let nodes = (0..self.nodes.count()).map(|index| self.nodes.waits(index));
        let asked: Vec<_> = nodes.zip(touches).collect();
        async move {
            for (connection, touch) in asked {
                match touch {
                    Some(touch) => match synced(connection, touch).await? {
                        Confirmed::Upto(_) => {}
                        other => return Ok(other),
                    },
                    // Nothing of ours is there.
                    None => continue,
                }
            }
            Ok(Confirmed::Upto(applied))
        }
    }
}

async fn synced(mut connection: impl Waits, touch: Cmd) -> Result<Confirmed, MirrorError> {
    let found: String = connection.ask(&touch).await?;
    if found.is_empty() {
        return Err(MirrorError::CursorMoved { found });
    }
    let mut wait = cmd("WAITAOF");
    wait.arg(1).arg(0).arg(u64::try_from(SYNC_TIMEOUT.as_millis()).unwrap_or(u64::MAX));
    match connection.ask::<(u64, u64)>(&wait).await {
        Ok((0, _)) => Ok(Confirmed::NotYet),
        Ok(_) => Ok(Confirmed::Upto(Lsn(0))),
        Err(error) if error.is_io_error() => Err(error.into()),
        Err(_) => Ok(Confirmed::Never),
    }
}
