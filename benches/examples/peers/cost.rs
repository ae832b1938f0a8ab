//! What a load costs a contender: processor time of its processes, their memory, bytes of its log.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::trouble::Trouble;

/// Processes that are given less work than this in [`REST`] have done all that a load left behind.
const RESTING_TICKS: u64 = 1;
const REST: Duration = Duration::from_millis(300);
/// Nothing that a load of seconds left takes this long.
const REST_MAX: Duration = Duration::from_secs(60);

/// Where a contender's log is counted.
#[derive(Clone, Debug)]
pub(crate) enum Log {
    /// The length of all files in a folder.
    Files(std::path::PathBuf),
    /// A counter in the metrics that an address serves.
    Metric(String, &'static str),
    /// It has none, or it can't be told from everything else that it writes.
    None,
}

/// What the contender's processes had used at some moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    processor_s: f64,
    resident_bytes: u64,
    log_bytes: Option<u64>,
}

/// The same for one answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub(crate) processor_us: f64,
    pub(crate) resident_bytes: f64,
    pub(crate) log_bytes: Option<f64>,
}

impl Usage {
    /// Reads it once this program's other children rest.
    ///
    /// # Errors
    /// What can't be read, or a contender that never rests.
    pub(crate) fn at_rest(log: &Log) -> Result<Self, Trouble> {
        let started = Instant::now();
        let mut before = children()?;
        loop {
            std::thread::sleep(REST);
            let now = children()?;
            if now.ticks.saturating_sub(before.ticks) <= RESTING_TICKS {
                return Self::read(now, log);
            }
            if started.elapsed() > REST_MAX {
                return Err(Trouble::Restless);
            }
            before = now;
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "ticks of a run are far below 2^53")]
    fn read(children: Children, log: &Log) -> Result<Self, Trouble> {
        let ticks_per_second = rustix::param::clock_ticks_per_second();
        Ok(Self {
            processor_s: children.ticks as f64 / ticks_per_second as f64,
            resident_bytes: children.pages * rustix::param::page_size() as u64,
            log_bytes: log.bytes()?,
        })
    }

    /// What each of `answers` cost since `before`.
    #[expect(clippy::cast_precision_loss, reason = "bytes of a run are far below 2^53")]
    pub(crate) fn since(self, before: Self, answers: u64) -> Cost {
        let answers = answers as f64;
        let grown = |now: u64, before: u64| now.saturating_sub(before) as f64 / answers;
        let log = self.log_bytes.zip(before.log_bytes);
        Cost {
            processor_us: (self.processor_s - before.processor_s) * 1e6 / answers,
            resident_bytes: grown(self.resident_bytes, before.resident_bytes),
            log_bytes: log.map(|(now, before)| grown(now, before)),
        }
    }
}

impl Log {
    fn bytes(&self) -> Result<Option<u64>, Trouble> {
        match self {
            Self::Files(folder) => files(folder).map(Some),
            Self::Metric(address, name) => metric(address, name).map(Some),
            Self::None => Ok(None),
        }
    }
}

fn files(folder: &Path) -> Result<u64, Trouble> {
    let trouble = || Trouble::io(folder.display().to_string());
    let entries = std::fs::read_dir(folder).map_err(trouble())?;
    entries.map(|entry| Ok(entry.and_then(|it| it.metadata()).map_err(trouble())?.len())).sum()
}

fn metric(address: &str, name: &'static str) -> Result<u64, Trouble> {
    let ask = || {
        let mut connection = TcpStream::connect(address)?;
        write!(connection, "GET /metrics HTTP/1.1\r\nHost: peers\r\nConnection: close\r\n\r\n")?;
        let mut page = String::new();
        connection.read_to_string(&mut page)?;
        Ok(page)
    };
    let page = ask().map_err(Trouble::io(format!("ask {address} for its metrics")))?;
    let value = page.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    value.ok_or(Trouble::NoMetric(name))
}

/// All children of this process: the client has ended when they are looked at.
#[derive(Clone, Copy, Default)]
struct Children {
    ticks: u64,
    pages: u64,
}

fn children() -> Result<Children, Trouble> {
    let mut all = Children::default();
    let own = u64::from(std::process::id());
    for entry in std::fs::read_dir("/proc").map_err(Trouble::io("read /proc"))? {
        let path = entry.map_err(Trouble::io("read /proc"))?.path().join("stat");
        // What is no process has no such file, and a process may end meanwhile.
        let Some(stat) = std::fs::read_to_string(path).ok() else { continue };
        let Some([parent, user, system, pages]) = figures(&stat) else { continue };
        if parent == own {
            all.ticks += user + system;
            all.pages += pages;
        }
    }
    Ok(all)
}

/// Parent, user and system ticks, and resident pages of a line of `/proc/PID/stat`; the name before
/// them, in parentheses, may hold anything.
fn figures(stat: &str) -> Option<[u64; 4]> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let fields: Vec<_> = rest.split(' ').collect();
    let field = |index: usize| fields.get(index)?.parse().ok();
    Some([field(1)?, field(11)?, field(12)?, field(21)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_whatever_its_name_is() {
        let stat = "7 (a) b (c) S 42 7 7 0 -1 4194560 1 2 3 4 500 60 0 0 20 0 9 0 1 9 777 18";
        assert_eq!(figures(stat), Some([42, 500, 60, 777]));
        assert_eq!(figures("7 (cut"), None);
    }

    #[test]
    fn a_cost_is_what_was_used_in_between_by_each_answer() {
        let usage = |processor_s, resident_bytes, log_bytes| Usage {
            processor_s,
            resident_bytes,
            log_bytes,
        };
        let cost = usage(3.0, 5_000, Some(900)).since(usage(1.0, 1_000, Some(100)), 8);
        assert_eq!((cost.processor_us, cost.resident_bytes), (250_000.0, 500.0));
        assert_eq!(cost.log_bytes, Some(100.0));
        assert_eq!(usage(1.0, 0, None).since(usage(0.0, 0, None), 1).log_bytes, None);
    }
}
