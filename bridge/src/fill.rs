//! A follower whose sink the log has passed by: it is filled from the images of the state, and
//! follows the log from where they end.

use std::collections::BTreeMap;

use engine::core::ids::ReservationId;
use wal::Lsn;

use crate::cursor::{Cursor, Halt, Standing};
use crate::follow::{FollowError, Follower, Step};
use crate::host::{Failure, Host};
use crate::images::ImageSource;
use crate::place;
use crate::sql::fill::{Filled, Folder};
use crate::sql::sink::{SINK_NAME, Undeliverable};
use crate::sql::store::Store;

/// A filling that is under way.
#[derive(Debug)]
pub(crate) struct Filling<I> {
    images: I,
    folder: Folder,
    /// Where the sink will stand.
    target: Cursor,
    filled: Filled,
    marks: BTreeMap<u16, u64>,
}

impl<I: ImageSource> Filling<I> {
    /// Of a sink that stands as `standing`, from the newest images.
    ///
    /// # Errors
    /// [`Halt::NoSnapshot`] where they end before what the sink may hold already: its rows would be
    /// taken back, and the log would write them twice.
    pub(crate) fn begin<H: Host<Images = I>>(
        host: &H,
        standing: &Standing,
    ) -> Result<Self, FollowError> {
        // First of all, so that what follows the images stays in the log.
        host.keep_from(Lsn(0));
        let needed = standing.furthest().map_or(Lsn(0), |cursor| cursor.lsn);
        let images = host.images()?;
        let snapshot = images.as_ref().map_or(Lsn(0), ImageSource::lsn);
        let Some(images) = images.filter(|_| snapshot >= needed.max(Lsn(1))) else {
            // Nothing is gained by keeping the log for a sink that only a person can help.
            host.caught_up();
            return Err(Halt::NoSnapshot { needed, snapshot }.into());
        };
        let (lsn, chain) = (images.lsn(), images.chain());
        host.keep_from(lsn);
        let identity = host.identity();
        let target = Cursor { uuid: identity.uuid, epoch: identity.epoch, lsn, chain };
        let filled = Filled { lsn, ..Filled::default() };
        let folder = Folder::new(host.order_prefix());
        tracing::warn!(from = %needed, to = %lsn, "the database is filled from a snapshot");
        Ok(Self { images, folder, target, filled, marks: BTreeMap::new() })
    }

    pub(crate) fn target(&self) -> &Cursor {
        &self.target
    }
}

impl<H: Host, S: Store> Follower<'_, H, S> {
    /// What the sink was filled with, where this follower did so.
    pub fn filled(&self) -> Option<Filled> {
        self.filled
    }

    /// Whether the sink is being filled.
    pub fn is_filling(&self) -> bool {
        self.filling.is_some()
    }

    /// Writes one portion of `filling`.
    pub(crate) async fn fill(
        &mut self,
        mut filling: Box<Filling<H::Images>>,
    ) -> Result<Step, FollowError> {
        let portion = filling.folder.next_portion(&mut filling.images, self.records_max)?;
        let mut undeliverable = Undeliverable::default();
        let places = (&self.cursor, &filling.target);
        let written = loop {
            let error = match self.sink.fill(&portion, places, &undeliverable).await {
                Ok(written) => break written,
                Err(error) => error,
            };
            let failure = |reservation: ReservationId| Failure {
                reservation,
                shard_seq: portion.asked_seq(reservation).unwrap_or(0),
            };
            let failures = |ids: &[ReservationId]| Ok(ids.iter().copied().map(failure).collect());
            self.tell_dead_letters(error, &mut undeliverable, failures)?;
        };
        filling.filled.add(written);
        filling.marks.extend(&portion.marks);
        let step = Step::Filled { images: portion.len() };
        if !portion.is_last() {
            self.filling = Some(filling);
            return Ok(step);
        }
        let Filling { target, filled, marks, .. } = *filling;
        self.sink.end_filling(&self.cursor, &target, &filled).await?;
        tracing::warn!(%filled, "the database is filled; the log goes on from there");
        self.filled = Some(filled);
        self.cursor = target;
        self.position = target.lsn;
        self.stand_behind(target.lsn)?;
        self.announcer.cover(target.lsn, &marks);
        self.announcer.announce(self.host);
        Ok(step)
    }

    /// The log is kept for a sink that stood further once, until it stands there again.
    pub(crate) fn look_whether_caught_up(&mut self) {
        let once = self.host.announced_lsn(SINK_NAME);
        let is_there = self.position >= once && !self.lasting.is_owed();
        if self.is_behind && !self.is_filling() && is_there {
            self.is_behind = false;
            place::with_locks(|| self.host.caught_up());
        }
    }
}
