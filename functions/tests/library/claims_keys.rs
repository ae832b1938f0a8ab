//! Every compatibility key of the contract: its value, when it ends, when it is deleted. And the
//! private ones: when they end.

use functions::kit::keys::{HOUR_MS, MINUTE_MS};
use functions::kit::reply::Reply;
use functions::kit::valkey::Valkey;

const FIRST: u64 = 4_294_967_297;
const STOCK: &str = "flashsale:stock:30001";
const COUNT: &str = "flashsale:count:30001:7";
const IDEM: &str = "flashsale:idem:30001:7:4294967297";
const RESERVATION: &str = "flashsale:reservation:4294967297";
const PAUSE: &str = "flashsale:pause:30001";

/// A sale of two units, at most two a user, that lasts an hour.
struct Sale {
    server: Valkey,
    now_ms: u64,
    end_ms: u64,
}

impl Sale {
    fn open() -> Self {
        let mut server = Valkey::start();
        let now_ms = server.now_ms();
        let end_ms = now_ms + HOUR_MS;
        let mut sale = Self { server, now_ms, end_ms };
        sale.done(&format!("sluice_warm 30001 20001 9900 2 2 {now_ms} {end_ms}"));
        sale.done("sluice_publish 30001");
        sale
    }

    /// User 7 buys so many units, at the beginning.
    fn sold(quantity: u64) -> Self {
        let mut sale = Self::open();
        let now_ms = sale.now_ms;
        let bought =
            sale.server.say(&format!("sluice_reserve 30001 7 order-1 {quantity} {now_ms}"));
        let answer = Reply::purchase(1, FIRST, "100000004294967297", 2 - quantity);
        assert_eq!(bought, answer);
        sale
    }

    fn done(&mut self, line: &str) {
        assert_eq!(self.server.say(line), Reply::Integer(1), "{line}");
    }

    fn value(&mut self, key: &str) -> Option<String> {
        self.server.value(key)
    }
}

#[test]
fn stock_is_what_is_available_until_an_hour_after_the_end() {
    let mut sale = Sale::open();
    assert_eq!(sale.value(STOCK).unwrap(), "2");
    assert_eq!(sale.server.ends_ms(STOCK), Some(sale.end_ms + HOUR_MS));
}

#[test]
fn stock_follows_purchases_give_backs_restocks_and_decreases() {
    let mut sale = Sale::sold(1);
    assert_eq!(sale.value(STOCK).unwrap(), "1");
    sale.done(&format!("sluice_restore 30001 {FIRST}"));
    assert_eq!(sale.value(STOCK).unwrap(), "2");
    sale.server.say("sluice_restock 30001 op-1 5");
    assert_eq!(sale.value(STOCK).unwrap(), "7");
    sale.server.say("sluice_decrease 30001 op-2 3");
    assert_eq!(sale.value(STOCK).unwrap(), "4");
    assert_eq!(sale.server.ends_ms(STOCK), Some(sale.end_ms + HOUR_MS));
}

#[test]
fn a_sold_out_activity_has_a_stock_of_0() {
    let mut sale = Sale::sold(2);
    assert_eq!(sale.value(STOCK).unwrap(), "0");
    assert_eq!(sale.server.ends_ms(STOCK), Some(sale.end_ms + HOUR_MS));
}

#[test]
fn count_is_what_the_user_holds_until_an_hour_after_the_end_and_is_deleted_at_zero() {
    let mut sale = Sale::sold(2);
    assert_eq!(sale.value(COUNT).unwrap(), "2");
    assert_eq!(sale.server.ends_ms(COUNT), Some(sale.end_ms + HOUR_MS));
    sale.done(&format!("sluice_restore 30001 {FIRST}"));
    assert_eq!(sale.value(COUNT), None);
}

#[test]
fn a_paid_unit_counts_on() {
    let mut sale = Sale::sold(2);
    sale.done(&format!("sluice_confirm 30001 {FIRST} pay-1"));
    assert_eq!(sale.value(COUNT).unwrap(), "2");
}

#[test]
fn idem_is_the_token_for_half_an_hour_from_acceptance_paid_or_not() {
    let mut sale = Sale::sold(1);
    assert_eq!(sale.value(IDEM).unwrap(), FIRST.to_string());
    assert_eq!(sale.server.ends_ms(IDEM), Some(sale.now_ms + 30 * MINUTE_MS));
    sale.done(&format!("sluice_confirm 30001 {FIRST} pay-1"));
    assert_eq!(sale.server.ends_ms(IDEM), Some(sale.now_ms + 30 * MINUTE_MS));
}

#[test]
fn idem_is_deleted_at_the_give_back() {
    let mut sale = Sale::sold(1);
    sale.done(&format!("sluice_restore 30001 {FIRST}"));
    assert_eq!(sale.value(IDEM), None);
}

#[test]
fn a_replay_prolongs_nothing() {
    let mut sale = Sale::sold(1);
    let later_ms = sale.now_ms + MINUTE_MS;
    sale.server.say(&format!("sluice_reserve 30001 7 order-1 1 {later_ms}"));
    assert_eq!(sale.server.ends_ms(IDEM), Some(sale.now_ms + 30 * MINUTE_MS));
}

#[test]
fn a_reservation_is_the_token_until_it_is_paid_or_given_back() {
    let mut sale = Sale::sold(1);
    assert_eq!(sale.value(RESERVATION).unwrap(), FIRST.to_string());
    assert_eq!(sale.server.ends_ms(RESERVATION), None);
    sale.done(&format!("sluice_confirm 30001 {FIRST} pay-1"));
    assert_eq!(sale.value(RESERVATION), None);
}

#[test]
fn a_reservation_given_back_leaves_a_tombstone_for_a_day() {
    let mut sale = Sale::sold(1);
    let later_ms = sale.now_ms + MINUTE_MS;
    sale.done(&format!("sluice_restore 30001 {FIRST} {later_ms}"));
    assert_eq!(sale.value(RESERVATION).unwrap(), format!("rolled_back:{FIRST}"));
    assert_eq!(sale.server.ends_ms(RESERVATION), Some(later_ms + 24 * HOUR_MS));
    // A second one, later, changes nothing.
    let again = format!("sluice_restore 30001 {FIRST} {}", later_ms + MINUTE_MS);
    assert_eq!(sale.server.say(&again), Reply::Integer(2));
    assert_eq!(sale.server.ends_ms(RESERVATION), Some(later_ms + 24 * HOUR_MS));
}

#[test]
fn pause_exists_while_paused() {
    let mut sale = Sale::open();
    assert_eq!(sale.value(PAUSE), None);
    sale.done("sluice_pause 30001");
    assert!(sale.value(PAUSE).is_some());
    assert_eq!(sale.server.ends_ms(PAUSE), None);
    sale.done("sluice_unpublish 30001");
    assert!(sale.value(PAUSE).is_some());
    sale.done("sluice_resume 30001");
    assert_eq!(sale.value(PAUSE), None);
}

#[test]
fn the_pause_of_an_activity_whose_life_is_over_can_be_lifted() {
    let mut sale = Sale::open();
    sale.done("sluice_pause 30001");
    sale.server.command(&["DEL", "sluice:a:30001"]);
    assert_eq!(sale.server.say("sluice_resume 30001"), Reply::Integer(0));
    assert_eq!(sale.value(PAUSE), None);
}

#[test]
fn private_keys_end_25_hours_after_the_end() {
    let mut sale = Sale::sold(1);
    let private = ["sluice:a:30001", "sluice:q:30001:7", "sluice:r:4294967297"];
    for key in private {
        assert_eq!(sale.server.ends_ms(key), Some(sale.end_ms + 25 * HOUR_MS), "{key}");
    }
    sale.done(&format!("sluice_restore 30001 {FIRST}"));
    sale.server.say("sluice_restock 30001 op-1 5");
    for key in private {
        assert_eq!(sale.server.ends_ms(key), Some(sale.end_ms + 25 * HOUR_MS), "{key}");
    }
    assert_eq!(sale.server.ends_ms("sluice:meta"), None);
}

#[test]
fn a_give_back_after_the_end_leaves_no_keys_whose_time_is_over() {
    let mut server = Valkey::start();
    let now_ms = server.now_ms();
    let (start_ms, end_ms) = (now_ms - 3 * HOUR_MS, now_ms - 2 * HOUR_MS);
    server.say(&format!("sluice_warm 30001 20001 9900 2 2 {start_ms} {end_ms}"));
    server.say("sluice_publish 30001");
    server.say(&format!("sluice_reserve 30001 7 order-1 1 {end_ms}"));
    server.say(&format!("sluice_reserve 30001 7 order-2 1 {end_ms}"));
    assert_eq!(server.say(&format!("sluice_restore 30001 {FIRST}")), Reply::Integer(1));
    assert_eq!(server.say("sluice_activity 30001").field("available"), &Reply::Integer(1));
    assert_eq!((server.value(STOCK), server.value(COUNT)), (None, None));
    assert_eq!(server.value(RESERVATION).unwrap(), format!("rolled_back:{FIRST}"));
}

#[test]
fn compatibility_keys_are_written_and_never_believed() {
    let mut sale = Sale::sold(1);
    sale.server.command(&["SET", STOCK, "1000000"]);
    sale.server.command(&["DEL", COUNT, IDEM, RESERVATION]);
    sale.server.command(&["HSET", COUNT, "not", "a string"]);
    let bought = sale.server.say("sluice_reserve 30001 7 order-2 1");
    assert_eq!(bought, Reply::purchase(1, FIRST + 1, "100000004294967298", 0));
    assert_eq!(sale.value(STOCK).unwrap(), "0");
    assert_eq!(sale.value(COUNT).unwrap(), "2");
    let more = sale.server.say("sluice_reserve 30001 8 order-1 1");
    assert_eq!(more, Reply::purchase(0, 0, "", 0));
}
