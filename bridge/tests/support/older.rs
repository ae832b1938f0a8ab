//! An older system's database, as one finds it: some columns of its time, and whatever rows a test
//! puts there.

use std::time::{SystemTime, UNIX_EPOCH};

use super::place::Place;

/// Its tables, without types: rows may hold anything.
const SQLITE: &str = "
CREATE TABLE flashsale_activities (id, sku_id, title, price, stock, per_user_limit, status,
    start_at, end_at, created_at, updated_at);
CREATE TABLE flashsale_pre_deductions (id, user_id, activity_id, client_request_id, order_no,
    sku_id, price, quantity, purchase_slot, status, last_error, ordered_at, rolled_back_at,
    created_at, updated_at);
CREATE TABLE orders (id INTEGER PRIMARY KEY, order_no, user_id, order_type, status, activity_id,
    purchase_slot, user_activity_key, total_amount, pay_amount, payment_no, receiver, paid_at,
    expire_at, created_at, updated_at);
CREATE TABLE order_items (order_no, sku_id, price, quantity, subtotal);
";

const MARIADB: &str = "
CREATE TABLE flashsale_activities (
    id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, sku_id BIGINT NOT NULL,
    title VARCHAR(128) NOT NULL, price BIGINT NOT NULL, stock INT NOT NULL,
    per_user_limit INT NOT NULL DEFAULT 1, status VARCHAR(16) NOT NULL DEFAULT 'off_sale',
    start_at DATETIME(3) NOT NULL, end_at DATETIME(3) NOT NULL,
    created_at DATETIME(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3),
    updated_at DATETIME(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_unicode_ci;
CREATE TABLE flashsale_pre_deductions (
    id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, user_id BIGINT NULL,
    activity_id BIGINT UNSIGNED NOT NULL, client_request_id VARCHAR(255) NULL,
    order_no VARCHAR(64) NULL, sku_id BIGINT NULL, price BIGINT NULL, quantity BIGINT NULL,
    purchase_slot BIGINT UNSIGNED NULL, status VARCHAR(32) NOT NULL, last_error TEXT NULL,
    ordered_at DATETIME(3) NULL, rolled_back_at DATETIME(3) NULL,
    created_at DATETIME(3) NULL, updated_at DATETIME(3) NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_unicode_ci;
CREATE TABLE orders (
    id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, order_no VARCHAR(64) NOT NULL,
    user_id BIGINT UNSIGNED NOT NULL, order_type VARCHAR(16) NOT NULL,
    status VARCHAR(32) NOT NULL, activity_id BIGINT UNSIGNED NULL,
    purchase_slot BIGINT UNSIGNED NULL, user_activity_key VARCHAR(96) NULL,
    total_amount BIGINT NULL, pay_amount BIGINT NULL, payment_no VARCHAR(64) NULL,
    receiver VARCHAR(64) NULL, paid_at DATETIME(3) NULL, expire_at DATETIME(3) NULL,
    created_at DATETIME(3) NULL, updated_at DATETIME(3) NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_unicode_ci;
CREATE TABLE order_items (order_no VARCHAR(64) NOT NULL, sku_id BIGINT NOT NULL,
    price BIGINT NOT NULL, quantity INT NOT NULL, subtotal BIGINT NOT NULL);
";

/// The price of everything.
pub const PRICE: u64 = 100;

/// The older system's database.
pub struct Older {
    pub place: Place,
}

impl Older {
    /// An empty one, of the same kind as `place` and on the same server.
    pub async fn beside(place: &Place) -> Self {
        let (place, schema) = match place {
            Place::Sqlite { directory, .. } => {
                let path = directory.path().join("older.db");
                std::fs::write(&path, "").unwrap();
                (Place::Sqlite { path, directory: directory.clone() }, SQLITE)
            }
            Place::MariaDb { server, .. } => {
                place.execute("CREATE DATABASE older").await;
                let name = "older".to_owned();
                (Place::MariaDb { name, server: server.clone() }, MARIADB)
            }
        };
        place.execute(schema).await;
        Self { place }
    }

    /// Its URL; times in it are UTC.
    pub fn url(&self) -> String {
        match &self.place {
            Place::Sqlite { .. } => self.place.url(),
            Place::MariaDb { .. } => format!("{}&timezone=%2B00:00", self.place.url()),
        }
    }

    /// An activity that is on sale since an hour and for another, limit 3.
    pub async fn activity(&self, id: u64, stock: u64) {
        let (start, end) = (at(-3_600_000), at(3_600_000));
        self.place
            .execute(&format!(
                "INSERT INTO flashsale_activities (id, sku_id, title, price, stock, \
                 per_user_limit, status, start_at, end_at) VALUES \
                 ({id}, {id}, '\u{624B}\u{673A}\u{1F600}', {PRICE}, {stock}, 3, 'on_sale', \
                 '{start}', '{end}')"
            ))
            .await;
    }

    /// A reservation of one unit, a minute ago. Values as SQL.
    pub async fn reservation(&self, id: &str, user: &str, activity: &str, status: &str) {
        let number = id.trim_matches('\'');
        let then = at(-60_000);
        self.place
            .execute(&format!(
                "INSERT INTO flashsale_pre_deductions (id, user_id, activity_id, \
                 client_request_id, price, quantity, status, created_at, updated_at) VALUES \
                 ({id}, {user}, {activity}, 'r-{number}', {PRICE}, 1, '{status}', '{then}', \
                 '{then}')"
            ))
            .await;
    }

    /// As [`Older::reservation`], with the order `O-<id>`, to be paid within `ttl_ms` of its
    /// making.
    pub async fn order(&self, id: u64, user: u64, activity: u64, statuses: (&str, &str)) {
        self.order_until(id, user, activity, statuses, 600_000 - 60_000).await;
    }

    /// As [`Older::order`], to be paid within `left_ms` from now on.
    pub async fn order_until(
        &self,
        id: u64,
        user: u64,
        activity: u64,
        (row, order): (&str, &str),
        left_ms: i64,
    ) {
        self.reservation(&id.to_string(), &user.to_string(), &activity.to_string(), row).await;
        let set =
            format!("UPDATE flashsale_pre_deductions SET order_no = 'O-{id}' WHERE id = {id}");
        self.place.execute(&set).await;
        self.order_alone(&format!("O-{id}"), user, activity, order, left_ms).await;
    }

    /// An order that no reservation's row stands for.
    pub async fn order_alone(
        &self,
        order_no: &str,
        user: u64,
        activity: u64,
        status: &str,
        left_ms: i64,
    ) {
        let (made, end) = (at(left_ms - 600_000), at(left_ms));
        self.place
            .execute(&format!(
                "INSERT INTO orders (order_no, user_id, order_type, status, activity_id, \
                 total_amount, pay_amount, expire_at, created_at, updated_at) VALUES \
                 ('{order_no}', {user}, 'seckill', '{status}', {activity}, {PRICE}, {PRICE}, \
                 '{end}', '{made}', '{made}')"
            ))
            .await;
    }

    /// Everything in it, as one number: it is only read.
    pub async fn digest(&self) -> String {
        let mut all = String::new();
        for table in ["flashsale_activities", "flashsale_pre_deductions", "orders", "order_items"] {
            let columns = match table {
                "orders" => "order_no, status, updated_at",
                "order_items" => "order_no, quantity, quantity",
                _ => "id, status, updated_at",
            };
            let cast: Vec<_> =
                columns.split(", ").map(|it| format!("CAST({it} AS CHAR)")).collect();
            let sql = format!("SELECT {} FROM {table} ORDER BY 1, 2", cast.join(", "));
            for row in self.place.rows(&sql).await {
                all.push_str(&format!("{:?}\n", row.0));
            }
        }
        all
    }
}

/// Unix milliseconds of the wall clock.
pub fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(now.as_millis()).unwrap()
}

/// `ms` from now, as a date and time in UTC.
pub fn at(ms: i64) -> String {
    let ms = now_ms() + ms;
    let at = time::OffsetDateTime::from_unix_timestamp(ms / 1000).unwrap();
    let (hour, minute, second) = at.to_hms();
    let (date, milli) = (at.date(), ms % 1000);
    format!("{date} {hour:02}:{minute:02}:{second:02}.{milli:03}")
}
