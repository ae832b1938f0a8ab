//! Accounts: what only SQL knows.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use bridge::sql::accounts::{Address, Existing, NewUser, Role};
use bridge::sql::store::StoreError;
use engine::core::ids::UserId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::operator::Operator;
use crate::app::Shared;
use crate::http::input::{
    BODY_BYTES_MAX, CSV_BYTES_MAX, Json, Segment, UserField, media_type, parse_object, present,
    present_object, read_body, require_json,
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

/// An account, as one JSON object or as one line of CSV.
#[derive(JsonSchema, Deserialize)]
#[schemars(rename = "NewUser")]
pub(super) struct UserFields {
    id: UserField,
    #[serde(default, deserialize_with = "present")]
    /// `user` and the id where it is left out.
    #[schemars(length(min = 1, max = TEXT_CHARS_MAX))]
    username: Option<String>,
    #[serde(default, deserialize_with = "present")]
    role: Option<crate::identity::Role>,
    #[serde(default, deserialize_with = "present_object")]
    address: Option<AddressFields>,
    #[serde(default, deserialize_with = "present")]
    #[schemars(length(min = PASSWORD_CHARS_MIN, max = TEXT_CHARS_MAX))]
    password: Option<String>,
    #[serde(default, deserialize_with = "present")]
    /// Argon2id in PHC form, in place of a password.
    password_hash: Option<String>,
}

#[derive(JsonSchema, Deserialize)]
#[schemars(rename = "NewAddress")]
pub(super) struct AddressFields {
    #[schemars(length(min = 1, max = TEXT_CHARS_MAX))]
    receiver: String,
    #[schemars(length(min = 1, max = TEXT_CHARS_MAX))]
    phone: String,
    #[schemars(length(max = TEXT_CHARS_MAX))]
    province: String,
    #[schemars(length(max = TEXT_CHARS_MAX))]
    city: String,
    #[schemars(length(max = TEXT_CHARS_MAX))]
    district: String,
    #[schemars(length(min = 1, max = TEXT_CHARS_MAX))]
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

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Made")]
pub(super) struct MadeJson {
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
#[derive(JsonSchema, Deserialize)]
#[schemars(rename = "NewPassword")]
pub(super) struct PasswordFields {
    #[serde(default, deserialize_with = "present")]
    #[schemars(length(min = PASSWORD_CHARS_MIN, max = TEXT_CHARS_MAX))]
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

/// A reader of a CSV whose first line names at least `columns`: without one of them, and without a
/// second line, there would be nothing to complain about, and nothing done.
pub(super) fn reader_of<'a>(
    bytes: &'a [u8],
    columns: &[&str],
) -> Result<csv::Reader<&'a [u8]>, Problem> {
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(bytes);
    let named = reader.headers().map_err(|_| Problem::invalid("line 1 is not UTF-8"))?;
    match columns.iter().find(|column| !named.iter().any(|name| name == **column)) {
        Some(missing) => Err(Problem::invalid(format!("line 1 names no column {missing}"))),
        None => Ok(reader),
    }
}

fn from_csv(bytes: &[u8]) -> Result<Vec<Wanted>, Problem> {
    let mut reader = reader_of(bytes, &["id"])?;
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

pub(super) fn bounded(name: &str, text: &str) -> Result<(), Problem> {
    if text.is_empty() || text.chars().count() > TEXT_CHARS_MAX {
        return Err(too_long(name));
    }
    Ok(())
}

fn too_long(name: &str) -> Problem {
    Problem::invalid(format!("{name} must have 1 to {TEXT_CHARS_MAX} characters"))
}

pub(super) fn stored(error: StoreError) -> Problem {
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
    fn a_bad_line_is_named() {
        for (csv, line) in
            [("id\n1\nx\n", "line 3"), ("id\n0\n", "line 2"), ("name\nx\n", "line 1")]
        {
            let problem = from_csv(csv.as_bytes()).err().unwrap();
            assert!(problem.detail.unwrap().starts_with(line), "{csv}");
        }
    }
}
