//! `GET /api/admin/orders.csv`: all orders, a line for each of their items, in pieces as they are
//! read. An export that breaks off breaks its connection off: half a file never looks whole.

use std::borrow::Cow;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use bridge::sql::export::{ExportRow, OrderFilter};
use bridge::sql::queries::OrderStatus;
use engine::core::ids::ActivityId;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::app::Shared;
use crate::http::input::{Admin, Params};
use crate::http::openapi::{Api, Operation, Tag, id_schema};
use crate::http::orders::order_statuses;
use crate::http::problem::{Code, Problem};
use crate::http::stream::{Gone, Pieces, answer};
use crate::time::Instant;

/// Lines of a piece: what is in memory at one time.
const PIECE_ROWS: u32 = 500;

/// The columns.
const COLUMNS: [&str; 20] = [
    "order_no",
    "user_id",
    "status",
    "activity_id",
    "pre_deduction_id",
    "sku_id",
    "title",
    "price",
    "quantity",
    "pay_amount",
    "payment_no",
    "receiver",
    "phone",
    "province",
    "city",
    "district",
    "detail",
    "created_at",
    "paid_at",
    "cancelled_at",
];

/// `?activity_id=&status=`
#[derive(JsonSchema, Deserialize)]
#[schemars(rename = "ExportQuery")]
pub(super) struct Wanted {
    #[serde(default)]
    #[schemars(schema_with = "id_schema")]
    activity_id: Option<u64>,
    #[schemars(extend("enum" = order_statuses()))]
    status: Option<String>,
}

/// The export.
pub(super) fn routes() -> Api {
    Api::new().get(
        "/api/admin/orders.csv",
        orders,
        Operation::new(Tag::Operations, "exportOrders", "All orders, a line for each item")
            .about("One at a time. An export that breaks off breaks its connection off.")
            .answers_text("text/csv", "CSV with a line of names; texts are no formulas.")
            .with_header("Content-Disposition", true, "The name of the file.")
            .refuses(&[Code::Overloaded])
            .asks_sql(),
    )
}

/// Sends them.
pub(super) async fn orders(
    State(shared): State<Arc<Shared>>,
    _: Admin,
    Params(wanted): Params<Wanted>,
) -> Result<Response, Problem> {
    let activity = match wanted.activity_id {
        None => None,
        Some(id) => {
            Some(ActivityId::new(id).ok_or_else(|| Problem::invalid("activity_id is no id"))?)
        }
    };
    let status = match &wanted.status {
        None => None,
        Some(name) => Some(
            OrderStatus::from_name(name)
                .ok_or_else(|| Problem::invalid("status is no status of an order"))?,
        ),
    };
    let filter = OrderFilter { activity, status };
    // One at a time: an export reads all there is, beside everybody's queries.
    let place = Arc::clone(&shared.exports).try_acquire_owned().map_err(|_| Code::Overloaded)?;
    let app = shared.app()?;
    // What can't even begin is told as such.
    let asked = app.orders.breaker.call(app.orders.queries.ping()).await;
    asked.map_err(|_| Code::DatabaseUnavailable)?;
    let (pieces, mut response) = answer("text/csv; charset=utf-8");
    let name = HeaderValue::from_static("attachment; filename=\"orders.csv\"");
    response.headers_mut().insert(header::CONTENT_DISPOSITION, name);
    tokio::spawn(async move {
        let _place = place;
        tokio::select! {
            sent = send(&shared, filter, &pieces) => if let Err(broken) = sent {
                tracing::warn!("an export of orders broke off: {broken}");
                pieces.break_off().await;
            },
            () = pieces.gone() => {}
            () = shared.stop.cancelled() => pieces.break_off().await,
        }
    });
    Ok(response)
}

/// What ends an export before its end.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error("the client does not read")]
    Gone,
    #[error("the database does not answer: {0}")]
    Store(#[from] bridge::sql::store::StoreError),
    #[error("a line could not be written: {0}")]
    Line(#[from] csv::Error),
    #[error("the server is not ready")]
    NotReady,
}

impl From<Gone> for Broken {
    fn from(_: Gone) -> Self {
        Self::Gone
    }
}

async fn send(shared: &Shared, filter: OrderFilter, pieces: &Pieces) -> Result<(), Broken> {
    let queries = &shared.app().map_err(|_| Broken::NotReady)?.orders.queries;
    let mut head = csv::Writer::from_writer(Vec::new());
    head.write_record(COLUMNS)?;
    pieces.send(bytes_of(head)?).await?;
    for part in queries.parts() {
        let mut after = String::new();
        loop {
            let rows = queries.orders_after(filter, part, &after, PIECE_ROWS).await?;
            let Some(last) = rows.last() else { break };
            after.clone_from(&last.order_no);
            let mut writer = csv::Writer::from_writer(Vec::new());
            for row in &rows {
                writer.write_record(fields(row).iter().map(|field| field.as_bytes()))?;
            }
            pieces.send(bytes_of(writer)?).await?;
        }
    }
    Ok(())
}

fn bytes_of(writer: csv::Writer<Vec<u8>>) -> Result<Vec<u8>, Broken> {
    writer.into_inner().map_err(|error| Broken::Line(error.into_error().into()))
}

fn fields(row: &ExportRow) -> [Cow<'_, str>; 20] {
    let number = |number: u64| Cow::Owned(number.to_string());
    let at = |ms: Option<u64>| ms.map_or(Cow::Borrowed(""), |ms| Instant(ms).to_string().into());
    let given = |text: &'_ Option<String>| text.clone().unwrap_or_default();
    [
        row.order_no.as_str().into(),
        number(row.user_id),
        row.status.as_str().into(),
        number(row.activity_id),
        number(row.reservation_id),
        number(row.sku_id),
        harmless(row.title.clone()),
        number(row.price),
        number(row.quantity),
        number(row.pay_amount),
        given(&row.payment_no).into(),
        harmless(given(&row.receiver)),
        harmless(given(&row.phone)),
        harmless(given(&row.province)),
        harmless(given(&row.city)),
        harmless(given(&row.district)),
        harmless(given(&row.detail)),
        at(Some(row.created_ms)),
        at(row.paid_ms),
        at(row.cancelled_ms),
    ]
}

/// A text that somebody else has written, so that no spreadsheet takes it for a formula.
fn harmless(text: String) -> Cow<'static, str> {
    match text.starts_with(['=', '+', '-', '@', '\t', '\r']) {
        true => Cow::Owned(format!("'{text}")),
        false => Cow::Owned(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_never_a_formula() {
        for (text, shown) in [("=1+1", "'=1+1"), ("@x", "'@x"), ("陈晨", "陈晨"), ("", "")] {
            assert_eq!(harmless(text.to_owned()), shown);
        }
    }
}
