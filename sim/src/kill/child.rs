//! The process that is killed.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use wal::device::AppendChoice;
use wal::{
    Busy, CONTROL_SHARD, Class, Format, Lane, Log, OWNER_BYTES, OpenOptions, Opening, PosixDevice,
    Record, RetentionLimits, SnapshotError, Ticket, record_bytes,
};

use super::SHARDS;
use crate::fates::Random;

/// Small segments: a life begins several.
const FORMAT: Format = Format {
    shard_count: SHARDS,
    frame_bytes_max: 8 << 10,
    in_flight_bytes_max: 32 << 10,
    segment_bytes: 32 << 10,
    owner: [7; OWNER_BYTES],
};

/// How a child lives.
#[derive(Clone, Debug)]
pub struct Life {
    /// The log's directory.
    pub dir: PathBuf,
    /// Lives are numbered, so that a record tells which one appended it.
    pub number: u64,
    /// Where its random choices begin.
    pub seed: u64,
    /// Whether it appends until it is killed; else it ends once it has looked.
    pub appends: bool,
}

/// Lives, and tells what it finds and what is acknowledged.
///
/// # Errors
/// What stopped it.
pub fn live(life: &Life) -> Result<(), Box<dyn std::error::Error>> {
    let mut random = Random(life.seed);
    let choice = match random.below(2) {
        0 => AppendChoice::Auto,
        _ => AppendChoice::Buffered,
    };
    let device = PosixDevice::new(&life.dir).with_appends(choice);
    let options = OpenOptions {
        format: FORMAT,
        accept_file_system: true,
        companions: Vec::new(),
        on_fatal: Box::new(|fatal| {
            eprintln!("sim: {fatal}");
            std::process::exit(4);
        }),
    };
    let mut found = Found::default();
    let mut opening = Opening::begin(Arc::new(device), options)?;
    let is_loaded = opening.load_snapshot(&mut |snapshot| {
        found = Found::default();
        while let Some(piece) = snapshot.next_piece()? {
            found.load(&piece.lane);
        }
        Ok::<_, SnapshotError>(())
    })?;
    if !is_loaded {
        found = Found::default();
    }
    let judged = opening.replay(&mut |record| {
        found.take(record, life.number);
        Ok(())
    })?;
    let (log, _) = judged.finish()?;
    if let Some(wrong) = found.wrong {
        tell(&format!("wrong {wrong}"));
        return Ok(());
    }
    let counts = found.counts.map(|count| count.to_string()).join(" ");
    tell(&format!("found {counts}"));
    if !life.appends {
        return Ok(());
    }
    if random.below(3) == 0 {
        give_back(&log, &found.counts)?;
    }
    append(&log, life.number, random)
}

/// One write, which a reader gets whole.
fn tell(line: &str) {
    let mut out = std::io::stdout().lock();
    // Nobody listens any more: the parent is gone.
    let told = out.write_all(format!("{line}\n").as_bytes()).and_then(|()| out.flush());
    if told.is_err() {
        std::process::exit(1);
    }
}

/// What a start found, and the first thing that cannot be.
#[derive(Default)]
struct Found {
    counts: [u64; SHARDS as usize],
    last_life: u64,
    wrong: Option<String>,
}

impl Found {
    fn load(&mut self, lane: &Lane) {
        if let Some(count) = self.counts.get_mut(usize::from(lane.shard)) {
            *count = lane.seq;
        }
        if lane.digest != digest(lane.shard, lane.seq) {
            self.wrong = Some(format!("the snapshot of shard {} is another one's", lane.shard));
        }
    }

    fn take(&mut self, record: &Record<'_>, life: u64) {
        let Record { lsn, shard, shard_seq, .. } = *record;
        let by = record.body.get(..8).and_then(|bytes| bytes.try_into().ok());
        let by = by.map_or(0, u64::from_le_bytes);
        let count = self.counts.get_mut(usize::from(shard));
        let next = count.is_some_and(|count| {
            *count += 1;
            *count == shard_seq
        });
        // A record of a life that is over never comes behind one of a later life.
        let in_turn = (self.last_life.max(1)..life).contains(&by);
        if !next || !in_turn || record.body != body(by, shard, shard_seq) {
            let wrong = format!("LSN {lsn}: {shard_seq} of shard {shard}, by life {by}");
            self.wrong.get_or_insert(wrong);
        }
        self.last_life = by;
    }
}

fn digest(shard: u16, seq: u64) -> u128 {
    u128::from(seq) << 16 | u128::from(shard)
}

/// What a life appends at a place: no two lives the same.
fn body(life: u64, shard: u16, seq: u64) -> Vec<u8> {
    let mut random = Random(life ^ seq << 20 ^ u64::from(shard) << 60);
    let bytes = 16 + random.index(1_500);
    let mut body = life.to_le_bytes().to_vec();
    while body.len() < bytes {
        body.extend_from_slice(&random.draw().to_le_bytes());
    }
    body
}

/// Makes a snapshot of all that is there, and gives back what it covers.
fn give_back(log: &Log, counts: &[u64]) -> Result<(), Box<dyn std::error::Error>> {
    log.set_retention_limits(RetentionLimits { margin_segments: 0, ..Default::default() });
    let lsn = log.durable_lsn();
    if lsn.0 == 0 || log.snapshot().is_some_and(|it| it.lsn == lsn) {
        return Ok(());
    }
    let chain = log.reader().seek(lsn)?;
    let mut writer = log.begin_snapshot(lsn)?;
    for (shard, seq) in (0..).zip(counts.iter().copied()) {
        writer.lane(Lane { shard, seq, digest: digest(shard, seq) })?;
    }
    writer.lane(Lane { shard: CONTROL_SHARD, seq: 0, digest: digest(CONTROL_SHARD, 0) })?;
    log.finish_snapshot(writer, chain)?;
    log.retire()?;
    Ok(())
}

/// Appends from a thread a shard, until the process is killed.
fn append(log: &Log, life: u64, mut random: Random) -> Result<(), Box<dyn std::error::Error>> {
    // Else whoever waits commits, and nobody makes spares ahead.
    let threads = if random.below(2) == 0 { Some(log.start()?) } else { None };
    thread::scope(|scope| {
        for shard in 0..SHARDS {
            let mut random = Random(random.draw());
            scope.spawn(move || {
                loop {
                    let ticket = put(log, life, shard);
                    if random.below(3) == 0 && log.wait_durable(ticket).is_ok() {
                        tell(&format!("acked {shard} {}", ticket.shard_seq));
                    }
                }
            });
        }
    });
    drop(threads);
    Ok(())
}

fn put(log: &Log, life: u64, shard: u16) -> Ticket {
    let body = body(life, shard, log.last_seq(shard) + 1);
    let room = record_bytes(body.len());
    loop {
        match log.begin(shard, room, Class::Reserved) {
            Ok(mut batch) => {
                batch.command(room);
                let shard_seq = batch.append((1, 1), |out| out.extend_from_slice(&body));
                return Ticket { shard, shard_seq };
            }
            Err(Busy::Overloaded) => {
                // Nobody else may be there to make room.
                let _ = log.commit();
            }
            Err(Busy::LogUnavailable) => panic!("a real disk failed"),
        }
    }
}
