//! Incremental checkpoints and what is kept of them.

use super::{assert_holds, catalog, checkpoint, open, sample};
use crate::checkpoint::disk::Disk;
use crate::checkpoint::model::ModelDisk;
use crate::checkpoint::verify::Depth;
use std::collections::BTreeSet;

#[test]
fn an_incremental_checkpoint_writes_what_changed_and_reads_as_a_full_one() {
    let (disk, catalog) = (ModelDisk::default(), catalog());
    let mut sources = vec![sample(1), sample(2)];
    let one = checkpoint(&disk, &catalog, &sources, &[]).unwrap();
    sources[1].salts[2][3] += 7000;
    let two = checkpoint(&disk, &catalog, &sources, &one).unwrap();
    assert_eq!(two[0].1.own_bytes, 0);
    assert_eq!(two[1].1.own_bytes, u64::from(two[1].1.toc.sections[2].chunks[3].bytes));
    assert_eq!(two[1].1.needs, [1]);
    sources[1].salts[2][0] += 7000;
    let three = checkpoint(&disk, &catalog, &sources, &two).unwrap();
    assert_eq!(three[1].1.needs, [1, 2]);
    for rank in 0..2 {
        assert_holds(&open(&disk, &catalog, 3, rank, 2).unwrap(), &sources[rank as usize]);
    }
    // What is built upon stays, however many are kept.
    assert_eq!(catalog.collect(&disk, super::JOB, 1, 4, &BTreeSet::new()).unwrap(), [] as [u64; 0]);
    checkpoint(&disk, &catalog, &sources, &[]).unwrap();
    assert_eq!(catalog.collect(&disk, super::JOB, 2, 5, &BTreeSet::new()).unwrap(), [] as [u64; 0]);
    assert_eq!(catalog.collect(&disk, super::JOB, 1, 5, &BTreeSet::new()).unwrap(), [3, 2, 1]);
    let newest = catalog.choose(&disk, None, None, Depth::Whole).unwrap().manifest.unwrap();
    assert_eq!(newest.epoch, 4);
}

#[test]
fn an_ancestor_that_is_missing_or_another_is_noticed() {
    let (disk, catalog) = (ModelDisk::default(), catalog());
    let one = checkpoint(&disk, &catalog, &[sample(1)], &[]).unwrap();
    checkpoint(&disk, &catalog, &[sample(1)], &one).unwrap();
    let path = catalog.directory_of(1).join("shard-0-of-1.rck");
    let kept = disk.files().into_iter().find(|(name, _)| *name == path).unwrap().1;
    disk.remove_file(&path).unwrap();
    let why = open(&disk, &catalog, 2, 0, 1).unwrap_err();
    assert!(why.message.contains("needs an earlier one"), "{why}");
    disk.put(&path, &kept);
    open(&disk, &catalog, 2, 0, 1).unwrap();
    let other = ModelDisk::default();
    checkpoint(&other, &catalog, &[sample(2)], &[]).unwrap();
    disk.put(&path, &other.files().into_iter().find(|(name, _)| *name == path).unwrap().1);
    let why = open(&disk, &catalog, 2, 0, 1).unwrap_err();
    assert!(why.message.contains("builds on"), "{why}");
}

#[test]
fn only_what_is_ours_and_was_not_committed_is_removed() {
    let (disk, catalog) = (ModelDisk::default(), catalog());
    checkpoint(&disk, &catalog, &[sample(1)], &[]).unwrap();
    let attempt = catalog.promise(&disk, 1).unwrap();
    let directory = catalog.directory_of(attempt);
    disk.put(&directory.join("shard-0-of-1.rck"), b"half");
    disk.put(&directory.join(".unfinished-1-shard-0-of-1.rck"), b"half");
    let foreign = catalog.directory_of(9);
    disk.put(&foreign.join("notes.txt"), b"keep me");
    disk.put(&catalog.root().join("epoch-x").join("file"), b"keep me");
    let damaged = catalog.directory_of(8);
    disk.put(&damaged.join("MANIFEST"), b"damaged");
    disk.put(&damaged.join("shard-0-of-1.rck"), b"who knows");
    assert_eq!(catalog.collect(&disk, super::JOB, 2, attempt, &BTreeSet::new()).unwrap(), [] as [u64; 0]);
    assert_eq!(catalog.collect(&disk, super::JOB, 2, 100, &BTreeSet::new()).unwrap(), [attempt]);
    let left: Vec<_> = disk.files().into_iter().map(|(path, _)| path).collect();
    for path in [foreign.join("notes.txt"), damaged.join("MANIFEST"), damaged.join("shard-0-of-1.rck")] {
        assert!(left.contains(&path), "{path:?}");
    }
    assert!(!left.iter().any(|path| path.starts_with(&directory)));
    assert!(catalog.promise(&disk, 2).unwrap() > 9);
}
