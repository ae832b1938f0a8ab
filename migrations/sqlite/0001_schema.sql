-- The first schema. Instants are Unix milliseconds. No foreign key runs from a projected table to
-- users or SKUs: the log decides what exists, the catalogue may lag behind it.
--
-- In the tables that every purchase writes, a list of words is a chain of OR: for an IN of more
-- than two, SQLite builds a temporary index at each execution, which costs more than the row.

CREATE TABLE skus (
    id         INTEGER NOT NULL PRIMARY KEY CHECK (id > 0),
    title      TEXT    NOT NULL,
    price      INTEGER CHECK (price >= 0),
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;

CREATE TABLE users (
    id            INTEGER NOT NULL PRIMARY KEY CHECK (id > 0),
    username      TEXT    NOT NULL UNIQUE,
    password_hash TEXT,
    role          TEXT    NOT NULL CHECK (role IN ('user', 'admin')),
    created_at    INTEGER NOT NULL,
    updated_at    INTEGER NOT NULL
) STRICT;

-- `default_user_id` is the user where the address is that user's default, else NULL: being unique
-- it lets a user have one default at most, in every dialect.
CREATE TABLE user_addresses (
    id              INTEGER NOT NULL PRIMARY KEY,
    user_id         INTEGER NOT NULL,
    default_user_id INTEGER UNIQUE CHECK (default_user_id = user_id),
    receiver        TEXT    NOT NULL,
    phone           TEXT    NOT NULL,
    province        TEXT    NOT NULL,
    city            TEXT    NOT NULL,
    district        TEXT    NOT NULL,
    detail          TEXT    NOT NULL,
    created_at      INTEGER NOT NULL,
    updated_at      INTEGER NOT NULL
) STRICT;
CREATE INDEX user_addresses_by_user ON user_addresses (user_id);

CREATE TABLE flashsale_activities (
    id             INTEGER NOT NULL PRIMARY KEY CHECK (id > 0),
    ordinal        INTEGER NOT NULL UNIQUE,
    sku_id         INTEGER NOT NULL,
    title          TEXT    NOT NULL,
    price          INTEGER NOT NULL CHECK (price >= 0),
    stock          INTEGER NOT NULL CHECK (stock >= 0),
    total_stock    INTEGER NOT NULL CHECK (total_stock >= 0),
    locked_stock   INTEGER NOT NULL CHECK (locked_stock >= 0),
    sold_stock     INTEGER NOT NULL CHECK (sold_stock >= 0),
    per_user_limit INTEGER NOT NULL,
    status         TEXT    NOT NULL CHECK (status IN ('off_sale', 'on_sale')),
    paused         INTEGER NOT NULL CHECK (paused IN (0, 1)),
    drained        INTEGER NOT NULL CHECK (drained IN (0, 1)),
    version        INTEGER NOT NULL,
    start_at       INTEGER NOT NULL,
    end_at         INTEGER NOT NULL,
    publish_at     INTEGER,
    payment_ttl_ms INTEGER NOT NULL,
    late_payment   TEXT    NOT NULL CHECK (late_payment IN ('reinstate_or_refund', 'refund')),
    dead_letter    TEXT    NOT NULL CHECK (dead_letter IN ('rollback', 'hold')),
    archived_at    INTEGER,
    created_at     INTEGER NOT NULL,
    updated_at     INTEGER NOT NULL,
    CHECK (stock + locked_stock + sold_stock = total_stock)
) STRICT;

-- `client_request_id` is NULL where the log that held it is gone; `request_hash` (keyed by
-- `bridge_cursor.request_hash_key`) then still finds a replay.
CREATE TABLE flashsale_pre_deductions (
    id                INTEGER NOT NULL PRIMARY KEY CHECK (id > 0),
    user_id           INTEGER NOT NULL,
    activity_id       INTEGER NOT NULL,
    client_request_id BLOB,
    request_hash      BLOB    NOT NULL CHECK (length(request_hash) = 16),
    sku_id            INTEGER NOT NULL,
    price             INTEGER NOT NULL CHECK (price >= 0),
    quantity          INTEGER NOT NULL CHECK (quantity > 0),
    purchase_slot     INTEGER NOT NULL CHECK (purchase_slot = id),
    order_no          TEXT    NOT NULL UNIQUE,
    status            TEXT    NOT NULL
                      CHECK (status = 'ordered' OR status = 'rolled_back'
                             OR status = 'dead_letter'),
    reason            TEXT
                      CHECK (reason IS NULL OR reason = 'cancelled' OR reason = 'timeout'
                             OR reason = 'dead_letter' OR reason = 'admin' OR reason = 'api'),
    attempts          INTEGER NOT NULL,
    last_error        TEXT,
    ordered_at        INTEGER,
    rolled_back_at    INTEGER,
    created_at        INTEGER NOT NULL,
    updated_at        INTEGER NOT NULL,
    UNIQUE (user_id, activity_id, client_request_id)
) STRICT;

-- `user_activity_key` is `user:activity:slot` while the slot is taken, NULL once it is free.
-- A user's orders are found through `flashsale_pre_deductions`, whose unique key begins with them.
CREATE TABLE orders (
    order_no          TEXT    NOT NULL PRIMARY KEY,
    user_id           INTEGER NOT NULL,
    order_type        TEXT    NOT NULL CHECK (order_type = 'seckill'),
    status            TEXT    NOT NULL
                      CHECK (status = 'pending_payment' OR status = 'paid' OR status = 'shipped'
                             OR status = 'completed' OR status = 'cancelled' OR status = 'timeout'
                             OR status = 'refunding' OR status = 'refunded'),
    activity_id       INTEGER NOT NULL,
    purchase_slot     INTEGER NOT NULL,
    user_activity_key TEXT    UNIQUE,
    total_amount      INTEGER NOT NULL CHECK (total_amount >= 0),
    pay_amount        INTEGER NOT NULL CHECK (pay_amount >= 0),
    payment_no        TEXT,
    receiver          TEXT,
    phone             TEXT,
    province          TEXT,
    city              TEXT,
    district          TEXT,
    detail            TEXT,
    paid_at           INTEGER,
    cancelled_at      INTEGER,
    expire_at         INTEGER NOT NULL,
    created_at        INTEGER NOT NULL,
    updated_at        INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX orders_by_activity ON orders (activity_id, status);

CREATE TABLE order_items (
    order_no TEXT    NOT NULL,
    sku_id   INTEGER NOT NULL,
    title    TEXT    NOT NULL,
    price    INTEGER NOT NULL CHECK (price >= 0),
    quantity INTEGER NOT NULL CHECK (quantity > 0),
    amount   INTEGER NOT NULL CHECK (amount = price * quantity),
    PRIMARY KEY (order_no, sku_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE payments (
    payment_no TEXT    NOT NULL PRIMARY KEY,
    order_no   TEXT    NOT NULL,
    user_id    INTEGER NOT NULL,
    channel    TEXT    NOT NULL,
    amount     INTEGER NOT NULL CHECK (amount >= 0),
    status     TEXT    NOT NULL
               CHECK (status = 'pending' OR status = 'paid' OR status = 'failed'),
    expires_at INTEGER NOT NULL,
    paid_at    INTEGER,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX payments_by_order ON payments (order_no);

-- Every callback with a good signature, whatever was made of it.
CREATE TABLE payment_callbacks (
    callback_no    TEXT    NOT NULL PRIMARY KEY,
    payment_no     TEXT    NOT NULL,
    transaction_no TEXT    NOT NULL,
    activity_id    INTEGER,
    amount         INTEGER NOT NULL,
    verdict        TEXT    NOT NULL
                   CHECK (verdict = 'accepted' OR verdict = 'repeated'
                          OR verdict = 'wrong_amount' OR verdict = 'unknown'
                          OR verdict = 'second_payment' OR verdict = 'late'
                          OR verdict = 'failed'),
    body           BLOB    NOT NULL,
    received_at    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX payment_callbacks_by_payment ON payment_callbacks (payment_no);
CREATE INDEX payment_callbacks_by_verdict ON payment_callbacks (verdict, received_at);
CREATE INDEX payment_callbacks_by_time ON payment_callbacks (received_at, callback_no);

CREATE TABLE refunds (
    order_no     TEXT    NOT NULL,
    refund_no    TEXT    NOT NULL,
    activity_id  INTEGER NOT NULL,
    scope        TEXT    NOT NULL CHECK (scope IN ('order', 'payment')),
    payment_no   TEXT    NOT NULL,
    amount       INTEGER NOT NULL CHECK (amount >= 0),
    restock      INTEGER NOT NULL CHECK (restock IN (0, 1)),
    free_limit   INTEGER NOT NULL CHECK (free_limit IN (0, 1)),
    status       TEXT    NOT NULL
                 CHECK (status = 'PENDING' OR status = 'SENT' OR status = 'SETTLED'
                        OR status = 'FAILED'),
    reason       TEXT    NOT NULL,
    last_error   TEXT,
    requested_by TEXT    NOT NULL,
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL,
    PRIMARY KEY (order_no, refund_no)
) STRICT, WITHOUT ROWID;
CREATE INDEX refunds_by_status ON refunds (status, created_at);
CREATE INDEX refunds_by_time ON refunds (created_at, order_no, refund_no);

-- Only inserted. `before_qty` and `after_qty` are the units available around the change.
CREATE TABLE stock_flows (
    flow_no     TEXT    NOT NULL PRIMARY KEY,
    sku_id      INTEGER NOT NULL,
    activity_id INTEGER NOT NULL,
    change_type TEXT    NOT NULL
                CHECK (change_type = 'INIT' OR change_type = 'DEDUCT' OR change_type = 'RECOVER'
                       OR change_type = 'REPAIR' OR change_type = 'ADJUST'),
    change_qty  INTEGER NOT NULL,
    before_qty  INTEGER NOT NULL CHECK (before_qty >= 0),
    after_qty   INTEGER NOT NULL CHECK (after_qty >= 0),
    biz_type    TEXT    NOT NULL,
    biz_id      TEXT    NOT NULL,
    remark      TEXT    NOT NULL,
    created_at  INTEGER NOT NULL,
    UNIQUE (biz_type, biz_id),
    CHECK (before_qty + change_qty = after_qty)
) STRICT, WITHOUT ROWID;

CREATE TABLE blacklist (
    kind       TEXT    NOT NULL CHECK (kind IN ('user', 'ip', 'device')),
    value      TEXT    NOT NULL,
    reason     TEXT    NOT NULL,
    created_by TEXT    NOT NULL,
    expires_at INTEGER,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (kind, value)
) STRICT, WITHOUT ROWID;

-- Reservations that no order can hold; beside each stands what its order would be by now.
-- `request_hash` only where the row in `flashsale_pre_deductions` is refused as well.
CREATE TABLE dead_letters (
    id            INTEGER NOT NULL PRIMARY KEY,
    activity_id   INTEGER NOT NULL,
    user_id       INTEGER NOT NULL,
    order_no      TEXT    NOT NULL,
    sku_id        INTEGER NOT NULL,
    price         INTEGER NOT NULL CHECK (price >= 0),
    quantity      INTEGER NOT NULL CHECK (quantity > 0),
    request_hash  BLOB    CHECK (length(request_hash) = 16),
    accepted_at   INTEGER NOT NULL,
    reason        TEXT    NOT NULL,
    status        TEXT    NOT NULL CHECK (status IN ('open', 'delivered', 'rolled_back')),
    needs_address INTEGER NOT NULL CHECK (needs_address IN (0, 1)),
    order_status  TEXT    NOT NULL,
    payment_no    TEXT,
    paid_at       INTEGER,
    cancelled_at  INTEGER,
    created_at    INTEGER NOT NULL,
    resolved_at   INTEGER
) STRICT;
CREATE INDEX dead_letters_by_status ON dead_letters (status, created_at, id);

-- What operators did. `subject` names what the action was about beside the activity: an operation
-- key, a refund number, a control's key. `before_value` and `after_value` are JSON objects of the
-- fields that changed. `control_key` is the control's key in the newest row of each, else NULL.
CREATE TABLE audit (
    audit_no     TEXT    NOT NULL PRIMARY KEY,
    actor        TEXT    NOT NULL,
    request_id   TEXT    NOT NULL,
    action       TEXT    NOT NULL,
    activity_id  INTEGER,
    subject      TEXT,
    quantity     INTEGER,
    before_value TEXT,
    after_value  TEXT,
    control_key  TEXT    UNIQUE,
    created_at   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX audit_by_time ON audit (created_at, audit_no);

-- Where each sink is in the log: written in the transaction that holds the rows it speaks of.
CREATE TABLE bridge_cursor (
    sink             TEXT    NOT NULL PRIMARY KEY,
    log_uuid         BLOB    NOT NULL CHECK (length(log_uuid) = 16),
    epoch            INTEGER NOT NULL,
    lsn              INTEGER NOT NULL CHECK (lsn >= 0),
    chain            INTEGER NOT NULL,
    request_hash_key BLOB    NOT NULL CHECK (length(request_hash_key) = 16),
    updated_at       INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
