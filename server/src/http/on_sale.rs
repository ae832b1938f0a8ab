//! Which activities are on sale: found by a look at all there are, which is not taken for every
//! call.
//!
//! A look at a few activities takes microseconds, one at a hundred thousand milliseconds: no loop
//! that sells should spend them on each call. So what was found is used for a while that grows with
//! what it cost, and a long look is taken beside the loops. Figures are never kept: they are those
//! of the moment.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use engine::Engine;
use engine::core::ids::ActivityId;

use super::problem::Code;

/// How long what was found is used, for each activity that was looked at. A look takes a twentieth
/// of it, so that is the part of a core that all looks together take, however many ask.
const USED_PER_ACTIVITY: Duration = Duration::from_micros(2);

/// From so many activities on, which take a millisecond, a look is taken beside the loops.
const MANY: usize = 10_000;

/// What was found last.
#[derive(Default)]
pub(crate) struct OnSale {
    found: Mutex<Option<Found>>,
    /// One looks; the others wait for what it finds.
    looking: tokio::sync::Mutex<()>,
}

#[derive(Clone)]
struct Found {
    ids: Arc<[ActivityId]>,
    looked: usize,
    until: Instant,
}

impl OnSale {
    /// The activities on sale, by id.
    ///
    /// # Errors
    /// `internal`, where the look was cut short.
    pub(crate) async fn ids(&self, engine: &Engine) -> Result<Arc<[ActivityId]>, Code> {
        let fresh = || self.last().filter(|found| Instant::now() < found.until);
        if let Some(found) = fresh() {
            return Ok(found.ids);
        }
        let _looking = self.looking.lock().await;
        if let Some(found) = fresh() {
            return Ok(found.ids);
        }
        let are_many = self.last().is_none_or(|found| found.looked >= MANY);
        let found = match are_many {
            true => {
                let engine = engine.clone();
                let looked = tokio::task::spawn_blocking(move || Found::by(&engine)).await;
                looked.map_err(|_| Code::Internal)?
            }
            false => Found::by(engine),
        };
        let ids = Arc::clone(&found.ids);
        *self.found.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
        Ok(ids)
    }

    fn last(&self) -> Option<Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Found {
    fn by(engine: &Engine) -> Self {
        let (ids, looked) = engine.on_sale(engine.now_ms());
        let used = USED_PER_ACTIVITY * u32::try_from(looked).unwrap_or(u32::MAX);
        Self { ids: ids.into(), looked, until: Instant::now() + used }
    }
}
