//! `sluice openapi`: the interface as an OpenAPI document, for generators of clients.

use std::io::Write as _;
use std::process::ExitCode;

use super::{EXIT_OK, EXIT_USAGE};

/// Prints it.
pub(crate) fn run() -> ExitCode {
    match std::io::stdout().write_all(crate::http::openapi::document::text().as_bytes()) {
        Ok(()) => ExitCode::from(EXIT_OK),
        Err(error) => {
            eprintln!("sluice openapi: the document could not be written: {error}");
            ExitCode::from(EXIT_USAGE)
        }
    }
}
