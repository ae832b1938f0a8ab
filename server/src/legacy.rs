//! `--legacy-database`: the reservations of an older system, taken over before anything is sold.

use std::time::Instant;

use bridge::legacy::{Report, Source};
use engine::Engine;
use engine::core::control::keys::ADOPTING;

use crate::cli::progress::Bar;
use crate::cli::{EXIT_LOG, EXIT_REFUSED, EXIT_USAGE};
use crate::config::Settings;

/// Why the server does not start. Each message is one line that says what to do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LegacyError {
    /// Nothing, or not all, was taken over.
    #[error(transparent)]
    Adopt(#[from] bridge::legacy::LegacyError),
    /// It was begun, and is not gone on with.
    #[error(
        "an earlier start was cut short while it took the older system's reservations over: give \
         --legacy-database once more, or units that are its buyers' would be sold"
    )]
    Unfinished,
    /// The task that does it died.
    #[error("internal error: {0}")]
    Task(#[from] tokio::task::JoinError),
}

impl LegacyError {
    /// The exit code of the contract.
    pub(crate) fn exit_code(&self) -> u8 {
        use bridge::legacy::LegacyError as Error;
        match self {
            Self::Adopt(Error::Url(_) | Error::Unreadable { .. } | Error::Keys(_)) => EXIT_USAGE,
            Self::Adopt(Error::Schema { .. } | Error::Own { .. }) | Self::Unfinished => {
                EXIT_REFUSED
            }
            Self::Adopt(Error::Log) | Self::Task(_) => EXIT_LOG,
        }
    }
}

/// Takes over what the older system has and this log has not. Its Redis is the one that the mirror
/// will write: its keys are read before that.
///
/// # Errors
/// [`LegacyError`]: nothing may be sold.
pub(crate) async fn adopt(settings: &Settings, engine: &Engine) -> Result<(), LegacyError> {
    let Some(url) = settings.legacy_database.clone() else {
        let is_whole = engine.control(ADOPTING).is_none();
        return if is_whole { Ok(()) } else { Err(LegacyError::Unfinished) };
    };
    let bar = Bar::of_steps("taking over the older reservations");
    let begun = Instant::now();
    let (engine, redis) = (engine.clone(), settings.redis.clone());
    let layout = settings.mirror.layout;
    let adopting = tokio::task::spawn_blocking(move || {
        tokio::runtime::Handle::current().block_on(async {
            let source = Source::at(&url)?;
            let redis = redis.as_deref().map(|url| (url, layout));
            let report = source.adopt(&engine, redis).await;
            source.close().await;
            report
        })
    });
    let report = adopting.await??;
    drop(bar);
    tell(&report);
    tracing::info!("older system: done in {} ms", begun.elapsed().as_millis());
    Ok(())
}

fn tell(report: &Report) {
    tracing::info!("{report}");
    for line in report.kept.all() {
        tracing::warn!("older system: kept out of sale: {line}");
    }
    for line in report.doubtful.all() {
        tracing::warn!("older system: doubtful: {line}");
    }
    for line in report.refused.all() {
        tracing::warn!("older system: not taken over: {line}");
    }
}
