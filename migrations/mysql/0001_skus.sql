CREATE TABLE IF NOT EXISTS skus (
    id         BIGINT UNSIGNED NOT NULL PRIMARY KEY CHECK (id > 0),
    title      VARCHAR(1020)   NOT NULL,
    price      BIGINT CHECK (price >= 0),
    created_at BIGINT          NOT NULL,
    updated_at BIGINT          NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
