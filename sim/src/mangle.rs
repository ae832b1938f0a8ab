//! H10: files that no disk and no build of ours made: golden files with bytes changed, cut out,
//! doubled and moved, and their checksums made right again, so that what lies behind the checksums
//! is met as well.
//!
//! Whatever comes of it, reading must end in an answer: a log, or a refusal in one line. It must
//! not panic, hang, or ask for memory without bound.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use wal::device::sim::{Image, SimDevice};
use wal::{Format, Inspecting, Lsn, OWNER_BYTES, OpenError, OpenOptions, Opening, SnapshotError};

use crate::checksums::make_right;
use crate::fates::Random;
use crate::report::{Report, Settings, spread};

const BLOCK: usize = 4096;

/// Cases of one part of the campaign.
const CASES_A_PART: u64 = 1_000;

/// The golden files, by path.
type Corpus = BTreeMap<String, Vec<u8>>;

/// Runs the campaign on the checked-in corpus.
pub fn run(settings: Settings) -> Report {
    let corpus = corpus();
    let parts = settings.scale.pick(2, 60, 10_000);
    spread("mangle", settings, parts, |part, report| {
        for case in 0..CASES_A_PART {
            let number = part as u64 * CASES_A_PART + case;
            report.add("files", 1);
            report.run(
                || format!("mangle --seed {} --case {number}", settings.seed),
                || mangled(&corpus, settings.seed, number).map(drop),
            );
        }
    })
}

/// Runs one case again.
pub fn again(settings: Settings, case: u64) -> Report {
    spread("mangle", settings, 1, |_, report| {
        report.add("files", 1);
        report.run(
            || format!("mangle --seed {} --case {case}", settings.seed),
            || mangled(&corpus(), settings.seed, case).map(|what| println!("{what}")),
        );
    })
}

fn corpus() -> Corpus {
    let root: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../wal/tests/golden/v1"].iter().collect();
    let mut files = Corpus::new();
    for dir in ["", "wal", "snap"] {
        let entries = fs::read_dir(root.join(dir)).expect("the golden files are checked in");
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|it| it.is_file()) {
            let name = path.strip_prefix(&root).unwrap_or(Path::new("")).to_string_lossy();
            files.insert(name.into_owned(), fs::read(&path).expect("a golden file reads"));
        }
    }
    files
}

/// Makes one case and reads it; what came of it in words.
fn mangled(corpus: &Corpus, seed: u64, case: u64) -> Result<String, String> {
    let mut random = Random(seed ^ case << 20);
    let mut image = Image::empty(1);
    let mut files: Vec<_> = corpus.iter().map(|(path, bytes)| (path, bytes.clone())).collect();
    for _ in 0..=random.index(3) {
        let index = random.index(files.len());
        let donor = files[random.index(files.len())].1.clone();
        let (path, bytes) = &mut files[index];
        change(bytes, &donor, &mut random);
        if random.below(4) > 0 {
            make_right(path, bytes);
        }
    }
    // Where a server once ran: tools look for it.
    image.set_content("LOCK", b"");
    for (path, bytes) in &files {
        image.set_content(path, bytes);
    }
    let device = SimDevice::new(image);
    for dir in ["wal", "snap", "quarantine"] {
        wal::device::Device::create_dir(&device, dir).map_err(|error| error.to_string())?;
    }
    let told = read(&device);
    match &told {
        Err(error) if error.to_string().lines().count() > 1 => Err(format!("two lines: {error}")),
        Err(error) => Ok(error.to_string()),
        Ok(last_lsn) => Ok(format!("served up to {last_lsn}")),
    }
}

/// One change: a bit, a word of some telling value, or a block from elsewhere; the end cut off.
fn change(bytes: &mut Vec<u8>, donor: &[u8], random: &mut Random) {
    const TELLING: [u64; 8] =
        [0, 1, 0x7FFF_FFFF, 0x8000_0000, u32::MAX as u64, 1 << 63, u64::MAX, 4096];
    let at = match random.below(2) {
        // The head of a block, where the headers are.
        0 => random.index(bytes.len() / BLOCK + 1) * BLOCK + random.index(160),
        _ => random.index(bytes.len() + 1),
    };
    let at = at.min(bytes.len().saturating_sub(8));
    match random.below(8) {
        0 => bytes.truncate(at),
        1 if donor.len() >= BLOCK && bytes.len() >= BLOCK => {
            let from = random.index(donor.len() / BLOCK) * BLOCK;
            let to = random.index(bytes.len() / BLOCK) * BLOCK;
            bytes[to..to + BLOCK].copy_from_slice(&donor[from..from + BLOCK]);
        }
        2 | 3 => {
            let width = 1 << random.index(4);
            let value = TELLING[random.index(TELLING.len())].to_le_bytes();
            let end = (at + width).min(bytes.len());
            bytes[at.min(end)..end].copy_from_slice(&value[..end - at.min(end)]);
        }
        _ => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << random.index(8);
            }
        }
    }
}

/// Reads a directory in every way there is: as a tool beside, and as a start does.
fn read(device: &SimDevice) -> Result<Lsn, OpenError> {
    let device: Arc<dyn wal::device::Device> = Arc::new(device.clone());
    if let Ok(mut inspecting) = Inspecting::begin(&*device) {
        for snapshot in inspecting.snapshots() {
            while let Ok(Some(piece)) = snapshot.next_piece() {
                piece.items().for_each(drop);
            }
        }
        let _ = inspecting.read(None, &mut |_| Ok(()));
    }
    let watch = wal::Progress::default();
    let _ =
        wal::repair(&*device, Lsn(60), true, &watch, &mut |frame| frame.records().for_each(drop));
    let options = OpenOptions {
        format: Format {
            shard_count: 1,
            frame_bytes_max: 8192,
            in_flight_bytes_max: 16_384,
            segment_bytes: 5 * 4096,
            owner: [0; OWNER_BYTES],
        },
        accept_file_system: true,
        companions: Vec::new(),
        on_fatal: Box::new(|_| {}),
    };
    let mut opening = Opening::begin(device, options)?;
    let _ = opening.load_snapshot(&mut |snapshot| {
        while snapshot.next_piece()?.is_some() {}
        Ok::<_, SnapshotError>(())
    })?;
    let (log, report) = opening.replay(&mut |_| Ok(()))?.finish()?;
    let mut reader = log.reader();
    let _ = reader.seek(report.snapshot_lsn);
    while let Ok(Some(frame)) = reader.next_frame() {
        frame.records().for_each(drop);
    }
    Ok(report.last_lsn)
}
