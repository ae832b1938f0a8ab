-- Every callback with a good signature, whatever was made of it.
CREATE TABLE IF NOT EXISTS payment_callbacks (
    callback_no    VARBINARY(255)  NOT NULL PRIMARY KEY,
    payment_no     VARBINARY(64)   NOT NULL,
    transaction_no VARCHAR(255)    NOT NULL,
    activity_id    BIGINT UNSIGNED,
    amount         BIGINT          NOT NULL,
    verdict        VARCHAR(16)     NOT NULL
                   CHECK (verdict IN ('accepted', 'repeated', 'wrong_amount', 'unknown',
                          'second_payment', 'late', 'failed')),
    body           VARBINARY(4096) NOT NULL,
    received_at    BIGINT          NOT NULL,
    INDEX payment_callbacks_by_payment (payment_no),
    INDEX payment_callbacks_by_verdict (verdict, received_at),
    INDEX payment_callbacks_by_time (received_at, callback_no)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
