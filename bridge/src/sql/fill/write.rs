//! The transactions of a filling.

use std::collections::{BTreeMap, BTreeSet};

use engine::core::event::{DeadLetterPolicy, Figures, LatePayment};
use engine::core::ids::{ActivityId, ReservationId};

use super::Filled;
use super::flows::{self, Filling};
use super::money::Money;
use super::portion::{Portion, Tombstone};
use super::settle;
use crate::cursor::{Cursor, Standing};
use crate::sql::activities::{ACTIVITIES, Activities, Activity};
use crate::sql::audit::AUDIT;
use crate::sql::blacklist::Blacklist;
use crate::sql::fault::SinkError;
use crate::sql::flows::{STOCK_FLOWS, event_no};
use crate::sql::orders::{self, ReservationRows};
use crate::sql::reservations::{Order, Reservation};
use crate::sql::sink::{
    CURSOR, FILLING_NAME, SINK_NAME, SqlSink, Undeliverable, cursor_row, move_cursor, now_ms,
    update_all,
};
use crate::sql::store::{Rows, Store, Table, Transaction, Value};
use crate::sql::stored_reservations;

/// The SKU of an activity of which nothing is known but that it was.
pub(crate) const GONE_SKU: u64 = 0;

static CURSOR_KEYS: Table = Table { name: "bridge_cursor", columns: &["sink"], key_columns: 1 };

impl<S: Store> SqlSink<S> {
    /// Makes the database, which stands as `found`, this server's, and notes that it may hold
    /// anything up to `target` from now on; the cursor that every portion holds.
    ///
    /// # Errors
    /// [`SinkError::CursorMoved`] where it no longer stands so.
    pub(crate) async fn claim_filling(
        &mut self,
        found: &Standing,
        target: &Cursor,
    ) -> Result<Cursor, SinkError> {
        let (epoch, key) = (self.identity.epoch, self.request_hash_key);
        let mut transaction = self.store.begin().await?;
        let mut new = Rows::new(&CURSOR);
        let claimed = match found.cursor {
            None => {
                let beginning = Cursor::beginning(self.identity);
                new.push(cursor_row(SINK_NAME, &beginning, key));
                beginning
            }
            Some(cursor) => {
                let claimed = Cursor { epoch, ..cursor };
                move_cursor(&mut transaction, &cursor, &claimed).await?;
                claimed
            }
        };
        transaction.delete(&filling_key()).await?;
        new.push(cursor_row(FILLING_NAME, target, key));
        transaction.insert(&new).await?;
        transaction.commit().await?;
        Ok(claimed)
    }

    /// Writes `portion` of a filling that will reach `target`, while the cursor stands `at` its
    /// place; what was written and what is gone. Reservations that are `undeliverable` become dead
    /// letters.
    ///
    /// # Errors
    /// As [`SqlSink::apply`].
    pub(crate) async fn fill(
        &mut self,
        portion: &Portion,
        (at, target): (&Cursor, &Cursor),
        undeliverable: &Undeliverable,
    ) -> Result<Filled, SinkError> {
        let split = self.options.split;
        let mut filled = Filled { gone_callbacks: portion.receipts, ..Filled::default() };
        let mut transaction = self.store.begin().await?;
        move_cursor(&mut transaction, at, at).await?;

        let born = portion.born.keys().copied();
        let ids: BTreeSet<_> =
            born.chain(portion.changes.iter().map(|it| it.reservation)).collect();
        let ids: Vec<ReservationId> = ids.into_iter().collect();
        let there = stored_reservations::load_rows(&ids, split, &mut transaction).await?;
        let mut known = laid_over(&portion.born, there)?;
        let mut money = Money::default();
        for change in &portion.changes {
            match known.get_mut(&change.reservation) {
                Some(reservation) => {
                    settle::change(reservation, change, self.options.require_address);
                    money.take(reservation, &change.what);
                }
                None if change.activity.is_none() => {}
                None => {
                    let (table, id) = ("flashsale_pre_deductions", change.reservation.get());
                    return Err(SinkError::RowMissing { table, id });
                }
            }
        }
        let mut known: Vec<Reservation<'_>> = known.into_values().collect();
        undeliverable.settle(&mut known);
        let addresses = orders::load_addresses(&known, &mut transaction).await?;
        let is_due = |it: &&Reservation<'_>| matches!(it.order, Order::Due(_));
        let lacks = |it: &&Reservation<'_>| is_due(it) && !addresses.contains_key(&it.user);
        filled.reservations = portion.born.len() as u64;
        filled.gone_request_ids = known.iter().filter(|it| it.birth.is_some()).count() as u64;
        filled.gone_addresses = known.iter().filter(lacks).count() as u64;
        ReservationRows::new(known, &addresses, split).write(&mut transaction).await?;
        let numbers = format!("{}-", event_no(target.uuid, target.lsn));
        money.write(&mut transaction, &numbers).await?;

        let filling = Filling { log: target.uuid, lsn: target.lsn, made_ms: portion.made_ms };
        write_activities(&mut transaction, portion, &filling, &mut filled).await?;
        if let Some(blacklist) = &portion.blacklist {
            let entries =
                blacklist.iter().map(|(key, value, end)| (key.as_str(), &value[..], *end));
            Blacklist::fill(entries, portion.made_ms, &mut transaction).await?;
        }
        transaction.commit().await?;
        Ok(filled)
    }

    /// The filling is whole: the cursor goes from `at` to `target`.
    ///
    /// # Errors
    /// As [`SqlSink::apply`].
    pub(crate) async fn end_filling(
        &mut self,
        at: &Cursor,
        target: &Cursor,
        filled: &Filled,
    ) -> Result<(), SinkError> {
        let mut transaction = self.store.begin().await?;
        move_cursor(&mut transaction, at, target).await?;
        transaction.delete(&filling_key()).await?;
        let mut audit = Rows::new(&AUDIT);
        audit.push([
            Value::text(format!("{}-filled", event_no(target.uuid, target.lsn))),
            Value::text("sluice"),
            Value::text(""),
            Value::text("database_filled"),
            Value::Null,
            Value::text(filled.to_string()),
            Value::Null,
            Value::Null,
            Value::Null,
            Value::Null,
            Value::integer(now_ms()),
        ]);
        transaction.insert(&audit).await?;
        transaction.commit().await?;
        Ok(())
    }
}

fn filling_key() -> Rows<'static> {
    let mut rows = Rows::new(&CURSOR_KEYS);
    rows.push([Value::text(FILLING_NAME)]);
    rows
}

/// The images of `born` over the rows that are `there`, and the rows that only changes speak of.
fn laid_over(
    born: &BTreeMap<ReservationId, Reservation<'static>>,
    there: Vec<Reservation<'static>>,
) -> Result<BTreeMap<ReservationId, Reservation<'static>>, SinkError> {
    let mut known = born.clone();
    for row in there {
        let id = row.id;
        let laid = match known.remove(&id) {
            Some(image) => settle::over(image, row)?,
            None => row,
        };
        known.insert(id, laid);
    }
    Ok(known)
}

async fn write_activities(
    transaction: &mut impl Transaction,
    portion: &Portion,
    filling: &Filling,
    filled: &mut Filled,
) -> Result<(), SinkError> {
    let ended = portion.ended.iter().map(|ended| ended.row.id);
    let ids: Vec<ActivityId> = ended.chain(portion.archived.iter().map(|it| it.id)).collect();
    let mut activities = Activities::default();
    activities.load(ids.into_iter(), transaction).await?;
    let (mut new, mut changed) = (Rows::new(&ACTIVITIES), Rows::new(&ACTIVITIES));
    let mut moves = Rows::new(&STOCK_FLOWS);
    let known = flows::known(&portion.ended, transaction).await?;
    for ended in &portion.ended {
        let there = activities.get_mut(ended.row.id).ok().map(|row| row.clone());
        flows::push(&mut moves, ended, there.as_ref(), &known, filling);
        match there {
            Some(there) => {
                let row = Activity { created_ms: there.created_ms, ..Activity::clone(&ended.row) };
                changed.push(row.row());
            }
            None => new.push(ended.row.row()),
        }
        filled.activities += 1;
    }
    for tombstone in &portion.archived {
        match activities.get_mut(tombstone.id) {
            Ok(there) if there.archived_ms.is_some() => {}
            Ok(there) => {
                there.archived_ms = Some(filling.made_ms);
                changed.push(there.row());
                filled.gone_activities += 1;
            }
            Err(_) => {
                new.push(gone(*tombstone, filling.made_ms).row());
                filled.gone_activities += 1;
            }
        }
    }
    transaction.insert(&new).await?;
    update_all(transaction, &changed).await?;
    transaction.insert(&moves).await?;
    Ok(())
}

/// The row of an activity of which only a tombstone is left.
fn gone(tombstone: Tombstone, made_ms: u64) -> Activity {
    let Tombstone { id, ordinal, end_ms } = tombstone;
    Activity {
        id,
        ordinal,
        sku: GONE_SKU,
        title: "".into(),
        price: 0,
        figures: Figures { available: 0, locked: 0, sold: 0 },
        per_user_limit: 0,
        on_sale: false,
        paused: false,
        drained: false,
        version: 1,
        start_ms: end_ms,
        end_ms,
        publish_at_ms: None,
        payment_ttl_ms: 0,
        late_payment: LatePayment::Refund,
        dead_letter: DeadLetterPolicy::Hold,
        archived_ms: Some(made_ms),
        created_ms: made_ms,
        updated_ms: made_ms,
    }
}
