CREATE TABLE IF NOT EXISTS refunds (
    order_no     VARCHAR(64)     NOT NULL,
    refund_no    VARBINARY(64)   NOT NULL,
    activity_id  BIGINT UNSIGNED NOT NULL,
    scope        VARCHAR(16)     NOT NULL CHECK (scope IN ('order', 'payment')),
    payment_no   VARBINARY(64)   NOT NULL,
    amount       BIGINT          NOT NULL CHECK (amount >= 0),
    restock      TINYINT         NOT NULL CHECK (restock IN (0, 1)),
    free_limit   TINYINT         NOT NULL CHECK (free_limit IN (0, 1)),
    status       VARCHAR(16)     NOT NULL
                 CHECK (status IN ('PENDING', 'SENT', 'SETTLED', 'FAILED')),
    reason       VARCHAR(1020)   NOT NULL,
    last_error   VARCHAR(1020),
    requested_by VARCHAR(255)    NOT NULL,
    created_at   BIGINT          NOT NULL,
    updated_at   BIGINT          NOT NULL,
    PRIMARY KEY (order_no, refund_no),
    INDEX refunds_by_status (status, created_at),
    INDEX refunds_by_time (created_at, order_no, refund_no)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
