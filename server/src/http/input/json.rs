//! JSON, as the contract has it.
//!
//! Bodies are [objects](object), strictly read.

use std::marker::PhantomData;
use std::sync::Arc;

use axum::extract::{FromRequest, Request};
use engine::core::ids::{SkuId, UserId};
use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::body::{BODY_BYTES_MAX, read_body};
use super::clipped;
use super::headers::require_json;
use super::object;
use crate::app::Shared;
use crate::http::openapi::{Input, Operation};
use crate::http::problem::Problem;

/// A JSON object as a `T`.
pub(crate) struct Json<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<Arc<Shared>> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, shared: &Arc<Shared>) -> Result<Self, Problem> {
        require_json(request.headers())?;
        parse_object(&read_body(request, shared, BODY_BYTES_MAX).await?).map(Self)
    }
}

impl<T: JsonSchema> Input for Json<T> {
    fn describe(operation: &mut Operation) {
        operation.takes_json::<T>();
    }
}

/// `bytes` as a JSON object.
pub(crate) fn parse_object<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    object::parse(bytes).map_err(|what| Problem::invalid(clipped(&what)))
}

/// A JSON object inside a body, where it is named. Serde reads a struct from an array as well; the
/// contract does not.
pub(crate) fn present_object<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    deserializer.deserialize_map(Object(PhantomData)).map(Some)
}

struct Object<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Object<T> {
    type Value = T;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map))
    }
}

macro_rules! id_field {
    ($(#[$doc:meta])* $name:ident, $id:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) struct $name(pub(crate) $id);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let id = u64::deserialize(deserializer).ok().and_then($id::new);
                id.map(Self)
                    .ok_or_else(|| D::Error::custom("an id must be an integer of 1 to 2^53 - 1"))
            }
        }
    };
}

id_field!(
    /// A SKU's id in a body.
    SkuField, SkuId
);
id_field!(
    /// A user's id in a body.
    UserField, UserId
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::input::{DETAIL_CHARS_MAX, Units, present};

    #[derive(Deserialize, Debug, PartialEq)]
    struct Order {
        #[serde(default, deserialize_with = "present")]
        quantity: Option<Units>,
        #[serde(default, deserialize_with = "present")]
        id: Option<String>,
    }

    fn quantity(json: &str) -> Option<u32> {
        parse_object::<Order>(json.as_bytes()).ok()?.quantity.map(|units| units.0)
    }

    #[test]
    fn a_quantity_is_a_json_integer_within_bounds() {
        assert_eq!(quantity(r#"{"quantity":1}"#), Some(1));
        assert_eq!(quantity(r#"{"quantity":2147483647}"#), Some(2_147_483_647));
        for bad in [
            "0",
            "-1",
            "1.5",
            "1.0",
            "1e0",
            "\"1\"",
            "null",
            "true",
            "[1]",
            "{}",
            "2147483648",
            "18446744073709551616",
            "-0",
            "01",
            "+1",
            "NaN",
            "",
        ] {
            let json = format!("{{\"quantity\":{bad}}}");
            assert!(parse_object::<Order>(json.as_bytes()).is_err(), "{json}");
        }
    }

    #[test]
    fn a_complaint_about_a_quantity_says_what_is_wanted() {
        for bad in ["0", "-1", "1.5", "\"1\"", "null", "2147483648"] {
            let json = format!("{{\"quantity\":{bad}}}");
            let problem = parse_object::<Order>(json.as_bytes()).unwrap_err();
            let detail = problem.detail.unwrap();
            assert!(detail.starts_with("a quantity must be an integer of 1"), "{detail}");
        }
    }

    #[test]
    fn a_body_is_one_object_and_nothing_else() {
        for bad in [
            "",
            " ",
            "null",
            "1",
            "\"x\"",
            "[1,\"x\"]",
            "{",
            "{\"quantity\":1",
            "{} {}",
            "{}x",
            "{'quantity':1}",
            "{\"quantity\":1,}",
            "\u{feff}{}",
            "{\"quantity\":1,\"quantity\":1}",
            "{\"id\":\"\\ud800\"}",
        ] {
            assert!(parse_object::<Order>(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(parse_object::<Order>(b"{\"id\":\"\xff\"}").is_err());
        assert!(parse_object::<Order>(b" \r\n\t{}\n ").is_ok());
    }

    #[test]
    fn an_unknown_field_is_ignored_however_deep_it_is() {
        let deep = format!("{{\"quantity\":3,\"x\":{}{}}}", "[".repeat(8000), "]".repeat(8000));
        // Skipped or refused are both fine; a stack overflow would end the process.
        let outcome = parse_object::<Order>(deep.as_bytes());
        assert!(outcome.is_err() || outcome.is_ok_and(|order| order.quantity == Some(Units(3))));
        assert_eq!(quantity(r#"{"now":"2020-01-01T00:00:00Z","quantity":3}"#), Some(3));
    }

    #[test]
    fn a_complaint_never_grows_with_what_was_sent() {
        let json = format!("{{\"quantity\":\"{}\"}}", "x".repeat(10_000));
        let problem = parse_object::<Order>(json.as_bytes()).unwrap_err();
        assert!(problem.detail.unwrap().len() <= DETAIL_CHARS_MAX * 4);
    }
}
