//! What ends a run, and who must act.

use std::io;

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Trouble {
    #[error(
        "{program} can't be started: {source}; `cargo xtask test packages` installs what is missing"
    )]
    Spawn { program: String, source: io::Error },
    #[error("{program} is not ready: {said}")]
    NotReady { program: String, said: String },
    #[error("{contender} at {workload}: the client failed: {said}")]
    Client { contender: String, workload: String, said: String },
    #[error("{contender} at {workload}: the sale was not exact: {said}")]
    WrongSale { contender: String, workload: String, said: String },
    #[error("{contender} at {workload}: {errors} requests had no answer")]
    Unanswered { contender: String, workload: String, errors: u64 },
    #[error("no workload's name contains {0}: see --list")]
    NoWorkload(String),
    #[error("what SLUICE_REDIS_SERVER names is no Redis 8: its rows would bear a false name")]
    NoRedis,
    #[error("a contender works on after its load: it can't be said what an answer costs")]
    Restless,
    #[error("a contender's metrics have no {0}: does it still have that name?")]
    NoMetric(&'static str),
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    #[error("the plot {file}: {said}")]
    Plot { file: String, said: String },
    #[error("the store: {0}")]
    Redis(#[from] redis::RedisError),
    #[error("the store: {0}")]
    Sql(#[from] sqlx::Error),
}

impl Trouble {
    /// An operation on `what` that failed.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
