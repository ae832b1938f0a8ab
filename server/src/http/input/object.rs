//! A JSON object from its bytes, and the fields that take more care than the library does.
//!
//! A field that is named twice, of another type or `null` is refused, an unknown one is ignored
//! (clients and servers are upgraded at different times), and bytes behind the object are refused.
//! Depth needs no bound of its own: unknown values are skipped without recursion, known ones are
//! flat, and a body has a few KiB.
//!
//! Knows nothing of requests: the fuzzer reads this file as well (`sim/fuzz`).

use engine::core::limits::UNITS_MAX;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};

/// `bytes` as a JSON object.
///
/// # Errors
/// What is wrong with them, in a text that may quote them.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    // Serde reads a struct from an array as well; the contract does not.
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    if first != Some(&b'{') {
        return Err("the body must be a JSON object".to_owned());
    }
    // The library looks at no text that it skips: what follows must not depend on who reads.
    let text = std::str::from_utf8(bytes).map_err(|_| "the body must be UTF-8".to_owned())?;
    serde_json::from_str(text).map_err(|error| error.to_string())
}

/// A field that may be missing but not `null`.
pub(crate) fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// A number of units, `1..=UNITS_MAX`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Units(pub(crate) u32);

impl<'de> Deserialize<'de> for Units {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // What the library would say names a type of this program, not the rule.
        let value = u64::deserialize(deserializer).ok();
        let units = value.and_then(|value| u32::try_from(value).ok());
        units
            .filter(|units| (1..=UNITS_MAX).contains(units))
            .map(Self)
            .ok_or_else(|| D::Error::custom("a quantity must be an integer of 1 to 2147483647"))
    }
}
