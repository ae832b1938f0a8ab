//! Where sink and log don't belong together, or SQL holds what it should not, the sink stands
//! still and says why; the sale goes on.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bridge::cursor::Fork;
use bridge::follow::{FollowError, Follower, Step};
use bridge::lag::{Cause, State};
use bridge::sql::SinkError;
use bridge::sql::database::DatabaseStore;
use bridge::sql::schema::{SchemaError, prepare_sqlite};
use bridge::sql::sink::OrderOptions;
use bridge::sql::split::Split;
use bridge::sql::sqlite::connect_options;
use bridge::sql::store::StoreError;
use bridge::{Drained, Options, start};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{Connection as _, SqliteConnection};
use wal::{Epoch, Lsn};

use support::MemoryHost;
use support::check::assert_projected;
use support::history::History;
use support::place::Place;

on_each_database!(
    a_cursor_that_was_tampered_with_is_a_fork,
    a_directory_that_was_rolled_back_or_copied_is_a_fork,
    the_older_of_two_servers_is_fenced_off_and_writes_nothing,
    an_empty_database_needs_the_logs_beginning_or_a_snapshot,
    a_foreign_row_halts_the_sink_which_names_it,
    a_halted_thread_goes_on_once_the_foreign_row_is_moved_aside,
    units_that_somebody_else_changed_halt_the_sink,
    a_reservation_whose_rows_are_gone_halts_the_sink,
    the_equation_is_the_databases_own_rule_too,
    a_foreign_table_beside_ours_is_refused_by_its_name,
    a_newer_or_altered_schema_is_refused,
    the_thread_delivers_drains_and_stops,
    the_thread_halts_on_a_fork_and_says_so,
);

/// Long enough for any machine; nothing waits as long where all is well.
const PATIENCE: Duration = Duration::from_secs(60);

fn url(path: &Path) -> String {
    format!("sqlite:{}", path.display())
}

fn options(path: &Path) -> SqliteConnectOptions {
    connect_options(&url(path)).unwrap()
}

async fn meet<'h>(
    host: &'h MemoryHost,
    place: &Place,
) -> Result<Follower<'h, MemoryHost, DatabaseStore>, FollowError> {
    place.database().prepare(Split::ONE).await.unwrap();
    Follower::meet(host, place.database().store(), OrderOptions::default()).await
}

async fn catch_up(host: &MemoryHost, place: &Place) -> Result<(), FollowError> {
    let mut follower = meet(host, place).await?;
    while follower.step().await? != Step::CaughtUp {}
    Ok(())
}

/// Follows a short history to its end.
async fn followed(place: &Place) -> (MemoryHost, History) {
    let host = MemoryHost::new();
    let mut history = History::new(host.clone(), 21);
    history.run(60);
    catch_up(&host, place).await.unwrap();
    (host, history)
}

async fn fork_of(host: &MemoryHost, place: &Place) -> Fork {
    match catch_up(host, place).await {
        Err(FollowError::Fork(fork)) => fork,
        other => panic!("a fork was expected, not {other:?}"),
    }
}

async fn a_cursor_that_was_tampered_with_is_a_fork(place: Place) {
    let (host, _) = followed(&place).await;
    let set = "UPDATE bridge_cursor SET";
    let untampered = format!(
        "{set} log_uuid = x'{}', epoch = {}, lsn = {}, chain = {}",
        host.identity.uuid,
        place.number("SELECT epoch FROM bridge_cursor").await,
        place.number("SELECT lsn FROM bridge_cursor").await,
        place.number("SELECT chain FROM bridge_cursor").await,
    );
    for (tamper, expected) in [
        (format!("{set} chain = chain + 1"), "chain"),
        (format!("{set} lsn = lsn + 100000"), "beyond"),
        (format!("{set} epoch = epoch + 1"), "epoch"),
        (format!("{set} log_uuid = x'00112233445566778899aabbccddeeff'"), "foreign"),
    ] {
        place.execute(&tamper).await;
        let fork = fork_of(&host, &place).await;
        let agrees = match fork {
            Fork::Chain { .. } => expected == "chain",
            Fork::BeyondEnd { .. } => expected == "beyond",
            Fork::LaterEpoch { .. } => expected == "epoch",
            Fork::ForeignLog { .. } => expected == "foreign",
            Fork::NotAFrameEnd { .. } => false,
        };
        assert!(agrees, "{tamper}: {fork}");
        place.execute(&untampered).await;
        catch_up(&host, &place).await.unwrap();
    }
}

async fn a_directory_that_was_rolled_back_or_copied_is_a_fork(place: Place) {
    let (host, _) = followed(&place).await;
    let copy = host.copied();
    let mut theirs = History::new(MemoryHost::new(), 99);
    theirs.run(5);

    let shorter = host.copied().reopened();
    shorter.roll_back_to(3);
    assert!(matches!(fork_of(&shorter, &place).await, Fork::BeyondEnd { .. }));

    // The copy goes its own way, to beyond where the database stands.
    let mut copied = copy.reopened();
    copied.roll_back_to(copy.frame_count() - 4);
    copied.salt = 0xDEAD;
    for seq in 0..200 {
        let activity = support::history::activity_id(0);
        let body =
            engine::core::event::Body::Published { activity, actor: support::history::ACTOR };
        copied.append(&[(0, 1_000 + seq, engine::core::event::Event { at_ms: 5, body })]);
    }
    let fork = fork_of(&copied, &place).await;
    assert!(matches!(fork, Fork::Chain { .. } | Fork::NotAFrameEnd { .. }), "{fork}");
}

async fn the_older_of_two_servers_is_fenced_off_and_writes_nothing(place: Place) {
    let (host, mut history) = followed(&place).await;
    let mut older = meet(&host, &place).await.unwrap();
    let newer_host = host.reopened();
    let mut newer = meet(&newer_host, &place).await.unwrap();
    history.run(40);
    assert!(matches!(older.step().await, Err(FollowError::Sink(SinkError::CursorMoved))));
    while newer.step().await.unwrap() != Step::CaughtUp {}
    assert_projected(&place, &history).await;
    let fork = fork_of(&host, &place).await;
    assert_eq!(fork, Fork::LaterEpoch { theirs: Epoch(2), ours: Epoch(1) });
}

async fn an_empty_database_needs_the_logs_beginning_or_a_snapshot(place: Place) {
    let (host, _) = followed(&place).await;
    host.retire(2);
    let empty = place.emptied().await;
    let error = catch_up(&host, &empty).await.unwrap_err();
    assert!(matches!(error, FollowError::Halt(_)), "{error}");
    assert!(!error.is_transient());
}

async fn a_foreign_row_halts_the_sink_which_names_it(place: Place) {
    let (host, mut history) = followed(&place).await;
    let before = place.number("SELECT COUNT(*) FROM orders").await;
    let cursor = place.number("SELECT lsn FROM bridge_cursor").await;
    history.run(60);
    let (_, id) = history.reservations[usize::try_from(before).unwrap() + 2];
    let order_no = format!("1{:017}", id.get());
    place
        .execute(&format!(
            "INSERT INTO orders (order_no, user_id, order_type, status, activity_id, \
             purchase_slot, total_amount, pay_amount, expire_at, created_at, updated_at) \
             VALUES ('{order_no}', 1, 'seckill', 'paid', 1, 1, 1, 1, 1, 1, 1)"
        ))
        .await;
    let error = catch_up(&host, &place).await.unwrap_err();
    assert!(!error.is_transient());
    let FollowError::Sink(SinkError::Store(StoreError::Duplicate { row, .. })) = &error else {
        panic!("a duplicate was expected, not {error:?}");
    };
    assert_eq!(row, &format!("orders.order_no = {order_no:?}"));
    assert!(error.to_string().contains(&order_no) && !error.to_string().contains('\n'));

    // Nothing of the failed batch is there; with the row moved aside the sink goes on.
    assert!(place.number("SELECT lsn FROM bridge_cursor").await >= cursor);
    place.execute(&format!("DELETE FROM orders WHERE order_no = '{order_no}'")).await;
    catch_up(&host, &place).await.unwrap();
    assert_projected(&place, &history).await;
}

async fn a_halted_thread_goes_on_once_the_foreign_row_is_moved_aside(place: Place) {
    let (host, mut history) = followed(&place).await;
    history.run(60);
    let count = place.number("SELECT COUNT(*) FROM flashsale_pre_deductions").await;
    let (_, id) = history.reservations[usize::try_from(count).unwrap() + 1];
    place
        .execute(&format!(
            "INSERT INTO orders (order_no, user_id, order_type, status, activity_id, \
             purchase_slot, total_amount, pay_amount, expire_at, created_at, updated_at) \
             VALUES ('1{:017}', 1, 'seckill', 'paid', 1, 1, 1, 1, 1, 1, 1)",
            id.get()
        ))
        .await;
    let options = Options { database_url: place.url(), orders: OrderOptions::default() };
    let bridge = start(Arc::new(host), &options).unwrap();
    let watcher = bridge.watcher();
    let state = state_of(&watcher, |state| matches!(state, State::Halted { .. })).await;
    let State::Halted { why, cause: Cause::Content } = state else { panic!("{state:?}") };
    assert!(why.contains(&format!("1{:017}", id.get())), "{why}");
    place.execute(&format!("DELETE FROM orders WHERE order_no = '1{:017}'", id.get())).await;
    state_of(&watcher, |state| *state == State::Running).await;
    let drained = tokio::task::spawn_blocking(move || bridge.stop(PATIENCE)).await.unwrap();
    assert_eq!(drained, Drained::Yes);
    assert_projected(&place, &history).await;
}

async fn units_that_somebody_else_changed_halt_the_sink(place: Place) {
    let (host, mut history) = followed(&place).await;
    place
        .execute("UPDATE flashsale_activities SET stock = stock + 1, total_stock = total_stock + 1")
        .await;
    history.run(60);
    let error = catch_up(&host, &place).await.unwrap_err();
    assert!(matches!(error, FollowError::Sink(SinkError::FiguresDisagree { .. })), "{error}");
}

async fn a_reservation_whose_rows_are_gone_halts_the_sink(place: Place) {
    let (host, mut history) = followed(&place).await;
    place.execute("DELETE FROM orders").await;
    history.run(60);
    let error = catch_up(&host, &place).await.unwrap_err();
    assert!(matches!(error, FollowError::Sink(SinkError::RowMissing { .. })), "{error}");
}

async fn the_equation_is_the_databases_own_rule_too(place: Place) {
    followed(&place).await;
    for sql in [
        "UPDATE flashsale_activities SET stock = stock + 1",
        "UPDATE flashsale_activities SET stock = -1, total_stock = locked_stock + sold_stock - 1",
        "UPDATE orders SET status = 'lost'",
        "INSERT INTO stock_flows SELECT 'x', sku_id, activity_id, change_type, change_qty, \
         before_qty, after_qty, biz_type, biz_id, remark, created_at FROM stock_flows LIMIT 1",
    ] {
        let error = place.try_execute(sql).await.unwrap_err();
        // In the words of SQLite, MariaDB, MySQL, and of both of these.
        let refused = ["constraint failed", "CONSTRAINT", "is violated", "Duplicate entry"];
        let text = error.to_string();
        assert!(refused.iter().any(|words| text.contains(words)), "{sql}: {text}");
    }
}

#[tokio::test]
async fn a_database_with_foreign_tables_is_refused_untouched() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("theirs.db");
    let create = options(&path).journal_mode(sqlx::sqlite::SqliteJournalMode::Delete);
    let mut connection = SqliteConnection::connect_with(&create).await.unwrap();
    sqlx::raw_sql("CREATE TABLE users (id INTEGER); CREATE TABLE wp_posts (id INTEGER)")
        .execute(&mut connection)
        .await
        .unwrap();
    connection.close().await.unwrap();
    let before = std::fs::read(&path).unwrap();

    let error = prepare_sqlite(&options(&path), Split::ONE).await.unwrap_err();
    let SchemaError::ForeignTables { tables } = &error else { panic!("{error}") };
    assert_eq!(tables, &["users", "wp_posts"]);
    assert!(!error.is_transient());
    assert_eq!(std::fs::read(&path).unwrap(), before, "not a byte was changed");
}

async fn a_foreign_table_beside_ours_is_refused_by_its_name(place: Place) {
    followed(&place).await;
    place.execute("CREATE TABLE notes (id INTEGER)").await;
    let error = place.database().prepare(Split::ONE).await.unwrap_err();
    assert!(matches!(&error, SchemaError::ForeignTables { tables } if tables == &["notes"]));
}

async fn a_newer_or_altered_schema_is_refused(place: Place) {
    followed(&place).await;
    place
        .execute(
            "INSERT INTO _sqlx_migrations \
             (version, description, success, checksum, execution_time) \
             VALUES (9999, 'later', TRUE, x'00', 0)",
        )
        .await;
    let look = || async { place.database().look(Split::ONE).await.unwrap_err() };
    let error = look().await;
    assert!(matches!(error, SchemaError::Newer { version: 9999 }), "{error}");
    let error = place.database().prepare(Split::ONE).await.unwrap_err();
    assert!(matches!(error, SchemaError::Newer { version: 9999 }), "{error}");
    place.execute("DELETE FROM _sqlx_migrations WHERE version = 9999").await;
    place.execute("UPDATE _sqlx_migrations SET checksum = x'00'").await;
    let error = look().await;
    assert!(matches!(error, SchemaError::Altered { version: 1 }), "{error}");
    let error = place.database().prepare(Split::ONE).await.unwrap_err();
    assert!(matches!(error, SchemaError::Altered { version: 1 }), "{error}");
}

async fn state_of(watcher: &bridge::Watcher, wanted: fn(&State) -> bool) -> State {
    let mut states = watcher.subscribe();
    let state = tokio::time::timeout(PATIENCE, states.wait_for(wanted)).await;
    state.unwrap().unwrap().clone()
}

async fn the_thread_delivers_drains_and_stops(place: Place) {
    let host = MemoryHost::new();
    let mut history = History::new(host.clone(), 5);
    let options = Options { database_url: place.url(), orders: OrderOptions::default() };
    let bridge = start(Arc::new(host.clone()), &options).unwrap();
    let watcher = bridge.watcher();
    assert_eq!(watcher.first_contact().await, State::Running);
    history.run(300);
    let drained = tokio::task::spawn_blocking(move || bridge.stop(PATIENCE)).await.unwrap();
    assert_eq!(drained, Drained::Yes);
    assert_eq!(watcher.status().state, State::Stopped);
    assert_projected(&place, &history).await;
}

async fn the_thread_halts_on_a_fork_and_says_so(place: Place) {
    let (host, _) = followed(&place).await;
    host.roll_back_to(2);
    let options = Options { database_url: place.url(), orders: OrderOptions::default() };
    let bridge = start(Arc::new(host), &options).unwrap();
    let state = state_of(&bridge.watcher(), |state| matches!(state, State::Halted { .. })).await;
    assert!(matches!(state, State::Halted { cause: Cause::Fork, .. }));
    let why = bridge.watcher().fork().unwrap();
    assert!(why.contains("rolled back") && !why.contains('\n'), "{why}");
}

#[tokio::test]
async fn a_database_that_is_away_is_asked_again_until_it_is_back() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("not-yet").join("orders.db");
    let host = MemoryHost::new();
    let mut history = History::new(host.clone(), 6);
    history.run(50);
    let options = Options { database_url: url(&path), orders: OrderOptions::default() };
    let bridge = start(Arc::new(host.clone()), &options).unwrap();
    let watcher = bridge.watcher();
    state_of(&watcher, |state| matches!(state, State::Retrying { .. })).await;
    assert!(watcher.status().lag_records > 0 && watcher.fork().is_none());
    std::fs::create_dir(path.parent().unwrap()).unwrap();
    state_of(&watcher, |state| *state == State::Running).await;
    let drained = tokio::task::spawn_blocking(move || bridge.stop(PATIENCE)).await.unwrap();
    assert_eq!(drained, Drained::Yes);
    let directory = std::rc::Rc::new(directory);
    assert_projected(&Place::Sqlite { path, directory }, &history).await;
}

#[tokio::test]
async fn a_stop_without_a_database_ends_at_its_deadline_and_says_what_is_left() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("never").join("orders.db");
    let host = MemoryHost::new();
    let history = History::new(host.clone(), 6);
    let options = Options { database_url: url(&path), orders: OrderOptions::default() };
    let bridge = start(Arc::new(host), &options).unwrap();
    let stop = move || bridge.stop(Duration::from_millis(1));
    let drained = tokio::task::spawn_blocking(stop).await.unwrap();
    let durable = Lsn(history.host.frames.lock().unwrap().end());
    assert_eq!(drained, Drained::No { applied: Lsn(0), durable });
}
