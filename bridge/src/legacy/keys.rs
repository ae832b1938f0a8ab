//! What the older system's Redis knows: how many units an activity has free, which reservations
//! took theirs, and those that no row stands for any more.
//!
//! Such a reservation is known in full where three keys agree: `flashsale:reservation:<id>` and
//! `flashsale:idem:<activity>:<user>:<id>` hold its token, and `flashsale:count:<activity>:<user>`
//! says how many units the user has beyond those of rows. Otherwise it is told, and its units stay
//! out of sale: Redis has them not free.
//!
//! A Redis that a mirror of Sluice's has written holds nothing of the older system any more.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use engine::core::event::Status;
use engine::core::ids::{ActivityId, UserId};
use engine::core::limits::UNITS_MAX;
use redis::{FromRedisValue as _, Value, cmd};

use super::LegacyError;
use super::judge::{Marker, Verdict};
use super::rows::{Candidate, Facts, Unfit};
use crate::redis::MirrorError;
use crate::redis::layouts::Layout;
use crate::redis::servers::{Sent as _, Servers as _};
use crate::redis::{Address, Nodes};

/// Keys that one SCAN looks at: a millisecond of the server's.
const SCAN_KEYS: u32 = 1000;

/// How long an idem key lives from its reservation's acceptance on.
const IDEM_LIFE: Duration = Duration::from_secs(30 * 60);

/// An activity and a user.
type Holder = (u64, u64);

/// A key `flashsale:idem:...`.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Idem {
    holder: Holder,
    token: String,
    /// Milliseconds until it goes, where it does.
    life_ms: Option<u64>,
}

/// The older system's keys.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Keys {
    stocks: BTreeMap<u64, u64>,
    /// By reservation: its token, and whether its units were given back.
    markers: BTreeMap<u64, (String, bool)>,
    /// By slot.
    idems: BTreeMap<u64, Idem>,
    counts: BTreeMap<Holder, u64>,
    /// Reservations that a row stands for.
    seen: BTreeSet<u64>,
    /// Units of rows, of holders with idem keys.
    held: BTreeMap<Holder, u64>,
}

impl Keys {
    /// Reads the keys in the Redis at `url`.
    pub(super) async fn read(url: &str, layout: Layout) -> Result<Self, LegacyError> {
        Self::scan(url, layout).await.map_err(LegacyError::Keys)
    }

    async fn scan(url: &str, layout: Layout) -> Result<Self, MirrorError> {
        let address = Address::at(url)?;
        let nodes = match layout {
            Layout::Cluster => Nodes::cluster(&address).await?,
            _ => Nodes::one(&address).await?,
        };
        let mut keys = Self::default();
        for index in 0..nodes.count() {
            if !scanned(&nodes, index, "sluice:cursor*").await?.is_empty() {
                return Ok(Self::default());
            }
        }
        for index in 0..nodes.count() {
            let found = scanned(&nodes, index, "flashsale:*").await?;
            for chunk in found.chunks(SCAN_KEYS as usize) {
                let calls = chunk.iter().flat_map(|key| {
                    // MGET: a key of another type is no error.
                    let (mut get, mut life) = (cmd("MGET"), cmd("PTTL"));
                    get.arg(key);
                    life.arg(key);
                    [(index, get), (index, life)]
                });
                let answers = nodes.send(calls.collect()).answers().await?;
                for (key, answer) in chunk.iter().zip(answers.chunks_exact(2)) {
                    keys.take(key, &answer[0], &answer[1]);
                }
            }
        }
        let of_idems: BTreeSet<_> = keys.idems.values().map(|it| it.holder).collect();
        keys.counts.retain(|holder, _| of_idems.contains(holder));
        keys.held = of_idems.into_iter().map(|holder| (holder, 0)).collect();
        Ok(keys)
    }

    /// Takes a key in. What is none of the older system's is left alone.
    fn take(&mut self, key: &str, value: &Value, life: &Value) {
        let value = match Vec::<Option<Vec<u8>>>::from_redis_value_ref(value) {
            Ok(values) => values.into_iter().next().flatten(),
            Err(_) => None,
        };
        let Some(value) = value.and_then(|it| String::from_utf8(it).ok()) else { return };
        let words: Vec<_> = key.split(':').skip(1).collect();
        let number = |word: &str| word.parse::<u64>().ok();
        match *words.as_slice() {
            ["stock", activity] => {
                if let (Some(activity), Some(units)) = (number(activity), number(&value)) {
                    self.stocks.insert(activity, units);
                }
            }
            ["count", activity, user] => {
                if let (Some(activity), Some(user), Some(units)) =
                    (number(activity), number(user), number(&value))
                {
                    self.counts.insert((activity, user), units);
                }
            }
            ["reservation", id] => {
                let Some(id) = number(id) else { return };
                let given_back = value.starts_with("rolled_back");
                self.markers.insert(id, (value, given_back));
            }
            ["idem", activity, user, slot] => {
                if let (Some(activity), Some(user), Some(slot)) =
                    (number(activity), number(user), number(slot))
                {
                    let life_ms = i64::from_redis_value_ref(life).ok();
                    let life_ms = life_ms.and_then(|it| u64::try_from(it).ok());
                    let holder = (activity, user);
                    self.idems.insert(slot, Idem { holder, token: value, life_ms });
                }
            }
            _ => {}
        }
    }

    /// Units that Redis has free of `activity`.
    pub(super) fn free(&self, activity: u64) -> Option<u64> {
        self.stocks.get(&activity).copied()
    }

    /// What Redis knows of reservation `id`.
    pub(super) fn marker(&self, activity: u64, id: u64) -> Marker {
        match self.markers.get(&id) {
            Some((_, true)) => Marker::GivenBack,
            Some((_, false)) => Marker::Taken,
            None if self.stocks.contains_key(&activity) => Marker::Absent,
            None => Marker::Unknown,
        }
    }

    /// Notes that a row stands for reservation `number`, and where its units are.
    pub(super) fn see(&mut self, number: Option<u64>, told: &Result<Facts, Unfit>) {
        if let Some(number) =
            number.filter(|it| self.markers.contains_key(it) || self.idems.contains_key(it))
        {
            self.seen.insert(number);
        }
        let Ok(facts) = told else { return };
        let holder = (facts.activity.get(), facts.user.get());
        let is_held = !matches!(facts.verdict.status, Status::RolledBack(_));
        if let Some(held) = self.held.get_mut(&holder).filter(|_| is_held || facts.is_owed) {
            *held = held.saturating_add(facts.quantity.into());
        }
    }

    /// The reservations that no row stands for, once all rows were seen.
    pub(super) fn alone(&self, now_ms: u64) -> Vec<Candidate> {
        let alone = |id: &u64| !self.seen.contains(id);
        let mut of_holders: BTreeMap<Holder, u64> = BTreeMap::new();
        for (_, idem) in
            self.idems.iter().filter(|(id, idem)| alone(id) && self.is_whole(**id, idem))
        {
            *of_holders.entry(idem.holder).or_default() += 1;
        }
        let taken = self.markers.iter().filter(|(id, (_, given_back))| alone(id) && !given_back);
        let candidate = |id: &u64| Candidate {
            name: format!("flashsale:reservation:{id}"),
            number: Some(*id),
            told: self.facts(*id, &of_holders, now_ms),
        };
        taken.map(|(id, _)| candidate(id)).collect()
    }

    fn is_whole(&self, id: u64, idem: &Idem) -> bool {
        self.markers.get(&id).is_some_and(|(token, _)| *token == idem.token)
    }

    fn facts(
        &self,
        id: u64,
        of_holders: &BTreeMap<Holder, u64>,
        now_ms: u64,
    ) -> Result<Facts, Unfit> {
        let idem = self.idems.get(&id).filter(|idem| self.is_whole(id, idem));
        let idem =
            idem.ok_or("no row and no idem key with its token say whose it is".to_owned())?;
        let (activity, user) = idem.holder;
        let count = self.counts.get(&idem.holder).copied().unwrap_or_default();
        let held = self.held.get(&idem.holder).copied().unwrap_or_default();
        let (rest, of) = (count.saturating_sub(held), of_holders.get(&idem.holder).copied());
        let quantity = match of {
            Some(of) if rest == of => 1,
            Some(1) if (1..=u64::from(UNITS_MAX)).contains(&rest) => rest,
            _ => return Err("its units can't be told from its user's count".to_owned().into()),
        };
        let age_ms = idem.life_ms.map(|life_ms| millis(IDEM_LIFE).saturating_sub(life_ms));
        let created_ms = Some(now_ms.saturating_sub(age_ms.unwrap_or_default()));
        Ok(Facts {
            old_id: id,
            order_no: String::new(),
            activity: ActivityId::new(activity).ok_or("its activity is none".to_owned())?,
            user: UserId::new(user).ok_or("its user is none".to_owned())?,
            quantity: u32::try_from(quantity).unwrap_or_default(),
            price: None,
            total_amount: None,
            request_id: String::new(),
            verdict: Verdict {
                status: Status::Reserved,
                refunded: false,
                out_of_stock: false,
                doubt: None,
            },
            created_ms,
            updated_ms: created_ms,
            ordered_ms: None,
            expire_ms: None,
            payment_no: String::new(),
            is_owed: false,
            is_of_keys: true,
        })
    }
}

/// The keys of a server that match `pattern`.
async fn scanned(nodes: &Nodes, index: usize, pattern: &str) -> Result<Vec<String>, MirrorError> {
    let (mut found, mut at) = (BTreeSet::new(), 0u64);
    loop {
        let mut scan = cmd("SCAN");
        scan.arg(at).arg("MATCH").arg(pattern).arg("COUNT").arg(SCAN_KEYS);
        let (next, keys): (u64, Vec<Vec<u8>>) = nodes.ask(index, &scan).await?;
        found.extend(keys.into_iter().filter_map(|key| String::from_utf8(key).ok()));
        if next == 0 {
            return Ok(found.into_iter().collect());
        }
        at = next;
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(pairs: &[(&str, &str)]) -> Keys {
        let mut keys = Keys::default();
        for (key, value) in pairs {
            let value = Value::Array(vec![Value::BulkString(value.as_bytes().to_vec())]);
            keys.take(key, &value, &Value::Int(29 * 60_000));
        }
        keys.held = keys.idems.values().map(|it| (it.holder, 0)).collect();
        keys
    }

    fn quantities(keys: &Keys) -> Vec<Result<u32, String>> {
        let alone = keys.alone(1_000_000).into_iter();
        alone.map(|it| it.told.map(|it| it.quantity).map_err(|it| it.why)).collect()
    }

    #[test]
    fn a_reservation_of_keys_alone_is_known_where_all_of_them_agree() {
        let whole = [
            ("flashsale:reservation:7", "7"),
            ("flashsale:idem:5:9:7", "7"),
            ("flashsale:count:5:9", "3"),
        ];
        let found = keys(&whole);
        assert_eq!(quantities(&found), [Ok(3)]);
        let told = found.alone(1_000_000).remove(0).told.unwrap();
        assert_eq!(told.created_ms, Some(940_000), "a minute ago, by what its key has left");
        assert!(quantities(&keys(&whole[..1]))[0].is_err());
        assert!(quantities(&keys(&whole[..2]))[0].is_err(), "its units are unknown");
        let other = [whole[0], ("flashsale:idem:5:9:7", "8"), whole[2]];
        assert!(quantities(&keys(&other))[0].is_err(), "the tokens differ");
    }

    #[test]
    fn units_of_several_are_not_invented() {
        let two = |count| {
            keys(&[
                ("flashsale:reservation:7", "7"),
                ("flashsale:reservation:8", "8"),
                ("flashsale:idem:5:9:7", "7"),
                ("flashsale:idem:5:9:8", "8"),
                ("flashsale:count:5:9", count),
            ])
        };
        assert_eq!(quantities(&two("2")), [Ok(1), Ok(1)]);
        assert!(quantities(&two("3")).iter().all(Result::is_err));
        assert!(quantities(&two("-1")).iter().all(Result::is_err));
    }

    #[test]
    fn a_row_stands_for_its_key_and_a_tombstone_for_nothing() {
        let mut found = keys(&[
            ("flashsale:stock:5", "0"),
            ("flashsale:reservation:7", "7"),
            ("flashsale:reservation:8", "rolled_back:8"),
            ("flashsale:reservation:x", "9"),
            ("flashsale:rl:9", "1"),
        ]);
        assert_eq!(quantities(&found).len(), 1);
        found.see(Some(7), &Err("bad".to_owned().into()));
        assert_eq!(quantities(&found), []);
        assert_eq!(found.marker(5, 7), Marker::Taken);
        assert_eq!(found.marker(5, 8), Marker::GivenBack);
        assert_eq!(found.marker(5, 9), Marker::Absent);
        assert_eq!(found.marker(6, 9), Marker::Unknown);
    }
}
