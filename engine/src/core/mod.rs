//! The pure core: no clock, no randomness, no files, no threads.

pub mod command;
pub mod event;
pub mod ids;
pub mod limits;
