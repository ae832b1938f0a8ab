//! `sluice check` and `sluice dump` tell what really happened, beside a running server and after
//! it, from the log alone.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "common/books.rs"]
mod books;
mod common;
#[path = "common/shop.rs"]
mod shop;

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::Path;

use serde_json::{Value, json};

use books::Checked;
use common::{Server, Signal, sluice, wait};
use shop::{Click, Connection, Outcome, Shop, scratch};

const ACTIVITY: u64 = 30_001;

/// A demo in which five users bought, one of them cancelled, and seven units were restocked.
struct Story {
    data_dir: tempfile::TempDir,
    server: Server,
    shop: Shop,
    reservations: Vec<u64>,
}

const AFTER_THE_STORY: Checked =
    Checked { total: 1_007, available: 1_003, locked: 4, sold: 0, rolled_back: 1, reservations: 5 };

fn story() -> Story {
    let data_dir = scratch();
    let server = shop::demo(data_dir.path());
    let shop = Shop::new(server.address, ACTIVITY, shop::tokens(data_dir.path(), 1, 10));
    let mut connection = Connection::new(server.address);
    let reservations: Vec<_> = (0..5).map(|shopper| buy(&shop, shopper, &mut connection)).collect();
    let cancel = format!("/api/orders/{}/cancel", reservations[2].1);
    let cancelled = connection.call(("POST", &cancel), &shop.tokens[2], None).unwrap();
    assert_eq!(cancelled.status, 200, "{cancelled:?}");
    let restocked = server.authorized(
        &shop::admin_token(data_dir.path()),
        "POST",
        &format!("/api/admin/flashsales/{ACTIVITY}/restock"),
        &[("Idempotency-Key", "restock-1")],
        Some(&json!({ "quantity": 7 })),
    );
    assert_eq!(restocked.status, 200, "{restocked:?}");
    let reservations = reservations.into_iter().map(|(id, _)| id).collect();
    Story { data_dir, server, shop, reservations }
}

fn buy(shop: &Shop, shopper: usize, connection: &mut Connection) -> (u64, String) {
    let click = Click { shopper, request_id: format!("id-{shopper}") };
    match shop.click(&click, connection).outcome {
        Outcome::Accepted { reservation, order_no } => (reservation, order_no),
        refused => panic!("{refused:?}"),
    }
}

fn dump(data_dir: &Path, args: &[&str]) -> Vec<Value> {
    let output = sluice(["dump", "--data-dir"]).arg(data_dir).args(args).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn number(line: &Value, name: &str) -> u64 {
    line[name].as_u64().unwrap_or_else(|| panic!("no {name}: {line}"))
}

/// Replays a dump: each change of units by the kind of event alone, compared with the figures
/// that the event itself states.
fn replay(lines: &[Value]) -> BTreeMap<u64, Checked> {
    let mut activities: BTreeMap<u64, Checked> = BTreeMap::new();
    let (mut lsn, mut sequences) = (0, BTreeMap::new());
    for line in lines {
        lsn += 1;
        assert_eq!(number(line, "lsn"), lsn, "LSNs are dense: {line}");
        let frame = &line["frame"];
        assert!(frame[0].as_u64() <= Some(lsn) && Some(lsn) <= frame[1].as_u64(), "{line}");
        let sequence = sequences.entry(number(line, "shard")).or_insert(0);
        *sequence += 1;
        assert_eq!(number(line, "shard_seq"), *sequence, "dense in its shard: {line}");
        let Some(id) = line["activity"].as_u64() else { continue };
        let quantity = || number(line, "quantity");
        let activity = activities.entry(id).or_insert(Checked {
            total: 0,
            available: 0,
            locked: 0,
            sold: 0,
            rolled_back: 0,
            reservations: 0,
        });
        match line["event"].as_str().unwrap() {
            "ActivityCreated" => {
                activity.total = number(line, "total");
                activity.available = activity.total;
            }
            "Restocked" => {
                activity.total += quantity();
                activity.available += quantity();
            }
            "Reserved" => {
                activity.reservations += 1;
                activity.available -= quantity();
                activity.locked += quantity();
            }
            "Restored" => {
                activity.rolled_back += 1;
                activity.locked -= quantity();
                activity.available += quantity();
            }
            _ => continue,
        }
        if line["available"].is_u64() {
            let stated = ["available", "locked", "sold"].map(|name| number(line, name));
            assert_eq!(stated, [activity.available, activity.locked, activity.sold], "{line}");
        }
    }
    activities
}

#[test]
fn beside_a_running_server_both_tell_what_was_sold() {
    let story = story();
    let data_dir = story.data_dir.path();
    books::assert_comes_to(data_dir, ACTIVITY, AFTER_THE_STORY);
    let lines = dump(data_dir, &[]);
    assert_eq!(replay(&lines)[&ACTIVITY], AFTER_THE_STORY);
    let admin = shop::admin_token(data_dir);
    assert_eq!(books::figures(&story.shop, &admin), (1_007, 1_003, 4, 0));
}

#[test]
fn after_the_end_both_tell_the_same_as_before_and_what_came_later() {
    let mut story = story();
    let data_dir = story.data_dir.path();
    let before = dump(data_dir, &[]);
    assert!(story.server.stop().success());
    assert_eq!(books::check(data_dir, ACTIVITY), AFTER_THE_STORY);
    let after = dump(data_dir, &[]);
    assert_eq!(after[..before.len()], before, "what was shown stays");
    assert_eq!(replay(&after)[&ACTIVITY], AFTER_THE_STORY);
    let reserved: Vec<_> = after
        .iter()
        .filter(|line| line["event"] == "Reserved")
        .map(|line| number(line, "reservation"))
        .collect();
    assert_eq!(reserved, story.reservations);
    let first = after.iter().find(|line| line["event"] == "Reserved").unwrap();
    assert_eq!(
        (&first["user"], &first["request_id"], &first["front"], &first["held"]),
        (&json!(1), &json!("id-0"), &json!("http"), &json!(1))
    );
}

#[test]
fn a_dump_begins_where_it_is_told_and_keeps_to_one_activity() {
    let mut story = story();
    let data_dir = story.data_dir.path();
    assert!(story.server.stop().success());
    let all = dump(data_dir, &[]);
    for from in [1, 2, all.len() / 2, all.len(), all.len() + 1, all.len() + 100] {
        let lines = dump(data_dir, &["--from", &from.to_string()]);
        assert_eq!(lines, all[(from - 1).min(all.len())..], "from {from}");
    }
    let one = dump(data_dir, &["--activity", "30001"]);
    assert!(one.len() >= 8 && one.iter().all(|line| line["activity"] == ACTIVITY));
    assert_eq!(dump(data_dir, &["--activity", "99"]), [Value::Null; 0]);
}

#[test]
fn a_dump_names_the_operator_of_a_release_and_none_for_a_cancellation() {
    let mut story = story();
    let data_dir = story.data_dir.path();
    let admin = shop::admin_token(data_dir);
    let path = format!("/api/admin/reservations/{}/release", story.reservations[0]);
    let headers = [("X-Request-Id", "release-1")];
    let released = story.server.authorized(&admin, "POST", &path, &headers, None);
    assert_eq!(released.status, 200, "{released:?}");
    assert!(story.server.stop().success());
    let lines = dump(data_dir, &["--activity", "30001"]);
    let mut restored = lines.iter().filter(|line| line["event"] == "Restored");
    let (cancelled, released) = (restored.next().unwrap(), restored.next().unwrap());
    assert_eq!((&cancelled["reason"], &cancelled["actor"]), (&json!("cancelled"), &Value::Null));
    assert_eq!(released["reason"], "admin");
    assert_eq!(released["actor"], json!({ "name": "1", "request_id": "release-1" }));
}

#[test]
fn a_followed_dump_shows_what_is_bought_and_ends_with_a_signal() {
    let story = story();
    let data_dir = story.data_dir.path();
    let mut follow = sluice(["dump", "--follow", "--activity", "30001", "--data-dir"])
        .arg(data_dir)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines();
    let mut next = |event: &str| -> Value {
        loop {
            let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
            if line["event"] == event {
                return line;
            }
        }
    };
    next("Restocked");
    let (id, _) = buy(&story.shop, 7, &mut Connection::new(story.server.address));
    assert_eq!(number(&next("Reserved"), "reservation"), id);
    common::send(&follow, Signal::TERM);
    assert!(wait(&mut follow).success());
}

#[test]
fn a_followed_dump_ends_when_nobody_reads_it() {
    let story = story();
    let mut follow =
        sluice(["dump", "--follow", "--data-dir"]).arg(story.data_dir.path()).spawn().unwrap();
    let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().is_ok());
    drop(lines);
    buy(&story.shop, 7, &mut Connection::new(story.server.address));
    assert!(wait(&mut follow).success());
}

#[test]
fn without_a_data_directory_both_say_so() {
    let dir = scratch();
    for command in ["check", "dump"] {
        for path in [dir.path().join("none"), dir.path().to_path_buf()] {
            let output = sluice([command, "--data-dir"]).arg(&path).output().unwrap();
            let errors = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(2), "{errors}");
            assert_eq!(errors.lines().count(), 1, "{errors}");
        }
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing was made");
}

#[test]
fn a_disk_is_probed_and_left_as_it_was() {
    let dir = scratch();
    let probe =
        |path: &Path| sluice(["check", "--probe", "--data-dir"]).arg(path).output().unwrap();
    let measured = probe(dir.path());
    assert_eq!(measured.status.code(), Some(0), "{measured:?}");
    let told = String::from_utf8(measured.stdout).unwrap();
    for word in ["file system:", "batch KiB", "p99 us"] {
        assert!(told.contains(word), "{word:?} is missing: {told}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    assert_eq!(probe(&dir.path().join("none")).status.code(), Some(2));
}

#[test]
fn a_sink_is_forgotten_once_and_not_beside_its_server() {
    let data_dir = scratch();
    let drop_sink = |name: &str| {
        let mut command = sluice(["sink", "drop", name, "--data-dir"]);
        command.arg(data_dir.path()).output().unwrap()
    };
    let server = shop::demo(data_dir.path());
    assert_eq!(drop_sink("sql").status.code(), Some(5), "its server runs");
    drop(server);
    assert_eq!(drop_sink("nobody").status.code(), Some(2));
    let dropped = drop_sink("sql");
    assert_eq!(dropped.status.code(), Some(0), "{dropped:?}");
    assert!(String::from_utf8(dropped.stdout).unwrap().contains("no longer kept for sql"));
    assert_eq!(drop_sink("sql").status.code(), Some(2), "it is gone");
    // The next start feeds it again.
    drop(shop::demo(data_dir.path()));
    assert_eq!(drop_sink("sql").status.code(), Some(0));
}

#[test]
fn a_rerun_of_the_demo_keeps_what_an_operator_made_of_its_sku() {
    let data_dir = scratch();
    let server = shop::demo(data_dir.path());
    let admin = shop::admin_token(data_dir.path());
    let sku = json!({"id": 20_001, "title": "another", "price": 1});
    let kept = server.authorized(&admin, "POST", "/api/admin/skus", &[], Some(&sku));
    assert!(kept.status < 300, "{kept:?}");
    drop(server);
    drop(shop::demo(data_dir.path()));
    let query = "SELECT COUNT(*) FROM skus WHERE id = 20001 AND title = 'another' AND price = 1";
    assert_eq!(books::count(data_dir.path(), query), 1);
}
