//! What the figures were measured on.

use std::path::Path;
use std::process::Command;

use crate::contenders::redis_server;

/// Lines for the report: what is not known is left out.
pub(crate) fn facts(data: &Path, sluice: &Path) -> Vec<(&'static str, String)> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut facts = vec![("cores", format!("{cores}, shared by client and server"))];
    let known = [
        ("processor", field("/proc/cpuinfo", "model name")),
        ("memory", field("/proc/meminfo", "MemTotal")),
        ("kernel", read("/proc/sys/kernel/osrelease")),
        ("file system of the data", file_system(data)),
        ("Sluice", said(sluice, "--version")),
        ("Valkey", said("valkey-server".as_ref(), "--version")),
        ("Redis", redis_server().and_then(|it| said(Path::new(&it), "--version"))),
        ("MariaDB", said("/usr/sbin/mariadbd".as_ref(), "--version")),
        ("compiler", said("rustc".as_ref(), "--version")),
    ];
    facts.extend(known.into_iter().filter_map(|(name, value)| Some((name, value?))));
    facts
}

fn read(path: &str) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
}

fn field(path: &str, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn said(program: &Path, flag: &str) -> Option<String> {
    let output = Command::new(program).arg(flag).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().next()?.trim();
    // A path in front of the version would name this machine's folders.
    let line = line.rsplit_once('/').map_or(line, |(_, rest)| rest);
    Some(line.to_owned())
}

/// The type of the mount that holds `path`.
fn file_system(path: &Path) -> Option<String> {
    let path = path.canonicalize().ok()?;
    let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
    let words = |line: &str| -> Option<(String, String)> {
        let mut words = line.split(' ');
        Some((words.nth(1)?.to_owned(), words.next()?.to_owned()))
    };
    let holding = mounts.lines().filter_map(words).filter(|(place, _)| path.starts_with(place));
    holding.max_by_key(|(place, _)| place.len()).map(|(_, kind)| kind)
}
