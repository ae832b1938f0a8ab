-- Where each sink is: written in the transaction that holds the rows it speaks of.
CREATE TABLE IF NOT EXISTS bridge_cursor (
    sink             VARCHAR(32)   NOT NULL PRIMARY KEY,
    log_uuid         VARBINARY(16) NOT NULL CHECK (LENGTH(log_uuid) = 16),
    epoch            BIGINT        NOT NULL,
    lsn              BIGINT        NOT NULL CHECK (lsn >= 0),
    chain            BIGINT        NOT NULL,
    request_hash_key VARBINARY(16) NOT NULL CHECK (LENGTH(request_hash_key) = 16),
    updated_at       BIGINT        NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
