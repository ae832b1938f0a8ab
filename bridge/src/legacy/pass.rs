//! The reservations, one rank after the other: adopted a page at a time, and durable before the
//! next.

use engine::core::command::Refusal;
use engine::core::decide::AdoptReservation;
use engine::core::event::{Body, Event, RefundScope, Status};
use engine::core::ids::ReservationId;
use engine::core::side::RefundStatus;
use engine::{Adopted, OldId, Pending};

use super::LegacyError;
use super::left::Digest;
use super::report::{said, short};
use super::rows::{Candidate, Facts};
use super::source::{Place, Reader};
use super::take::{ACTOR, Rank, Take, Target, log};
use crate::restore::retried;
use crate::sql::store::StoreError;

/// A reservation on its way into the log.
struct Waiting {
    name: String,
    /// Of the row as it was read.
    digest: Digest,
    facts: Facts,
    told: Pending<Result<Adopted<ReservationId>, Refusal>>,
}

impl Take<'_> {
    /// Adopts the rows of one rank.
    pub(super) async fn pass(
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
                let digest = self.digest(&name, &facts);
                waiting.push(Waiting { name, digest, facts, told });
            }
        }
        for Waiting { name, digest, facts, told } in waiting {
            let told = told.wait().map_err(|_| LegacyError::Log)?;
            self.settle((&name, digest), facts, told)?;
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
        (name, digest): (&str, Digest),
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
                return self.settle((name, digest), facts, told);
            }
            Err(refusal) => {
                let why = match refusal {
                    Refusal::SoldOut => {
                        self.left.add_short(digest);
                        short(&facts)
                    }
                    other => {
                        self.left.add(digest);
                        said(other)
                    }
                };
                self.report.refused.add(format!("{name}: {why}"));
                return self.keep_out(name, &facts);
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

    /// The units of a reservation that is refused were counted as taken when its activity came
    /// over: nobody else is to have them. The same refusal at a later start takes no more.
    fn keep_out(&mut self, name: &str, facts: &Facts) -> Result<(), LegacyError> {
        if matches!(facts.verdict.status, Status::RolledBack(_)) {
            return Ok(());
        }
        let op = format!("older-{}-{}", facts.old_id, facts.order_no);
        let decrease = || self.engine.decrease(facts.activity, ACTOR, &op, facts.quantity);
        let told = retried(decrease).map_err(log)?.wait().map_err(|_| LegacyError::Log)?;
        if told.is_ok() {
            let units = facts.quantity;
            self.report.kept.add(format!("{name}: {units} units are taken by nobody known here"));
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
