-- `user_activity_key` is `user:activity:slot` while the slot is taken, NULL once it is free.
-- A user's orders are found through `flashsale_pre_deductions`, whose unique key begins with them.
CREATE TABLE IF NOT EXISTS orders (
    order_no          VARCHAR(64)     NOT NULL PRIMARY KEY,
    user_id           BIGINT UNSIGNED NOT NULL,
    order_type        VARCHAR(16)     NOT NULL CHECK (order_type = 'seckill'),
    status            VARCHAR(16)     NOT NULL
                      CHECK (status IN ('pending_payment', 'paid', 'shipped', 'completed',
                             'cancelled', 'timeout', 'refunding', 'refunded')),
    activity_id       BIGINT UNSIGNED NOT NULL,
    purchase_slot     BIGINT UNSIGNED NOT NULL,
    user_activity_key VARCHAR(64) UNIQUE,
    total_amount      BIGINT          NOT NULL CHECK (total_amount >= 0),
    pay_amount        BIGINT          NOT NULL CHECK (pay_amount >= 0),
    payment_no        VARCHAR(64),
    receiver          VARCHAR(255),
    phone             VARCHAR(255),
    province          VARCHAR(255),
    city              VARCHAR(255),
    district          VARCHAR(255),
    detail            VARCHAR(255),
    paid_at           BIGINT,
    cancelled_at      BIGINT,
    expire_at         BIGINT          NOT NULL,
    created_at        BIGINT          NOT NULL,
    updated_at        BIGINT          NOT NULL,
    INDEX orders_by_activity (activity_id, status)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
