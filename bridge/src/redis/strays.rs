//! Keys that nothing asks for: which of those in Redis they are, and how they go.

use std::collections::BTreeSet;

use engine::core::ids::{ActivityId, ReservationId, UserId};
use redis::cmd;

use super::fault::MirrorError;
use super::layouts::{Known, Layout, Subject, flash_sale};
use super::library;
use super::present::{self, BLACKLIST_PREFIX, Present};
use super::servers::Servers;
use super::sink::{Mirror, ONLY_LANE};
use super::writes::{Part, Write, Writes};

/// Keys that one SCAN looks at.
const SCAN_COUNT: usize = 1_000;

impl<H: Present, S: Servers> Mirror<'_, H, S> {
    /// Deletes the keys of `lanes` that nothing asks for.
    pub(super) async fn delete_strays(&mut self, lanes: &BTreeSet<u64>) -> Result<(), MirrorError> {
        for index in 0..self.nodes.count() {
            for pattern in self.layout.patterns() {
                let mut at = 0;
                loop {
                    let (next, keys) = self.scan(index, pattern, at).await?;
                    let mut calls = Vec::new();
                    if self.layout == Layout::FlashSale {
                        let anew = self.sets_anew(&keys);
                        if !anew.is_empty() {
                            calls.push(self.under_mark(ONLY_LANE, &anew));
                        }
                    }
                    let strays = self.strays(keys);
                    for (lane, writes) in strays {
                        if !self.lanes.contains_key(&lane) {
                            self.delete_ownerless(lane, writes).await?;
                        } else if lanes.contains(&lane) {
                            calls.push(self.under_mark(lane, &writes));
                        }
                    }
                    self.send(calls).await?;
                    at = next;
                    if at == 0 {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// Deletes keys of an activity that there is none of, and what else a server that came back as
    /// its older self may hold of it: the cursor would be in the way of each of these calls.
    pub(super) async fn delete_ownerless(
        &self,
        lane: u64,
        mut writes: Writes,
    ) -> Result<(), MirrorError> {
        let (keys, found) = (self.own_keys(lane), self.cursor_of(lane).await?);
        writes.absent(keys.known.clone());
        let call = library::apply(&keys, &found, "", false, &writes);
        self.send(vec![(self.nodes.index(lane), call)]).await
    }

    pub(super) async fn scan(
        &self,
        index: usize,
        pattern: &str,
        at: u64,
    ) -> Result<(u64, Vec<String>), MirrorError> {
        let mut scan = cmd("SCAN");
        scan.arg(at).arg("MATCH").arg(pattern).arg("COUNT").arg(SCAN_COUNT);
        let (next, keys): (u64, Vec<Vec<u8>>) = self.nodes.ask(index, &scan).await?;
        // Ours are ASCII.
        Ok((next, keys.into_iter().filter_map(|key| String::from_utf8(key).ok()).collect()))
    }

    /// Of `keys`, those that the layout writes and that nothing in the state asks for now, by lane.
    pub(super) fn strays(&self, keys: Vec<String>) -> Vec<(u64, Writes)> {
        let mut found = std::collections::BTreeMap::<u64, Writes>::new();
        for key in keys {
            let Some(subject) = self.subject(&key) else { continue };
            if self.is_due(&key, subject) {
                continue;
            }
            let lane = match self.layout {
                Layout::Cluster => tag(&key).unwrap_or(ONLY_LANE),
                _ => ONLY_LANE,
            };
            found.entry(lane).or_default().absent(key);
        }
        found.into_iter().collect()
    }

    /// Whether the engine's state, as it is now, asks for `key`.
    fn is_due(&self, key: &str, subject: Subject) -> bool {
        let mut asked = Writes::default();
        let keys = &self.projection.keys;
        let of_user = |known: &Known, user| {
            self.host.look(known.id, |activity| activity.held(user)).unwrap_or(0)
        };
        match subject {
            Subject::Activity(id) => {
                let Some(known) = self.written(id) else { return false };
                keys.activity(&known, &mut asked);
            }
            Subject::Sku(sku) => {
                let Some(known) = self.written_of_sku(sku) else { return false };
                keys.activity(&known, &mut asked);
            }
            Subject::User(id, user) => {
                let Some(known) = self.written(id) else { return false };
                keys.user(&known, user, of_user(&known, user), &mut asked);
            }
            Subject::UserOfSku(sku, user) => {
                let Some(known) = self.written_of_sku(sku) else { return false };
                match (self.layout, of_user(&known, user)) {
                    // Of who holds nothing, what was refunded is in the set still.
                    (Layout::FlashSale, 0) => asked = self.asked_by_user(&known, user),
                    // Its members are judged one by one, with their reservations.
                    (Layout::FlashSale, _) => return true,
                    (_, held) => keys.user(&known, user, held, &mut asked),
                }
            }
            Subject::Reservation(id) => {
                let Some((known, reserved)) = self.reservation(id) else { return false };
                if !self.projection.is_written(&known) {
                    return false;
                }
                keys.reservation(&known, &reserved, &mut asked);
            }
            Subject::Blacklisted(user) => {
                let own = format!("{BLACKLIST_PREFIX}{user}");
                return self.host.controls(&own).iter().any(|(key, _)| *key == own);
            }
        }
        let whole = asked.get(key).is_some_and(|write| *write != Write::Absent);
        let in_part = |(of, _, part): (&str, &str, &Part)| {
            of == key && matches!(part, Part::Member(_) | Part::Field(_))
        };
        whole || asked.parts().any(in_part)
    }

    /// An activity as it is now, where its keys are written.
    fn written(&self, id: ActivityId) -> Option<Known> {
        let known = self.host.look(id, |activity| Known::of(id, activity))?;
        self.projection.is_written(&known).then_some(known)
    }

    /// The one that the keys of a SKU tell of.
    fn written_of_sku(&self, sku: u64) -> Option<Known> {
        self.written(self.projection.owner(sku)?.id)
    }

    /// What the reservations of a user ask for, as they are now.
    fn asked_by_user(&self, known: &Known, user: UserId) -> Writes {
        let mut asked = Writes::default();
        let read = |activity: &_| present::reservations_of(activity, user);
        for (reserved, _) in self.host.look(known.id, read).unwrap_or_default() {
            self.projection.keys.reservation(known, &reserved, &mut asked);
        }
        asked
    }

    /// The users' sets among `keys` with the members that the state asks for and no others. What
    /// stands in one may have been bought in a run that ended before it was durable, while keys
    /// were written anew: nothing is left then that would ask for its removal.
    fn sets_anew(&self, keys: &[String]) -> Writes {
        let mut anew = Writes::default();
        for key in keys {
            let Some(Subject::UserOfSku(sku, user)) = self.subject(key) else { continue };
            let Some(known) = self.written_of_sku(sku) else { continue };
            let asked = self.asked_by_user(&known, user);
            let members =
                asked.parts().filter(|(of, _, part)| of == key && matches!(part, Part::Member(_)));
            for (_, name, part) in members {
                anew.absent(key.clone());
                anew.part(key.clone(), name.to_owned(), part.clone());
            }
        }
        anew
    }

    /// What a key is about. Of an order number the engine knows best.
    fn subject(&self, key: &str) -> Option<Subject> {
        let of_layout = self.layout == Layout::FlashSale;
        let number = of_layout.then(|| flash_sale::order_no(key)).flatten();
        let known = number.and_then(|number| self.host.reservation_of_order(number));
        known.map(Subject::Reservation).or_else(|| self.layout.subject(key))
    }

    fn reservation(&self, id: ReservationId) -> Option<(Known, super::layouts::Reserved)> {
        let look = |of: ActivityId| {
            let read = |it: &_| Some((Known::of(of, it), present::reservation(it, id)?.0));
            self.host.look(of, read)?
        };
        match self.host.activity_of(id) {
            Some(of) => look(of),
            // Adopted: its id does not say whose it is.
            None => self.host.activities().into_iter().find_map(look),
        }
    }
}

/// The activity in a key's hash tag.
fn tag(key: &str) -> Option<u64> {
    let (_, rest) = key.split_once('{')?;
    rest.split_once('}')?.0.parse().ok()
}
