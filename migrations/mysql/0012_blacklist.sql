CREATE TABLE IF NOT EXISTS blacklist (
    kind       VARCHAR(16)    NOT NULL CHECK (kind IN ('user', 'ip', 'device')),
    value      VARBINARY(255) NOT NULL,
    reason     VARCHAR(1020)  NOT NULL,
    created_by VARCHAR(255)   NOT NULL,
    expires_at BIGINT,
    created_at BIGINT         NOT NULL,
    PRIMARY KEY (kind, value)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
