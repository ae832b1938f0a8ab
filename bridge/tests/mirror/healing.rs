//! Whatever was lost, put back, evicted or changed by somebody: the keys become the log's again.

use bridge::redis::sink::Step;
use bridge::redis::{MirrorError, Repair};
use redis::Connection;

use crate::valkey::{Valkey, say};
use crate::{Shop, keys};

async fn shop(seed: u64) -> Shop {
    let mut shop = Shop::open(seed);
    shop.sale.run(200);
    shop.catch_up().await.unwrap();
    shop.assert_same();
    shop
}

#[tokio::test]
async fn flushall_is_noticed_by_the_next_batch_and_everything_is_written_anew() {
    let mut shop = shop(1).await;
    let (sale, url) = (shop.sale.clone(), shop.server.url(1));
    let (layout, bounds) = (Default::default(), Default::default());
    let met = bridge::redis::sink::Mirror::meet(&sale, &url, layout, bounds).await;
    let mut mirror = met.unwrap();
    let () = shop.say("FLUSHDB");
    sale.run(50);
    let mut last = Ok(Step::Moved);
    while matches!(last, Ok(Step::Moved)) {
        last = mirror.step().await;
    }
    let error = last.unwrap_err();
    assert!(matches!(&error, MirrorError::CursorMoved { found } if found.is_empty()), "{error}");
    assert!(error.is_transient());
    drop(mirror);
    assert!(shop.catch_up().await.unwrap());
    shop.assert_same();
}

#[tokio::test]
async fn flushall_is_noticed_while_nothing_is_sold() {
    let mut shop = shop(2).await;
    let (sale, url) = (shop.sale.clone(), shop.server.url(1));
    let (layout, bounds) = (Default::default(), Default::default());
    let met = bridge::redis::sink::Mirror::meet(&sale, &url, layout, bounds).await;
    let mirror = met.unwrap();
    let () = shop.say("FLUSHDB");
    let error = mirror.confirm().await.unwrap_err();
    assert!(matches!(error, MirrorError::CursorMoved { .. }), "{error}");
}

#[tokio::test]
async fn a_flushed_library_is_loaded_again() {
    let mut shop = shop(3).await;
    let (sale, url) = (shop.sale.clone(), shop.server.url(1));
    let (layout, bounds) = (Default::default(), Default::default());
    let met = bridge::redis::sink::Mirror::meet(&sale, &url, layout, bounds).await;
    let mut mirror = met.unwrap();
    let () = shop.say("FUNCTION FLUSH");
    sale.run(50);
    let mut last = Ok(Step::Moved);
    while matches!(last, Ok(Step::Moved)) {
        last = mirror.step().await;
    }
    let error = last.unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("unction"), "{error}");
    drop(mirror);
    shop.library.reload();
    assert!(!shop.catch_up().await.unwrap(), "the keys were not lost");
    shop.assert_same();
}

#[tokio::test]
async fn a_server_that_comes_back_older_is_caught_up_from_the_log() {
    let mut shop = shop(4).await;
    let () = shop.say("SAVE");
    shop.sale.run(200);
    shop.catch_up().await.unwrap();
    shop.server.kill();
    shop.server.resume();
    shop.reconnect();
    assert!(!shop.catch_up().await.unwrap());
    // The library lost the same, and knows it.
    let end = bridge::Host::durable_lsn(&shop.sale);
    shop.library = crate::library::Library::load(shop.server.connect(0));
    let () = say(&mut shop.library.connection, "FLUSHDB");
    shop.assert_same_at(end);
}

#[tokio::test]
async fn a_server_older_than_the_log_reaches_is_written_anew_in_place() {
    let mut shop = shop(5).await;
    shop.sale.run(200);
    shop.sale.memory.retire(shop.sale.memory.frame_count() - 3);
    // What a copy from elsewhere left there.
    let () = shop.say("SET flashsale:count:30001:424242 1");
    let () = shop.say("SET flashsale:reservation:12884901888000 12884901888000");
    let () = shop.say("SET flashsale:stock:99 5");
    let () = shop.say("SET flashsale:someone:elses 5");
    assert!(shop.catch_up().await.unwrap());
    let () = shop.say("DEL flashsale:someone:elses");
    let expected = shop.oracle();
    keys::assert_same(&keys::present(&mut shop.redis, "flashsale:*"), &expected, "anew");
    assert_eq!(shop.say::<u8>("EXISTS sluice:stale"), 0);
}

#[tokio::test]
async fn a_cursor_that_nobody_wrote_is_no_cursor() {
    for tampering in ["SET sluice:cursor nonsense", "HSET sluice:cursor a b", "DEL sluice:cursor"] {
        let mut shop = shop(6).await;
        let () = shop.say("DEL sluice:cursor");
        let _: redis::Value = shop.say(tampering);
        let () = shop.say("SET flashsale:stock:30001 1000000");
        shop.sale.run(30);
        assert!(shop.catch_up().await.unwrap(), "{tampering}");
        shop.assert_same();
    }
}

#[tokio::test]
async fn what_the_mirror_keeps_of_activities_is_not_believed_blindly() {
    for tampering in ["HSET sluice:mirror 30001 nonsense", "HDEL sluice:mirror 30001"] {
        let mut shop = shop(7).await;
        let _: redis::Value = shop.say(tampering);
        shop.sale.run(60);
        // The second is noticed at the first event of that activity.
        assert!(shop.catch_up().await.unwrap(), "{tampering}");
        shop.assert_same();
    }
}

#[tokio::test]
async fn a_lie_about_an_activity_that_was_believed_is_corrected_for_good() {
    let mut shop = shop(7).await;
    let text: String = shop.say("HGET sluice:mirror 30001");
    let mut words: Vec<_> = text.split(' ').collect();
    // The end of the sale: the keys' ends follow from it.
    words[5] = "4000000000000";
    let mut lie = redis::cmd("HSET");
    lie.arg("sluice:mirror").arg("30001").arg(words.join(" "));
    let () = lie.query(&mut shop.redis).unwrap();
    let sale = shop.sale.clone();
    let mut mirror = shop.meet().await.unwrap();
    sale.run(60);
    while mirror.step().await.unwrap() != Step::CaughtUp {}
    let end = mirror.scrub_rounds() + 2;
    while mirror.scrub_rounds() < end {
        mirror.scrub().await.unwrap();
        mirror.step().await.unwrap();
    }
    assert!(mirror.take_repairs().iter().any(|it| it.key == "sluice:mirror"));
    sale.run(60);
    while mirror.step().await.unwrap() != Step::CaughtUp {}
    drop(mirror);
    shop.assert_same();
}

#[tokio::test]
async fn a_state_that_moves_while_it_is_read_is_written_right() {
    for seed in 10..20 {
        let mut shop = shop(seed).await;
        shop.sale.be_restless(3);
        let () = shop.say("FLUSHDB");
        assert!(shop.catch_up().await.unwrap());
        shop.sale.be_restless(0);
        shop.sale.commit();
        shop.catch_up().await.unwrap();
        shop.assert_same();
    }
}

#[tokio::test]
async fn a_crash_in_the_middle_of_writing_anew_begins_again() {
    let mut shop = shop(8).await;
    let text: String = shop.say("GET sluice:cursor");
    let words: Vec<&str> = text.split(' ').collect();
    let () = shop.say("FLUSHDB");
    let () = say(&mut shop.redis, "SET flashsale:stock:30001 77");
    let mut set = redis::cmd("SET");
    set.arg("sluice:cursor").arg(format!("{} {} resync", words[0], words[1]));
    let () = set.query(&mut shop.redis).unwrap();
    assert!(shop.catch_up().await.unwrap());
    shop.assert_same();
}

/// Scrubs until a whole round has found nothing more; what was repaired.
async fn scrub(shop: &Shop) -> Vec<Repair> {
    let mut mirror = shop.meet().await.unwrap();
    while mirror.step().await.unwrap() != Step::CaughtUp {}
    assert!(!mirror.was_resynced());
    let end = mirror.scrub_rounds() + 2;
    while mirror.scrub_rounds() < end {
        mirror.scrub().await.unwrap();
        mirror.step().await.unwrap();
    }
    mirror.take_repairs()
}

#[tokio::test]
async fn keys_that_somebody_changed_are_written_back_and_reported() {
    let mut shop = shop(9).await;
    let stock: String = shop.say("GET flashsale:stock:30001");
    let ends: u64 = shop.say("PEXPIRETIME flashsale:stock:30001");
    let live = first(&mut shop.redis, "flashsale:reservation:*");
    let counted = first(&mut shop.redis, "flashsale:count:*");
    let () = shop.say(&format!("SET flashsale:stock:30001 {stock}000 PXAT {ends}"));
    let () = shop.say(&format!("PERSIST {counted}"));
    let () = shop.say(&format!("DEL {live}"));
    let () = shop.say("SET flashsale:count:30001:424242 1");
    let _: u64 = shop.say("DEL flashsale:pause:30003");
    let () = shop.say("HSET flashsale:pause:30003 not text");
    let repairs = scrub(&shop).await;
    shop.assert_same();
    let repair = |key: &str| {
        let found = repairs.iter().find(|repair| repair.key == key);
        found.unwrap_or_else(|| panic!("no repair of {key} in {repairs:?}"))
    };
    let repaired = repair("flashsale:stock:30001");
    assert_eq!(repaired.found, format!("{stock}000 until {ends}"));
    assert_eq!(repaired.written, format!("{stock} until {ends}"));
    assert_eq!(repair(&live).found, "nothing");
    assert_eq!(repair("flashsale:count:30001:424242").written, "nothing");
    repair(&counted);
    assert_eq!(repairs.len(), 5, "nothing else: {repairs:?}");
    assert!(scrub(&shop).await.is_empty());
}

fn first(redis: &mut Connection, pattern: &str) -> String {
    keys::present(redis, pattern).into_keys().next().unwrap()
}

#[tokio::test]
async fn a_scrubber_beside_a_running_sale_repairs_nothing_that_is_right() {
    let mut shop = shop(21).await;
    let sale = shop.sale.clone();
    let mut mirror = shop.meet().await.unwrap();
    sale.be_restless(2);
    for _ in 0..300 {
        sale.run(2);
        mirror.scrub().await.unwrap();
        mirror.step().await.unwrap();
    }
    assert!(mirror.scrub_rounds() > 2);
    assert_eq!(mirror.take_repairs(), []);
    drop(mirror);
    sale.be_restless(0);
    sale.commit();
    shop.catch_up().await.unwrap();
    shop.assert_same();
}

#[tokio::test]
async fn what_a_scrubber_took_before_the_keys_were_written_anew_is_not_written() {
    let mut shop = shop(27).await;
    let sale = shop.sale.clone();
    let _: u64 = shop.say("HDEL sluice:mirror 30001");
    sale.run(30);
    let mut mirror = shop.meet().await.unwrap();
    // A piece of the state that the mirror has yet to pass.
    mirror.scrub().await.unwrap();
    sale.run(60);
    while mirror.step().await.unwrap() != Step::CaughtUp {}
    assert!(mirror.was_resynced());
    mirror.scrub().await.unwrap();
    drop(mirror);
    shop.assert_same();
}

#[tokio::test]
async fn keys_that_were_evicted_come_back() {
    let mut shop = shop(22).await;
    let before = keys::present(&mut shop.redis, "flashsale:*").len();
    let () = shop.say("CONFIG SET maxmemory-policy volatile-random");
    let () = shop.say("CONFIG SET maxmemory 1");
    // Any write evicts what it can before it is refused.
    let refused: redis::RedisResult<()> = redis::cmd("SET").arg("x").arg(1).query(&mut shop.redis);
    assert!(refused.is_err());
    let () = shop.say("CONFIG SET maxmemory 0");
    let after = keys::present(&mut shop.redis, "flashsale:*").len();
    assert!(after < before, "{after} of {before} are left");
    assert!(!scrub(&shop).await.is_empty());
    let expected = shop.oracle();
    keys::assert_same(&keys::present(&mut shop.redis, "flashsale:*"), &expected, "scrubbed");
}

#[tokio::test]
async fn a_full_server_is_asked_again_until_it_has_room() {
    let mut shop = shop(23).await;
    let () = shop.say("CONFIG SET maxmemory-policy noeviction");
    let () = shop.say("CONFIG SET maxmemory 1");
    shop.sale.run(30);
    let error = shop.catch_up().await.unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("OOM"), "{error}");
    let () = shop.say("CONFIG SET maxmemory 0");
    assert!(!shop.catch_up().await.unwrap());
    shop.assert_same();
}

#[tokio::test]
async fn a_server_that_refuses_to_be_written_is_asked_again_and_says_why() {
    let table = [
        ("ACL SETUSER default -fcall", "perm", "ACL SETUSER default +fcall"),
        // A replica whose primary is away: it answers, and takes no writes.
        ("REPLICAOF 127.0.0.1 1", "read only", "REPLICAOF NO ONE"),
    ];
    for (refusal, says, mend) in table {
        let mut shop = shop(26).await;
        shop.sale.run(30);
        let () = shop.say(refusal);
        let error = shop.catch_up().await.unwrap_err();
        let told = error.to_string();
        assert!(error.is_transient() && told.contains(says) && !told.contains('\n'), "{told}");
        let () = shop.say(mend);
        assert!(!shop.catch_up().await.unwrap(), "nothing was lost");
        shop.assert_same();
    }
}

#[tokio::test]
async fn only_what_is_in_the_append_only_file_is_confirmed() {
    use bridge::redis::Confirmed;
    let shop = Shop::on(Valkey::start_with(&["--port", "0", "--appendonly", "yes"]), 24);
    shop.sale.run(50);
    let mut mirror = shop.meet().await.unwrap();
    while mirror.step().await.unwrap() != Step::CaughtUp {}
    assert_eq!(mirror.confirm().await.unwrap(), Confirmed::Upto(mirror.applied()));
    drop(mirror);

    let shop = Shop::open(25);
    let mirror = shop.meet().await.unwrap();
    assert_eq!(mirror.confirm().await.unwrap(), Confirmed::Never);
}
