//! The gate: who may come in at all, before anything about a sale is asked.
//!
//! ```text
//! token -> shape -> blacklist -> known request id -> kill switch -> canary -> limits -> engine
//! ```
//!
//! The order is the contract's. A repeat of a known request id costs no limit anything. Nothing
//! here needs SQL or Redis; what operators set is in the log, and typed copies of it are kept
//! here, so that a request takes no lock that all share.
//!
//! | file | idea |
//! |---|---|
//! | [`controls`] | typed copies of what the log holds: blacklist, revoked tokens, limits |
//! | [`published`] | the limits that hold, read by every request without a shared write |
//! | [`counts`] | what was refused and why, and how each arm of the canary fares |
//! | [`keeper`] | what follows time: the machine's load, starts to come, ends of entries |

mod controls;
mod counts;
mod keeper;
mod published;
mod shards;

use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use engine::core::event::Actor;
use engine::core::ids::{ActivityId, UserId};
use serde_json::Value;

use crate::admission::{Admission, Holder, Spent};
use crate::app::App;
use crate::canary::Arm;
use crate::config::{Login, Settings};
use crate::http::problem::{Code, Problem};
use crate::identity::{Caller, Role};
use crate::limits::address::Proxies;
use crate::limits::{
    Call, Limited, Limiter, Limits, LoginLimiter, Rate, Rules, RulesError, Speed, ramp,
};
use crate::listener::Peer;
use crate::time::wall_seconds;

pub(crate) use controls::{
    Controls, DEVICE_BYTES_MAX, Kind, Listed, RULES, Subject, device, token_key,
};
pub(crate) use counts::{Counts, Reason};
use published::Published;

/// A caller of a purchase, as the gate sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Buyer<'a> {
    /// The token's.
    pub(crate) caller: Caller,
    /// Where it comes from.
    pub(crate) ip: IpAddr,
    /// The arm it asks for.
    pub(crate) wanted_arm: Option<Arm>,
    /// The admission token it shows.
    pub(crate) admission: Option<&'a str>,
}

/// What a purchase that was let in carries on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admitted(Option<Spent>);

/// The gate's state.
pub(crate) struct Gate {
    /// Typed copies of controls.
    pub(crate) controls: Controls,
    /// What was refused.
    pub(crate) counts: Counts,
    /// Gives and takes admission tokens.
    pub(crate) admission: Admission,
    /// Whose `X-Forwarded-For` counts.
    pub(crate) proxies: Proxies,
    /// Refuse what did not come over TLS.
    pub(crate) require_tls: bool,
    login: Login,
    logins: LoginLimiter,
    limiters: [Limiter; 2],
    rules: Published,
    /// The file's limits.
    file: Mutex<Value>,
    /// Held over reading a control and noting it, so that the last one noted is the newest.
    noting: Mutex<()>,
    speed: AtomicU32,
    /// Activities that start within a ramp, and when.
    starts: Mutex<Arc<Vec<(ActivityId, u64)>>>,
    exempts_loopback: bool,
    started: Instant,
}

impl Gate {
    /// The gate that `settings` ask for; nothing is set by operators yet.
    ///
    /// # Errors
    /// The operating system has no randomness.
    pub(crate) fn new(settings: &Settings) -> Result<Self, getrandom::Error> {
        let file = settings.limits();
        // Configurations are checked when they are read.
        let rules = Rules::of(&file, &Value::Null).unwrap_or_default();
        Ok(Self {
            controls: Controls::default(),
            counts: Counts::default(),
            admission: Admission::new()?,
            proxies: settings.http.trusted_proxies.clone(),
            require_tls: settings.http.require_tls,
            login: settings.login.clone(),
            logins: LoginLimiter::default(),
            limiters: [Limiter::default(), Limiter::default()],
            rules: Published::new(rules),
            file: Mutex::new(file),
            noting: Mutex::new(()),
            speed: AtomicU32::new(Speed::FULL.thousandths()),
            starts: Mutex::default(),
            exempts_loopback: settings.demo,
            started: Instant::now(),
        })
    }

    /// Nanoseconds of this gate's life, from 1: a counter that is 0 is idle.
    pub(crate) fn now_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX).saturating_add(1)
    }

    /// Takes over everything that the log holds.
    pub(crate) fn load(&self, engine: &engine::Engine) {
        for (key, setting) in engine.controls("") {
            self.note(&key, Some(&setting.value), setting.expires_ms);
        }
    }

    fn note(&self, key: &str, value: Option<&[u8]>, expires_ms: u64) {
        if self.controls.note(key, value, expires_ms) == controls::Changed::Rules
            && let Err(error) = self.publish(None)
        {
            tracing::error!("the limits that operators set do not fit the file's: {error}");
        }
    }

    /// Sets a control (clears it, where `value` is `None`): durable, then heeded, then answered.
    ///
    /// # Errors
    /// The log takes nothing, or has no room for another control.
    pub(crate) async fn set(
        &self,
        app: &App,
        actor: Actor<'_>,
        key: &str,
        value: Option<&[u8]>,
        expires_ms: u64,
    ) -> Result<bool, Problem> {
        let pending = match value {
            Some(value) => app.engine.control_set(actor, key, value, expires_ms)?,
            None => app.engine.control_clear(actor, key)?,
        };
        let changed = pending.durable().await??;
        let _noting = self.noting.lock().unwrap_or_else(PoisonError::into_inner);
        let setting = app.engine.control(key);
        let value = setting.as_ref().map(|setting| &*setting.value);
        self.note(key, value, setting.as_ref().map_or(0, |setting| setting.expires_ms));
        Ok(changed)
    }

    /// The rules that hold.
    pub(crate) fn rules(&self) -> Arc<Rules> {
        self.rules.current()
    }

    /// The rules that would hold with `overrides` over the file.
    ///
    /// # Errors
    /// [`RulesError`]
    pub(crate) fn rules_with(&self, overrides: &Value) -> Result<Rules, RulesError> {
        Rules::of(&self.file.lock().unwrap_or_else(PoisonError::into_inner), overrides)
    }

    /// Makes the rules anew, from `file` where there is a new one.
    ///
    /// # Errors
    /// [`RulesError`]; the rules stay as they are.
    pub(crate) fn publish(&self, file: Option<Value>) -> Result<(), RulesError> {
        let mut held = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = Rules::of(file.as_ref().unwrap_or(&held), &self.controls.overrides())?;
        if let Some(file) = file {
            *held = file;
        }
        self.rules.publish(fresh);
        Ok(())
    }

    /// Refuses who is on the blacklist.
    ///
    /// # Errors
    /// `blacklisted`
    pub(crate) fn refuse_listed(
        &self,
        user: Option<UserId>,
        ip: IpAddr,
        device: Option<&str>,
        now_ms: u64,
    ) -> Result<(), Code> {
        match self.controls.blacklisted(user, Some(ip), device, now_ms) {
            None => Ok(()),
            Some(kind) => {
                self.counts.refused(Reason::Listed(kind), user, ip);
                Err(Code::Blacklisted)
            }
        }
    }

    /// Whether a purchase is asked nothing between its shape and its sale.
    pub(crate) fn is_open(&self) -> bool {
        self.rules.with(|rules| {
            rules.stable.is_open() && (rules.trial.is_open() || rules.canary.percent() == 0.0)
        })
    }

    /// The arm of `caller`, who asks for `wanted`.
    pub(crate) fn arm(&self, caller: Caller, wanted: Option<Arm>) -> Arm {
        self.rules.with(|rules| rules.canary.arm(caller, wanted))
    }

    /// Lets a purchase pass the limits of its arm, and takes its admission token.
    ///
    /// # Errors
    /// `rate_limited`, `admission_required`; nothing was taken then.
    pub(crate) fn admit(
        &self,
        buyer: Buyer<'_>,
        activity: Option<ActivityId>,
        now_ms: u64,
    ) -> Result<Admitted, Problem> {
        self.rules.with(|rules| {
            let arm = rules.canary.arm(buyer.caller, buyer.wanted_arm);
            let (limits, limiter) = match arm {
                Arm::Stable => (&rules.stable, &self.limiters[0]),
                Arm::Canary => (&rules.trial, &self.limiters[1]),
            };
            let spent = self.admission(limits, buyer, activity)?;
            let call = Call {
                user: buyer.caller.user,
                activity,
                ip: self.limited_address(buyer.ip),
                speed: self.speed(limits, activity, now_ms),
                now_ns: self.now_ns(),
            };
            limiter.admit(limits, call).map_err(|limited| {
                self.not_bought(Admitted(spent));
                let reason = Reason::Limited(limited.scope);
                self.counts.refused(reason, Some(buyer.caller.user), buyer.ip);
                Problem::limited(limited)
            })?;
            Ok(Admitted(spent))
        })
    }

    /// Lets a purchase that a back end makes for `user` pass the limits of the user's arm. Limits
    /// by address and admission tokens are about shoppers' own connections, not seen here.
    ///
    /// # Errors
    /// [`Limited`]; nothing was taken then.
    pub(crate) fn admit_named(
        &self,
        user: UserId,
        activity: ActivityId,
        now_ms: u64,
    ) -> Result<(), Limited> {
        self.rules.with(|rules| {
            let caller = Caller { user, role: Role::User };
            let (limits, limiter) = match rules.canary.arm(caller, None) {
                Arm::Stable => (&rules.stable, &self.limiters[0]),
                Arm::Canary => (&rules.trial, &self.limiters[1]),
            };
            let activity = Some(activity);
            let speed = self.speed(limits, activity, now_ms);
            let call = Call { user, activity, ip: None, speed, now_ns: self.now_ns() };
            limiter.admit(limits, call)
        })
    }

    fn admission(
        &self,
        limits: &Limits,
        buyer: Buyer<'_>,
        activity: Option<ActivityId>,
    ) -> Result<Option<Spent>, Problem> {
        let (true, Some(activity)) = (limits.admission.0, activity) else { return Ok(None) };
        let holder = Holder { user: buyer.caller.user, activity };
        let token = buyer.admission.unwrap_or_default();
        let spent = self.admission.spend(holder, token, wall_seconds()).map_err(|_| {
            self.counts.refused(Reason::NotAdmitted, Some(buyer.caller.user), buyer.ip);
            Code::AdmissionRequired
        })?;
        Ok(Some(spent))
    }

    /// A purchase that was admitted reached no decision: its admission token is good again.
    pub(crate) fn not_bought(&self, admitted: Admitted) {
        if let Admitted(Some(spent)) = admitted {
            self.admission.unspend(spent);
        }
    }

    /// A repeat of a known request id, which costs nothing but has a bound per connection.
    ///
    /// # Errors
    /// `rate_limited`
    pub(crate) fn repeated(&self, connection: &Peer, rate: Option<Rate>) -> Result<(), Problem> {
        let Some(rate) = rate else { return Ok(()) };
        connection.repeat(rate, self.now_ns()).map_err(|wait_ns| {
            self.counts.refused(Reason::Repeats, None, connection.ip());
            Problem::limited(Limited { scope: "replays", rate, wait_ns })
        })
    }

    /// Takes one try of a login.
    ///
    /// # Errors
    /// `rate_limited`
    pub(crate) fn admit_login(&self, account: &str, ip: IpAddr) -> Result<(), Problem> {
        let (account, address) = ((account, self.login.per_account.0), self.limited_address(ip));
        let admitted = self.logins.admit(account, (address, self.login.per_ip.0), self.now_ns());
        admitted.map_err(|limited| {
            self.counts.refused(Reason::Limited(limited.scope), None, ip);
            Problem::limited(limited)
        })
    }

    /// The login was its account's.
    pub(crate) fn login_succeeded(&self, account: &str) {
        self.logins.succeeded((account, self.login.per_account.0));
    }

    /// The address that limits count, unless it is exempt from them.
    fn limited_address(&self, ip: IpAddr) -> Option<IpAddr> {
        (!(self.exempts_loopback && ip.is_loopback())).then_some(ip)
    }

    /// How fast the limits that span users run.
    fn speed(&self, limits: &Limits, activity: Option<ActivityId>, now_ms: u64) -> Speed {
        let mut speed = Speed::FULL;
        if limits.adaptive.0 {
            speed = self.load_speed();
        }
        if !limits.ramp.0.is_zero() {
            let starts = Arc::clone(&self.starts.lock().unwrap_or_else(PoisonError::into_inner));
            let start_ms = starts.iter().find(|(id, _)| Some(*id) == activity).map(|it| it.1);
            let until_ms = start_ms.map_or(0, |start_ms| start_ms.saturating_sub(now_ms));
            speed = speed.and(ramp::speed(limits, until_ms));
        }
        speed
    }

    /// The speed that the machine's load allows.
    pub(crate) fn load_speed(&self) -> Speed {
        Speed::of(u64::from(self.speed.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Flags, load};
    use crate::identity::Role;

    fn gate(settings: &[(&'static str, &str)]) -> Gate {
        let mut flags = Flags::default();
        for (key, value) in settings {
            flags.set(key, Some((*value).to_owned()));
        }
        Gate::new(&load(&flags).unwrap().settings).unwrap()
    }

    fn buyer(user: u64, ip: &str) -> Buyer<'static> {
        let caller = Caller { user: UserId::new(user).unwrap(), role: Role::User };
        Buyer { caller, ip: ip.parse().unwrap(), wanted_arm: None, admission: None }
    }

    #[test]
    fn nothing_is_asked_until_something_is_set() {
        assert!(gate(&[]).is_open());
        assert!(!gate(&[("limits.user", "1/1s")]).is_open());
        assert!(!gate(&[("limits.admission", "true")]).is_open());
    }

    #[test]
    fn before_its_start_an_activity_runs_slower_and_the_others_do_not() {
        let gate = gate(&[("limits.activity", "10/1s"), ("limits.ramp", "10s")]);
        let (soon, open) = (ActivityId::new(1), ActivityId::new(2));
        *gate.starts.lock().unwrap() = Arc::new(vec![(soon.unwrap(), 20_000)]);
        let rules = gate.rules();
        let at = |activity, now_ms| gate.speed(&rules.stable, activity, now_ms).thousandths();
        assert_eq!([10_000, 15_000, 20_000, 30_000].map(|ms| at(soon, ms)), [100, 550, 1000, 1000]);
        assert_eq!([at(open, 10_000), at(None, 10_000)], [1000, 1000]);
    }

    #[test]
    fn under_load_the_limits_that_span_users_run_slower_where_that_is_asked_for() {
        let adaptive = [("limits.global", "10/1s"), ("limits.adaptive", "true")];
        for (settings, speed) in [(&adaptive[..], 300), (&adaptive[..1], 1000)] {
            let gate = gate(settings);
            gate.speed.store(300, Ordering::Relaxed);
            let rules = gate.rules();
            assert_eq!(gate.speed(&rules.stable, None, 0).thousandths(), speed);
        }
    }

    #[test]
    fn loopback_is_exempt_from_limits_by_address_in_a_demo_alone() {
        for (demo, second) in [("true", true), ("false", false)] {
            let gate = gate(&[("limits.ip", "1/1h"), ("demo", demo)]);
            let admitted = |user, ip| gate.admit(buyer(user, ip), None, 0).is_ok();
            assert!(admitted(1, "127.0.0.1"));
            assert_eq!(admitted(2, "127.0.0.1"), second);
            assert!(admitted(3, "1.2.3.4") && !admitted(4, "1.2.3.4"));
        }
    }

    #[test]
    fn a_file_that_is_read_again_is_heeded_at_once() {
        let gate = gate(&[]);
        let admitted = || gate.admit(buyer(1, "1.2.3.4"), None, 0).is_ok();
        assert!(admitted() && admitted());
        let document = |rate: &str| Some(serde_json::json!({"user": rate}));
        gate.publish(document("1/1h")).unwrap();
        assert!(admitted() && !admitted());
        assert!(gate.publish(document("often")).is_err());
        assert!(!admitted(), "what can't be used changes nothing");
    }
}
