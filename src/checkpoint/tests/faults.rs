//! A disk that is full, refuses, or fails to sync once and then says that all is well.

use super::{assert_holds, block, catalog, checkpoint, open, sample, write};
use crate::checkpoint::disk::{Disk, RealDisk};
use crate::checkpoint::model::{ModelDisk, Op};
use crate::checkpoint::verify::Depth;
use crate::checkpoint::writer::Unfinished;
use crate::checkpoint::{Catalog, Role};
use crate::error::Status;

#[test]
fn a_full_disk_shows_before_anything_is_written() {
    let (disk, catalog) = (ModelDisk::default(), catalog());
    disk.leave_room(1000);
    let error = write(&disk, &catalog, &block(1, 0, 1), &sample(1), None).unwrap_err();
    assert_eq!((error.status, error.os_error), (Status::OsError, libc::ENOSPC));
    assert!(disk.files().is_empty(), "the unfinished file is gone");
}

#[test]
fn whatever_fails_nothing_is_committed_that_is_not_whole_and_the_next_attempt_is() {
    let catalog = catalog();
    let steps = {
        let disk = ModelDisk::default();
        checkpoint(&disk, &catalog, &[sample(1), sample(2)], &[]).unwrap();
        disk.steps()
    };
    for errno in [libc::EIO, libc::ENOSPC, libc::EROFS] {
        for step in 0..steps {
            let disk = ModelDisk::default();
            disk.fail_at(step, errno);
            let done = checkpoint(&disk, &catalog, &[sample(1), sample(2)], &[]);
            let choice = catalog.choose(&disk, None, None, Depth::Whole).unwrap();
            match done {
                // A directory above all of them, which we only try to sync.
                Ok(_) => assert_eq!(choice.manifest.map(|manifest| manifest.epoch), Some(1)),
                Err(error) => {
                    assert_eq!(error.os_error, errno, "step {step}: {error}");
                    // The last sync may fail behind a manifest that is whole.
                    assert!(choice.manifest.is_none_or(|manifest| manifest.epoch == 1), "step {step}");
                }
            }
            let again = checkpoint(&disk, &catalog, &[sample(5), sample(6)], &[]).unwrap();
            let newest = catalog.choose(&disk, None, None, Depth::Whole).unwrap().manifest.unwrap();
            assert_eq!(newest.epoch, again[0].0.epoch, "step {step}");
            assert_holds(&open(&disk, &catalog, newest.epoch, 1, 2).unwrap(), &sample(6));
        }
    }
}

#[test]
fn a_failed_sync_is_never_repeated_on_the_same_file() {
    let (disk, catalog) = (ModelDisk::default(), catalog());
    write(&disk, &catalog, &block(1, 0, 1), &sample(1), None).unwrap();
    let sync = disk.log().iter().position(|op| matches!(op, Op::Sync(_))).unwrap();
    let disk = ModelDisk::default();
    disk.fail_at(sync, libc::EIO);
    write(&disk, &catalog, &block(1, 0, 1), &sample(1), None).unwrap_err();
    assert!(!disk.log().iter().any(|op| matches!(op, Op::Sync(_) | Op::Rename(..))), "{:?}", disk.steps());
    assert!(disk.files().is_empty());
}

/// The real disk, with a file size limit that only this thread's children would inherit: so it is a small file system in
/// a file descriptor's clothes, `/dev/full`.
#[test]
fn the_real_disk_says_what_the_system_says() {
    let error = Catalog::new("/proc/reclane-has-no-place-here").promise(&RealDisk, 1).unwrap_err();
    assert_eq!(error.status, Status::OsError);
    assert!(error.message.contains("/proc/reclane-has-no-place-here"), "{error}");
    let directory = std::env::temp_dir().join(format!("reclane-disk-{}", std::process::id()));
    let name = Role::Shard.file_name(0, 1);
    let huge = Unfinished::create(&RealDisk, &directory, &name, 1, u64::MAX / 2).unwrap_err();
    assert!([libc::ENOSPC, libc::EFBIG].contains(&huge.os_error), "{huge}");
    assert!(RealDisk.list(&directory).unwrap().is_empty(), "the unfinished file is gone");
    RealDisk.remove_dir(&directory).unwrap();
}
