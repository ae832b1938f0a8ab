//! The private MariaDB that the bridge's tests start, and the shop's SQL that its example measures.

#[path = "../../../bridge/examples/orders_per_second/baseline.rs"]
#[allow(dead_code, clippy::unwrap_used, reason = "a part of a measurement's code")]
pub(crate) mod baseline;
#[path = "../../../bridge/tests/support/mariadb.rs"]
#[allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "a part of a test's tools")]
pub(crate) mod mariadb;
