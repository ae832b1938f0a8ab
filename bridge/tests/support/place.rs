//! A database of a test's own, of either dialect, and what a test does to it behind the bridge's
//! back.

use std::path::PathBuf;
use std::rc::Rc;

use bridge::sql::database::Database;
use bridge::sql::readers::Readers;
use bridge::sql::split::Split;
use bridge::sql::store::{Record, Value};
use sqlx::{AssertSqlSafe, Connection as _, MySqlConnection, SqliteConnection};

use super::mariadb::MariaDb;

#[derive(Clone)]
pub enum Place {
    Sqlite { path: PathBuf, directory: Rc<tempfile::TempDir> },
    MariaDb { name: String, server: Rc<MariaDb> },
}

impl Place {
    /// An empty SQLite database.
    pub async fn sqlite() -> Self {
        let directory = Rc::new(tempfile::tempdir().unwrap());
        let place = Self::Sqlite { path: directory.path().join("orders.db"), directory };
        place.database().prepare(Split::ONE).await.unwrap();
        place
    }

    /// An empty database of a MariaDB of its own.
    pub async fn mariadb() -> Self {
        Self::on(&Rc::new(MariaDb::start()), "orders").await
    }

    /// A new database of `server`, with the schema.
    pub async fn on(server: &Rc<MariaDb>, name: &str) -> Self {
        let root = Self::MariaDb { name: "mysql".to_owned(), server: Rc::clone(server) };
        root.execute(&format!("CREATE DATABASE {name}")).await;
        let place = Self::MariaDb { name: name.to_owned(), server: Rc::clone(server) };
        place.database().prepare(Split::ONE).await.unwrap();
        place
    }

    pub fn url(&self) -> String {
        match self {
            Self::Sqlite { path, .. } => format!("sqlite:{}", path.display()),
            Self::MariaDb { name, server } => server.url(name),
        }
    }

    pub fn database(&self) -> Database {
        Database::at(&self.url()).unwrap()
    }

    /// Runs any SQL.
    pub async fn execute(&self, sql: &str) {
        self.try_execute(sql).await.unwrap();
    }

    /// Runs any SQL; it may be refused.
    pub async fn try_execute(&self, sql: &str) -> Result<(), sqlx::Error> {
        let sql = sqlx::raw_sql(AssertSqlSafe(sql));
        match self {
            Self::Sqlite { .. } => {
                let mut connection = SqliteConnection::connect(&self.url()).await?;
                sql.execute(&mut connection).await?;
                connection.close().await
            }
            Self::MariaDb { .. } => {
                let mut connection = MySqlConnection::connect(&self.url()).await?;
                sql.execute(&mut connection).await?;
                // Over TLS the server may hang up first.
                let _ = connection.close().await;
                Ok(())
            }
        }
    }

    pub async fn rows(&self, sql: &str) -> Vec<Record> {
        let readers = Readers::of(&self.database());
        let mut snapshot = readers.snapshot().await.unwrap();
        let rows = snapshot.rows(sql, &[]).await.unwrap();
        drop(snapshot);
        readers.close().await;
        rows
    }

    /// The one number that `sql` gives.
    pub async fn number(&self, sql: &str) -> u64 {
        self.rows(sql).await[0].number(0).unwrap()
    }

    /// Makes it empty again, at less cost than a new one.
    pub async fn emptied(self) -> Self {
        match self {
            Self::Sqlite { .. } => Self::sqlite().await,
            Self::MariaDb { .. } => {
                let deletes: Vec<_> =
                    migrations::TABLES.iter().map(|table| format!("DELETE FROM {table}")).collect();
                self.execute(&deletes.join(";")).await;
                self
            }
        }
    }

    /// Another database that holds what this one holds now: a backup.
    pub async fn copied(&self) -> Self {
        match self {
            Self::Sqlite { directory, .. } => {
                let path = directory.path().join("backup.db");
                self.execute(&format!("VACUUM INTO '{}'", path.display())).await;
                Self::Sqlite { path, directory: Rc::clone(directory) }
            }
            Self::MariaDb { name, server } => {
                let copy = Self::on(server, "backup").await;
                for table in migrations::TABLES {
                    copy.execute(&format!("INSERT INTO {table} SELECT * FROM {name}.{table}"))
                        .await;
                }
                copy
            }
        }
    }

    /// Kills the server and starts it again.
    pub fn kill_server(&self) {
        let Self::MariaDb { server, .. } = self else { panic!("SQLite has no server") };
        server.kill();
        server.start_again();
    }

    /// Kills every connection that the database has, as an operator or a proxy does.
    pub async fn kill_connections(&self) {
        let others = "SELECT CAST(id AS SIGNED) FROM information_schema.processlist \
                      WHERE db = DATABASE() AND id <> CONNECTION_ID()";
        for row in self.rows(others).await {
            let id = row.number(0).unwrap();
            // It may have ended by itself meanwhile.
            let _ = self.try_execute(&format!("KILL CONNECTION {id}")).await;
        }
    }
}

impl Place {
    /// Refuses every new row of `user` in `table` from now on.
    pub async fn poison(&self, table: &str, user: u64) {
        let statement = match self {
            Self::Sqlite { .. } => format!(
                "CREATE TRIGGER poison BEFORE INSERT ON {table} WHEN NEW.user_id = {user} \
                 BEGIN SELECT RAISE(ABORT, 'poison'); END"
            ),
            Self::MariaDb { .. } => format!(
                "CREATE TRIGGER poison BEFORE INSERT ON {table} FOR EACH ROW \
                 IF NEW.user_id = {user} THEN \
                 SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'poison'; END IF"
            ),
        };
        self.execute(&statement).await;
    }

    /// Ends what [`poison`](Self::poison) began.
    pub async fn cure(&self) {
        self.execute("DROP TRIGGER poison").await;
    }
}

/// The integers of a row; NULL is no integer.
pub fn integers(record: &Record) -> Vec<i64> {
    let integer = |value: &Value<'_>| match value {
        Value::Integer(value) => *value,
        other => panic!("an integer was expected, not {other:?}"),
    };
    record.0.iter().map(integer).collect()
}

/// Makes of each `async fn name(place: Place)` one test a dialect.
#[macro_export]
macro_rules! on_each_database {
    ($($name:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test]
            async fn $name() {
                super::$name($crate::support::place::Place::sqlite().await).await;
            })*
        }

        mod mariadb {
            $(#[tokio::test]
            async fn $name() {
                super::$name($crate::support::place::Place::mariadb().await).await;
            })*
        }
    };
}
