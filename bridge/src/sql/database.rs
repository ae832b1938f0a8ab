//! Which database a URL names, and one type for all of them.
//!
//! The dialects are few and known: an enum says so, and what is held across an `await` stays
//! `Send` without boxes.

use sqlx::mysql::MySqlConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;

use super::look;
use super::mysql::{self, MySqlStore, MySqlTransaction};
use super::schema::{self, SchemaError};
use super::split::Split;
use super::sqlite::{self, SqliteStore, SqliteTransaction};
use super::sqlite_direct::{DirectStore, DirectTransaction};
use super::store::{Lookup, Record, Rows, Store, StoreError, Transaction, Value};
use crate::cursor::Standing;

/// A database URL that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum UrlError {
    /// Another scheme.
    #[error("database URL {url:?}: only sqlite:<path> and mysql://... are supported")]
    Scheme {
        /// The URL.
        url: String,
    },
    /// In memory.
    #[error("database URL {url:?}: a database in memory would lose accounts and addresses")]
    InMemory {
        /// The URL.
        url: String,
    },
    /// An option that not all of our connections to the file would have.
    #[error(
        "database URL {url:?}: leave {option} out: orders are written there, with locks of one kind"
    )]
    Option {
        /// The URL.
        url: String,
        /// The option's name.
        option: &'static str,
    },
    /// A server, but which of its databases?
    #[error("database URL {url:?}: name the database too, mysql://<user>@<host>/<database>")]
    NoDatabase {
        /// The URL without user and password.
        url: String,
    },
    /// Not understood.
    #[error("database URL {url:?}: {source}")]
    Malformed {
        /// The URL without user and password.
        url: String,
        /// Why.
        source: sqlx::Error,
    },
}

/// A database that a URL names. Nothing is connected yet.
#[derive(Clone, Debug)]
pub enum Database {
    /// A file.
    Sqlite(SqliteConnectOptions),
    /// A MySQL or MariaDB server.
    MySql(MySqlConnectOptions),
}

impl Database {
    /// The database at `url`: `sqlite:<path>`, `mysql://...` or, the same, `mariadb://...`.
    ///
    /// # Errors
    /// Where the URL can't be used: the operator must give another.
    pub fn at(url: &str) -> Result<Self, UrlError> {
        let scheme = url.split(':').next().unwrap_or_default();
        match scheme {
            "sqlite" => Ok(Self::Sqlite(sqlite::connect_options(url)?)),
            "mysql" | "mariadb" => Ok(Self::MySql(mysql::connect_options(url)?)),
            _ => Err(UrlError::Scheme { url: without_secrets(url) }),
        }
    }

    /// A store for a sink, which has its thread to itself; connects when it is first used.
    pub fn store(&self) -> DatabaseStore {
        match self {
            Self::Sqlite(options) => DatabaseStore::Direct(DirectStore::new(options.clone())),
            Self::MySql(options) => DatabaseStore::MySql(MySqlStore::new(options.clone())),
        }
    }

    /// A store that never blocks the thread of whoever writes; connects when it is first used.
    pub fn store_beside_others(&self) -> DatabaseStore {
        match self {
            Self::Sqlite(options) => DatabaseStore::Sqlite(SqliteStore::new(options.clone())),
            Self::MySql(options) => DatabaseStore::MySql(MySqlStore::new(options.clone())),
        }
    }

    /// Where the database says that it stands. Nothing is changed, and nothing made that is not
    /// there.
    ///
    /// # Errors
    /// Where it does not answer, and where [`prepare`](Self::prepare) would refuse it.
    pub async fn look(&self, split: Split) -> Result<Standing, SchemaError> {
        match self {
            Self::Sqlite(options) => look::sqlite(options, split).await,
            Self::MySql(options) => look::mysql(options, split).await,
        }
    }

    /// Checks that the database is Sluice's own or empty, and brings its schema up to date, orders
    /// spread as `split` says.
    ///
    /// # Errors
    /// Where it is somebody else's or a newer Sluice's, or was made with another split: nothing was
    /// changed then.
    pub async fn prepare(&self, split: Split) -> Result<(), SchemaError> {
        match self {
            Self::Sqlite(options) => schema::prepare_sqlite(options, split).await,
            Self::MySql(options) => schema::prepare_mysql(options, split).await,
        }
    }
}

/// `url` without what may be secret, to be shown: a server's user, password and parameters.
pub fn without_secrets(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://").filter(|(scheme, _)| *scheme != "sqlite")
    else {
        return url.to_owned();
    };
    let rest = rest.split('?').next().unwrap_or_default();
    let place = rest.rsplit_once('@').map_or(rest, |(_, place)| place);
    format!("{scheme}://{place}")
}

/// A store of any dialect.
#[derive(Debug)]
#[expect(missing_docs, reason = "the stores by their dialects")]
pub enum DatabaseStore {
    Direct(DirectStore),
    Sqlite(SqliteStore),
    MySql(MySqlStore),
}

/// A transaction of any dialect.
#[derive(Debug)]
#[expect(missing_docs, reason = "the transactions by their dialects")]
pub enum DatabaseTransaction<'a> {
    Direct(DirectTransaction<'a>),
    Sqlite(SqliteTransaction<'a>),
    MySql(MySqlTransaction<'a>),
}

impl Store for DatabaseStore {
    type Transaction<'a> = DatabaseTransaction<'a>;

    async fn begin(&mut self) -> Result<DatabaseTransaction<'_>, StoreError> {
        Ok(match self {
            Self::Direct(store) => DatabaseTransaction::Direct(store.begin().await?),
            Self::Sqlite(store) => DatabaseTransaction::Sqlite(store.begin().await?),
            Self::MySql(store) => DatabaseTransaction::MySql(store.begin().await?),
        })
    }

    fn set_lasting(&mut self, lasting: bool) -> bool {
        match self {
            Self::Direct(store) => store.set_lasting(lasting),
            Self::Sqlite(store) => store.set_lasting(lasting),
            // A server of its own syncs its own disk.
            Self::MySql(store) => store.set_lasting(lasting),
        }
    }

    fn tidy(&mut self) -> Result<(), StoreError> {
        match self {
            Self::Direct(store) => store.tidy(),
            Self::Sqlite(store) => store.tidy(),
            Self::MySql(store) => store.tidy(),
        }
    }
}

impl Transaction for DatabaseTransaction<'_> {
    async fn insert(&mut self, rows: &Rows<'_>) -> Result<(), StoreError> {
        match self {
            Self::Direct(transaction) => transaction.insert(rows).await,
            Self::Sqlite(transaction) => transaction.insert(rows).await,
            Self::MySql(transaction) => transaction.insert(rows).await,
        }
    }

    async fn update(&mut self, rows: &Rows<'_>) -> Result<u64, StoreError> {
        match self {
            Self::Direct(transaction) => transaction.update(rows).await,
            Self::Sqlite(transaction) => transaction.update(rows).await,
            Self::MySql(transaction) => transaction.update(rows).await,
        }
    }

    async fn select(
        &mut self,
        lookup: &Lookup,
        keys: &[Value<'_>],
    ) -> Result<Vec<Record>, StoreError> {
        match self {
            Self::Direct(transaction) => transaction.select(lookup, keys).await,
            Self::Sqlite(transaction) => transaction.select(lookup, keys).await,
            Self::MySql(transaction) => transaction.select(lookup, keys).await,
        }
    }

    async fn delete(&mut self, rows: &Rows<'_>) -> Result<u64, StoreError> {
        match self {
            Self::Direct(transaction) => transaction.delete(rows).await,
            Self::Sqlite(transaction) => transaction.delete(rows).await,
            Self::MySql(transaction) => transaction.delete(rows).await,
        }
    }

    async fn commit(self) -> Result<(), StoreError> {
        match self {
            Self::Direct(transaction) => transaction.commit().await,
            Self::Sqlite(transaction) => transaction.commit().await,
            Self::MySql(transaction) => transaction.commit().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_of_another_scheme_or_in_memory_is_refused() {
        for url in ["postgres://u:secret@h/d", "orders.db", ""] {
            let error = Database::at(url).unwrap_err();
            assert!(matches!(error, UrlError::Scheme { .. }), "{url}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
        for url in ["sqlite::memory:", "sqlite://:memory:", "sqlite:x?mode=memory"] {
            assert!(matches!(Database::at(url), Err(UrlError::InMemory { .. })), "{url}");
        }
        for url in ["sqlite:x?vfs=unix-dotfile", "sqlite:x?mode=ro", "sqlite:x?immutable=true"] {
            assert!(matches!(Database::at(url), Err(UrlError::Option { .. })), "{url}");
        }
        assert!(matches!(Database::at("sqlite:data/orders.db"), Ok(Database::Sqlite(_))));
        assert!(matches!(Database::at("mysql://u@h/d"), Ok(Database::MySql(_))));
    }

    #[test]
    fn a_url_is_shown_without_its_secrets() {
        for (url, shown) in [
            ("mysql://u:p@ss@h:3306/d?socket=/s", "mysql://h:3306/d"),
            ("mariadb://h/d", "mariadb://h/d"),
            ("sqlite:a@b.db?mode=rwc", "sqlite:a@b.db?mode=rwc"),
        ] {
            assert_eq!(without_secrets(url), shown);
        }
    }
}
