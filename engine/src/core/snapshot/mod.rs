//! A snapshot's content: all of a shard's state as [`Image`]s, and the way back.
//!
//! [`walk`](mod@walk) takes every field of the state apart by name, so that one added without a
//! word here does not compile; [`load`](mod@load) puts it together again, and what comes out has
//! the same digest as what went in. Bytes are [decoded](Images) apart from that, so that another
//! thread can do it. What follows from other state is not written: chains and
//! indexes of users, who is unpaid among the adopted, the ordinals given out.

mod images;
mod load;
mod loading;
mod walk;

pub use self::images::Images;
pub use load::{ControlLoader, LoadError, ShardLoader};
pub use walk::{walk_control, walk_shard};

pub use super::codec::images::{
    IMAGE_KINDS, IMAGE_VERSION, Image, decode_image, encode_image, image_kind,
};
