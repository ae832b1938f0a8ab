//! Rust source with its comments, or its comments and texts, blanked out.
//!
//! Rules about code must not be misled by prose, nor rules about words by code that only quotes
//! them. A masked text has the length and the lines of its source, so that a place in one is the
//! same place in the other. This is a lexer of exactly that much of Rust.

/// The two masks of one source.
pub(super) struct Masks {
    /// Comments, and the insides of string and character literals, are spaces.
    pub(super) code: String,
    /// Comments are spaces.
    pub(super) uncommented: String,
}

impl Masks {
    pub(super) fn of(text: &str) -> Self {
        let mut lexer = Lexer { bytes: text.as_bytes(), at: 0, code: vec![], uncommented: vec![] };
        lexer.run();
        // Multi-byte characters are copied or blanked whole, so both stay UTF-8.
        Self {
            code: String::from_utf8(lexer.code).unwrap_or_default(),
            uncommented: String::from_utf8(lexer.uncommented).unwrap_or_default(),
        }
    }
}

struct Lexer<'a> {
    bytes: &'a [u8],
    at: usize,
    code: Vec<u8>,
    uncommented: Vec<u8>,
}

#[derive(Clone, Copy)]
enum Kind {
    Code,
    Comment,
    Text,
}

impl Lexer<'_> {
    fn run(&mut self) {
        while self.at < self.bytes.len() {
            let rest = &self.bytes[self.at..];
            if rest.starts_with(b"//") {
                let length = rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len());
                self.take(Kind::Comment, length);
            } else if rest.starts_with(b"/*") {
                self.take(Kind::Comment, block_comment_length(rest));
            } else if rest[0] == b'"' {
                self.take(Kind::Text, quoted_length(rest, b'"'));
            } else if let Some(length) = self.raw_string_length(rest) {
                self.take(Kind::Text, length);
            } else if let Some(length) = character_length(rest) {
                self.take(Kind::Text, length);
            } else {
                self.take(Kind::Code, 1);
            }
        }
    }

    fn take(&mut self, kind: Kind, length: usize) {
        let length = length.min(self.bytes.len() - self.at);
        for &byte in &self.bytes[self.at..self.at + length] {
            let blank = if byte == b'\n' { b'\n' } else { b' ' };
            self.code.push(if matches!(kind, Kind::Code) { byte } else { blank });
            self.uncommented.push(if matches!(kind, Kind::Comment) { blank } else { byte });
        }
        self.at += length;
    }

    /// The length of `r"..."`, `r#"..."#`, `br"..."` and so on, where one starts here.
    fn raw_string_length(&self, rest: &[u8]) -> Option<usize> {
        let after_name = self.at.checked_sub(1).is_some_and(|at| is_name(self.bytes[at]));
        if after_name {
            return None;
        }
        let prefix = [&b"r"[..], b"br", b"cr"].into_iter().find(|mark| rest.starts_with(mark))?;
        let hashes = rest[prefix.len()..].iter().take_while(|&&byte| byte == b'#').count();
        let open = prefix.len() + hashes + 1;
        if rest.get(open - 1) != Some(&b'"') {
            return None;
        }
        let close = [&b"\""[..], &vec![b'#'; hashes]].concat();
        let end = rest[open..].windows(close.len()).position(|window| window == close);
        Some(end.map_or(rest.len(), |end| open + end + close.len()))
    }
}

pub(super) fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// Block comments nest.
fn block_comment_length(rest: &[u8]) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

/// The length of a literal with escapes, from its opening quote.
fn quoted_length(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// The length of a character literal, where one starts here; `None` for a lifetime.
fn character_length(rest: &[u8]) -> Option<usize> {
    if rest[0] != b'\'' {
        return None;
    }
    if rest.get(1) == Some(&b'\\') {
        return Some(quoted_length(rest, b'\''));
    }
    let width = match *rest.get(1)? {
        byte if byte < 0x80 => 1,
        byte if byte < 0xE0 => 2,
        byte if byte < 0xF0 => 3,
        _ => 4,
    };
    (rest.get(1 + width) == Some(&b'\'')).then_some(width + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> String {
        let masks = Masks::of(text);
        assert_eq!(masks.code.len(), text.len(), "{text}");
        assert_eq!(masks.uncommented.len(), text.len(), "{text}");
        masks.code.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn comments_are_blanked_wherever_they_nest() {
        assert_eq!(code("a // b\nc"), "a c");
        assert_eq!(code("a /* b /* c */ d */ e"), "a e");
        assert_eq!(code("/// \"quoted\nfn f() {}"), "fn f() {}");
        assert_eq!(code("a /* never ends"), "a");
    }

    #[test]
    fn texts_are_blanked_in_every_spelling() {
        assert_eq!(code(r#"f("{ // \" }", b"x")"#), "f( , b )");
        assert_eq!(code(r###"f(r#"a " b"#, r"\", br##"c"# d"##)"###), "f( , , )");
        assert_eq!(code("f('{', '\\'', '\u{e9}', b'}')"), "f( , , , b )");
        assert_eq!(code("f(\"never ends"), "f(");
    }

    #[test]
    fn lifetimes_labels_and_raw_names_are_code() {
        assert_eq!(
            code("fn f<'a>(x: &'a str) -> &'a str { x }"),
            "fn f<'a>(x: &'a str) -> &'a str { x }"
        );
        assert_eq!(code("'outer: loop { break 'outer; }"), "'outer: loop { break 'outer; }");
        assert_eq!(code("r#type + for_r"), "r#type + for_r");
    }

    #[test]
    fn the_other_mask_keeps_texts() {
        assert_eq!(Masks::of("f(\"a\") // b").uncommented, "f(\"a\")     ");
    }
}
