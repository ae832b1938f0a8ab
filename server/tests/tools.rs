//! The tools that work on a directory of their own accord: each leaves behind what it says, and is
//! told off by a server that has the directory.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
#[path = "common/shop.rs"]
mod shop;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use common::sluice;
use shop::scratch;

const OK: i32 = 0;
const USAGE: i32 = 2;
const LOCKED: i32 = 5;

/// Exit code, standard output and standard error of a command on `data_dir`.
fn run(words: &[&str], data_dir: &Path) -> (i32, String, String) {
    let output = sluice(words).arg("--data-dir").arg(data_dir).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn paths(dir: &Path) -> BTreeSet<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|it| if it.is_dir() { paths(&it) } else { BTreeSet::from([it]) }).collect()
}

/// Each is one line on standard error, with this exit code.
fn assert_refused(words: &[&str], data_dir: &Path, code: i32) {
    let (ended, told, errors) = run(words, data_dir);
    assert_eq!((ended, errors.lines().count()), (code, 1), "{words:?}: {told}{errors}");
}

#[test]
fn what_changes_a_directory_is_refused_while_a_server_has_it_and_where_there_is_none() {
    let data_dir = scratch();
    let server = shop::demo(data_dir.path());
    let before = paths(data_dir.path());
    let tools: [&[&str]; 3] = [
        &["upgrade", "--finalize"],
        &["sink", "drop", "orders"],
        &["repair", "--accept-loss-from=1"],
    ];
    for words in tools {
        assert_refused(words, data_dir.path(), LOCKED);
    }
    assert_eq!(paths(data_dir.path()), before);
    drop(server);
    let nothing = scratch();
    for words in tools {
        assert_refused(words, nothing.path(), USAGE);
        assert!(paths(nothing.path()).is_empty(), "{words:?}");
    }
}

#[test]
fn a_sink_that_is_dropped_is_registered_anew_by_the_next_start_and_an_unknown_one_is_named() {
    let data_dir = scratch();
    assert!(shop::demo(data_dir.path()).stop().success());
    let sink = {
        let server = shop::demo(data_dir.path());
        let metrics = server.call("GET", "/metrics", &[], "").body;
        let (_, rest) = metrics.split_once("sluice_sink_confirmed_lsn{sink=\"").unwrap();
        rest.split('"').next().unwrap().to_owned()
    };
    let (code, told, _) = run(&["sink", "drop", &sink], data_dir.path());
    assert!(code == OK && told.contains(&sink), "{told}");
    let (code, _, errors) = run(&["sink", "drop", &sink], data_dir.path());
    assert!(code == USAGE && errors.contains(&sink), "{errors}");
    let server = shop::demo(data_dir.path());
    assert!(server.call("GET", "/metrics", &[], "").body.contains(&format!("sink=\"{sink}\"")));
}

/// There is one format so far: nothing to finalize, and the directory is served as before.
#[test]
fn an_upgrade_asks_for_its_word_and_changes_nothing_where_there_is_nothing_newer() {
    let data_dir = scratch();
    assert!(shop::demo(data_dir.path()).stop().success());
    let control = fs::read(data_dir.path().join("CONTROL")).unwrap();
    let (code, _, errors) = run(&["upgrade"], data_dir.path());
    assert!(code == USAGE && errors.contains("--finalize"), "{errors}");
    let (code, told, _) = run(&["upgrade", "--finalize"], data_dir.path());
    assert!(code == OK && told.contains("nothing was changed"), "{told}");
    assert_eq!(fs::read(data_dir.path().join("CONTROL")).unwrap(), control);
    drop(shop::demo(data_dir.path()));
}

#[test]
fn a_probe_tells_what_each_size_of_write_costs_beside_a_server_and_leaves_nothing() {
    let data_dir = scratch();
    let _server = shop::demo(data_dir.path());
    let probes = || paths(data_dir.path()).into_iter().filter(|it| it.ends_with("probe.tmp"));
    let (code, told, errors) = run(&["check", "--probe"], data_dir.path());
    assert_eq!(code, OK, "{errors}");
    let rows = told.lines().filter(|line| line.starts_with("through cache"));
    let sizes: Vec<&str> = rows.map(|row| row.split_whitespace().nth(2).unwrap()).collect();
    assert_eq!(sizes, ["4", "16", "64", "256", "1024"], "{told}");
    assert_eq!(probes().count(), 0);
}
