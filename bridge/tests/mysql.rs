//! What only a database server does: it dies while others live, refuses accounts, is read only.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bridge::follow::{Follower, Step};
use bridge::lag::State;
use bridge::sql::accounts::{Accounts, Sku};
use bridge::sql::database::Database;
use bridge::sql::queries::Queries;
use bridge::sql::schema::SchemaError;
use bridge::sql::sink::OrderOptions;
use bridge::sql::split::Split;
use bridge::sql::store::StoreError;
use bridge::{Drained, Options, start};
use engine::core::ids::SkuId;

use support::check::assert_projected;
use support::faults::{Fault, SharedPlan};
use support::follow::follow;
use support::history::History;
use support::mariadb::MariaDb;
use support::place::Place;
use support::{MemoryHost, Random};

/// Long enough for any machine; nothing waits as long where all is well.
const PATIENCE: Duration = Duration::from_secs(120);

async fn catch_up(host: &MemoryHost, place: &Place) {
    let mut follower =
        Follower::meet(host, place.database().store(), OrderOptions::default()).await.unwrap();
    while follower.step().await.unwrap() != Step::CaughtUp {}
}

async fn refusal(url: &str) -> SchemaError {
    Database::at(url).unwrap().prepare(Split::ONE).await.unwrap_err()
}

/// The error is one line with `words` in it.
fn says(error: &impl ToString, words: &str) {
    let text = error.to_string();
    assert!(text.contains(words) && !text.contains('\n'), "{words}: {text}");
}

#[tokio::test]
async fn a_server_killed_within_transactions_loses_and_doubles_nothing() {
    let mut place = Place::mariadb().await;
    let host = MemoryHost::new();
    let mut history = History::new(host.clone(), 31);
    let mut random = Random::new(32);
    let plan = SharedPlan::default();
    let mut failures = 0;
    for round in 0..10 {
        history.run(40);
        let fault = [Fault::ServerKilled, Fault::ServerKilledAfter][round % 2];
        plan.borrow_mut().next = Some((random.below(25), fault));
        failures += follow(&host, &mut place, &plan, &mut random).await;
    }
    plan.borrow_mut().next = None;
    follow(&host, &mut place, &plan, &mut random).await;
    assert!(failures >= 5, "servers were killed within batches, {failures} times");
    assert_projected(&place, &history).await;
}

#[tokio::test]
async fn the_thread_outlives_its_server_and_catches_up() {
    let server = Rc::new(MariaDb::start());
    let place = Place::on(&server, "orders").await;
    let host = MemoryHost::new();
    let mut history = History::new(host.clone(), 7);
    let options = Options { database_url: place.url(), orders: OrderOptions::default() };
    let bridge = start(Arc::new(host.clone()), &options).unwrap();
    let mut states = bridge.watcher().subscribe();
    states.wait_for(|state| *state == State::Running).await.unwrap();
    for _ in 0..2 {
        server.kill();
        history.run(200);
        let retrying = |state: &State| matches!(state, State::Retrying { .. });
        tokio::time::timeout(PATIENCE, states.wait_for(retrying)).await.unwrap().unwrap();
        server.start_again();
        let running = |state: &State| *state == State::Running;
        tokio::time::timeout(PATIENCE, states.wait_for(running)).await.unwrap().unwrap();
        history.run(200);
    }
    let drained = tokio::task::spawn_blocking(move || bridge.stop(PATIENCE)).await.unwrap();
    assert_eq!(drained, Drained::Yes);
    assert_projected(&place, &history).await;
}

#[tokio::test]
async fn a_row_that_somebody_else_holds_is_waited_for() {
    use sqlx::Connection as _;

    let place = Place::mariadb().await;
    let host = MemoryHost::new();
    let mut history = History::new(host.clone(), 7);
    history.run(60);
    catch_up(&host, &place).await;
    history.run(60);
    let mut other = sqlx::MySqlConnection::connect(&place.url()).await.unwrap();
    let mut holder = other.begin().await.unwrap();
    sqlx::query("SELECT * FROM bridge_cursor FOR UPDATE").fetch_all(&mut *holder).await.unwrap();
    let waits = async {
        let waiting = "SELECT COUNT(*) FROM information_schema.processlist \
                       WHERE info LIKE 'UPDATE bridge_cursor%'";
        while place.number(waiting).await == 0 {}
        holder.rollback().await.unwrap();
    };
    let ((), ()) = tokio::join!(catch_up(&host, &place), waits);
    assert_projected(&place, &history).await;
}

#[tokio::test]
async fn two_servers_that_start_at_once_make_the_schema_once() {
    let server = Rc::new(MariaDb::start());
    let system = Place::MariaDb { name: "mysql".to_owned(), server: Rc::clone(&server) };
    system.execute("CREATE DATABASE orders").await;
    let database = Database::at(&server.url("orders")).unwrap();
    let (one, two) = (database.clone(), database.clone());
    let (one, two) = tokio::join!(one.prepare(Split::ONE), two.prepare(Split::ONE));
    one.unwrap();
    two.unwrap();
    let place = Place::MariaDb { name: "orders".to_owned(), server };
    let applied = place.number("SELECT COUNT(*) FROM _sqlx_migrations WHERE success").await;
    assert_eq!(applied, migrations::TABLES.len() as u64);

    // One died in the middle of a migration: the row says so, the table may be there or not.
    place.execute("UPDATE _sqlx_migrations SET success = FALSE WHERE version = 15").await;
    database.prepare(Split::ONE).await.unwrap();
    place.execute("UPDATE _sqlx_migrations SET success = FALSE WHERE version = 15").await;
    place.execute("DROP TABLE bridge_cursor").await;
    database.prepare(Split::ONE).await.unwrap();
    assert_eq!(place.number("SELECT COUNT(*) FROM bridge_cursor").await, 0);
}

#[tokio::test]
async fn a_database_that_can_not_be_used_is_one_clear_line() {
    let server = Rc::new(MariaDb::start());
    says(&refusal(&server.url("nowhere")).await, "create the database");
    says(&refusal("mysql://u@localhost/x?socket=/nonexistent").await, "not available");

    let system = Place::MariaDb { name: "mysql".to_owned(), server: Rc::clone(&server) };
    system.execute("CREATE DATABASE orders; CREATE DATABASE theirs").await;
    system.execute("CREATE TABLE theirs.users (id INT); CREATE VIEW theirs.v AS SELECT 1").await;
    let error = refusal(&server.url("theirs")).await;
    let SchemaError::ForeignTables { tables } = &error else { panic!("{error}") };
    assert_eq!(tables, &["users", "v"]);
    assert!(!error.is_transient());

    system.execute("CREATE USER poor IDENTIFIED BY 'secret'").await;
    system.execute("GRANT SELECT ON orders.* TO poor").await;
    let error = refusal(&server.url_of("poor:secret", "orders")).await;
    says(&error, "ALL PRIVILEGES");
    assert!(error.is_transient(), "a grant heals it");
    let error = refusal(&server.url_of("poor:wrong", "orders")).await;
    says(&error, "ALL PRIVILEGES");
    assert!(!error.to_string().contains("wrong"), "{error}");

    system.execute("GRANT ALL ON orders.* TO poor; SET GLOBAL read_only = 1").await;
    says(&refusal(&server.url_of("poor:secret", "orders")).await, "read only");
    system.execute("SET GLOBAL read_only = 0").await;
    let database = Database::at(&server.url_of("poor:secret", "orders")).unwrap();
    database.prepare(Split::ONE).await.unwrap();

    system.execute("SET GLOBAL max_allowed_packet = 1048576").await;
    says(&refusal(&server.url("orders")).await, "max_allowed_packet");
}

#[tokio::test]
async fn after_an_outage_the_first_question_and_the_first_account_succeed() {
    let server = Rc::new(MariaDb::start());
    let place = Place::on(&server, "orders").await;
    let queries = Queries::open(&place.url(), Split::ONE).unwrap();
    let accounts = Accounts::open(&place.url()).unwrap();
    let sku = |id| Sku { id: SkuId::new(id).unwrap(), title: "shoe".to_owned(), price: None };
    queries.ping().await.unwrap();
    accounts.upsert_skus(None, &[sku(1)], 1).await.unwrap();
    server.kill();
    queries.ping().await.unwrap_err();
    let error = accounts.upsert_skus(None, &[sku(2)], 1).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
    server.start_again();
    queries.ping().await.unwrap();
    accounts.upsert_skus(None, &[sku(3)], 1).await.unwrap();
    // Kept connections that die unseen.
    server.kill();
    server.start_again();
    accounts.upsert_skus(None, &[sku(4)], 1).await.unwrap();
    let ids = [1, 2, 3, 4].map(|id| SkuId::new(id).unwrap());
    assert_eq!(queries.skus(&ids).await.unwrap(), [sku(1), sku(3), sku(4)]);
}

/// A certificate of `localhost` and the authority that signed it, as PEM files: certificate, key,
/// authority.
fn make_certificates(directory: &std::path::Path, name: &str) -> [String; 3] {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

    let authority_key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&authority_key).unwrap();
    let issuer = Issuer::new(params, authority_key);
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    [("cert", certificate.pem()), ("key", key.serialize_pem()), ("ca", authority.pem())].map(
        |(part, pem)| {
            let path = directory.join(format!("{name}-{part}.pem"));
            std::fs::write(&path, pem).unwrap();
            path.to_str().unwrap().to_owned()
        },
    )
}

#[tokio::test]
async fn a_connection_is_encrypted_and_a_strangers_server_refused_as_the_url_says() {
    use sqlx::{Connection as _, MySqlConnection};

    let directory = tempfile::tempdir().unwrap();
    let [certificate, key, authority] = make_certificates(directory.path(), "ours");
    let [_, _, stranger] = make_certificates(directory.path(), "theirs");
    let server = Rc::new(MariaDb::start_with(&[
        &format!("--ssl-cert={certificate}"),
        &format!("--ssl-key={key}"),
        &format!("--ssl-ca={authority}"),
    ]));
    let place = Place::on(&server, "orders").await;
    place.execute("CREATE USER sealed IDENTIFIED BY 'secret' REQUIRE SSL").await;
    place.execute("GRANT ALL ON orders.* TO sealed").await;
    let url =
        |parameters: &str| format!("{}&{parameters}", server.url_of("sealed:secret", "orders"));
    let checked = format!("ssl-mode=VERIFY_IDENTITY&ssl-ca={authority}");
    for parameters in [checked.as_str(), "ssl-mode=REQUIRED", "ssl-mode=PREFERRED"] {
        Database::at(&url(parameters)).unwrap().prepare(Split::ONE).await.unwrap();
        let mut connection = MySqlConnection::connect(&url(parameters)).await.unwrap();
        let sql = "SHOW SESSION STATUS LIKE 'Ssl_cipher'";
        let (_, cipher): (String, String) =
            sqlx::query_as(sql).fetch_one(&mut connection).await.unwrap();
        assert!(!cipher.is_empty(), "{parameters}");
    }
    let error = refusal(&url("ssl-mode=DISABLED")).await;
    says(&error, "ALL PRIVILEGES");
    let error = refusal(&url(&format!("ssl-mode=VERIFY_CA&ssl-ca={stranger}"))).await;
    assert!(error.is_transient() && !error.to_string().contains("secret"), "{error}");

    // A server that offers none is refused where the URL insists.
    let open = MariaDb::start_with(&[MariaDb::without_tls()]);
    let insisting = format!("{}&ssl-mode=REQUIRED", open.url("mysql"));
    assert!(refusal(&insisting).await.is_transient());
}

#[tokio::test]
async fn a_servers_time_zone_and_its_clock_changes_move_no_instant() {
    // Sydney puts its clocks back and forth; so does the session of whoever looks.
    let server = Rc::new(MariaDb::start_with(&["--default-time-zone=+11:00"]));
    let place = Place::on(&server, "orders").await;
    let host = MemoryHost::new();
    let mut history = History::new(host.clone(), 5);
    // An hour that some clocks show twice, and one that they leave out.
    let edges = [1_712_419_200_000_u64, 1_712_422_800_000, 1_728_144_000_000, 1_728_147_600_000];
    for (buyer, at_ms) in (1..).zip(edges) {
        history.set_time(at_ms - 1);
        history.buy(0, buyer);
        history.set_time(at_ms);
        history.buy(1, buyer);
    }
    history.end_frame();
    catch_up(&host, &place).await;
    let created = place.rows("SELECT created_at, expire_at FROM orders ORDER BY created_at").await;
    let created: Vec<_> =
        created.iter().map(|row| (row.number(0).unwrap(), row.number(1).unwrap())).collect();
    let expected: Vec<_> = edges
        .into_iter()
        .flat_map(|at_ms| [at_ms - 1, at_ms])
        .map(|at_ms| (at_ms, at_ms + support::history::DEFINITION.payment_ttl_ms))
        .collect();
    assert_eq!(created, expected);
}
