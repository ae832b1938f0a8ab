//! Schemas of what recurs: ids, times, lengths of time.

use engine::core::limits::ID_MAX;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use std::borrow::Cow;

use crate::http::input::{SkuField, Units, UserField};
use crate::time::Instant;

/// A field with an id: activities, SKUs, users, reservations.
pub(crate) fn id_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "integer", "format": "int64", "minimum": 1, "maximum": ID_MAX})
}

/// One line of text, `1..=chars_max` characters.
pub(crate) fn text_schema<const CHARS_MAX: usize>(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "minLength": 1, "maxLength": CHARS_MAX})
}

macro_rules! shapes {
    ($($type:ty => $schema:expr;)*) => {$(
        impl JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> Cow<'static, str> {
                Cow::Borrowed(stringify!($type))
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                let schema: fn(&mut SchemaGenerator) -> Schema = $schema;
                schema(generator)
            }
        }
    )*};
}

shapes! {
    Instant => |_| json_schema!({
        "type": "string", "format": "date-time", "examples": ["2026-11-29T12:00:00.000Z"],
    });
    Units => |_| json_schema!({
        "type": "integer", "format": "int32", "minimum": 1, "maximum": i32::MAX,
    });
    SkuField => id_schema;
    UserField => id_schema;
}

/// A field that is `null` where there is nothing to tell.
pub(crate) fn nullable<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    let schema = generator.subschema_for::<T>();
    json_schema!({"oneOf": [schema, {"type": "null"}]})
}

/// A length of time, as people write it.
pub(crate) fn length_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string", "pattern": "^[0-9]{1,9}(ms|s|m|h|d)$", "examples": ["10m"],
    })
}
