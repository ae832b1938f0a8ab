//! `dead_letters`: reservations that could not become an order, by the log's word.

use std::collections::BTreeMap;

use engine::core::event::DeadLetterResolution;
use engine::core::ids::ReservationId;

use super::fault::SinkError;
use super::orders::Reservation;
use super::store::{Rows, Table, Transaction, Value};

static DEAD_LETTERS: Table = Table {
    name: "dead_letters",
    columns: &[
        "id",
        "activity_id",
        "user_id",
        "order_no",
        "reason",
        "status",
        "created_at",
        "resolved_at",
    ],
    key_columns: 1,
};

static DEAD_LETTER_CHANGES: Table =
    Table { name: "dead_letters", columns: &["id", "status", "resolved_at"], key_columns: 1 };

#[derive(Debug)]
struct Opened<'a> {
    activity: u64,
    user: u64,
    order_no: String,
    note: &'a str,
    at_ms: u64,
}

/// What a batch does to dead letters.
#[derive(Debug, Default)]
pub(super) struct DeadLetters<'a> {
    opened: BTreeMap<u64, Opened<'a>>,
    resolved: BTreeMap<u64, (&'static str, u64)>,
}

impl<'a> DeadLetters<'a> {
    pub(super) fn open(&mut self, reservation: &Reservation<'a>, note: &'a str, at_ms: u64) {
        let opened = Opened {
            activity: reservation.activity,
            user: reservation.user,
            order_no: reservation.order_no.clone(),
            note,
            at_ms,
        };
        self.opened.insert(reservation.id.get(), opened);
    }

    pub(super) fn resolve(
        &mut self,
        id: ReservationId,
        resolution: DeadLetterResolution,
        at_ms: u64,
    ) {
        let status = match resolution {
            DeadLetterResolution::Delivered => "delivered",
            DeadLetterResolution::RolledBack => "rolled_back",
        };
        self.resolved.insert(id.get(), (status, at_ms));
    }

    pub(super) async fn write(
        mut self,
        transaction: &mut impl Transaction,
    ) -> Result<(), SinkError> {
        let mut opened = Rows::new(&DEAD_LETTERS);
        for (id, letter) in self.opened {
            let resolved = self.resolved.remove(&id);
            opened.push([
                Value::integer(id),
                Value::integer(letter.activity),
                Value::integer(letter.user),
                Value::text(letter.order_no),
                Value::text(letter.note),
                Value::text(resolved.map_or("open", |(status, _)| status)),
                Value::integer(letter.at_ms),
                Value::integer_or_null(resolved.map(|(_, at_ms)| at_ms)),
            ]);
        }
        let mut changes = Rows::new(&DEAD_LETTER_CHANGES);
        for (id, (status, at_ms)) in self.resolved {
            changes.push([Value::integer(id), Value::text(status), Value::integer(at_ms)]);
        }
        transaction.insert(&opened).await?;
        transaction.update(&changes).await?;
        Ok(())
    }
}
