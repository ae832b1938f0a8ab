//! The database is Sluice's own: its schema is made and brought up to date here, and a database
//! with anybody else's tables in it is refused before anything is changed.

use std::collections::BTreeSet;

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::mysql::MySqlConnectOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, Connection as _};

use super::look::Looked;
use super::split::Split;
use super::{mysql, tables};

/// How long another server's migration is waited for before the attempt is repeated.
const LOCK_WAIT_S: u32 = 30;

/// Why a database can't be used.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    /// It holds tables that are not Sluice's.
    #[error(
        "the database holds tables that are not Sluice's ({}): give Sluice its own database",
        tables.join(", ")
    )]
    ForeignTables {
        /// Their names.
        tables: Vec<String>,
    },
    /// A newer Sluice made its schema.
    #[error(
        "the database has schema version {version}, which this binary does not know: run the \
         newer Sluice that made it"
    )]
    Newer {
        /// The version.
        version: i64,
    },
    /// Its schema was made by a migration that has changed since.
    #[error(
        "migration {version} of the database differs from this binary's: restore a backup, or run \
         the Sluice that made it"
    )]
    Altered {
        /// The migration.
        version: i64,
    },
    /// Orders are spread over another number of tables than the configuration says.
    #[error(
        "orders.split is {wanted}, but this database was made with {present}: set it back, the \
         number is fixed by the first order"
    )]
    SplitFixed {
        /// The tables there are.
        present: u16,
        /// The tables that the configuration wants.
        wanted: u16,
    },
    /// A migration failed.
    #[error("migration of the database failed: {0}{advice}", advice = migration_advice(.0))]
    Migration(#[source] MigrateError),
    /// Another server is at its schema.
    #[error("another server has been migrating the database for {LOCK_WAIT_S} s: wait for it")]
    Locked,
    /// It does not answer, is locked, full, read only: it may come back.
    #[error("the database is not available: {0}{advice}", advice = mysql::advice(.0))]
    Unavailable(#[from] sqlx::Error),
}

impl SchemaError {
    /// Whether trying again may help.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unavailable(_) | Self::Locked => true,
            Self::Migration(error) => {
                matches!(error, MigrateError::Execute(_) | MigrateError::ExecuteMigration(..))
            }
            _ => false,
        }
    }
}

/// Checks that the database is Sluice's own or empty, and brings its schema up to date.
///
/// # Errors
/// Where it is somebody else's or a newer Sluice's: nothing was changed then.
pub async fn prepare_sqlite(
    options: &SqliteConnectOptions,
    split: Split,
) -> Result<(), SchemaError> {
    let path = options.get_filename();
    // Opening for writing sets the journal mode, a change: a stranger's file is only looked at.
    if path.exists() {
        let look = SqliteConnectOptions::new().filename(path).read_only(true);
        let mut connection = SqliteConnection::connect_with(&look).await?;
        refuse_foreign_tables(&mut connection).await?;
        connection.close().await?;
    }
    let mut connection = SqliteConnection::connect_with(options).await?;
    refuse_foreign_tables(&mut connection).await?;
    migrations::SQLITE.run(&mut connection).await.map_err(judged)?;
    tables::split_sqlite(&mut connection, split).await?;
    connection.close().await?;
    Ok(())
}

/// As [`prepare_sqlite`], for a server: two of Sluice's may start at the same moment.
pub(super) async fn prepare_mysql(
    options: &MySqlConnectOptions,
    split: Split,
) -> Result<(), SchemaError> {
    // A connection of its own: the lock ends with it, whatever happens in between.
    let mut connection = mysql::connect(options).await?;
    // Locks are the whole server's, and the name is bounded at 64 characters. MySQL 9 has neither
    // MD5 nor SHA1 any more.
    let name = "CONCAT('sluice:', LEFT(SHA2(DATABASE(), 256), 40))";
    let lock = format!("SELECT GET_LOCK({name}, {LOCK_WAIT_S})");
    // NULL is an error that MariaDB does not report as one.
    let granted: Option<i64> =
        sqlx::query_scalar(AssertSqlSafe(lock)).fetch_one(&mut connection).await?;
    if granted != Some(1) {
        return Err(SchemaError::Locked);
    }
    let ours = refuse_foreign_tables(&mut connection).await?;
    if ours {
        // A server died in the middle of a migration: its one statement may run again.
        sqlx::raw_sql("DELETE FROM _sqlx_migrations WHERE success = FALSE")
            .execute(&mut connection)
            .await?;
    }
    let unlocked = &migrations::MYSQL;
    let migrator = Migrator {
        migrations: unlocked.migrations.clone(),
        table_name: unlocked.table_name.clone(),
        locking: false,
        ..Migrator::DEFAULT
    };
    migrator.run(&mut connection).await.map_err(judged)?;
    tables::split_mysql(&mut connection, split).await?;
    // What was done is done, however the goodbye goes: over TLS a server may hang up first.
    let _ = connection.close().await;
    Ok(())
}

fn judged(error: MigrateError) -> SchemaError {
    match error {
        MigrateError::VersionMissing(version) => SchemaError::Newer { version },
        MigrateError::VersionMismatch(version) => SchemaError::Altered { version },
        other => SchemaError::Migration(other),
    }
}

fn migration_advice(error: &MigrateError) -> &'static str {
    match error {
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => {
            mysql::advice(error)
        }
        _ => "",
    }
}

/// Whether the database is Sluice's already; empty is not yet.
///
/// # Errors
/// It is somebody else's.
pub(super) async fn refuse_foreign_tables(
    connection: &mut impl Looked,
) -> Result<bool, SchemaError> {
    let found: BTreeSet<_> = connection.tables().await?.into_iter().map(|(name, _)| name).collect();
    // Without the migrator's table even a `users` is somebody else's.
    let ours = found.contains(migrations::MIGRATIONS_TABLE);
    let tables: Vec<String> = found
        .into_iter()
        .filter(|name| {
            let known = name == migrations::MIGRATIONS_TABLE
                || migrations::TABLES.contains(&name.as_str())
                || tables::is_part(name);
            !(ours && known)
        })
        .collect();
    if tables.is_empty() { Ok(ours) } else { Err(SchemaError::ForeignTables { tables }) }
}

/// Refuses what the migrator would refuse, without being one: migrations that this binary does not
/// know, or knows otherwise.
pub(super) async fn refuse_other_schema<C: Looked>(connection: &mut C) -> Result<(), SchemaError> {
    let applied = connection.migrations().await?;
    let known = |version| C::schema().iter().find(|it| it.version == version);
    let mut altered = None;
    for (version, checksum) in applied {
        match known(version) {
            None => return Err(SchemaError::Newer { version }),
            Some(known) if *known.checksum != *checksum => altered = altered.or(Some(version)),
            Some(_) => {}
        }
    }
    altered.map_or(Ok(()), |version| Err(SchemaError::Altered { version }))
}
