//! `--demo`: something to buy, somebody to buy it, and the line that does.
//!
//! A rerun finds what is there and leaves it as it is, sold units above all.

use std::time::Duration;

use bridge::sql::accounts::{Address, Existing, NewUser, Role, Sku};
use bridge::sql::store::StoreError;
use engine::core::command::Refusal;
use engine::core::event::{Actor, DeadLetterPolicy, Definition, LatePayment};
use engine::core::ids::{ActivityId, SkuId, UserId};
use engine::{Busy, LogUnavailable};

use crate::app::App;
use crate::config::Secret;
use crate::identity::{self, PasswordError, Passwords, SignError, Tokens};

const SKU: u64 = 20001;
const ACTIVITY: u64 = 30001;
const STOCK: u32 = 1000;
const USERS: u64 = 10_000;
const PRICE: u64 = 9_900;
const LENGTH_MS: u64 = 30 * 24 * 3600 * 1000;
const PAYMENT_TTL_MS: u64 = 15 * 60 * 1000;
/// The sale is on sale after this long at the latest.
const PUBLISHED_WITHIN_MS: u64 = 10_000;
/// Every demo shopper's. A demo is refused on an address that others can reach.
const PASSWORD: &str = "demo-password";
const TITLE: &str = "Demo: a mechanical keyboard";

/// How long the printed tokens are good.
const TOKEN_TTL: Duration = Duration::from_secs(24 * 3600);

/// Users made in one transaction: a second's worth at the very most.
const USERS_PER_BATCH: usize = 2000;

/// What keeps the demo's sale from being made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum DemoError {
    /// The catalogue or the accounts could not be written.
    #[error("demo: {0}")]
    Store(#[from] StoreError),
    /// The shoppers' password could not be hashed.
    #[error("demo: the password could not be hashed ({0:?})")]
    Password(PasswordError),
    /// The engine took nothing.
    #[error("demo: the engine is busy ({0:?})")]
    Busy(Busy),
    /// The log has failed.
    #[error("demo: the log is not available")]
    Log(LogUnavailable),
    /// The engine refused the activity.
    #[error("demo: the activity was refused: {0:?}")]
    Refused(Refusal),
    /// An id of the demo is none.
    #[error("demo: {0} is no id")]
    Id(u64),
    /// The printed tokens could not be signed.
    #[error(transparent)]
    Sign(#[from] SignError),
}

impl From<Busy> for DemoError {
    fn from(busy: Busy) -> Self {
        Self::Busy(busy)
    }
}

impl From<LogUnavailable> for DemoError {
    fn from(error: LogUnavailable) -> Self {
        Self::Log(error)
    }
}

impl From<Refusal> for DemoError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Makes what is missing of the demo's SKU, users and activity.
///
/// # Errors
/// [`DemoError`]
pub(crate) async fn prepare(app: &App, passwords: &Passwords) -> Result<(), DemoError> {
    let now_ms = app.engine.now_ms();
    let sku = SkuId::new(SKU).ok_or(DemoError::Id(SKU))?;
    let accounts = &app.orders.accounts;
    if app.orders.queries.skus(&[sku]).await?.is_empty() {
        // What an operator made of it since stays.
        let made = Sku { id: sku, title: TITLE.to_owned(), price: Some(PRICE) };
        accounts.upsert_skus(None, &[made], now_ms).await?;
    }
    // One hash for all of them: it is everybody's password.
    let hash = passwords.hash(PASSWORD.to_owned()).await.map_err(DemoError::Password)?;
    let users = (1..=USERS).filter_map(UserId::new).map(|id| user(id, &hash));
    let users: Vec<NewUser> = users.collect();
    for batch in users.chunks(USERS_PER_BATCH) {
        accounts.create_users(None, batch, Existing::Keep, now_ms).await?;
    }
    let id = ActivityId::new(ACTIVITY).ok_or(DemoError::Id(ACTIVITY))?;
    let actor = Actor { name: "demo", request_id: "demo" };
    match app.engine.create(Some(id), actor, STOCK, sale(sku, now_ms))?.durable().await? {
        Ok(_) => {
            app.engine.publish(id, actor)?.durable().await??;
            Ok(())
        }
        Err(Refusal::ActivityExists) => Ok(()),
        Err(refusal) => Err(refusal.into()),
    }
}

/// The sale. It is published at once; where this start is killed in between, its schedule does it
/// at the next, and after an operator's word it does no more.
const fn sale(sku: SkuId, now_ms: u64) -> Definition<'static> {
    Definition {
        sku,
        title: TITLE,
        price: PRICE,
        per_user_limit: 1,
        start_ms: now_ms,
        end_ms: now_ms + LENGTH_MS,
        payment_ttl_ms: PAYMENT_TTL_MS,
        late_payment: LatePayment::ReinstateOrRefund,
        dead_letter: DeadLetterPolicy::Rollback,
        publish_at_ms: now_ms + PUBLISHED_WITHIN_MS,
    }
}

fn user(id: UserId, hash: &str) -> NewUser {
    NewUser {
        id,
        username: format!("demo{id}"),
        password_hash: Some(hash.to_owned()),
        role: Role::User,
        default_address: Some(Address {
            receiver: format!("Demo {id}"),
            phone: format!("138{:08}", id.get()),
            province: "Guangdong".to_owned(),
            city: "Shenzhen".to_owned(),
            district: "Nanshan".to_owned(),
            detail: format!("{id} Demo Road"),
        }),
    }
}

/// What a newcomer does next.
///
/// # Errors
/// There is no randomness for a token.
pub(crate) fn banner(tokens: &Tokens, payments: &Secret, url: &str) -> Result<String, DemoError> {
    let sign = |id: u64, role| {
        let user = UserId::new(id).ok_or(DemoError::Id(id))?;
        Ok::<_, DemoError>(tokens.sign(user, role, TOKEN_TTL)?)
    };
    let shopper = sign(1, identity::Role::User)?;
    let admin = sign(USERS + 1, identity::Role::Admin)?;
    let payments = payments.text();
    Ok(format!(
        "\nDemo: activity {ACTIVITY} sells {STOCK} units of SKU {SKU}, one a shopper, to users \
         1..={USERS}, who log in as demo1, demo2, ... with the password {PASSWORD}.\n\n\
         A shopper's token and an operator's, good for a day:\n  \
         export TOKEN={shopper}\n  \
         export ADMIN={admin}\n\n\
         What its channel `mock` signs callbacks about payments with:\n  \
         export PAYMENT_SECRET={payments}\n\n\
         Buy (202 means: it is on disk; again with the same id: the same answer):\n  \
         curl -i -X POST {url}/api/flashsales/{ACTIVITY}/purchase \
         -H \"Authorization: Bearer $TOKEN\" -H 'Content-Type: application/json' \
         -d '{{\"client_request_id\":\"first\"}}'\n\n\
         Then look:\n  \
         curl {url}/api/orders -H \"Authorization: Bearer $TOKEN\"\n  \
         curl {url}/api/admin/flashsales -H \"Authorization: Bearer $ADMIN\"\n  \
         curl {url}/metrics\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sale_that_was_made_and_not_published_publishes_itself() {
        let sku = const { SkuId::new(SKU).unwrap() };
        let made = sale(sku, 1_000);
        assert!(made.publish_at_ms > made.start_ms, "what is past publishes nothing");
        assert!(made.publish_at_ms < made.end_ms);
    }
}
