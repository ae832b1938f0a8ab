//! The format stands still: files that a build of version 1 wrote are read by this one, and this
//! one writes them byte for byte.
//!
//! The files in `tests/golden/v1` are a log with all that the format has: several records a frame,
//! a frame of several blocks, watermarks, rotations, a segment in its second life, a clean end, a
//! torn one, two snapshots. A test that fails here means that logs in the field would not be read
//! or would be read wrongly: raise the version or take a feature bit, and add files beside the old
//! ones. `SLUICE_GOLDEN=write` writes them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::control::{Format, OWNER_BYTES};
use crate::device::sim::{Fate, Image, SimDevice};
use crate::error::OpenError;
use crate::features::{Upgraded, upgrade};
use crate::ids::Lsn;
use crate::intake::Class;
use crate::limits::CONTROL_SHARD;
use crate::log::Log;
use crate::open::{OpenOptions, OpenReport, Opening};
use crate::record::record_bytes;
use crate::segment::FORMAT_VERSION;
use crate::snapshot::Lane;
use crate::testing::skim_snapshots;
use crate::{PosixDevice, device::Device};

const FORMAT: Format = Format {
    shard_count: 2,
    frame_bytes_max: 8192,
    in_flight_bytes_max: 16_384,
    segment_bytes: 5 * 4096,
    owner: [0x5A; OWNER_BYTES],
};

type Record = (u64, u16, u64, Vec<u8>);

fn options() -> OpenOptions {
    OpenOptions {
        format: FORMAT,
        accept_file_system: true,
        companions: Vec::new(),
        on_fatal: Box::new(|fatal| panic!("{fatal}")),
    }
}

/// Opens from the newest snapshot, and gives back what was replayed after it.
fn open(device: Arc<dyn Device>) -> Result<(Log, OpenReport, Vec<Record>), OpenError> {
    let mut opening = Opening::begin(device, options())?;
    let _ = skim_snapshots(&mut opening)?;
    let mut records = Vec::new();
    let judged = opening.replay(&mut |it| {
        records.push((it.lsn.0, it.shard, it.shard_seq, it.body.to_vec()));
        Ok(())
    })?;
    let (log, report) = judged.finish()?;
    Ok((log, report, records))
}

fn put(log: &Log, shard: u16, body: &[u8]) {
    let room = record_bytes(body.len());
    let mut batch = log.begin(shard, room, Class::Reserved).unwrap();
    batch.command(room);
    batch.append((1, 1), |out| out.extend_from_slice(body));
}

fn snapshot(log: &Log) {
    let lsn = log.durable_lsn();
    let chain = log.reader().seek(lsn).unwrap();
    let mut writer = log.begin_snapshot(lsn).unwrap();
    for shard in [0, 1, CONTROL_SHARD] {
        writer.lane(Lane { shard, seq: log.last_seq(shard), digest: 7 }).unwrap();
        writer.item((1, 1), |out| out.extend_from_slice(b"state")).unwrap();
    }
    log.finish_snapshot(writer, chain).unwrap();
}

/// A few runs on a deterministic disk.
fn written() -> BTreeMap<String, Vec<u8>> {
    let device = SimDevice::new(Image::empty(1));
    for run in 0..4u8 {
        let (log, ..) = open(Arc::new(device.clone())).unwrap();
        for step in 0..6u8 {
            put(&log, 0, &[run, step, 1]);
            put(&log, u16::from(step % 2), &vec![step; 900 * usize::from(step % 3)]);
            put(&log, CONTROL_SHARD, b"control");
            log.commit().unwrap();
            if step % 3 == 2 {
                log.seal_idle().unwrap();
                snapshot(&log);
                log.retire().unwrap();
                log.make_spare().unwrap();
            }
        }
        match run {
            1 | 2 => log.close().unwrap(),
            _ => drop(log),
        }
    }
    // A last frame of which the second half never reached the disk.
    let (log, ..) = open(Arc::new(device.clone())).unwrap();
    put(&log, 0, b"whole");
    log.commit().unwrap();
    let torn = Arc::new(std::sync::Mutex::new(None));
    let seen = Arc::clone(&torn);
    device.observe(Some(Box::new(move |op, image| {
        if op == crate::device::sim::Op::Sync {
            let half = image
                .power_cut(|sector| if sector % 2 == 0 { Fate::New } else { Fate::Old }, |_| true);
            *seen.lock().unwrap() = Some(half);
        }
    })));
    put(&log, 0, &[0xEE; 1900]);
    log.commit().unwrap();
    device.observe(None);
    let image = torn.lock().unwrap().take().expect("a commit syncs");
    image.paths().into_iter().map(|path| (path.clone(), image.content(&path).unwrap())).collect()
}

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("v{FORMAT_VERSION}"))
}

/// Files of the golden log, by path. Zeros at the end are not kept: spares are nothing else.
fn stored() -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for dir in ["", "wal", "snap"] {
        for entry in fs::read_dir(golden().join(dir)).unwrap().map(Result::unwrap) {
            if entry.path().is_file() {
                let name = entry.file_name().into_string().unwrap();
                let path = if dir.is_empty() { name } else { format!("{dir}/{name}") };
                files.insert(path, fs::read(entry.path()).unwrap());
            }
        }
    }
    files
}

fn lay_out(root: &Path, files: &BTreeMap<String, Vec<u8>>) {
    for dir in ["wal", "snap", "quarantine"] {
        fs::create_dir_all(root.join(dir)).unwrap();
    }
    for (path, bytes) in files {
        fs::write(root.join(path), bytes).unwrap();
    }
}

#[test]
fn this_build_writes_the_golden_files_byte_for_byte() {
    let files = written();
    if std::env::var("SLUICE_GOLDEN").as_deref() == Ok("write") {
        lay_out(&golden(), &files);
        let _ = fs::remove_dir(golden().join("quarantine"));
    }
    let stored = stored();
    assert!(files.keys().eq(stored.keys()), "{:?} {:?}", files.keys(), stored.keys());
    for (path, bytes) in &files {
        let differs = bytes.iter().zip(&stored[path]).position(|(one, two)| one != two);
        assert_eq!(differs, None, "{path} changed: a change of format takes a new version");
        assert_eq!(bytes.len(), stored[path].len(), "{path}");
    }
}

#[test]
fn the_golden_log_is_read_from_its_snapshot_and_its_torn_end_is_cut() {
    let dir = tempfile::tempdir().unwrap();
    lay_out(dir.path(), &stored());
    let (_, report, records) = open(Arc::new(PosixDevice::new(dir.path()))).unwrap();
    assert_eq!((report.identity.epoch.0, report.last_lsn), (6, Lsn(73)));
    assert_eq!((report.snapshot_lsn, records.len()), (Lsn(72), 1));
    assert_eq!(records[0].3, b"whole");
    assert!(report.torn_tail.is_some() && report.damaged_snapshots.is_empty());
}

#[test]
fn the_golden_log_has_every_part_of_the_format() {
    let stored = stored();
    let headers = stored.iter().filter(|(path, _)| path.starts_with("wal/seg-"));
    let second_lives = headers.filter(|(_, bytes)| bytes[112..120] != [0; 8]).count();
    assert!(second_lives > 0, "a segment in its second life");
    assert_eq!(stored.keys().filter(|path| path.starts_with("snap/")).count(), 2);
}

/// The golden log, with one field of one file's head changed and its checksum made right again.
fn opened_with(path: &str, (at, value): (usize, u32), crc_at: usize) -> Result<(), OpenError> {
    let device = SimDevice::new(Image::empty(1));
    for dir in crate::names::DIRS {
        device.create_dir(dir).unwrap();
    }
    let mut image = device.image();
    for (name, mut bytes) in stored() {
        if name == path {
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
            let crc = crate::checksum::plain(&bytes[..crc_at]);
            bytes[crc_at..crc_at + 4].copy_from_slice(&crc.to_le_bytes());
        }
        image.set_content(&name, &bytes);
    }
    open(Arc::new(SimDevice::new(image))).map(drop)
}

#[test]
fn every_unknown_version_and_feature_bit_has_the_verdict_of_its_table() {
    const VERSION_AT: usize = 8;
    const INCOMPAT_AT: usize = 12;
    const COMPAT_AT: usize = 16;
    let newest = |prefix: &str| {
        let paths = stored().into_keys().filter(|path| path.starts_with(prefix));
        paths.max().unwrap()
    };
    // CONTROL has no compatible features: it is written anew by every build that opens a log.
    let heads = [
        ("CONTROL".to_owned(), 4092, false, 1 << 31),
        (newest("wal/seg-"), 124, true, 1 << 31),
        (newest("snap/"), 124, true, 0),
    ];
    for (path, crc_at, has_compat, known) in heads {
        let too_new = |field| match opened_with(&path, field, crc_at) {
            Err(OpenError::TooNew { path: named, .. }) => named.ends_with(&path),
            _ => false,
        };
        // The field behind the version is the header's length, but for CONTROL.
        let length = if has_compat { 128 << 16 } else { 0 };
        assert!(too_new((VERSION_AT, 2 | length)), "{path}: version 2");
        for bit in (0..32).map(|bit| 1 << bit) {
            assert_eq!(too_new((INCOMPAT_AT, bit)), bit != known, "{path}: feature {bit:#x}");
            if has_compat {
                let opened = opened_with(&path, (COMPAT_AT, bit), crc_at);
                assert!(opened.is_ok(), "{path}: compatible feature {bit:#x}: {opened:?}");
            }
        }
    }
}

#[test]
fn a_log_is_written_in_the_old_format_until_it_is_upgraded() {
    let device = SimDevice::new(Image::empty(3));
    let features = |device: &SimDevice| {
        let image = device.image();
        let newest = image.paths().into_iter().filter(|path| path.contains("seg-")).max().unwrap();
        let of = |path: &str| {
            let bytes = image.content(path).unwrap();
            u32::from_le_bytes(bytes[12..16].try_into().unwrap())
        };
        (
            of("CONTROL")
                | u32::from_le_bytes(
                    image.content("CONTROL").unwrap()[4096 + 12..4096 + 16].try_into().unwrap(),
                ),
            of(&newest),
        )
    };
    drop(open(Arc::new(device.clone())).unwrap());
    drop(open(Arc::new(device.clone())).unwrap());
    assert_eq!(features(&device), (0, 0), "a build that knows a feature does not use it by itself");
    assert_eq!(upgrade(&device).unwrap(), Upgraded::Now { from: 0, to: 1 << 31 });
    assert_eq!(features(&device), (1 << 31, 0), "what is written stays as it is");
    let (log, ..) = open(Arc::new(device.clone())).unwrap();
    put(&log, 0, b"in the new format");
    log.commit().unwrap();
    drop(log);
    assert_eq!(features(&device), (1 << 31, 1 << 31), "from the next segment on");
    assert_eq!(upgrade(&device).unwrap(), Upgraded::Already);
    assert_eq!(open(Arc::new(device.clone())).unwrap().2.len(), 1);
}
