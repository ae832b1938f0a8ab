//! The bytes of calls and answers, as far as a load generator needs them.

use std::borrow::Cow;
use std::io::Write as _;

use super::super::drive::{Expected, Parsed, Protocol};
use super::super::plan::Request;
use super::super::tally::Outcome;
use super::super::wire::{Malformed, write_request_id};
use super::options::DEPTH_MAX;

/// Lines that an answer may nest.
const NESTED_MAX: usize = 4;

/// Errors that say for sure that nothing was reserved.
const NOTHING_RESERVED: [&str; 4] = ["OVERLOADED", "RECOVERING", "INVALID", "BLACKLISTED"];

/// What the load speaks: purchases of one unit.
pub(super) struct Calls {
    /// What is bought.
    pub(super) activity: u64,
    /// Sets the request ids of this run apart.
    pub(super) run: u32,
    /// User id of the first shopper.
    pub(super) first_user: u64,
    /// Who calls, with what password.
    pub(super) credentials: Option<(String, String)>,
    /// Each burst is followed by `WAITAOF`, which waits this many milliseconds.
    pub(super) wait_aof_ms: Option<u128>,
}

impl Protocol for Calls {
    fn depth_open(&self) -> usize {
        DEPTH_MAX as usize
    }

    fn greet(&self, out: &mut Vec<u8>) -> bool {
        let Some((user, password)) = &self.credentials else { return false };
        command(&[b"AUTH", user.as_bytes(), password.as_bytes()], out);
        true
    }

    fn compose(&self, request: Request, out: &mut Vec<u8>) {
        let first_user = self.first_user;
        let mut number = itoa::Buffer::new();
        out.extend_from_slice(b"*7\r\n$5\r\nFCALL\r\n$14\r\nsluice_reserve\r\n$1\r\n1\r\n");
        word(number.format(self.activity).as_bytes(), out);
        word(number.format(first_user + u64::from(request.shopper)).as_bytes(), out);
        out.extend_from_slice(b"$36\r\n");
        write_request_id(self.run, request.shopper, request.attempt, out);
        out.extend_from_slice(b"\r\n$1\r\n1\r\n");
    }

    fn seals(&self) -> bool {
        self.wait_aof_ms.is_some()
    }

    fn seal(&self, out: &mut Vec<u8>) {
        let wait_ms = self.wait_aof_ms.unwrap_or_default().to_string();
        command(&[b"WAITAOF", b"1", b"0", wait_ms.as_bytes()], out);
    }

    fn parse(&self, bytes: &[u8], expected: Expected) -> Result<Option<Parsed>, Malformed> {
        if expected == Expected::Purchase
            && let Some((outcome, length)) = usual(bytes)
        {
            return Ok(Some(Parsed { length, outcome: Some(outcome), is_last: false }));
        }
        let Some((answer, length)) = parse(bytes)? else { return Ok(None) };
        let outcome = match expected {
            Expected::Greeting if answer == Answer::Text(b"OK") => None,
            Expected::Seal if answer.is_synced() => None,
            Expected::Purchase => Some(outcome(&answer)?),
            Expected::Greeting | Expected::Seal => return Err(Malformed),
        };
        Ok(Some(Parsed { length, outcome, is_last: false }))
    }
}

/// What a purchase was answered.
fn outcome(answer: &Answer<'_>) -> Result<Outcome, Malformed> {
    match answer {
        Answer::List(items) => {
            let [Answer::Integer(code), id, _, _] = items.as_slice() else {
                return Err(Malformed);
            };
            Ok(outcome_of(*code, id.unsigned().ok_or(Malformed)?))
        }
        Answer::Error(text) => {
            let text = String::from_utf8_lossy(text);
            let word = text.split(' ').next().unwrap_or_default();
            let is_unknown = !NOTHING_RESERVED.contains(&word);
            Ok(Outcome::Refused { code: Cow::Owned(word.to_owned()), is_unknown })
        }
        _ => Err(Malformed),
    }
}

fn outcome_of(code: i64, id: u64) -> Outcome {
    match code {
        1 => Outcome::Reserved { id, is_replay: false },
        2 => Outcome::Reserved { id, is_replay: true },
        other => Outcome::Refused { code: Cow::Borrowed(name(other)), is_unknown: false },
    }
}

/// An answer as nearly all of them are, read without making a list of it; whatever is not whole, or
/// is anything else, is left to [`parse`].
fn usual(bytes: &[u8]) -> Option<(Outcome, usize)> {
    let rest = bytes.strip_prefix(b"*4\r\n:")?;
    let negative = rest.strip_prefix(b"-");
    let (code, rest) = number(negative.unwrap_or(rest))?;
    let (id, rest) = number(rest.strip_prefix(b":")?)?;
    let (length, rest) = number(rest.strip_prefix(b"$")?)?;
    let rest = rest.get(usize::try_from(length).ok()?..)?.strip_prefix(b"\r\n:")?;
    let (_, rest) = number(rest)?;
    let code = i64::try_from(code).ok()?;
    let code = if negative.is_some() { -code } else { code };
    Some((outcome_of(code, id), bytes.len() - rest.len()))
}

/// The digits of a number and what is behind their line.
fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    const DIGITS_MAX: usize = 18;
    let (mut number, mut at) = (0, 0);
    while let Some(digit @ b'0'..=b'9') = bytes.get(at) {
        number = 10 * number + u64::from(digit - b'0');
        at += 1;
        if at > DIGITS_MAX {
            return None;
        }
    }
    let rest = bytes[at..].strip_prefix(b"\r\n")?;
    (at > 0).then_some((number, rest))
}

/// The code as it is called over HTTP.
const fn name(code: i64) -> &'static str {
    match code {
        0 => "sold_out",
        -1 => "not_in_window",
        -2 => "limit_reached",
        -3 => "off_sale",
        -4 => "paused",
        -5 => "activity_not_found",
        -6 => "request_id_reused",
        _ => "other_codes",
    }
}

fn word(bytes: &[u8], out: &mut Vec<u8>) {
    let mut length = itoa::Buffer::new();
    out.push(b'$');
    out.extend_from_slice(length.format(bytes.len()).as_bytes());
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// A command of any words.
pub(super) fn command(words: &[&[u8]], out: &mut Vec<u8>) {
    let _ = write!(out, "*{}\r\n", words.len());
    words.iter().for_each(|bytes| word(bytes, out));
}

/// An answer, borrowed from what was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Answer<'a> {
    Integer(i64),
    Text(&'a [u8]),
    Error(&'a [u8]),
    List(Vec<Answer<'a>>),
}

impl Answer<'_> {
    /// A number that is none below 0.
    pub(super) fn unsigned(&self) -> Option<u64> {
        match self {
            Self::Integer(number) => u64::try_from(*number).ok(),
            _ => None,
        }
    }

    /// Whether a `WAITAOF` says that everything is on disk.
    fn is_synced(&self) -> bool {
        matches!(self, Self::List(items) if items.first() == Some(&Answer::Integer(1)))
    }

    /// The value of a field of a flat list of names and values.
    pub(super) fn field(&self, name: &str) -> Option<u64> {
        let Self::List(items) = self else { return None };
        let mut pairs = items.chunks_exact(2);
        pairs.find(|pair| pair[0] == Answer::Text(name.as_bytes()))?[1].unsigned()
    }
}

/// Reads the answer at the beginning of `bytes`, and how long it is; `None` while it is incomplete.
///
/// # Errors
/// It is none of RESP2.
pub(super) fn parse(bytes: &[u8]) -> Result<Option<(Answer<'_>, usize)>, Malformed> {
    parse_nested(bytes, NESTED_MAX)
}

fn parse_nested(bytes: &[u8], depth: usize) -> Result<Option<(Answer<'_>, usize)>, Malformed> {
    let Some(end) = memchr::memchr(b'\n', bytes) else { return Ok(None) };
    let line = bytes[..end].strip_suffix(b"\r").ok_or(Malformed)?;
    let (kind, text) = line.split_first().ok_or(Malformed)?;
    let number = || -> Result<i64, Malformed> {
        std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or(Malformed)
    };
    let mut at = end + 1;
    let answer = match kind {
        b'+' => Answer::Text(text),
        b'-' => Answer::Error(text),
        b':' => Answer::Integer(number()?),
        b'$' => match usize::try_from(number()?) {
            Err(_) => Answer::Text(b""),
            Ok(length) => {
                let Some(text) = bytes.get(at..at + length + 2) else { return Ok(None) };
                at += length + 2;
                Answer::Text(text.strip_suffix(b"\r\n").ok_or(Malformed)?)
            }
        },
        b'*' if depth > 0 => {
            let mut items = Vec::new();
            for _ in 0..number()? {
                let Some((item, length)) = parse_nested(&bytes[at..], depth - 1)? else {
                    return Ok(None);
                };
                items.push(item);
                at += length;
            }
            Answer::List(items)
        }
        _ => return Err(Malformed),
    };
    Ok(Some((answer, at)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_whole_or_not_at_all() {
        let bytes = b"*4\r\n:1\r\n:4294967297\r\n$18\r\n100000004294967297\r\n:9\r\n";
        for cut in 0..bytes.len() {
            assert_eq!(parse(&bytes[..cut]), Ok(None), "cut at {cut}");
        }
        let (answer, length) = parse(bytes).unwrap().unwrap();
        let Answer::List(items) = answer else { panic!("no list") };
        assert_eq!(
            (length, items.len(), items[1].unsigned()),
            (bytes.len(), 4, Some(4_294_967_297))
        );
        assert_eq!(parse(b"-OVERLOADED x\r\n"), Ok(Some((Answer::Error(b"OVERLOADED x"), 15))));
        assert_eq!(parse(b"HTTP/1.1 200 OK\r\n"), Err(Malformed));
    }

    #[test]
    fn the_quick_look_says_what_the_whole_one_says() {
        for text in [
            "*4\r\n:1\r\n:4294967297\r\n$18\r\n100000004294967297\r\n:9\r\n",
            "*4\r\n:2\r\n:7\r\n$0\r\n\r\n:0\r\n*4\r\n",
            "*4\r\n:-2\r\n:0\r\n$0\r\n\r\n:12\r\n",
            "*4\r\n:0\r\n:0\r\n$1\r\n\n\r\n:12\r\n",
        ] {
            let bytes = text.as_bytes();
            let (answer, length) = parse(bytes).unwrap().unwrap();
            assert_eq!(usual(bytes), Some((outcome(&answer).unwrap(), length)), "{text}");
            for cut in 0..length {
                assert_eq!(usual(&bytes[..cut]), None, "{text} cut at {cut}");
            }
        }
        for text in ["*3\r\n:1\r\n", "-OVERLOADED x\r\n", "*4\r\n:x\r\n:1\r\n$0\r\n\r\n:1\r\n"] {
            assert_eq!(usual(text.as_bytes()), None, "{text}");
        }
    }

    fn calls(wait_aof_ms: Option<u128>) -> Calls {
        Calls { activity: 30_001, run: 7, first_user: 1, credentials: None, wait_aof_ms }
    }

    #[test]
    fn a_waitaof_that_timed_out_makes_no_answer_count() {
        let calls = calls(Some(100));
        assert!(calls.parse(b"*2\r\n:1\r\n:0\r\n", Expected::Seal).unwrap().is_some());
        for bytes in [&b"*2\r\n:0\r\n:0\r\n"[..], b"-ERR no file\r\n", b"+OK\r\n"] {
            assert_eq!(calls.parse(bytes, Expected::Seal).err(), Some(Malformed));
        }
    }

    #[test]
    fn a_composed_purchase_is_the_command_that_it_says() {
        let request = Request { shopper: 4, attempt: 2 };
        let mut bytes = Vec::new();
        calls(None).compose(request, &mut bytes);
        let mut id = Vec::new();
        write_request_id(7, 4, 2, &mut id);
        let words = [&b"FCALL"[..], b"sluice_reserve", b"1", b"30001", b"5", &id, b"1"];
        let mut expected = Vec::new();
        command(&words, &mut expected);
        assert_eq!(bytes, expected);
    }
}
