//! One module a target, or two that read alike.

pub(crate) mod body;
pub(crate) mod control;
pub(crate) mod event;
pub(crate) mod frame;
pub(crate) mod mirror;
pub(crate) mod model;
pub(crate) mod resp;
pub(crate) mod segments;
pub(crate) mod snapshot;
