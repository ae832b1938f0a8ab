//! Campaigns on the simulated disk. Never shipped.
//!
//! Each takes the log, on a disk that keeps exactly what a disk must keep, through everything that
//! can befall it, and holds what comes back against the truth it kept apart.
//!
//! | module       | campaign                                                                  |
//! |--------------|---------------------------------------------------------------------------|
//! | [`crash`]    | power cut or kill at every operation of every short workload              |
//! | [`errors`]   | every operation of a workload fails, in every way                         |
//! | [`compound`] | a second blow while the first is being recovered from                     |
//! | [`corrupt`]  | damage that no crash can do, on logs whose promises are known             |
//! | [`kill`]     | `kill -9` of a real process that appends to a real file system            |
//! | [`lies`]     | a disk that says a sync is done and drops the data                        |
//! | [`mangle`]   | files that neither a disk nor a build of ours made                        |
//! | [`trace`]    | power cut at every operation of real runs on a real file system           |
//! | [`planted`]  | all of them, on a log with a known fault                                  |
//! | [`whole`]    | engine, bridge, database and Redis in one thread, everything failing at once |
//!
//! They rest on [`workload`] (the steps), [`process`] (who takes them), [`truth`] (what really
//! happened), [`fates`] (what a power cut leaves) and [`report`] (counts, and the command that runs
//! a failed case again).

mod checksums;
pub mod compound;
pub mod corrupt;
pub mod counts;
pub mod crash;
pub mod errors;
pub mod fates;
pub mod kill;
pub mod lies;
pub mod mangle;
pub mod planted;
pub mod process;
pub mod report;
mod snapshots;
pub mod trace;
pub mod truth;
pub mod whole;
pub mod workload;
