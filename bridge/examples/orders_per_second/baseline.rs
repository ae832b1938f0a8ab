//! What a shop does that has no log: one transaction a purchase, from several connections, into the
//! same tables. Each way is the best of its kind that fits the schema: the hot row is taken last,
//! statements are prepared once, nothing is read that a client could know.

use std::time::Instant;

use bridge::sql::database::Database;
use bridge::sql::split::Split;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, MySqlConnection};

use crate::support::mariadb::MariaDb;

/// Connections of a shop's pool at one time, and rows that its stock is spread over where it is.
pub(crate) const CONNECTIONS: u64 = 8;

/// A server that syncs every commit, unlike the tests'.
pub(crate) const DURABLE: [&str; 4] = [
    "--innodb-flush-method=fsync",
    "--innodb-doublewrite=ON",
    "--innodb-buffer-pool-size=512M",
    "--innodb-log-file-size=512M",
];

/// How a purchase is one transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    /// Six statements from the client.
    Client,
    /// One call of a stored procedure, one row of stock.
    Procedure,
    /// One call of a stored procedure, a row of stock a connection.
    Buckets,
}

const INSERTS: [&str; 4] = [
    "INSERT INTO flashsale_pre_deductions (id, user_id, activity_id, client_request_id, \
     request_hash, sku_id, price, quantity, purchase_slot, order_no, status, attempts, ordered_at, \
     created_at, updated_at) VALUES ({id}, {user}, 1, {request}, \
     x'00112233445566778899aabbccddeeff', 1, 100, 1, {id}, {no}, 'ordered', 1, 1, 1, 1)",
    "INSERT INTO orders (order_no, user_id, order_type, status, activity_id, purchase_slot, \
     user_activity_key, total_amount, pay_amount, expire_at, created_at, updated_at) \
     VALUES ({no}, {user}, 'seckill', 'pending_payment', 1, {id}, {no}, 100, 100, 1, 1, 1)",
    "INSERT INTO order_items (order_no, sku_id, title, price, quantity, amount) \
     VALUES ({no}, 1, 'shoe', 100, 1, 100)",
    "INSERT INTO stock_flows (flow_no, sku_id, activity_id, change_type, change_qty, before_qty, \
     after_qty, biz_type, biz_id, remark, created_at) \
     VALUES ({no}, 1, 1, 'DEDUCT', -1, 1, 0, 'reservation', {no}, '', 1)",
];

const TAKE: &str = "UPDATE flashsale_activities SET stock = stock - 1, \
                    locked_stock = locked_stock + 1 WHERE id = 1 AND stock >= 1";

const TAKE_BUCKET: &str = "UPDATE stock_buckets SET stock = stock - 1 \
                           WHERE activity_id = 1 AND bucket = {bucket} AND stock >= 1";

fn with(text: &str, names: [&str; 5]) -> String {
    let [id, user, request, no, bucket] = names;
    text.replace("{id}", id)
        .replace("{user}", user)
        .replace("{request}", request)
        .replace("{no}", no)
        .replace("{bucket}", bucket)
}

fn procedure(name: &str, take: &str) -> String {
    let body: Vec<_> = INSERTS
        .iter()
        .chain([&take])
        .map(|text| with(text, ["p_id", "p_user", "p_request", "p_no", "p_bucket"]))
        .collect();
    format!(
        "CREATE PROCEDURE {name}(p_id BIGINT, p_user BIGINT, p_request VARBINARY(64), \
         p_no VARCHAR(64), p_bucket BIGINT) BEGIN START TRANSACTION; {}; COMMIT; END",
        body.join("; ")
    )
}

/// Makes a database `name` of `server` with nothing in it; its URL.
pub(crate) async fn create(server: &MariaDb, name: &str) -> String {
    let mut root = MySqlConnection::connect(&server.url("mysql")).await.unwrap();
    root.execute(AssertSqlSafe(format!("CREATE DATABASE {name}"))).await.unwrap();
    server.url(name)
}

/// Makes an empty database `name` of `server` with one activity of `count` units; its URL.
pub(crate) async fn prepare(server: &MariaDb, name: &str, count: u64) -> String {
    let url = create(server, name).await;
    Database::at(&url).unwrap().prepare(Split::ONE).await.unwrap();
    let mut owner = MySqlConnection::connect(&url).await.unwrap();
    let activity = format!(
        "INSERT INTO flashsale_activities VALUES (1, 1, 1, 'shoe', 100, {count}, {count}, 0, 0, 1, \
         'on_sale', 0, 0, 1, 0, 1, NULL, 600000, 'refund', 'hold', NULL, 1, 1)"
    );
    let buckets = "CREATE TABLE stock_buckets (activity_id BIGINT, bucket BIGINT, \
                   stock BIGINT CHECK (stock >= 0), PRIMARY KEY (activity_id, bucket))";
    owner.execute(AssertSqlSafe(activity)).await.unwrap();
    owner.execute(buckets).await.unwrap();
    for bucket in 0..CONNECTIONS {
        let row = format!("INSERT INTO stock_buckets VALUES (1, {bucket}, {count})");
        owner.execute(AssertSqlSafe(row)).await.unwrap();
    }
    owner.execute(AssertSqlSafe(procedure("buy", TAKE))).await.unwrap();
    owner.execute(AssertSqlSafe(procedure("buy_bucket", TAKE_BUCKET))).await.unwrap();
    url
}

/// Sells `count` units the `way` of a shop into an empty database `name` of `server`; how many a
/// second.
pub(crate) async fn run(server: &MariaDb, name: &str, way: Way, count: u64) -> f64 {
    let url = prepare(server, name, count).await;
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        connections.push(MySqlConnection::connect(&url).await.unwrap());
    }
    let started = Instant::now();
    let shoppers: Vec<_> = (0..CONNECTIONS)
        .zip(connections)
        .map(|(number, connection)| tokio::spawn(shop(connection, way, number, count)))
        .collect();
    for shopper in shoppers {
        shopper.await.unwrap();
    }
    let seconds = started.elapsed().as_secs_f64();
    let sql = "SELECT COUNT(*) FROM orders";
    let mut owner = MySqlConnection::connect(&url).await.unwrap();
    let orders: i64 = sqlx::query_scalar(sql).fetch_one(&mut owner).await.unwrap();
    assert_eq!(u64::try_from(orders).unwrap(), count, "every unit is an order");
    owner.execute(AssertSqlSafe(format!("DROP DATABASE {name}"))).await.unwrap();
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let rate = count as f64 / seconds;
    rate
}

async fn shop(mut connection: MySqlConnection, way: Way, number: u64, count: u64) {
    let mut id = number + 1;
    while id <= count {
        let no = format!("1{id:017}");
        let request = format!("7f9c24e5-2f1b-4a7c-9d0e-{id:012}");
        match way {
            Way::Client => {
                let purchase = Purchase { id, user: id, request: &request };
                let is_sold = client(&mut connection, &purchase).await.unwrap();
                assert!(is_sold, "there is a unit for each");
            }
            Way::Procedure | Way::Buckets => {
                let name = if way == Way::Buckets { "buy_bucket" } else { "buy" };
                sqlx::query(AssertSqlSafe(format!("CALL {name}(?, ?, ?, ?, ?)")))
                    .bind(id)
                    .bind(id)
                    .bind(request.as_bytes())
                    .bind(&no)
                    .bind(number)
                    .execute(&mut connection)
                    .await
                    .unwrap();
            }
        }
        id += CONNECTIONS;
    }
}

/// A purchase of one unit.
pub(crate) struct Purchase<'a> {
    /// Its number; each has its own.
    pub(crate) id: u64,
    /// Who buys.
    pub(crate) user: u64,
    /// The request's id.
    pub(crate) request: &'a str,
}

/// One transaction from the client; false, and nothing done, where no unit is left.
pub(crate) async fn client(
    connection: &mut MySqlConnection,
    purchase: &Purchase<'_>,
) -> Result<bool, sqlx::Error> {
    let mut transaction = connection.begin().await?;
    let [pre_deduction, order, item, flow] =
        INSERTS.map(|text| AssertSqlSafe(with(text, ["?"; 5])));
    let Purchase { id, user, request } = *purchase;
    let no = format!("1{id:017}");
    let query = sqlx::query(pre_deduction).bind(id).bind(user).bind(request.as_bytes());
    query.bind(id).bind(&no).execute(&mut *transaction).await?;
    let query = sqlx::query(order).bind(&no).bind(user).bind(id).bind(&no);
    query.execute(&mut *transaction).await?;
    sqlx::query(item).bind(&no).execute(&mut *transaction).await?;
    sqlx::query(flow).bind(&no).bind(&no).execute(&mut *transaction).await?;
    let taken = sqlx::query(TAKE).execute(&mut *transaction).await?;
    if taken.rows_affected() == 0 {
        transaction.rollback().await?;
        return Ok(false);
    }
    transaction.commit().await?;
    Ok(true)
}
