//! Engine, SQL and Redis held against each other: by itself now and then, and when it is asked.
//!
//! | when | what |
//! |---|---|
//! | at start | everything |
//! | every minute | units and switches of all activities |
//! | every hour | every reservation, too |
//!
//! By itself it only tells: one line in the log for every difference, and counts. Mending is an
//! operator's word.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bridge::Watcher;
use bridge::reconcile::{Kind, ReconcileError, Reconciler, Report, Scope, SideBySide, Uncompared};
use bridge::redis::stocks::Stocks;
use bridge::sql::database::Database;
use bridge::sql::split::Split;
use engine::Engine;
use engine::core::ids::ActivityId;

use crate::app::{App, Shared};
use crate::config::Settings;
use crate::http::problem::{Code, Problem};
use crate::orders::{OrdersError, database_url, order_options};

/// Between two runs over the sums.
const SUMS_INTERVAL: Duration = Duration::from_secs(60);

/// Runs over the sums between two over everything: an hour.
const SUMS_PER_EVERYTHING: u32 = 60;

/// Differences of one run that are told in the log; the rest is counted.
const TOLD_MAX: usize = 20;

/// What is needed to compare, and what came of it.
pub(crate) struct Reconcile {
    database: Database,
    split: Split,
    stocks: Option<Stocks>,
    /// One run at a time: two would only mend each other's finds.
    running: tokio::sync::Mutex<()>,
    /// Runs that were finished.
    pub(crate) runs: AtomicU64,
    /// Runs that could not be.
    pub(crate) failures: AtomicU64,
    /// Differences of the last run over sums or everything.
    pub(crate) differences: AtomicU64,
    /// Differences mended, ever.
    pub(crate) repaired: AtomicU64,
    by_kind: [AtomicU64; Kind::ALL.len()],
}

impl Reconcile {
    /// Over the database and the Redis that the settings name.
    ///
    /// # Errors
    /// The database can't be named.
    pub(crate) fn new(settings: &Settings, engine: &Engine) -> Result<Self, OrdersError> {
        let layout = settings.mirror.layout;
        let open = |url: &String| Stocks::open(url, layout, engine.order_prefix()).ok();
        Ok(Self {
            database: Database::at(&database_url(settings))?,
            split: order_options(settings)?.split,
            // A URL that names none is the mirror's to refuse.
            stocks: settings.redis.as_ref().and_then(open),
            running: tokio::sync::Mutex::new(()),
            runs: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            differences: AtomicU64::new(0),
            repaired: AtomicU64::new(0),
            by_kind: [const { AtomicU64::new(0) }; Kind::ALL.len()],
        })
    }

    /// Differences found since the start, by kind.
    pub(crate) fn by_kind(&self) -> impl Iterator<Item = (Kind, u64)> {
        Kind::ALL
            .into_iter()
            .zip(&self.by_kind)
            .map(|(kind, it)| (kind, it.load(Ordering::Relaxed)))
    }

    fn count(&self, report: &Report) {
        self.runs.fetch_add(1, Ordering::Relaxed);
        self.differences.store(report.differences, Ordering::Relaxed);
        self.repaired.fetch_add(report.repaired, Ordering::Relaxed);
        for mismatch in &report.mismatches {
            let index = Kind::ALL.iter().position(|kind| *kind == mismatch.kind);
            if let Some(count) = index.and_then(|index| self.by_kind.get(index)) {
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Compares all that `scope` names, and mends it where `repair` says so.
///
/// # Errors
/// Where SQL can't be read or written, or the log has failed.
pub(crate) async fn run(app: &App, scope: Scope, repair: bool) -> Result<Report, Problem> {
    let it = &app.reconcile;
    let _running = it.running.lock().await;
    let work = move |engine: Engine, parts: Parts| async move {
        parts.reconciler(&engine).repairing(repair).run(scope).await
    };
    match apart(app, work).await {
        Ok(report) => {
            it.count(&report);
            tell(&report);
            Ok(report)
        }
        Err(error) => {
            it.failures.fetch_add(1, Ordering::Relaxed);
            Err(error)
        }
    }
}

/// The figures of `ids`, side by side, of those who answer.
///
/// # Errors
/// `internal`, where the look itself failed.
pub(crate) async fn side_by_side(app: &App, ids: Vec<ActivityId>) -> Result<SideBySide, Problem> {
    let work = |engine: Engine, parts: Parts| async move {
        Ok(parts.reconciler(&engine).side_by_side(&ids).await)
    };
    apart(app, work).await
}

/// What a run takes along to its thread.
struct Parts {
    database: Database,
    split: Split,
    sink: Watcher,
    redis: Option<(Stocks, Watcher)>,
}

impl Parts {
    fn reconciler(self, engine: &Engine) -> Reconciler<'_, Engine> {
        let Self { database, split, sink, redis } = self;
        let reconciler = Reconciler::new(engine, database, split, sink);
        match redis {
            Some((stocks, mirror)) => reconciler.with_redis(stocks, mirror),
            None => reconciler,
        }
    }
}

/// Runs `work` where it may block: it waits for the log now and then.
async fn apart<T, F, W>(app: &App, work: W) -> Result<T, Problem>
where
    T: Send + 'static,
    F: Future<Output = Result<T, ReconcileError>>,
    W: FnOnce(Engine, Parts) -> F + Send + 'static,
{
    let it = &app.reconcile;
    let mirror = app.mirror.as_ref().map(|mirror| mirror.watcher.sink().clone());
    let parts = Parts {
        database: it.database.clone(),
        split: it.split,
        sink: app.orders.watcher().clone(),
        redis: it.stocks.clone().zip(mirror),
    };
    let (engine, runtime) = (app.engine.clone(), tokio::runtime::Handle::current());
    let done = tokio::task::spawn_blocking(move || runtime.block_on(work(engine, parts))).await;
    done.map_err(|_| Code::Internal)?.map_err(|error| {
        tracing::warn!(%error, "engine, SQL and Redis could not be compared");
        match error {
            ReconcileError::LogFailed => Code::LogUnavailable.into(),
            ReconcileError::Read(_) | ReconcileError::Mend(_) => Code::DatabaseUnavailable.into(),
        }
    })
}

fn tell(report: &Report) {
    for mismatch in report.mismatches.iter().take(TOLD_MAX) {
        tracing::error!("reconcile: {mismatch}");
    }
    for Uncompared { side, why } in &report.uncompared {
        tracing::warn!("reconcile: {} could not be compared: {why}", side.name());
    }
    if report.differences > TOLD_MAX as u64 {
        tracing::error!("reconcile: {} differences in all", report.differences);
    }
}

/// Compares by itself, until the server stops.
pub(crate) async fn scheduled(shared: Arc<Shared>) {
    let stop = shared.stop.clone();
    let work = async {
        let mut ticks = tokio::time::interval(SUMS_INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        for round in 0u32.. {
            ticks.tick().await;
            let Ok(app) = shared.app() else { continue };
            let scope = match round.is_multiple_of(SUMS_PER_EVERYTHING) {
                true => Scope::Everything,
                false => Scope::Sums,
            };
            // What went wrong was told; the next round is the next attempt.
            let _ = run(app, scope, false).await;
        }
    };
    stop.run_until_cancelled(work).await;
}
