//! The address that a buyer's orders keep. An order keeps it as it was when the order was made.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bridge::sql::accounts::Address;
use bridge::sql::store::StoreError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::input::Json;
use super::json;
use super::openapi::{Api, Operation, Tag};
use super::problem::{Code, Problem};
use crate::app::Shared;
use crate::identity::Caller;

/// Characters of a part of an address; the columns hold as many.
pub(super) const PART_CHARS_MAX: usize = 255;

/// Digits of a telephone number: E.164 has 15 at most, and nobody answers fewer than 3.
const PHONE_DIGITS: std::ops::RangeInclusive<usize> = 3..=15;

/// Characters of a telephone number with its signs and an extension.
const PHONE_CHARS_MAX: usize = 32;

/// An address, as it is sent and shown.
#[derive(JsonSchema, Deserialize, Serialize)]
#[schemars(rename = "Address")]
pub(super) struct AddressJson {
    #[schemars(length(min = 1, max = PART_CHARS_MAX), example = "Amy Chen")]
    receiver: String,
    /// 3 to 15 digits, with the usual signs between them.
    #[schemars(length(min = 3, max = PHONE_CHARS_MAX), example = "+86 138-0000-0000")]
    phone: String,
    #[schemars(length(max = PART_CHARS_MAX))]
    province: String,
    #[schemars(length(max = PART_CHARS_MAX))]
    city: String,
    #[schemars(length(max = PART_CHARS_MAX))]
    district: String,
    /// Street and house.
    #[schemars(length(min = 1, max = PART_CHARS_MAX))]
    detail: String,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "ListedAddress")]
struct ListedJson {
    is_default: bool,
    #[serde(flatten)]
    address: AddressJson,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Addresses")]
struct ListJson {
    items: Vec<ListedJson>,
}

impl From<Address> for AddressJson {
    fn from(address: Address) -> Self {
        let Address { receiver, phone, province, city, district, detail } = address;
        Self { receiver, phone, province, city, district, detail }
    }
}

impl From<AddressJson> for Address {
    fn from(address: AddressJson) -> Self {
        let AddressJson { receiver, phone, province, city, district, detail } = address;
        Self { receiver, phone, province, city, district, detail }
    }
}

/// The caller's addresses.
pub(super) fn routes() -> Api {
    Api::new()
        .get(
            "/api/addresses",
            list,
            Operation::new(Tag::Accounts, "listAddresses", "The caller's addresses")
                .answers::<ListJson>(200, "None or one, the default")
                .asks_sql(),
        )
        .put(
            "/api/addresses/default",
            set_default,
            Operation::new(Tag::Accounts, "setDefaultAddress", "Set the default address")
                .about("Orders keep the default address as it was when they were made.")
                .answers::<AddressJson>(200, "What orders keep from now on")
                .asks_sql(),
        )
}

/// `GET /api/addresses`: the caller's.
pub(super) async fn list(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
) -> Result<Response, Problem> {
    let app = shared.app()?;
    let found = app.orders.breaker.call(app.orders.queries.default_address(caller.user)).await;
    let found = found.map_err(|_| Code::DatabaseUnavailable)?;
    let items =
        found.into_iter().map(|it| ListedJson { is_default: true, address: it.into() }).collect();
    json(&ListJson { items }).map(IntoResponse::into_response)
}

/// `PUT /api/addresses/default`: what the caller's orders keep from now on.
pub(super) async fn set_default(
    State(shared): State<Arc<Shared>>,
    caller: Caller,
    Json(fields): Json<AddressJson>,
) -> Result<Response, Problem> {
    let address = Address::from(fields);
    check(&address)?;
    let app = shared.app()?;
    let at_ms = app.engine.now_ms();
    let accounts = &app.orders.accounts;
    let store = async {
        let mut stored = accounts.set_default_address(caller.user, &address, at_ms).await;
        if let Err(StoreError::Duplicate { .. }) = stored {
            // Another server made the caller's first address at the same moment.
            stored = accounts.set_default_address(caller.user, &address, at_ms).await;
        }
        match stored {
            // Refused is answered: the database is there.
            Err(StoreError::Refused { .. }) => Ok(false),
            stored => stored.map(|()| true),
        }
    };
    match app.orders.breaker.call(store).await {
        Ok(true) => {}
        Ok(false) => return Err(Problem::invalid("the database refuses the address")),
        Err(_) => return Err(Code::DatabaseUnavailable.into()),
    }
    json(&AddressJson::from(address)).map(IntoResponse::into_response)
}

/// Whether an order could be sent there.
///
/// # Errors
/// `invalid_request`, which names the part.
pub(super) fn check(address: &Address) -> Result<(), Problem> {
    let Address { receiver, phone, province, city, district, detail } = address;
    for (name, text, may_be_empty) in [
        ("receiver", receiver, false),
        ("province", province, true),
        ("city", city, true),
        ("district", district, true),
        ("detail", detail, false),
    ] {
        part(name, text, may_be_empty)?;
    }
    let digits = phone.chars().filter(char::is_ascii_digit).count();
    let is_number = phone.chars().all(|it| it.is_ascii_digit() || " +-().#x*".contains(it));
    if !is_number || !PHONE_DIGITS.contains(&digits) || phone.len() > PHONE_CHARS_MAX {
        return Err(Problem::invalid("phone must be a telephone number of 3 to 15 digits"));
    }
    Ok(())
}

fn part(name: &str, text: &str, may_be_empty: bool) -> Result<(), Problem> {
    if !may_be_empty && text.trim().is_empty() {
        return Err(Problem::invalid(format!("{name} must not be blank")));
    }
    if text.chars().count() > PART_CHARS_MAX {
        let problem = format!("{name} must have at most {PART_CHARS_MAX} characters");
        return Err(Problem::invalid(problem));
    }
    if text.chars().any(char::is_control) {
        return Err(Problem::invalid(format!("{name} must be one line, without controls")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(change: impl FnOnce(&mut Address)) -> Address {
        let text = str::to_owned;
        let mut address = Address {
            receiver: text("陈晨"),
            phone: text("+86 138-0000-0000"),
            province: text("广东"),
            city: text("深圳"),
            district: String::new(),
            detail: text("科技园 1 号 👟"),
        };
        change(&mut address);
        address
    }

    #[test]
    fn an_address_that_nothing_can_be_sent_to_is_refused_by_its_part() {
        assert!(check(&address(|_| {})).is_ok());
        let long = "限".repeat(PART_CHARS_MAX + 1);
        for (change, part) in [
            (address(|it| it.receiver = "  ".to_owned()), "receiver"),
            (address(|it| it.detail = String::new()), "detail"),
            (address(|it| it.city = long.clone()), "city"),
            (address(|it| it.province = "a\nb".to_owned()), "province"),
            (address(|it| it.detail = "a\0b".to_owned()), "detail"),
            (address(|it| it.phone = "12".to_owned()), "phone"),
            (address(|it| it.phone = "1234567890123456".to_owned()), "phone"),
            (address(|it| it.phone = "call me".to_owned()), "phone"),
            (address(|it| it.phone = "１３８００００".to_owned()), "phone"),
            (address(|it| it.phone = format!("123{}", "-".repeat(40))), "phone"),
        ] {
            let detail = check(&change).unwrap_err().detail.unwrap();
            assert!(detail.starts_with(part), "{detail}");
        }
        let longest = "限".repeat(PART_CHARS_MAX);
        assert!(check(&address(|it| it.detail = longest)).is_ok());
    }
}
