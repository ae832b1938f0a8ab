//! Requests of the Redis protocol, as they come from the wire.

#[path = "../../../../server/src/resp/request.rs"]
#[allow(dead_code, reason = "the server's own file")]
mod request;

use request::{Parsed, Parser, ProtocolError, WORD_BYTES_MAX, WORDS_MAX};

/// The first byte says how many bytes come at a time.
pub(crate) fn run(input: &[u8]) {
    let [step, input @ ..] = input else { return };
    let whole = requests(input, input.len());
    let in_parts = requests(input, usize::from(*step) % 17 + 1);
    assert_eq!(whole, in_parts, "how the bytes are cut changes nothing");
    let (requests, _) = whole;
    for words in requests {
        let rewritten = rewritten(&words);
        let mut parser = Parser::new();
        let bytes = rewritten.len();
        assert_eq!(parser.parse(&rewritten), Ok(Parsed::Request { bytes }), "{words:?}");
        let again: Vec<_> = parser.words(&rewritten).iter().map(<[u8]>::to_vec).collect();
        assert_eq!(again, words);
    }
}

type Words = Vec<Vec<u8>>;

/// The requests in `input` where `step` more bytes come whenever what is there is incomplete, and
/// how the connection ends.
fn requests(input: &[u8], step: usize) -> (Vec<Words>, Option<ProtocolError>) {
    let mut parser = Parser::new();
    let (mut found, mut from, mut to) = (Vec::new(), 0, 0);
    loop {
        match parser.parse(&input[from..to]) {
            Ok(Parsed::Incomplete) if to == input.len() => return (found, None),
            Ok(Parsed::Incomplete) => to = (to + step.max(1)).min(input.len()),
            Ok(Parsed::Nothing { bytes }) => from += bytes,
            Ok(Parsed::Request { bytes }) => {
                let words = parser.words(&input[from..to]);
                assert!((1..=WORDS_MAX).contains(&words.len()));
                let words: Words = words.iter().map(<[u8]>::to_vec).collect();
                assert!(words.iter().all(|word| word.len() <= WORD_BYTES_MAX));
                found.push(words);
                from += bytes;
            }
            Err(error) => return (found, Some(error)),
        }
        assert!(from <= to, "more was taken than there was");
    }
}

fn rewritten(words: &Words) -> Vec<u8> {
    let mut out = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
    out
}
