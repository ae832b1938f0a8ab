//! What only SQL knows: the catalogue, accounts and addresses. Written by the server, beside the
//! projection and never into its tables.

use std::collections::BTreeMap;

use engine::core::ids::{SkuId, UserId};
use serde_json::{Value as Json, json};
use tokio::sync::{Mutex, MutexGuard};

use super::audit::direct::{By, Told};
use super::database::{Database, DatabaseStore, UrlError};
use super::store::{Lookup, Record, Rows, Store as _, StoreError, Table, Transaction, Value};

static SKUS: Table = Table {
    name: "skus",
    columns: &["id", "title", "price", "created_at", "updated_at"],
    key_columns: 1,
};

static SKU_CHANGES: Table =
    Table { name: "skus", columns: &["id", "title", "price", "updated_at"], key_columns: 1 };

static SKUS_BY_ID: Lookup =
    Lookup { columns: &["id", "title", "price"], from: "skus", key: "id", part: None, only: None };

static USERS: Table = Table {
    name: "users",
    columns: &["id", "username", "password_hash", "role", "created_at", "updated_at"],
    key_columns: 1,
};

static USER_PASSWORDS: Table =
    Table { name: "users", columns: &["id", "password_hash", "updated_at"], key_columns: 1 };

static USERS_BY_ID: Lookup =
    Lookup { columns: &["id", "password_hash"], from: "users", key: "id", part: None, only: None };

static ADDRESSES: Table = Table {
    name: "user_addresses",
    columns: &[
        "user_id",
        "default_user_id",
        "receiver",
        "phone",
        "province",
        "city",
        "district",
        "detail",
        "created_at",
        "updated_at",
    ],
    key_columns: 1,
};

static ADDRESS_CHANGES: Table = Table {
    name: "user_addresses",
    columns: &[
        "default_user_id",
        "receiver",
        "phone",
        "province",
        "city",
        "district",
        "detail",
        "updated_at",
    ],
    key_columns: 1,
};

/// A unit of the catalogue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sku {
    /// Its id.
    pub id: SkuId,
    /// Shown to people.
    pub title: String,
    /// Its usual price, in the smallest unit of the currency; an activity has its own.
    pub price: Option<u64>,
}

/// What an account may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Buys.
    User,
    /// Runs the shop.
    Admin,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Admin => "admin",
        }
    }

    /// The role of that name.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        [Self::User, Self::Admin].into_iter().find(|role| role.name() == name)
    }
}

/// Where an order goes.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the parts of an address, as their tables have them")]
pub struct Address {
    pub receiver: String,
    pub phone: String,
    pub province: String,
    pub city: String,
    pub district: String,
    pub detail: String,
}

/// An account to make.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewUser {
    /// Its id, the subject of its tokens.
    pub id: UserId,
    /// Its login name, compared byte by byte.
    pub username: String,
    /// Hash of its password; `None` where it can't log in by one.
    pub password_hash: Option<String>,
    /// What it may do.
    pub role: Role,
    /// The address that its orders keep.
    pub default_address: Option<Address>,
}

/// What becomes of accounts that exist already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Existing {
    /// Nothing is made, the error names the account.
    Refuse,
    /// Those with such an id stay as they are, the others are made.
    Keep,
}

/// Writes the catalogue and accounts, and with them who did it, where an operator did.
#[derive(Debug)]
pub struct Accounts {
    /// One writer: SQLite has room for no more, and accounts need no more.
    store: Mutex<DatabaseStore>,
}

impl Accounts {
    /// Accounts in the database at `url`; connects when first used.
    ///
    /// # Errors
    /// Where the URL can't be used.
    pub fn open(url: &str) -> Result<Self, UrlError> {
        Ok(Self { store: Mutex::new(Database::at(url)?.store_beside_others()) })
    }

    /// The one writer, when it is free.
    pub(super) async fn store(&self) -> MutexGuard<'_, DatabaseStore> {
        self.store.lock().await
    }

    /// Adds units to the catalogue, or gives those that exist their new title and price.
    ///
    /// # Errors
    /// Where the database refuses or does not answer: nothing was written then.
    pub async fn upsert_skus(
        &self,
        by: Option<By<'_>>,
        skus: &[Sku],
        at_ms: u64,
    ) -> Result<(), StoreError> {
        let mut store = self.store.lock().await;
        let mut transaction = store.begin().await?;
        let ids = skus.iter().map(|sku| sku.id.get());
        let existing = existing(&mut transaction, &SKUS_BY_ID, ids).await?;
        let mut new = Rows::new(&SKUS);
        let mut changed = Rows::new(&SKU_CHANGES);
        let mut told = Told::new(by, at_ms);
        for sku in skus {
            let id = Value::integer(sku.id.get());
            let (title, price) =
                (Value::text(sku.title.as_str()), Value::integer_or_null(sku.price));
            let after = json!({ "title": sku.title, "price": sku.price });
            let before = existing.get(&sku.id.get()).map(sku_fields).transpose()?;
            if before.as_ref() != Some(&after) {
                let subject = Some(sku.id.to_string());
                told.push("sku", subject, before.clone().unwrap_or_default(), after);
            }
            if before.is_some() {
                changed.push([id, title, price, Value::integer(at_ms)]);
            } else {
                new.push([id, title, price, Value::integer(at_ms), Value::integer(at_ms)]);
            }
        }
        transaction.insert(&new).await?;
        transaction.update(&changed).await?;
        told.write(&mut transaction).await?;
        transaction.commit().await
    }

    /// Makes accounts; how many were made.
    ///
    /// # Errors
    /// [`StoreError::Duplicate`] where an id or a name is taken; nothing was written then.
    pub async fn create_users(
        &self,
        by: Option<By<'_>>,
        users: &[NewUser],
        existing_users: Existing,
        at_ms: u64,
    ) -> Result<usize, StoreError> {
        let mut store = self.store.lock().await;
        let mut transaction = store.begin().await?;
        let kept = match existing_users {
            Existing::Refuse => BTreeMap::new(),
            Existing::Keep => {
                let ids = users.iter().map(|user| user.id.get());
                existing(&mut transaction, &USERS_BY_ID, ids).await?
            }
        };
        let mut rows = Rows::new(&USERS);
        let mut addresses = Rows::new(&ADDRESSES);
        let mut told = Told::new(by, at_ms);
        for user in users.iter().filter(|user| !kept.contains_key(&user.id.get())) {
            let after = json!({
                "username": user.username,
                "role": user.role.name(),
                "has_password": user.password_hash.is_some(),
                "has_address": user.default_address.is_some(),
            });
            told.push("user", Some(user.id.to_string()), Json::Null, after);
            rows.push([
                Value::integer(user.id.get()),
                Value::text(user.username.as_str()),
                Value::text_or_null(user.password_hash.as_deref()),
                Value::text(user.role.name()),
                Value::integer(at_ms),
                Value::integer(at_ms),
            ]);
            if let Some(address) = &user.default_address {
                addresses.push(default_address(user.id, address, at_ms));
            }
        }
        transaction.insert(&rows).await?;
        transaction.insert(&addresses).await?;
        told.write(&mut transaction).await?;
        transaction.commit().await?;
        Ok(rows.len())
    }

    /// Gives an account another password; whether there is such an account.
    ///
    /// # Errors
    /// Where the database refuses or does not answer: nothing was written then.
    pub async fn set_password(
        &self,
        by: Option<By<'_>>,
        user: UserId,
        password_hash: &str,
        at_ms: u64,
    ) -> Result<bool, StoreError> {
        let mut store = self.store.lock().await;
        let mut transaction = store.begin().await?;
        let id = user.get();
        let found = existing(&mut transaction, &USERS_BY_ID, std::iter::once(id)).await?;
        let Some(account) = found.get(&id) else { return Ok(false) };
        let mut told = Told::new(by, at_ms);
        // That there is one, and that it is another: nothing that could be guessed from.
        let password =
            |is_set, is_new| json!({ "has_password": is_set, "is_new_password": is_new });
        let before = password(account.text_or_null(1)?.is_some(), false);
        told.push("password", Some(user.to_string()), before, password(true, true));
        let mut rows = Rows::new(&USER_PASSWORDS);
        rows.push([Value::integer(id), Value::text(password_hash), Value::integer(at_ms)]);
        transaction.update(&rows).await?;
        told.write(&mut transaction).await?;
        transaction.commit().await?;
        Ok(true)
    }
}

impl Accounts {
    /// Makes `address` the one that `user`'s orders keep from now on. The account need not be known
    /// here: who signs tokens decides who there is.
    ///
    /// # Errors
    /// Where the database refuses or does not answer: nothing was written then.
    pub async fn set_default_address(
        &self,
        user: UserId,
        address: &Address,
        at_ms: u64,
    ) -> Result<(), StoreError> {
        let mut store = self.store.lock().await;
        let mut transaction = store.begin().await?;
        let [_, key, receiver, phone, province, city, district, detail, _, updated] =
            default_address(user, address, at_ms);
        let mut changed = Rows::new(&ADDRESS_CHANGES);
        changed.push([key, receiver, phone, province, city, district, detail, updated]);
        if transaction.update(&changed).await? == 0 {
            let mut new = Rows::new(&ADDRESSES);
            new.push(default_address(user, address, at_ms));
            transaction.insert(&new).await?;
        }
        transaction.commit().await
    }
}

fn default_address(user: UserId, address: &Address, at_ms: u64) -> [Value<'_>; 10] {
    [
        Value::integer(user.get()),
        Value::integer(user.get()),
        Value::text(address.receiver.as_str()),
        Value::text(address.phone.as_str()),
        Value::text(address.province.as_str()),
        Value::text(address.city.as_str()),
        Value::text(address.district.as_str()),
        Value::text(address.detail.as_str()),
        Value::integer(at_ms),
        Value::integer(at_ms),
    ]
}

/// A row of [`SKUS_BY_ID`].
fn sku_fields(row: &Record) -> Result<Json, StoreError> {
    Ok(json!({ "title": row.text(1)?, "price": row.number_or_null(2)? }))
}

async fn existing(
    transaction: &mut impl Transaction,
    lookup: &Lookup,
    ids: impl Iterator<Item = u64>,
) -> Result<BTreeMap<u64, Record>, StoreError> {
    let keys: Vec<_> = ids.map(Value::integer).collect();
    let records = transaction.select(lookup, &keys).await?;
    records.into_iter().map(|record| Ok((record.number(0)?, record))).collect()
}
