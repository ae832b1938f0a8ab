//! What happens in a run: shoppers, operators, time and faults, each at a rate of its own.

use engine::core::event::{Actor, DeadLetterPolicy, Definition, LatePayment, RestoreReason};
use engine::core::ids::{ActivityId, ReservationId, SkuId, UserId};

use super::ledger::Life;
use super::mirror::Blow;
use super::shop::{Shop, Stop};
use super::{redis, sql};
use crate::fates::Random;

const ACTOR: Actor<'static> = Actor { name: "operator", request_id: "sim" };

/// Activities of a run, and users: few, so that they meet.
const ACTIVITIES: u64 = 3;
const USERS: u64 = 12;

/// A buyer's time to pay.
pub(super) const PAYMENT_TTL_MS: u64 = 60_000;

/// How often things happen. Swarm: each run leaves some of them out, so that what they would hide
/// is seen.
pub(super) struct Rates {
    weights: [u64; KINDS.len()],
    crash: u64,
    sql: sql::Rates,
    redis: redis::Rates,
}

#[derive(Clone, Copy)]
enum Kind {
    Buy,
    Repeat,
    BuyOtherwise,
    Pay,
    Cancel,
    Look,
    Time,
    Operate,
    Restock,
    Follow,
    Mirror,
    Cut,
    Close,
    Down,
    Remember,
    FailOver,
    Replace,
    SqlPowerCut,
    Snapshot,
    RememberRedis,
    Strike(Blow),
}

const KINDS: [(Kind, u64); 26] = [
    (Kind::Buy, 40),
    (Kind::Repeat, 12),
    (Kind::BuyOtherwise, 3),
    (Kind::Pay, 10),
    (Kind::Cancel, 8),
    (Kind::Look, 8),
    (Kind::Time, 6),
    (Kind::Operate, 4),
    (Kind::Restock, 4),
    (Kind::Follow, 25),
    (Kind::Mirror, 25),
    (Kind::Cut, 3),
    (Kind::Close, 1),
    (Kind::Down, 2),
    (Kind::Remember, 3),
    (Kind::FailOver, 1),
    (Kind::Replace, 1),
    (Kind::SqlPowerCut, 4),
    (Kind::Snapshot, 4),
    (Kind::RememberRedis, 3),
    (Kind::Strike(Blow::Down), 2),
    (Kind::Strike(Blow::Crash), 3),
    (Kind::Strike(Blow::FailOver), 1),
    (Kind::Strike(Blow::Flush), 1),
    (Kind::Strike(Blow::FlushFunctions), 1),
    (Kind::Strike(Blow::Disturb), 5),
];

/// Places in [`KINDS`].
const BUY: usize = 0;
const FOLLOW: usize = 9;
const MIRROR: usize = 10;

impl Rates {
    /// The rates of a run.
    pub(super) fn draw(random: &mut Random) -> Self {
        let mut weights = KINDS.map(|(_, weight)| weight);
        for weight in &mut weights {
            *weight *= [0, 1, 1, 1, 3][random.index(5)];
        }
        // Without these nothing happens at all.
        weights[BUY] += 20;
        weights[FOLLOW] += 5;
        weights[MIRROR] += 5;
        let mut rate = |most: u64| if random.below(2) == 0 { 0 } else { random.below(most) };
        Self {
            weights,
            crash: rate(150),
            sql: sql::Rates { refused: rate(40), answer_lost: rate(150), commit_lost: rate(80) },
            redis: redis::Rates {
                lost_before: rate(30),
                lost_behind: rate(30),
                slow_sync: rate(500),
            },
        }
    }

    fn kind(&self, random: &mut Random) -> Kind {
        let mut at = random.below(self.weights.iter().sum());
        for ((kind, _), weight) in KINDS.iter().zip(self.weights) {
            match at.checked_sub(weight) {
                Some(rest) => at = rest,
                None => return *kind,
            }
        }
        Kind::Buy
    }
}

/// One step.
///
/// # Errors
/// A broken promise.
pub(super) fn step(shop: &mut Shop, rates: &Rates) -> Result<(), Stop> {
    shop.sql.set_rates(rates.sql);
    shop.redis.set_rates(rates.redis);
    let kind = rates.kind(&mut shop.random);
    match kind {
        Kind::Follow => {
            let steps = 1 + shop.random.below(4);
            return shop.follow(steps, |shop| {
                let kind = rates.kind(&mut shop.random);
                act(shop, kind, rates)
            });
        }
        Kind::Mirror => {
            let steps = 1 + shop.random.below(6);
            return shop.mirror(steps, |shop| {
                let kind = rates.kind(&mut shop.random);
                act(shop, kind, rates)
            });
        }
        Kind::Cut => shop.cut(),
        Kind::Close => shop.close()?,
        kind => act(shop, kind, rates)?,
    }
    Ok(())
}

fn act(shop: &mut Shop, kind: Kind, rates: &Rates) -> Result<(), Stop> {
    if shop.activities().len() < usize::try_from(ACTIVITIES).unwrap_or(0) {
        create(shop, rates.crash)?;
    }
    match kind {
        Kind::Buy => buy(shop)?,
        Kind::Repeat => repeat(shop, None)?,
        Kind::BuyOtherwise => repeat(shop, Some(2))?,
        Kind::Pay => settle(shop, rates, |shop, id| {
            let engine = shop.engine()?;
            let _ = engine.confirm(id, &format!("pay-{id}"));
            Ok(())
        })?,
        Kind::Cancel => settle(shop, rates, |shop, id| {
            let engine = shop.engine()?;
            let owner = shop.ledger.reservations.get(&id).map(|entry| entry.user);
            let _ = engine.restore(id, owner, RestoreReason::Cancelled, Actor::NONE);
            Ok(())
        })?,
        Kind::Look => {
            if let Some(id) = any(shop, |_| true) {
                shop.look(id)?;
            }
        }
        Kind::Time => {
            let ms = [100, 1_000, 20_000, 70_000][shop.random.index(4)];
            shop.pass(ms)?;
            shop.commit(rates.crash)?;
        }
        Kind::Operate => operate(shop, rates)?,
        Kind::Restock => {
            let (id, op) = (activity(shop), format!("op-{}", shop.random.below(9)));
            let engine = shop.engine()?;
            let _ = match shop.random.below(2) {
                0 => engine.restock(id, ACTOR, &op, 3),
                _ => engine.decrease(id, ACTOR, &op, 1),
            };
            shop.commit(rates.crash)?;
        }
        Kind::Down => {
            let down = shop.random.below(2) == 0;
            shop.sql.set_down(down);
        }
        Kind::Remember => shop.sql.remember(),
        Kind::FailOver => {
            shop.sql.fail_over();
        }
        Kind::Replace => shop.sql.replace(),
        Kind::SqlPowerCut => shop.commits_undone += shop.sql.power_cut(),
        Kind::Snapshot => shop.snapshot()?,
        Kind::RememberRedis => shop.redis.remember(),
        Kind::Strike(blow) => shop.strike(blow)?,
        // Taken by the step around this one.
        Kind::Follow | Kind::Mirror | Kind::Cut | Kind::Close => {}
    }
    if shop.random.below(3) > 0 {
        shop.commit(rates.crash)?;
    }
    Ok(())
}

/// Makes the next activity and puts it on sale.
///
/// # Errors
/// A broken promise.
pub(super) fn create(shop: &mut Shop, crash_rate: u64) -> Result<(), Stop> {
    let engine = shop.engine()?;
    let number = shop.activities().len() as u64 + 1;
    let Some((id, sku)) = ActivityId::new(number).zip(SkuId::new(number)) else { return Ok(()) };
    let start_ms = super::START_MS;
    let definition = Definition {
        sku,
        title: "a sale",
        price: 100 * number,
        per_user_limit: 1 + u32::try_from(shop.random.below(3)).unwrap_or(0),
        start_ms,
        end_ms: start_ms + 3_600_000,
        payment_ttl_ms: PAYMENT_TTL_MS,
        late_payment: LatePayment::ReinstateOrRefund,
        dead_letter: DeadLetterPolicy::ALL[shop.random.index(DeadLetterPolicy::ALL.len())],
        publish_at_ms: 0,
    };
    let total = 3 + u32::try_from(shop.random.below(12)).unwrap_or(0);
    let _ = engine.create(Some(id), ACTOR, total, definition);
    let _ = engine.publish(id, ACTOR);
    shop.commit(crash_rate)
}

fn activity(shop: &mut Shop) -> ActivityId {
    let ids = shop.activities();
    let at = shop.random.index(ids.len().max(1));
    ids.get(at).copied().or(ActivityId::new(1)).unwrap_or_else(|| unreachable!("1 is an id"))
}

fn buy(shop: &mut Shop) -> Result<(), Stop> {
    let id = activity(shop);
    let user = UserId::new(1 + shop.random.below(USERS));
    let Some(user) = user else { return Ok(()) };
    let request_id = format!("r{}", shop.random.below(1_000_000));
    let quantity = 1 + u32::from(shop.random.below(6) == 0);
    shop.ask((user, id, request_id), quantity)
}

/// Sends a request again: one that was accepted, or one whose outcome nobody knows.
fn repeat(shop: &mut Shop, quantity: Option<u32>) -> Result<(), Stop> {
    let doubts = shop.told.in_doubt.len();
    let known = if doubts > 0 && shop.random.below(2) == 0 {
        let at = shop.random.index(doubts);
        Some(shop.told.in_doubt[at].clone())
    } else {
        let count = shop.told.accepted.len();
        let at = shop.random.index(count);
        let found = shop.told.accepted.iter().nth(at);
        found.map(|(request, (_, quantity))| (request.clone(), *quantity))
    };
    let Some((request, asked)) = known else { return Ok(()) };
    shop.ask(request, quantity.unwrap_or(asked))
}

/// A reservation of the ledger that `fits`.
fn any(shop: &mut Shop, fits: impl Fn(Life) -> bool) -> Option<ReservationId> {
    let ids = shop.ledger.reservations.iter().filter(|(_, entry)| fits(entry.life));
    let ids: Vec<_> = ids.map(|(id, _)| *id).collect();
    let at = shop.random.index(ids.len());
    ids.get(at).copied()
}

fn settle(
    shop: &mut Shop,
    rates: &Rates,
    settle: impl FnOnce(&mut Shop, ReservationId) -> Result<(), Stop>,
) -> Result<(), Stop> {
    // Mostly what may be settled, sometimes what may not.
    let strict = shop.random.below(4) > 0;
    let Some(id) = any(shop, |life| !strict || life == Life::Reserved) else { return Ok(()) };
    settle(shop, id)?;
    shop.commit(rates.crash)
}

fn operate(shop: &mut Shop, rates: &Rates) -> Result<(), Stop> {
    let id = activity(shop);
    let engine = shop.engine()?;
    let _ = match shop.random.below(6) {
        0 => engine.pause(id, ACTOR),
        1 => engine.unpublish(id, ACTOR),
        2 | 3 => engine.resume(id, ACTOR),
        _ => engine.publish(id, ACTOR),
    };
    shop.commit(rates.crash)
}
