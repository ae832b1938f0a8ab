-- What operators did. `subject` names what the action was about beside the activity.
CREATE TABLE IF NOT EXISTS audit (
    audit_no    VARCHAR(64)     NOT NULL PRIMARY KEY,
    actor       VARCHAR(255)    NOT NULL,
    request_id  VARCHAR(255)    NOT NULL,
    action      VARCHAR(64)     NOT NULL,
    activity_id BIGINT UNSIGNED,
    subject     VARCHAR(255),
    quantity    BIGINT,
    created_at  BIGINT          NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
