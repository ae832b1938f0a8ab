//! All limits on one purchase: looked at together, taken together.
//!
//! The narrow ones come first, so that one user's flood takes nothing from what all share. What
//! refuses is found before anything is taken; where another call came between, what was taken is
//! given back. So a refused call takes from no limit.

use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::sync::OnceLock;

use engine::core::ids::{ActivityId, UserId};

use super::meter::Meter;
use super::rate::{Rate, Speed};
use super::rules::Limits;
use super::table::Table;

/// Sets of the tables by user and by address: 900,000 keys that bind at the same time, in 16 MiB
/// each, which are taken when the first such limit is.
const SETS_MANY: usize = 1 << 17;

/// Sets of the tables by activity, and of logins.
const SETS_FEW: usize = 1 << 12;

/// What a limit is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scope {
    /// One address.
    Ip,
    /// One user.
    User,
    /// One user in a window.
    UserWindow,
    /// One user in one activity.
    Frequency,
    /// One activity.
    Activity,
    /// Everybody.
    Global,
}

impl Scope {
    /// From the narrowest to the widest: the order in which they are asked.
    pub(crate) const ALL: [Self; 6] =
        [Self::Frequency, Self::UserWindow, Self::User, Self::Ip, Self::Activity, Self::Global];

    /// Its name in headers and metrics.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ip => "ip",
            Self::User => "user",
            Self::UserWindow => "user_window",
            Self::Frequency => "frequency",
            Self::Activity => "activity",
            Self::Global => "global",
        }
    }

    const fn meter(self) -> Meter {
        match self {
            Self::UserWindow | Self::Frequency => Meter::Window,
            Self::Ip | Self::User | Self::Activity | Self::Global => Meter::Bucket,
        }
    }

    const fn sets(self) -> usize {
        match self {
            Self::Activity => SETS_FEW,
            Self::Global => 1,
            _ => SETS_MANY,
        }
    }
}

/// Refused by a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Limited {
    /// The name of the limit, as headers and metrics have it.
    pub(crate) scope: &'static str,
    /// Its rate.
    pub(crate) rate: Rate,
    /// Until one more call would pass, in nanoseconds.
    pub(crate) wait_ns: u64,
}

/// A purchase as limits see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    /// The buyer.
    pub(crate) user: UserId,
    /// What is wanted, where the path names something.
    pub(crate) activity: Option<ActivityId>,
    /// From where, unless addresses are exempt.
    pub(crate) ip: Option<IpAddr>,
    /// Of the limits that span users.
    pub(crate) speed: Speed,
    /// Nanoseconds of this process.
    pub(crate) now_ns: u64,
}

/// What a limit counts by. An IPv6 site has 2^64 addresses: they are one caller.
#[derive(Clone, Copy)]
struct Key {
    activity: u64,
    who: u128,
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.activity);
        state.write_u128(self.who);
    }
}

/// An address as a limit counts it.
pub(super) fn address_key(ip: IpAddr) -> u128 {
    const SITE: u128 = !0 << 64;
    match ip.to_canonical() {
        IpAddr::V4(ip) => u128::from(u32::from(ip)),
        IpAddr::V6(ip) => u128::from(ip) & SITE,
    }
}

#[derive(Clone, Copy)]
struct Step {
    scope: Scope,
    key: Key,
    rate: Rate,
    speed: Speed,
}

/// The counters of one set of limits.
#[derive(Default)]
pub(crate) struct Limiter {
    tables: [OnceLock<Table>; Scope::ALL.len()],
}

impl Limiter {
    fn table(&self, scope: Scope) -> &Table {
        self.tables[scope as usize].get_or_init(|| Table::new(scope.meter(), scope.sets()))
    }

    /// Lets `call` through, or says which limit does not; then nothing was taken.
    pub(crate) fn admit(&self, limits: &Limits, call: Call) -> Result<(), Limited> {
        let steps = Scope::ALL.map(|scope| step(scope, limits, call));
        for step in steps.iter().flatten() {
            let passes = self.table(step.scope).check(step.key, call.now_ns, step.rate);
            passes.map_err(|wait| step.limited(wait.ns))?;
        }
        for (index, step) in steps.iter().enumerate() {
            let Some(step) = step else { continue };
            let table = self.table(step.scope);
            let Err(wait) = table.take(step.key, call.now_ns, step.rate, step.speed) else {
                continue;
            };
            for taken in steps[..index].iter().flatten() {
                self.table(taken.scope).give_back(taken.key, taken.rate, taken.speed);
            }
            return Err(step.limited(wait.ns));
        }
        Ok(())
    }
}

impl Step {
    fn limited(&self, wait_ns: u64) -> Limited {
        Limited { scope: self.scope.name(), rate: self.rate, wait_ns }
    }
}

/// What `scope` asks of `call`, if it asks anything.
fn step(scope: Scope, limits: &Limits, call: Call) -> Option<Step> {
    let (user, nobody) = (u128::from(call.user.get()), 0);
    let activity = call.activity.map(ActivityId::get);
    let (rate, activity, who) = match scope {
        Scope::Ip => (limits.ip.0, 0, address_key(call.ip?)),
        Scope::User => (limits.of_user(call.user), 0, user),
        Scope::UserWindow => (limits.user_window.0, 0, user),
        Scope::Frequency => (limits.frequency.0, activity?, user),
        Scope::Activity => (limits.of_activity(call.activity?), activity?, nobody),
        Scope::Global => (limits.global.0, 0, nobody),
    };
    let speed = match scope {
        Scope::Activity | Scope::Global => call.speed,
        _ => Speed::FULL,
    };
    Some(Step { scope, key: Key { activity, who }, rate: rate?, speed })
}

/// Limits on logins: by account and by address, both small.
pub(crate) struct LoginLimiter {
    accounts: Table,
    addresses: Table,
}

impl Default for LoginLimiter {
    fn default() -> Self {
        let table = || Table::new(Meter::Bucket, SETS_FEW);
        Self { accounts: table(), addresses: table() }
    }
}

/// Names of the login limits.
const LOGIN_ACCOUNT: &str = "login_account";
const LOGIN_IP: &str = "login_ip";

impl LoginLimiter {
    /// Takes one try at `account` from `ip`, each where it has a rate.
    ///
    /// # Errors
    /// [`Limited`]; nothing was taken then.
    pub(crate) fn admit(
        &self,
        account: (&str, Option<Rate>),
        ip: (Option<IpAddr>, Option<Rate>),
        now_ns: u64,
    ) -> Result<(), Limited> {
        let full = Speed::FULL;
        let refused =
            |scope, rate| move |wait: super::meter::Wait| Limited { scope, rate, wait_ns: wait.ns };
        let address = ip.0.map(address_key).zip(ip.1);
        if let Some((address, rate)) = address {
            let taken = self.addresses.take(address, now_ns, rate, full);
            taken.map_err(refused(LOGIN_IP, rate))?;
        }
        let Some(rate) = account.1 else { return Ok(()) };
        let taken = self.accounts.take(account.0, now_ns, rate, full);
        taken.map_err(refused(LOGIN_ACCOUNT, rate)).inspect_err(|_| {
            if let Some((address, rate)) = address {
                self.addresses.give_back(address, rate, full);
            }
        })
    }

    /// The try was its owner's: it counts for nothing against the account.
    pub(crate) fn succeeded(&self, account: (&str, Option<Rate>)) {
        if let Some(rate) = account.1 {
            self.accounts.give_back(account.0, rate, Speed::FULL);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::limits::Rules;

    const SECOND: u64 = 1_000_000_000;

    fn limits(document: &Value) -> Limits {
        Rules::of(document, &Value::Null).unwrap().stable
    }

    fn call(user: u64, activity: u64, ip: &str, now_ns: u64) -> Call {
        Call {
            user: UserId::new(user).unwrap(),
            activity: ActivityId::new(activity),
            ip: ip.parse().ok(),
            speed: Speed::FULL,
            now_ns,
        }
    }

    fn refused_by(limiter: &Limiter, limits: &Limits, call: Call) -> Option<&'static str> {
        limiter.admit(limits, call).err().map(|limited| limited.scope)
    }

    #[test]
    fn each_limit_binds_what_it_is_about_and_nothing_else() {
        let at = |user, activity, ip| call(user, activity, ip, SECOND);
        let first = at(1, 10, "1.1.1.1");
        for (field, same, other) in [
            ("user", at(1, 20, "2.2.2.2"), at(2, 10, "1.1.1.1")),
            ("user_window", at(1, 20, "2.2.2.2"), at(2, 10, "1.1.1.1")),
            ("frequency", at(1, 10, "2.2.2.2"), at(1, 20, "1.1.1.1")),
            ("ip", at(2, 20, "1.1.1.1"), at(1, 10, "2.2.2.2")),
            ("activity", at(2, 10, "2.2.2.2"), at(1, 20, "1.1.1.1")),
        ] {
            let (limiter, limits) = (Limiter::default(), limits(&json!({field: "1/10s"})));
            assert_eq!(refused_by(&limiter, &limits, first), None);
            assert_eq!(refused_by(&limiter, &limits, same), Some(field));
            assert_eq!(refused_by(&limiter, &limits, other), None, "{field}");
        }
        let (limiter, limits) = (Limiter::default(), limits(&json!({"global": "1/10s"})));
        assert_eq!(refused_by(&limiter, &limits, first), None);
        assert_eq!(refused_by(&limiter, &limits, at(2, 20, "2.2.2.2")), Some("global"));
    }

    #[test]
    fn a_refused_call_takes_nothing_from_outer_limits() {
        let limits = limits(&json!({"global": "10/10s", "activity": "10/10s", "user": "1/10s"}));
        let limiter = Limiter::default();
        for _ in 0..50 {
            let _ = limiter.admit(&limits, call(1, 10, "1.1.1.1", SECOND));
        }
        let others = (2..=100)
            .filter(|user| limiter.admit(&limits, call(*user, 10, "1.1.1.1", SECOND)).is_ok());
        assert_eq!(others.count(), 9, "the flood of user 1 took one of ten");
    }

    #[test]
    fn a_call_that_an_outer_limit_refuses_takes_nothing_from_inner_ones() {
        let limits = limits(&json!({"global": "1/1s", "frequency": "3/10s"}));
        let limiter = Limiter::default();
        assert_eq!(refused_by(&limiter, &limits, call(2, 10, "1.1.1.1", SECOND)), None);
        for _ in 0..9 {
            let refused = refused_by(&limiter, &limits, call(1, 10, "1.1.1.1", SECOND));
            assert_eq!(refused, Some("global"));
        }
        for later in 1..=3 {
            let call = call(1, 10, "1.1.1.1", SECOND + later * SECOND);
            assert_eq!(refused_by(&limiter, &limits, call), None, "{later}");
        }
    }

    #[test]
    fn hot_parameters_have_rates_of_their_own() {
        let limits = limits(&json!({
            "user": "1/10s", "activity": "1/10s",
            "hot_users": {"7": "3/10s", "8": "off"}, "hot_activities": {"10": "100/10s"},
        }));
        let limiter = Limiter::default();
        let passed = |user| {
            let call = call(user, 10, "1.1.1.1", SECOND);
            (0..20).filter(|_| limiter.admit(&limits, call).is_ok()).count()
        };
        assert_eq!([passed(6), passed(7), passed(8)], [1, 3, 20]);
        let cold = |user| refused_by(&limiter, &limits, call(user, 20, "1.1.1.1", SECOND));
        assert_eq!([cold(1), cold(2)], [None, Some("activity")]);
    }

    #[test]
    fn a_lower_speed_slows_what_spans_users_and_nothing_else() {
        let limits = limits(&json!({"activity": "10/1s burst 1", "user": "10/1s burst 1"}));
        let limiter = Limiter::default();
        let slow = Call { speed: Speed::of(100), ..call(1, 10, "1.1.1.1", SECOND) };
        assert_eq!(refused_by(&limiter, &limits, slow), None);
        let later = Call { now_ns: SECOND + SECOND / 5, ..slow };
        assert_eq!(refused_by(&limiter, &limits, later), Some("activity"));
        let late = Call { now_ns: SECOND * 2, ..slow };
        assert_eq!(refused_by(&limiter, &limits, late), None);
    }

    #[test]
    fn a_million_users_and_addresses_take_no_more_memory_than_the_first() {
        let limits = limits(&json!({"user": "1/10s", "ip": "1/10s"}));
        let limiter = Limiter::default();
        let mut passed = 0_u32;
        for user in 1..=1_000_000_u64 {
            let ip = IpAddr::from(u32::try_from(user).unwrap().to_be_bytes());
            let call = Call { ip: Some(ip), ..call(user, 10, "1.1.1.1", SECOND) };
            passed += u32::from(limiter.admit(&limits, call).is_ok());
        }
        // The tables are as large as they were; who found no place of their own shared one.
        assert!(passed > 700_000, "{passed}");
        assert!(limiter.admit(&limits, call(1, 10, "9.9.9.9", SECOND)).is_err());
    }

    #[test]
    fn an_ipv6_site_is_one_caller_and_a_mapped_address_is_its_ipv4_one() {
        let key = |text: &str| address_key(text.parse().unwrap());
        assert_eq!(key("2001:db8:0:1::1"), key("2001:db8:0:1:ffff::9"));
        assert_ne!(key("2001:db8:0:1::1"), key("2001:db8:0:2::1"));
        assert_eq!(key("::ffff:1.2.3.4"), key("1.2.3.4"));
    }

    #[test]
    fn logins_are_limited_by_account_and_by_address_and_the_owners_do_not_count() {
        let limiter = LoginLimiter::default();
        let (two, five) = ("2/1m".parse().ok(), "5/1m".parse().ok());
        let ip: Option<IpAddr> = "1.1.1.1".parse().ok();
        let try_at = |account| {
            let tried = limiter.admit((account, two), (ip, five), SECOND);
            tried.err().map(|limited| limited.scope)
        };
        assert_eq!(try_at("amy"), None);
        limiter.succeeded(("amy", two));
        assert_eq!([try_at("amy"), try_at("amy")], [None, None]);
        assert_eq!(try_at("amy"), Some(LOGIN_ACCOUNT), "and the address keeps its try");
        assert_eq!([try_at("bob"), try_at("cat")], [None, None]);
        assert_eq!(try_at("dan"), Some(LOGIN_IP));
    }
}
