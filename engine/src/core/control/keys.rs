//! The names of run-time controls.
//!
//! | key | value | meaning |
//! |---|---|---|
//! | `stop` | any | the global kill switch: new purchases are answered `paused` |
//! | `timers_held` | any | nothing happens by itself: no time-out, no schedule, no archive |
//! | `ordinals/<n>` | any | activities made from now on have ordinals of at least n |
//! | `activities/<n>` | any | ids that the engine gives to activities are at least n |
//! | `adopted/<n>` | any | ids given to what was adopted without one are at most n |
//! | `adopting` | any | an older system's reservations are being taken over: none is sold before |
//! | `adopted_but` | a digest | what an older system still has, and was refused for good |
//! | `canary` | the server's | which users see the second set of rules |
//! | `limits/<name>` | the server's | a limit that wins over the configuration |
//! | `blacklist/user/<id>` | the server's | a user who may not buy |
//! | `blacklist/ip/<ip>` | the server's | an address that may not buy |
//! | `blacklist/device/<id>` | the server's | a device that may not buy |
//! | `blacklist/account/<id>` | the server's | an account that may not act at all |
//! | `token/<jti>` | the server's | a revoked token; expires with it |
//!
//! The engine itself heeds the first six; it knows the rest as bytes. What is under `blacklist/`
//! and `token/` grows with its users and has a bound of its own: a flood of either must not keep
//! an operator from stopping the sale.

/// The global kill switch.
pub const STOP: &str = "stop";

/// Nothing happens by itself: after a restore, until an operator has looked at it.
pub const TIMERS_HELD: &str = "timers_held";

/// An older system's reservations are being taken over, and not all are here yet.
pub const ADOPTING: &str = "adopting";

/// The older system's reservations that were refused when all others had been taken over, as a
/// digest: as long as no others are left, there is nothing to do.
pub const ADOPTED_BUT: &str = "adopted_but";

/// Which users see the second set of rules.
pub const CANARY: &str = "canary";

/// Before the lowest ordinal that may still be given.
pub const ORDINALS_PREFIX: &str = "ordinals/";

/// Before the lowest activity id that the engine may still give.
pub const ACTIVITIES_PREFIX: &str = "activities/";

/// Before the highest id that may still be given to what is adopted without one of its own.
pub const ADOPTED_PREFIX: &str = "adopted/";

/// Before the name of a limit.
pub const LIMITS_PREFIX: &str = "limits/";

/// Before a kind and a value.
pub const BLACKLIST_PREFIX: &str = "blacklist/";

/// Before the `jti` of a token.
pub const TOKEN_PREFIX: &str = "token/";

/// The number behind `prefix` in `key`.
pub(crate) fn number(key: &str, prefix: &str) -> Option<u64> {
    key.strip_prefix(prefix)?.parse().ok()
}

/// Whether `key` is one of many: see the bounds in `limits`.
pub(super) fn is_listed(key: &str) -> bool {
    key.starts_with(BLACKLIST_PREFIX) || key.starts_with(TOKEN_PREFIX)
}

/// Whether `key` can only ever be set: a number once given must not be given again.
pub(crate) fn is_permanent(key: &str) -> bool {
    [ORDINALS_PREFIX, ACTIVITIES_PREFIX, ADOPTED_PREFIX].iter().any(|it| key.starts_with(it))
}
