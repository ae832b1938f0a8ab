//! The corpus, replayed without a fuzzer; and what it catches.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use fuzz::{TARGETS, Target, target};
use wal::planted::{self, Bug};

/// Each target keeps at least so many inputs: a corpus that was lost must not pass as one that
/// holds.
const FILES_MIN: usize = 8;

fn corpus(target: &Target) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
    let read = |entry: fs::DirEntry| (entry.path(), fs::read(entry.path()).unwrap());
    let mut files: Vec<_> = entries.map(|entry| read(entry.unwrap())).collect();
    files.sort();
    files
}

#[test]
fn every_input_of_the_corpus_holds() {
    for target in TARGETS {
        let files = corpus(target);
        assert!(files.len() >= FILES_MIN, "{}: {} files", target.name, files.len());
        for (path, bytes) in files {
            let held = catch_unwind(AssertUnwindSafe(|| (target.run)(&bytes)));
            assert!(held.is_ok(), "{}", path.display());
        }
    }
}

#[test]
fn every_folder_of_the_corpus_has_its_target() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for entry in fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(target(&name).is_some(), "{name} is the corpus of no target");
    }
}

#[test]
fn a_check_that_is_left_out_is_caught_by_the_corpus() {
    for (bug, name) in [
        (Bug::PayloadUnchecked, "frame"),
        (Bug::PaddingUnchecked, "frame"),
        (Bug::PayloadUnchecked, "segments"),
    ] {
        let target = target(name).unwrap();
        planted::choose(Some(bug));
        let caught = corpus(target)
            .iter()
            .any(|(_, bytes)| catch_unwind(AssertUnwindSafe(|| (target.run)(bytes))).is_err());
        planted::choose(None);
        assert!(caught, "no input of {name} shows {bug:?}");
    }
}
