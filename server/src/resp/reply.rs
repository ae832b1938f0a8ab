//! Replies: a handful of shapes, written straight into a connection's output.

use std::io::Write as _;

/// The version of the protocol that a connection speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Protocol {
    /// Until `HELLO 3`.
    #[default]
    Resp2,
    /// With maps and a null of its own.
    Resp3,
}

impl Protocol {
    /// Its number.
    pub(super) const fn number(self) -> u64 {
        match self {
            Self::Resp2 => 2,
            Self::Resp3 => 3,
        }
    }
}

/// Writes replies.
pub(super) struct Reply<'a> {
    /// Where they go.
    pub(super) out: &'a mut Vec<u8>,
    /// The version they are written in.
    pub(super) protocol: Protocol,
}

impl Reply<'_> {
    /// `+text`; the text must be one line.
    pub(super) fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// `-text`: a word in capitals, then what is wrong. A line break would be taken for the
    /// reply's end.
    pub(super) fn error(&mut self, text: &str) {
        self.out.push(b'-');
        let clean = text.bytes().map(|byte| if byte < b' ' { b' ' } else { byte });
        self.out.extend(clean);
        self.end();
    }

    /// `:number`.
    pub(super) fn integer(&mut self, number: i64) {
        self.header(b':', number);
    }

    /// A count, an id or an instant: none is beyond 2^63.
    pub(super) fn unsigned(&mut self, number: u64) {
        self.header(b':', number);
    }

    /// A string of bytes.
    pub(super) fn bulk(&mut self, bytes: &[u8]) {
        self.header(b'$', bytes.len());
        self.out.extend_from_slice(bytes);
        self.end();
    }

    /// A string of bytes, made of parts.
    pub(super) fn bulk_of<const N: usize>(&mut self, parts: [&[u8]; N]) {
        self.header(b'$', parts.iter().map(|part| part.len()).sum::<usize>());
        parts.iter().for_each(|part| self.out.extend_from_slice(part));
        self.end();
    }

    /// A string.
    pub(super) fn text(&mut self, text: &str) {
        self.bulk(text.as_bytes());
    }

    /// A number as a string.
    pub(super) fn decimal(&mut self, number: u64) {
        let mut buffer = itoa::Buffer::new();
        self.bulk(buffer.format(number).as_bytes());
    }

    /// Nothing.
    pub(super) fn null(&mut self) {
        self.out.extend_from_slice(match self.protocol {
            Protocol::Resp2 => b"$-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// `count` replies follow.
    pub(super) fn array(&mut self, count: usize) {
        self.header(b'*', count);
    }

    /// `count` keys follow, each with its value.
    pub(super) fn map(&mut self, count: usize) {
        match self.protocol {
            Protocol::Resp2 => self.header(b'*', 2 * count),
            Protocol::Resp3 => self.header(b'%', count),
        }
    }

    /// `count` different replies follow.
    pub(super) fn set(&mut self, count: usize) {
        match self.protocol {
            Protocol::Resp2 => self.header(b'*', count),
            Protocol::Resp3 => self.header(b'~', count),
        }
    }

    fn header(&mut self, kind: u8, number: impl itoa::Integer) {
        let mut buffer = itoa::Buffer::new();
        self.line(kind, buffer.format(number).as_bytes());
    }

    fn line(&mut self, kind: u8, text: &[u8]) {
        self.out.push(kind);
        self.out.extend_from_slice(text);
        self.end();
    }

    fn end(&mut self) {
        self.out.extend_from_slice(b"\r\n");
    }

    /// Text made of parts, as one line of an error.
    pub(super) fn error_of(&mut self, text: std::fmt::Arguments<'_>) {
        let mut line = Vec::new();
        // Writing into memory does not fail.
        let _ = line.write_fmt(text);
        self.error(&String::from_utf8_lossy(&line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(protocol: Protocol, write: impl Fn(&mut Reply<'_>)) -> String {
        let mut out = Vec::new();
        write(&mut Reply { out: &mut out, protocol });
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn each_shape_is_written_as_its_version_writes_it() {
        type Shape = fn(&mut Reply<'_>);
        let table: &[(Shape, &str, &str)] = &[
            (|it| it.simple("OK"), "+OK\r\n", "+OK\r\n"),
            (|it| it.error("ERR a\r\nb"), "-ERR a  b\r\n", "-ERR a  b\r\n"),
            (|it| it.integer(-6), ":-6\r\n", ":-6\r\n"),
            (|it| it.unsigned(7), ":7\r\n", ":7\r\n"),
            (|it| it.bulk(b""), "$0\r\n\r\n", "$0\r\n\r\n"),
            (|it| it.decimal(42), "$2\r\n42\r\n", "$2\r\n42\r\n"),
            (|it| it.bulk_of([b"1", b"", b"07"]), "$3\r\n107\r\n", "$3\r\n107\r\n"),
            (|it| it.null(), "$-1\r\n", "_\r\n"),
            (|it| it.array(3), "*3\r\n", "*3\r\n"),
            (|it| it.map(2), "*4\r\n", "%2\r\n"),
            (|it| it.set(2), "*2\r\n", "~2\r\n"),
        ];
        for (write, resp2, resp3) in table {
            assert_eq!(written(Protocol::Resp2, write), *resp2);
            assert_eq!(written(Protocol::Resp3, write), *resp3);
        }
    }
}
