//! Requests: `*N` of `$len` bulk strings, or one line of words.
//!
//! A request is only ever read whole: what is incomplete is looked at again, from its first byte,
//! when more has come. Nothing is copied but the words of a line, which may be quoted; the others
//! are [`Words`] that borrow from what was read. Every length is checked before it is believed,
//! and the first byte that cannot belong to a request ends the connection, as it does in Redis.

use std::ops::Range;

/// Words of one request: the longest that a client of ours sends is `MGET` with some keys.
pub(super) const WORDS_MAX: usize = 64;

/// Bytes of one word: no argument of any command is longer than 64.
pub(super) const WORD_BYTES_MAX: usize = 4 * 1024;

/// Bytes of one request, its framing included.
pub(super) const REQUEST_BYTES_MAX: usize = 64 * 1024;

/// Bytes of `*64\r\n` or `$4096\r\n`, generously: a longer line is no header.
const HEADER_BYTES_MAX: usize = 32;

/// What nearly every request in a rush begins with: read by one comparison.
const PURCHASE: &[u8] = b"*7\r\n$5\r\nFCALL\r\n$14\r\nsluice_reserve\r\n$1\r\n1\r\n";

/// Its words, and how many words such a request has.
const PURCHASE_SPANS: [(u32, u32); 3] = [(8, 13), (20, 34), (40, 41)];
const PURCHASE_WORDS: usize = 7;

/// What no request can hold. The text is what Redis says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum ProtocolError {
    #[error("Protocol error: invalid multibulk length")]
    WordCount,
    #[error("Protocol error: too big mbulk count string")]
    WordCountText,
    #[error("Protocol error: expected '$', got '{}'", .0.escape_ascii())]
    Expected(u8),
    #[error("Protocol error: invalid bulk length")]
    WordLength,
    #[error("Protocol error: too big bulk count string")]
    WordLengthText,
    #[error("Protocol error: expected CRLF after a bulk string")]
    WordEnd,
    #[error("Protocol error: unbalanced quotes in request")]
    Quotes,
    #[error("Protocol error: too big inline request")]
    LineLength,
    #[error("Protocol error: too big request")]
    RequestLength,
}

/// What stands at the beginning of the bytes read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Parsed {
    /// Not yet a whole request.
    Incomplete,
    /// An empty line or an empty array, which asks for nothing.
    Nothing {
        /// Its bytes.
        bytes: usize,
    },
    /// A request; its words are in the [`Parser`].
    Request {
        /// Its bytes.
        bytes: usize,
    },
}

/// Where the words of the last request are.
pub(super) struct Parser {
    spans: [(u32, u32); WORDS_MAX],
    count: usize,
    /// The words of a line, without their quotes.
    line: Vec<u8>,
    is_line: bool,
}

/// The words of a request.
#[derive(Clone, Copy)]
pub(super) struct Words<'a> {
    bytes: &'a [u8],
    spans: &'a [(u32, u32)],
}

impl<'a> Words<'a> {
    /// How many there are; never 0.
    pub(super) const fn len(self) -> usize {
        self.spans.len()
    }

    /// The word at `index`; an empty one where there is none.
    pub(super) fn at(self, index: usize) -> &'a [u8] {
        let Some((from, to)) = self.spans.get(index) else { return &[] };
        &self.bytes[*from as usize..*to as usize]
    }

    /// The words behind the first `count`.
    pub(super) fn skip(self, count: usize) -> Self {
        Self { bytes: self.bytes, spans: self.spans.get(count..).unwrap_or_default() }
    }

    /// All of them, in order.
    pub(super) fn iter(self) -> impl Iterator<Item = &'a [u8]> {
        (0..self.len()).map(move |index| self.at(index))
    }
}

impl Parser {
    /// No request yet.
    pub(super) const fn new() -> Self {
        Self { spans: [(0, 0); WORDS_MAX], count: 0, line: Vec::new(), is_line: false }
    }

    /// The words of the request that [`Parser::parse`] found in `input`.
    pub(super) fn words<'a>(&'a self, input: &'a [u8]) -> Words<'a> {
        let bytes = if self.is_line { &self.line } else { input };
        Words { bytes, spans: &self.spans[..self.count] }
    }

    /// Reads the request at the beginning of `input`.
    ///
    /// # Errors
    /// [`ProtocolError`]: nothing behind it can be told apart any more.
    pub(super) fn parse(&mut self, input: &[u8]) -> Result<Parsed, ProtocolError> {
        self.count = 0;
        let parsed = match input.first() {
            None => return Ok(Parsed::Incomplete),
            Some(b'*') => {
                self.is_line = false;
                self.array(input)?
            }
            Some(_) => {
                self.is_line = true;
                self.line(input)?
            }
        };
        match parsed {
            Parsed::Incomplete if input.len() >= REQUEST_BYTES_MAX => {
                Err(ProtocolError::RequestLength)
            }
            Parsed::Request { bytes } if bytes > REQUEST_BYTES_MAX => {
                Err(ProtocolError::RequestLength)
            }
            parsed => Ok(parsed),
        }
    }

    fn array(&mut self, input: &[u8]) -> Result<Parsed, ProtocolError> {
        if input.starts_with(PURCHASE) {
            self.spans[..PURCHASE_SPANS.len()].copy_from_slice(&PURCHASE_SPANS);
            return self.words_from(input, PURCHASE.len(), PURCHASE_SPANS.len()..PURCHASE_WORDS);
        }
        let wrong = (ProtocolError::WordCount, ProtocolError::WordCountText);
        let Some((count, at)) = header(input, 1, wrong)? else { return Ok(Parsed::Incomplete) };
        if count <= 0 {
            return Ok(Parsed::Nothing { bytes: at });
        }
        let count = bounded(count, WORDS_MAX).ok_or(ProtocolError::WordCount)?;
        self.words_from(input, at, 0..count)
    }

    /// Reads the words of these numbers, the request's last, which stand from `at` on.
    #[inline]
    fn words_from(
        &mut self,
        input: &[u8],
        mut at: usize,
        numbers: Range<usize>,
    ) -> Result<Parsed, ProtocolError> {
        let count = numbers.end;
        for index in numbers {
            match input.get(at) {
                None => return Ok(Parsed::Incomplete),
                Some(b'$') => {}
                Some(other) => return Err(ProtocolError::Expected(*other)),
            }
            let wrong = (ProtocolError::WordLength, ProtocolError::WordLengthText);
            let Some((length, from)) = header(input, at + 1, wrong)? else {
                return Ok(Parsed::Incomplete);
            };
            let length = bounded(length, WORD_BYTES_MAX).ok_or(ProtocolError::WordLength)?;
            let to = from + length;
            match (input.get(to), input.get(to + 1)) {
                (Some(b'\r'), Some(b'\n')) => {}
                (None, _) | (Some(b'\r'), None) => return Ok(Parsed::Incomplete),
                _ => return Err(ProtocolError::WordEnd),
            }
            self.spans[index] = span(from..to);
            at = to + 2;
        }
        self.count = count;
        Ok(Parsed::Request { bytes: at })
    }

    fn line(&mut self, input: &[u8]) -> Result<Parsed, ProtocolError> {
        let Some(end) = memchr::memchr(b'\n', input) else {
            let too_long = input.len() >= REQUEST_BYTES_MAX;
            return if too_long { Err(ProtocolError::LineLength) } else { Ok(Parsed::Incomplete) };
        };
        let bytes = end + 1;
        let line = input[..end].strip_suffix(b"\r").unwrap_or(&input[..end]);
        self.line.clear();
        let mut rest = line;
        loop {
            rest = rest.trim_ascii_start();
            if rest.is_empty() {
                break;
            }
            if self.count == WORDS_MAX {
                return Err(ProtocolError::LineLength);
            }
            let from = self.line.len();
            rest = unquote(rest, &mut self.line).ok_or(ProtocolError::Quotes)?;
            if self.line.len() - from > WORD_BYTES_MAX {
                return Err(ProtocolError::LineLength);
            }
            self.spans[self.count] = span(from..self.line.len());
            self.count += 1;
        }
        match self.count {
            0 => Ok(Parsed::Nothing { bytes }),
            _ => Ok(Parsed::Request { bytes }),
        }
    }
}

/// A request is far below 4 GiB.
fn span(range: Range<usize>) -> (u32, u32) {
    let narrow = |at| u32::try_from(at).unwrap_or(u32::MAX);
    (narrow(range.start), narrow(range.end))
}

fn bounded(number: i64, max: usize) -> Option<usize> {
    usize::try_from(number).ok().filter(|number| *number <= max)
}

/// The number that ends in CRLF from `at` on, and where it ends; `None` where it is incomplete.
fn header(
    input: &[u8],
    at: usize,
    (wrong, too_long): (ProtocolError, ProtocolError),
) -> Result<Option<(i64, usize)>, ProtocolError> {
    let rest = &input[at..];
    // Nearly every header has one digit or two.
    match rest {
        [ones @ b'1'..=b'9', b'\r', b'\n', ..] => return Ok(Some((digit(*ones), at + 3))),
        [tens @ b'1'..=b'9', ones @ b'0'..=b'9', b'\r', b'\n', ..] => {
            return Ok(Some((10 * digit(*tens) + digit(*ones), at + 4)));
        }
        _ => {}
    }
    let window = &rest[..rest.len().min(HEADER_BYTES_MAX)];
    let Some(digits) = window.iter().position(|byte| *byte == b'\r') else {
        return if window.len() == HEADER_BYTES_MAX { Err(too_long) } else { Ok(None) };
    };
    match rest.get(digits + 1) {
        None => Ok(None),
        Some(b'\n') => {
            let number = integer(&rest[..digits]).ok_or(wrong)?;
            Ok(Some((number, at + digits + 2)))
        }
        Some(_) => Err(wrong),
    }
}

const fn digit(byte: u8) -> i64 {
    (byte - b'0') as i64
}

/// A number as Redis writes one: no plus sign, no leading zeros.
fn integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    match digits {
        [b'0'] => return (digits.len() == text.len()).then_some(0),
        [b'1'..=b'9', ..] => {}
        _ => return None,
    }
    let value = digits.iter().try_fold(0_i64, |value, byte| {
        let digit = byte.is_ascii_digit().then(|| i64::from(byte - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })?;
    Some(if digits.len() == text.len() { value } else { -value })
}

/// Appends the word at the beginning of `text` to `out`, without its quotes; what is left behind
/// it. `None` where a quote is not closed, or more follows it at once.
fn unquote<'a>(text: &'a [u8], out: &mut Vec<u8>) -> Option<&'a [u8]> {
    let mut rest = text;
    loop {
        match rest {
            [] => return Some(rest),
            [byte, ..] if byte.is_ascii_whitespace() || *byte == 0 => return Some(&rest[1..]),
            [quote @ (b'"' | b'\''), inner @ ..] => {
                rest = quoted(*quote, inner, out)?;
                return match rest {
                    [] => Some(rest),
                    [byte, ..] if byte.is_ascii_whitespace() => Some(rest),
                    _ => None,
                };
            }
            [byte, tail @ ..] => {
                out.push(*byte);
                rest = tail;
            }
        }
    }
}

/// The part of a word between `quote` and the next one, which ends it.
fn quoted<'a>(quote: u8, text: &'a [u8], out: &mut Vec<u8>) -> Option<&'a [u8]> {
    let mut rest = text;
    loop {
        let (byte, tail) = match rest {
            [] => return None,
            [byte, tail @ ..] if *byte == quote => {
                let _ = byte;
                return Some(tail);
            }
            [b'\\', b'x', high, low, tail @ ..]
                if quote == b'"' && high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                (hex(*high) << 4 | hex(*low), tail)
            }
            [b'\\', b'\'', tail @ ..] if quote == b'\'' => (b'\'', tail),
            [b'\\', escaped, tail @ ..] if quote == b'"' => (unescape(*escaped), tail),
            [byte, tail @ ..] => (*byte, tail),
        };
        out.push(byte);
        rest = tail;
    }
}

const fn unescape(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        other => other,
    }
}

const fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
