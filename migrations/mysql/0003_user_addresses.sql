-- `default_user_id` is the user where the address is that user's default, else NULL.
CREATE TABLE IF NOT EXISTS user_addresses (
    id              BIGINT UNSIGNED NOT NULL PRIMARY KEY AUTO_INCREMENT,
    user_id         BIGINT UNSIGNED NOT NULL,
    default_user_id BIGINT UNSIGNED UNIQUE,
    receiver        VARCHAR(255)    NOT NULL,
    phone           VARCHAR(255)    NOT NULL,
    province        VARCHAR(255)    NOT NULL,
    city            VARCHAR(255)    NOT NULL,
    district        VARCHAR(255)    NOT NULL,
    detail          VARCHAR(255)    NOT NULL,
    created_at      BIGINT          NOT NULL,
    updated_at      BIGINT          NOT NULL,
    CHECK (default_user_id = user_id),
    INDEX user_addresses_by_user (user_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
