//! What operators did, as they look it up.

use engine::core::ids::ActivityId;

use crate::sql::queries::{Queries, Window};
use crate::sql::store::{Record, StoreError, Value};

/// One thing that was done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuditRow {
    /// Where it is in the log.
    pub audit_no: String,
    /// Who did it.
    pub actor: String,
    /// In which request.
    pub request_id: String,
    /// What.
    pub action: String,
    /// To which activity.
    pub activity_id: Option<u64>,
    /// What it was about beside the activity: an operation's key, a refund's number, a control.
    pub subject: Option<String>,
    /// Units.
    pub quantity: Option<u64>,
    /// The fields that changed, as they were: a JSON object.
    pub before: Option<String>,
    /// The fields that changed, as they are since: a JSON object.
    pub after: Option<String>,
    /// When, Unix milliseconds.
    pub created_ms: u64,
}

/// Some of the list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuditPage {
    /// Those of the window, the newest first.
    pub rows: Vec<AuditRow>,
    /// How many there are in all.
    pub total: u64,
}

/// Which rows are wanted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AuditFilter {
    /// By this operator alone.
    pub actor: Option<String>,
    /// This action alone.
    pub action: Option<String>,
    /// To this activity alone.
    pub activity: Option<ActivityId>,
    /// About this alone.
    pub subject: Option<String>,
    /// In this request alone.
    pub request_id: Option<String>,
    /// From this instant on, Unix milliseconds.
    pub from_ms: Option<u64>,
    /// Before this instant, Unix milliseconds.
    pub to_ms: Option<u64>,
}

impl Queries {
    /// What operators did, the newest first.
    ///
    /// # Errors
    /// Where the database does not answer.
    pub async fn audit(
        &self,
        filter: &AuditFilter,
        window: Window,
    ) -> Result<AuditPage, StoreError> {
        let mut wanted = String::from("1 = 1");
        let mut values = Vec::new();
        let texts = [
            ("actor", &filter.actor),
            ("action", &filter.action),
            ("subject", &filter.subject),
            ("request_id", &filter.request_id),
        ];
        for (column, value) in texts {
            if let Some(value) = value {
                wanted.push_str(&format!(" AND {column} = ?"));
                values.push(Value::text(value.as_str()));
            }
        }
        let numbers = [
            ("activity_id =", filter.activity.map(ActivityId::get)),
            ("created_at >=", filter.from_ms),
            ("created_at <", filter.to_ms),
        ];
        for (column, value) in numbers {
            if let Some(value) = value {
                wanted.push_str(&format!(" AND {column} ?"));
                values.push(Value::integer(value));
            }
        }
        let mut snapshot = self.snapshot().await?;
        let count = format!("SELECT COUNT(*) FROM audit WHERE {wanted}");
        let count = snapshot.rows(count, &values).await?;
        let total = count.first().map_or(Ok(0), |record| record.number(0))?;
        let text = format!(
            "SELECT audit_no, actor, request_id, action, activity_id, subject, quantity, \
             before_value, after_value, created_at FROM audit WHERE {wanted} \
             ORDER BY created_at DESC, audit_no DESC LIMIT ? OFFSET ?"
        );
        values.push(Value::integer(window.count));
        values.push(Value::integer(window.offset));
        let records = snapshot.rows(text, &values).await?;
        Ok(AuditPage { rows: records.iter().map(row).collect::<Result<_, _>>()?, total })
    }
}

fn row(record: &Record) -> Result<AuditRow, StoreError> {
    Ok(AuditRow {
        audit_no: record.text(0)?.to_owned(),
        actor: record.text(1)?.to_owned(),
        request_id: record.text(2)?.to_owned(),
        action: record.text(3)?.to_owned(),
        activity_id: record.number_or_null(4)?,
        subject: record.text_or_null(5)?.map(str::to_owned),
        quantity: record.number_or_null(6)?,
        before: record.text_or_null(7)?.map(str::to_owned),
        after: record.text_or_null(8)?.map(str::to_owned),
        created_ms: record.number(9)?,
    })
}
