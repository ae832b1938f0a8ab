//! Typed copies of the controls in the log, kept as they change.
//!
//! | key | value here |
//! |---|---|
//! | `token/<jti>` | nothing; it ends with the token |
//! | `blacklist/{user,ip,device}/<value>` | [`Listed`] as JSON |
//! | `blacklist/account/<id>` | an account that may not act at all |
//! | `limits/rules` | the fields that operators set over the file's |
//!
//! Others are the engine's (the kill switch among them) or a newer version's: they are let be.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use engine::core::control::keys::{BLACKLIST_PREFIX, TOKEN_PREFIX};
use engine::core::ids::UserId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::shards::Shards;

/// What operators set over the file's limits.
pub(crate) const RULES: &str = "limits/rules";

/// Bytes of a device's name, so that it fits a control's key.
pub(crate) const DEVICE_BYTES_MAX: usize = 64;

/// The control that revokes a token.
pub(crate) fn token_key(id: &str) -> String {
    format!("{TOKEN_PREFIX}{id}")
}

/// What a blacklist entry is about.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord, JsonSchema, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "BlacklistKind", inline)]
pub(crate) enum Kind {
    /// A user's id.
    User,
    /// An address.
    Ip,
    /// A device, by what it says of itself in `X-Device-Id`.
    Device,
}

/// Who is listed: the value in its one spelling.
#[derive(Clone, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub(crate) enum Subject {
    User(u64),
    Ip(IpAddr),
    Device(Box<str>),
    /// An account that is disabled: no entry of the blacklist, and kept like one.
    Account(u64),
}

impl Subject {
    /// What `kind` and `value` name, if they name anything.
    pub(crate) fn of(kind: Kind, value: &str) -> Option<Self> {
        match kind {
            Kind::User => user(value).map(Self::User),
            Kind::Ip => value.parse::<IpAddr>().ok().map(|ip| Self::Ip(ip.to_canonical())),
            Kind::Device => device(value).map(|device| Self::Device(device.into())),
        }
    }

    /// The control that lists it.
    pub(crate) fn key(&self) -> String {
        match self {
            Self::User(id) => format!("{BLACKLIST_PREFIX}user/{id}"),
            Self::Ip(ip) => format!("{BLACKLIST_PREFIX}ip/{ip}"),
            Self::Device(device) => format!("{BLACKLIST_PREFIX}device/{device}"),
            Self::Account(id) => format!("{BLACKLIST_PREFIX}account/{id}"),
        }
    }

    fn of_key(key: &str) -> Option<Self> {
        let (kind, value) = key.strip_prefix(BLACKLIST_PREFIX)?.split_once('/')?;
        match kind {
            "user" => Self::of(Kind::User, value),
            "ip" => Self::of(Kind::Ip, value),
            "device" => Self::of(Kind::Device, value),
            "account" => user(value).map(Self::Account),
            _ => None,
        }
    }
}

fn user(text: &str) -> Option<u64> {
    text.parse().ok().and_then(UserId::new).map(UserId::get)
}

/// A device's name: visible ASCII, and no slash that a key could be cut at.
pub(crate) fn device(text: &str) -> Option<&str> {
    let visible = |byte: u8| byte.is_ascii_graphic();
    let fits = (1..=DEVICE_BYTES_MAX).contains(&text.len()) && text.bytes().all(visible);
    fits.then_some(text)
}

/// Why and by whom something is listed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Listed {
    /// For people.
    #[serde(default)]
    pub(crate) reason: String,
    /// Who listed it.
    pub(crate) by: String,
    /// When, Unix milliseconds.
    pub(crate) created_ms: u64,
    /// Until when, Unix milliseconds; 0 for ever. The control carries it; it is not in the value.
    #[serde(skip)]
    pub(crate) expires_ms: u64,
}

impl Listed {
    fn holds(&self, now_ms: u64) -> bool {
        self.expires_ms == 0 || now_ms < self.expires_ms
    }
}

/// The controls that the gate heeds.
#[derive(Default)]
pub(crate) struct Controls {
    /// Revoked tokens, until when.
    tokens: Shards<Box<str>, u64>,
    users: Shards<u64, Listed>,
    accounts: Shards<u64, Listed>,
    ips: Shards<IpAddr, Listed>,
    devices: Shards<Box<str>, Listed>,
    overrides: Mutex<Value>,
}

/// What a change of a control was about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Changed {
    /// The rules are to be made anew.
    Rules,
    /// Nothing more is to be done.
    Nothing,
}

impl Controls {
    /// The control `key` has `value` now, until `expires_ms` (0 for ever); `None` where it is
    /// cleared.
    pub(crate) fn note(&self, key: &str, value: Option<&[u8]>, expires_ms: u64) -> Changed {
        if key == RULES {
            let document = value.and_then(|value| serde_json::from_slice(value).ok());
            *self.overrides.lock().unwrap_or_else(PoisonError::into_inner) =
                document.unwrap_or(Value::Null);
            return Changed::Rules;
        } else if let Some(id) = key.strip_prefix(TOKEN_PREFIX) {
            match value {
                Some(_) => self.tokens.insert(id.into(), expires_ms),
                None => self.tokens.remove(id),
            }
        } else if let Some(subject) = Subject::of_key(key) {
            let listed = value.map(|value| {
                let listed: Option<Listed> = serde_json::from_slice(value).ok();
                // Whoever is listed is listed, whatever a later version says of why.
                let unknown =
                    Listed { reason: String::new(), by: String::new(), created_ms: 0, expires_ms };
                Listed { expires_ms, ..listed.unwrap_or(unknown) }
            });
            self.list(subject, listed);
        }
        Changed::Nothing
    }

    fn list(&self, subject: Subject, listed: Option<Listed>) {
        match (subject, listed) {
            (Subject::User(id), Some(listed)) => self.users.insert(id, listed),
            (Subject::User(id), None) => self.users.remove(&id),
            (Subject::Account(id), Some(listed)) => self.accounts.insert(id, listed),
            (Subject::Account(id), None) => self.accounts.remove(&id),
            (Subject::Ip(ip), Some(listed)) => self.ips.insert(ip, listed),
            (Subject::Ip(ip), None) => self.ips.remove(&ip),
            (Subject::Device(name), Some(listed)) => self.devices.insert(name, listed),
            (Subject::Device(name), None) => self.devices.remove(&name),
        }
    }

    /// Whether the token was revoked.
    pub(crate) fn is_revoked(&self, token: &str) -> bool {
        self.tokens.get(token, |_| ()).is_some()
    }

    /// Whether the account is disabled.
    pub(crate) fn is_disabled(&self, user: UserId, now_ms: u64) -> bool {
        self.accounts.get(&user.get(), |listed| listed.holds(now_ms)).unwrap_or(false)
    }

    /// What of a caller is on the blacklist, if anything is.
    pub(crate) fn blacklisted(
        &self,
        user: Option<UserId>,
        ip: Option<IpAddr>,
        device: Option<&str>,
        now_ms: u64,
    ) -> Option<Kind> {
        let holds = |listed: &Listed| listed.holds(now_ms);
        let user = user.and_then(|user| self.users.get(&user.get(), holds));
        if user.unwrap_or(false) {
            return Some(Kind::User);
        }
        if ip.and_then(|ip| self.ips.get(&ip, holds)).unwrap_or(false) {
            return Some(Kind::Ip);
        }
        let device = device.and_then(|device| self.devices.get(device, holds));
        device.unwrap_or(false).then_some(Kind::Device)
    }

    /// The blacklist at `now_ms`, in order.
    pub(crate) fn blacklist(&self, kind: Option<Kind>, now_ms: u64) -> Vec<(Subject, Listed)> {
        let mut entries = Vec::new();
        let mut add = |subject: Subject, listed: &Listed| {
            if listed.holds(now_ms) {
                entries.push((subject, listed.clone()));
            }
        };
        let wants = |it| kind.is_none_or(|kind| kind == it);
        if wants(Kind::User) {
            self.users.each(|id, listed| add(Subject::User(*id), listed));
        }
        if wants(Kind::Ip) {
            self.ips.each(|ip, listed| add(Subject::Ip(*ip), listed));
        }
        if wants(Kind::Device) {
            self.devices.each(|name, listed| add(Subject::Device(name.clone()), listed));
        }
        entries.sort_by(|one, other| one.0.cmp(&other.0));
        entries
    }

    /// Whether `subject` is listed.
    pub(crate) fn is_listed(&self, subject: &Subject, now_ms: u64) -> bool {
        let holds = |listed: &Listed| listed.holds(now_ms);
        match subject {
            Subject::User(id) => self.users.get(id, holds),
            Subject::Account(id) => self.accounts.get(id, holds),
            Subject::Ip(ip) => self.ips.get(ip, holds),
            Subject::Device(name) => self.devices.get(name.as_ref(), holds),
        }
        .unwrap_or(false)
    }

    /// What operators set over the file's limits.
    pub(crate) fn overrides(&self) -> Value {
        self.overrides.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Revoked tokens, and entries of the blacklist, that are remembered.
    pub(crate) fn sizes(&self) -> [usize; 2] {
        let listed = self.users.len() + self.ips.len() + self.devices.len() + self.accounts.len();
        [self.tokens.len(), listed]
    }

    /// Forgets what has ended at `now_ms`, as the log does by itself.
    pub(crate) fn sweep(&self, now_ms: u64) {
        self.tokens.retain(|_, expires_ms| *expires_ms == 0 || now_ms < *expires_ms);
        self.users.retain(|_, listed| listed.holds(now_ms));
        self.accounts.retain(|_, listed| listed.holds(now_ms));
        self.ips.retain(|_, listed| listed.holds(now_ms));
        self.devices.retain(|_, listed| listed.holds(now_ms));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn listed() -> Vec<u8> {
        json!({"reason": "bot", "by": "1", "created_ms": 5}).to_string().into_bytes()
    }

    fn subject(kind: Kind, value: &str) -> Subject {
        Subject::of(kind, value).unwrap()
    }

    #[test]
    fn what_is_listed_is_refused_until_it_ends_or_is_taken_off() {
        let (controls, listed) = (Controls::default(), listed());
        for (kind, value) in [(Kind::User, "7"), (Kind::Ip, "1.2.3.4"), (Kind::Device, "d-1")] {
            let key = subject(kind, value).key();
            let found = |now_ms| {
                let (user, ip) = (UserId::new(7), "1.2.3.4".parse().ok());
                controls.blacklisted(user, ip, Some("d-1"), now_ms)
            };
            assert_eq!(controls.note(&key, Some(&listed), 100), Changed::Nothing);
            assert_eq!((found(99), found(100)), (Some(kind), None));
            controls.note(&key, Some(&listed), 0);
            assert_eq!(found(u64::MAX), Some(kind));
            assert_eq!(controls.blacklist(Some(kind), 0).len(), 1);
            controls.note(&key, None, 0);
            assert_eq!(found(0), None);
        }
    }

    #[test]
    fn an_address_is_listed_in_every_spelling() {
        let controls = Controls::default();
        controls.note(&subject(Kind::Ip, "::ffff:1.2.3.4").key(), Some(&listed()), 0);
        controls.note(&subject(Kind::Ip, "2001:DB8:0::1").key(), Some(&listed()), 0);
        for ip in ["1.2.3.4", "2001:db8::1"] {
            let found = controls.blacklisted(None, ip.parse().ok(), None, 0);
            assert_eq!(found, Some(Kind::Ip), "{ip}");
        }
    }

    #[test]
    fn what_names_nobody_is_refused() {
        for (kind, value) in [
            (Kind::User, "0"),
            (Kind::User, "x"),
            (Kind::User, "9007199254740992"),
            (Kind::Ip, "1.2.3"),
            (Kind::Ip, "1.2.3.4/8"),
            (Kind::Device, ""),
            (Kind::Device, "a b"),
            (Kind::Device, "\u{7f}"),
            (Kind::Device, &"x".repeat(65)),
        ] {
            assert_eq!(Subject::of(kind, value), None, "{value}");
        }
    }

    #[test]
    fn every_control_is_read_back_from_its_key() {
        for subject in [
            subject(Kind::User, "7"),
            subject(Kind::Ip, "::1"),
            subject(Kind::Device, "a/b"),
            Subject::Account(9),
        ] {
            assert_eq!(Subject::of_key(&subject.key()), Some(subject));
        }
    }

    #[test]
    fn tokens_accounts_and_limits_follow_their_controls() {
        let controls = Controls::default();
        let user = UserId::new(7).unwrap();
        for set in [Some(&b"1"[..]), None] {
            controls.note(&token_key("abc"), set, 0);
            controls.note(&Subject::Account(7).key(), set, 0);
            assert_eq!(controls.is_revoked("abc"), set.is_some());
            assert_eq!(controls.is_disabled(user, 1), set.is_some());
        }
        assert_eq!(controls.note("ordinals/7", Some(b""), 0), Changed::Nothing);
        assert_eq!(controls.note(RULES, Some(b"{\"user\":\"1/1s\"}"), 0), Changed::Rules);
        assert_eq!(controls.overrides(), json!({"user": "1/1s"}));
    }

    #[test]
    fn what_has_ended_is_forgotten() {
        let controls = Controls::default();
        controls.note(&token_key("a"), Some(b""), 10);
        controls.note(&token_key("b"), Some(b""), 20);
        controls.note(&subject(Kind::User, "7").key(), Some(&listed()), 10);
        assert_eq!(controls.sizes(), [2, 1]);
        controls.sweep(10);
        assert_eq!(controls.sizes(), [1, 0]);
        assert!(controls.is_revoked("b") && !controls.is_revoked("a"));
    }
}
