//! The catalogue and accounts: what only SQL knows.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use bridge::sql::accounts::{Address, Existing, NewUser, Role, Sku};
use bridge::sql::store::StoreError;
use engine::core::ids::{SkuId, UserId};
use serde::{Deserialize, Serialize};

use super::operator::Operator;
use crate::app::Shared;
use crate::http::input::{
    BODY_BYTES_MAX, CSV_BYTES_MAX, Json, Segment, SkuField, UserField, media_type, parse_object,
    present, read_body, require_json,
};
use crate::http::json;
use crate::http::problem::{Code, Problem};
use crate::identity::{PasswordError, Passwords, is_usable_hash};

/// Characters of a name, a title or a line of an address.
pub(super) const TEXT_CHARS_MAX: usize = 255;

/// Characters of a password, at least.
const PASSWORD_CHARS_MIN: usize = 8;

/// Passwords that one call may bring: each is tens of milliseconds of a core.
const PASSWORDS_MAX: usize = 200;

/// A unit of the catalogue.
#[derive(Deserialize, Serialize)]
pub(super) struct SkuFields {
    #[serde(deserialize_with = "sku_id", serialize_with = "number")]
    id: SkuField,
    title: String,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    price: Option<u64>,
}

fn sku_id<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<SkuField, D::Error> {
    SkuField::deserialize(deserializer)
}

fn number<S: serde::Serializer>(id: &SkuField, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(id.0.get())
}

#[derive(Serialize)]
struct ImportedJson {
    imported: usize,
}

/// `POST /api/admin/skus`: adds a SKU, or gives it a new title and price; one, or a CSV with the
/// columns `id`, `title` and `price`. All of it happens or none.
pub(super) async fn skus(
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
    if sku.price.is_some_and(|price| price > engine::core::limits::ID_MAX) {
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
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(bytes);
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

/// An account, as one JSON object or as one line of CSV.
#[derive(Deserialize)]
struct UserFields {
    id: UserField,
    #[serde(default)]
    username: Option<String>,
    #[serde(default)]
    role: Option<crate::identity::Role>,
    #[serde(default)]
    address: Option<AddressFields>,
    #[serde(default)]
    password: Option<String>,
    #[serde(default)]
    password_hash: Option<String>,
}

#[derive(Deserialize)]
struct AddressFields {
    receiver: String,
    phone: String,
    province: String,
    city: String,
    district: String,
    detail: String,
}

/// A line of CSV: the columns of an account and of its address side by side.
#[derive(Deserialize)]
struct UserLine {
    id: u64,
    #[serde(default)]
    username: Option<String>,
    #[serde(default)]
    role: Option<crate::identity::Role>,
    #[serde(default)]
    receiver: Option<String>,
    #[serde(default)]
    phone: Option<String>,
    #[serde(default)]
    province: Option<String>,
    #[serde(default)]
    city: Option<String>,
    #[serde(default)]
    district: Option<String>,
    #[serde(default)]
    detail: Option<String>,
    #[serde(default)]
    password: Option<String>,
    #[serde(default)]
    password_hash: Option<String>,
}

#[derive(Serialize)]
struct MadeJson {
    created: usize,
    kept: usize,
}

/// `POST /api/admin/users`: one account (taken: 409), or a CSV of them (those that exist are kept,
/// so that a list that was cut off can be sent again). All of it happens or none.
pub(super) async fn users(
    State(shared): State<Arc<Shared>>,
    operator: Operator,
    request: Request,
) -> Result<Response, Problem> {
    let csv = media_type(request.headers())?.as_deref() == Some("text/csv");
    let (wanted, existing) = if csv {
        let bytes = read_body(request, &shared, CSV_BYTES_MAX).await?;
        (from_csv(&bytes)?, Existing::Keep)
    } else {
        require_json(request.headers())?;
        let bytes = read_body(request, &shared, BODY_BYTES_MAX).await?;
        (vec![from_json(parse_object(&bytes)?)?], Existing::Refuse)
    };
    let app = shared.app()?;
    let users = hashed(&shared.passwords, wanted).await?;
    let made = app
        .orders
        .accounts
        .create_users(Some(operator.by()), &users, existing, app.engine.now_ms())
        .await;
    let created = made.map_err(stored)?;
    let body = json(&MadeJson { created, kept: users.len() - created })?;
    Ok((StatusCode::CREATED, body).into_response())
}

/// `{password}` or `{password_hash}`
#[derive(Deserialize)]
pub(super) struct PasswordFields {
    #[serde(default, deserialize_with = "present")]
    password: Option<String>,
    #[serde(default, deserialize_with = "present")]
    password_hash: Option<String>,
}

/// `PUT /api/admin/users/{id}/password`
pub(super) async fn password(
    State(shared): State<Arc<Shared>>,
    operator: Operator,
    segment: Segment,
    Json(fields): Json<PasswordFields>,
) -> Result<StatusCode, Problem> {
    let id = segment.user()?;
    let hash = match Credential::of(fields.password, fields.password_hash)? {
        Credential::None => return Err(Problem::invalid("password is required")),
        Credential::Hash(hash) => hash,
        Credential::Password(password) => {
            shared.passwords.hash(password).await.map_err(not_hashed)?
        }
    };
    let app = shared.app()?;
    let set =
        app.orders.accounts.set_password(Some(operator.by()), id, &hash, app.engine.now_ms()).await;
    match set.map_err(stored)? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Problem::with(Code::NotFound, "there is no such account")),
    }
}

/// What an account is to log in by.
enum Credential {
    None,
    Password(String),
    Hash(String),
}

impl Credential {
    fn of(password: Option<String>, hash: Option<String>) -> Result<Self, Problem> {
        match (password, hash) {
            (None, None) => Ok(Self::None),
            (Some(_), Some(_)) => Err(Problem::invalid("password or password_hash, not both")),
            (Some(password), None) => {
                let characters = password.chars().count();
                let fits = (PASSWORD_CHARS_MIN..=TEXT_CHARS_MAX).contains(&characters);
                let wrong = || Problem::invalid("password must have 8 to 255 characters");
                fits.then_some(Self::Password(password)).ok_or_else(wrong)
            }
            (None, Some(hash)) if is_usable_hash(&hash) => Ok(Self::Hash(hash)),
            (None, Some(_)) => {
                Err(Problem::invalid("password_hash must be an argon2id hash in PHC form"))
            }
        }
    }
}

/// An account whose password is not hashed yet.
struct Wanted {
    user: NewUser,
    password: Option<String>,
}

/// `wanted`, their passwords hashed.
async fn hashed(passwords: &Passwords, wanted: Vec<Wanted>) -> Result<Vec<NewUser>, Problem> {
    let count = wanted.iter().filter(|wanted| wanted.password.is_some()).count();
    if count > PASSWORDS_MAX {
        return Err(Problem::invalid(format!(
            "{count} passwords to hash, at most {PASSWORDS_MAX} at once: send password_hash"
        )));
    }
    let mut users = Vec::with_capacity(wanted.len());
    for Wanted { mut user, password } in wanted {
        if let Some(password) = password {
            user.password_hash = Some(passwords.hash(password).await.map_err(not_hashed)?);
        }
        users.push(user);
    }
    Ok(users)
}

fn not_hashed(error: PasswordError) -> Problem {
    match error {
        PasswordError::Busy => Code::Overloaded.into(),
        PasswordError::Failed => Code::Internal.into(),
    }
}

fn from_json(fields: UserFields) -> Result<Wanted, Problem> {
    let address = fields.address.map(|it| Address {
        receiver: it.receiver,
        phone: it.phone,
        province: it.province,
        city: it.city,
        district: it.district,
        detail: it.detail,
    });
    let credential = Credential::of(fields.password, fields.password_hash)?;
    new_user(fields.id.0, fields.username, fields.role, address, credential)
}

fn from_csv(bytes: &[u8]) -> Result<Vec<Wanted>, Problem> {
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(bytes);
    let mut users = Vec::new();
    for (index, line) in reader.deserialize::<UserLine>().enumerate() {
        // The first line names the columns.
        let at = index + 2;
        let wrong = |what: &str| Problem::invalid(format!("line {at}: {what}"));
        let line = line.map_err(|_| wrong("a column is missing or of the wrong kind"))?;
        let id = UserId::new(line.id).ok_or_else(|| wrong("an id must be 1 to 2^53 - 1"))?;
        let parts =
            [line.receiver, line.phone, line.province, line.city, line.district, line.detail];
        let given = parts.iter().flatten().any(|part| !part.is_empty());
        let [receiver, phone, province, city, district, detail] =
            parts.map(Option::unwrap_or_default);
        let address =
            given.then_some(Address { receiver, phone, province, city, district, detail });
        let username = line.username.filter(|name| !name.is_empty());
        let given = |text: Option<String>| text.filter(|text| !text.is_empty());
        let user = Credential::of(given(line.password), given(line.password_hash))
            .and_then(|credential| new_user(id, username, line.role, address, credential));
        users.push(user.map_err(|problem| wrong(problem.detail.as_deref().unwrap_or("invalid")))?);
    }
    Ok(users)
}

fn new_user(
    id: UserId,
    username: Option<String>,
    role: Option<crate::identity::Role>,
    address: Option<Address>,
    credential: Credential,
) -> Result<Wanted, Problem> {
    let username = username.unwrap_or_else(|| format!("user{id}"));
    bounded("username", &username)?;
    if let Some(address) = &address {
        let Address { receiver, phone, province, city, district, detail } = address;
        bounded("receiver", receiver)?;
        bounded("phone", phone)?;
        bounded("detail", detail)?;
        for (name, text) in [("province", province), ("city", city), ("district", district)] {
            if text.chars().count() > TEXT_CHARS_MAX {
                return Err(too_long(name));
            }
        }
    }
    let role = match role {
        Some(crate::identity::Role::Admin) => Role::Admin,
        Some(crate::identity::Role::User) | None => Role::User,
    };
    let (password, password_hash) = match credential {
        Credential::None => (None, None),
        Credential::Password(password) => (Some(password), None),
        Credential::Hash(hash) => (None, Some(hash)),
    };
    let user = NewUser { id, username, password_hash, role, default_address: address };
    Ok(Wanted { user, password })
}

fn bounded(name: &str, text: &str) -> Result<(), Problem> {
    if text.is_empty() || text.chars().count() > TEXT_CHARS_MAX {
        return Err(too_long(name));
    }
    Ok(())
}

fn too_long(name: &str) -> Problem {
    Problem::invalid(format!("{name} must have 1 to {TEXT_CHARS_MAX} characters"))
}

fn stored(error: StoreError) -> Problem {
    match error {
        StoreError::Duplicate { .. } => {
            Problem::with(Code::Conflict, "an id or a name in it is taken")
        }
        StoreError::Refused { .. } => Problem::invalid("the database refuses a value"),
        StoreError::Unreadable { .. } => Code::Internal.into(),
        StoreError::Unavailable(_) => Code::DatabaseUnavailable.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_csv_names_its_columns_and_may_leave_out_all_but_the_id() {
        let users: Vec<NewUser> = from_csv(
            "id,username,receiver,phone,province,city,district,detail\n\
             7,amy,Amy,1,GD,SZ,NS,1 Road\n8,,,,,,,\n"
                .as_bytes(),
        )
        .unwrap()
        .into_iter()
        .map(|wanted| wanted.user)
        .collect();
        assert_eq!(users[0].username, "amy");
        assert_eq!(users[0].default_address.as_ref().unwrap().city, "SZ");
        assert_eq!(users[1].username, "user8");
        assert_eq!(users[1].default_address, None);
        assert_eq!(from_csv(b"id\n1\n2\n").unwrap().len(), 2);
    }

    #[test]
    fn a_csv_may_bring_passwords_or_hashes_and_never_both() {
        let hash = "$argon2id$v=19$m=19456,t=2,p=1$c2x1aWNlLW9mLW5vYm9keQ$\
                    AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";
        let lines = format!("id,password,password_hash\n1,correct horse,\n2,,\"{hash}\"\n3,,\n");
        let users = from_csv(lines.as_bytes()).unwrap();
        assert_eq!(users[0].password.as_deref(), Some("correct horse"));
        assert_eq!(users[1].user.password_hash.as_deref(), Some(hash));
        assert!(users[2].password.is_none() && users[2].user.password_hash.is_none());
        for bad in ["short,", "correct horse,$argon2id", ",plain text", ",$2b$12$abc"] {
            let lines = format!("id,password,password_hash\n1,{bad}\n");
            assert!(from_csv(lines.as_bytes()).is_err(), "{bad}");
        }
    }

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
            ("id\n1\n", "line 2"),
        ] {
            let problem = skus_from_csv(csv.as_bytes()).err().unwrap();
            assert!(problem.detail.unwrap().starts_with(line), "{csv}");
        }
    }

    #[test]
    fn a_bad_line_is_named() {
        for (csv, line) in
            [("id\n1\nx\n", "line 3"), ("id\n0\n", "line 2"), ("name\nx\n", "line 2")]
        {
            let problem = from_csv(csv.as_bytes()).err().unwrap();
            assert!(problem.detail.unwrap().starts_with(line), "{csv}");
        }
    }
}
