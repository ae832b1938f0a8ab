//! What is taken over from elsewhere: once, with its units, under ids that nobody else has.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::core::command::Refusal;
use engine::core::control::keys;
use engine::core::decide::{AdoptActivity, AdoptReservation};
use engine::core::event::{
    Actor, Body, DeadLetterPolicy, Definition, Event, Figures, Front, LatePayment, RestoreReason,
    Status,
};
use engine::core::ids::{ActivityId, Ordinal, ReservationId, SkuId, UserId};
use engine::core::limits::TIME_MS_MAX;
use engine::core::request::RequestHasher;
use engine::{Adopted, Engine, EngineOptions, FactError, OldId, Pending, Purchase, Refused};
use proptest::prelude::*;
use wal::device::sim::{Image, SimDevice};

const ACTOR: Actor<'static> = Actor { name: "admin", request_id: "r" };
const KEY: [u8; 16] = [9; 16];
const ID: ActivityId = ActivityId::new(30_001).unwrap();

const DEFINITION: Definition<'static> = Definition {
    sku: SkuId::new(20_001).unwrap(),
    title: "phone",
    price: 100,
    per_user_limit: 2,
    start_ms: 1,
    end_ms: TIME_MS_MAX,
    payment_ttl_ms: 600_000,
    late_payment: LatePayment::ReinstateOrRefund,
    dead_letter: DeadLetterPolicy::Rollback,
    publish_at_ms: 0,
};

const ACTIVITY: AdoptActivity<'static> =
    AdoptActivity { version: 3, available: 10, sold: 2, on_sale: true, definition: DEFINITION };

struct Shop {
    engine: Engine,
    device: SimDevice,
}

impl Shop {
    fn open(image: Image) -> Self {
        let device = SimDevice::new(image);
        let mut options = EngineOptions::new("sim");
        options.on_fatal = Box::new(|_| ());
        options.threads = false;
        options.segment_bytes = 2 << 20;
        options.frame_bytes_max = 256 << 10;
        options.request_hash_key = Some(KEY);
        let (engine, _) = Engine::open_on(Arc::new(device.clone()), options).unwrap();
        Self { engine, device }
    }

    fn adopting() -> Self {
        let shop = Self::open(Image::empty(1));
        let told = shop.wait(shop.engine.adopt_activity(ID, None, &ACTIVITY).unwrap());
        assert_eq!(told, Ok(Adopted { id: ID, known: false }));
        shop
    }

    fn reopened(self) -> Self {
        let digest = self.engine.digest();
        self.engine.close().unwrap();
        drop(self.engine);
        let image = self.device.image();
        let shop = Self::open(image);
        assert_eq!(shop.engine.digest(), digest);
        shop
    }

    fn wait<T>(&self, pending: Pending<T>) -> T {
        self.engine.commit_until(pending).unwrap()
    }

    fn adopt(&self, old: OldId, it: &AdoptReservation<'_>) -> Result<(u64, bool), Refusal> {
        let told = self.wait(self.engine.adopt_reservation(ID, old, it).unwrap());
        told.map(|it| (it.id.get(), it.known))
    }

    fn figures(&self) -> Figures {
        self.engine.activity(ID).unwrap().figures
    }

    fn held(&self, user: u64) -> u32 {
        self.wait(self.engine.held(ID, UserId::new(user).unwrap()).unwrap())
    }

    fn buy(&self, user: u64, request_id: &str) -> Result<Purchase, Refused> {
        let user = UserId::new(user).unwrap();
        let bought = self.engine.reserve(ID, user, request_id, 1, Front::Http).unwrap();
        self.wait(bought)
    }
}

fn units(available: u32, locked: u32, sold: u32) -> Figures {
    Figures { available, locked, sold }
}

fn reservation(user: u64, request_id: &str, status: Status) -> AdoptReservation<'_> {
    AdoptReservation {
        old_id: 0,
        order_no: "",
        status,
        user: UserId::new(user).unwrap(),
        quantity: 1,
        created_ms: 1_000,
        updated_ms: 2_000,
        request_id,
        request_hash: RequestHasher::new(&KEY).hash(request_id),
        payment_no: if status == Status::Confirmed { "p1" } else { "" },
    }
}

#[test]
fn what_is_brought_twice_is_taken_over_once() {
    let shop = Shop::adopting();
    let numbered = AdoptReservation { old_id: 7, ..reservation(1, "a", Status::Reserved) };
    let huge = AdoptReservation { old_id: 1 << 40, ..reservation(2, "b", Status::Confirmed) };
    let named = AdoptReservation { order_no: "OLD-3", ..reservation(3, "c", Status::Reserved) };
    let mut shop = shop;
    for known in [false, true, true] {
        assert_eq!(shop.adopt(OldId::Older(7), &numbered), Ok((7, known)));
        assert_eq!(shop.adopt(OldId::Older(1 << 40), &huge), Ok((u64::from(u32::MAX), known)));
        assert_eq!(shop.adopt(OldId::None, &named), Ok((u64::from(u32::MAX) - 1, known)));
        let again = shop.wait(shop.engine.adopt_activity(ID, None, &ACTIVITY).unwrap());
        assert_eq!(again, Ok(Adopted { id: ID, known: true }));
        assert_eq!(shop.figures(), units(7, 2, 3));
        assert_eq!([1, 2, 3].map(|user| shop.held(user)), [1, 1, 1]);
        shop = shop.reopened();
    }
    let order = shop.engine.reservation(ReservationId::new(u64::from(u32::MAX) - 1).unwrap());
    assert_eq!(shop.wait(order.unwrap()).unwrap().order_no, "OLD-3");
}

#[test]
fn an_adopted_request_answers_as_if_it_had_been_made_here() {
    let shop = Shop::adopting();
    let id = ReservationId::new(5 << 32 | 77).unwrap();
    // Only the hash is known: the log that held the id is gone.
    let known_by_hash =
        AdoptReservation { request_id: "", ..reservation(1, "a", Status::Reserved) };
    assert_eq!(shop.adopt(OldId::Sluice(id), &known_by_hash), Ok((id.get(), false)));
    assert_eq!(shop.adopt(OldId::Sluice(id), &known_by_hash), Ok((id.get(), true)));
    let shop = shop.reopened();
    let replayed = shop.buy(1, "a").unwrap();
    assert!(replayed.replayed);
    assert_eq!(replayed.reservation.reservation.id, id);
    let fresh = shop.buy(1, "b").unwrap();
    assert_eq!(fresh.reservation.reservation.id.ordinal(), Ordinal::new(1).unwrap());
    assert!(matches!(shop.buy(1, "c"), Err(it) if it.refusal == Refusal::LimitReached));
    assert_eq!(shop.figures(), units(8, 2, 2));
}

#[test]
fn no_unit_is_given_twice_and_no_id_that_another_gives() {
    let shop = Shop::adopting();
    let it = reservation(1, "a", Status::Reserved);
    let refused = |old, it: &AdoptReservation<'_>| shop.adopt(old, it).unwrap_err();
    assert_eq!(
        refused(OldId::Older(1), &AdoptReservation { quantity: 11, ..it }),
        Refusal::SoldOut
    );
    let own = OldId::Sluice(ReservationId::new(1 << 32 | 1).unwrap());
    assert!(matches!(refused(own, &it), Refusal::Invalid(_)));
    assert!(matches!(refused(OldId::None, &it), Refusal::Invalid(_)));
    let ours = AdoptReservation { order_no: "100000004294967297", ..it };
    assert!(matches!(refused(OldId::None, &ours), Refusal::Invalid(_)));
    let long = "9".repeat(63);
    let long = AdoptReservation { order_no: &long, ..it };
    assert!(matches!(refused(OldId::Older(3), &long), Refusal::Invalid(_)));
    shop.buy(4, "a").unwrap();
    let repeated = reservation(4, "a", Status::Reserved);
    assert_eq!(refused(OldId::Older(4), &repeated), Refusal::RequestIdReused);
    let elsewhere =
        shop.engine.adopt_reservation(ActivityId::new(9).unwrap(), OldId::Older(5), &it);
    assert_eq!(shop.wait(elsewhere.unwrap()), Err(Refusal::UnknownActivity));
    assert_eq!(shop.figures(), units(9, 1, 2));
}

#[test]
fn an_order_number_is_one_reservations_in_all_activities() {
    let shop = Shop::adopting();
    let other = ActivityId::new(9).unwrap();
    shop.wait(shop.engine.adopt_activity(other, None, &ACTIVITY).unwrap()).unwrap();
    let it = AdoptReservation {
        old_id: 1 << 40,
        order_no: "OLD-1",
        ..reservation(1, "a", Status::Reserved)
    };
    let (id, _) = shop.adopt(OldId::Older(1 << 40), &it).unwrap();
    let id = ReservationId::new(id).unwrap();
    let twin = AdoptReservation { old_id: 8, ..it };
    assert!(matches!(shop.adopt(OldId::Older(8), &twin), Err(Refusal::Invalid(_))));
    let elsewhere = shop.engine.adopt_reservation(other, OldId::None, &it).unwrap();
    assert!(matches!(shop.wait(elsewhere), Err(Refusal::Invalid(_))));
    let shop = shop.reopened();
    assert_eq!(shop.engine.adopted_as_number(1 << 40), Some(id));
    assert_eq!(shop.engine.adopted_as_number(8), None);
    assert_eq!(shop.adopt(OldId::None, &it), Ok((id.get(), true)), "known by its order number");
    assert_eq!(shop.engine.activity(other).unwrap().figures, units(10, 0, 2));
}

#[test]
fn facts_move_no_units_and_must_fit() {
    let shop = Shop::adopting();
    let it = AdoptReservation { old_id: 7, ..reservation(1, "a", Status::Reserved) };
    shop.adopt(OldId::Older(7), &it).unwrap();
    let opened = |attempt| Event {
        at_ms: 1_500,
        body: Body::PaymentOpened {
            activity: ID,
            reservation: ReservationId::new(7).unwrap(),
            attempt,
            channel: "mock",
            amount: 100,
            expires_ms: 9_000,
        },
    };
    let take = |event: &Event<'_>| shop.wait(shop.engine.adopt_fact(ID, event).unwrap());
    assert_eq!(take(&opened(2)), Ok(()));
    assert!(matches!(take(&opened(2)), Err(FactError::Unfit(_))));
    let published = Event { at_ms: 1, body: Body::Published { activity: ID, actor: ACTOR } };
    assert_eq!(take(&published), Err(FactError::Kind));
    let shop = shop.reopened();
    assert_eq!(shop.figures(), units(9, 1, 2));
}

#[test]
fn ordinals_of_what_comes_later_are_above_all_that_were_ever_used() {
    let shop = Shop::open(Image::empty(1));
    let floor = format!("{}{}", keys::ORDINALS_PREFIX, 500);
    let set = shop.engine.control_set(ACTOR, &floor, b"", 0).unwrap();
    shop.engine.commit().unwrap();
    set.wait().unwrap().unwrap();
    shop.wait(shop.engine.adopt_activity(ID, None, &ACTIVITY).unwrap()).unwrap();
    let archived = AdoptActivity { available: 0, sold: 3, ..ACTIVITY };
    let gone = ActivityId::new(12).unwrap();
    let kept = Ordinal::new(4);
    shop.wait(shop.engine.adopt_activity(gone, kept, &archived).unwrap()).unwrap();
    assert!(shop.wait(shop.engine.adopt_archived(gone).unwrap()));
    let shop = shop.reopened();
    assert_eq!(shop.engine.activity(ID).unwrap().ordinal, Ordinal::new(500).unwrap());
    assert_eq!(shop.engine.archived(gone).map(|it| it.ordinal), kept);
    let again = shop.wait(shop.engine.adopt_activity(gone, kept, &archived).unwrap());
    assert_eq!(again, Err(Refusal::Archived));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..<_>::default() })]

    /// However often and in whatever order reservations are brought, in however many starts, the
    /// units are those of the distinct ones that fit, and each keeps the id it was first given.
    #[test]
    fn adoption_is_idempotent_and_exact(
        brought in prop::collection::vec((0u64..12, 0u8..3, any::<bool>()), 1..40),
    ) {
        let mut shop = Shop::adopting();
        let mut ids = BTreeMap::new();
        let mut expected = units(10, 0, 2);
        for (number, kind, reopen) in brought {
            let status = match number % 3 {
                0 => Status::Reserved,
                1 => Status::Confirmed,
                _ => Status::RolledBack(RestoreReason::Timeout),
            };
            let (request, order) = (format!("r{number}"), format!("OLD-{number}"));
            let it = reservation(number + 1, &request, status);
            let quantity = 1 + u32::try_from(number).unwrap() % 3;
            let it = AdoptReservation { quantity, order_no: &order, ..it };
            // Found by its number or by its order number, whichever it is brought with.
            let (old, old_id) = match kind {
                0 => (OldId::None, 0),
                _ if number % 2 == 0 => (OldId::Older(number + 1), number + 1),
                _ => (OldId::Older((number + 1) << 33), (number + 1) << 33),
            };
            match shop.adopt(old, &AdoptReservation { old_id, ..it }) {
                Ok((id, known)) => {
                    prop_assert_eq!(known, ids.contains_key(&number));
                    prop_assert_eq!(*ids.entry(number).or_insert(id), id);
                    let moved = if known { 0 } else { quantity };
                    match status {
                        Status::Reserved => expected.locked += moved,
                        Status::Confirmed => expected.sold += moved,
                        Status::RolledBack(_) => continue,
                    }
                    expected.available -= moved;
                }
                Err(refusal) => {
                    prop_assert_eq!(refusal, Refusal::SoldOut);
                    prop_assert!(expected.available < quantity);
                }
            }
            if reopen {
                shop = shop.reopened();
            }
            prop_assert_eq!(shop.figures(), expected);
        }
        let distinct: std::collections::BTreeSet<_> = ids.values().collect();
        prop_assert_eq!(distinct.len(), ids.len());
    }
}
