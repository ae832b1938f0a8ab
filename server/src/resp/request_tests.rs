//! The parser against tables, against a published one, and against cuts.

use proptest::prelude::*;
use redis_protocol::resp2::decode::decode;
use redis_protocol::resp2::types::OwnedFrame;

use super::*;

/// The words of a request, and its bytes.
type Read = (Vec<Vec<u8>>, usize);

/// What stands at the beginning of `input`.
fn parse(input: &[u8]) -> Result<Option<Read>, ProtocolError> {
    let mut parser = Parser::new();
    Ok(match parser.parse(input)? {
        Parsed::Incomplete => None,
        Parsed::Nothing { bytes } => Some((Vec::new(), bytes)),
        Parsed::Request { bytes } => {
            Some((parser.words(input).iter().map(<[u8]>::to_vec).collect(), bytes))
        }
    })
}

fn encode(words: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

fn words(list: &[&str]) -> Vec<Vec<u8>> {
    list.iter().map(|word| word.as_bytes().to_vec()).collect()
}

#[test]
fn what_cannot_be_a_request_is_named_as_redis_names_it() {
    let long = "1".repeat(HEADER_BYTES_MAX);
    let table: &[(&str, ProtocolError)] = &[
        ("*65\r\n", ProtocolError::WordCount),
        ("*a\r\n", ProtocolError::WordCount),
        ("*+1\r\n", ProtocolError::WordCount),
        ("*01\r\n", ProtocolError::WordCount),
        ("*\r\n", ProtocolError::WordCount),
        ("*99999999999999999999\r\n", ProtocolError::WordCount),
        ("*1\rx", ProtocolError::WordCount),
        (&format!("*{long}"), ProtocolError::WordCountText),
        ("*1\r\n:1\r\n", ProtocolError::Expected(b':')),
        ("*1\r\n\r\n", ProtocolError::Expected(b'\r')),
        ("*1\r\n$-1\r\n", ProtocolError::WordLength),
        ("*1\r\n$4097\r\n", ProtocolError::WordLength),
        ("*1\r\n$2147483648\r\n", ProtocolError::WordLength),
        (&format!("*1\r\n${long}"), ProtocolError::WordLengthText),
        ("*1\r\n$4\r\nPINGxx", ProtocolError::WordEnd),
        ("*1\r\n$4\r\nPING\rx", ProtocolError::WordEnd),
        ("PING \"a\r\n", ProtocolError::Quotes),
        ("PING 'a'b\r\n", ProtocolError::Quotes),
    ];
    for (input, expected) in table {
        assert_eq!(parse(input.as_bytes()), Err(*expected), "{input:?}");
        assert!(expected.to_string().starts_with("Protocol error: "));
    }
}

#[test]
fn a_purchase_is_read_as_any_other_request() {
    let all = words(&["FCALL", "sluice_reserve", "1", "30001", "7", "a-click", "1"]);
    let bytes = encode(&all);
    assert!(bytes.starts_with(PURCHASE));
    assert_eq!(parse(&bytes), Ok(Some((all.clone(), bytes.len()))));
    for cut in 0..bytes.len() {
        assert_eq!(parse(&bytes[..cut]), Ok(None), "cut at {cut}");
    }
    let broken = [&bytes[..bytes.len() - 1], b"x"].concat();
    assert_eq!(parse(&broken), Err(ProtocolError::WordEnd));
    let other = [PURCHASE, b":1\r\n"].concat();
    assert_eq!(parse(&other), Err(ProtocolError::Expected(b':')));
    let dated = encode(&[all, words(&["1700000000000"])].concat());
    assert_eq!(parse(&dated).unwrap().unwrap().0.len(), 8, "one more word");
}

#[test]
fn an_empty_request_asks_for_nothing() {
    for input in ["*0\r\n", "*-1\r\n", "*-5\r\n", "\r\n", "\n", "   \r\n"] {
        assert_eq!(parse(input.as_bytes()), Ok(Some((Vec::new(), input.len()))), "{input:?}");
    }
}

#[test]
fn a_line_is_split_as_redis_splits_it() {
    let table: &[(&str, &[&str])] = &[
        ("PING\r\n", &["PING"]),
        ("PING\n", &["PING"]),
        ("  SET  a\tb \r\n", &["SET", "a", "b"]),
        ("SET \"a b\" 'c \\' d'\r\n", &["SET", "a b", "c ' d"]),
        ("SET \"\\x41\\n\\\"\" ''\r\n", &["SET", "A\n\"", ""]),
        ("SET pre\"quoted\"\r\n", &["SET", "prequoted"]),
    ];
    for (input, expected) in table {
        assert_eq!(parse(input.as_bytes()), Ok(Some((words(expected), input.len()))), "{input:?}");
    }
}

#[test]
fn what_would_be_too_long_is_refused_before_it_has_come() {
    let line = vec![b'a'; REQUEST_BYTES_MAX];
    assert_eq!(parse(&line), Err(ProtocolError::LineLength));
    let mut request = encode(&vec![vec![b'x'; 2000]; WORDS_MAX]);
    assert_eq!(parse(&request), Err(ProtocolError::RequestLength));
    request.truncate(REQUEST_BYTES_MAX);
    assert_eq!(parse(&request), Err(ProtocolError::RequestLength));
    request.truncate(REQUEST_BYTES_MAX - 1);
    assert_eq!(parse(&request), Ok(None));
}

/// What the published parser makes of the same bytes: `None` where it says they are incomplete.
fn published(input: &[u8]) -> Result<Option<Read>, ()> {
    match decode(input) {
        Ok(Some((OwnedFrame::Array(frames), bytes))) => {
            let word = |frame| match frame {
                OwnedFrame::BulkString(word) => Ok(word),
                _ => Err(()),
            };
            Ok(Some((frames.into_iter().map(word).collect::<Result<_, _>>()?, bytes)))
        }
        Ok(Some(_)) | Err(_) => Err(()),
        Ok(None) => Ok(None),
    }
}

fn some_words() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let word = proptest::collection::vec(any::<u8>(), 0..40);
    proptest::collection::vec(word, 1..12)
}

proptest! {
    #[test]
    fn a_request_is_read_as_the_published_parser_reads_it(words in some_words()) {
        let bytes = encode(&words);
        prop_assert_eq!(published(&bytes), Ok(Some((words.clone(), bytes.len()))));
        prop_assert_eq!(parse(&bytes), Ok(Some((words, bytes.len()))));
    }

    #[test]
    fn a_request_that_is_cut_anywhere_is_waited_for(
        words in some_words(),
        cut in any::<prop::sample::Index>(),
    ) {
        let bytes = encode(&words);
        let cut = cut.index(bytes.len());
        prop_assert_eq!(parse(&bytes[..cut]), Ok(None));
        prop_assert_eq!(published(&bytes[..cut]), Ok(None));
    }

    /// What the published parser takes we take, or it is one of the things that we bound.
    #[test]
    fn damage_is_judged_as_the_published_parser_judges_it(
        words in some_words(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut bytes = encode(&words);
        let at = at.index(bytes.len() - 1) + 1;
        bytes[at] = byte;
        match (parse(&bytes), published(&bytes)) {
            (Ok(Some(ours)), Ok(Some(theirs))) => prop_assert_eq!(ours, theirs),
            // An empty array, and a number that only one of us writes so.
            (Ok(Some((words, _))), _) => prop_assert!(words.is_empty()),
            (Ok(None), theirs) => prop_assert!(!matches!(theirs, Ok(Some(_)))),
            // Numbers with a sign or zeros in front, lengths beyond our bounds, null strings.
            (Err(ours), Ok(_)) => prop_assert!(matches!(
                ours,
                ProtocolError::WordCount | ProtocolError::WordLength | ProtocolError::Expected(_)
                    | ProtocolError::WordEnd
            )),
            (Err(_), Err(())) => {}
        }
    }

    #[test]
    fn no_bytes_make_the_parser_panic_or_read_past_them(
        input in proptest::collection::vec(
            prop_oneof![Just(b'*'), Just(b'$'), Just(b'\r'), Just(b'\n'), Just(b'-'),
                b'0'..=b'9', any::<u8>()], 0..200),
    ) {
        if let Ok(Some((_, bytes))) = parse(&input) {
            prop_assert!((1..=input.len()).contains(&bytes));
        }
    }

    /// Whatever comes in whatever pieces, the same requests are read.
    #[test]
    fn a_pipeline_cut_anywhere_is_the_same_pipeline(
        pipeline in proptest::collection::vec(some_words(), 1..6),
        pieces in proptest::collection::vec(1_usize..50, 1..40),
    ) {
        let bytes: Vec<u8> = pipeline.iter().flat_map(|words| encode(words)).collect();
        let (mut buffer, mut read, mut sent) = (Vec::new(), Vec::new(), 0);
        for piece in pieces.iter().cycle() {
            let to = (sent + piece).min(bytes.len());
            buffer.extend_from_slice(&bytes[sent..to]);
            sent = to;
            while let Some((words, used)) = parse(&buffer).unwrap() {
                read.push(words);
                buffer.drain(..used);
            }
            if sent == bytes.len() {
                break;
            }
        }
        prop_assert!(buffer.is_empty());
        prop_assert_eq!(read, pipeline);
    }
}
