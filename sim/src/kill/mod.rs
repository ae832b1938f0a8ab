//! H11: a process that appends to a log on a real file system is killed, again and again.
//!
//! A child opens the log, says what it found, and appends from several threads; each record that
//! is acknowledged it writes into a pipe. At a random moment, a quarter of them during the start,
//! its parent sends SIGKILL. The next child must find all that any child before it has told, and
//! nothing that nobody appended. Some children make a snapshot and give segments back; some leave
//! the commits to the log's own threads, some write past the page cache.
//!
//! | line of the pipe | meaning                                                               |
//! |------------------|-----------------------------------------------------------------------|
//! | `found N N N`    | the records of each shard that the start found                        |
//! | `acked S N`      | the record N of shard S is durable                                    |
//! | `wrong TEXT`     | what the start found cannot be                                        |

mod child;

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;
use std::{fs, io, thread};

pub use child::{Life, live};

use crate::fates::Random;
use crate::report::{Report, Settings, spread};

/// Shards, and the threads of a child that append, one a shard.
const SHARDS: u16 = 3;

/// Kills of one directory: more make a log that takes longer to read than to kill.
const KILLS_A_LOG: u64 = 50;

/// A child that is killed by its acknowledgements gives this many at most.
const ACKED_MAX: u64 = 60;

/// A child that is killed during its start lives this long at most.
const START_US_MAX: u64 = 6_000;

const SIGKILL: i32 = 9;

/// How often each shard was acknowledged.
type Acked = [u64; SHARDS as usize];

/// Runs the campaign in directories under `root`, which should lie on a real disk; `program` is
/// the binary that is [`live`] when it is told to.
pub fn run(settings: Settings, root: &Path, program: &Path) -> Report {
    let logs = settings.scale.pick(2, 40, 400);
    spread("kill", settings, logs, |log, report| {
        let seed = settings.seed ^ (log as u64) << 32;
        let again = || format!("kill --seed {}", settings.seed);
        let dir = match tempfile::tempdir_in(root) {
            Ok(dir) => dir,
            Err(error) => return report.fail(again(), error.to_string()),
        };
        let mut parent = Parent { program, dir: dir.path(), random: Random(seed), acked: [0; 3] };
        for life in 1..=KILLS_A_LOG {
            report.add("kills", 1);
            match parent.kill_one(life) {
                Ok(Killed { during_start, acked }) => {
                    report.add("during the start", u64::from(during_start));
                    report.add("acknowledged", acked);
                }
                Err(what) => return report.fail(again(), what),
            }
        }
        report.run(again, || parent.look(KILLS_A_LOG + 1));
    })
}

/// What came of one child.
struct Killed {
    during_start: bool,
    acked: u64,
}

/// Who starts the children of one directory and remembers what they told.
struct Parent<'a> {
    program: &'a Path,
    dir: &'a Path,
    random: Random,
    acked: Acked,
}

impl Parent<'_> {
    fn start(&mut self, life: u64, appends: bool) -> io::Result<(Child, BufReader<ChildStdout>)> {
        let mut command = Command::new(self.program);
        command.args(["kill", "--child"]).arg(self.dir);
        command.args(["--life", &life.to_string(), "--seed", &self.random.draw().to_string()]);
        if appends {
            command.arg("--appends");
        }
        let mut child = command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn()?;
        let pipe = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok((child, BufReader::new(pipe)))
    }

    /// Starts a child, kills it at some moment, and takes in what it told.
    fn kill_one(&mut self, life: u64) -> Result<Killed, String> {
        let untold = |error: io::Error| format!("life {life}: {error}");
        let (mut child, mut pipe) = self.start(life, true).map_err(untold)?;
        let (mut told, mut acked) = (String::new(), 0);
        if self.random.below(4) == 0 {
            thread::sleep(Duration::from_micros(self.random.below(START_US_MAX)));
        } else {
            let wanted = self.random.below(ACKED_MAX);
            while acked < wanted && pipe.read_line(&mut told).map_err(untold)? > 0 {
                acked = told.matches("acked").count() as u64;
            }
        }
        let status = child.kill().and_then(|()| child.wait()).map_err(untold)?;
        pipe.read_to_string(&mut told).map_err(untold)?;
        self.take_in(life, &told)?;
        if status.signal() != Some(SIGKILL) {
            return Err(format!("life {life} ended by itself, {status}: {told}"));
        }
        let acked = told.matches("acked").count() as u64;
        Ok(Killed { during_start: !told.contains("found"), acked })
    }

    /// Lets a child look at what is there, and end.
    fn look(&mut self, life: u64) -> Result<(), String> {
        let untold = |error: io::Error| format!("life {life}: {error}");
        let (mut child, mut pipe) = self.start(life, false).map_err(untold)?;
        let mut told = String::new();
        pipe.read_to_string(&mut told).map_err(untold)?;
        let status = child.wait().map_err(untold)?;
        self.take_in(life, &told)?;
        match status.success() && told.contains("found") {
            true => Ok(()),
            false => Err(format!("life {life}: {status}, and it told {told:?}")),
        }
    }

    /// Holds what a child found against what those before it told.
    fn take_in(&mut self, life: u64, told: &str) -> Result<(), String> {
        // A line that was cut short tells nothing.
        for line in told.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
            let words: Vec<_> = line.split(' ').collect();
            match words[..] {
                ["found", ..] => {
                    let found: Vec<u64> = words[1..].iter().flat_map(|it| it.parse()).collect();
                    let enough = self.acked.iter().zip(&found).all(|(acked, it)| acked <= it);
                    if found.len() != self.acked.len() || !enough {
                        let acked = self.acked;
                        return Err(format!("O2: life {life} found {found:?} of {acked:?}"));
                    }
                }
                ["acked", shard, seq] => {
                    let shard = shard.parse().ok().and_then(|it: usize| self.acked.get_mut(it));
                    let (Some(shard), Ok(seq)) = (shard, seq.parse::<u64>()) else {
                        return Err(format!("life {life} told {line:?}"));
                    };
                    *shard = seq.max(*shard);
                }
                _ => return Err(format!("life {life}: {line}")),
            }
        }
        Ok(())
    }
}

/// A campaign that would not miss what is gone proves nothing: an older copy of a directory is put
/// in its place.
///
/// # Errors
/// Where that is not noticed, or something else is wrong.
pub fn miss_what_is_gone(root: &Path, program: &Path, seed: u64) -> Result<(), String> {
    let untold = |error: io::Error| error.to_string();
    let dir = tempfile::tempdir_in(root).map_err(untold)?;
    let (log, copy) = (dir.path().join("log"), dir.path().join("copy"));
    let mut parent = Parent { program, dir: &log, random: Random(seed), acked: [0; 3] };
    parent.look(1)?;
    copy_all(&log, &copy).map_err(untold)?;
    let mut life = 2;
    while parent.acked == [0; 3] {
        parent.kill_one(life)?;
        life += 1;
    }
    parent.look(life)?;
    fs::remove_dir_all(&log).and_then(|()| fs::rename(&copy, &log)).map_err(untold)?;
    match parent.look(life + 1) {
        Err(what) if what.starts_with("O2") => Ok(()),
        other => Err(format!("an older log in its place: {other:?}")),
    }
}

fn copy_all(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy_all(&entry.path(), &to)?,
            false => fs::copy(entry.path(), to).map(drop)?,
        }
    }
    Ok(())
}
