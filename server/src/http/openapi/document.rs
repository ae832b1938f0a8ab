//! The operations as an OpenAPI 3.1 document.
//!
//! Refusals stand in it by their stable codes: an answer is in the document only with the code
//! that it carries, not with its status alone.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use engine::core::limits::{ID_MAX, NAME_BYTES_MAX, PAYMENT_NO_BYTES_MAX};
use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::components::{
    good_headers, headers, problem_response, problem_schema, reference, security, security_schemes,
};
use super::operation::{Content, Operation, RequestHeader, Tag};
use crate::http::problem::Code;

/// Where schemas lie in the document.
const SCHEMAS: &str = "/components/schemas";

/// What opens the document.
const ABOUT: &str = "\
A reservation server for flash sales. A purchase is on disk before it is answered, and becomes \
exactly one order.\n\n\
**Money** is in the smallest unit, as an integer. **Times** are RFC 3339 in UTC with \
milliseconds. **Unknown fields** of a request are ignored, unknown fields of an answer should be: \
versions are upgraded at different times. `null` is not the same as a field that is left out, and \
is refused where this document does not allow it.\n\n\
**Errors** are `application/problem+json` (RFC 9457); match their `code`, which never changes. \
`429` and `503` say in `Retry-After` when to come back. Repeat a purchase with the same \
`client_request_id`: it has one outcome, however often it is sent. `500 internal` is a fault of \
the server, expected nowhere; tell its operator the `X-Request-Id`.\n\n\
**Answers of the connection**: where there are too many of them, the answer to connecting is \
`503 overloaded`, whatever was asked.";

/// The document of this version, as it is served and committed.
pub(crate) static DOCUMENT: LazyLock<Value> =
    LazyLock::new(|| document(&crate::http::api().into_operations()));

/// [`DOCUMENT`] as text that people can read and compare.
pub(crate) fn text() -> String {
    // A document made of maps, texts and numbers can't fail to be written.
    let text = serde_json::to_string_pretty(&*DOCUMENT).unwrap_or_default();
    format!("{text}\n")
}

fn document(operations: &[Operation]) -> Value {
    let mut parts = Parts::new();
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for operation in operations {
        let method = operation.method.as_str().to_ascii_lowercase();
        let described = parts.operation(operation);
        paths.entry(operation.path).or_default().insert(method, described);
    }
    let tags = Tag::ALL.iter().map(|(_, name, about)| json!({"name": name, "description": about}));
    json!({
        "openapi": "3.1.0",
        "jsonSchemaDialect": "https://json-schema.org/draft/2020-12/schema",
        "info": {
            "title": "Sluice",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "Flash sales that sell every unit exactly once.",
            "description": ABOUT,
            "license": {"name": "MIT OR Apache-2.0", "identifier": env!("CARGO_PKG_LICENSE")},
        },
        "servers": [{"url": "/"}],
        "tags": tags.collect::<Vec<_>>(),
        "paths": paths,
        "components": {
            "schemas": parts.schemas(),
            "responses": parts.problems,
            "headers": headers(),
            "securitySchemes": security_schemes(),
        },
    })
}

/// What operations share.
struct Parts {
    /// Schemas of requests.
    taken: SchemaGenerator,
    /// Schemas of answers.
    told: SchemaGenerator,
    /// Refusals, by status and codes: most operations share theirs.
    problems: Map<String, Value>,
}

impl Parts {
    fn new() -> Self {
        let settings = SchemaSettings::draft2020_12().with(|settings| {
            settings.definitions_path = SCHEMAS.into();
            settings.meta_schema = None;
        });
        Self {
            taken: settings.clone().for_deserialize().into_generator(),
            told: settings.for_serialize().into_generator(),
            problems: Map::new(),
        }
    }

    fn operation(&mut self, operation: &Operation) -> Value {
        let mut described = json!({
            "operationId": operation.id,
            "tags": [operation.tag.name()],
            "summary": operation.summary,
            "responses": self.responses(operation),
            "security": security(operation.access),
        });
        if !operation.about.is_empty() {
            described["description"] = operation.about.into();
        }
        let parameters = self.parameters(operation);
        if !parameters.is_empty() {
            described["parameters"] = parameters.into();
        }
        if !operation.bodies.is_empty() {
            let content = operation.bodies.iter().map(|body| content(body, &mut self.taken));
            described["requestBody"] = json!({
                "required": operation.body_required,
                "content": content.collect::<Map<_, _>>(),
            });
        }
        described
    }

    fn parameters(&mut self, operation: &Operation) -> Vec<Value> {
        let mut all: Vec<Value> = path_parameters(operation.path).collect();
        if let Some(query) = operation.query {
            all.extend(query_parameters(query(&mut self.taken)));
        }
        all.extend(operation.request_headers.iter().map(|header| {
            let RequestHeader { name, about, required, schema } = header;
            json!({
                "in": "header", "name": name, "description": about, "required": required,
                "schema": schema(&mut self.taken),
            })
        }));
        all
    }

    fn responses(&mut self, operation: &Operation) -> Map<String, Value> {
        let mut responses = Map::new();
        for answer in &operation.answers {
            let mut described =
                json!({"description": answer.about, "headers": good_headers(&operation.headers)});
            if let Some(body) = &answer.content {
                described["content"] = Map::from_iter([content(body, &mut self.told)]).into();
            }
            responses.insert(answer.status.to_string(), described);
        }
        for (status, codes) in by_status(operation) {
            let names: Vec<_> = codes.iter().map(|code| code.as_str()).collect();
            let name = format!("{status}-{}", names.join("."));
            responses.insert(status.to_string(), reference("responses", &name));
            self.problems.entry(name).or_insert_with(|| problem_response(status, &codes));
        }
        responses
    }

    /// The schemas that anything refers to.
    fn schemas(&mut self) -> Map<String, Value> {
        let mut schemas = self.told.take_definitions(true);
        for (name, schema) in self.taken.take_definitions(true) {
            let known = schemas.insert(name.clone(), schema.clone());
            // Two shapes under one name: rename one of the types.
            assert!(known.is_none_or(|known| known == schema), "two schemas are called {name}");
        }
        schemas.insert("Problem".to_owned(), problem_schema());
        schemas.values_mut().for_each(without_null);
        schemas
    }
}

/// What is refused in front of every operation: a request that is none, or too large a head.
const OF_ALL: &[Code] = &[Code::InvalidRequest, Code::UriTooLong, Code::HeadersTooLarge];

/// The codes that an operation refuses with, by status. What comes over no TLS is refused in front
/// of every call of the API.
fn by_status(operation: &Operation) -> BTreeMap<u16, Vec<Code>> {
    let is_api = operation.path.starts_with("/api/");
    let of_api: &[Code] = if is_api { &[Code::TlsRequired] } else { &[] };
    let mut all: BTreeMap<u16, Vec<Code>> = BTreeMap::new();
    // In the order of the one table of codes.
    for code in Code::ALL {
        if [OF_ALL, of_api, &operation.problems].iter().any(|codes| codes.contains(code)) {
            all.entry(code.status().as_u16()).or_default().push(*code);
        }
    }
    all
}

fn content(content: &Content, generator: &mut SchemaGenerator) -> (String, Value) {
    match content {
        Content::Json(schema) => {
            ("application/json".to_owned(), json!({"schema": schema(generator)}))
        }
        Content::Text(media_type, about) => {
            let schema = json!({"type": "string", "description": about});
            ((*media_type).to_owned(), json!({"schema": schema}))
        }
    }
}

/// The variable segments of `path`. What they name follows from what stands in front of them.
fn path_parameters(path: &str) -> impl Iterator<Item = Value> {
    let segments: Vec<&str> = path.split('/').collect();
    let pairs: Vec<_> = segments.windows(2).map(|pair| (pair[0], pair[1])).collect();
    let id = || json!({"type": "integer", "format": "int64", "minimum": 1, "maximum": ID_MAX});
    let digits = |most: usize| json!({"type": "string", "minLength": 1, "maxLength": most});
    pairs.into_iter().filter_map(move |(before, segment)| {
        let name = segment.strip_prefix('{')?.strip_suffix('}')?.to_owned();
        let (about, schema) = match (before, name.as_str()) {
            ("users", _) => ("The user's id.", id()),
            ("flashsales", _) => ("The activity's id.", id()),
            (_, "order_no") => ("The order's number.", digits(20)),
            (_, "payment_no") => ("The payment's number.", digits(PAYMENT_NO_BYTES_MAX)),
            (_, "channel") => ("The way to pay.", digits(NAME_BYTES_MAX)),
            _ => ("The purchase's `pre_deduction_id`.", id()),
        };
        Some(json!({
            "in": "path", "name": name, "description": about, "required": true, "schema": schema,
        }))
    })
}

/// The fields of an object, as parameters of a query.
fn query_parameters(query: Schema) -> Vec<Value> {
    let mut query = Value::from(query);
    without_null(&mut query);
    let required = query["required"].take();
    let Value::Object(fields) = query["properties"].take() else { return Vec::new() };
    let is_required = |name: &str| required.as_array().is_some_and(|it| it.contains(&name.into()));
    let parameter = |(name, mut schema): (String, Value)| {
        let about = schema.as_object_mut().and_then(|it| it.remove("description"));
        let required = is_required(&name);
        let mut parameter =
            json!({"in": "query", "name": name, "required": required, "schema": schema});
        if let Some(about) = about {
            parameter["description"] = about;
        }
        parameter
    };
    fields.into_iter().map(parameter).collect()
}

/// Takes `null` out of fields that may be left out: it is refused in requests and not sent in
/// answers. Where it is meant, a schema says so by `oneOf`: see [`super::shapes::nullable`].
fn without_null(schema: &mut Value) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(without_null),
        Value::Object(fields) => {
            for name in ["enum", "default"] {
                match fields.get_mut(name) {
                    Some(Value::Array(values)) => values.retain(|it| !it.is_null()),
                    Some(Value::Null) => drop(fields.remove(name)),
                    _ => {}
                }
            }
            if let Some(Value::Array(types)) = fields.get_mut("type") {
                types.retain(|it| it != "null");
                if let [only] = types.as_slice() {
                    let only = only.clone();
                    fields.insert("type".to_owned(), only);
                }
            }
            if let Some(Value::Array(choices)) = fields.get_mut("anyOf") {
                choices.retain(|it| *it != json!({"type": "null"}));
                if let [Value::Object(only)] = choices.as_slice() {
                    let only = only.clone();
                    fields.remove("anyOf");
                    fields.extend(only);
                }
            }
            fields.values_mut().for_each(without_null);
        }
        _ => {}
    }
}
