//! `docs/openapi.json`: what the server says of its own interface.
//!
//! A unit test of the server finds it stale. Tidy does not: it builds nothing.

use std::path::Path;

use crate::failure::Failure;
use crate::steps;

const PAGE: &str = "docs/openapi.json";

/// Prints the document; the server is built for it, as its tests are.
const PRINT: &str = "run --quiet --locked --package server -- openapi";

/// Writes the document anew where it has changed.
///
/// # Errors
/// [`Failure::Exit`] where the server can't be built, [`Failure::Io`] where the page can't be
/// written.
pub(crate) fn render() -> Result<(), Failure> {
    let document = steps::output(PRINT)?;
    if std::fs::read(Path::new(PAGE)).is_ok_and(|known| known == document) {
        return Ok(());
    }
    println!("rendered {PAGE}");
    std::fs::write(PAGE, document).map_err(|source| Failure::Io { what: "write a page", source })
}
