//! The stores behind the service.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use redis::aio::MultiplexedConnection;
use sqlx::mysql::{MySqlPool, MySqlPoolOptions};
use sqlx::{AssertSqlSafe, Executor as _};
use tokio::sync::Semaphore;

use crate::contenders::Store;
use crate::support::baseline::{self, Purchase};
use crate::trouble::Trouble;

/// The one activity that is made.
const ACTIVITY: u64 = 1;

/// Connections of a pool to Valkey: as many calls wait for their sync together.
const POOL_CONNECTIONS: usize = 64;

/// Connections of a pool to MariaDB. More transactions at once wait for the same row.
const SQL_CONNECTIONS: u32 = 16;

/// Milliseconds that `WAITAOF` waits.
const WAIT_MS: u64 = 10_000;

/// A sale that is kept somewhere.
pub(super) enum Kept {
    Multiplexed(MultiplexedConnection),
    Pool(Pool),
    Mariadb(MySqlPool, AtomicU64),
}

/// What a purchase came to.
pub(super) enum Bought {
    New(u64),
    Known(u64),
    Refused(&'static str),
}

/// Units of the activity.
pub(super) struct Units {
    pub(super) total: u64,
    pub(super) available: u64,
}

/// Connections that are each one request's at a time.
pub(super) struct Pool {
    free: Mutex<Vec<MultiplexedConnection>>,
    permits: Semaphore,
}

impl Pool {
    async fn open(client: &redis::Client) -> Result<Self, Trouble> {
        let mut free = Vec::new();
        for _ in 0..POOL_CONNECTIONS {
            free.push(client.get_multiplexed_async_connection().await?);
        }
        Ok(Self { free: Mutex::new(free), permits: Semaphore::new(POOL_CONNECTIONS) })
    }

    /// Runs the script, then asks whether it is on disk: two round trips, as the older systems do.
    async fn reserve(&self, call: &redis::Cmd) -> Result<(i64, u64), Trouble> {
        // The semaphore is never closed.
        let _permit = self.permits.acquire().await;
        let taken = lock(&self.free).pop();
        let Some(mut connection) = taken else { unreachable!("a permit is a connection") };
        let answer = reserved(call, &mut connection).await;
        let mut wait = redis::cmd("WAITAOF");
        let synced = wait.arg(1).arg(0).arg(WAIT_MS).query_async(&mut connection).await;
        lock(&self.free).push(connection);
        let (local, _): (i64, i64) = synced?;
        assert_eq!(local, 1, "a purchase is not on disk");
        answer
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

async fn reserved(
    call: &redis::Cmd,
    connection: &mut MultiplexedConnection,
) -> Result<(i64, u64), Trouble> {
    let (code, id, _, _): (i64, u64, String, i64) = call.query_async(connection).await?;
    Ok((code, id))
}

fn function(name: &str, activity: u64) -> redis::Cmd {
    let mut command = redis::cmd("FCALL");
    command.arg(name).arg(1).arg(activity);
    command
}

impl Kept {
    /// Connects to a store.
    pub(super) async fn open(store: Store, url: &str) -> Result<Self, Trouble> {
        if store == Store::Mariadb {
            let pool = MySqlPoolOptions::new().max_connections(SQL_CONNECTIONS).connect(url).await;
            return Ok(Self::Mariadb(pool?, AtomicU64::new(1)));
        }
        let client = redis::Client::open(url)?;
        Ok(match store {
            Store::Pool => Self::Pool(Pool::open(&client).await?),
            _ => Self::Multiplexed(client.get_multiplexed_async_connection().await?),
        })
    }

    fn any(&self) -> MultiplexedConnection {
        match self {
            Self::Multiplexed(connection) => connection.clone(),
            Self::Pool(pool) => match lock(&pool.free).first() {
                Some(connection) => connection.clone(),
                None => unreachable!("sales are made and read while nobody buys"),
            },
            Self::Mariadb(..) => unreachable!("a database is no Valkey"),
        }
    }

    /// Puts `stock` units on sale; the activity's id.
    pub(super) async fn create(&self, stock: u64, limit: u64) -> Result<u64, Trouble> {
        if let Self::Mariadb(pool, _) = self {
            let sql = format!(
                "UPDATE flashsale_activities SET stock = {stock}, total_stock = {stock}, \
                 per_user_limit = {limit} WHERE id = {ACTIVITY}"
            );
            pool.execute(AssertSqlSafe(sql)).await?;
            return Ok(ACTIVITY);
        }
        let mut warm = function("sluice_warm", ACTIVITY);
        warm.arg(1).arg(100).arg(stock).arg(limit).arg(0).arg(0);
        let () = warm.query_async(&mut self.any()).await?;
        Ok(ACTIVITY)
    }

    /// The units of the activity.
    pub(super) async fn units(&self) -> Result<Units, Trouble> {
        if let Self::Mariadb(pool, _) = self {
            let sql = "SELECT total_stock, stock FROM flashsale_activities WHERE id = ?";
            let row: (i64, i64) = sqlx::query_as(sql).bind(ACTIVITY).fetch_one(pool).await?;
            return Ok(Units { total: row.0.unsigned_abs(), available: row.1.unsigned_abs() });
        }
        let call = function("sluice_activity", ACTIVITY);
        let fields: std::collections::HashMap<String, u64> =
            call.query_async(&mut self.any()).await?;
        let field = |name: &str| fields.get(name).copied().unwrap_or_default();
        Ok(Units { total: field("total"), available: field("available") })
    }

    /// Buys one unit.
    pub(super) async fn buy(&self, user: u64, request: &str) -> Result<Bought, Trouble> {
        let call = || {
            let mut call = function("sluice_reserve", ACTIVITY);
            call.arg(user).arg(request).arg(1);
            call
        };
        let (code, id) = match self {
            Self::Multiplexed(connection) => reserved(&call(), &mut connection.clone()).await?,
            Self::Pool(pool) => pool.reserve(&call()).await?,
            Self::Mariadb(pool, next) => {
                let id = next.fetch_add(1, Ordering::Relaxed);
                let purchase = Purchase { id, user, request };
                let is_sold = baseline::client(&mut *pool.acquire().await?, &purchase).await?;
                (i64::from(is_sold), id)
            }
        };
        Ok(match code {
            1 => Bought::New(id),
            2 => Bought::Known(id),
            0 => Bought::Refused("sold_out"),
            _ => Bought::Refused("limit_reached"),
        })
    }
}
