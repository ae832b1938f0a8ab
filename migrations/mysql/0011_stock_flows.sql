-- Only inserted. `before_qty` and `after_qty` are the units available around the change.
CREATE TABLE IF NOT EXISTS stock_flows (
    flow_no     VARCHAR(64)     NOT NULL PRIMARY KEY,
    sku_id      BIGINT UNSIGNED NOT NULL,
    activity_id BIGINT UNSIGNED NOT NULL,
    change_type VARCHAR(16)     NOT NULL
                CHECK (change_type IN ('INIT', 'DEDUCT', 'RECOVER', 'REPAIR', 'ADJUST')),
    change_qty  BIGINT          NOT NULL,
    before_qty  BIGINT          NOT NULL CHECK (before_qty >= 0),
    after_qty   BIGINT          NOT NULL CHECK (after_qty >= 0),
    biz_type    VARCHAR(32)     NOT NULL,
    biz_id      VARBINARY(255)  NOT NULL,
    remark      VARCHAR(1020)   NOT NULL,
    created_at  BIGINT          NOT NULL,
    UNIQUE (biz_type, biz_id),
    CHECK (before_qty + change_qty = after_qty)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
