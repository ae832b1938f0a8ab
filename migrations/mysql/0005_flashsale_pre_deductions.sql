-- `client_request_id` is NULL where the log that held it is gone.
CREATE TABLE IF NOT EXISTS flashsale_pre_deductions (
    id                BIGINT UNSIGNED NOT NULL PRIMARY KEY CHECK (id > 0),
    user_id           BIGINT UNSIGNED NOT NULL,
    activity_id       BIGINT UNSIGNED NOT NULL,
    client_request_id VARBINARY(64),
    request_hash      VARBINARY(16)   NOT NULL CHECK (LENGTH(request_hash) = 16),
    sku_id            BIGINT UNSIGNED NOT NULL,
    price             BIGINT          NOT NULL CHECK (price >= 0),
    quantity          BIGINT          NOT NULL CHECK (quantity > 0),
    purchase_slot     BIGINT UNSIGNED NOT NULL,
    order_no          VARCHAR(64)     NOT NULL UNIQUE,
    status            VARCHAR(16)     NOT NULL
                      CHECK (status IN ('ordered', 'rolled_back', 'dead_letter')),
    reason            VARCHAR(16)
                      CHECK (reason IN ('cancelled', 'timeout', 'dead_letter', 'admin', 'api')),
    attempts          BIGINT          NOT NULL,
    last_error        VARCHAR(1020),
    ordered_at        BIGINT,
    rolled_back_at    BIGINT,
    created_at        BIGINT          NOT NULL,
    updated_at        BIGINT          NOT NULL,
    CHECK (purchase_slot = id),
    UNIQUE (user_id, activity_id, client_request_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
