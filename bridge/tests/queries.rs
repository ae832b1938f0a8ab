//! What the server writes beside the projection and reads from it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use bridge::follow::{Follower, Step};
use bridge::sql::accounts::{Accounts, Address, Existing, NewUser, Role, Sku};
use bridge::sql::queries::{OrderStatus, Queries, Window};
use bridge::sql::sink::OrderOptions;
use bridge::sql::split::Split;
use bridge::sql::store::StoreError;
use engine::core::command::{Command, Reserve};
use engine::core::event::{Actor, Front, RestoreReason};
use engine::core::ids::{SkuId, UserId};
use engine::core::request::RequestHasher;

use support::history::{DEFINITION, History, activity_id};
use support::place::Place;
use support::{HASH_KEY, MemoryHost};

on_each_database!(
    a_login_is_found_by_its_name_byte_by_byte_and_takes_a_new_password,
    hostile_texts_come_back_as_they_went_in_and_stay_different,
    orders_are_listed_newest_first_by_status_and_page_and_counted,
    the_catalogue_takes_new_titles_and_accounts_are_made_once,
);

/// Texts that look alike, break quoting, end strings early or need four bytes.
const HOSTILE: [&str; 12] = [
    "id",
    "ID",
    "id ",
    " id",
    "id\0",
    "id\0x",
    "id'; DROP TABLE orders; --",
    "é",
    "e\u{301}",
    "É",
    "👟限量",
    "\"%_\\?1",
];

fn user(id: u64) -> UserId {
    UserId::new(id).unwrap()
}

async fn catch_up(host: &MemoryHost, place: &Place) {
    let mut follower =
        Follower::meet(host, place.database().store(), OrderOptions::default()).await.unwrap();
    while follower.step().await.unwrap() != Step::CaughtUp {}
}

fn reserve(history: &mut History, index: u64, buyer: u64, request_id: &str) {
    let request_hash = RequestHasher::new(&HASH_KEY).hash(request_id);
    let (user, front) = (user(buyer), Front::Http);
    let reserve = Reserve { user, request_id, request_hash, quantity: 1, front };
    history.command(index, Command::Reserve(reserve));
}

fn address(text: &str) -> Address {
    let part = |name: &str| format!("{name} {text}");
    Address {
        receiver: part("receiver"),
        phone: part("phone"),
        province: part("province"),
        city: part("city"),
        district: part("district"),
        detail: part("detail"),
    }
}

fn new_user(id: u64, username: &str, default_address: Option<Address>) -> NewUser {
    let (username, password_hash) = (username.to_owned(), None);
    NewUser { id: user(id), username, password_hash, role: Role::User, default_address }
}

async fn a_login_is_found_by_its_name_byte_by_byte_and_takes_a_new_password(place: Place) {
    let host = MemoryHost::new();
    catch_up(&host, &place).await;
    let accounts = Accounts::open(&place.url()).unwrap();
    let queries = Queries::open(&place.url(), Split::ONE).unwrap();
    let with_hash = |id, name: &str| NewUser {
        password_hash: Some(format!("hash of {id}")),
        role: Role::Admin,
        ..new_user(id, name, None)
    };
    let users: Vec<_> = (1..).zip(HOSTILE).map(|(id, name)| with_hash(id, name)).collect();
    accounts.create_users(None, &users, Existing::Refuse, 1).await.unwrap();
    accounts.create_users(None, &[new_user(90, "plain", None)], Existing::Refuse, 1).await.unwrap();
    for (id, name) in (1..).zip(HOSTILE) {
        let found = queries.login(name).await.unwrap().unwrap();
        assert_eq!((found.user, found.role), (user(id), Role::Admin), "{name:?}");
        assert_eq!(found.password_hash, Some(format!("hash of {id}")));
    }
    let plain = queries.login("plain").await.unwrap().unwrap();
    assert_eq!((plain.role, plain.password_hash), (Role::User, None));
    for name in ["", "Plain", "plain ", "' OR '1'='1"] {
        assert_eq!(queries.login(name).await.unwrap(), None, "{name:?}");
    }
    assert!(accounts.set_password(None, user(90), "another", 2).await.unwrap());
    assert!(!accounts.set_password(None, user(91), "another", 2).await.unwrap());
    let changed = queries.login("plain").await.unwrap().unwrap();
    assert_eq!(changed.password_hash.as_deref(), Some("another"));
}

async fn hostile_texts_come_back_as_they_went_in_and_stay_different(place: Place) {
    let host = MemoryHost::new();
    let mut history = History::new(host.clone(), 1);
    catch_up(&host, &place).await;
    let accounts = Accounts::open(&place.url()).unwrap();
    let users: Vec<_> =
        (1..).zip(HOSTILE).map(|(id, text)| new_user(id, text, Some(address(text)))).collect();
    assert_eq!(
        accounts.create_users(None, &users, Existing::Refuse, 5).await.unwrap(),
        HOSTILE.len()
    );
    for (buyer, text) in (1..).zip(HOSTILE) {
        reserve(&mut history, 0, buyer, text);
    }
    // One buyer, three ids that a careless collation would take for one.
    for text in ["a", "A", "a "] {
        reserve(&mut history, 1, 77, text);
    }
    history.end_frame();
    assert_eq!(history.reservations.len(), HOSTILE.len() + 3);
    catch_up(&host, &place).await;

    let queries = Queries::open(&place.url(), Split::ONE).unwrap();
    for (buyer, text) in (1..).zip(HOSTILE) {
        let page = Window { offset: 0, count: 10 };
        let orders = queries.orders_of(user(buyer), None, page, &[]).await.unwrap();
        assert_eq!((orders.total, orders.orders.len()), (1, 1));
        assert_eq!(orders.orders[0].address, Some(address(text)));
        assert_eq!(orders.orders[0].items[0].title, DEFINITION.title);
    }
    let without =
        queries.orders_of(user(77), None, Window { offset: 0, count: 2 }, &[]).await.unwrap();
    assert_eq!((without.total, without.orders.len()), (3, 2));
    assert_eq!(without.orders[0].address, None);
}

async fn orders_are_listed_newest_first_by_status_and_page_and_counted(place: Place) {
    let host = MemoryHost::new();
    let mut history = History::new(host.clone(), 1);
    for request in ["1", "2", "3"] {
        reserve(&mut history, 0, 9, request);
    }
    let (_, paid) = history.reservations[0];
    let (_, cancelled) = history.reservations[1];
    history.command(0, Command::Confirm { reservation: paid, payment_no: "P1" });
    let (reason, actor) = (RestoreReason::Cancelled, Actor::NONE);
    history.command(0, Command::Restore { reservation: cancelled, owner: None, reason, actor });
    history.end_frame();
    catch_up(&host, &place).await;

    let queries = Queries::open(&place.url(), Split::ONE).unwrap();
    queries.ping().await.unwrap();
    let all = queries.orders_of(user(9), None, Window { offset: 0, count: 2 }, &[]).await.unwrap();
    let second =
        queries.orders_of(user(9), None, Window { offset: 2, count: 2 }, &[]).await.unwrap();
    assert_eq!((all.total, all.orders.len(), second.orders.len()), (3, 2, 1));
    let mut numbers: Vec<_> =
        all.orders.iter().chain(&second.orders).map(|order| order.order_no.clone()).collect();
    assert!(numbers.is_sorted_by(|left, right| left > right), "{numbers:?}");
    numbers.dedup();
    assert_eq!(numbers.len(), 3);

    let page = Window { offset: 0, count: 10 };
    let paid_orders =
        queries.orders_of(user(9), Some(OrderStatus::Paid), page, &[]).await.unwrap().orders;
    assert_eq!(paid_orders.len(), 1);
    let order = queries.order(user(9), &paid_orders[0].order_no).await.unwrap().unwrap();
    assert_eq!(order, paid_orders[0]);
    assert_eq!((order.reservation_id, order.payment_no.as_deref()), (paid.get(), Some("P1")));
    assert_eq!((order.items.len(), order.total_amount), (1, DEFINITION.price));
    assert_eq!(order.expire_ms, order.created_ms + DEFINITION.payment_ttl_ms);
    assert_eq!(queries.order(user(9), "100000000000000000").await.unwrap(), None);
    let counts = queries.order_counts(activity_id(0)).await.unwrap();
    let expected =
        [(OrderStatus::Cancelled, 1), (OrderStatus::Paid, 1), (OrderStatus::PendingPayment, 1)];
    assert_eq!(counts, expected);
}

async fn the_catalogue_takes_new_titles_and_accounts_are_made_once(place: Place) {
    let host = MemoryHost::new();
    catch_up(&host, &place).await;
    let accounts = Accounts::open(&place.url()).unwrap();
    let queries = Queries::open(&place.url(), Split::ONE).unwrap();
    let sku = |id, title: &str, price| {
        let (id, title) = (SkuId::new(id).unwrap(), title.to_owned());
        Sku { id, title, price }
    };
    let (one, two) = (sku(1, "one", Some(5)), sku(2, "two", None));
    accounts.upsert_skus(None, &[one.clone(), two.clone()], 7).await.unwrap();
    let renamed = sku(2, "zwei", Some(6));
    accounts.upsert_skus(None, std::slice::from_ref(&renamed), 8).await.unwrap();
    let ids = [renamed.id, one.id, SkuId::new(3).unwrap()];
    assert_eq!(queries.skus(&ids).await.unwrap(), [one, renamed]);

    let users: Vec<_> = (1..=700).map(|id| new_user(id, &format!("user-{id}"), None)).collect();
    assert_eq!(accounts.create_users(None, &users[..500], Existing::Refuse, 1).await.unwrap(), 500);
    let again = accounts.create_users(None, &users[499..], Existing::Refuse, 2).await.unwrap_err();
    let StoreError::Duplicate { row, .. } = &again else { panic!("{again}") };
    assert_eq!(row, "users.id = 500");
    assert_eq!(accounts.create_users(None, &users, Existing::Keep, 2).await.unwrap(), 200);
    let namesake = new_user(701, "user-1", None);
    let taken = accounts.create_users(None, &[namesake], Existing::Keep, 2).await.unwrap_err();
    assert!(matches!(taken, StoreError::Duplicate { .. }), "{taken}");
}

#[test]
fn what_the_server_awaits_may_move_between_threads() {
    fn assert_send<T: Send>(_: T) {}
    let accounts = Accounts::open("sqlite:x.db").unwrap();
    assert_send(accounts.create_users(None, &[], Existing::Keep, 0));
    assert_send(accounts.upsert_skus(None, &[], 0));
}
