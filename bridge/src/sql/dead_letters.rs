//! `dead_letters`: reservations that could not become an order, by the log's word. One row a
//! reservation: delivered and failed again, it is opened again.

use std::collections::{BTreeMap, BTreeSet};

use engine::core::event::DeadLetterResolution;
use engine::core::ids::ReservationId;

use super::fault::SinkError;
use super::reservations::Reservation;
use super::sink::update_all;
use super::store::{Lookup, Rows, StoreError, Table, Transaction, Value};

static DEAD_LETTERS: Table = Table {
    name: "dead_letters",
    columns: &[
        "id",
        "reason",
        "status",
        "created_at",
        "resolved_at",
        "activity_id",
        "user_id",
        "order_no",
    ],
    key_columns: 1,
};

static REOPENED: Table = Table {
    name: "dead_letters",
    columns: &["id", "reason", "status", "created_at", "resolved_at"],
    key_columns: 1,
};

static RESOLVED: Table =
    Table { name: "dead_letters", columns: &["id", "status", "resolved_at"], key_columns: 1 };

static DEAD_LETTERS_BY_ID: Lookup = Lookup { columns: &["id"], from: "dead_letters", key: "id" };

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
    existing: BTreeSet<u64>,
    opened: BTreeMap<u64, Opened<'a>>,
    resolved: BTreeMap<u64, (&'static str, u64)>,
}

impl<'a> DeadLetters<'a> {
    /// Reads which of `ids` have a row.
    pub(super) async fn load(
        &mut self,
        ids: &BTreeSet<ReservationId>,
        transaction: &mut impl Transaction,
    ) -> Result<(), StoreError> {
        let keys: Vec<_> = ids.iter().map(|id| Value::integer(id.get())).collect();
        for record in transaction.select(&DEAD_LETTERS_BY_ID, &keys).await? {
            self.existing.insert(record.number(0)?);
        }
        Ok(())
    }

    pub(super) fn open(&mut self, reservation: &Reservation<'a>, note: &'a str, at_ms: u64) {
        let opened = Opened {
            activity: reservation.activity,
            user: reservation.user,
            order_no: reservation.order_no.clone(),
            note,
            at_ms,
        };
        self.resolved.remove(&reservation.id.get());
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
        let (mut new, mut reopened) = (Rows::new(&DEAD_LETTERS), Rows::new(&REOPENED));
        for (id, letter) in self.opened {
            let resolved = self.resolved.remove(&id);
            let [id_value, reason, status, created, resolved] = [
                Value::integer(id),
                Value::text(letter.note),
                Value::text(resolved.map_or("open", |(status, _)| status)),
                Value::integer(letter.at_ms),
                Value::integer_or_null(resolved.map(|(_, at_ms)| at_ms)),
            ];
            if self.existing.contains(&id) {
                reopened.push([id_value, reason, status, created, resolved]);
                continue;
            }
            let (activity, user) = (Value::integer(letter.activity), Value::integer(letter.user));
            let order_no = Value::text(letter.order_no);
            new.push([id_value, reason, status, created, resolved, activity, user, order_no]);
        }
        let mut resolved = Rows::new(&RESOLVED);
        for (id, (status, at_ms)) in self.resolved {
            resolved.push([Value::integer(id), Value::text(status), Value::integer(at_ms)]);
        }
        transaction.insert(&new).await?;
        update_all(transaction, &reopened).await?;
        update_all(transaction, &resolved).await
    }
}
