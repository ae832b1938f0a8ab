//! Where sink and log don't belong together, or SQL holds what it should not, the sink stands
//! still and says why; the sale goes on.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bridge::cursor::Fork;
use bridge::follow::{FollowError, Follower, Step};
use bridge::lag::{Cause, State};
use bridge::sql::SinkError;
use bridge::sql::schema::{SchemaError, prepare_sqlite};
use bridge::sql::sqlite::{SqliteStore, connect_options};
use bridge::sql::store::StoreError;
use bridge::{Drained, Options, start};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, Connection as _, SqliteConnection};
use wal::{Epoch, Lsn};

use support::MemoryHost;
use support::check::assert_projected;
use support::faults::url;
use support::history::History;

/// Long enough for any machine; nothing waits as long where all is well.
const PATIENCE: Duration = Duration::from_secs(60);

fn options(path: &Path) -> SqliteConnectOptions {
    connect_options(&url(path)).unwrap()
}

async fn meet<'h>(
    host: &'h MemoryHost,
    path: &Path,
) -> Result<Follower<'h, MemoryHost, SqliteStore>, FollowError> {
    prepare_sqlite(&options(path)).await.unwrap();
    Follower::meet(host, SqliteStore::new(options(path))).await
}

async fn catch_up(host: &MemoryHost, path: &Path) -> Result<(), FollowError> {
    let mut follower = meet(host, path).await?;
    while follower.step().await? != Step::CaughtUp {}
    Ok(())
}

async fn execute(path: &Path, sql: &str) {
    let mut connection = SqliteConnection::connect(&url(path)).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
}

async fn count(path: &Path, sql: &str) -> i64 {
    let mut connection = SqliteConnection::connect(&url(path)).await.unwrap();
    let count = sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    count
}

/// A database that follows a short history to its end.
async fn followed() -> (tempfile::TempDir, PathBuf, MemoryHost, History) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("orders.db");
    let host = MemoryHost::new();
    let mut history = History::new(host.clone(), 21);
    history.run(60);
    catch_up(&host, &path).await.unwrap();
    (directory, path, host, history)
}

async fn fork_of(host: &MemoryHost, path: &Path) -> Fork {
    match catch_up(host, path).await {
        Err(FollowError::Fork(fork)) => fork,
        other => panic!("a fork was expected, not {other:?}"),
    }
}

#[tokio::test]
async fn a_cursor_that_was_tampered_with_is_a_fork() {
    let (_directory, path, host, _) = followed().await;
    let set = "UPDATE bridge_cursor SET";
    let untampered = format!(
        "{set} log_uuid = x'{}', epoch = {}, lsn = {}, chain = {}",
        host.identity.uuid,
        count(&path, "SELECT epoch FROM bridge_cursor").await,
        count(&path, "SELECT lsn FROM bridge_cursor").await,
        count(&path, "SELECT chain FROM bridge_cursor").await,
    );
    for (tamper, expected) in [
        (format!("{set} chain = chain + 1"), "chain"),
        (format!("{set} lsn = lsn + 100000"), "beyond"),
        (format!("{set} epoch = epoch + 1"), "epoch"),
        (format!("{set} log_uuid = x'00112233445566778899aabbccddeeff'"), "foreign"),
    ] {
        execute(&path, &tamper).await;
        let fork = fork_of(&host, &path).await;
        let agrees = match fork {
            Fork::Chain { .. } => expected == "chain",
            Fork::BeyondEnd { .. } => expected == "beyond",
            Fork::LaterEpoch { .. } => expected == "epoch",
            Fork::ForeignLog { .. } => expected == "foreign",
            Fork::NotAFrameEnd { .. } => false,
        };
        assert!(agrees, "{tamper}: {fork}");
        execute(&path, &untampered).await;
        catch_up(&host, &path).await.unwrap();
    }
}

#[tokio::test]
async fn a_directory_that_was_rolled_back_or_copied_is_a_fork() {
    let (_directory, path, host, _) = followed().await;
    let copy = host.copied();
    let mut theirs = History::new(MemoryHost::new(), 99);
    theirs.run(5);

    let shorter = host.copied().reopened();
    shorter.roll_back_to(3);
    assert!(matches!(fork_of(&shorter, &path).await, Fork::BeyondEnd { .. }));

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
    let fork = fork_of(&copied, &path).await;
    assert!(matches!(fork, Fork::Chain { .. } | Fork::NotAFrameEnd { .. }), "{fork}");
}

#[tokio::test]
async fn the_older_of_two_servers_is_fenced_off_and_writes_nothing() {
    let (_directory, path, host, mut history) = followed().await;
    let mut older = meet(&host, &path).await.unwrap();
    let newer_host = host.reopened();
    let mut newer = meet(&newer_host, &path).await.unwrap();
    history.run(40);
    assert!(matches!(older.step().await, Err(FollowError::Sink(SinkError::CursorMoved))));
    while newer.step().await.unwrap() != Step::CaughtUp {}
    assert_projected(&path, &history).await;
    let fork = fork_of(&host, &path).await;
    assert_eq!(fork, Fork::LaterEpoch { theirs: Epoch(2), ours: Epoch(1) });
}

#[tokio::test]
async fn an_empty_database_needs_the_logs_beginning() {
    let (directory, _, host, _) = followed().await;
    host.retire(2);
    let empty = directory.path().join("empty.db");
    let error = catch_up(&host, &empty).await.unwrap_err();
    assert!(matches!(error, FollowError::Halt(_)), "{error}");
    assert!(!error.is_transient());
}

#[tokio::test]
async fn a_foreign_row_halts_the_sink_which_names_it() {
    let (_directory, path, host, mut history) = followed().await;
    let before = count(&path, "SELECT COUNT(*) FROM orders").await;
    let cursor = count(&path, "SELECT lsn FROM bridge_cursor").await;
    history.run(60);
    let (_, id) = history.reservations[usize::try_from(before).unwrap() + 2];
    let order_no = format!("1{:017}", id.get());
    execute(
        &path,
        &format!(
            "INSERT INTO orders (order_no, user_id, order_type, status, activity_id, \
             purchase_slot, total_amount, pay_amount, expire_at, created_at, updated_at) \
             VALUES ('{order_no}', 1, 'seckill', 'paid', 1, 1, 1, 1, 1, 1, 1)"
        ),
    )
    .await;
    let error = catch_up(&host, &path).await.unwrap_err();
    assert!(!error.is_transient());
    let FollowError::Sink(SinkError::Store(StoreError::Duplicate { row, .. })) = &error else {
        panic!("a duplicate was expected, not {error:?}");
    };
    assert_eq!(row, &format!("orders.order_no = {order_no:?}"));
    assert!(error.to_string().contains(&order_no) && error.to_string().contains("UNIQUE"));

    // Nothing of the failed batch is there; with the row moved aside the sink goes on.
    assert!(count(&path, "SELECT lsn FROM bridge_cursor").await >= cursor);
    execute(&path, &format!("DELETE FROM orders WHERE order_no = '{order_no}'")).await;
    catch_up(&host, &path).await.unwrap();
    assert_projected(&path, &history).await;
}

#[tokio::test]
async fn units_that_somebody_else_changed_halt_the_sink() {
    let (_directory, path, host, mut history) = followed().await;
    execute(
        &path,
        "UPDATE flashsale_activities SET stock = stock + 1, total_stock = total_stock + 1",
    )
    .await;
    history.run(60);
    let error = catch_up(&host, &path).await.unwrap_err();
    assert!(matches!(error, FollowError::Sink(SinkError::FiguresDisagree { .. })), "{error}");
}

#[tokio::test]
async fn a_reservation_whose_rows_are_gone_halts_the_sink() {
    let (_directory, path, host, mut history) = followed().await;
    execute(&path, "DELETE FROM orders").await;
    history.run(60);
    let error = catch_up(&host, &path).await.unwrap_err();
    assert!(matches!(error, FollowError::Sink(SinkError::RowMissing { .. })), "{error}");
}

#[tokio::test]
async fn the_equation_is_the_databases_own_rule_too() {
    let (_directory, path, ..) = followed().await;
    let mut connection = SqliteConnection::connect(&url(&path)).await.unwrap();
    for sql in [
        "UPDATE flashsale_activities SET stock = stock + 1",
        "UPDATE flashsale_activities SET stock = -1, total_stock = locked_stock + sold_stock - 1",
        "UPDATE orders SET status = 'lost'",
        "INSERT INTO stock_flows SELECT 'x', sku_id, activity_id, change_type, change_qty, \
         before_qty, after_qty, biz_type, biz_id, remark, created_at FROM stock_flows LIMIT 1",
    ] {
        let error = sqlx::raw_sql(sql).execute(&mut connection).await.unwrap_err();
        assert!(error.to_string().contains("constraint failed"), "{sql}: {error}");
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

    let error = prepare_sqlite(&options(&path)).await.unwrap_err();
    let SchemaError::ForeignTables { tables } = &error else { panic!("{error}") };
    assert_eq!(tables, &["users", "wp_posts"]);
    assert!(!error.is_transient());
    assert_eq!(std::fs::read(&path).unwrap(), before, "not a byte was changed");
}

#[tokio::test]
async fn a_foreign_table_beside_ours_is_refused_by_its_name() {
    let (_directory, path, ..) = followed().await;
    execute(&path, "CREATE TABLE notes (id INTEGER)").await;
    let error = prepare_sqlite(&options(&path)).await.unwrap_err();
    assert!(matches!(&error, SchemaError::ForeignTables { tables } if tables == &["notes"]));
}

#[tokio::test]
async fn a_newer_or_altered_schema_is_refused() {
    let (_directory, path, ..) = followed().await;
    execute(
        &path,
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
         VALUES (9999, 'later', TRUE, x'00', 0)",
    )
    .await;
    let error = prepare_sqlite(&options(&path)).await.unwrap_err();
    assert!(matches!(error, SchemaError::Newer { version: 9999 }), "{error}");
    execute(&path, "DELETE FROM _sqlx_migrations WHERE version = 9999").await;
    execute(&path, "UPDATE _sqlx_migrations SET checksum = x'00'").await;
    let error = prepare_sqlite(&options(&path)).await.unwrap_err();
    assert!(matches!(error, SchemaError::Altered { version: 1 }), "{error}");
}

async fn state_of(watcher: &bridge::Watcher, wanted: fn(&State) -> bool) -> State {
    let mut states = watcher.subscribe();
    let state = tokio::time::timeout(PATIENCE, states.wait_for(wanted)).await;
    state.unwrap().unwrap().clone()
}

#[tokio::test]
async fn the_thread_delivers_drains_and_stops() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("orders.db");
    let host = MemoryHost::new();
    let mut history = History::new(host.clone(), 5);
    let options = Options { database_url: url(&path) };
    let bridge = start(Arc::new(host.clone()), &options).unwrap();
    let watcher = bridge.watcher();
    assert_eq!(watcher.first_contact().await, State::Running);
    history.run(300);
    let drained = tokio::task::spawn_blocking(move || bridge.stop(PATIENCE)).await.unwrap();
    assert_eq!(drained, Drained::Yes);
    assert_eq!(watcher.status().state, State::Stopped);
    assert_projected(&path, &history).await;
}

#[tokio::test]
async fn the_thread_halts_on_a_fork_and_says_so() {
    let (_directory, path, host, _) = followed().await;
    host.roll_back_to(2);
    let options = Options { database_url: url(&path) };
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
    let options = Options { database_url: url(&path) };
    let bridge = start(Arc::new(host.clone()), &options).unwrap();
    let watcher = bridge.watcher();
    state_of(&watcher, |state| matches!(state, State::Retrying { .. })).await;
    assert!(watcher.status().lag_records > 0 && watcher.fork().is_none());
    std::fs::create_dir(path.parent().unwrap()).unwrap();
    state_of(&watcher, |state| *state == State::Running).await;
    let drained = tokio::task::spawn_blocking(move || bridge.stop(PATIENCE)).await.unwrap();
    assert_eq!(drained, Drained::Yes);
    assert_projected(&path, &history).await;
}

#[tokio::test]
async fn a_stop_without_a_database_ends_at_its_deadline_and_says_what_is_left() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("never").join("orders.db");
    let host = MemoryHost::new();
    let history = History::new(host.clone(), 6);
    let options = Options { database_url: url(&path) };
    let bridge = start(Arc::new(host), &options).unwrap();
    let stop = move || bridge.stop(Duration::from_millis(1));
    let drained = tokio::task::spawn_blocking(stop).await.unwrap();
    let durable = Lsn(history.host.frames.lock().unwrap().end());
    assert_eq!(drained, Drained::No { applied: Lsn(0), durable });
}
