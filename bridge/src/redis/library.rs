//! The mirror's function library: loading it, and the calls.

use redis::{Cmd, Value, cmd};

use super::fault::MirrorError;
use super::layouts::Layout;
use super::servers::Servers;
use super::writes::Writes;

/// The library's text.
const LIBRARY: &str = include_str!("mirror.lua");

/// Its name, in the text's first line.
const NAME: &str = "sluice_mirror";

/// Loads the library where a server has none or another one. To be called once the cursor has been
/// judged: a server that was fenced off must not replace its successor's.
pub(super) async fn load(nodes: &impl Servers) -> Result<(), MirrorError> {
    for index in 0..nodes.count() {
        let mut list = cmd("FUNCTION");
        list.arg("LIST").arg("LIBRARYNAME").arg(NAME).arg("WITHCODE");
        let found: Value = nodes.ask(index, &list).await?;
        if !holds_text(&found, LIBRARY.as_bytes()) {
            let mut load = cmd("FUNCTION");
            load.arg("LOAD").arg("REPLACE").arg(LIBRARY);
            let _: Value = nodes.ask(index, &load).await?;
        }
    }
    Ok(())
}

/// Whether `text` is anywhere in an answer: its shape differs between protocol versions.
fn holds_text(value: &Value, text: &[u8]) -> bool {
    match value {
        Value::BulkString(bytes) => bytes == text,
        Value::SimpleString(string) => string.as_bytes() == text,
        Value::VerbatimString { text: string, .. } => string.as_bytes() == text,
        Value::Array(items) | Value::Set(items) => items.iter().any(|it| holds_text(it, text)),
        Value::Map(pairs) => pairs.iter().any(|(_, value)| holds_text(value, text)),
        _ => false,
    }
}

/// The keys of a lane that are the mirror's own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct OwnKeys {
    pub(super) cursor: String,
    pub(super) stale: String,
    /// The activities as they are known at the cursor, a field each.
    pub(super) known: String,
}

impl OwnKeys {
    /// Of a lane.
    pub(super) fn of_lane(layout: Layout, lane: u64) -> Self {
        Self::of((layout == Layout::Cluster).then_some(lane))
    }

    /// Of the only lane, or of an activity's on a cluster.
    pub(super) fn of(activity: Option<u64>) -> Self {
        let tag = activity.map_or_else(String::new, |activity| format!(":{{{activity}}}"));
        Self {
            cursor: format!("sluice:cursor{tag}"),
            stale: format!("sluice:stale{tag}"),
            known: format!("sluice:mirror{tag}"),
        }
    }
}

/// `writes`, and the cursor moved between the two texts.
pub(super) fn apply(keys: &OwnKeys, from: &str, to: &str, is_stale: bool, writes: &Writes) -> Cmd {
    let mut call = cmd("FCALL");
    call.arg("sluice_mirror_apply").arg(2).arg(&keys.cursor).arg(&keys.stale);
    call.arg(from).arg(to).arg(u8::from(is_stale));
    writes.encode(&mut call);
    call
}

/// The cursor, written to itself.
pub(super) fn touch(keys: &OwnKeys) -> Cmd {
    let mut call = cmd("FCALL");
    call.arg("sluice_mirror_touch").arg(1).arg(&keys.cursor);
    call
}

/// `expected` compared with what is there, and written where it differs.
pub(super) fn verify(keys: &OwnKeys, at: &str, expected: &Writes) -> Cmd {
    let mut call = cmd("FCALL");
    call.arg("sluice_mirror_verify").arg(1).arg(&keys.cursor).arg(at);
    expected.encode(&mut call);
    call
}

/// Whether a call was done; else the cursor was found elsewhere.
pub(super) fn done(answer: Value) -> Result<(), MirrorError> {
    match answer {
        Value::Int(1) => Ok(()),
        other => Err(moved(&other)),
    }
}

/// A text that was answered.
pub(super) fn text(answer: &Value) -> Option<String> {
    match answer {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::SimpleString(text) => Some(text.clone()),
        _ => None,
    }
}

/// The error that a cursor found elsewhere is.
pub(super) fn moved(answer: &Value) -> MirrorError {
    match text(answer) {
        Some(found) => MirrorError::CursorMoved { found },
        None => MirrorError::Answer { command: "FCALL", answer: format!("{answer:?}") },
    }
}
