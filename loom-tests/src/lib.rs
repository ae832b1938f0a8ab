//! Every hand-over between threads of the log, in every schedule within a bound of preemptions;
//! and the log's whole protocol, in hundreds of thousands of drawn schedules.
//!
//! The models run the real code: `wal` built with `--cfg loom` or `--cfg shuttle` takes its
//! atomics, locks, condition variables and threads from the model checker (`wal/src/sync.rs`).
//! Without such a flag this crate is empty.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS=2 cargo test --profile ci -p loom-tests
//! RUSTFLAGS="--cfg shuttle" cargo test --profile ci -p loom-tests
//! ```
//!
//! | model file     | hand-over                                                       | checker |
//! |----------------|-----------------------------------------------------------------|---------|
//! | `marks.rs`     | publish, wait, wake those that were left, give up, fail         | loom    |
//! | `committer.rs` | append, be committed by whoever comes, close, fail                | loom    |
//! | `spares.rs`    | spares made ahead, taken by a rotation, missed on a full disk     | loom    |
//! | `protocol/`    | all of it at once: two shards, both threads of the log, those   | shuttle |
//! |                | who wait, a reader; rotations, a failing disk, an early end     |         |
