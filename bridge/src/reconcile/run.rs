//! Page by page through the engine's state and SQL's rows: bounded memory, whatever their size.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use engine::core::ids::ActivityId;
use tokio::time::timeout;
use wal::Lsn;

use super::compare::{Expected, Row, Units, UnitsRow, difference};
use super::followed::Followed;
use super::{Kind, Mismatch, Report, Side};
use crate::Watcher;
use crate::redis::Present;
use crate::redis::stocks::{self, Stocks};
use crate::sql::SinkError;
use crate::sql::database::Database;
use crate::sql::facts;
use crate::sql::mend::{Aside, Mender};
use crate::sql::readers::Readers;
use crate::sql::split::Split;
use crate::sql::store::StoreError;

/// Times that what moved meanwhile is looked at again.
const ROUNDS_MAX: usize = 3;

/// Why a run could not be finished. Nothing was written but what its report names.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// SQL can't be read.
    #[error("the database can't be compared: {0}")]
    Read(#[from] StoreError),
    /// SQL can't be mended.
    #[error("the database can't be mended: {0}")]
    Mend(#[from] SinkError),
    /// The log has failed: the server is about to end.
    #[error("the log has failed")]
    LogFailed,
}

/// What is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// Units and switches of all activities.
    Sums,
    /// The same, and every reservation.
    Everything,
}

/// The engine, as the comparison needs it.
pub trait Ledger: Present {
    /// Whether an activity is archived: SQL has it, and nobody else.
    fn is_archived(&self, id: ActivityId) -> bool;

    /// Sequence in the shard of `id` up to which the orders sink is known to have come.
    fn ordered_seq(&self, id: ActivityId) -> u64;
}

impl Ledger for engine::Engine {
    fn is_archived(&self, id: ActivityId) -> bool {
        self.archived(id).is_some()
    }

    fn ordered_seq(&self, id: ActivityId) -> u64 {
        self.ordered_seq(id)
    }
}

/// The figures of some activities.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SideBySide {
    /// The engine's.
    pub engine: Vec<Units>,
    /// SQL's, of those that it has.
    pub sql: Vec<UnitsRow>,
    /// Where SQL's cursor stood.
    pub sql_lsn: Option<Lsn>,
    /// What stands in Redis; `None` where the key is absent.
    pub redis: RedisUnits,
    /// Where the mirror's cursor stood.
    pub redis_lsn: Option<Lsn>,
}

/// What stands in Redis, by activity.
type RedisUnits = BTreeMap<ActivityId, Option<String>>;

/// For SQL and for Redis to say what they hold, where somebody waits for it.
const LOOK_TIMEOUT: Duration = Duration::from_secs(3);

/// Compares, and mends where it is told to.
pub struct Reconciler<'h, H> {
    pub(super) host: &'h H,
    database: Database,
    pub(super) readers: Readers,
    split: Split,
    sink: Followed,
    redis: Option<(Stocks, Followed)>,
    pub(super) repair: bool,
    pub(super) report: Report,
}

impl<'h, H: Ledger> Reconciler<'h, H> {
    /// A run over `host` and `database`, whose sink `sink` looks at.
    pub fn new(host: &'h H, database: Database, split: Split, sink: Watcher) -> Self {
        let readers = Readers::of(&database);
        let report = Report::default();
        let (sink, redis, repair) = (Followed::by(sink), None, false);
        Self { host, database, readers, split, sink, redis, repair, report }
    }

    /// Compares the units in Redis, too.
    #[must_use]
    pub fn with_redis(self, stocks: Stocks, mirror: Watcher) -> Self {
        Self { redis: Some((stocks, Followed::by(mirror))), ..self }
    }

    /// Mends what is found.
    #[must_use]
    pub fn repairing(self, repair: bool) -> Self {
        Self { repair, ..self }
    }

    /// What engine, SQL and Redis say of `ids`, each as it is now. One of the latter two that does
    /// not answer in time says nothing.
    pub async fn side_by_side(self, ids: &[ActivityId]) -> SideBySide {
        let engine = self.units(ids);
        let sql = timeout(LOOK_TIMEOUT, self.sql_says(ids)).await;
        let (sql_lsn, sql) = sql.ok().and_then(Result::ok).unwrap_or_default();
        // Connections that still wait for an answer end with their sockets.
        let _ = timeout(LOOK_TIMEOUT, self.readers.close()).await;
        let redis = timeout(LOOK_TIMEOUT, self.redis_says(ids)).await;
        let (redis_lsn, redis) = redis.ok().flatten().unwrap_or_default();
        SideBySide { engine, sql, sql_lsn, redis, redis_lsn }
    }

    async fn sql_says(
        &self,
        ids: &[ActivityId],
    ) -> Result<(Option<Lsn>, Vec<UnitsRow>), StoreError> {
        let keys: Vec<u64> = ids.iter().map(|id| id.get()).collect();
        let mut snapshot = self.readers.snapshot().await?;
        let lsn = facts::cursor_lsn(&mut snapshot).await?;
        Ok((lsn, facts::units(&mut snapshot, &keys).await?))
    }

    async fn redis_says(&self, ids: &[ActivityId]) -> Option<(Option<Lsn>, RedisUnits)> {
        let (stocks, _) = self.redis.as_ref()?;
        let known: Vec<_> = ids.iter().filter_map(|id| stocks::known(self.host, *id)).collect();
        let found = stocks.read(&known).await.ok()?;
        let lsn = stocks.cursor(&known).await.ok()?;
        Some((lsn, known.iter().map(|it| it.id).zip(found).collect()))
    }

    /// Compares.
    ///
    /// # Errors
    /// [`ReconcileError`].
    pub async fn run(mut self, scope: Scope) -> Result<Report, ReconcileError> {
        let ids = self.host.activities();
        for ids in ids.chunks(facts::PAGE_ROWS) {
            self.sums(ids).await?;
            self.redis(ids).await?;
        }
        self.stray_activities().await?;
        if scope == Scope::Everything {
            for id in ids {
                self.reservations(id).await?;
            }
            self.stray_rows().await?;
            self.stray_orders().await?;
            let mut snapshot = self.readers.snapshot().await?;
            (self.report.gone_activities, self.report.gone_request_ids) =
                facts::gone(&mut snapshot).await?;
        }
        self.readers.close().await;
        if let Some(why) = self.sink.stands_still() {
            // One that halted at what was just mended goes on by itself; at anything else it does
            // not, and nobody has compared what it lacks.
            let target = self.host.settle().ok_or(ReconcileError::LogFailed)?;
            if self.report.repaired == 0 || !self.sink.goes_on(target).await {
                self.report.not_compared(Side::Sql, why);
            }
        }
        Ok(self.report)
    }

    pub(super) fn mender(&self) -> Mender<'_, H> {
        Mender { host: self.host, database: &self.database, split: self.split }
    }

    async fn sums(&mut self, ids: &[ActivityId]) -> Result<(), ReconcileError> {
        let mut left = ids.to_vec();
        for _ in 0..ROUNDS_MAX {
            let units = self.units(&left);
            left.clear();
            let target = self.host.settle().ok_or(ReconcileError::LogFailed)?;
            if !self.sink.passed(target).await {
                left.extend(units.iter().map(|units| units.id));
                break;
            }
            let keys: Vec<u64> = units.iter().map(|units| units.id.get()).collect();
            let mut snapshot = self.readers.snapshot().await?;
            let rows = facts::units(&mut snapshot, &keys).await?;
            drop(snapshot);
            let rows: HashMap<u64, UnitsRow> = rows.into_iter().map(|row| (row.id, row)).collect();
            for units in units {
                let (row, must) = (rows.get(&units.id.get()), UnitsRow::expected(&units));
                if row == Some(&must) {
                    self.report.activities += 1;
                } else if self.units(&[units.id]).first() == Some(&units) {
                    self.report.activities += 1;
                    let repaired = self.repair && self.mender().activity(&units).await?;
                    self.report.add(Mismatch {
                        kind: Kind::Activity,
                        place: format!("flashsale_activities {}", units.id),
                        found: row.map_or_else(|| "absent".to_owned(), units_text),
                        expected: units_text(&must),
                        repaired,
                    });
                } else {
                    left.push(units.id);
                }
            }
            if left.is_empty() {
                return Ok(());
            }
        }
        self.report.in_flight += left.len() as u64;
        Ok(())
    }

    fn units(&self, ids: &[ActivityId]) -> Vec<Units> {
        let look = |id: &ActivityId| self.host.look(*id, |it| Units::of(*id, it));
        ids.iter().filter_map(look).collect()
    }

    /// Units in Redis: the scrubber mends them by itself, all the time; here they are told.
    async fn redis(&mut self, ids: &[ActivityId]) -> Result<(), ReconcileError> {
        let Some((stocks, mirror)) = &mut self.redis else { return Ok(()) };
        let known = ids.iter().filter_map(|id| stocks::known(self.host, *id));
        let known: Vec<_> = known.filter(|it| stocks.is_told(it)).collect();
        let target = self.host.settle().ok_or(ReconcileError::LogFailed)?;
        if !mirror.passed(target).await {
            self.report.in_flight += known.len() as u64;
            if let Some(why) = mirror.stands_still() {
                self.report.not_compared(Side::Redis, why);
            }
            return Ok(());
        }
        let found = match stocks.read(&known).await {
            Ok(found) => found,
            Err(error) => {
                self.report.in_flight += known.len() as u64;
                self.report.not_compared(Side::Redis, error.to_string());
                return Ok(());
            }
        };
        let mut told = Vec::new();
        for (known, found) in known.iter().zip(found) {
            let must = stocks.expected(known);
            let still = stocks::known(self.host, known.id).as_ref() == Some(known);
            if found.as_deref() != must.as_deref() && still {
                told.push(Mismatch {
                    kind: Kind::RedisStock,
                    place: stocks.key(known).unwrap_or_default(),
                    found: found.unwrap_or_else(|| "absent".to_owned()),
                    expected: must.unwrap_or_else(|| "absent".to_owned()),
                    repaired: false,
                });
            }
        }
        told.into_iter().for_each(|mismatch| self.report.add(mismatch));
        Ok(())
    }

    async fn reservations(&mut self, id: ActivityId) -> Result<(), ReconcileError> {
        let prefix = self.host.order_prefix();
        let mut from = 0;
        loop {
            let read = |it: &_| Expected::page(id, it, from, facts::PAGE_ROWS, prefix);
            let page = self.host.look(id, read).unwrap_or_default();
            if page.is_empty() {
                return Ok(());
            }
            from += page.len();
            self.page(page).await?;
        }
    }

    async fn page(&mut self, page: Vec<Expected>) -> Result<(), ReconcileError> {
        let target = self.host.settle().ok_or(ReconcileError::LogFailed)?;
        let is_behind = !self.sink.passed(target).await;
        let keys: Vec<u64> = page.iter().map(|it| it.id.get()).collect();
        let mut snapshot = self.readers.snapshot().await?;
        let rows = facts::rows(&mut snapshot, &keys).await?;
        drop(snapshot);
        let rows: HashMap<u64, Row> = rows.into_iter().map(|row| (row.id, row)).collect();
        for expected in page {
            let row = rows.get(&expected.id.get());
            if is_behind {
                self.report.in_flight += 1;
                self.before_its_time(&expected, row).await?;
                continue;
            }
            self.report.reservations += 1;
            let Some((kind, found, must)) = difference(&expected, row) else { continue };
            let prefix = self.host.order_prefix();
            let read = |it: &_| Expected::of(expected.activity, it, expected.id, prefix);
            if self.host.look(expected.activity, read).flatten().as_ref() != Some(&expected) {
                self.report.in_flight += 1;
                continue;
            }
            let repaired = self.repair && self.mender().reservation(&expected, prefix).await?;
            let place = format!("flashsale_pre_deductions {}", expected.id);
            self.report.add(Mismatch { kind, place, found, expected: must, repaired });
        }
        Ok(())
    }

    /// A row that stands where the sink has yet to write: it is nobody's here, and the sink halts
    /// at it.
    async fn before_its_time(
        &mut self,
        expected: &Expected,
        row: Option<&Row>,
    ) -> Result<(), ReconcileError> {
        let Some(row) = row else { return Ok(()) };
        let (of, seq) = (expected.activity, expected.shard_seq);
        let is_foreign = || seq > self.host.ordered_seq(of);
        // One that the sink has just written, and whose mark is on its way, is its own.
        let is_theirs = |kind| kind == Kind::Foreign;
        if !difference(expected, Some(row)).is_some_and(|(kind, ..)| is_theirs(kind))
            || !is_foreign()
        {
            return Ok(());
        }
        let aside = Aside::Reservation(row.id);
        let repaired = self.repair && self.mender().aside(&aside, of, is_foreign).await?;
        self.report.add(Mismatch {
            kind: Kind::Foreign,
            place: format!("flashsale_pre_deductions {}", row.id),
            found: format!("a row for user {}", row.user),
            expected: "absent until the sink comes there".to_owned(),
            repaired,
        });
        Ok(())
    }
}

pub(super) fn units_text(row: &UnitsRow) -> String {
    let [available, locked, sold] = row.units;
    let [on_sale, paused, drained] = row.switches;
    format!(
        "{available} available, {locked} locked, {sold} sold, on_sale {on_sale}, paused {paused}, \
         drained {drained}, version {}",
        row.version
    )
}
