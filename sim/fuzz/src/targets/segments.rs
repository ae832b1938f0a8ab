//! A log and its segments, damaged.

use std::sync::Arc;

use wal::device::sim::SimDevice;
use wal::{Log, Lsn, Progress};

use crate::disk::{Bodies, Spelled, WRITTEN, edit, options};

pub(crate) fn run(input: &[u8]) {
    let (image, appended) = &*WRITTEN;
    let mut image = image.clone();
    let paths = image.paths();
    let forged = edit(&mut image, &paths, &mut Spelled(input));
    let device = SimDevice::new(image.clone());
    let mut served = Bodies::new();
    let opened = Log::open(Arc::new(device.clone()), options(), &mut |record| {
        served.push(record.body.to_vec());
        Ok(())
    });
    match opened {
        Err(error) => {
            assert_eq!(error.to_string().lines().count(), 1, "{error}");
            let watch = Progress::default();
            let _ = wal::repair(&device, Lsn(0), true, &watch, &mut |frame| {
                frame.records().for_each(drop);
            });
        }
        Ok((log, _)) => {
            if !forged {
                let prefix = appended.get(..served.len());
                assert!(prefix == Some(&*served), "W3: what is served was appended");
            }
            let mut reader = log.reader();
            let mut read = Bodies::new();
            while let Ok(Some(frame)) = reader.next_frame() {
                for record in frame.records().flatten() {
                    read.push(record.body.to_vec());
                }
            }
            assert!(read == served, "the reader and the replay agree");
        }
    }
}
