//! The notes of a run in a file. Threads make no two runs alike: a failed case is run again from
//! what was noted. One line a note, its words apart by blanks, bytes in hexadecimal.

use std::fmt::Write as _;
use std::path::Path;
use std::{fs, io};

use super::{Noted, Written};

/// What a run did, and what it wrote in the end.
pub(super) type Run = (Vec<Noted>, Vec<Written>);

/// Writes a run down in file `path`.
pub(super) fn save(path: &Path, (notes, truth): &Run) -> io::Result<()> {
    let mut text = String::new();
    for noted in notes {
        text += &line(noted);
        text.push('\n');
    }
    for (shard, shard_seq, body) in truth {
        text += &format!("record {shard} {shard_seq} {}\n", hex(body));
    }
    fs::write(path, text)
}

/// Reads a run from file `path`.
pub(super) fn load(path: &Path) -> io::Result<Run> {
    let (mut notes, mut truth) = (Vec::new(), Vec::new());
    for line in fs::read_to_string(path)?.lines() {
        let words: Vec<_> = line.split(' ').collect();
        match words[..] {
            ["record", shard, seq, body] => {
                truth.push((number(shard)?, number(seq)?, bytes(body)?));
            }
            _ => notes.push(parse(&words)?),
        }
    }
    Ok((notes, truth))
}

/// Paths begin with a slash here: that of the log's directory itself is empty.
fn line(noted: &Noted) -> String {
    match noted {
        Noted::Create { path, bytes } => format!("create /{path} {bytes}"),
        Noted::Open { path, handle } => format!("open /{path} {handle}"),
        Noted::Write { handle, offset, bytes } => format!("write {handle} {offset} {}", hex(bytes)),
        Noted::Sync { handle } => format!("sync {handle}"),
        Noted::Rename { from, to } => format!("rename /{from} /{to}"),
        Noted::Link { from, to } => format!("link /{from} /{to}"),
        Noted::SyncDir { path } => format!("sync-dir /{path}"),
        Noted::Remove { path } => format!("remove /{path}"),
        Noted::CreateDir { path } => format!("create-dir /{path}"),
        Noted::Acked { shard, shard_seq } => format!("acked {shard} {shard_seq}"),
    }
}

fn parse(words: &[&str]) -> io::Result<Noted> {
    let path = |word: &str| word.strip_prefix('/').map(str::to_owned).ok_or_else(unknown);
    Ok(match *words {
        ["create", at, bytes] => Noted::Create { path: path(at)?, bytes: number(bytes)? },
        ["open", at, handle] => Noted::Open { path: path(at)?, handle: number(handle)? },
        ["write", handle, offset, content] => Noted::Write {
            handle: number(handle)?,
            offset: number(offset)?,
            bytes: bytes(content)?,
        },
        ["sync", handle] => Noted::Sync { handle: number(handle)? },
        ["rename", from, to] => Noted::Rename { from: path(from)?, to: path(to)? },
        ["link", from, to] => Noted::Link { from: path(from)?, to: path(to)? },
        ["sync-dir", at] => Noted::SyncDir { path: path(at)? },
        ["remove", at] => Noted::Remove { path: path(at)? },
        ["create-dir", at] => Noted::CreateDir { path: path(at)? },
        ["acked", shard, seq] => Noted::Acked { shard: number(shard)?, shard_seq: number(seq)? },
        _ => return Err(unknown()),
    })
}

fn unknown() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "no notes of a run")
}

fn number<T: std::str::FromStr>(word: &str) -> io::Result<T> {
    word.parse().map_err(|_| unknown())
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn bytes(text: &str) -> io::Result<Vec<u8>> {
    let digit = |at: u8| char::from(at).to_digit(16).and_then(|it| u8::try_from(it).ok());
    let byte = |two: &[u8]| match *two {
        [high, low] => Some(digit(high)? << 4 | digit(low)?),
        _ => None,
    };
    text.as_bytes().chunks(2).map(|two| byte(two).ok_or_else(unknown)).collect()
}
