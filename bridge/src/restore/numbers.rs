//! Numbers that were used, and are not given again.

use engine::core::control::keys::{ACTIVITIES_PREFIX, ADOPTED_PREFIX, ORDINALS_PREFIX};
use engine::core::ids::{ActivityId, Ordinal};

use super::facts::PAGE_ROWS;
use super::rebuild::Rebuild;
use super::{NUMBERS_LEFT_FREE, RestoreError};
use crate::sql::readers::Snapshot;
use crate::sql::store::{StoreError, Value};

impl Rebuild<'_> {
    /// Ordinals and ids from here on are above all that were ever used, and some that may have
    /// been.
    pub(super) async fn numbers(&mut self, snapshot: &mut Snapshot) -> Result<(), RestoreError> {
        let highest = "SELECT (SELECT MAX(ordinal) FROM flashsale_activities), \
             (SELECT MAX(id) FROM flashsale_activities), \
             (SELECT MAX(id) FROM flashsale_pre_deductions), (SELECT MAX(id) FROM dead_letters)";
        let rows = snapshot.rows(highest, &[]).await?;
        let Some(row) = rows.first() else { return Ok(()) };
        let number = |index| Ok::<_, StoreError>(row.number_or_null(index)?.unwrap_or_default());
        let (ordinal, activity) = (number(0)?, number(1)?);
        let ordinal =
            ordinal.max(number(2)?.max(number(3)?) >> 32).saturating_add(NUMBERS_LEFT_FREE.into());
        let activity = activity.saturating_add(NUMBERS_LEFT_FREE.into());
        let fits = u32::try_from(ordinal).ok().and_then(Ordinal::new).is_some();
        if !fits {
            return Err(RestoreError::OrdinalsExhausted);
        }
        self.control(&format!("{ORDINALS_PREFIX}{ordinal}"), b"", 0)?;
        if let Some(floor) = adopted_floor(snapshot).await? {
            self.control(&format!("{ADOPTED_PREFIX}{floor}"), b"", 0)?;
        }
        // Beyond the largest the engine looks for the smallest that is free.
        if ActivityId::new(activity).is_some() {
            self.control(&format!("{ACTIVITIES_PREFIX}{activity}"), b"", 0)?;
        }
        Ok(())
    }
}

/// The highest id that may still be given to what is adopted without one: ids are given from the
/// top downwards, so those that were form a block there. Some more are left free for what the lost
/// log gave beyond the cursor.
async fn adopted_floor(snapshot: &mut Snapshot) -> Result<Option<u32>, StoreError> {
    let text = format!(
        "SELECT id FROM flashsale_pre_deductions WHERE id <= ? ORDER BY id DESC LIMIT {PAGE_ROWS}"
    );
    let mut next = u64::from(u32::MAX);
    loop {
        let rows = snapshot.rows(&text, &[Value::integer(next)]).await?;
        let begun = next;
        for row in &rows {
            if row.number(0)? != next {
                break;
            }
            next -= 1;
        }
        if begun - next < PAGE_ROWS as u64 {
            break;
        }
    }
    let is_given = next < u64::from(u32::MAX);
    let floor = next.saturating_sub(NUMBERS_LEFT_FREE.into()).max(1);
    Ok(is_given.then(|| u32::try_from(floor).ok()).flatten())
}
