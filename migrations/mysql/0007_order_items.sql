CREATE TABLE IF NOT EXISTS order_items (
    order_no VARCHAR(64)     NOT NULL,
    sku_id   BIGINT UNSIGNED NOT NULL,
    title    VARCHAR(1020)   NOT NULL,
    price    BIGINT          NOT NULL CHECK (price >= 0),
    quantity BIGINT          NOT NULL CHECK (quantity > 0),
    amount   BIGINT          NOT NULL,
    PRIMARY KEY (order_no, sku_id),
    CHECK (amount = price * quantity)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
