//! Every call and every code of the contract, one at a time.

use functions::kit::reply::Reply;
use functions::kit::valkey::Valkey;

/// The first two reservations of the first activity, and their order numbers.
const FIRST: u64 = 4_294_967_297;
const FIRST_ORDER: &str = "100000004294967297";
const SECOND: u64 = 4_294_967_298;
const SECOND_ORDER: &str = "100000004294967298";

/// Activity 30001 on sale: 10 units at 9900, 2 a user, from 1,000 to the end of all times.
fn on_sale() -> Valkey {
    let mut server = Valkey::start();
    server.says("sluice_warm 30001 20001 9900 10 2 1000 253402300799999", 1);
    server.says("sluice_publish 30001", 1);
    server
}

/// What is said of the server's answers.
trait Claims {
    fn says(&mut self, line: &str, answer: i64);
    fn refuses(&mut self, line: &str);
    /// `sluice_reserve 30001 ..` is refused with this code, and so many units are left.
    fn turns_away(&mut self, arguments: &str, code: i64, remaining: u64);
    /// `sluice_reserve 30001 ..` is answered with the first reservation.
    fn sells(&mut self, arguments: &str, code: i64, remaining: u64);
    /// Available, locked, sold.
    fn figures(&mut self) -> [i64; 3];
}

impl Claims for Valkey {
    fn says(&mut self, line: &str, answer: i64) {
        assert_eq!(self.say(line), Reply::Integer(answer), "{line}");
    }

    fn refuses(&mut self, line: &str) {
        assert_eq!(self.say(line), Reply::error("INVALID"), "{line}");
    }

    fn turns_away(&mut self, arguments: &str, code: i64, remaining: u64) {
        let line = format!("sluice_reserve 30001 {arguments}");
        assert_eq!(self.say(&line), Reply::purchase(code, 0, "", remaining), "{line}");
    }

    fn sells(&mut self, arguments: &str, code: i64, remaining: u64) {
        let line = format!("sluice_reserve 30001 {arguments}");
        let answer = Reply::purchase(code, FIRST, FIRST_ORDER, remaining);
        assert_eq!(self.say(&line), answer, "{line}");
    }

    fn figures(&mut self) -> [i64; 3] {
        let shown = self.say("sluice_activity 30001");
        ["available", "locked", "sold"].map(|name| match shown.field(name) {
            Reply::Integer(units) => *units,
            other => panic!("{name} is {other:?}"),
        })
    }
}

#[test]
fn a_purchase_is_answered_with_its_id_its_order_number_and_what_is_left() {
    let mut server = on_sale();
    server.sells("7 order-1 2", 1, 8);
    let second = Reply::purchase(1, SECOND, SECOND_ORDER, 7);
    assert_eq!(server.say("sluice_reserve 30001 8 order-1 1"), second);
    assert_eq!(server.figures(), [7, 3, 0]);
}

#[test]
fn the_same_request_again_is_the_same_purchase_whatever_has_happened_since() {
    let mut server = on_sale();
    server.sells("7 order-1 1", 1, 9);
    server.sells("7 order-1 1", 2, 9);
    server.says("sluice_pause 30001", 1);
    server.sells("7 order-1 1", 2, 9);
    server.says(&format!("sluice_restore 30001 {FIRST}"), 1);
    server.sells("7 order-1 1", 2, 10);
}

#[test]
fn a_request_id_with_another_quantity_is_no_purchase() {
    let mut server = on_sale();
    server.sells("7 order-1 1", 1, 9);
    server.turns_away("7 order-1 2", -6, 9);
    // Another user's ids are his own.
    let second = Reply::purchase(1, SECOND, SECOND_ORDER, 7);
    assert_eq!(server.say("sluice_reserve 30001 8 order-1 2"), second);
}

#[test]
fn every_refusal_has_its_code_and_changes_nothing() {
    let mut server = Valkey::start();
    server.turns_away("7 order-1 1", -5, 0);
    server.says("sluice_warm 30001 20001 9900 1 2 1000 253402300799999", 1);
    server.turns_away("7 order-1 1", -3, 1);
    server.says("sluice_publish 30001", 1);
    server.turns_away("7 order-1 1 999", -1, 1);
    server.turns_away("7 order-1 2", 0, 1);
    server.says("sluice_pause 30001", 1);
    server.turns_away("7 order-1 1", -4, 1);
    server.says("sluice_resume 30001", 1);
    server.says("sluice_restock 30001 op-1 9", 10);
    server.turns_away("7 order-1 3", -2, 10);
    assert_eq!(server.figures(), [10, 0, 0]);
    // None of them used the request id up.
    server.sells("7 order-1 1", 1, 9);
}

#[test]
fn the_first_check_that_does_not_hold_answers() {
    let mut server = on_sale();
    server.sells("7 order-1 2", 1, 8);
    server.turns_away("7 order-2 9", 0, 8);
    server.turns_away("7 order-2 1", -2, 8);
    server.turns_away("7 order-2 9 999", -1, 8);
    server.says("sluice_unpublish 30001", 1);
    server.turns_away("7 order-2 9 999", -3, 8);
    server.says("sluice_pause 30001", 1);
    server.turns_away("7 order-2 9 999", -4, 8);
    server.turns_away("7 order-1 9 999", -6, 8);
    server.sells("7 order-1 2 999", 2, 8);
}

#[test]
fn the_window_is_open_from_its_first_to_its_last_millisecond() {
    let mut server = Valkey::start();
    let now_ms = server.now_ms();
    let (start_ms, end_ms) = (now_ms - 2000, now_ms - 1000);
    server.says(&format!("sluice_warm 30001 20001 9900 10 2 {start_ms} {end_ms}"), 1);
    server.says("sluice_publish 30001", 1);
    server.turns_away(&format!("7 order-1 1 {}", start_ms - 1), -1, 10);
    server.turns_away(&format!("7 order-1 1 {}", end_ms + 1), -1, 10);
    server.turns_away("7 order-1 1", -1, 10);
    server.sells(&format!("7 order-1 1 {start_ms}"), 1, 9);
    let second = Reply::purchase(1, SECOND, SECOND_ORDER, 8);
    assert_eq!(server.say(&format!("sluice_reserve 30001 8 order-1 1 {end_ms}")), second);
}

#[test]
fn buying_and_cancelling_again_and_again_ends_at_the_limit_and_sixteen_more() {
    let mut server = on_sale();
    for purchase in 0..18 {
        let line = format!("sluice_reserve 30001 7 order-{purchase} 1");
        let Reply::List(answer) = server.say(&line) else { panic!("{line}") };
        assert_eq!(answer[0], Reply::Integer(1), "{line}");
        server.says(&format!("sluice_restore 30001 {}", FIRST + purchase), 1);
    }
    server.turns_away("7 order-18 1", -2, 10);
}

#[test]
fn a_payment_is_taken_once_and_never_brings_units_back() {
    let mut server = on_sale();
    server.sells("7 order-1 2", 1, 8);
    server.says(&format!("sluice_confirm 30001 {FIRST} pay-1"), 1);
    server.says(&format!("sluice_confirm 30001 {FIRST} pay-1"), 2);
    server.says(&format!("sluice_confirm 30001 {FIRST} pay-2"), 3);
    server.says(&format!("sluice_restore 30001 {FIRST}"), 3);
    server.says(&format!("sluice_confirm 30001 {SECOND} pay-1"), 0);
    server.says(&format!("sluice_confirm 404 {FIRST} pay-1"), 0);
    assert_eq!(server.figures(), [8, 0, 2]);
    server.turns_away("7 order-2 1", -2, 8);
}

#[test]
fn a_give_back_returns_units_and_limit_once_and_cannot_be_paid() {
    let mut server = on_sale();
    server.sells("7 order-1 2", 1, 8);
    server.says(&format!("sluice_restore 30001 {FIRST}"), 1);
    server.says(&format!("sluice_restore 30001 {FIRST}"), 2);
    server.says(&format!("sluice_confirm 30001 {FIRST} pay-1"), -1);
    server.says(&format!("sluice_restore 30001 {SECOND}"), 0);
    server.says(&format!("sluice_restore 404 {FIRST}"), 0);
    assert_eq!(server.figures(), [10, 0, 0]);
    let second = Reply::purchase(1, SECOND, SECOND_ORDER, 8);
    assert_eq!(server.say("sluice_reserve 30001 7 order-2 2"), second);
}

#[test]
fn warming_again_keeps_what_is_there() {
    let mut server = on_sale();
    server.sells("7 order-1 2", 1, 8);
    server.says("sluice_warm 30001 20001 1 500 9 1000 253402300799999", 0);
    assert_eq!(server.figures(), [8, 2, 0]);
    server.says("sluice_warm 30002 20001 9900 10 2 1000 253402300799999", 1);
    server.says("sluice_publish 30002", 1);
    // The second activity's ordinal is 2.
    let first = Reply::purchase(1, 2 * 4_294_967_296 + 1, "100000008589934593", 9);
    assert_eq!(server.say("sluice_reserve 30002 7 order-1 1"), first);
}

#[test]
fn a_site_has_its_own_order_numbers() {
    let mut server = Valkey::start();
    server.command(&["HSET", "sluice:meta", "order_prefix", "999"]);
    server.says("sluice_warm 30001 20001 9900 10 2 1000 253402300799999", 1);
    server.says("sluice_publish 30001", 1);
    let bought = server.say("sluice_reserve 30001 7 order-1 1");
    assert_eq!(bought, Reply::purchase(1, FIRST, "99900000004294967297", 9));
}

#[test]
fn switches_answer_1_and_0_where_there_is_nothing_to_switch() {
    let mut server = on_sale();
    for name in ["sluice_publish", "sluice_unpublish", "sluice_pause", "sluice_resume"] {
        server.says(&format!("{name} 30001"), 1);
        server.says(&format!("{name} 30001"), 1);
        server.says(&format!("{name} 404"), 0);
    }
}

#[test]
fn units_are_added_and_taken_away_once_for_each_operation_id() {
    let mut server = on_sale();
    server.says("sluice_restock 30001 op-1 5", 15);
    server.says("sluice_decrease 30001 op-2 15", 0);
    server.turns_away("7 order-1 1", 0, 0);
    server.says("sluice_restock 30001 op-1 5", 15);
    server.says("sluice_restock 30001 op-3 1", 1);
    server.says("sluice_decrease 30001 op-2 15", 0);
    assert_eq!(server.figures(), [1, 0, 0]);
}

#[test]
fn a_total_cannot_fall_below_what_is_reserved_nor_rise_above_a_signed_column() {
    let mut server = on_sale();
    server.sells("7 order-1 2", 1, 8);
    server.refuses("sluice_decrease 30001 op-1 9");
    server.refuses("sluice_restock 30001 op-1 2147483638");
    server.says("sluice_restock 30001 op-1 2147483637", 2_147_483_645);
    server.refuses("sluice_restock 30001 op-1 2147483636");
    server.refuses("sluice_decrease 30001 op-1 2147483637");
    server.refuses("sluice_restock 404 op-1 1");
    server.refuses("sluice_decrease 404 op-1 1");
}

#[test]
fn an_activity_takes_no_more_operations_and_reservations_than_the_engine_would() {
    let mut server = on_sale();
    server.command(&["HSET", "sluice:a:30001", "operations", "65535"]);
    server.says("sluice_restock 30001 op-1 1", 11);
    server.refuses("sluice_restock 30001 op-2 1");
    server.says("sluice_restock 30001 op-1 1", 11);
    server.command(&["HSET", "sluice:a:30001", "reservations", "4294967294"]);
    let last = Reply::purchase(1, 8_589_934_591, "100000008589934591", 10);
    assert_eq!(server.say("sluice_reserve 30001 7 order-1 1"), last);
    server.turns_away("7 order-2 1", -2, 10);
}

#[test]
fn a_reservation_is_shown_with_everything_that_was_frozen_at_acceptance() {
    let mut server = on_sale();
    server.sells("0007 order-1 2 5000", 1, 8);
    let shown = server.say(&format!("sluice_get 30001 {FIRST}"));
    for (name, number) in [
        ("id", FIRST),
        ("activity", 30_001),
        ("user", 7),
        ("sku", 20_001),
        ("price", 9900),
        ("quantity", 2),
        ("created_ms", 5000),
    ] {
        assert_eq!(shown.field(name), &Reply::integer(number), "{name}");
    }
    assert_eq!(shown.field("order_no"), &Reply::text(FIRST_ORDER));
    assert_eq!(shown.field("status"), &Reply::text("reserved"));
    assert_eq!(shown.field("payment_no"), &Reply::text(""));
    let empty = Reply::Map([].into());
    assert_eq!(server.say(&format!("sluice_get 30001 {SECOND}")), empty);
    assert_eq!(server.say(&format!("sluice_get 404 {FIRST}")), empty);
}

#[test]
fn a_reservation_shows_where_it_is_in_its_life() {
    let mut server = on_sale();
    server.sells("7 order-1 1", 1, 9);
    server.say("sluice_reserve 30001 8 order-1 1");
    server.says(&format!("sluice_confirm 30001 {FIRST} pay-1"), 1);
    server.says(&format!("sluice_restore 30001 {SECOND}"), 1);
    let paid = server.say(&format!("sluice_get 30001 {FIRST}"));
    assert_eq!(paid.field("status"), &Reply::text("confirmed"));
    assert_eq!(paid.field("payment_no"), &Reply::text("pay-1"));
    let given_back = server.say(&format!("sluice_get 30001 {SECOND}"));
    assert_eq!(given_back.field("status"), &Reply::text("rolled_back"));
}

#[test]
fn an_activity_is_shown_with_its_figures_and_switches() {
    let mut server = on_sale();
    server.sells("7 order-1 2", 1, 8);
    server.says("sluice_pause 30001", 1);
    let shown = server.say("sluice_activity 30001");
    let fields = [
        ("id", 30_001),
        ("sku", 20_001),
        ("price", 9900),
        ("total", 10),
        ("available", 8),
        ("locked", 2),
        ("sold", 0),
        ("limit", 2),
        ("start_ms", 1000),
        ("end_ms", 253_402_300_799_999),
        ("on_sale", 1),
        ("paused", 1),
    ];
    let fields = fields.map(|(name, number)| (name.to_owned(), Reply::integer(number)));
    assert_eq!(shown, Reply::Map(fields.into()));
    assert_eq!(server.say("sluice_activity 404"), Reply::Map([].into()));
}

#[test]
fn a_resp2_client_gets_a_map_as_a_flat_list() {
    let server = on_sale();
    let mut old = server.connect_resp2();
    let mut shown = |activity: u64| -> Reply {
        let mut command = redis::cmd("FCALL_RO");
        Reply::of(command.arg("sluice_activity").arg(1).arg(activity).query(&mut old))
    };
    let Reply::List(flat) = shown(30_001) else { panic!("no list") };
    assert_eq!(flat.len(), 24);
    assert!(flat.chunks(2).any(|it| it == [Reply::text("available"), Reply::Integer(10)]));
    assert_eq!(shown(404), Reply::List(vec![]));
}

#[test]
fn without_a_time_of_its_own_a_call_happens_at_the_servers_time() {
    let mut server = on_sale();
    let before_ms = server.now_ms();
    server.sells("7 order-1 1", 1, 9);
    let after_ms = server.now_ms();
    let shown = server.say(&format!("sluice_get 30001 {FIRST}"));
    let Reply::Integer(created_ms) = shown.field("created_ms") else { panic!("{shown:?}") };
    assert!((before_ms..=after_ms).contains(&u64::try_from(*created_ms).unwrap()));
}
