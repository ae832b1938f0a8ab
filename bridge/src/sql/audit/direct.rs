//! Rows of `audit` for what never was in the log: accounts, passwords, the catalogue, repairs. They
//! are written in the transaction that they speak of.

use serde_json::Value as Json;

use super::{AUDIT, Fields, values};
use crate::sql::accounts::Accounts;
use crate::sql::store::{Rows, Store as _, StoreError, Transaction, Value};

/// Who does something that only SQL knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct By<'a> {
    /// The operator, by the name in their token.
    pub actor: &'a str,
    /// The request.
    pub request_id: &'a str,
    /// A number that no other request of any run has.
    pub number: &'a str,
}

/// Rows of one call.
#[derive(Debug)]
pub(in crate::sql) struct Told<'a> {
    by: Option<By<'a>>,
    at_ms: u64,
    rows: Rows<'a>,
}

impl<'a> Told<'a> {
    pub(in crate::sql) fn new(by: Option<By<'a>>, at_ms: u64) -> Self {
        Self { by, at_ms, rows: Rows::new(&AUDIT) }
    }

    /// Where an operator did it: `action` made `after` of `before`, JSON objects; of what did not
    /// change nothing is said.
    pub(in crate::sql) fn push(
        &mut self,
        action: &'static str,
        subject: Option<String>,
        before: Json,
        after: Json,
    ) {
        let Some(by) = self.by else { return };
        let fields = |document| match document {
            Json::Object(fields) => fields,
            _ => Fields::new(),
        };
        let (before, after) = values::difference(fields(before), fields(after));
        let number = format!("{}-{}", by.number, self.rows.len());
        self.rows.push([
            Value::text(number),
            Value::text(by.actor),
            Value::text(by.request_id),
            Value::text(action),
            Value::Null,
            Value::text_or_null(subject),
            Value::Null,
            Value::text_or_null(values::text(before)),
            Value::text_or_null(values::text(after)),
            Value::Null,
            Value::integer(self.at_ms),
        ]);
    }

    pub(in crate::sql) async fn write(
        &self,
        transaction: &mut impl Transaction,
    ) -> Result<(), StoreError> {
        transaction.insert(&self.rows).await
    }
}

impl Accounts {
    /// Writes down that `action` was done and what came of it, a JSON object.
    ///
    /// # Errors
    /// Where the database refuses or does not answer: nothing was written then.
    pub async fn audit(
        &self,
        by: By<'_>,
        action: &'static str,
        outcome: Json,
        at_ms: u64,
    ) -> Result<(), StoreError> {
        let mut told = Told::new(Some(by), at_ms);
        told.push(action, None, Json::Null, outcome);
        let mut store = self.store().await;
        let mut transaction = store.begin().await?;
        told.write(&mut transaction).await?;
        transaction.commit().await
    }
}
