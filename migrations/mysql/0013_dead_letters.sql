CREATE TABLE IF NOT EXISTS dead_letters (
    id          BIGINT UNSIGNED NOT NULL PRIMARY KEY,
    activity_id BIGINT UNSIGNED NOT NULL,
    user_id     BIGINT UNSIGNED NOT NULL,
    order_no    VARCHAR(64)     NOT NULL,
    reason      VARCHAR(1020)   NOT NULL,
    status      VARCHAR(16)     NOT NULL CHECK (status IN ('open', 'delivered', 'rolled_back')),
    created_at  BIGINT          NOT NULL,
    resolved_at BIGINT
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
