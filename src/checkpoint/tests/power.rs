//! Power is cut after every operation, and what was not synced is kept or lost in any combination.

use super::{assert_holds, catalog, checkpoint, open, sample};
use crate::checkpoint::model::ModelDisk;
use crate::checkpoint::verify::Depth;
use std::collections::BTreeSet;

/// A coin that a seed throws.
fn coin(seed: u64) -> impl FnMut() -> bool {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state >> 40 & 1 != 0
    }
}

#[test]
fn a_manifest_that_is_there_vouches_for_every_byte_and_a_committed_checkpoint_stays() {
    let (disk, catalog) = (ModelDisk::default(), catalog());
    let mut first = vec![sample(1), sample(50)];
    first.iter_mut().for_each(|source| source.bytes = 300);
    let one = checkpoint(&disk, &catalog, &first, &[]).unwrap();
    let after_first = disk.steps();
    let mut second = first.clone();
    second[0].salts[2][1] += 1000;
    checkpoint(&disk, &catalog, &second, &one).unwrap();
    let after_second = disk.steps();
    checkpoint(&disk, &catalog, &first, &[]).unwrap();
    let after_third = disk.steps();
    assert_eq!(catalog.collect(&disk, super::JOB, 1, 4, &BTreeSet::new()).unwrap(), [2, 1]);
    let committed = [(after_first, 1, &first), (after_second, 2, &second), (after_third, 3, &first)];
    let mut states = 0;
    for steps in 0..=disk.steps() {
        for seed in 0..12 {
            // All lost, all kept, and ten mixtures.
            let mut coin = coin(seed * 1_000_003 + steps as u64);
            let mut keeps = || match seed {
                0 => false,
                1 => true,
                _ => coin(),
            };
            let found = disk.after_power_cut(steps, &mut keeps);
            let choice = catalog.choose(&found, None, None, Depth::Whole).unwrap();
            for (epoch, why) in &choice.refused {
                assert!(why.contains("not committed"), "cut after {steps}, seed {seed}: epoch {epoch}: {why}");
            }
            let chosen = choice.manifest.map_or(0, |manifest| manifest.epoch);
            let least = committed.iter().filter(|(done, ..)| *done <= steps).map(|(_, epoch, _)| *epoch).max();
            assert!(chosen >= least.unwrap_or(0), "cut after {steps}, seed {seed}: {chosen} instead of {least:?}");
            if let Some((_, epoch, sources)) = committed.iter().find(|(_, epoch, _)| *epoch == chosen) {
                for (rank, source) in (0..).zip(sources.iter()) {
                    assert_holds(&open(&found, &catalog, *epoch, rank, 2).unwrap(), source);
                }
            }
            states += 1;
        }
    }
    assert!(states > 500, "{states}");
}

#[test]
fn an_epoch_is_never_promised_twice_whatever_is_lost() {
    let (disk, catalog) = (ModelDisk::default(), catalog());
    let mut promised = Vec::new();
    for _ in 0..4 {
        let epoch = catalog.promise(&disk, 1).unwrap();
        promised.push((disk.steps(), epoch));
    }
    for steps in 0..=disk.steps() {
        for seed in 0..8 {
            let found = disk.after_power_cut(steps, &mut coin(seed));
            let next = catalog.promise(&found, 2).unwrap();
            let last = promised.iter().filter(|(done, _)| *done <= steps).map(|(_, epoch)| *epoch).max();
            assert!(next > last.unwrap_or(0), "cut after {steps}, seed {seed}: {next} after {last:?}");
        }
    }
}
