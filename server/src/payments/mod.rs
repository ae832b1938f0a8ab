//! Money: ways to pay, what providers say, and giving it back.
//!
//! ```text
//!   buyer --- POST /api/payments ---------------> engine: a payment is open
//!   provider - POST /api/payments/callback/{c} -> signature -> engine: recorded, with a verdict
//!   operator - POST .../refund -> engine: a refund is open --+
//!   engine: late money, a second payment --------------------+-> refunder -> provider -> engine
//! ```
//!
//! The log decides everything; nothing here remembers what a crash may not take. The refunder's
//! work list is the engine's, and a provider that is asked twice under one number gives money back
//! once.
//!
//! | file | idea |
//! |---|---|
//! | [`channels`] | the ways to pay: secrets and providers by name |
//! | [`signature`] | who signed this, and when |
//! | [`replays`] | a callback that is sent again as it was costs no record for ever |
//! | [`provider`] | what a provider is asked, and what it may answer |
//! | [`http_provider`] | a provider behind a URL |
//! | [`refunder`] | asks for refunds until they are settled or refused |
//! | [`counts`] | what is counted of all this |

pub(crate) mod channels;
pub(crate) mod counts;
mod http_provider;
mod provider;
mod refunder;
mod replays;
pub(crate) mod signature;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

pub(crate) use channels::{Channels, ChannelsError};
pub(crate) use counts::Counts;
pub(crate) use refunder::Refunder;
use replays::Replays;

/// What the server holds of payments.
pub(crate) struct Payments {
    /// The ways to pay.
    pub(crate) channels: Arc<Channels>,
    /// How long a provider may take a payment.
    pub(crate) ttl: Duration,
    /// Callbacks that were recorded as they are.
    pub(crate) replays: Replays,
    /// What happened.
    pub(crate) counts: Arc<Counts>,
    /// Told when a refund was asked for: nobody waits for the refunder's next look.
    pub(crate) refunds: Arc<Notify>,
}

impl Payments {
    /// Nothing has happened yet.
    pub(crate) fn new(channels: Channels, ttl: Duration) -> Self {
        Self {
            channels: Arc::new(channels),
            ttl,
            replays: Replays::default(),
            counts: Arc::new(Counts::default()),
            refunds: Arc::new(Notify::new()),
        }
    }
}
