//! The pure core: no clock, no randomness, no files, no threads.

pub mod codec;
pub mod codes;
pub mod command;
pub mod event;
pub mod ids;
pub mod limits;
