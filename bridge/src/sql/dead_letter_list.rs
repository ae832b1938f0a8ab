//! Dead letters as operators see them.

use engine::core::ids::ReservationId;

use super::dead_letters::State;
use super::queries::{Queries, Window};
use super::store::{Record, StoreError, Value};

/// A reservation that no order could hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeadLetterRow {
    /// The reservation.
    pub reservation_id: u64,
    /// The number of the order that it would have.
    pub order_no: String,
    /// Its activity.
    pub activity_id: u64,
    /// Its buyer.
    pub user_id: u64,
    /// Where it is in its life.
    pub state: State,
    /// Why no order could hold it.
    pub reason: String,
    /// How often an order was tried.
    pub attempts: u64,
    /// What the database said last; none once an order is there.
    pub last_error: Option<String>,
    /// Units.
    pub quantity: u64,
    /// Price of a unit.
    pub price: u64,
    /// Opened at, Unix milliseconds.
    pub created_ms: u64,
    /// Delivered or rolled back at, Unix milliseconds.
    pub resolved_ms: Option<u64>,
}

/// Some of a list of dead letters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeadLetterPage {
    /// Those of the window, the newest first.
    pub letters: Vec<DeadLetterRow>,
    /// How many there are in all.
    pub total: u64,
}

impl Queries {
    /// Dead letters, the newest first, all or those in `state`.
    ///
    /// # Errors
    /// Where the database does not answer.
    pub async fn dead_letters(
        &self,
        state: Option<State>,
        window: Window,
    ) -> Result<DeadLetterPage, StoreError> {
        let mut values: Vec<_> = state.map(|state| Value::text(state.name())).into_iter().collect();
        let wanted = if state.is_some() { "WHERE d.status = ?" } else { "" };
        let mut snapshot = self.snapshot().await?;
        let count = format!("SELECT COUNT(*) FROM dead_letters d {wanted}");
        let count = snapshot.rows(count, &values).await?;
        let total = count.first().map_or(Ok(0), |record| record.number(0))?;
        let text = format!(
            "SELECT d.id, d.order_no, d.activity_id, d.user_id, d.status, d.reason, \
             COALESCE(p.attempts, 1), CASE WHEN p.id IS NULL THEN d.reason ELSE p.last_error END, \
             d.quantity, d.price, d.created_at, d.resolved_at FROM dead_letters d \
             LEFT JOIN flashsale_pre_deductions p ON p.id = d.id {wanted} \
             ORDER BY d.created_at DESC, d.id DESC LIMIT ? OFFSET ?"
        );
        values.push(Value::integer(window.count));
        values.push(Value::integer(window.offset));
        let records = snapshot.rows(text, &values).await?;
        let letters = records.iter().map(letter).collect::<Result<_, _>>()?;
        Ok(DeadLetterPage { letters, total })
    }

    /// Where the dead letter of a reservation stands, if it has one.
    ///
    /// # Errors
    /// Where the database does not answer.
    pub async fn dead_letter_state(&self, id: ReservationId) -> Result<Option<State>, StoreError> {
        let mut snapshot = self.snapshot().await?;
        let text = "SELECT status FROM dead_letters WHERE id = ?";
        let records = snapshot.rows(text, &[Value::integer(id.get())]).await?;
        let Some(record) = records.first() else { return Ok(None) };
        let state = State::from_name(record.text(0)?);
        state.map(Some).ok_or(StoreError::Unreadable { column: 0 })
    }
}

fn letter(record: &Record) -> Result<DeadLetterRow, StoreError> {
    Ok(DeadLetterRow {
        reservation_id: record.number(0)?,
        order_no: record.text(1)?.to_owned(),
        activity_id: record.number(2)?,
        user_id: record.number(3)?,
        state: State::from_name(record.text(4)?).ok_or(StoreError::Unreadable { column: 4 })?,
        reason: record.text(5)?.to_owned(),
        attempts: record.number(6)?,
        last_error: record.text_or_null(7)?.map(str::to_owned),
        quantity: record.number(8)?,
        price: record.number(9)?,
        created_ms: record.number(10)?,
        resolved_ms: record.number_or_null(11)?,
    })
}
