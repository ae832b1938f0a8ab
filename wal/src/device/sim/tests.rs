//! The simulated disk must be as mean as it says: a campaign on a kind disk proves nothing.

use super::*;

fn device_with_file() -> (SimDevice, Arc<dyn File>) {
    let device = SimDevice::new(Image::empty(1));
    device.create_dir("wal").unwrap();
    device.create_zeroed("wal/a", 8192).unwrap();
    device.sync_dir("wal").unwrap();
    let file = device.open("wal/a").unwrap();
    (device, file)
}

fn first_byte(image: &Image, path: &str) -> Option<u8> {
    image.content(path).map(|bytes| bytes[0])
}

#[test]
fn an_unsynced_sector_is_old_new_or_garbage_and_a_synced_one_is_new() {
    let (device, file) = device_with_file();
    file.write_at(&[7; 600], 0).unwrap();
    let image = device.image();
    assert_eq!(image.unsynced(), (2, 0));
    for (fate, expected) in [(Fate::Old, 0), (Fate::New, 7), (Fate::Garbage, 0xA5)] {
        let after = image.power_cut(|_| fate, |_| true);
        assert_eq!(first_byte(&after, "wal/a"), Some(expected));
    }
    let torn = image.power_cut(|index| [Fate::Old, Fate::New][index], |_| true);
    let content = torn.content("wal/a").unwrap();
    assert_eq!((content[0], content[512], content[600]), (0, 7, 0));
    file.sync_data().unwrap();
    let after = device.image().power_cut(|_| Fate::Old, |_| true);
    assert_eq!(first_byte(&after, "wal/a"), Some(7));
}

#[test]
fn a_rename_without_its_directorys_sync_is_kept_or_lost_as_a_whole() {
    let (device, _) = device_with_file();
    device.rename("wal/a", "wal/b").unwrap();
    let image = device.image();
    assert_eq!(image.power_cut(|_| Fate::Old, |_| false).paths(), ["wal/a"]);
    assert_eq!(image.power_cut(|_| Fate::Old, |_| true).paths(), ["wal/b"]);
    device.sync_dir("").unwrap();
    assert_eq!(device.image().unsynced(), (0, 1), "another directory's sync does not help");
    device.sync_dir("wal").unwrap();
    assert_eq!(device.image().power_cut(|_| Fate::Old, |_| false).paths(), ["wal/b"]);
}

#[test]
fn a_failed_sync_loses_the_pages_and_the_next_one_says_nothing_of_it() {
    for (kind, seen) in [(FaultKind::ErrorNewContent, 7), (FaultKind::ErrorOldContent, 0)] {
        let (device, file) = device_with_file();
        file.write_at(&[7; 10], 0).unwrap();
        let at = device.counts().0 + 1;
        device.set_fault(Some(Fault { at, lasting: false, kind }));
        file.sync_data().unwrap_err();
        file.sync_data().unwrap();
        assert_eq!(first_byte(&device.image(), "wal/a"), Some(seen));
        let after = device.image().power_cut(|_| Fate::New, |_| true);
        assert_eq!(first_byte(&after, "wal/a"), Some(0), "what failed to sync is gone");
    }
}

#[test]
fn a_killed_process_leaves_its_cache_behind() {
    let (device, file) = device_with_file();
    file.write_at(&[7; 10], 0).unwrap();
    let image = device.image().killed();
    assert_eq!(first_byte(&image, "wal/a"), Some(7));
    assert_eq!(image.unsynced().0, 1);
}

#[test]
fn a_read_past_the_cache_sees_what_a_failed_sync_lost_and_what_is_still_unsynced() {
    let (device, file) = device_with_file();
    file.write_at(&[7; 10], 0).unwrap();
    let at = device.counts().0 + 1;
    device.set_fault(Some(Fault { at, lasting: false, kind: FaultKind::ErrorNewContent }));
    file.sync_data().unwrap_err();
    file.write_at(&[9; 10], 4096).unwrap();
    let disk = device.open_uncached("wal/a").unwrap();
    let mut bytes = [1; 4097];
    for (file, lost) in [(&file, 7), (&disk, 0)] {
        file.read_at(&mut bytes, 0).unwrap();
        assert_eq!((bytes[0], bytes[4096]), (lost, 9));
    }
}

#[test]
fn an_operation_that_failed_may_have_been_done_all_the_same() {
    for (kind, path) in
        [(FaultKind::ErrorOldContent, "wal/a"), (FaultKind::ErrorNewContent, "wal/b")]
    {
        let (device, _) = device_with_file();
        let at = device.counts().0 + 1;
        device.set_fault(Some(Fault { at, lasting: false, kind }));
        device.rename("wal/a", "wal/b").unwrap_err();
        assert_eq!(device.image().paths(), [path]);
    }
}

#[test]
fn a_lying_sync_shows_everybody_what_a_power_cut_then_takes() {
    for lasting in [false, true] {
        let (device, file) = device_with_file();
        device.set_lie(Some(Lie { at: 2, lasting }));
        for (byte, offset) in [(7, 0), (8, 512)] {
            file.write_at(&[byte; 512], offset).unwrap();
            file.sync_data().unwrap();
        }
        device.rename("wal/a", "wal/b").unwrap();
        device.sync_dir("wal").unwrap();
        let mut bytes = [0; 4096];
        device.open_uncached("wal/b").unwrap().read_at(&mut bytes, 0).unwrap();
        assert_eq!((bytes[0], bytes[512]), (7, 8), "nobody can tell while the power stays on");
        assert_eq!(device.image().unsynced(), (0, 0));
        let after = device.image().power_cut(|_| Fate::New, |_| true);
        // The first sync was the directory's that holds the file.
        let (path, kept) = if lasting { ("wal/a", 0) } else { ("wal/b", 8) };
        assert_eq!(after.paths(), [path]);
        let content = after.content(path).unwrap();
        assert_eq!((content[0], content[512]), (0, kept));
    }
}
