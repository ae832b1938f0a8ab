//! Which keys the readers of Redis expect.
//!
//! A layout is a few pure functions from what is known to keys with absolute values. The same ones
//! serve a batch of events, a resync from the engine's state and the scrubber, so that the three
//! can't differ.
//!
//! | layout | for | keys by |
//! |---|---|---|
//! | [`flashsale`] | readers of the function library's keys | activity |
//! | [`flashsale`] as `cluster` | the same on a cluster: the activity is the hash tag | activity |
//! | [`flash_sale`] | readers of that system | SKU |
//! | [`seckill`] | readers of that system | SKU |

pub mod flash_sale;
pub mod flashsale;
mod known;
pub mod seckill;

use engine::core::event::Status;
use engine::core::ids::{ActivityId, OrderPrefix, ReservationId, UserId};

pub use known::Known;

use super::writes::Writes;

const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 24 * HOUR_MS;

/// A layout of keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Layout {
    /// `flashsale:*`, as the function library writes them.
    #[default]
    Flashsale,
    /// The same, the activity in a hash tag, a cursor beside each activity.
    Cluster,
    /// `flash_sale:*`.
    FlashSale,
    /// `seckill:*` and `risk:*`.
    Seckill,
}

/// A reservation, as far as keys depend on it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reserved {
    /// Its id.
    pub id: ReservationId,
    /// Its buyer.
    pub user: UserId,
    /// Where it is in its life.
    pub status: Status,
    /// When it was accepted, Unix milliseconds; `None` where the event does not say, and what
    /// follows from it stays as it is.
    pub created_ms: Option<u64>,
    /// When its status changed, Unix milliseconds.
    pub updated_ms: u64,
    /// No order could hold it, and nobody has resolved that yet.
    pub is_dead_letter: bool,
    /// The order number that it was taken over with; `None` where it has that of its id.
    pub order_no: Option<Box<str>>,
}

/// What a key is about, read from its name: what must be asked to say whether it is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    /// An activity as such.
    Activity(ActivityId),
    /// The activity that owns this SKU.
    Sku(u64),
    /// A user's units.
    User(ActivityId, UserId),
    /// A user's units of the activity that owns this SKU.
    UserOfSku(u64, UserId),
    /// A reservation.
    Reservation(ReservationId),
    /// A user's entry in the blacklist.
    Blacklisted(UserId),
}

impl Layout {
    /// All layouts.
    pub const ALL: [Self; 4] = [Self::Flashsale, Self::Cluster, Self::FlashSale, Self::Seckill];

    /// Its name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Flashsale => "flashsale",
            Self::Cluster => "cluster",
            Self::FlashSale => "flash_sale",
            Self::Seckill => "seckill",
        }
    }

    /// The layout with that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|layout| layout.name() == name)
    }

    /// Whether two live activities of one SKU would write the same keys.
    pub const fn is_keyed_by_sku(self) -> bool {
        matches!(self, Self::FlashSale | Self::Seckill)
    }

    /// The patterns that all its keys match.
    pub const fn patterns(self) -> &'static [&'static str] {
        match self {
            Self::Flashsale | Self::Cluster => &["flashsale:*"],
            Self::FlashSale => &["flash_sale:*"],
            Self::Seckill => &["seckill:*", "risk:blacklist:user:*"],
        }
    }

    /// What a key is about; `None` for one that this layout does not write.
    pub fn subject(self, key: &str) -> Option<Subject> {
        match self {
            Self::Flashsale => flashsale::subject(key, false),
            Self::Cluster => flashsale::subject(key, true),
            Self::FlashSale => flash_sale::subject(key),
            Self::Seckill => seckill::subject(key),
        }
    }
}

/// A layout at a site.
#[derive(Clone, Copy, Debug)]
pub struct Keys {
    /// The layout.
    pub layout: Layout,
    /// First digits of order numbers.
    pub order_prefix: OrderPrefix,
}

impl Keys {
    /// What an activity as such asks for.
    pub fn activity(&self, it: &Known, out: &mut Writes) {
        match self.layout {
            Layout::Flashsale => flashsale::activity(it, false, out),
            Layout::Cluster => flashsale::activity(it, true, out),
            Layout::FlashSale => flash_sale::activity(it, out),
            Layout::Seckill => seckill::activity(it, out),
        }
    }

    /// What the units available ask for: the part of [`Keys::activity`] that purchases change.
    pub fn units(&self, it: &Known, out: &mut Writes) {
        match self.layout {
            Layout::Flashsale => flashsale::units(it, false, out),
            Layout::Cluster => flashsale::units(it, true, out),
            Layout::FlashSale => flash_sale::units(it, out),
            Layout::Seckill => seckill::units(it, out),
        }
    }

    /// What a user's `held` units ask for.
    pub fn user(&self, it: &Known, user: UserId, held: u32, out: &mut Writes) {
        match self.layout {
            Layout::Flashsale => flashsale::user(it, user, held, false, out),
            Layout::Cluster => flashsale::user(it, user, held, true, out),
            Layout::FlashSale => {}
            Layout::Seckill => seckill::user(it, user, held, out),
        }
    }

    /// What a reservation asks for.
    pub fn reservation(&self, it: &Known, reserved: &Reserved, out: &mut Writes) {
        match self.layout {
            Layout::Flashsale => flashsale::reservation(it, reserved, false, out),
            Layout::Cluster => flashsale::reservation(it, reserved, true, out),
            Layout::FlashSale => {
                flash_sale::reservation(it, reserved, self.order_prefix, out);
            }
            Layout::Seckill => {}
        }
    }

    /// What has no end of its own and must go with an archived activity.
    pub fn archived(&self, it: &Known, out: &mut Writes) {
        match self.layout {
            Layout::Flashsale => out.absent(flashsale::pause_key(it.id, false)),
            Layout::Cluster => out.absent(flashsale::pause_key(it.id, true)),
            Layout::FlashSale | Layout::Seckill => {}
        }
    }

    /// What the blacklist asks for: `entry` is its end, `None` for ever; no entry, no key.
    pub fn blacklisted(&self, user: UserId, entry: Option<Option<u64>>, out: &mut Writes) {
        if self.layout == Layout::Seckill {
            seckill::blacklisted(user, entry, out);
        }
    }
}

/// The id that the decimal `text` is; `None` with a sign, a leading zero, or no id.
fn decimal(text: &str) -> Option<u64> {
    let canonical = !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
    canonical.then(|| text.parse().ok()).flatten()
}
