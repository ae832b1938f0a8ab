//! The catalogue: what only SQL knows.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use bridge::sql::accounts::Sku;
use engine::core::ids::SkuId;
use engine::core::limits::ID_MAX;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::accounts::{TEXT_CHARS_MAX, bounded, reader_of, stored};
use super::operator::Operator;
use crate::app::Shared;
use crate::http::input::{
    BODY_BYTES_MAX, CSV_BYTES_MAX, SkuField, media_type, parse_object, present, read_body,
    require_json,
};
use crate::http::json;
use crate::http::openapi::{Api, Operation, Tag};
use crate::http::problem::{Code, Problem};

/// The catalogue.
pub(super) fn routes() -> Api {
    Api::new().post(
        "/api/admin/skus",
        skus,
        Operation::new(Tag::Catalogue, "putSkus", "Add SKUs, or rename and reprice them")
            .about("All of them happen or none.")
            .takes::<SkuFields>()
            .takes_text("text/csv", "Columns `id`, `title` and, where wanted, `price`.")
            .answers::<Put>(201, "The SKU, or how many there were")
            .refuses(&[Code::Conflict])
            .asks_sql(),
    )
}

/// What an import answers.
#[derive(JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
#[expect(dead_code, reason = "the shape of the answer, for the document")]
enum Put {
    One(SkuFields),
    Many(ImportedJson),
}

/// A unit of the catalogue.
#[derive(JsonSchema, Deserialize, Serialize)]
#[schemars(rename = "Sku")]
struct SkuFields {
    #[serde(deserialize_with = "sku_id", serialize_with = "number")]
    #[schemars(with = "SkuField")]
    id: SkuField,
    #[schemars(length(min = 1, max = TEXT_CHARS_MAX))]
    title: String,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = ID_MAX))]
    price: Option<u64>,
}

fn sku_id<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<SkuField, D::Error> {
    SkuField::deserialize(deserializer)
}

fn number<S: serde::Serializer>(id: &SkuField, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(id.0.get())
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Imported")]
struct ImportedJson {
    imported: usize,
}

/// `POST /api/admin/skus`: adds a SKU, or gives it a new title and price; one, or a CSV with the
/// columns `id`, `title` and `price`. All of it happens or none.
async fn skus(
    State(shared): State<Arc<Shared>>,
    operator: Operator,
    request: Request,
) -> Result<Response, Problem> {
    let app = shared.app()?;
    if media_type(request.headers())?.as_deref() == Some("text/csv") {
        let bytes = read_body(request, &shared, CSV_BYTES_MAX).await?;
        let skus = skus_from_csv(&bytes)?;
        let made =
            app.orders.accounts.upsert_skus(Some(operator.by()), &skus, app.engine.now_ms()).await;
        made.map_err(stored)?;
        let body = json(&ImportedJson { imported: skus.len() })?;
        return Ok((StatusCode::CREATED, body).into_response());
    }
    require_json(request.headers())?;
    let fields: SkuFields = parse_object(&read_body(request, &shared, BODY_BYTES_MAX).await?)?;
    let sku = checked(Sku { id: fields.id.0, title: fields.title.clone(), price: fields.price })?;
    let made =
        app.orders.accounts.upsert_skus(Some(operator.by()), &[sku], app.engine.now_ms()).await;
    made.map_err(stored)?;
    Ok((StatusCode::CREATED, json(&fields)?).into_response())
}

fn checked(sku: Sku) -> Result<Sku, Problem> {
    bounded("title", &sku.title)?;
    if sku.price.is_some_and(|price| price > ID_MAX) {
        return Err(Problem::invalid("price must be at most 2^53 - 1"));
    }
    Ok(sku)
}

/// A line of CSV.
#[derive(Deserialize)]
struct SkuLine {
    id: u64,
    title: String,
    #[serde(default)]
    price: Option<u64>,
}

/// The SKUs of a CSV. Of one that is named twice the last line counts.
fn skus_from_csv(bytes: &[u8]) -> Result<Vec<Sku>, Problem> {
    let mut reader = reader_of(bytes, &["id", "title"])?;
    let mut skus = BTreeMap::new();
    for (index, line) in reader.deserialize::<SkuLine>().enumerate() {
        // The first line names the columns.
        let at = index + 2;
        let wrong = |what: &str| Problem::invalid(format!("line {at}: {what}"));
        let line = line.map_err(|_| wrong("a column is missing or of the wrong kind"))?;
        let id = SkuId::new(line.id).ok_or_else(|| wrong("an id must be 1 to 2^53 - 1"))?;
        let sku = checked(Sku { id, title: line.title, price: line.price });
        let sku = sku.map_err(|it| wrong(it.detail.as_deref().unwrap_or("invalid")))?;
        skus.insert(id, sku);
    }
    Ok(skus.into_values().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_csv_of_skus_may_leave_prices_out_and_its_bad_lines_are_named() {
        let skus = skus_from_csv("id,title,price\n7,键盘,500\n8,鼠标,\n7,键盘 2,600\n".as_bytes());
        let skus = skus.unwrap();
        let seen: Vec<_> = skus.iter().map(|sku| (sku.id.get(), &*sku.title, sku.price)).collect();
        assert_eq!(seen, [(7, "键盘 2", Some(600)), (8, "鼠标", None)]);
        for (csv, line) in [
            ("id,title\n1,a\n0,b\n", "line 3"),
            ("id,title,price\n1,a,-5\n", "line 2"),
            ("id,title,price\n1,,5\n", "line 2"),
            ("id\n1\n", "line 1"),
            ("{}", "line 1"),
            ("", "line 1"),
        ] {
            let problem = skus_from_csv(csv.as_bytes()).err().unwrap();
            assert!(problem.detail.unwrap().starts_with(line), "{csv}");
        }
    }
}
