//! What callers send, strictly read: nothing reaches the engine that isn't what the contract says
//! a request is.

mod body;
mod caller;
mod client;
mod headers;
mod json;
mod object;
mod url;

pub(crate) use body::{BODY_BYTES_MAX, CSV_BYTES_MAX, read_body};
pub(crate) use caller::Admin;
pub(crate) use client::{Client, Said, came_over_tls, require_tls};
pub(crate) use headers::{IdempotencyKey, IfMatch, is_json, media_type, require_json, single};
pub(crate) use json::{Json, SkuField, UserField, parse_object, present_object};
pub(crate) use object::{Units, present};
pub(crate) use url::{Params, Segment, activity_named};

/// A complaint that goes back to the caller is cut here: it may quote what they sent.
const DETAIL_CHARS_MAX: usize = 200;

fn clipped(text: &str) -> String {
    text.chars().take(DETAIL_CHARS_MAX).collect()
}
