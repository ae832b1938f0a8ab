//! A header that every purchase of a load carries.

use std::fmt;
use std::str::FromStr;

use axum::http::{HeaderName, HeaderValue, header};

/// Headers that the client writes itself.
const OWN: [HeaderName; 5] = [
    header::HOST,
    header::AUTHORIZATION,
    header::CONTENT_TYPE,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
];

/// A line of a request's head.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Header {
    name: HeaderName,
    value: String,
}

/// Why a text is no header to add.
#[derive(PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum HeaderError {
    #[error("a header is written NAME:VALUE, in visible ASCII")]
    Form,
    #[error("the client writes {0} itself")]
    Own(HeaderName),
}

impl FromStr for Header {
    type Err = HeaderError;

    fn from_str(text: &str) -> Result<Self, HeaderError> {
        let (name, value) = text.split_once(':').ok_or(HeaderError::Form)?;
        let name = HeaderName::from_str(name).map_err(|_| HeaderError::Form)?;
        if OWN.contains(&name) {
            return Err(HeaderError::Own(name));
        }
        let value = HeaderValue::from_str(value.trim()).map_err(|_| HeaderError::Form)?;
        let value = value.to_str().map_err(|_| HeaderError::Form)?.to_owned();
        Ok(Self { name, value })
    }
}

/// The line, with its end.
impl fmt::Display for Header {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}\r\n", self.name, self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_one_line_and_none_of_the_clients_own() {
        let line = |text: &str| text.parse::<Header>().map(|header| header.to_string());
        assert_eq!(
            line("X-Forwarded-For: 203.0.113.7"),
            Ok("x-forwarded-for: 203.0.113.7\r\n".into())
        );
        assert_eq!(line("X-Empty:"), Ok("x-empty: \r\n".into()));
        for text in ["", "no colon", ": value", "X-A: b\r\nX-C: d", "X-A: \u{e4}", "two words: x"] {
            assert_eq!(line(text), Err(HeaderError::Form), "{text:?}");
        }
        assert_eq!(line("content-length: 5"), Err(HeaderError::Own(header::CONTENT_LENGTH)));
    }
}
