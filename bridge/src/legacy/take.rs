//! Adoption events of what is not here yet.
//!
//! ```text
//! look      activities; every row once: what is new, and how many units each activity begins with
//! begin     nothing new: nothing is written. Else ADOPTING is set, new activities are adopted
//! passes    paid, then ordered, then the rest: where units are short, they go in this order
//! end       ADOPTING is cleared
//! ```

use std::collections::BTreeMap;

use engine::core::command::Refusal;
use engine::core::control::keys::ADOPTING;
use engine::core::decide::{AdoptActivity, AdoptReservation};
use engine::core::event::{Actor, Body, Definition, Event, RefundScope, Status};
use engine::core::ids::ReservationId;
use engine::core::request::RequestHasher;
use engine::core::side::RefundStatus;
use engine::{Adopted, Engine, OldId, Pending};

use super::LegacyError;
use super::keys::Keys;
use super::report::Report;
use super::rows::{ActivityRow, Candidate, Facts};
use super::source::{Place, Reader, Source};
use super::units::Tally;
use crate::redis::layouts::Layout;
use crate::restore::{RestoreError, retried};
use crate::sql::store::StoreError;

/// Who does it, in the log.
const ACTOR: Actor<'static> = Actor { name: "legacy", request_id: "" };

/// Which rows a pass takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rank {
    Paid,
    Ordered,
    Rest,
}

impl Rank {
    fn of(facts: &Facts) -> Self {
        match facts.verdict.status {
            Status::Confirmed => Self::Paid,
            Status::Reserved if facts.verdict.out_of_stock => Self::Ordered,
            _ => Self::Rest,
        }
    }
}

/// An activity of the older system.
enum Target {
    /// To be adopted.
    New(Box<ActivityRow>, Tally),
    /// Here: its price, and how long its orders may be paid.
    Here { price: u64, payment_ttl_ms: u64 },
    /// Archived here, or none that can be adopted.
    Gone { is_archived: bool },
}

/// A reservation on its way into the log.
struct Waiting {
    name: String,
    facts: Facts,
    told: Pending<Result<Adopted<ReservationId>, Refusal>>,
}

struct Take<'e> {
    engine: &'e Engine,
    hasher: RequestHasher,
    targets: BTreeMap<u64, Target>,
    keys: Keys,
    report: Report,
    /// Rows that are to be adopted.
    fresh: u64,
    /// An earlier start was cut short.
    resumes: bool,
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
        let keys = match redis {
            Some((url, layout)) => Keys::read(url, layout).await?,
            None => Keys::default(),
        };
        let mut take = Take {
            engine,
            hasher: RequestHasher::new(&engine.request_hash_key()),
            targets: BTreeMap::new(),
            keys,
            report: Report::default(),
            fresh: 0,
            resumes: engine.control(ADOPTING).is_some(),
        };
        let unreadable = self.unreadable();
        take.look(&mut reader).await.map_err(&unreadable)?;
        if take.has_work() {
            take.begin()?;
            for rank in [Rank::Paid, Rank::Ordered, Rank::Rest] {
                take.pass(&mut reader, rank, &unreadable).await?;
            }
            engine.all_durable().map_err(|_| LegacyError::Log)?;
            let cleared = retried(|| engine.control_clear(ACTOR, ADOPTING)).map_err(log)?;
            let _ = cleared.wait().map_err(|_| LegacyError::Log)?;
        }
        Ok(take.report)
    }
}

fn log(_: RestoreError) -> LegacyError {
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

    fn price(&self, activity: u64) -> Option<u64> {
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
        self.fresh += 1;
        if let Some(doubt) = facts.verdict.doubt {
            self.report.doubtful.add(format!("{name}: {doubt}"));
        }
    }

    /// The reservation that `facts` were adopted as.
    fn known(&self, facts: &Facts) -> Option<ReservationId> {
        let by_number = (facts.old_id != 0).then(|| self.engine.adopted_as_number(facts.old_id));
        by_number.flatten().or_else(|| {
            let order_no = Some(facts.order_no.as_str()).filter(|it| !it.is_empty())?;
            let id = self.engine.reservation_of_order(order_no)?;
            (self.engine.activity_of(id) == Some(facts.activity) && facts.old_id == 0).then_some(id)
        })
    }

    /// Why a row can't be adopted, that its own cells do not say.
    fn refusal(&self, facts: &Facts) -> Option<String> {
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

    fn has_work(&self) -> bool {
        let is_new = |target: &Target| matches!(target, Target::New(..));
        self.resumes || self.fresh > 0 || self.targets.values().any(is_new)
    }

    fn begin(&mut self) -> Result<(), LegacyError> {
        let set = retried(|| self.engine.control_set(ACTOR, ADOPTING, b"1", 0)).map_err(log)?;
        if let Err(refusal) = set.wait().map_err(|_| LegacyError::Log)? {
            self.report.doubtful.add(format!("the log does not note the beginning: {refusal:?}"));
        }
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

    /// Adopts the rows of one rank.
    async fn pass(
        &mut self,
        reader: &mut Reader,
        rank: Rank,
        unreadable: impl Fn(StoreError) -> LegacyError,
    ) -> Result<(), LegacyError> {
        let mut place = Place::default();
        let keys = std::mem::take(&mut self.keys);
        while let Some(page) = reader.reservations(&mut place, &keys).await.map_err(&unreadable)? {
            self.page(page, rank)?;
        }
        let mut place = Place::default();
        while let Some(page) =
            reader.orphans(&mut place, |id| self.price(id)).await.map_err(&unreadable)?
        {
            self.page(page, rank)?;
        }
        self.page(keys.alone(self.engine.now_ms()), rank)?;
        self.keys = keys;
        Ok(())
    }

    fn page(&mut self, page: Vec<Candidate>, rank: Rank) -> Result<(), LegacyError> {
        let mut waiting = Vec::new();
        for Candidate { name, told, .. } in page {
            let Ok(facts) = told else { continue };
            let is_archived = matches!(
                self.targets.get(&facts.activity.get()),
                Some(Target::Gone { is_archived: true })
            );
            let is_wanted = Rank::of(&facts) == rank && self.refusal(&facts).is_none();
            let is_done = is_archived || self.known(&facts).is_some() && !self.resumes;
            if is_wanted && !is_done {
                let told = self.reservation(&facts)?;
                waiting.push(Waiting { name, facts, told });
            }
        }
        for Waiting { name, facts, told } in waiting {
            let told = told.wait().map_err(|_| LegacyError::Log)?;
            self.settle(&name, facts, told)?;
        }
        Ok(())
    }

    fn reservation(
        &self,
        facts: &Facts,
    ) -> Result<Pending<Result<Adopted<ReservationId>, Refusal>>, LegacyError> {
        let payment_ttl_ms = match self.targets.get(&facts.activity.get()) {
            Some(Target::Here { payment_ttl_ms, .. }) => *payment_ttl_ms,
            _ => 0,
        };
        let now_ms = self.engine.now_ms();
        let created_ms = facts.created_ms.unwrap_or(now_ms);
        let is_unpaid = facts.verdict.status == Status::Reserved;
        // Counted back, so that it ends when its buyer was told that it would.
        let of_end = facts.expire_ms.filter(|_| is_unpaid);
        let created_ms = of_end.map_or(created_ms, |end_ms| end_ms.saturating_sub(payment_ttl_ms));
        // No client can have sent one as long as this: it is nobody's repeat.
        let unknown;
        let known = match facts.request_id.as_str() {
            "" => {
                unknown = format!("{:-<65}{}:{}", "unknown ", facts.old_id, facts.order_no);
                &unknown
            }
            request_id => request_id,
        };
        let is_paid = facts.verdict.status == Status::Confirmed;
        let adopted = AdoptReservation {
            old_id: facts.old_id,
            order_no: &facts.order_no,
            status: facts.verdict.status,
            user: facts.user,
            quantity: facts.quantity,
            created_ms,
            updated_ms: facts.updated_ms.unwrap_or(created_ms),
            request_id: &facts.request_id,
            request_hash: self.hasher.hash(known),
            payment_no: if is_paid { &facts.payment_no } else { "" },
        };
        let old = match facts.old_id {
            0 => OldId::None,
            number => OldId::Older(number),
        };
        let told = retried(|| self.engine.adopt_reservation(facts.activity, old, &adopted));
        told.map_err(log)
    }

    fn settle(
        &mut self,
        name: &str,
        mut facts: Facts,
        told: Result<Adopted<ReservationId>, Refusal>,
    ) -> Result<(), LegacyError> {
        let adopted = match told {
            Ok(adopted) => adopted,
            Err(Refusal::RequestIdReused) if !facts.request_id.is_empty() => {
                // A reservation counts for more than the repeat of its request.
                self.report.doubtful.add(format!("{name}: another has its client_request_id"));
                facts.request_id.clear();
                let told = self.reservation(&facts)?.wait().map_err(|_| LegacyError::Log)?;
                return self.settle(name, facts, told);
            }
            Err(refusal) => {
                self.report.refused.add(format!("{name}: {}", said(refusal)));
                return Ok(());
            }
        };
        if facts.verdict.refunded {
            self.refund(adopted.id, &facts)?;
        }
        let report = &mut self.report;
        if adopted.known {
            report.known += 1;
            return Ok(());
        }
        report.from_keys += u64::from(facts.is_of_keys);
        report.refunded += u64::from(facts.verdict.refunded);
        match facts.verdict.status {
            Status::Reserved => report.unpaid += 1,
            Status::Confirmed => report.paid += 1,
            Status::RolledBack(_) => report.given_back += 1,
        }
        Ok(())
    }

    /// The money of a paid reservation went back there: unit and limit stay where they are.
    fn refund(&mut self, id: ReservationId, facts: &Facts) -> Result<(), LegacyError> {
        let view = retried(|| self.engine.reservation(id)).map_err(log)?;
        let view = view.wait().map_err(|_| LegacyError::Log)?;
        let refund_no = format!("older-{id}");
        let asked = view.and_then(|view| view.refund);
        if asked.is_none() {
            let amount = self.price(facts.activity.get()).unwrap_or_default();
            let body = Body::RefundRequested {
                activity: facts.activity,
                actor: ACTOR,
                reservation: id,
                user: facts.user,
                refund_no: &refund_no,
                scope: RefundScope::Order,
                restock: false,
                free_limit: false,
                channel: "",
                payment_no: &facts.payment_no,
                transaction: "",
                amount: amount.saturating_mul(facts.quantity.into()),
                note: "refunded by the older system",
            };
            let event = Event { at_ms: facts.updated_ms.unwrap_or(self.engine.now_ms()), body };
            let told = retried(|| self.engine.adopt_fact(facts.activity, &event)).map_err(log)?;
            if let Err(error) = told.wait().map_err(|_| LegacyError::Log)? {
                self.report.doubtful.add(format!("refund of reservation {id}: {error}"));
                return Ok(());
            }
        }
        if asked != Some(RefundStatus::Settled) {
            let (activity, refund_no) = (facts.activity, refund_no.as_str());
            let told = retried(|| self.engine.refund_settled(activity, id, refund_no));
            if let Err(refusal) = told.map_err(log)?.wait().map_err(|_| LegacyError::Log)? {
                self.report.doubtful.add(format!("refund of reservation {id}: {refusal:?}"));
            }
        }
        Ok(())
    }
}

/// Why the engine did not take it.
fn said(refusal: Refusal) -> String {
    match refusal {
        Refusal::Invalid(why) => why.to_owned(),
        Refusal::SoldOut => "its units are no longer there".to_owned(),
        Refusal::RequestIdReused => "another reservation has its number or its request".to_owned(),
        Refusal::LimitReached => "its user would hold more units than can be counted".to_owned(),
        other => format!("{other:?}"),
    }
}
