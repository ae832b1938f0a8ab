-- Beside it stands what the order would be by now. `request_hash` only where the row in
-- `flashsale_pre_deductions` is refused as well.
CREATE TABLE IF NOT EXISTS dead_letters (
    id            BIGINT UNSIGNED NOT NULL PRIMARY KEY,
    activity_id   BIGINT UNSIGNED NOT NULL,
    user_id       BIGINT UNSIGNED NOT NULL,
    order_no      VARCHAR(64)     NOT NULL,
    sku_id        BIGINT UNSIGNED NOT NULL,
    price         BIGINT          NOT NULL CHECK (price >= 0),
    quantity      BIGINT          NOT NULL CHECK (quantity > 0),
    request_hash  VARBINARY(16) CHECK (LENGTH(request_hash) = 16),
    accepted_at   BIGINT          NOT NULL,
    reason        VARCHAR(1020)   NOT NULL,
    status        VARCHAR(16)     NOT NULL CHECK (status IN ('open', 'delivered', 'rolled_back')),
    needs_address TINYINT         NOT NULL CHECK (needs_address IN (0, 1)),
    order_status  VARCHAR(16)     NOT NULL,
    payment_no    VARCHAR(64),
    paid_at       BIGINT,
    cancelled_at  BIGINT,
    created_at    BIGINT          NOT NULL,
    resolved_at   BIGINT,
    INDEX dead_letters_by_status (status, created_at, id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
