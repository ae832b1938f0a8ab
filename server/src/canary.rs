//! Which users try the second set of rules.
//!
//! A user's place is a hash of the id alone: it never changes, on whichever server, and a share
//! that grows keeps those it had. Operators and testers may ask for either arm by a header.

use engine::core::ids::UserId;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::identity::{Caller, Role};

/// Places a user may have: shares are told apart to a thousandth of a percent.
const PLACES: u64 = 100_000;

/// Users who may ask for an arm without being operators.
const TESTERS_MAX: usize = 1000;

/// 2^64 by the golden ratio.
const GOLDEN_RATIO: u64 = 0x9e37_79b9_7f4a_7c15;

/// Added to ids, so that no other division of users by their ids divides them alike.
const SALT: u64 = 0x736c_7569_6365_0001;

/// The two sets of rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Arm {
    /// What everybody has.
    Stable,
    /// What is being tried.
    Canary,
}

impl Arm {
    /// Both.
    pub(crate) const ALL: [Self; 2] = [Self::Stable, Self::Canary];

    /// Its name in headers and metrics.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Stable => "stable",
            Self::Canary => "canary",
        }
    }

    /// The arm of that name.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|arm| arm.name() == name)
    }
}

/// Who is in the canary.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Canary {
    /// Users below this place are.
    places: u64,
    /// Users who may ask for an arm, in order.
    testers: Vec<u64>,
}

impl Canary {
    /// The share of users, in percent.
    #[expect(clippy::cast_precision_loss, reason = "at most 100000")]
    pub(crate) fn percent(&self) -> f64 {
        self.places as f64 * 100.0 / PLACES as f64
    }

    /// Who may ask for an arm.
    pub(crate) fn testers(&self) -> &[u64] {
        &self.testers
    }

    /// The arm of `caller`, who asks for `wanted`. A share of nothing is nobody, whoever asks.
    pub(crate) fn arm(&self, caller: Caller, wanted: Option<Arm>) -> Arm {
        if self.places == 0 {
            return Arm::Stable;
        }
        let may_ask =
            caller.role == Role::Admin || self.testers.binary_search(&caller.user.get()).is_ok();
        match wanted.filter(|_| may_ask) {
            Some(arm) => arm,
            None if place(caller.user) < self.places => Arm::Canary,
            None => Arm::Stable,
        }
    }
}

/// The place of `user`, `0..PLACES`. Multiples of the golden ratio fall as evenly as points can:
/// of ids that follow one another every share is met far better than by chance.
fn place(user: UserId) -> u64 {
    let point = user.get().wrapping_add(SALT).wrapping_mul(GOLDEN_RATIO);
    // The upper half of the product: at most `PLACES - 1`.
    u64::try_from((u128::from(point) * u128::from(PLACES)) >> 64).unwrap_or(0)
}

impl<'de> Deserialize<'de> for Canary {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Default, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        struct Fields {
            percent: Value,
            testers: Value,
        }
        let Fields { percent, testers } = Fields::deserialize(deserializer)?;
        let percent = match percent {
            Value::Null => Some(0.0),
            Value::Number(number) => number.as_f64(),
            Value::String(text) => text.parse().ok(),
            _ => None,
        };
        let percent = percent.filter(|percent| (0.0..=100.0).contains(percent));
        let percent = percent.ok_or_else(|| D::Error::custom("percent: a number of 0 to 100"))?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 100")]
        let places = (percent * 1000.0).round() as u64;
        let ids: Option<Vec<u64>> = match testers {
            Value::Null => Some(Vec::new()),
            Value::String(text) => {
                let ids = text.split(',').map(str::trim).filter(|id| !id.is_empty());
                ids.map(|id| id.parse().ok()).collect()
            }
            Value::Array(ids) => ids.iter().map(Value::as_u64).collect(),
            _ => None,
        };
        let mut testers = ids
            .filter(|ids| ids.len() <= TESTERS_MAX)
            .ok_or_else(|| D::Error::custom("testers: at most 1000 user ids"))?;
        testers.sort_unstable();
        Ok(Self { places, testers })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn caller(id: u64, role: Role) -> Caller {
        Caller { user: UserId::new(id).unwrap(), role }
    }

    fn canary(fields: &Value) -> Canary {
        Canary::deserialize(fields).unwrap()
    }

    fn share(canary: &Canary, ids: impl Iterator<Item = u64>) -> f64 {
        let (mut inside, mut all) = (0_u32, 0_u32);
        for id in ids {
            all += 1;
            inside += u32::from(canary.arm(caller(id, Role::User), None) == Arm::Canary);
        }
        f64::from(inside) * 100.0 / f64::from(all)
    }

    #[test]
    fn of_a_million_users_the_share_is_met_within_a_tenth_of_a_percent() {
        for percent in [0.1, 1.0, 5.0, 12.5, 50.0, 99.0] {
            let canary = canary(&json!({"percent": percent}));
            // One after another, as a table gives them, and spread, as some sites' ids are.
            for step in [1, 7, 1000] {
                let share = share(&canary, (1..=1_000_000).map(|id| id * step));
                assert!((share - percent).abs() <= 0.1, "{share} instead of {percent}");
            }
        }
    }

    #[test]
    fn a_share_that_grows_keeps_those_it_had() {
        let (few, many) = (canary(&json!({"percent": 5})), canary(&json!({"percent": 20})));
        for id in 1..=10_000 {
            let caller = caller(id, Role::User);
            if few.arm(caller, None) == Arm::Canary {
                assert_eq!(many.arm(caller, None), Arm::Canary, "{id}");
            }
        }
    }

    #[test]
    fn operators_and_testers_may_ask_for_an_arm_and_nobody_else() {
        let canary = canary(&json!({"percent": 0.001, "testers": [9, 7]}));
        let asked = |id, role| canary.arm(caller(id, role), Some(Arm::Canary));
        assert_eq!(asked(7, Role::User), Arm::Canary);
        assert_eq!(asked(9, Role::User), Arm::Canary);
        assert_eq!(asked(1, Role::Admin), Arm::Canary);
        assert_eq!(asked(8, Role::User), canary.arm(caller(8, Role::User), None));
    }

    #[test]
    fn back_at_nothing_nobody_is_in_whoever_asks() {
        let canary = canary(&json!({"percent": 0, "testers": "7"}));
        for role in [Role::User, Role::Admin] {
            assert_eq!(canary.arm(caller(7, role), Some(Arm::Canary)), Arm::Stable);
        }
    }
}
