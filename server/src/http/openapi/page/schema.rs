//! Schemas as people read them: a table of fields, and a word or two for each type.

use serde_json::Value;

use super::text::{escaped, prose};
use super::{fields, string};

/// What a value is.
pub(super) fn kind(schema: &Value) -> String {
    if let Some(name) = string(&schema["$ref"]).rsplit_once('/').map(|(_, name)| name) {
        return format!("<a href=\"#schema-{name}\">{name}</a>");
    }
    for choice in ["oneOf", "anyOf", "allOf"] {
        if let Some(choices) = schema[choice].as_array() {
            let kinds: Vec<_> = choices.iter().map(kind).filter(|kind| !kind.is_empty()).collect();
            return kinds.join(if choice == "allOf" { " and " } else { " or " });
        }
    }
    if let Some(values) = schema["enum"].as_array() {
        let values: Vec<_> = values.iter().map(code).collect();
        return values.join(" ");
    }
    if schema["type"] == "array" {
        return format!("list of {}", kind(&schema["items"]));
    }
    let mut words: Vec<String> = Vec::new();
    words.extend(schema["type"].as_str().map(escaped));
    words.extend(schema["format"].as_str().map(escaped));
    words.extend(bounds(schema));
    words.extend(schema.get("const").map(code));
    words.extend(
        schema["examples"][0].as_str().map(|text| format!("such as {}", code(&text.into()))),
    );
    words.join(" ")
}

fn bounds(schema: &Value) -> Option<String> {
    let bound = |name: &str| schema[name].as_u64();
    let (least, most, what) = match (bound("minLength"), bound("maxLength")) {
        (None, None) => (bound("minimum"), bound("maximum"), ""),
        (least, most) => (least, most, " characters"),
    };
    match (least, most) {
        (Some(least), Some(most)) => Some(format!("{least} to {most}{what}")),
        (None, Some(most)) => Some(format!("at most {most}{what}")),
        (Some(least), None) => Some(format!("from {least}{what}")),
        (None, None) => None,
    }
}

fn code(value: &Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    format!("<code>{}</code>", escaped(&text))
}

/// The fields of an object; of anything else, what it is.
pub(super) fn rows(schema: &Value) -> String {
    if !schema["properties"].is_object() {
        return format!("<p>{}</p>\n", kind(schema));
    }
    let required = schema["required"].as_array();
    let is_required = |name: &str| required.is_some_and(|it| it.contains(&name.into()));
    let mut html = "<table>\n".to_owned();
    for (name, field) in fields(&schema["properties"]) {
        let needed = if is_required(name) { "required" } else { "" };
        let about = prose(string(&field["description"]));
        html += &format!(
            "<tr><td><code>{}</code> <span class=\"need\">{needed}</span><td>{}<td>{about}\n",
            escaped(name),
            kind(field),
        );
    }
    html += "</table>\n";
    html
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_type_is_told_in_words() {
        for (schema, words) in [
            (json!({"type": "integer", "minimum": 1, "maximum": 9}), "integer 1 to 9"),
            (json!({"type": "string", "maxLength": 64}), "string at most 64 characters"),
            (json!({"type": "array", "items": {"type": "boolean"}}), "list of boolean"),
            (json!({"enum": ["a", "b"]}), "<code>a</code> <code>b</code>"),
            (json!({"$ref": "#/components/schemas/X"}), "<a href=\"#schema-X\">X</a>"),
            (json!({"oneOf": [{"type": "string"}, {"type": "null"}]}), "string or null"),
        ] {
            assert_eq!(kind(&schema), words);
        }
    }
}
