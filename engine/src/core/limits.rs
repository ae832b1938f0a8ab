//! Every bound of the engine, with its reason.

/// The largest id and the largest amount of money: integers up to here survive a JSON parser
/// that reads numbers as doubles.
pub const ID_MAX: u64 = (1 << 53) - 1;

/// Bits of an activity ordinal: 21 + 32 bits of position = 53 bits of reservation id.
pub const ORDINAL_BITS: u32 = 21;

/// The largest order prefix: with 17 digits of id an order number stays within 20 digits.
pub const ORDER_PREFIX_MAX: u16 = 999;

/// Units in one activity and in one purchase: a signed 32-bit column holds them everywhere.
pub const UNITS_MAX: u32 = i32::MAX as u32;

/// Bytes of a client's request id, and of an operation's key.
pub const REQUEST_ID_BYTES_MAX: usize = 64;

/// Bytes of an activity's title: 255 characters of at most 4 bytes.
pub const TITLE_BYTES_MAX: usize = 1020;

/// Bytes of an actor's name in an admin event.
pub const ACTOR_BYTES_MAX: usize = 64;

/// Bytes of a payment number, ours (22 digits) or an outside caller's.
pub const PAYMENT_NO_BYTES_MAX: usize = 64;

/// Bytes of an order number, ours (20 digits) or an adopted one: with the two digits of an attempt
/// it is a payment number.
pub const ORDER_NO_BYTES_MAX: usize = PAYMENT_NO_BYTES_MAX - 2;

/// Bytes of a refund number.
pub const REFUND_NO_BYTES_MAX: usize = 64;

/// Refund numbers that begin so are the server's own; callers cannot give them.
pub const REFUND_NO_RESERVED_PREFIX: &str = "auto-";

/// Refunds that one reservation remembers: each but the last was refused by the provider.
pub const REFUNDS_PER_RESERVATION_MAX: usize = 128;

/// Provider transactions that an activity remembers, so that each has one effect.
pub const RECEIPTS_PER_ACTIVITY_MAX: usize = 1 << 22;

/// Bytes of a channel's or a sink's name.
pub const NAME_BYTES_MAX: usize = 32;

/// Bytes of a payment callback's raw body that the log keeps.
pub const CALLBACK_BYTES_MAX: usize = 4096;

/// Bytes of a control's key and of its value.
pub const CONTROL_KEY_BYTES_MAX: usize = 128;
/// See [`CONTROL_KEY_BYTES_MAX`].
pub const CONTROL_VALUE_BYTES_MAX: usize = 4096;

/// Revoked tokens and blacklist entries at most: they grow with users, not with operators.
pub const CONTROL_LISTED_MAX: usize = 262_144;
/// Bytes of their keys and values at most: a quarter KiB each on average.
pub const CONTROL_LISTED_BYTES_MAX: usize = 64 << 20;
/// All other controls at most: each is named in documentation or configuration.
pub const CONTROL_SETTINGS_MAX: usize = 1024;

/// Bytes of a reason text.
pub const NOTE_BYTES_MAX: usize = 256;

/// Reservations of one user in one activity beyond the limit: bounds state under
/// buy-cancel-buy.
pub const RESERVATIONS_BEYOND_LIMIT_MAX: u32 = 16;

/// Restock and decrease operations an activity remembers, so that a repeated key changes nothing.
pub const OPERATIONS_PER_ACTIVITY_MAX: usize = 65_536;

/// Payment attempts of one order: two digits of a payment number.
pub const PAYMENT_ATTEMPTS_MAX: u8 = 99;

/// The shortest time to pay, in milliseconds: timers promise the second, not less.
pub const PAYMENT_TTL_MS_MIN: u64 = 1000;

/// The longest time to pay, in milliseconds: 30 days.
pub const PAYMENT_TTL_MS_MAX: u64 = 30 * 24 * 3600 * 1000;

/// The latest instant an activity may name, in Unix milliseconds: 9999-12-31T23:59:59.999Z, the
/// last that RFC 3339 and every SQL dialect can write.
pub const TIME_MS_MAX: u64 = 253_402_300_799_999;

/// After a start nothing expires for this long (or the activity's `payment_ttl`, where that is
/// shorter): shoppers could not pay while the server was down.
pub const EXPIRY_GRACE_MS_MAX: u64 = 120_000;

/// How long after its window an activity stays in memory, in milliseconds: a day, by which late
/// money has come or goes back.
pub const ARCHIVE_AFTER_MS: u64 = 24 * 3600 * 1000;

/// Memory that is made ahead for all that is for sale: five million purchases' worth, of which one
/// sale gets half at most, so that another finds some.
pub const MEMORY_AHEAD_BYTES_MAX: u64 = 512 << 20;

/// The machine's share of it: a sixteenth of its memory at most is made ahead.
pub const MEMORY_AHEAD_DIVISOR: u64 = 16;

/// Shards of a directory unless it was formatted with another number.
pub const SHARDS_DEFAULT: u16 = 64;

/// The most shards a directory can have: a sink's marks name them all in one event.
pub const SHARDS_MAX: u16 = 512;

/// The largest encoded event: a payment callback with its body and the fields around it. It must
/// fit a record, whose length is a 16-bit field.
pub const EVENT_BYTES_MAX: usize = 8 * 1024;

// How the bounds hang together: a change of one that breaks another does not compile.
const _: () = assert!(ID_MAX >> 32 == (1 << ORDINAL_BITS) - 1, "an id holds every ordinal");
const _: () = assert!(UNITS_MAX <= i32::MAX as u32, "SQL counts units in an INT");
const _: () = assert!(TIME_MS_MAX < 1 << 48, "a reservation keeps 48 bits of a time");
const _: () = assert!(PAYMENT_TTL_MS_MIN < PAYMENT_TTL_MS_MAX);
const _: () = assert!(PAYMENT_ATTEMPTS_MAX <= 99, "a payment's number ends in two digits");
const _: () = assert!(SHARDS_DEFAULT <= SHARDS_MAX && SHARDS_DEFAULT.is_power_of_two());
const _: () = assert!(NAME_BYTES_MAX <= 32, "the log keeps a sink's name in 32 bytes");
const _: () = assert!(CONTROL_SETTINGS_MAX < CONTROL_LISTED_MAX, "lists leave the rest room");
const _: () = assert!(REQUEST_ID_BYTES_MAX + 1024 <= EVENT_BYTES_MAX);
const _: () = assert!(TITLE_BYTES_MAX + 2 * ACTOR_BYTES_MAX + 1024 <= EVENT_BYTES_MAX);
const _: () = assert!(CALLBACK_BYTES_MAX + 1024 <= EVENT_BYTES_MAX);
const _: () = assert!(CONTROL_VALUE_BYTES_MAX + CONTROL_KEY_BYTES_MAX + 1024 <= EVENT_BYTES_MAX);
const _: () = assert!(SHARDS_MAX as usize * 10 + 1024 <= EVENT_BYTES_MAX);
const _: () = assert!(
    REFUND_NO_RESERVED_PREFIX.len() + 32 <= REFUND_NO_BYTES_MAX,
    "a refund of our own is numbered by the hash of its transaction"
);
const _: () = assert!(
    PAYMENT_TTL_MS_MIN <= EXPIRY_GRACE_MS_MAX && EXPIRY_GRACE_MS_MAX <= PAYMENT_TTL_MS_MAX,
    "a start leaves buyers some of their time, and no more than they had"
);
const _: () = assert!(
    TIME_MS_MAX <= u64::MAX - PAYMENT_TTL_MS_MAX - ARCHIVE_AFTER_MS,
    "no deadline wraps around"
);
const _: () = assert!(
    CONTROL_KEY_BYTES_MAX + CONTROL_VALUE_BYTES_MAX <= CONTROL_LISTED_BYTES_MAX,
    "the longest entry finds room in an empty list"
);
