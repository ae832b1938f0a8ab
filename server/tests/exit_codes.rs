//! A data directory that can't be used: one line that says what and what to do, the exit code of
//! the contract, and not a byte changed on disk.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
#[path = "common/shop.rs"]
mod shop;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Output;

use sqlx::Connection as _;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use tempfile::TempDir;

use common::{sluice, wait};
use shop::{Click, Connection, Outcome, Shop, scratch};

const ACTIVITY: u64 = 30_001;
const BLOCK: usize = 4096;
const FRAME_HEADER: usize = 64;

/// Exit codes of the contract.
const DAMAGE_FOUND: i32 = 1;
const USAGE: i32 = 2;
const REFUSED: i32 = 3;
const LOCKED: i32 = 5;

/// A user that owns nothing: permissions bind it even where the tests run as root.
const NOBODY: u32 = 65_534;

/// A data directory in which `purchases` units were sold one after another, so that the log has
/// at least as many frames; ended by SIGKILL.
fn sold(purchases: usize) -> TempDir {
    let data_dir = scratch();
    sell(data_dir.path(), 1, purchases);
    data_dir
}

/// Users from `first_user` on buy one unit each.
fn sell(data_dir: &Path, first_user: u64, purchases: usize) {
    let server = shop::demo(data_dir);
    let shop = Shop::new(server.address, ACTIVITY, shop::tokens(data_dir, first_user, purchases));
    let mut connection = Connection::new(server.address);
    for shopper in 0..purchases {
        let click = Click { shopper, request_id: "once".to_owned() };
        let told = shop.click(&click, &mut connection);
        let Outcome::Accepted { reservation, .. } = told.outcome else { panic!("{told:?}") };
        if shopper + 1 == purchases {
            // The orders know of all: a log that lost some of them then contradicts them.
            let path = format!("/api/flashsales/purchases/{reservation}?wait=5s");
            assert_eq!(shop.get(&path, &shop.tokens[shopper])["status"], "ordered");
        }
    }
}

/// What a start on `data_dir` ends with. It must end by itself.
fn serve(data_dir: &Path) -> Output {
    let mut command = sluice(["serve", "--listen", "127.0.0.1:0", "--data-dir"]);
    let mut child = command.arg(data_dir).spawn().unwrap();
    wait(&mut child);
    child.wait_with_output().unwrap()
}

/// Asserts the exit code and one line on stderr that holds all of `words`.
fn assert_refused(output: &Output, code: i32, words: &[&str]) {
    let errors = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(output.status.code(), Some(code), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    for word in words {
        assert!(errors.contains(word), "{word:?} is missing: {errors}");
    }
}

/// Asserts that a start on `data_dir` is refused, and that it leaves everything as it was.
fn assert_refused_untouched(data_dir: &Path, code: i32, words: &[&str]) {
    let before = tree(data_dir);
    assert_refused(&serve(data_dir), code, words);
    let after = tree(data_dir);
    let changed: Vec<_> = before
        .keys()
        .chain(after.keys())
        .filter(|path| before.get(*path) != after.get(*path))
        .collect();
    assert!(changed.is_empty(), "changed on disk: {changed:?}");
}

/// A file's mode and content; a directory's mode alone. The memory that readers of a SQLite
/// database share is no content: whoever opens one makes it anew.
type Node = (u32, Option<Vec<u8>>);

fn tree(root: &Path) -> BTreeMap<PathBuf, Node> {
    let mut nodes = BTreeMap::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(path) = open.pop() {
        let metadata = fs::metadata(&path).unwrap();
        if path.to_string_lossy().ends_with("-shm") {
            continue;
        }
        let content = metadata.is_file().then(|| fs::read(&path).unwrap());
        if metadata.is_dir() {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        nodes.insert(path, (metadata.mode(), content));
    }
    nodes
}

/// The log's segments, oldest first.
fn segments(data_dir: &Path) -> Vec<PathBuf> {
    let mut segments: Vec<_> = fs::read_dir(data_dir.join("wal"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("seg-"))
        .collect();
    segments.sort();
    assert!(!segments.is_empty());
    segments
}

fn edit(path: &Path, edit: impl FnOnce(&mut [u8])) {
    let mut bytes = fs::read(path).unwrap();
    edit(&mut bytes);
    fs::write(path, bytes).unwrap();
}

/// Damages the payload of the first frame, long acknowledged and followed by others.
fn flip_acknowledged_byte(segment: &Path) {
    edit(segment, |bytes| bytes[BLOCK + FRAME_HEADER + 20] ^= 0x40);
}

#[test]
fn damage_before_the_last_frame_is_refused_with_file_and_offset() {
    let data_dir = sold(5);
    let segment = segments(data_dir.path()).remove(0);
    flip_acknowledged_byte(&segment);
    let file = segment.file_name().unwrap().to_str().unwrap();
    assert_refused_untouched(data_dir.path(), REFUSED, &[file, "4096", "LSN"]);

    let check = sluice(["check", "--data-dir"]).arg(data_dir.path()).output().unwrap();
    assert_eq!(check.status.code(), Some(DAMAGE_FOUND));
    assert!(String::from_utf8_lossy(&check.stderr).contains(file));
}

/// `sluice repair` with `arguments`.
fn repair(data_dir: &Path, arguments: &[&str]) -> Output {
    sluice(["repair", "--data-dir"]).arg(data_dir).args(arguments).output().unwrap()
}

#[test]
fn a_damaged_end_is_given_up_on_its_operators_word_alone() {
    let data_dir = sold(5);
    let segment = segments(data_dir.path()).remove(0);
    // The fourth frame: the sale was made and published before it.
    edit(&segment, |bytes| bytes[4 * BLOCK + FRAME_HEADER + 20] ^= 0x40);
    let errors = String::from_utf8(serve(data_dir.path()).stderr).unwrap();
    let (_, lsn) = errors.split_once("--accept-loss-from ").expect("the way out is named");
    let lsn: u64 = lsn.trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap();
    let before = tree(data_dir.path());
    let other = repair(data_dir.path(), &["--accept-loss-from", &(lsn + 1).to_string()]);
    assert_refused(&other, USAGE, &["LSN", &lsn.to_string()]);
    let lsn = lsn.to_string();
    let dry = repair(data_dir.path(), &["--accept-loss-from", &lsn, "--dry-run"]);
    let told = String::from_utf8(dry.stdout).unwrap();
    assert!(dry.status.success() && told.contains("would be given up"), "{told}");
    assert!(before == tree(data_dir.path()), "changed on disk");

    let done = repair(data_dir.path(), &["--accept-loss-from", &lsn]);
    let told = String::from_utf8(done.stdout).unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    for word in ["given up: LSN", "Reserved", "activity 30001", "reservations:", "quarantine"] {
        assert!(told.contains(word), "{word:?} is missing: {told}");
    }
    let kept =
        data_dir.path().join(format!("quarantine/repair-{:016x}", lsn.parse::<u64>().unwrap()));
    assert_eq!(before[&segment].1, tree(&kept)[&kept.join(segment.file_name().unwrap())].1);
    let check = sluice(["check", "--data-dir"]).arg(data_dir.path()).output().unwrap();
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));

    // The orders know what the log no longer does.
    let output = serve(data_dir.path());
    assert_eq!(output.status.code(), Some(REFUSED));
    for name in orders_files(data_dir.path()) {
        fs::remove_file(data_dir.path().join(name)).unwrap();
    }
    sell(data_dir.path(), 100, 3);
}

#[test]
fn a_missing_segment_is_refused() {
    let data_dir = sold(2);
    sell(data_dir.path(), 11, 1);
    sell(data_dir.path(), 21, 1);
    let segments = segments(data_dir.path());
    assert!(segments.len() >= 3, "every start opens a segment: {segments:?}");
    fs::remove_file(&segments[1]).unwrap();
    assert_refused_untouched(data_dir.path(), REFUSED, &["seg"]);
}

#[test]
fn a_log_cut_back_below_what_a_clean_end_recorded_is_refused() {
    let data_dir = scratch();
    let mut server = shop::demo(data_dir.path());
    assert!(server.stop().success());
    let last = segments(data_dir.path()).pop().unwrap();
    edit(&last, |bytes| bytes[BLOCK..].fill(0));
    assert_refused_untouched(data_dir.path(), REFUSED, &["offset", "backup"]);
}

#[test]
fn a_segment_of_another_log_is_refused() {
    let (ours, theirs) = (sold(3), sold(3));
    let segment = segments(ours.path()).remove(0);
    fs::copy(segments(theirs.path()).remove(0), segment).unwrap();
    assert_refused_untouched(ours.path(), REFUSED, &["seg"]);
}

#[test]
fn a_segment_cut_short_and_two_that_changed_places_are_refused() {
    let data_dir = sold(2);
    sell(data_dir.path(), 11, 1);
    sell(data_dir.path(), 21, 1);
    let segments = segments(data_dir.path());
    let contents: Vec<_> = segments.iter().map(|path| fs::read(path).unwrap()).collect();
    for (segment, content) in segments.iter().zip(&contents) {
        let file = segment.file_name().unwrap().to_str().unwrap();
        for bytes in [0, BLOCK, content.len() / 2, content.len() - 1] {
            fs::write(segment, &content[..bytes]).unwrap();
            assert_refused_untouched(data_dir.path(), REFUSED, &[file]);
        }
        fs::write(segment, content).unwrap();
    }
    fs::write(&segments[0], &contents[1]).unwrap();
    fs::write(&segments[1], &contents[0]).unwrap();
    assert_refused_untouched(data_dir.path(), REFUSED, &["seg"]);
}

#[test]
fn half_a_copy_of_a_directory_is_refused() {
    let data_dir = sold(2);
    sell(data_dir.path(), 11, 1);
    let whole = tree(data_dir.path());
    let newest = segments(data_dir.path()).pop().unwrap();
    for left_out in [newest, data_dir.path().join("CONTROL")] {
        let content = whole[&left_out].1.as_ref().unwrap();
        fs::remove_file(&left_out).unwrap();
        let file = left_out.file_name().unwrap().to_str().unwrap();
        assert_refused_untouched(data_dir.path(), REFUSED, &[file]);
        fs::write(&left_out, content).unwrap();
    }
}

/// What is mounted goes with the process, so that it is listed before its end.
#[test]
fn a_file_system_in_memory_is_refused_and_left_empty() {
    let dir = scratch();
    let script = r#"mount -t tmpfs tmpfs "$1" || exit
        "$2" serve --demo --listen 127.0.0.1:0 --data-dir "$1"; code=$?
        ls -A "$1"; exit $code"#;
    let mut command = std::process::Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--mount", "sh", "-c", script, "sh"]).arg(dir.path());
    let output = command.arg(env!("CARGO_BIN_EXE_sluice")).output().unwrap();
    assert_refused(&output, REFUSED, &["memory", "--accept-file-system"]);
    let listed = String::from_utf8(output.stdout).unwrap();
    assert!(listed.lines().all(|line| line.starts_with("listening on")), "{listed}");
}

#[test]
fn a_control_file_that_is_none_is_refused() {
    let data_dir = sold(1);
    edit(&data_dir.path().join("CONTROL"), |bytes| bytes.fill(b'x'));
    assert_refused_untouched(data_dir.path(), REFUSED, &["CONTROL"]);
}

#[test]
fn a_control_file_of_another_log_and_one_cut_short_are_refused() {
    let (ours, theirs) = (sold(1), sold(1));
    let control = ours.path().join("CONTROL");
    let content = fs::read(&control).unwrap();
    fs::copy(theirs.path().join("CONTROL"), &control).unwrap();
    assert_refused_untouched(ours.path(), REFUSED, &["another log"]);
    for bytes in [0, 100] {
        fs::write(&control, &content[..bytes]).unwrap();
        assert_refused_untouched(ours.path(), REFUSED, &["CONTROL"]);
    }
}

/// Even for root: what is mounted goes with the process.
#[test]
fn a_file_system_that_takes_no_writes_is_refused() {
    let data_dir = sold(1);
    let before = tree(data_dir.path());
    let script = r#"mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" || exit 9
        exec "$2" serve --demo --listen 127.0.0.1:0 --data-dir "$1""#;
    let mut command = std::process::Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--mount", "sh", "-c", script, "sh"]).arg(data_dir.path());
    let output = command.arg(env!("CARGO_BIN_EXE_sluice")).output().unwrap();
    assert_refused(&output, REFUSED, &["ead-only"]);
    assert!(before == tree(data_dir.path()), "changed on disk");
}

#[test]
fn a_newer_format_is_refused_by_its_version() {
    let data_dir = sold(3);
    let segment = segments(data_dir.path()).remove(0);
    edit(&segment, |bytes| {
        bytes[8..10].copy_from_slice(&9_u16.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..124]);
        bytes[124..128].copy_from_slice(&crc.to_le_bytes());
    });
    assert_refused_untouched(data_dir.path(), REFUSED, &["9", "version"]);
}

#[test]
fn a_newer_control_file_is_refused_by_its_version() {
    let data_dir = sold(1);
    edit(&data_dir.path().join("CONTROL"), |bytes| {
        for slot in bytes.chunks_exact_mut(BLOCK) {
            slot[8..12].copy_from_slice(&9_u32.to_le_bytes());
            let crc = crc32fast::hash(&slot[..BLOCK - 4]);
            slot[BLOCK - 4..].copy_from_slice(&crc.to_le_bytes());
        }
    });
    assert_refused_untouched(data_dir.path(), REFUSED, &["9", "version"]);
}

#[test]
fn a_directory_rolled_back_under_its_orders_is_refused() {
    let data_dir = sold(1);
    let older = scratch();
    copy(data_dir.path(), older.path());
    sell(data_dir.path(), 7, 1);
    give_orders(data_dir.path(), older.path());
    assert_refused_untouched(older.path(), REFUSED, &["rolled back"]);
}

#[test]
fn a_directory_beside_the_orders_of_another_is_refused() {
    let (ours, theirs) = (sold(1), scratch());
    let mut server = shop::demo(theirs.path());
    assert!(server.stop().success());
    // A database without a WAL: looking at it makes none.
    let options = SqliteConnectOptions::new().filename(theirs.path().join("orders.db"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let mut last = SqliteConnection::connect_with(&options).await.unwrap();
        sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(&mut last).await.unwrap();
        last.close().await.unwrap();
    });
    assert_eq!(orders_files(theirs.path()), ["orders.db"]);
    give_orders(theirs.path(), ours.path());
    assert_refused_untouched(ours.path(), REFUSED, &["follows log", "its own database"]);
}

#[test]
fn a_copy_that_went_on_by_itself_is_refused_beside_the_orders_of_the_other() {
    let data_dir = sold(1);
    let copied = scratch();
    copy(data_dir.path(), copied.path());
    sell(data_dir.path(), 7, 1);
    // Longer, and of a later run: only what lies at the place of the cursor tells.
    sell(copied.path(), 17, 3);
    sell(copied.path(), 27, 3);
    give_orders(data_dir.path(), copied.path());
    assert_refused_untouched(copied.path(), REFUSED, &["another history"]);
}

/// Gives `to` the order database of `from` in place of its own.
fn give_orders(from: &Path, to: &Path) {
    for name in orders_files(to) {
        fs::remove_file(to.join(name)).unwrap();
    }
    for name in orders_files(from) {
        fs::copy(from.join(&name), to.join(&name)).unwrap();
    }
}

fn orders_files(data_dir: &Path) -> Vec<String> {
    fs::read_dir(data_dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("orders.db"))
        .collect()
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let (path, target) = {
            let entry = entry.unwrap();
            (entry.path(), to.join(entry.file_name()))
        };
        if path.is_dir() {
            fs::create_dir_all(&target).unwrap();
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}

#[test]
fn an_order_database_of_another_build_is_refused_before_anything_is_written() {
    let data_dir = sold(1);
    let options = SqliteConnectOptions::new().filename(data_dir.path().join("orders.db"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let change = |sql: &'static str| {
        runtime.block_on(async {
            let mut theirs = SqliteConnection::connect_with(&options).await.unwrap();
            sqlx::query(sql).execute(&mut theirs).await.unwrap();
            theirs.close().await.unwrap();
        });
    };
    // As a build would find it that knows one migration less, or this one in another form.
    change(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
         VALUES (9999, 'later', TRUE, x'00', 0)",
    );
    assert_refused_untouched(data_dir.path(), REFUSED, &["orders.db", "9999", "newer Sluice"]);
    change("DELETE FROM _sqlx_migrations WHERE version = 9999");
    change("UPDATE _sqlx_migrations SET checksum = x'00'");
    assert_refused_untouched(data_dir.path(), REFUSED, &["orders.db", "migration 1", "backup"]);
}

#[test]
fn orders_spread_over_other_tables_are_refused_before_anything_is_written() {
    let data_dir = sold(1);
    let before = tree(data_dir.path());
    let mut command = sluice(["serve", "--listen", "127.0.0.1:0", "--data-dir"]);
    let mut child = command.arg(data_dir.path()).env("SLUICE_ORDERS__SPLIT", "3").spawn().unwrap();
    wait(&mut child);
    let output = child.wait_with_output().unwrap();
    assert_refused(&output, REFUSED, &["orders.db", "orders.split is 3"]);
    assert!(before == tree(data_dir.path()), "changed on disk");
}

#[test]
fn an_order_database_of_somebody_else_is_refused_and_left_as_it_is() {
    let data_dir = sold(1);
    for name in orders_files(data_dir.path()) {
        fs::remove_file(data_dir.path().join(name)).unwrap();
    }
    let database = data_dir.path().join("orders.db");
    let options = SqliteConnectOptions::new().filename(&database).create_if_missing(true);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let mut theirs = SqliteConnection::connect_with(&options).await.unwrap();
        sqlx::query("CREATE TABLE theirs (x)").execute(&mut theirs).await.unwrap();
        theirs.close().await.unwrap();
    });
    assert_refused_untouched(data_dir.path(), REFUSED, &["orders.db", "theirs"]);
}

#[test]
fn a_second_server_is_told_that_the_directory_is_locked() {
    let data_dir = scratch();
    let server = shop::demo(data_dir.path());
    assert_refused(&serve(data_dir.path()), LOCKED, &["in use", "stop"]);
    let shop = Shop::new(server.address, ACTIVITY, shop::tokens(data_dir.path(), 1, 1));
    let click = Click { shopper: 0, request_id: "undisturbed".to_owned() };
    let told = shop.click(&click, &mut Connection::new(server.address));
    assert!(matches!(told.outcome, Outcome::Accepted { .. }), "{told:?}");
}

#[test]
fn a_path_that_is_no_directory_is_refused() {
    let dir = scratch();
    let file = dir.path().join("file");
    fs::write(&file, "precious").unwrap();
    let output = serve(&file);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(USAGE | REFUSED)), "{errors}");
    assert_refused(&output, output.status.code().unwrap(), &["file"]);
    assert_eq!(fs::read(&file).unwrap(), b"precious");
}

#[test]
fn a_directory_of_something_else_is_refused() {
    let dir = scratch();
    fs::create_dir(dir.path().join("wal")).unwrap();
    fs::write(dir.path().join("wal/seg-0000000000000001.log"), "somebody's own log").unwrap();
    assert_refused_untouched(dir.path(), REFUSED, &["CONTROL"]);
}

#[test]
fn a_read_only_directory_is_refused() {
    let data_dir = sold(1);
    let before = tree(data_dir.path());
    let read_only = |mode| {
        for (path, _) in before.iter().filter(|(path, _)| path.is_dir()) {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
    };
    read_only(0o555);
    let mut command = sluice(["serve", "--listen", "127.0.0.1:0", "--data-dir"]);
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    let mut child = command.arg(data_dir.path()).spawn().unwrap();
    wait(&mut child);
    let output = child.wait_with_output().unwrap();
    read_only(0o700);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(USAGE | REFUSED)), "{errors}");
    assert_refused(&output, output.status.code().unwrap(), &["ermission"]);
    let content = |tree: &BTreeMap<PathBuf, Node>| -> BTreeMap<PathBuf, Option<Vec<u8>>> {
        tree.iter().map(|(path, node)| (path.clone(), node.1.clone())).collect()
    };
    assert!(content(&before) == content(&tree(data_dir.path())), "changed on disk");
}
