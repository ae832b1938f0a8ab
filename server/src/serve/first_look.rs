//! Before anything is written: do the order database and Redis belong to this data directory?

use std::time::Duration;

use bridge::first_look::{self, LookError};
use bridge::redis::MirrorError as RedisError;
use bridge::sql::database::without_secrets;
use engine::Recovered;

use super::ServeError;
use crate::config::Settings;
use crate::mirror::MirrorError;
use crate::orders::{self, OrdersError};

/// How long a start waits for a database that may have a fork to show. One that answers later is
/// judged then.
const CONTACT_TIMEOUT: Duration = Duration::from_secs(5);

/// How long each of the two is to be waited for when it is met in earnest: one that did not even
/// let itself be looked at is not waited for twice.
pub(super) struct Patience {
    pub(super) orders: Duration,
    pub(super) mirror: Duration,
}

/// Looks at both.
///
/// # Errors
/// One of them follows another history, or the database is not one that this build may write to.
pub(super) async fn look(
    settings: &Settings,
    recovered: &Recovered,
) -> Result<Patience, ServeError> {
    let orders = tokio::time::timeout(CONTACT_TIMEOUT, at_orders(settings, recovered));
    let mirror = tokio::time::timeout(CONTACT_TIMEOUT, at_mirror(settings, recovered));
    let (orders, mirror) = tokio::join!(orders, mirror);
    let patience = |is_over: bool| if is_over { Duration::ZERO } else { CONTACT_TIMEOUT };
    let patience =
        Patience { orders: patience(orders.is_err()), mirror: patience(mirror.is_err()) };
    orders.unwrap_or(Ok(()))?;
    mirror.unwrap_or(Ok(()))?;
    Ok(patience)
}

async fn at_orders(settings: &Settings, recovered: &Recovered) -> Result<(), OrdersError> {
    let (url, split) = (orders::database_url(settings), orders::order_options(settings)?.split);
    let mut reader = recovered.reader();
    match first_look::at_orders((&url, split), recovered.identity(), &mut reader).await {
        Err(LookError::Fork(fork)) => Err(OrdersError::Fork(fork.to_string())),
        Err(LookError::Url(error)) => Err(error.into()),
        Err(LookError::Schema(error)) if !error.is_transient() => {
            Err(OrdersError::Schema { database: without_secrets(&url), why: error.to_string() })
        }
        // Whoever can't be looked at now is met later.
        Err(LookError::Schema(_) | LookError::Log(_)) | Ok(()) => Ok(()),
    }
}

async fn at_mirror(settings: &Settings, recovered: &Recovered) -> Result<(), MirrorError> {
    let Some(url) = &settings.redis else { return Ok(()) };
    let (place, activities) = ((url.as_str(), settings.mirror.layout), recovered.activities());
    let mut reader = recovered.reader();
    let looked = first_look::at_mirror(place, recovered.identity(), &mut reader, &activities);
    match looked.await {
        Err(error @ RedisError::Fork(_)) => Err(MirrorError::Fork(error.to_string())),
        _ => Ok(()),
    }
}
