-- What operators did. `subject` names what the action was about beside the activity.
-- `before_value` and `after_value` are JSON objects of the fields that changed; `control_key` is
-- the control's key in the newest row of each, else NULL.
CREATE TABLE IF NOT EXISTS audit (
    audit_no     VARCHAR(64)     NOT NULL PRIMARY KEY,
    actor        VARCHAR(255)    NOT NULL,
    request_id   VARCHAR(255)    NOT NULL,
    action       VARCHAR(64)     NOT NULL,
    activity_id  BIGINT UNSIGNED,
    subject      VARCHAR(255),
    quantity     BIGINT,
    before_value TEXT,
    after_value  TEXT,
    control_key  VARBINARY(255)  UNIQUE,
    created_at   BIGINT          NOT NULL,
    KEY audit_by_time (created_at, audit_no)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 COLLATE = utf8mb4_bin;
