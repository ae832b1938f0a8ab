CREATE TABLE IF NOT EXISTS payments (
    payment_no VARBINARY(64)   NOT NULL PRIMARY KEY,
    order_no   VARCHAR(64)     NOT NULL,
    user_id    BIGINT UNSIGNED NOT NULL,
    channel    VARCHAR(64)     NOT NULL,
    amount     BIGINT          NOT NULL CHECK (amount >= 0),
    status     VARCHAR(16)     NOT NULL CHECK (status IN ('pending', 'paid', 'failed')),
    expires_at BIGINT          NOT NULL,
    paid_at    BIGINT,
    created_at BIGINT          NOT NULL,
    updated_at BIGINT          NOT NULL,
    INDEX payments_by_order (order_no)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
