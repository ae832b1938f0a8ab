//! Every hand-over between threads of the log, in every schedule within a bound of preemptions.
//!
//! The models run the real code: `wal` built with `--cfg loom` takes its atomics, locks and
//! condition variables from the model checker (`wal/src/sync.rs`). Without that flag this crate is
//! empty.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS=2 cargo test --profile ci -p loom-tests
//! ```
//!
//! | model file     | hand-over                                                                  |
//! |----------------|----------------------------------------------------------------------------|
//! | `marks.rs`     | publish, wait, give up, fail                                               |
//! | `committer.rs` | append, be committed, by a thread or by whoever comes; close; fail          |
//! | `spares.rs`    | spares made ahead, taken by a rotation, missed on a full disk               |
