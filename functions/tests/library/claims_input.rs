//! What no call takes: it is refused before anything is read, and nothing is written.

use functions::kit::call::Call;
use functions::kit::reply::Reply;
use functions::kit::valkey::Valkey;

/// A call that is fine, as a name, the activity and the arguments.
const FINE: &[&str] = &[
    "sluice_warm 30001 20001 9900 10 2 1000 253402300799999",
    "sluice_publish 30001",
    "sluice_reserve 30001 7 order-1 1",
    "sluice_confirm 30001 4294967297 pay-1",
    "sluice_restore 30001 4294967297",
    "sluice_restock 30001 op-1 1",
    "sluice_decrease 30001 op-2 1",
    "sluice_unpublish 30001",
    "sluice_pause 30001",
    "sluice_resume 30001",
    "sluice_get 30001 4294967297",
    "sluice_activity 30001",
];

/// No number that any argument takes.
const NO_NUMBERS: &[&[u8]] = &[
    b"",
    b"-1",
    b"+1",
    b"1.0",
    b"1e3",
    b" 1",
    b"1 ",
    b"1\n",
    b"1\0",
    b"0x10",
    b"nan",
    b"\xff",
    b"9007199254740992",
    b"18446744073709551617",
    b"99999999999999999999999999999999999999",
];

/// No text that any argument takes.
const NO_TEXTS: &[&[u8]] =
    &[b"", b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe6\x8a", &[b'x'; 65]];

fn refused(server: &mut Valkey, call: &Call) {
    assert_eq!(server.call(call), Reply::error("INVALID"), "{call:?}");
}

#[test]
fn a_number_outside_its_bounds_is_refused_in_every_place() {
    let mut server = Valkey::start();
    for fine in FINE {
        let fine = Call::parse(fine);
        for number in NO_NUMBERS {
            refused(&mut server, &Call { activity: number.to_vec(), ..fine.clone() });
            for at in 0..=fine.arguments.len() {
                let mut call = fine.clone();
                match call.arguments.get_mut(at) {
                    // Text may look like anything.
                    Some(text) if !text.iter().all(u8::is_ascii_digit) => continue,
                    Some(argument) => *argument = number.to_vec(),
                    None => call.arguments.push(number.to_vec()),
                }
                refused(&mut server, &call);
            }
        }
    }
    assert_eq!(server.command(&["DBSIZE"]), Reply::Integer(0));
}

#[test]
fn a_text_that_is_empty_too_long_or_no_utf8_is_refused_in_every_place() {
    let mut server = Valkey::start();
    let with_text = |call: &Call| call.arguments.iter().any(|it| !it[0].is_ascii_digit());
    for fine in FINE.iter().map(|fine| Call::parse(fine)).filter(with_text) {
        for text in NO_TEXTS {
            let mut call = fine.clone();
            let argument = call.arguments.iter_mut().find(|it| !it[0].is_ascii_digit());
            *argument.unwrap() = text.to_vec();
            refused(&mut server, &call);
        }
    }
    assert_eq!(server.command(&["DBSIZE"]), Reply::Integer(0));
}

#[test]
fn a_call_with_too_many_or_too_few_words_is_refused() {
    let mut server = Valkey::start();
    for fine in FINE {
        let fine = Call::parse(fine);
        let mut more = fine.clone();
        more.arguments.extend([b"1500".to_vec(), b"1500".to_vec()]);
        refused(&mut server, &more);
        let mut fewer = fine.clone();
        if fewer.arguments.pop().is_some() {
            refused(&mut server, &fewer);
        }
    }
    for count in ["0", "2"] {
        let words = ["FCALL", "sluice_publish", count, "30001", "30002"];
        assert_eq!(server.command(&words), Reply::error("INVALID"), "{count} keys");
    }
    assert_eq!(server.command(&["DBSIZE"]), Reply::Integer(0));
}

#[test]
fn zero_units_and_a_window_that_ends_before_it_begins_are_refused() {
    let mut server = Valkey::start();
    for line in [
        "sluice_warm 30001 20001 9900 0 2 1000 2000",
        "sluice_warm 30001 20001 9900 2147483648 2 1000 2000",
        "sluice_warm 30001 20001 9900 10 0 1000 2000",
        "sluice_warm 30001 0 9900 10 2 1000 2000",
        "sluice_warm 30001 20001 9900 10 2 2001 2000",
        "sluice_warm 30001 20001 9900 10 2 1000 253402300800000",
        "sluice_reserve 30001 7 order-1 0",
        "sluice_reserve 30001 7 order-1 2147483648",
        "sluice_restock 30001 op-1 0",
        "sluice_decrease 30001 op-1 0",
        "sluice_restore 30001 0",
    ] {
        refused(&mut server, &Call::parse(line));
    }
    assert_eq!(server.command(&["DBSIZE"]), Reply::Integer(0));
}

#[test]
fn an_amount_that_no_double_holds_is_refused() {
    let mut server = Valkey::start();
    server.say("sluice_warm 30001 20001 9007199254740991 10 5 1000 253402300799999");
    server.say("sluice_publish 30001");
    refused(&mut server, &Call::parse("sluice_reserve 30001 7 order-1 2"));
    let bought = server.say("sluice_reserve 30001 7 order-1 1");
    assert_eq!(bought, Reply::purchase(1, 4_294_967_297, "100000004294967297", 9));
}

#[test]
fn leading_zeros_name_the_same_user_and_activity() {
    let mut server = Valkey::start();
    server.say("sluice_warm 00030001 20001 9900 10 2 1000 253402300799999");
    server.say("sluice_publish 30001");
    server.say("sluice_reserve 000000030001 000000000007 order-1 1");
    assert_eq!(server.value("flashsale:count:30001:7").unwrap(), "1");
    let again = server.say("sluice_reserve 30001 7 order-1 1");
    assert_eq!(again, Reply::purchase(2, 4_294_967_297, "100000004294967297", 9));
}

#[test]
fn request_ids_that_differ_in_a_byte_are_different() {
    let mut server = Valkey::start();
    server.say("sluice_warm 30001 20001 9900 100 100 1000 253402300799999");
    server.say("sluice_publish 30001");
    let ids: [&[u8]; 9] = [
        b"a",
        b"A",
        b"a ",
        b"a\0",
        b"a\0b",
        b"r:a",
        b"held",
        "\u{e9}".as_bytes(),
        "e\u{301}".as_bytes(),
    ];
    for (id, remaining) in ids.iter().zip((0..100).rev()) {
        let call = Call::new("sluice_reserve", b"30001", &[b"7", id, b"1"]);
        let Reply::List(answer) = server.call(&call) else { panic!("{call:?}") };
        assert_eq!((&answer[0], &answer[3]), (&Reply::Integer(1), &Reply::Integer(remaining)));
    }
}

#[test]
fn an_order_prefix_that_is_none_is_refused_before_anything_is_sold_under_it() {
    let mut server = Valkey::start();
    for prefix in ["0", "1000", "01", "x", "-1", ""] {
        server.command(&["HSET", "sluice:meta", "order_prefix", prefix]);
        let warm = "sluice_warm 30001 20001 9900 10 2 1000 253402300799999";
        refused(&mut server, &Call::parse(warm));
    }
}

#[test]
fn the_last_ordinal_is_used_and_none_after_it() {
    let mut server = Valkey::start();
    server.command(&["HSET", "sluice:meta", "next_ordinal", "2097151"]);
    let warm = |id: u64| format!("sluice_warm {id} 20001 9900 10 2 1000 253402300799999");
    assert_eq!(server.say(&warm(30_001)), Reply::Integer(1));
    server.say("sluice_publish 30001");
    let id = 2_097_151 * 4_294_967_296 + 1;
    let bought = server.say("sluice_reserve 30001 7 order-1 1");
    assert_eq!(bought, Reply::purchase(1, id, &format!("1{id:017}"), 9));
    refused(&mut server, &Call::parse(&warm(30_002)));
}

#[test]
fn a_private_key_of_another_type_stops_a_call_before_it_writes() {
    let mut server = Valkey::start();
    server.say("sluice_warm 30001 20001 9900 10 2 1000 253402300799999");
    server.say("sluice_publish 30001");
    server.command(&["SET", "sluice:q:30001:7", "foreign"]);
    let Reply::Error(_) = server.say("sluice_reserve 30001 7 order-1 1") else {
        panic!("a foreign key was taken for a user's")
    };
    assert_eq!(server.say("sluice_activity 30001").field("available"), &Reply::Integer(10));
    assert_eq!(server.value("flashsale:stock:30001").unwrap(), "10");
}

#[test]
fn a_full_server_refuses_a_call_whole() {
    let mut server = Valkey::start();
    server.say("sluice_warm 30001 20001 9900 10 2 1000 253402300799999");
    server.say("sluice_publish 30001");
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let refused = server.say("sluice_reserve 30001 7 order-1 1");
    assert_eq!(refused, Reply::error("OOM"));
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(server.say("sluice_activity 30001").field("available"), &Reply::Integer(10));
    let bought = server.say("sluice_reserve 30001 7 order-1 1");
    assert_eq!(bought, Reply::purchase(1, 4_294_967_297, "100000004294967297", 9));
}
