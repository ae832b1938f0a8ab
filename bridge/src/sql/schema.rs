//! The database is Sluice's own: its schema is made and brought up to date here, and a database
//! with anybody else's tables in it is refused before anything is changed.

use std::collections::BTreeSet;

use sqlx::migrate::MigrateError;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{Connection as _, Row as _};

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
    /// A migration failed.
    #[error("migration of the database failed: {0}")]
    Migration(#[source] MigrateError),
    /// It does not answer, is locked, full, read only: it may come back.
    #[error("the database is not available: {0}")]
    Unavailable(#[from] sqlx::Error),
}

impl SchemaError {
    /// Whether trying again may help.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unavailable(_) => true,
            Self::Migration(error) => matches!(error, MigrateError::Execute(_)),
            _ => false,
        }
    }
}

/// Checks that the database is Sluice's own or empty, and brings its schema up to date.
///
/// # Errors
/// Where it is somebody else's or a newer Sluice's: nothing was changed then.
pub async fn prepare_sqlite(options: &SqliteConnectOptions) -> Result<(), SchemaError> {
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
    migrations::SQLITE.run(&mut connection).await.map_err(|error| match error {
        MigrateError::VersionMissing(version) => SchemaError::Newer { version },
        MigrateError::VersionMismatch(version) => SchemaError::Altered { version },
        other => SchemaError::Migration(other),
    })?;
    connection.close().await?;
    Ok(())
}

async fn refuse_foreign_tables(connection: &mut SqliteConnection) -> Result<(), SchemaError> {
    let rows = sqlx::query(
        "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') \
         AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name",
    )
    .fetch_all(connection)
    .await?;
    let found: BTreeSet<String> =
        rows.iter().map(|row| row.try_get(0)).collect::<Result<_, sqlx::Error>>()?;
    // Without the migrator's table even a `users` is somebody else's.
    let ours = found.contains(migrations::MIGRATIONS_TABLE);
    let tables: Vec<String> = found
        .into_iter()
        .filter(|name| {
            let known =
                name == migrations::MIGRATIONS_TABLE || migrations::TABLES.contains(&name.as_str());
            !(ours && known)
        })
        .collect();
    if tables.is_empty() { Ok(()) } else { Err(SchemaError::ForeignTables { tables }) }
}
