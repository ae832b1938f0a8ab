-- Names are bytes: any utf8mb4 collation that both MySQL and MariaDB have ignores trailing spaces.
CREATE TABLE IF NOT EXISTS users (
    id            BIGINT UNSIGNED NOT NULL PRIMARY KEY CHECK (id > 0),
    username      VARBINARY(1020) NOT NULL UNIQUE,
    password_hash VARCHAR(255),
    role          VARCHAR(16)     NOT NULL CHECK (role IN ('user', 'admin')),
    created_at    BIGINT          NOT NULL,
    updated_at    BIGINT          NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
