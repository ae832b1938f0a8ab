//! Who may call how often.
//!
//! | file | idea |
//! |---|---|
//! | [`rate`] | `100/1s burst 20`, as people write it |
//! | [`meter`] | bucket and window, each in one word: state and time in, state out |
//! | [`table`] | counters by key in fixed memory; nobody is let through sooner for it |
//! | [`rules`] | which limits hold: the file, and over it what operators set |
//! | [`limiter`] | all limits on one purchase, taken together or not at all |
//! | [`ramp`], [`adaptive`] | how fast: before a start, and under load |
//! | [`address`] | from where: behind proxies that are trusted, and no others |

pub(crate) mod adaptive;
pub(crate) mod address;
mod limiter;
mod meter;
pub(crate) mod ramp;
mod rate;
mod rules;
mod table;

pub(crate) use limiter::{Call, Limited, Limiter, LoginLimiter, Scope};
pub(crate) use rate::{Limit, Rate, Speed};
pub(crate) use rules::{Limits, Rules, RulesError, merge};
