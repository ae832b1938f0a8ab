//! The Redis mirror: what the log says becomes the keys that other programs read.
//!
//! ```text
//! batch - projection --> writes --> calls: keys and cursor in one atomic call each
//!            |  layouts: which keys          |
//!            known: activities at the cursor mirror.lua
//! ```
//!
//! A mirror is behind, never wrong: every call carries absolute values and the cursor from which it
//! follows, and where another cursor stands nothing is written ([`sink`]). Where it can't follow,
//! because the data was lost or is too old, the keys are written anew from the engine's state
//! (`resync`), and those that nothing asks for go (`strays`); a scrubber looks for what was evicted
//! or changed by somebody (`scrub`). While it is more than a second behind, `sluice:stale` exists.
//!
//! The mirror knows the servers by a few commands ([`servers`]).
//!
//! Two cursors tell how far it is: *applied* is in Redis; *confirmed* is in its append-only file as
//! well (`confirm`), and only that lets the log go. [`run`] is the thread around it all.
//! [`stocks`] and [`Shown`] only look. [`layouts`] are pure functions from what is known to keys.

mod confirm;
mod fault;
pub mod layouts;
mod library;
mod mark;
mod meet;
mod nodes;
mod present;
mod projection;
mod resync;
pub mod run;
mod scrub;
pub mod servers;
mod shown;
pub mod sink;
pub mod stocks;
mod strays;
mod take;
pub mod writes;

pub use confirm::Confirmed;
pub use fault::MirrorError;
pub(crate) use meet::look;
pub(crate) use nodes::Address;
pub use nodes::Nodes;
pub use present::Present;
pub use scrub::Repair;
pub use shown::Shown;
pub use take::take_over;
