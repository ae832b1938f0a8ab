//! The interface, described by the code that serves it.
//!
//! | file | idea |
//! |---|---|
//! | [`api`] | [`Api`]: the one way to add a route, which takes its description along |
//! | [`signature`] | what a handler's parameters say by themselves: credentials, bodies, headers |
//! | [`operation`] | what only a person can say: words, answers, refusals |
//! | [`document`] | all of it as an OpenAPI 3.1 document, of the parts in [`components`] |
//! | [`page`] | that document as one page of HTML, which needs no script and no network |
//! | [`serve`] | `/openapi.json` and `/docs` |
//!
//! # To add a route
//! 1. Write the handler. Whatever it takes implements [`Input`], and so is in the document: a
//!    [`Caller`](crate::identity::Caller) asks for a token and may be 401, a
//!    [`Json`](super::input::Json) is the body, a [`Params`](super::input::Params) the query. A
//!    new extractor says in its own `impl Input` what it adds.
//! 2. Derive [`JsonSchema`](schemars::JsonSchema) for what it takes and sends. Comments of fields
//!    become descriptions; bounds that a type can't have are attributes such as
//!    `#[schemars(range(min = 1))]`. An `Option` may be left out and is never `null`, unless its
//!    schema is [`nullable`]; with a `schema_with` it needs `#[serde(default)]` to be optional.
//! 3. Add it to the room's `routes()`, with its answers and every
//!    [`Code`](crate::http::problem::Code) that it may refuse with:
//!
//! ```ignore
//! Api::new().post(
//!     "/api/orders/{order_no}/cancel",
//!     cancel,
//!     Operation::new(Tag::Orders, "cancelOrder", "Give an unpaid order back")
//!         .answers::<PurchaseJson<'_>>(200, "It is given back; asked again, the same")
//!         .refuses(&[Code::OrderNotFound, Code::AlreadyPaid])
//!         .writes(),
//! )
//! ```
//!
//! 4. `cargo xtask docs` writes `docs/openapi.json` anew; a test fails where it is stale.
//!
//! An answer that is not in the document is a fault: `server/tests/openapi.rs` looks for one.

mod api;
mod components;
pub(crate) mod document;
mod operation;
mod page;
mod serve;
mod shapes;
mod signature;

pub(super) use api::Api;
pub(crate) use operation::Operation;
pub(super) use operation::Tag;
pub(super) use serve::routes;
pub(crate) use shapes::{id_schema, length_schema, nullable, text_schema};
pub(crate) use signature::Input;

#[cfg(test)]
mod tests;
