//! What no call of the library leads to, and the layouts for readers of other systems.

use bridge::redis::layouts::Layout;
use bridge::redis::sink::{Bounds, Mirror, Step};
use engine::core::activity::Activity;
use engine::core::command::{Command, Status};
use engine::core::event::{Actor, Body, Figures, Pool, RefundScope, RestoreReason};
use engine::core::ids::{ActivityId, OrderPrefix, ReservationId, UserId};
use engine::core::request::RequestHasher;
use redis::Connection;

use crate::keys::{self, Keys};
use crate::sale::{ACTOR, HOUR_MS, Sale, activity_id};
use crate::support::HASH_KEY;
use crate::valkey::{Valkey, say};

const DAY_MS: u64 = 24 * HOUR_MS;

/// A sale and its mirror in some layout.
struct Stall {
    server: Valkey,
    redis: Connection,
    sale: Sale,
    layout: Layout,
}

impl Stall {
    fn open(layout: Layout) -> Self {
        let server = Valkey::start();
        let redis = server.connect(0);
        Self { server, redis, sale: Sale::open(1, 1), layout }
    }

    /// What happened so far is in Redis; whether the keys were written anew on the way.
    async fn mirror(&mut self) -> bool {
        self.sale.commit();
        let (sale, url) = (self.sale.clone(), self.server.url(0));
        let mut anew = false;
        loop {
            let met = Mirror::meet(&sale, &url, self.layout, Bounds::default()).await;
            let mut mirror = met.unwrap();
            let followed = follow(&mut mirror).await;
            anew |= mirror.was_resynced();
            match followed {
                Ok(()) => return anew,
                Err(error) => assert!(error.is_transient(), "{error}"),
            }
        }
    }

    /// The same keys, written from nothing, as they follow from the state alone.
    async fn anew(&mut self) -> Keys {
        let (sale, url) = (self.sale.clone(), self.server.url(5));
        let () = say(&mut self.server.connect(5), "FLUSHDB");
        let met = Mirror::meet(&sale, &url, self.layout, Bounds::default()).await;
        let mut mirror = met.unwrap();
        follow(&mut mirror).await.unwrap();
        let mut keys = Keys::new();
        for pattern in self.layout.patterns() {
            keys.extend(keys::present(&mut self.server.connect(5), pattern));
        }
        keys
    }

    fn keys(&mut self) -> Keys {
        let mut keys = Keys::new();
        for pattern in self.layout.patterns() {
            keys.extend(keys::present(&mut self.redis, pattern));
        }
        keys
    }

    async fn assert_follows_from_the_state(&mut self) {
        let expected = self.anew().await;
        keys::assert_same(&self.keys(), &expected, "events and state lead to the same keys");
    }

    fn get(&mut self, key: &str) -> Option<String> {
        say(&mut self.redis, &format!("GET {key}"))
    }

    fn ends_ms(&mut self, key: &str) -> u64 {
        say(&mut self.redis, &format!("PEXPIRETIME {key}"))
    }

    fn restore(&self, reservation: ReservationId) {
        let (reason, actor) = (RestoreReason::Timeout, Actor::NONE);
        let restore = Command::Restore { reservation, owner: None, reason, actor };
        assert!(self.sale.command(activity_id(0), restore));
    }

    fn confirm(&self, reservation: ReservationId) {
        let confirm = Command::Confirm { reservation, payment_no: "P1" };
        assert!(self.sale.command(activity_id(0), confirm));
    }

    fn end_ms(&self) -> u64 {
        self.sale.read(activity_id(0), |it| it.terms().end_ms)
    }
}

async fn follow(mirror: &mut Mirror<'_, Sale>) -> Result<(), bridge::redis::MirrorError> {
    while mirror.step().await? != Step::CaughtUp {}
    Ok(())
}

fn reinstate(sale: &Sale, activity: ActivityId, reservation: ReservationId) {
    let (user, quantity, held, version, figures) = sale.read(activity, |it| {
        let slot = it.slot(reservation).unwrap();
        let figures = it.figures().moved(Pool::Available, Pool::Sold, slot.quantity()).unwrap();
        let held = it.held(slot.user()) + slot.quantity();
        (slot.user(), slot.quantity(), held, it.version(), figures)
    });
    let payment_no = "L1";
    let (activity, reservation) = (activity, reservation);
    sale.event(Body::Reinstated {
        activity,
        reservation,
        user,
        quantity,
        held,
        version,
        figures,
        payment_no,
    });
}

#[tokio::test]
async fn a_late_payment_that_is_honoured_brings_the_keys_of_a_paid_one_back() {
    let mut stall = Stall::open(Layout::Flashsale);
    let id = stall.sale.buy(activity_id(0), 7, 2);
    stall.restore(id);
    stall.mirror().await;
    let idem = format!("flashsale:idem:30001:7:{id}");
    assert_eq!(stall.get(&idem), None);
    reinstate(&stall.sale, activity_id(0), id);
    assert!(!stall.mirror().await);
    assert_eq!(stall.get(&idem), Some(id.to_string()));
    assert_eq!(stall.get(&format!("flashsale:reservation:{id}")), None);
    assert_eq!(stall.get("flashsale:count:30001:7").unwrap(), "2");
    assert_eq!(stall.get("flashsale:stock:30001").unwrap(), "38");
    stall.assert_follows_from_the_state().await;
}

#[tokio::test]
async fn a_drained_activity_is_paused_for_its_readers() {
    let mut stall = Stall::open(Layout::Flashsale);
    assert!(stall.sale.command(activity_id(0), Command::Drain { actor: ACTOR }));
    stall.mirror().await;
    assert_eq!(stall.get("flashsale:pause:30001").unwrap(), "1");
    stall.assert_follows_from_the_state().await;
    assert!(stall.sale.command(activity_id(0), Command::Resume { actor: ACTOR }));
    stall.mirror().await;
    assert_eq!(stall.get("flashsale:pause:30001"), None);
}

#[tokio::test]
async fn an_archived_activity_leaves_nothing_that_has_no_end() {
    let mut stall = Stall::open(Layout::Flashsale);
    assert!(stall.sale.command(activity_id(0), Command::Pause { actor: ACTOR }));
    stall.mirror().await;
    assert!(stall.get("flashsale:pause:30001").is_some());
    stall.sale.event(Body::Archived { activity: activity_id(0) });
    assert!(!stall.mirror().await);
    assert_eq!(stall.get("flashsale:pause:30001"), None);
    let own: Vec<String> = say(&mut stall.redis, "HKEYS sluice:mirror");
    assert!(own.is_empty(), "{own:?}");
}

#[tokio::test]
async fn readers_of_flash_sale_find_their_keys() {
    let mut stall = Stall::open(Layout::FlashSale);
    stall.mirror().await;
    let bought = stall.sale.buy(activity_id(0), 7, 2);
    let paid = stall.sale.buy(activity_id(0), 8, 1);
    let cancelled = stall.sale.buy(activity_id(0), 8, 1);
    stall.confirm(paid);
    stall.restore(cancelled);
    assert!(!stall.mirror().await);
    let until = stall.end_ms() + HOUR_MS;
    for (key, value) in [("stock", "37"), ("sold", "1")] {
        let key = format!("flash_sale:goods:{key}:20001");
        assert_eq!(stall.get(&key).unwrap(), value);
        assert_eq!(stall.ends_ms(&key), until);
    }
    let info: std::collections::BTreeMap<String, String> =
        say(&mut stall.redis, "HGETALL flash_sale:goods:info:20001");
    let (start_ms, end_ms) = (stall.end_ms() - HOUR_MS, stall.end_ms());
    let expected = [
        ("GoodsId", "20001".to_owned()),
        ("ActivityId", "30001".to_owned()),
        ("Price", "1999".to_owned()),
        ("MaxBuy", "3".to_owned()),
        ("StartTime", (start_ms / 1000).to_string()),
        ("EndTime", (end_ms / 1000).to_string()),
    ];
    assert_eq!(info, expected.map(|(name, value)| (name.to_owned(), value)).into());
    let order_no = |id| OrderPrefix::new(1).unwrap().order_no(id);
    let members = |stall: &mut Stall, key: &str| -> Vec<String> {
        say(&mut stall.redis, &format!("SMEMBERS {key}"))
    };
    assert_eq!(members(&mut stall, "flash_sale:user:buy:7:20001"), [order_no(bought)]);
    assert_eq!(members(&mut stall, "flash_sale:user:buy:8:20001"), [order_no(paid)]);
    assert_eq!(members(&mut stall, "flash_sale:activity:goods:30001"), ["20001"]);
    for (id, result) in [(bought, "1"), (paid, "1"), (cancelled, "2")] {
        assert_eq!(stall.get(&format!("flash_sale:result:{}", order_no(id))).unwrap(), result);
    }
    stall.assert_follows_from_the_state().await;
}

#[tokio::test]
async fn a_dead_letter_that_is_paid_is_still_one_for_readers_of_flash_sale() {
    let mut stall = Stall::open(Layout::FlashSale);
    stall.mirror().await;
    let (activity, note) = (activity_id(0), "no table holds it");
    let reservation = stall.sale.buy(activity, 7, 1);
    let result = OrderPrefix::new(1).unwrap().order_no(reservation);
    let result = format!("flash_sale:result:{result}");
    stall.sale.event(Body::DeadLettered { activity, reservation, note });
    stall.mirror().await;
    assert_eq!(stall.get(&result).unwrap(), "0");
    stall.confirm(reservation);
    assert!(!stall.mirror().await);
    assert_eq!(stall.get(&result).unwrap(), "0");
    stall.assert_follows_from_the_state().await;
}

#[tokio::test]
async fn what_a_user_of_flash_sale_never_held_goes_when_keys_are_written_anew() {
    let mut stall = Stall::open(Layout::FlashSale);
    let paid = stall.sale.buy(activity_id(0), 7, 1);
    stall.confirm(paid);
    let cancelled = stall.sale.buy(activity_id(0), 8, 1);
    stall.restore(cancelled);
    stall.mirror().await;
    for user in [7, 8, 99] {
        let () = say(&mut stall.redis, &format!("SADD flash_sale:user:buy:{user}:20001 another"));
    }
    let () = say(&mut stall.redis, "DEL sluice:cursor");
    assert!(stall.mirror().await, "the keys are written anew");
    let found: Vec<String> = say(&mut stall.redis, "KEYS flash_sale:user:buy:*");
    assert_eq!(found, ["flash_sale:user:buy:7:20001"], "who holds something has the set");
    let found: Vec<String> = say(&mut stall.redis, "SMEMBERS flash_sale:user:buy:7:20001");
    assert!(
        found.len() == 1 && found[0] != "another",
        "what he holds, and nothing else: {found:?}"
    );
}

#[tokio::test]
async fn what_a_user_of_flash_sale_was_refunded_stays_when_keys_are_written_anew() {
    let mut stall = Stall::open(Layout::FlashSale);
    let (activity, request_id) = (activity_id(0), "theirs");
    let reservation = ReservationId::new(77).unwrap();
    let user = UserId::new(9).unwrap();
    let Figures { available, locked, sold } = stall.sale.read(activity, Activity::figures);
    let figures = Figures { available: available - 1, locked, sold: sold + 1 };
    let at_ms = stall.sale.at_ms();
    stall.sale.event(Body::ReservationAdopted {
        activity,
        reservation,
        old_id: 77,
        order_no: "T-77",
        status: Status::Confirmed,
        user,
        quantity: 1,
        created_ms: at_ms,
        updated_ms: at_ms,
        held: 1,
        figures,
        request_id,
        request_hash: RequestHasher::new(&HASH_KEY).hash(request_id),
        payment_no: "P-77",
    });
    stall.sale.event(Body::RefundRequested {
        activity,
        actor: ACTOR,
        reservation,
        user,
        refund_no: "F-77",
        scope: RefundScope::Order,
        restock: false,
        free_limit: true,
        channel: "",
        payment_no: "",
        transaction: "",
        amount: 1_999,
        note: "",
    });
    let version = stall.sale.read(activity, Activity::version);
    stall.sale.event(Body::RefundSettled {
        activity,
        reservation,
        user,
        held: 0,
        version,
        figures,
        refund_no: "F-77",
    });
    stall.mirror().await;
    let () = say(&mut stall.redis, "DEL sluice:cursor");
    assert!(stall.mirror().await, "the keys are written anew");
    let found: Vec<String> = say(&mut stall.redis, "SMEMBERS flash_sale:user:buy:9:20001");
    assert_eq!(found, ["T-77"], "who holds nothing any more, and bought an adopted one");
}

#[tokio::test]
async fn readers_of_seckill_find_their_keys() {
    let mut stall = Stall::open(Layout::Seckill);
    stall.mirror().await;
    stall.sale.buy(activity_id(0), 7, 2);
    let cancelled = stall.sale.buy(activity_id(0), 8, 1);
    stall.mirror().await;
    assert_eq!(stall.get("seckill:user:20001:8").unwrap(), "1");
    stall.restore(cancelled);
    let (actor, key) = (ACTOR, "blacklist/user/9");
    let expires_ms = stall.end_ms();
    stall.sale.control(Body::ControlSet { actor, key, value: b"{}", expires_ms });
    assert!(!stall.mirror().await);
    assert_eq!(stall.get("seckill:stock:20001").unwrap(), "38");
    assert_eq!(stall.get("seckill:stock:total:20001").unwrap(), "40");
    assert_eq!(stall.get("seckill:user:20001:7").unwrap(), "1");
    let end_ms = stall.end_ms();
    assert_eq!(stall.ends_ms("seckill:user:20001:7"), end_ms + DAY_MS);
    assert_eq!(stall.get("seckill:user:20001:8"), None);
    assert_eq!(stall.get("risk:blacklist:user:9").unwrap(), "1");
    assert_eq!(stall.ends_ms("risk:blacklist:user:9"), expires_ms);
    let session: std::collections::BTreeMap<String, String> =
        say(&mut stall.redis, "HGETALL seckill:session:30001");
    let expected = [
        ("startTime", (end_ms - HOUR_MS).to_string()),
        ("endTime", end_ms.to_string()),
        ("status", "ONGOING".to_owned()),
        ("limitPerUser", "3".to_owned()),
    ];
    assert_eq!(session, expected.map(|(name, value)| (name.to_owned(), value)).into());
    stall.assert_follows_from_the_state().await;
    stall.sale.control(Body::ControlCleared { actor, key });
    stall.mirror().await;
    assert_eq!(stall.get("risk:blacklist:user:9"), None);
}

#[tokio::test]
async fn a_random_history_leads_to_the_same_keys_as_its_state_in_every_layout() {
    for layout in [Layout::Flashsale, Layout::FlashSale, Layout::Seckill] {
        for seed in 1..=4 {
            let mut stall = Stall::open(layout);
            stall.sale = Sale::open(seed, 3);
            stall.mirror().await;
            for _ in 0..3 {
                stall.sale.run(120);
                stall.mirror().await;
                stall.assert_follows_from_the_state().await;
            }
        }
    }
}

#[tokio::test]
async fn the_next_sale_of_a_sku_takes_its_keys_over() {
    for layout in [Layout::FlashSale, Layout::Seckill] {
        let mut stall = Stall::open(layout);
        stall.mirror().await;
        stall.sale.buy(activity_id(0), 7, 2);
        let next = stall.sale.create(20_001, 5);
        stall.mirror().await;
        let stock = match layout {
            Layout::FlashSale => "flash_sale:goods:stock:20001",
            _ => "seckill:stock:20001",
        };
        assert_eq!(stall.get(stock).unwrap(), "38", "what is off sale waits");
        assert!(stall.sale.command(activity_id(0), Command::Unpublish { actor: ACTOR }));
        assert!(stall.sale.command(next, Command::Publish { actor: ACTOR }));
        assert!(stall.mirror().await, "keys of the first are strays now");
        assert_eq!(stall.get(stock).unwrap(), "5");
        assert_eq!(stall.get("seckill:user:20001:7"), None);
        stall.assert_follows_from_the_state().await;
        // A give-back of the first touches none of the second's keys.
        let first = stall.sale.read(activity_id(0), |it| {
            let position = engine::core::ids::Position::new(1).unwrap();
            ReservationId::compose(it.ordinal(), position)
        });
        assert!(stall.sale.read(activity_id(0), |it| {
            it.slot(first).is_some_and(|slot| slot.status() == Status::Reserved)
        }));
        stall.restore(first);
        stall.mirror().await;
        assert_eq!(stall.get(stock).unwrap(), "5");
        let held = stall.sale.read(activity_id(0), |it| it.held(UserId::new(7).unwrap()));
        assert_eq!(held, 0);
    }
}
