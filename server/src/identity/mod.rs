//! Who is calling.
//!
//! | file | idea |
//! |---|---|
//! | [`tokens`] | bearer tokens: signed and verified, each key under one algorithm |
//! | [`quick`] | the tokens that nearly everybody shows, verified without the library |
//! | [`keys`] | where those keys come from, and how they are rotated |
//! | [`passwords`] | argon2id on a bounded pool, at equal cost for accounts that don't exist |

mod keys;
mod passwords;
mod quick;
mod tokens;

use engine::core::ids::UserId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) use keys::{KeyError, secret_files, tokens_of};
pub(crate) use passwords::{PasswordError, Passwords, is_usable_hash};
pub(crate) use tokens::{SignError, Tokens, Verified, bearer};

/// What a caller may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum Role {
    /// Buy, and see what is one's own.
    User,
    /// Everything else as well.
    Admin,
}

/// A caller whose token was verified.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Caller {
    /// The token's subject.
    pub(crate) user: UserId,
    /// The token's role.
    pub(crate) role: Role,
}

/// The token is missing, forged, expired, revoked, or not one of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Unauthenticated;
