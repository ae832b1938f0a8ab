//! The limits that hold: what the file says, and over it what operators set while it runs.
//!
//! Both are documents of the same fields. The operators' one is a control in the log: it survives
//! restarts, and wins field by field. The canary's limits are a third document over the result.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use engine::core::ids::{ActivityId, UserId};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::rate::{Limit, Rate};
use crate::canary::Canary;
use crate::duration;

/// Parameters with a rate of their own, of one kind.
const HOT_MAX: usize = 1000;

/// The longest warm-up before a start.
const RAMP_MS_MAX: u64 = 3_600_000;

/// The hardest proof of work: a phone needs a minute for it.
const PROOF_BITS_MAX: u8 = 24;

/// `off`, or calls in at most a day, with or without a burst.
const RATE_PATTERN: &str = "^(off|[1-9][0-9]{0,6}/([1-9][0-9]{0,7}ms|[1-9][0-9]{0,4}s|\
     [1-9][0-9]{0,2}m|[1-9]h|1[0-9]h|2[0-4]h|1d)( burst [1-9][0-9]{0,6})?)$";

/// One set of rules: who may call how often, and what must be shown to be let in.
#[derive(Clone, PartialEq, Eq, Debug, Default, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[schemars(inline)]
pub(crate) struct Limits {
    /// All purchases.
    pub(crate) global: Limit,
    /// Purchases of one activity.
    pub(crate) activity: Limit,
    /// Purchases by one user.
    pub(crate) user: Limit,
    /// Purchases by one user in a window that begins with the first.
    pub(crate) user_window: Limit,
    /// Purchases from one address.
    pub(crate) ip: Limit,
    /// Purchases by one user of one activity, in a window that begins with the first.
    pub(crate) frequency: Limit,
    /// Activities with another rate than `activity`.
    pub(crate) hot_activities: PerId,
    /// Users with another rate than `user`.
    pub(crate) hot_users: PerId,
    /// For so long before its start an activity's rate rises from `ramp_from_percent`.
    pub(crate) ramp: Length,
    /// Where the rise begins.
    pub(crate) ramp_from_percent: Percent,
    /// Follow the machine's load: slower above 80 %, faster again below 50 %.
    pub(crate) adaptive: Flag,
    /// A purchase needs an admission token.
    pub(crate) admission: Flag,
    /// Admission tokens are given so long before the start, not earlier.
    pub(crate) admission_lead: Length,
    /// Leading zero bits of the proof of work that an admission token costs; 0 is none.
    pub(crate) proof_bits: ProofBits,
}

impl Limits {
    /// Nothing is asked of anybody.
    pub(crate) fn is_open(&self) -> bool {
        let rates =
            [self.global, self.activity, self.user, self.user_window, self.ip, self.frequency];
        rates.iter().all(|limit| limit.0.is_none())
            && self.hot_activities.0.is_empty()
            && self.hot_users.0.is_empty()
            && !self.admission.0
    }

    /// The rate of `activity`'s purchases.
    pub(super) fn of_activity(&self, activity: ActivityId) -> Option<Rate> {
        self.hot_activities.0.get(&activity.get()).copied().unwrap_or(self.activity).0
    }

    /// The rate of `user`'s purchases.
    pub(super) fn of_user(&self, user: UserId) -> Option<Rate> {
        self.hot_users.0.get(&user.get()).copied().unwrap_or(self.user).0
    }
}

/// Everything that `GET /api/admin/limits` shows: both sets, and who gets which.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Rules {
    /// Everybody's.
    pub(crate) stable: Limits,
    /// The canary's.
    pub(crate) trial: Limits,
    /// Who is in the canary.
    pub(crate) canary: Canary,
}

/// Why a document can't be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum RulesError {
    /// A field is unknown, or its value is none.
    #[error("{0}")]
    Field(String),
    /// Adaptive limits move a rate that spans users; there is none.
    #[error("adaptive needs a rate to move: set global or activity")]
    NothingToAdapt,
}

impl Rules {
    /// `file` with the fields of `overrides` over it.
    ///
    /// # Errors
    /// [`RulesError`]
    pub(crate) fn of(file: &Value, overrides: &Value) -> Result<Self, RulesError> {
        let field = |error: serde_json::Error| RulesError::Field(error.to_string());
        let mut document = file.clone();
        let mut canary = take_canary(&mut document);
        // In one spelling, so that rates by id are laid over one another id by id.
        let file = Limits::deserialize(&document).map_err(field)?;
        document = serde_json::to_value(&file).map_err(field)?;
        merge(&mut document, overrides);
        merge(&mut canary, &take_canary(&mut document));
        let trial = canary.as_object_mut().and_then(|it| it.remove("limits"));
        // Serde reads a struct from an array as well.
        if !canary.is_object() || trial.as_ref().is_some_and(|it| !it.is_object()) {
            return Err(RulesError::Field("canary and its limits are objects".to_owned()));
        }
        let stable = Limits::deserialize(&document).map_err(field)?;
        merge(&mut document, &trial.unwrap_or(Value::Null));
        let trial = Limits::deserialize(&document).map_err(field)?;
        for limits in [&stable, &trial] {
            let spans = limits.global.0.is_some() || limits.activity.0.is_some();
            if limits.adaptive.0 && !spans && limits.hot_activities.0.is_empty() {
                return Err(RulesError::NothingToAdapt);
            }
        }
        Ok(Self { stable, trial, canary: Canary::deserialize(canary).map_err(field)? })
    }
}

/// Takes what is said of the canary out of `document`.
fn take_canary(document: &mut Value) -> Value {
    let canary = document.as_object_mut().and_then(|fields| fields.remove("canary"));
    canary.unwrap_or_else(|| Value::Object(Map::new()))
}

/// Lays `patch` over `document`: objects field by field, `null` removes (RFC 7396).
pub(crate) fn merge(document: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        if !patch.is_null() {
            document.clone_from(patch);
        }
        return;
    };
    if !document.is_object() {
        *document = Value::Object(Map::new());
    }
    let Value::Object(target) = document else { return };
    for (name, value) in fields {
        if value.is_null() {
            target.remove(name);
        } else {
            merge(target.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}

/// Rates by id: `{"30001": "100/1s"}`, or as text `30001=100/1s, 30002=off`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub(crate) struct PerId(pub(crate) BTreeMap<u64, Limit>);

impl<'de> Deserialize<'de> for PerId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = PerId;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("rates by id, such as {\"30001\": \"100/1s\"}")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<PerId, E> {
                let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
                let pairs = pairs.map(|pair| pair.split_once('='));
                let wrong = || E::custom("rates by id read 30001=100/1s, 30002=off");
                let pairs = pairs.map(|pair| pair.ok_or_else(wrong));
                let pairs = pairs.map(|pair| pair.and_then(|(id, rate)| entry(id, rate)));
                bounded(pairs.collect::<Result<_, E>>()?)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<PerId, A::Error> {
                let mut rates = BTreeMap::new();
                while let Some((id, rate)) = map.next_entry::<String, String>()? {
                    let (id, rate) = entry(&id, &rate)?;
                    rates.insert(id, rate);
                }
                bounded(rates)
            }
        }

        fn entry<E: serde::de::Error>(id: &str, rate: &str) -> Result<(u64, Limit), E> {
            let wrong = || E::custom(format_args!("{id:?} is no id"));
            let id = id.trim().parse().ok().filter(|id| *id > 0).ok_or_else(wrong)?;
            Ok((id, rate.trim().parse().map_err(E::custom)?))
        }

        fn bounded<E: serde::de::Error>(rates: BTreeMap<u64, Limit>) -> Result<PerId, E> {
            match rates.len() <= HOT_MAX {
                true => Ok(PerId(rates)),
                false => Err(E::custom(format_args!("at most {HOT_MAX} ids have rates"))),
            }
        }

        deserializer.deserialize_any(Either)
    }
}

/// A value that the file gives as text and JSON as what it is.
macro_rules! either {
    ($(#[$doc:meta])* $name:ident($inner:ty) = $default:expr, $parse:expr, $expected:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) struct $name(pub(crate) $inner);

        impl Default for $name {
            fn default() -> Self {
                Self($default)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = match Value::deserialize(deserializer)? {
                    Value::String(text) => text,
                    other => other.to_string(),
                };
                let parse: fn(&str) -> Option<$inner> = $parse;
                parse(&text).map(Self).ok_or_else(|| D::Error::custom($expected))
            }
        }
    };
}

either!(
    /// A length of time.
    Length(Duration) = Duration::ZERO,
    |text| duration::parse_ms(text).filter(|ms| *ms <= RAMP_MS_MAX).map(Duration::from_millis),
    "a length of time of at most an hour, such as \"30s\""
);
either!(
    /// Hundredths, from 1.
    Percent(u64) = 10,
    |text| text.parse().ok().filter(|percent| (1..=100).contains(percent)),
    "1 to 100"
);
either!(
    /// Yes or no.
    Flag(bool) = false,
    |text| text.parse().ok(),
    "true or false"
);
either!(
    /// Bits of a proof of work.
    ProofBits(u8) = 0,
    |text| text.parse().ok().filter(|bits| *bits <= PROOF_BITS_MAX),
    "0 to 24 bits"
);

/// Schemas of what reads itself.
macro_rules! shapes {
    ($($type:ident $schema:tt;)*) => {$(
        impl JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                Cow::Borrowed(stringify!($type))
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }
    )*};
}

shapes! {
    Limit {
        "type": "string",
        "pattern": RATE_PATTERN,
        "examples": ["off", "100/1s", "100/1s burst 20"],
    };
    PerId {
        "type": "object",
        "propertyNames": {"pattern": "^[1-9][0-9]{0,15}$"},
        "additionalProperties": {"type": "string", "pattern": RATE_PATTERN},
        "maxProperties": HOT_MAX,
        "examples": [{"30001": "100/1s"}],
    };
    Length {
        "type": "string",
        "pattern": "^([0-9]{1,6}ms|[0-9]{1,3}s|[0-5]?[0-9]m|[01]h)$",
        "examples": ["30s"],
    };
    Percent {"type": "integer", "minimum": 1, "maximum": 100};
    Flag {"type": "boolean"};
    ProofBits {"type": "integer", "minimum": 0, "maximum": PROOF_BITS_MAX};
}

impl Serialize for Length {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let ms = u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX);
        serializer.serialize_str(&duration::format_ms(ms))
    }
}

impl Serialize for Percent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

impl Serialize for Flag {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bool(self.0)
    }
}

impl Serialize for ProofBits {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(self.0)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nothing_is_limited_until_it_is_configured() {
        let rules = Rules::of(&json!({}), &Value::Null).unwrap();
        assert!(rules.stable.is_open() && rules.trial.is_open());
        assert_eq!(rules.canary.percent(), 0.0);
    }

    #[test]
    fn what_operators_set_wins_over_the_file_field_by_field() {
        let file = json!({"user": "5/1s", "ip": "9/1s", "hot_users": "7=1/1s, 6=off"});
        let overrides = json!({
            "user": "2/1s", "hot_activities": {"30001": "10/1s"}, "hot_users": {"6": "9/1s"},
        });
        let stable = Rules::of(&file, &overrides).unwrap().stable;
        let shown = serde_json::to_value(&stable).unwrap();
        assert_eq!(shown["user"], "2/1s");
        assert_eq!(shown["ip"], "9/1s");
        assert_eq!(shown["hot_users"], json!({"6": "9/1s", "7": "1/1s"}), "id by id");
        assert_eq!(shown["hot_activities"], json!({"30001": "10/1s"}));
        assert_eq!(stable.of_user(UserId::new(7).unwrap()), "1/1s".parse().ok());
        assert_eq!(stable.of_user(UserId::new(8).unwrap()), "2/1s".parse().ok());
    }

    #[test]
    fn the_canary_differs_in_what_it_names_alone() {
        let file = json!({"user": "5/1s", "ip": "9/1s"});
        let overrides = json!({"canary": {"percent": 5, "limits": {"user": "off"}}});
        let rules = Rules::of(&file, &overrides).unwrap();
        assert_eq!(rules.canary.percent(), 5.0);
        assert_eq!(rules.stable.user, "5/1s".parse().unwrap());
        assert_eq!(rules.trial.user, Limit(None));
        assert_eq!(rules.trial.ip, rules.stable.ip);
    }

    #[test]
    fn a_null_takes_a_field_back_to_what_the_file_says() {
        let mut overrides = json!({"user": "2/1s", "ip": "off"});
        merge(&mut overrides, &json!({"user": null}));
        assert_eq!(overrides, json!({"ip": "off"}));
        let rules = Rules::of(&json!({"user": "5/1s"}), &overrides).unwrap();
        assert_eq!(rules.stable.user, "5/1s".parse().unwrap());
    }

    #[test]
    fn a_field_that_is_unknown_or_of_no_value_is_refused() {
        for document in [
            json!({"usr": "5/1s"}),
            json!({"user": "5"}),
            json!({"user": 5}),
            json!({"ramp": "2h"}),
            json!({"ramp": "soon"}),
            json!({"ramp_from_percent": 0}),
            json!({"adaptive": "maybe"}),
            json!({"adaptive": true}),
            json!({"proof_bits": 25}),
            json!({"hot_users": {"x": "1/1s"}}),
            json!({"hot_users": {"0": "1/1s"}}),
            json!({"hot_users": "7"}),
            json!({"canary": {"percent": 101}}),
            json!({"canary": {"percent": -1}}),
            json!({"canary": {"limits": {"usr": "1/1s"}}}),
            json!({"canary": {"what": 1}}),
            json!({"canary": 5}),
            json!({"canary": []}),
            json!({"canary": [1, []]}),
            json!({"canary": {"limits": []}}),
        ] {
            assert!(Rules::of(&json!({}), &document).is_err(), "{document}");
        }
    }

    #[test]
    fn a_document_reads_back_as_it_is_shown() {
        let file = json!({
            "global": "1000/1s burst 20", "adaptive": "true", "ramp": "30s", "admission": true,
            "ramp_from_percent": "5", "proof_bits": 12, "hot_activities": "1=2/1s, 3=off",
        });
        let limits = Rules::of(&file, &Value::Null).unwrap().stable;
        let shown = serde_json::to_value(&limits).unwrap();
        assert_eq!(Rules::of(&shown, &Value::Null).unwrap().stable, limits);
    }
}
