//! What one method of one path is.

use axum::http::Method;
use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::http::problem::Code;

/// Makes a schema, and those it refers to.
pub(super) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// The chapters of the document.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tag {
    Accounts,
    Sale,
    Orders,
    Payments,
    Events,
    Activities,
    Catalogue,
    Gate,
    Operations,
    Server,
}

impl Tag {
    /// All of them, in the order of the document, with a line about each.
    pub(super) const ALL: &[(Self, &str, &str)] = &[
        (Self::Accounts, "accounts", "Logging in and out; the address that orders keep."),
        (Self::Sale, "sale", "What is on sale, and buying it."),
        (Self::Orders, "orders", "What was bought."),
        (Self::Payments, "payments", "Paying, providers' callbacks, refunds."),
        (Self::Events, "events", "What changes, as it changes: server-sent events."),
        (Self::Activities, "activities", "Operators: making, switching and filling sales."),
        (Self::Catalogue, "catalogue", "Operators: SKUs and accounts."),
        (Self::Gate, "gate", "Operators: who may come in, and how often."),
        (Self::Operations, "operations", "Operators: watching, mending, exporting."),
        (Self::Server, "server", "Health, metrics, and this document."),
    ];

    pub(super) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(tag, ..)| *tag == self).map_or("", |(_, name, _)| name)
    }
}

/// Who may call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Access {
    Anyone,
    User,
    Admin,
    /// A user by token, or whoever shows a ticket that one was given.
    UserOrTicket,
    /// A provider of payments, by its signature.
    Provider,
}

/// A header that a request may carry.
#[derive(Clone, Debug)]
pub(super) struct RequestHeader {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) required: bool,
    pub(super) schema: SchemaOf,
}

/// What a body holds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Content {
    Json(SchemaOf),
    /// Text of this media type, with what it looks like.
    Text(&'static str, &'static str),
}

/// One good answer.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) about: &'static str,
    pub(super) content: Option<Content>,
}

/// A header of the good answers.
#[derive(Clone, Copy, Debug)]
pub(super) struct AnswerHeader {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) required: bool,
}

/// One method of one path.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(super) method: Method,
    pub(super) path: &'static str,
    pub(super) tag: Tag,
    pub(super) id: &'static str,
    pub(super) summary: &'static str,
    pub(super) about: &'static str,
    pub(super) access: Access,
    pub(super) request_headers: Vec<RequestHeader>,
    pub(super) query: Option<SchemaOf>,
    pub(super) bodies: Vec<Content>,
    pub(super) body_required: bool,
    pub(super) answers: Vec<Answer>,
    pub(super) headers: Vec<AnswerHeader>,
    pub(super) problems: Vec<Code>,
}

impl Operation {
    /// One that asks for nothing yet. `id` is what generated clients call it.
    pub(crate) fn new(tag: Tag, id: &'static str, summary: &'static str) -> Self {
        Self {
            method: Method::GET,
            path: "",
            tag,
            id,
            summary,
            about: "",
            access: Access::Anyone,
            request_headers: Vec::new(),
            query: None,
            bodies: Vec::new(),
            body_required: true,
            answers: Vec::new(),
            headers: Vec::new(),
            problems: Vec::new(),
        }
    }

    pub(super) fn at(self, method: Method, path: &'static str) -> Self {
        Self { method, path, ..self }
    }

    /// More than its summary says.
    pub(crate) fn about(self, about: &'static str) -> Self {
        Self { about, ..self }
    }

    /// It answers `T` as JSON.
    pub(crate) fn answers<T: JsonSchema>(self, status: u16, about: &'static str) -> Self {
        self.answer(status, about, Some(Content::Json(SchemaGenerator::subschema_for::<T>)))
    }

    /// It answers text of `media_type`.
    pub(crate) fn answers_text(self, media_type: &'static str, about: &'static str) -> Self {
        self.answer(200, about, Some(Content::Text(media_type, about)))
    }

    /// It answers 204.
    pub(crate) fn answers_nothing(self, about: &'static str) -> Self {
        self.answer(204, about, None)
    }

    fn answer(mut self, status: u16, about: &'static str, content: Option<Content>) -> Self {
        self.answers.push(Answer { status, about, content });
        self
    }

    /// Its good answers carry a header.
    pub(crate) fn with_header(
        mut self,
        name: &'static str,
        required: bool,
        about: &'static str,
    ) -> Self {
        self.headers.push(AnswerHeader { name, about, required });
        self
    }

    /// It may refuse with these, beside what its parameters refuse with.
    pub(crate) fn refuses(mut self, codes: &[Code]) -> Self {
        self.problem(codes);
        self
    }

    /// It looks into the engine.
    pub(crate) fn reads(self) -> Self {
        self.refuses(&[Code::Recovering, Code::LogUnavailable])
    }

    /// It is answered once its record is on disk.
    pub(crate) fn writes(self) -> Self {
        self.refuses(&[Code::Recovering, Code::Overloaded, Code::LogUnavailable])
    }

    /// It needs the order database.
    pub(crate) fn asks_sql(self) -> Self {
        self.refuses(&[Code::Recovering, Code::DatabaseUnavailable])
    }

    /// Its body, a raw request, is read as a `T`.
    pub(crate) fn takes<T: JsonSchema>(mut self) -> Self {
        self.json_body(SchemaGenerator::subschema_for::<T>);
        self
    }

    /// What its JSON body is in particular, where its type does not say.
    pub(crate) fn takes_in_particular<T: JsonSchema>(mut self) -> Self {
        self.bodies.push(Content::Json(SchemaGenerator::subschema_for::<T>));
        self
    }

    /// Its body may be text of `media_type` as well.
    pub(crate) fn takes_text(mut self, media_type: &'static str, about: &'static str) -> Self {
        self.bodies.push(Content::Text(media_type, about));
        self
    }

    /// Its body may be left out.
    pub(crate) fn body_is_optional(self) -> Self {
        Self { body_required: false, ..self }
    }

    /// It takes a header.
    pub(crate) fn header(
        mut self,
        name: &'static str,
        required: bool,
        schema: SchemaOf,
        about: &'static str,
    ) -> Self {
        self.request_headers.push(RequestHeader { name, about, required, schema });
        self
    }

    /// It is called by providers, who sign.
    pub(crate) fn signed(self) -> Self {
        Self { access: Access::Provider, ..self }.refuses(&[Code::BadSignature])
    }
}

/// What extractors say.
impl Operation {
    /// It may refuse with these.
    pub(crate) fn problem(&mut self, codes: &[Code]) {
        self.problems.extend_from_slice(codes);
    }

    /// It needs a token.
    pub(crate) fn needs_token(&mut self) {
        self.access = Access::User;
        self.problem(&[Code::Unauthenticated, Code::Recovering]);
    }

    /// It needs an operator's token.
    pub(crate) fn needs_admin(&mut self) {
        self.needs_token();
        self.access = Access::Admin;
        self.problem(&[Code::Forbidden]);
    }

    /// A ticket in the query does as well as a token.
    pub(crate) fn takes_ticket(&mut self) {
        self.needs_token();
        self.access = Access::UserOrTicket;
        self.problem(&[Code::InvalidRequest]);
    }

    /// It takes a header that may be left out.
    pub(crate) fn takes_header(
        &mut self,
        name: &'static str,
        schema: SchemaOf,
        about: &'static str,
    ) {
        // A route that can't do without has said so itself, and better.
        if self.request_headers.iter().all(|known| known.name != name) {
            self.request_headers.push(RequestHeader { name, about, required: false, schema });
        }
        self.problem(&[Code::InvalidRequest]);
    }

    /// The fields of `T` are its query.
    pub(crate) fn takes_query<T: JsonSchema>(&mut self) {
        self.query = Some(T::json_schema);
        self.problem(&[Code::InvalidRequest]);
    }

    /// `T` is its JSON body.
    pub(crate) fn takes_json<T: JsonSchema>(&mut self) {
        // What the route says in particular is closer than the type.
        if self.bodies.is_empty() {
            self.bodies.push(Content::Json(SchemaGenerator::subschema_for::<T>));
        }
        self.refuses_bodies();
    }

    fn json_body(&mut self, schema: SchemaOf) {
        self.bodies.push(Content::Json(schema));
        self.refuses_bodies();
    }

    fn refuses_bodies(&mut self) {
        self.problem(&[
            Code::InvalidRequest,
            Code::RequestTimeout,
            Code::PayloadTooLarge,
            Code::UnsupportedMediaType,
        ]);
    }
}
