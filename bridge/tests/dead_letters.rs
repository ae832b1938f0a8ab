//! What no order can hold becomes a dead letter; everything behind it goes on.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use bridge::follow::{FollowError, Follower, Step};
use bridge::sql::accounts::{Accounts, Address, Existing, NewUser, Role};
use bridge::sql::dead_letters::State;
use bridge::sql::queries::{Queries, Window};
use bridge::sql::sink::OrderOptions;
use bridge::sql::split::Split;
use engine::core::command::{Command, Reserve};
use engine::core::event::{Actor, Body, DeadLetterResolution, Front, RestoreReason};
use engine::core::ids::{ReservationId, UserId};
use engine::core::request::RequestHasher;

use support::check::assert_projected;
use support::faults::{FAULTS, Plan, SharedPlan};
use support::history::{ACTOR, DEFINITION, History, activity_id};
use support::place::Place;
use support::{HASH_KEY, MemoryHost};

on_each_database!(
    a_poison_row_becomes_a_dead_letter_and_the_rows_around_it_orders,
    a_value_that_its_column_refuses_is_one_dead_letter,
    a_row_refused_again_is_open_again_and_a_retry_that_passes_makes_the_order,
    a_dead_letter_paid_meanwhile_becomes_a_paid_order,
    buyers_over_http_need_an_address_where_the_shop_says_so,
    an_order_made_before_the_logs_word_came_is_withdrawn,
    whatever_fails_beside_a_poison_row_nothing_is_lost_or_doubled,
    an_engine_that_is_busy_is_asked_again_before_anything_is_written,
    a_reservation_whose_own_row_is_refused_is_a_dead_letter_alone,
    a_filling_goes_over_a_dead_letter_that_stands_alone,
);

const REQUIRED: OrderOptions = OrderOptions { require_address: true, ..DEFAULT };
const DEFAULT: OrderOptions = OrderOptions { split: Split::ONE, require_address: false };

async fn catch_up(
    host: &MemoryHost,
    place: &Place,
    options: OrderOptions,
) -> Result<(), FollowError> {
    let mut follower = Follower::meet(host, place.database().store(), options).await?;
    while follower.step().await? != Step::CaughtUp {}
    Ok(())
}

fn buy(history: &mut History, index: u64, buyer: u64, front: Front) -> ReservationId {
    let request_id = format!("{buyer}-{}", history.reservations.len());
    let (user, request_id) = (UserId::new(buyer).unwrap(), request_id.as_str());
    let request_hash = RequestHasher::new(&HASH_KEY).hash(request_id);
    history.command(
        index,
        Command::Reserve(Reserve { user, request_id, request_hash, quantity: 1, front }),
    );
    history.reservations.last().unwrap().1
}

/// What the sink told the engine goes into the log, and by the policy `hold` no more than that.
fn settle(history: &mut History) -> Vec<(ReservationId, String)> {
    let told = history.host.take_dead_letters();
    for (reservation, note) in &told {
        let (activity, _) = *history.reservations.iter().find(|(_, id)| id == reservation).unwrap();
        // Told twice, as after a crash, it is one.
        history.event(Body::DeadLettered { activity, reservation: *reservation, note });
    }
    history.end_frame();
    told
}

fn retry(history: &mut History, reservation: ReservationId) {
    let activity = activity_id(0);
    let resolution = DeadLetterResolution::Delivered;
    assert!(history.event(Body::DeadLetterResolved {
        activity,
        reservation,
        resolution,
        actor: ACTOR
    }));
    history.end_frame();
}

async fn text(place: &Place, sql: &str) -> Vec<String> {
    let rows = place.rows(sql).await;
    rows.iter().map(|row| row.text_or_null(0).unwrap().unwrap_or("NULL").to_owned()).collect()
}

async fn a_poison_row_becomes_a_dead_letter_and_the_rows_around_it_orders(place: Place) {
    let host = MemoryHost::new();
    let mut history = History::new(host.clone(), 1);
    for buyer in 1..=30 {
        buy(&mut history, 0, buyer, Front::Http);
    }
    let (poisoned, also) = (history.reservations[4].1, history.reservations[20].1);
    history.end_frame();
    let lsn = host.frames.lock().unwrap().end();
    place.poison("orders", 5).await;
    catch_up(&host, &place, DEFAULT).await.unwrap();

    // One transaction: the letter, the rows behind it, the cursor.
    assert_eq!(place.number("SELECT lsn FROM bridge_cursor").await, lsn);
    assert_eq!(place.number("SELECT COUNT(*) FROM orders").await, 29);
    let sql = "SELECT status FROM flashsale_pre_deductions WHERE user_id = 5";
    assert_eq!(text(&place, sql).await, ["dead_letter"]);
    let reasons = text(&place, "SELECT last_error FROM flashsale_pre_deductions").await;
    assert_eq!(reasons.iter().filter(|reason| reason.contains("poison")).count(), 1);
    let told = settle(&mut history);
    assert_eq!(told.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [poisoned]);
    catch_up(&host, &place, DEFAULT).await.unwrap();
    assert_projected(&place, &history).await;
    assert_eq!(place.number("SELECT attempts FROM flashsale_pre_deductions LIMIT 1").await, 1);

    // Given back by the policy: its units and the buyer's slot are free.
    assert!(history.restore_dead_letter(activity_id(0), poisoned));
    let resolution = DeadLetterResolution::RolledBack;
    let (activity, reservation, actor) = (activity_id(0), poisoned, Actor::NONE);
    history.event(Body::DeadLetterResolved { activity, reservation, resolution, actor });
    history.end_frame();
    catch_up(&host, &place, DEFAULT).await.unwrap();
    assert_projected(&place, &history).await;
    let sql = "SELECT reason FROM flashsale_pre_deductions WHERE user_id = 5";
    assert_eq!(text(&place, sql).await, ["dead_letter"]);
    assert!(history.without_order.contains(&poisoned) && !history.without_order.contains(&also));
}

async fn a_value_that_its_column_refuses_is_one_dead_letter(place: Place) {
    let host = MemoryHost::new();
    let mut history = History::new(host.clone(), 2);
    for buyer in 1..=9 {
        buy(&mut history, 0, buyer, Front::Http);
    }
    history.end_frame();
    // An address is somebody's text. What the column makes of it depends on the shop's DBA.
    let refuse = match place {
        Place::Sqlite { .. } => {
            "CREATE TRIGGER poison BEFORE INSERT ON orders WHEN LENGTH(NEW.receiver) > 9 \
             BEGIN SELECT RAISE(ABORT, 'too long'); END"
        }
        Place::MariaDb { .. } => "ALTER TABLE orders MODIFY receiver VARCHAR(9) CHARSET latin1",
    };
    place.execute(refuse).await;
    let receivers = ["short", "a receiver too long", "short", "限量版👟限量版👟限量版", "short"];
    let users: Vec<_> = (1..).zip(receivers).map(|(id, text)| with_address(id, text)).collect();
    let accounts = Accounts::open(&place.url()).unwrap();
    accounts.create_users(None, &users, Existing::Refuse, 1).await.unwrap();
    catch_up(&host, &place, DEFAULT).await.unwrap();
    let told = settle(&mut history);
    let expected = [history.reservations[1].1, history.reservations[3].1];
    assert_eq!(told.iter().map(|(id, _)| *id).collect::<Vec<_>>(), expected);
    catch_up(&host, &place, DEFAULT).await.unwrap();
    assert_projected(&place, &history).await;
}

async fn a_row_refused_again_is_open_again_and_a_retry_that_passes_makes_the_order(place: Place) {
    let host = MemoryHost::new();
    let mut history = History::new(host.clone(), 3);
    let id = buy(&mut history, 0, 5, Front::Http);
    history.end_frame();
    place.poison("orders", 5).await;
    catch_up(&host, &place, DEFAULT).await.unwrap();
    assert_eq!(settle(&mut history).len(), 1);
    catch_up(&host, &place, DEFAULT).await.unwrap();

    retry(&mut history, id);
    catch_up(&host, &place, DEFAULT).await.unwrap();
    let told = settle(&mut history);
    assert_eq!(told.len(), 1, "it is told again");
    catch_up(&host, &place, DEFAULT).await.unwrap();
    assert_projected(&place, &history).await;
    assert_eq!(place.number("SELECT attempts FROM flashsale_pre_deductions").await, 2);

    place.cure().await;
    retry(&mut history, id);
    catch_up(&host, &place, DEFAULT).await.unwrap();
    assert_projected(&place, &history).await;
    assert_eq!(place.number("SELECT attempts FROM flashsale_pre_deductions").await, 3);
    assert_eq!(text(&place, "SELECT last_error FROM flashsale_pre_deductions").await, ["NULL"]);
    assert_eq!(text(&place, "SELECT status FROM dead_letters").await, ["delivered"]);
}

async fn a_dead_letter_paid_meanwhile_becomes_a_paid_order(place: Place) {
    let host = MemoryHost::new();
    let mut history = History::new(host.clone(), 4);
    let id = buy(&mut history, 0, 5, Front::Http);
    history.end_frame();
    place.poison("orders", 5).await;
    catch_up(&host, &place, DEFAULT).await.unwrap();
    settle(&mut history);
    catch_up(&host, &place, DEFAULT).await.unwrap();
    history.command(0, Command::Confirm { reservation: id, payment_no: "P'1" });
    history.end_frame();
    catch_up(&host, &place, DEFAULT).await.unwrap();
    assert_projected(&place, &history).await;

    place.cure().await;
    retry(&mut history, id);
    catch_up(&host, &place, DEFAULT).await.unwrap();
    assert_projected(&place, &history).await;
    assert_eq!(text(&place, "SELECT status FROM orders").await, ["paid"]);
    assert_eq!(text(&place, "SELECT payment_no FROM orders").await, ["P'1"]);
}

fn with_address(id: u64, receiver: &str) -> NewUser {
    let part = || "x".to_owned();
    let address = Address {
        receiver: receiver.to_owned(),
        phone: part(),
        province: part(),
        city: part(),
        district: part(),
        detail: part(),
    };
    let (id, username) = (UserId::new(id).unwrap(), format!("user-{id}"));
    NewUser { id, username, password_hash: None, role: Role::User, default_address: Some(address) }
}

async fn buyers_over_http_need_an_address_where_the_shop_says_so(place: Place) {
    let host = MemoryHost::new();
    let mut history = History::new(host.clone(), 5);
    let accounts = Accounts::open(&place.url()).unwrap();
    accounts.create_users(None, &[with_address(1, "one")], Existing::Refuse, 1).await.unwrap();
    let with = buy(&mut history, 0, 1, Front::Http);
    let without: Vec<_> = (2..=9).map(|buyer| buy(&mut history, 0, buyer, Front::Http)).collect();
    let over_resp = buy(&mut history, 0, 10, Front::Resp);
    let cancelled = buy(&mut history, 0, 11, Front::Http);
    let (reason, actor) = (RestoreReason::Cancelled, Actor::NONE);
    history.command(0, Command::Restore { reservation: cancelled, owner: None, reason, actor });
    history.end_frame();
    catch_up(&host, &place, REQUIRED).await.unwrap();
    let told = settle(&mut history);
    assert_eq!(told.iter().map(|(id, _)| *id).collect::<Vec<_>>(), without);
    assert!(told.iter().all(|(_, why)| why.contains("no default address")));
    catch_up(&host, &place, REQUIRED).await.unwrap();
    assert_projected(&place, &history).await;
    let orders = place.rows("SELECT purchase_slot FROM orders ORDER BY purchase_slot").await;
    let orders: Vec<_> = orders.iter().map(|row| row.number(0).unwrap()).collect();
    assert_eq!(orders, [with.get(), over_resp.get(), cancelled.get()]);

    // With an address a retry makes the order, and the order keeps it.
    accounts.create_users(None, &[with_address(2, "two")], Existing::Refuse, 1).await.unwrap();
    retry(&mut history, without[0]);
    retry(&mut history, without[1]);
    catch_up(&host, &place, REQUIRED).await.unwrap();
    assert_eq!(settle(&mut history)[0].0, without[1], "still without an address");
    catch_up(&host, &place, REQUIRED).await.unwrap();
    assert_projected(&place, &history).await;
    let sql = "SELECT receiver FROM orders WHERE user_id = 2";
    assert_eq!(text(&place, sql).await, ["two"]);
}

async fn an_order_made_before_the_logs_word_came_is_withdrawn(place: Place) {
    let host = MemoryHost::new();
    let mut history = History::new(host.clone(), 6);
    let id = buy(&mut history, 0, 5, Front::Http);
    buy(&mut history, 0, 6, Front::Http);
    history.end_frame();
    // The server died between the log's word and the transaction; what was wrong passed.
    catch_up(&host, &place, DEFAULT).await.unwrap();
    let (activity, reservation, note) = (activity_id(0), id, "poison");
    history.event(Body::DeadLettered { activity, reservation, note });
    history.end_frame();
    catch_up(&host, &place, DEFAULT).await.unwrap();
    assert_projected(&place, &history).await;
    assert_eq!(place.number("SELECT COUNT(*) FROM order_items").await, 1);
    retry(&mut history, id);
    catch_up(&host, &place, DEFAULT).await.unwrap();
    assert_projected(&place, &history).await;
}

async fn whatever_fails_beside_a_poison_row_nothing_is_lost_or_doubled(mut place: Place) {
    for fault in FAULTS {
        let mut at = 0;
        loop {
            place = place.emptied().await;
            // Emptied, MariaDB keeps its triggers.
            let _ = place.try_execute("DROP TRIGGER poison").await;
            place.poison("orders", 5).await;
            let host = MemoryHost::new();
            let mut history = History::new(host.clone(), 7);
            let id = buy(&mut history, 0, 5, Front::Http);
            for buyer in 1..=12 {
                buy(&mut history, 0, buyer, Front::Http);
            }
            history.end_frame();
            let plan = std::rc::Rc::new(std::cell::RefCell::new(Plan {
                next: Some((at, fault)),
                ..Plan::default()
            }));
            follow(&host, &mut place, &plan).await;
            let told = settle(&mut history);
            assert!(told.iter().any(|(told, _)| *told == id));
            follow(&host, &mut place, &plan).await;
            assert_projected(&place, &history).await;
            if plan.borrow().next.is_some() {
                break;
            }
            at += 1;
        }
        assert!(at > 15, "every operation was tried, not {at}");
    }
}

async fn follow(host: &MemoryHost, place: &mut Place, plan: &SharedPlan) {
    let mut random = support::Random::new(1);
    support::follow::follow(host, place, plan, &mut random).await;
}

async fn an_engine_that_is_busy_is_asked_again_before_anything_is_written(place: Place) {
    let host = MemoryHost::new();
    let mut history = History::new(host.clone(), 8);
    buy(&mut history, 0, 5, Front::Http);
    buy(&mut history, 0, 6, Front::Http);
    history.end_frame();
    place.poison("orders", 5).await;
    host.set_busy(true);
    let error = catch_up(&host, &place, DEFAULT).await.unwrap_err();
    assert!(matches!(error, FollowError::Busy(_)) && error.is_transient(), "{error}");
    assert_eq!(place.number("SELECT COUNT(*) FROM flashsale_pre_deductions").await, 0);
    host.set_busy(false);
    catch_up(&host, &place, DEFAULT).await.unwrap();
    settle(&mut history);
    catch_up(&host, &place, DEFAULT).await.unwrap();
    assert_projected(&place, &history).await;
}

async fn a_reservation_whose_own_row_is_refused_is_a_dead_letter_alone(place: Place) {
    let host = MemoryHost::new();
    let mut history = History::new(host.clone(), 9);
    let held = buy(&mut history, 0, 5, Front::Http);
    let given_back = buy(&mut history, 0, 5, Front::Http);
    buy(&mut history, 0, 6, Front::Http);
    history.end_frame();
    let lsn = host.frames.lock().unwrap().end();
    place.poison("flashsale_pre_deductions", 5).await;
    catch_up(&host, &place, DEFAULT).await.unwrap();
    assert_eq!(place.number("SELECT lsn FROM bridge_cursor").await, lsn, "the rest goes on");
    assert_eq!(place.number("SELECT COUNT(*) FROM orders").await, 1);
    assert_eq!(place.number("SELECT COUNT(*) FROM flashsale_pre_deductions").await, 1);
    let told: Vec<_> = settle(&mut history).into_iter().map(|(id, _)| id).collect();
    assert_eq!(told, [held, given_back]);
    catch_up(&host, &place, DEFAULT).await.unwrap();
    let queries = Queries::open(&place.url(), Split::ONE).unwrap();
    let window = Window { count: 10, offset: 0 };
    let page = queries.dead_letters(Some(State::Open), window).await.unwrap();
    let mut letters: Vec<_> = page.letters.iter().map(|it| it.reservation_id).collect();
    letters.sort_unstable();
    assert_eq!(letters, [held.get(), given_back.get()]);
    assert!(page.letters.iter().all(|it| it.quantity == 1 && it.reason.contains("poison")));

    // Given back by the policy, once; the other one is tried again, refused again, and made.
    assert!(history.restore_dead_letter(activity_id(0), given_back));
    let resolution = DeadLetterResolution::RolledBack;
    let (activity, reservation, actor) = (activity_id(0), given_back, Actor::NONE);
    history.event(Body::DeadLetterResolved { activity, reservation, resolution, actor });
    history.end_frame();
    catch_up(&host, &place, DEFAULT).await.unwrap();
    retry(&mut history, held);
    catch_up(&host, &place, DEFAULT).await.unwrap();
    assert_eq!(settle(&mut history).len(), 1, "it is told again");
    catch_up(&host, &place, DEFAULT).await.unwrap();
    place.cure().await;
    retry(&mut history, held);
    catch_up(&host, &place, DEFAULT).await.unwrap();
    assert_eq!(place.number("SELECT COUNT(*) FROM orders").await, 2);
    let rows = "SELECT status FROM flashsale_pre_deductions ORDER BY id";
    assert_eq!(text(&place, rows).await, ["ordered", "ordered"]);
    let letters = "SELECT status FROM dead_letters ORDER BY id";
    assert_eq!(text(&place, letters).await, ["delivered", "rolled_back"]);
    history.command(0, Command::Confirm { reservation: held, payment_no: "P1" });
    history.end_frame();
    catch_up(&host, &place, DEFAULT).await.unwrap();
    let sql = "SELECT status FROM orders WHERE user_id = 5";
    assert_eq!(text(&place, sql).await, ["paid"]);
    let units = "SELECT stock + locked_stock + sold_stock - total_stock FROM flashsale_activities";
    assert_eq!(place.number(units).await, 0);
    let back = "SELECT COUNT(*) FROM stock_flows WHERE biz_type = 'restore'";
    assert_eq!(place.number(back).await, 1);
}

async fn a_filling_goes_over_a_dead_letter_that_stands_alone(place: Place) {
    let host = MemoryHost::new();
    let mut history = History::new(host.clone(), 9);
    let lone = buy(&mut history, 0, 5, Front::Http);
    place.poison("flashsale_pre_deductions", 5).await;
    // Twice: into an empty database, and over what that left.
    for user in [6, 7] {
        buy(&mut history, 0, user, Front::Http);
        history.end_frame();
        history.snapshot();
        host.retire(host.frame_count());
        catch_up(&host, &place, DEFAULT).await.unwrap();
        settle(&mut history);
        catch_up(&host, &place, DEFAULT).await.unwrap();
        let rows = "SELECT status FROM dead_letters";
        assert_eq!(text(&place, rows).await, ["open"]);
    }
    place.cure().await;
    retry(&mut history, lone);
    catch_up(&host, &place, DEFAULT).await.unwrap();
    let rows = "SELECT SUM(quantity * price) FROM flashsale_pre_deductions WHERE user_id = ";
    let amounts = "SELECT SUM(total_amount) FROM orders WHERE user_id = ";
    for (sql, of) in [(rows, 5), (amounts, 5), (rows, 6)] {
        let sql = format!("SELECT CAST(({sql}{of}) AS SIGNED)");
        assert_eq!(place.number(&sql).await, DEFINITION.price, "{sql}");
    }
}
