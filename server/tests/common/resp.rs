//! Speaks the Redis protocol over a plain socket, so that tests can also say what no client says.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use super::PATIENCE;

/// A reply.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Reply {
    Null,
    Integer(i64),
    Simple(String),
    Error(String),
    Bulk(String),
    Array(Vec<Reply>),
    Map(BTreeMap<Reply, Reply>),
}

impl Reply {
    /// The first word of an error.
    pub(crate) fn word(&self) -> &str {
        match self {
            Self::Error(text) => text.split(' ').next().unwrap(),
            other => panic!("no error: {other:?}"),
        }
    }

    /// A string of bytes.
    pub(crate) fn bulk(text: &str) -> Self {
        Self::Bulk(text.to_owned())
    }

    /// What `sluice_reserve` answers.
    pub(crate) fn purchase(code: i64, id: i64, order_no: &str, remaining: i64) -> Self {
        let numbers = [Self::Integer(code), Self::Integer(id)];
        let rest = [Self::bulk(order_no), Self::Integer(remaining)];
        Self::Array(numbers.into_iter().chain(rest).collect())
    }
}

/// A connection.
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    pub(crate) fn to(address: SocketAddr) -> Self {
        Self::try_to(address).unwrap()
    }

    /// One to a server that may be gone.
    pub(crate) fn try_to(address: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// The socket.
    pub(crate) fn socket(&self) -> &TcpStream {
        self.stream.get_ref()
    }

    /// Sends bytes as they are. A server that hung up is no failure here: the answer tells.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.stream.get_mut().write_all(bytes.as_ref());
    }

    /// A command of words between spaces, and its reply.
    pub(crate) fn say(&mut self, line: &str) -> Reply {
        let words: Vec<_> = line.split(' ').collect();
        self.command(&words)
    }

    /// A command, and its reply.
    pub(crate) fn command(&mut self, words: &[&str]) -> Reply {
        self.send(request(words));
        self.reply().expect("a reply")
    }

    /// The next reply; `None` where the server closed the connection instead.
    pub(crate) fn reply(&mut self) -> Option<Reply> {
        let mut line = String::new();
        self.stream.read_line(&mut line).ok()?;
        // A server that was killed may have sent a part of it.
        if !line.ends_with('\n') {
            return None;
        }
        let line = line.strip_suffix("\r\n").unwrap_or_else(|| panic!("{line:?}"));
        let (kind, text) = line.split_at(1);
        let count = || text.parse::<i64>().unwrap_or_else(|_| panic!("{line:?}"));
        Some(match kind {
            "+" => Reply::Simple(text.to_owned()),
            "-" => Reply::Error(text.to_owned()),
            ":" => Reply::Integer(count()),
            "_" => Reply::Null,
            "$" if count() == -1 => Reply::Null,
            "$" => {
                let mut bytes = vec![0; usize::try_from(count()).unwrap() + 2];
                self.stream.read_exact(&mut bytes).ok()?;
                assert!(bytes.ends_with(b"\r\n"), "{bytes:?}");
                bytes.truncate(bytes.len() - 2);
                Reply::Bulk(String::from_utf8(bytes).unwrap())
            }
            "*" | "~" => {
                let items: Option<_> = (0..count()).map(|_| self.reply()).collect();
                Reply::Array(items?)
            }
            "%" => {
                let pairs = (0..count()).map(|_| Some((self.reply()?, self.reply()?)));
                Reply::Map(pairs.collect::<Option<_>>()?)
            }
            _ => panic!("{line:?}"),
        })
    }

    /// Whether the server closes the connection without another byte.
    pub(crate) fn is_closed(&mut self) -> bool {
        match self.stream.read(&mut [0]) {
            Ok(count) => count == 0,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

/// A command on the wire.
pub(crate) fn request(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
    bytes
}

/// Makes a sale over the port: limit 1, on sale for the rest of time.
pub(crate) fn open_sale(client: &mut Client, activity: u64, stock: u64, limit: u64) {
    let warm =
        format!("FCALL sluice_warm 1 {activity} 20001 9900 {stock} {limit} 0 253402300799999");
    assert_eq!(client.say(&warm), Reply::Integer(1));
    let publish = format!("FCALL sluice_publish 1 {activity}");
    assert_eq!(client.say(&publish), Reply::Integer(1));
}
