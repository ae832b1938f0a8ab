//! `orders.split`: orders over several tables, by their buyers.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use bridge::follow::{Follower, Step};
use bridge::sql::queries::{Queries, Window};
use bridge::sql::schema::SchemaError;
use bridge::sql::sink::OrderOptions;
use bridge::sql::split::Split;
use engine::core::ids::UserId;

use support::MemoryHost;
use support::check::assert_projected;
use support::history::{History, activity_id};
use support::place::Place;

on_each_database!(
    orders_lie_by_user_and_lists_and_counts_go_across,
    the_number_is_free_until_the_first_order_and_fixed_from_then_on,
    a_split_that_a_crash_cut_off_is_finished_by_the_next_start,
    the_parts_have_the_rules_of_the_whole,
);

fn split(tables: u16) -> Split {
    Split::new(tables).unwrap()
}

async fn catch_up(host: &MemoryHost, place: &Place, split: Split) {
    place.database().prepare(split).await.unwrap();
    let options = OrderOptions { split, require_address: false };
    let mut follower = Follower::meet(host, place.database().store(), options).await.unwrap();
    follower = follower.with_records_max(40);
    while follower.step().await.unwrap() != Step::CaughtUp {}
}

async fn orders_lie_by_user_and_lists_and_counts_go_across(place: Place) {
    let host = MemoryHost::new();
    let mut history = History::new(host.clone(), 11);
    for _ in 0..4 {
        history.run(150);
        catch_up(&host, &place, split(3)).await;
        assert_projected(&place, &history).await;
    }
    let mut all = 0;
    for part in 0..3 {
        let astray = format!("SELECT COUNT(*) FROM orders_{part} WHERE user_id % 3 <> {part}");
        assert_eq!(place.number(&astray).await, 0);
        let of_part = place.number(&format!("SELECT COUNT(*) FROM orders_{part}")).await;
        let items = place.number(&format!("SELECT COUNT(*) FROM order_items_{part}")).await;
        assert!(of_part > 0 && of_part == items);
        all += of_part;
    }
    let queries = Queries::open(&place.url(), split(3)).unwrap();
    let mut listed = 0;
    for user in 1..=30 {
        let user = UserId::new(user).unwrap();
        let page =
            queries.orders_of(user, None, Window { offset: 0, count: 100 }, &[]).await.unwrap();
        for order in &page.orders {
            let found = queries.order(user, &order.order_no).await.unwrap();
            assert_eq!(found.as_ref(), Some(order));
            let stranger = UserId::new(user.get() + 1).unwrap();
            assert_eq!(queries.order(stranger, &order.order_no).await.unwrap(), None);
        }
        listed += page.total;
    }
    assert_eq!(listed, all);
    let mut counted = 0;
    for index in 0..support::history::ACTIVITIES {
        let counts = queries.order_counts(activity_id(index)).await.unwrap();
        counted += counts.iter().map(|(_, count)| count).sum::<u64>();
    }
    assert_eq!(counted, all);
}

async fn the_number_is_free_until_the_first_order_and_fixed_from_then_on(place: Place) {
    let database = place.database();
    for tables in [4, 2, 1, 3] {
        database.prepare(split(tables)).await.unwrap();
        database.prepare(split(tables)).await.unwrap();
    }
    let host = MemoryHost::new();
    let mut history = History::new(host.clone(), 12);
    history.run(50);
    catch_up(&host, &place, split(3)).await;
    for tables in [1, 2, 4] {
        // By a look, too, before a start has written anything.
        let looked = database.look(split(tables)).await.map(drop);
        for refused in [looked, database.prepare(split(tables)).await] {
            let error = refused.unwrap_err();
            let SchemaError::SplitFixed { present: 3, wanted } = error else { panic!("{error}") };
            assert!(wanted == tables && !error.is_transient());
            assert!(!error.to_string().contains('\n'));
        }
    }
    catch_up(&host, &place, split(3)).await;
    assert_projected(&place, &history).await;
}

async fn a_split_that_a_crash_cut_off_is_finished_by_the_next_start(place: Place) {
    let database = place.database();
    database.prepare(split(3)).await.unwrap();
    place.execute("DROP VIEW orders").await;
    place.execute("DROP TABLE order_items_1").await;
    database.prepare(split(3)).await.unwrap();
    place.execute("DROP VIEW order_items").await;
    database.prepare(split(2)).await.unwrap();
    let host = MemoryHost::new();
    let mut history = History::new(host.clone(), 13);
    history.run(80);
    catch_up(&host, &place, split(2)).await;
    assert_projected(&place, &history).await;
}

async fn the_parts_have_the_rules_of_the_whole(place: Place) {
    let host = MemoryHost::new();
    let mut history = History::new(host.clone(), 14);
    history.run(80);
    catch_up(&host, &place, split(2)).await;
    let columns = "user_id, order_type, status, activity_id, purchase_slot, user_activity_key, \
                   total_amount, pay_amount, expire_at, created_at, updated_at";
    for part in 0..2 {
        let taken = format!("FROM orders_{part} WHERE user_activity_key IS NOT NULL LIMIT 1");
        assert_eq!(place.rows(&format!("SELECT user_id {taken}")).await.len(), 1);
        for sql in [
            format!("UPDATE orders_{part} SET status = 'lost'"),
            format!("UPDATE order_items_{part} SET amount = amount + 1"),
            format!(
                "INSERT INTO orders_{part} (order_no, {columns}) SELECT 'x', {columns} {taken}"
            ),
        ] {
            place.try_execute(&sql).await.expect_err(&sql);
        }
    }
}
