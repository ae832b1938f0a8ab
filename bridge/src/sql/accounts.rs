//! What only SQL knows: the catalogue, accounts and addresses. Written by the server, beside the
//! projection and never into its tables.

use std::collections::BTreeSet;

use engine::core::ids::{SkuId, UserId};
use tokio::sync::{Mutex, MutexGuard};

use super::database::{Database, DatabaseStore, UrlError};
use super::store::{Lookup, Rows, Store as _, StoreError, Table, Transaction, Value};

static SKUS: Table = Table {
    name: "skus",
    columns: &["id", "title", "price", "created_at", "updated_at"],
    key_columns: 1,
};

static SKU_CHANGES: Table =
    Table { name: "skus", columns: &["id", "title", "price", "updated_at"], key_columns: 1 };

static SKUS_BY_ID: Lookup =
    Lookup { columns: &["id"], from: "skus", key: "id", part: None, only: None };

static USERS: Table = Table {
    name: "users",
    columns: &["id", "username", "password_hash", "role", "created_at", "updated_at"],
    key_columns: 1,
};

static USER_PASSWORDS: Table =
    Table { name: "users", columns: &["id", "password_hash", "updated_at"], key_columns: 1 };

static USERS_BY_ID: Lookup =
    Lookup { columns: &["id"], from: "users", key: "id", part: None, only: None };

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

/// Writes the catalogue and accounts.
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
        Ok(Self { store: Mutex::new(Database::at(url)?.store()) })
    }

    /// The one writer, when it is free.
    pub(super) async fn store(&self) -> MutexGuard<'_, DatabaseStore> {
        self.store.lock().await
    }

    /// Adds units to the catalogue, or gives those that exist their new title and price.
    ///
    /// # Errors
    /// Where the database refuses or does not answer: nothing was written then.
    pub async fn upsert_skus(&self, skus: &[Sku], at_ms: u64) -> Result<(), StoreError> {
        let mut store = self.store.lock().await;
        let mut transaction = store.begin().await?;
        let ids = skus.iter().map(|sku| sku.id.get());
        let existing = existing(&mut transaction, &SKUS_BY_ID, ids).await?;
        let mut new = Rows::new(&SKUS);
        let mut changed = Rows::new(&SKU_CHANGES);
        for sku in skus {
            let id = Value::integer(sku.id.get());
            let (title, price) =
                (Value::text(sku.title.as_str()), Value::integer_or_null(sku.price));
            if existing.contains(&sku.id.get()) {
                changed.push([id, title, price, Value::integer(at_ms)]);
            } else {
                new.push([id, title, price, Value::integer(at_ms), Value::integer(at_ms)]);
            }
        }
        transaction.insert(&new).await?;
        transaction.update(&changed).await?;
        transaction.commit().await
    }

    /// Makes accounts; how many were made.
    ///
    /// # Errors
    /// [`StoreError::Duplicate`] where an id or a name is taken; nothing was written then.
    pub async fn create_users(
        &self,
        users: &[NewUser],
        existing_users: Existing,
        at_ms: u64,
    ) -> Result<usize, StoreError> {
        let mut store = self.store.lock().await;
        let mut transaction = store.begin().await?;
        let kept = match existing_users {
            Existing::Refuse => BTreeSet::new(),
            Existing::Keep => {
                let ids = users.iter().map(|user| user.id.get());
                existing(&mut transaction, &USERS_BY_ID, ids).await?
            }
        };
        let mut rows = Rows::new(&USERS);
        let mut addresses = Rows::new(&ADDRESSES);
        for user in users.iter().filter(|user| !kept.contains(&user.id.get())) {
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
        transaction.commit().await?;
        Ok(rows.len())
    }

    /// Gives an account another password; whether there is such an account.
    ///
    /// # Errors
    /// Where the database refuses or does not answer: nothing was written then.
    pub async fn set_password(
        &self,
        user: UserId,
        password_hash: &str,
        at_ms: u64,
    ) -> Result<bool, StoreError> {
        let mut store = self.store.lock().await;
        let mut transaction = store.begin().await?;
        let id = user.get();
        if existing(&mut transaction, &USERS_BY_ID, std::iter::once(id)).await?.is_empty() {
            return Ok(false);
        }
        let mut rows = Rows::new(&USER_PASSWORDS);
        rows.push([Value::integer(id), Value::text(password_hash), Value::integer(at_ms)]);
        transaction.update(&rows).await?;
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

async fn existing(
    transaction: &mut impl Transaction,
    lookup: &Lookup,
    ids: impl Iterator<Item = u64>,
) -> Result<BTreeSet<u64>, StoreError> {
    let keys: Vec<_> = ids.map(Value::integer).collect();
    let records = transaction.select(lookup, &keys).await?;
    records.iter().map(|record| record.number(0)).collect()
}
