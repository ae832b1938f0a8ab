//! Adoption events of what is not here yet.
//!
//! ```text
//! look      activities; every row once: what is new, and how many units each activity begins with
//! begin     nothing new: nothing is written. Else ADOPTING is set, new activities are adopted
//! passes    paid, then ordered, then the rest: where units are short, they go in this order
//! end       ADOPTED_BUT says what the engine refused, ADOPTING is cleared
//! ```
//!
//! What was refused is no work for the next start, until a row of it changes or another one comes:
//! see [`Left`]. What was refused for its units is tried again once they are there, unless Redis is
//! not: that was decided once, and no start waits for it.

use std::collections::BTreeMap;

use engine::Engine;
use engine::core::control::keys::{ADOPTED_BUT, ADOPTING};
use engine::core::decide::AdoptActivity;
use engine::core::event::{Actor, Definition, Status};
use engine::core::ids::{Ordinal, ReservationId};
use engine::core::request::RequestHasher;

use super::LegacyError;
use super::keys::Keys;
use super::left::{Digest, Left};
use super::report::{Named, Report, said, short};
use super::rows::{ActivityRow, Candidate, Facts};
use super::source::{Place, Reader, Source};
use super::units::Tally;
use crate::redis::layouts::Layout;
use crate::restore::{RestoreError, retried};
use crate::sql::store::StoreError;

/// Who does it, in the log.
pub(super) const ACTOR: Actor<'static> = Actor { name: "legacy", request_id: "" };

/// Which rows a pass takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rank {
    Paid,
    Ordered,
    Rest,
}

impl Rank {
    pub(super) fn of(facts: &Facts) -> Self {
        match facts.verdict.status {
            Status::Confirmed => Self::Paid,
            Status::Reserved if facts.verdict.out_of_stock => Self::Ordered,
            _ => Self::Rest,
        }
    }
}

/// What there is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Work {
    None,
    /// Rows that an earlier start found no units for.
    Again,
    /// Something that no start has seen yet, or finished.
    New,
}

/// An activity of the older system.
pub(super) enum Target {
    /// To be adopted.
    New(Box<ActivityRow>, Tally),
    /// Here: its price, and how long its orders may be paid.
    Here { price: u64, payment_ttl_ms: u64 },
    /// Archived here, or none that can be adopted.
    Gone { is_archived: bool },
}

pub(super) struct Take<'e> {
    pub(super) engine: &'e Engine,
    pub(super) hasher: RequestHasher,
    pub(super) targets: BTreeMap<u64, Target>,
    pub(super) keys: Keys,
    pub(super) report: Report,
    /// Rows that are to be adopted, or were refused before.
    fresh: Left,
    fresh_named: Named,
    /// Rows that the engine refused.
    pub(super) left: Left,
    /// What an earlier start left.
    left_before: Left,
    /// A row that was short of its units finds them now.
    is_freed: bool,
    /// An earlier start was cut short.
    pub(super) resumes: bool,
}

impl Source {
    /// Takes over what is not here yet; `redis` is the older system's, where that can be asked.
    /// Blocks on the log: not for a thread that has other things to do.
    ///
    /// # Errors
    /// [`LegacyError`]; what was taken over until then stays, and the next start goes on.
    pub async fn adopt(
        &self,
        engine: &Engine,
        redis: Option<(&str, Layout)>,
    ) -> Result<Report, LegacyError> {
        let mut reader = self.reader().await?;
        let (keys, unread) = match redis {
            Some((url, layout)) => match Keys::read(url, layout).await {
                Ok(keys) => (keys, None),
                Err(error) => (Keys::default(), Some(error)),
            },
            None => (Keys::default(), None),
        };
        let mut take = Take {
            engine,
            hasher: RequestHasher::new(&engine.request_hash_key()),
            targets: BTreeMap::new(),
            keys,
            report: Report::default(),
            fresh: Left::default(),
            fresh_named: Named::default(),
            left: Left::default(),
            left_before: Left::recorded(engine.control(ADOPTED_BUT).map(|it| it.value).as_deref()),
            is_freed: false,
            resumes: engine.control(ADOPTING).is_some(),
        };
        let unreadable = self.unreadable();
        take.look(&mut reader).await.map_err(&unreadable)?;
        let work = match (take.work(), unread) {
            (work, None) => work,
            // Units may be taken there that nobody knows of here.
            (Work::New, Some(error)) => return Err(error),
            // All is here, or was decided: a cache that is down stops no start.
            (Work::None | Work::Again, Some(error)) => {
                take.report.doubtful.add(error.to_string());
                Work::None
            }
        };
        if work != Work::None {
            take.begin()?;
            for rank in [Rank::Paid, Rank::Ordered, Rank::Rest] {
                take.pass(&mut reader, rank, &unreadable).await?;
            }
            engine.all_durable().map_err(|_| LegacyError::Log)?;
            take.note(ADOPTED_BUT, &take.left.record())?;
            let cleared = retried(|| engine.control_clear(ACTOR, ADOPTING)).map_err(log)?;
            let _ = cleared.wait().map_err(|_| LegacyError::Log)?;
        } else {
            take.report.refused.append(take.fresh_named);
        }
        Ok(take.report)
    }
}

pub(super) fn log(_: RestoreError) -> LegacyError {
    LegacyError::Log
}

impl Take<'_> {
    /// Reads everything once: what there is, what is new, what can't be.
    async fn look(&mut self, reader: &mut Reader) -> Result<(), StoreError> {
        let mut place = Place::default();
        while let Some(page) = reader.activities(&mut place).await? {
            for row in page {
                match row {
                    Ok(row) => self.meet(row),
                    Err(why) => self.report.refused.add(why),
                }
            }
        }
        let mut place = Place::default();
        while let Some(page) = reader.reservations(&mut place, &self.keys).await? {
            for candidate in page {
                self.keys.see(candidate.number, &candidate.told);
                self.count(candidate);
            }
        }
        let mut place = Place::default();
        while let Some(page) = reader.orphans(&mut place, |id| self.price(id)).await? {
            page.into_iter().for_each(|candidate| self.count(candidate));
        }
        for candidate in self.keys.alone(self.engine.now_ms()) {
            self.count(candidate);
        }
        Ok(())
    }

    fn meet(&mut self, row: ActivityRow) {
        let id = row.id;
        let name = format!("flashsale_activities {id}");
        let target = match self.engine.activity(id) {
            Some(here) if here.terms.sku == row.sku && here.terms.price == row.price => {
                let payment_ttl_ms = here.terms.payment_ttl_ms;
                Target::Here { price: row.price, payment_ttl_ms }
            }
            Some(_) => {
                let why = "another activity has this id here, with another SKU or price";
                self.report.refused.add(format!("{name}: {why}"));
                Target::Gone { is_archived: false }
            }
            None if self.engine.archived(id).is_some() => Target::Gone { is_archived: true },
            None => Target::New(Box::new(row), Tally::default()),
        };
        if self.targets.insert(id.get(), target).is_some() {
            self.report.doubtful.add(format!("{name}: is there more than once"));
        }
    }

    pub(super) fn price(&self, activity: u64) -> Option<u64> {
        match self.targets.get(&activity)? {
            Target::New(row, _) => Some(row.price),
            Target::Here { price, .. } => Some(*price),
            Target::Gone { .. } => None,
        }
    }

    /// Judges a row once, for the report and for the units of its activity.
    fn count(&mut self, candidate: Candidate) {
        let Candidate { name, told, .. } = candidate;
        let unfit = match told {
            Ok(facts) => match self.refusal(&facts) {
                None => return self.count_fit(&name, &facts),
                Some(why) => (why, Some((facts.activity, facts.units(true)))),
            },
            Err(unfit) => (unfit.why, unfit.units),
        };
        let (why, units) = unfit;
        if let Some((activity, units)) = units {
            match self.targets.get_mut(&activity.get()) {
                Some(Target::New(_, tally)) => tally.add(units),
                Some(Target::Gone { is_archived: true }) => {
                    self.report.known += 1;
                    return;
                }
                _ => {}
            }
        }
        self.report.refused.add(format!("{name}: {why}"));
    }

    fn count_fit(&mut self, name: &str, facts: &Facts) {
        let is_known = self.known(facts).is_some();
        match self.targets.get_mut(&facts.activity.get()) {
            Some(Target::New(_, tally)) => {
                tally.add(facts.units(false));
                if let (Some(created_ms), Some(expire_ms)) = (facts.ordered_ms, facts.expire_ms) {
                    tally.add_ttl(created_ms, expire_ms);
                }
            }
            Some(Target::Gone { is_archived: true }) => {
                self.report.known += 1;
                return;
            }
            _ => {}
        }
        if is_known && !self.resumes {
            self.report.known += 1;
            return;
        }
        let digest = self.digest(name, facts);
        self.fresh.add(digest);
        let is_short = self.left_before.may_be_short(digest);
        self.is_freed |= is_short && self.has_units(facts);
        let why = match is_short {
            true => short(facts),
            false => "was refused before, and is as it was".to_owned(),
        };
        self.fresh_named.add(format!("{name}: {why}"));
        if let Some(doubt) = facts.verdict.doubt {
            self.report.doubtful.add(format!("{name}: {doubt}"));
        }
    }

    /// The reservation that `facts` were adopted as.
    pub(super) fn known(&self, facts: &Facts) -> Option<ReservationId> {
        let by_number = (facts.old_id != 0).then(|| self.engine.adopted_as_number(facts.old_id));
        by_number.flatten().or_else(|| {
            let order_no = Some(facts.order_no.as_str()).filter(|it| !it.is_empty())?;
            let id = self.engine.reservation_of_order(order_no)?;
            let is_of_activity = self.engine.activity_of(id) == Some(facts.activity);
            (is_of_activity && (facts.old_id == 0 || self.is_restored(id, facts))).then_some(id)
        })
    }

    /// Whether `id`, which has the order number of `facts`, may be what they were adopted as in a
    /// directory that was restored since: SQL keeps no number that was too large to be an id.
    fn is_restored(&self, id: ReservationId, facts: &Facts) -> bool {
        let is_renumbered = facts.old_id > u64::from(u32::MAX) && id.ordinal() == Ordinal::ADOPTED;
        let view = || self.engine.reservation(id).ok()?.wait().ok()?;
        is_renumbered && view().is_some_and(|it| it.reservation.user == facts.user)
    }

    /// Why a row can't be adopted, that its own cells do not say.
    pub(super) fn refusal(&self, facts: &Facts) -> Option<String> {
        let price = match self.targets.get(&facts.activity.get()) {
            Some(Target::Gone { is_archived: true }) => return None,
            Some(Target::Gone { .. }) => return Some("its activity was not taken over".to_owned()),
            None => return Some(format!("there is no activity {}", facts.activity)),
            Some(Target::New(row, _)) => row.price,
            Some(Target::Here { price, .. }) => *price,
        };
        let total = price.checked_mul(facts.quantity.into());
        let is_priced = match (facts.price, facts.total_amount) {
            (Some(own), _) => own == price,
            (None, Some(amount)) => total == Some(amount),
            (None, None) => true,
        };
        (!is_priced).then(|| format!("it was sold for another price than its activity's {price}"))
    }

    fn work(&self) -> Work {
        let is_new = |target: &Target| matches!(target, Target::New(..));
        let is_known = self.fresh.is_known_to(&self.left_before);
        match self.resumes || !is_known || self.targets.values().any(is_new) {
            true => Work::New,
            false if self.is_freed => Work::Again,
            false => Work::None,
        }
    }

    /// Whether the units of `facts` are free here.
    fn has_units(&self, facts: &Facts) -> bool {
        let here = self.engine.activity(facts.activity);
        here.is_some_and(|it| it.figures.available >= facts.quantity)
    }

    pub(super) fn digest(&self, name: &str, facts: &Facts) -> Digest {
        let is_of_keys = facts.is_of_keys;
        let facts = match is_of_keys {
            // Keys have no times: theirs are this start's.
            true => Facts { created_ms: None, updated_ms: None, expire_ms: None, ..facts.clone() },
            false => facts.clone(),
        };
        Digest { hash: self.hasher.hash(&format!("{name} {facts:?}")), is_of_keys }
    }

    fn note(&mut self, key: &str, value: &[u8]) -> Result<(), LegacyError> {
        let set = retried(|| self.engine.control_set(ACTOR, key, value, 0)).map_err(log)?;
        if let Err(refusal) = set.wait().map_err(|_| LegacyError::Log)? {
            self.report.doubtful.add(format!("the log does not note {key}: {refusal:?}"));
        }
        Ok(())
    }

    fn begin(&mut self) -> Result<(), LegacyError> {
        self.note(ADOPTING, b"1")?;
        let targets = std::mem::take(&mut self.targets);
        for (id, target) in targets {
            let target = match target {
                Target::New(row, tally) => self.activity(*row, &tally)?,
                other => other,
            };
            self.targets.insert(id, target);
        }
        Ok(())
    }

    fn activity(&mut self, row: ActivityRow, tally: &Tally) -> Result<Target, LegacyError> {
        let name = format!("flashsale_activities {}", row.id);
        let mut stock = row.stock;
        stock.redis = self.keys.free(row.id.get());
        let start = tally.start(&stock);
        let narrow = |units: u64| u32::try_from(units).unwrap_or(u32::MAX);
        let payment_ttl_ms = row.payment_ttl_ms.unwrap_or_else(|| tally.payment_ttl_ms());
        let definition = Definition {
            sku: row.sku,
            title: &row.title,
            price: row.price,
            per_user_limit: row.per_user_limit,
            start_ms: row.start_ms,
            end_ms: row.end_ms,
            payment_ttl_ms,
            late_payment: row.late_payment,
            dead_letter: row.dead_letter,
            publish_at_ms: 0,
        };
        let adopted = AdoptActivity {
            version: 1,
            available: narrow(start.available),
            sold: narrow(start.sold),
            on_sale: row.on_sale,
            definition,
        };
        let told = retried(|| self.engine.adopt_activity(row.id, None, &adopted)).map_err(log)?;
        if let Err(refusal) = told.wait().map_err(|_| LegacyError::Log)? {
            self.report.refused.add(format!("{name}: {}", said(refusal)));
            return Ok(Target::Gone { is_archived: false });
        }
        self.report.activities += 1;
        if start.is_doubtful {
            self.report.doubtful.add(format!("{name}: its figures do not add up"));
        }
        if start.sold > 0 {
            let units = start.sold;
            self.report.kept.add(format!("{name}: {units} units are taken by nobody known here"));
        }
        Ok(Target::Here { price: row.price, payment_ttl_ms })
    }
}
