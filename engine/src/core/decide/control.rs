//! Run-time controls: set and cleared by operators, each change once.

use super::super::command::Refusal;
use super::super::control::{ControlTable, keys};
use super::super::event::{Actor, Body};
use super::super::validate;

/// A control, as an operator sets it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SetControl<'a> {
    /// Who sets it.
    pub actor: Actor<'a>,
    /// Its key; see [`keys`].
    pub key: &'a str,
    /// Its value.
    pub value: &'a [u8],
    /// When it ends by itself, Unix milliseconds; 0 for never.
    pub expires_ms: u64,
}

/// What setting a control comes to; `None` where it is set so already.
///
/// # Errors
/// Why it cannot be set.
pub fn set_control<'a>(
    table: &ControlTable,
    set: &SetControl<'a>,
    at_ms: u64,
) -> Result<Option<Body<'a>>, Refusal> {
    let &SetControl { actor, key, value, expires_ms } = set;
    validate::actor(&actor)?;
    validate::control(key, value, expires_ms)?;
    if expires_ms != 0 && expires_ms <= at_ms {
        return Err(Refusal::Invalid("expires_at must lie ahead"));
    }
    if expires_ms != 0 && keys::is_permanent(key) {
        return Err(Refusal::Invalid("this control never expires"));
    }
    let is_so = |it: &super::super::control::Setting| {
        it.holds(at_ms) && *it.value == *value && it.expires_ms == expires_ms
    };
    if table.get(key).is_some_and(is_so) {
        return Ok(None);
    }
    if !table.has_room(key, value.len()) {
        return Err(Refusal::TooManyControls);
    }
    Ok(Some(Body::ControlSet { actor, key, value, expires_ms }))
}

/// What clearing a control comes to; `None` where it is not set.
///
/// # Errors
/// Why it cannot be cleared.
pub fn clear_control<'a>(
    table: &ControlTable,
    actor: Actor<'a>,
    key: &'a str,
) -> Result<Option<Body<'a>>, Refusal> {
    validate::actor(&actor)?;
    validate::control(key, &[], 0)?;
    if keys::is_permanent(key) {
        return Err(Refusal::Invalid("this control cannot be cleared"));
    }
    Ok(table.get(key).is_some().then_some(Body::ControlCleared { actor, key }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACTOR: Actor<'static> = Actor { name: "ops", request_id: "r" };

    fn set<'a>(key: &'a str, value: &'a [u8], expires_ms: u64) -> SetControl<'a> {
        SetControl { actor: ACTOR, key, value, expires_ms }
    }

    #[test]
    fn a_control_is_set_once_and_refused_where_it_makes_no_sense() {
        let mut table = ControlTable::default();
        table.set("stop", b"1", 0);
        table.set("token/old", b"", 5);
        let long = "k".repeat(129);
        let big = [0; 4097];
        enum Is {
            Set,
            So,
            Refused,
        }
        let cases: &[(SetControl<'_>, Is)] = &[
            (set("stop", b"1", 0), Is::So),
            (set("stop", b"2", 0), Is::Set),
            (set("stop", b"1", 11), Is::Set),
            (set("token/old", b"", 5), Is::Refused),
            (set("token/a", b"", 10), Is::Refused),
            (set("token/a", b"", 11), Is::Set),
            (set("ordinals/9", b"", 11), Is::Refused),
            (set("ordinals/9", b"", 0), Is::Set),
            (set("ordinals/x", b"", 0), Is::Refused),
            (set("", b"", 0), Is::Refused),
            (set(&long, b"", 0), Is::Refused),
            (set("canary", &big, 0), Is::Refused),
            (set("canary", b"", u64::MAX), Is::Refused),
        ];
        for (command, expected) in cases {
            let found = set_control(&table, command, 10);
            let fits = match expected {
                Is::Set => matches!(found, Ok(Some(Body::ControlSet { .. }))),
                Is::So => found == Ok(None),
                Is::Refused => matches!(found, Err(Refusal::Invalid(_))),
            };
            assert!(fits, "{command:?}: {found:?}");
        }
    }

    #[test]
    fn a_control_is_cleared_once() {
        let mut table = ControlTable::default();
        table.set("stop", b"1", 0);
        let cleared = Ok(Some(Body::ControlCleared { actor: ACTOR, key: "stop" }));
        assert_eq!(clear_control(&table, ACTOR, "stop"), cleared);
        assert_eq!(clear_control(&table, ACTOR, "canary"), Ok(None));
        assert!(clear_control(&table, ACTOR, "ordinals/9").is_err());
        assert!(clear_control(&table, ACTOR, "").is_err());
    }
}
