//! Damaged, foreign and future files.

use super::{assert_holds, block, catalog, checkpoint, filler, open, plan, sample, write};
use crate::checkpoint::format::{PAGE, SectionKind, Superblock, Toc, Trailer, chunk_crc};
use crate::checkpoint::manifest::{Manifest, Role};
use crate::checkpoint::model::ModelDisk;
use crate::checkpoint::verify::Depth;
use std::path::PathBuf;

fn one_file() -> (ModelDisk, PathBuf, Vec<u8>) {
    let (disk, catalog) = (ModelDisk::default(), catalog());
    let mut source = sample(9);
    source.bytes = 700;
    write(&disk, &catalog, &block(7, 0, 1), &source, None).unwrap();
    let (path, bytes) = disk.files().pop().unwrap();
    (disk, path, bytes)
}

fn whole(disk: &ModelDisk) -> Result<(), String> {
    open(disk, &catalog(), 7, 0, 1).and_then(|container| container.verify()).map_err(|error| error.message)
}

#[test]
fn what_is_written_is_read() {
    let (disk, catalog) = (ModelDisk::default(), catalog());
    let source = sample(3);
    let written = write(&disk, &catalog, &block(1, 2, 4), &source, None).unwrap();
    let container = open(&disk, &catalog, 1, 2, 4).unwrap();
    assert_holds(&container, &source);
    container.verify().unwrap();
    assert_eq!((container.trailer.total_bytes, container.trailer.digest), (written.bytes, written.digest));
    assert_eq!(written.own_bytes, written.state_bytes);
}

#[test]
fn a_file_that_was_cut_off_anywhere_is_refused() {
    let (disk, path, bytes) = one_file();
    whole(&disk).unwrap();
    let pages = (0..bytes.len()).step_by(PAGE);
    let odd = (0..200).map(|at| at * 7919 % bytes.len());
    for length in pages.chain(odd) {
        disk.put(&path, &bytes[..length]);
        let why = whole(&disk).unwrap_err();
        assert!(why.contains("trailer") || why.contains("cut off"), "{length}: {why}");
    }
    let mut longer = bytes.clone();
    longer.resize(bytes.len() + PAGE, 0);
    disk.put(&path, &longer);
    assert!(whole(&disk).unwrap_err().contains("trailer"));
}

#[test]
fn every_flipped_bit_is_noticed_and_its_place_named() {
    let (disk, path, bytes) = one_file();
    let toc_at = {
        let trailer = bytes[bytes.len() - PAGE..].try_into().unwrap();
        usize::try_from(Trailer::decode(trailer, bytes.len() as u64).unwrap().toc_at).unwrap()
    };
    for at in 0..bytes.len() {
        // Padding is all alike.
        if bytes[at] == 0 && !at.is_multiple_of(13) {
            continue;
        }
        // One bit of each byte, another one from byte to byte; all of them in the pages that steer everything else.
        let bits = if at < 256 || (toc_at..toc_at + 1024).contains(&at) { 0..8 } else { at % 8..at % 8 + 1 };
        for bit in bits {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            disk.put(&path, &damaged);
            let why = whole(&disk).expect_err(&format!("bit {bit} of byte {at}"));
            let place = match at {
                at if at < PAGE => "superblock",
                at if at < toc_at => "section",
                at if at < bytes.len() - PAGE => "table of contents",
                _ => "trailer",
            };
            assert!(why.contains(place), "byte {at}: {why}");
        }
    }
}

#[test]
fn a_damaged_checkpoint_is_passed_over_for_the_one_before_and_the_reason_is_told() {
    let (disk, catalog) = (ModelDisk::default(), catalog());
    checkpoint(&disk, &catalog, &[sample(1), sample(2)], &[]).unwrap();
    checkpoint(&disk, &catalog, &[sample(3), sample(4)], &[]).unwrap();
    let path = catalog.directory_of(2).join(Role::Shard.file_name(1, 2));
    let (_, mut bytes) = disk.files().into_iter().find(|(name, _)| *name == path).unwrap();
    bytes[PAGE + 11] ^= 4;
    disk.put(&path, &bytes);
    let choice = catalog.choose(&disk, None, None, Depth::Whole).unwrap();
    assert_eq!(choice.manifest.unwrap().epoch, 1);
    assert_eq!(choice.refused.len(), 1);
    assert!(
        choice.refused[0].1.contains("shard-1-of-2.rck") && choice.refused[0].1.contains("checksum"),
        "{choice:?}",
        choice = choice.refused
    );
    // The outline alone does not show it.
    assert_eq!(catalog.choose(&disk, None, None, Depth::Outline).unwrap().manifest.unwrap().epoch, 2);
}

#[test]
fn files_that_changed_places_are_refused() {
    let (disk, catalog) = (ModelDisk::default(), catalog());
    checkpoint(&disk, &catalog, &[sample(1), sample(2)], &[]).unwrap();
    checkpoint(&disk, &catalog, &[sample(1), sample(2)], &[]).unwrap();
    let files = disk.files();
    let contents = |path: &PathBuf| files.iter().find(|(name, _)| name == path).unwrap().1.clone();
    let shard = |epoch, rank| catalog.directory_of(epoch).join(Role::Shard.file_name(rank, 2));
    let chosen = |disk: &ModelDisk| catalog.choose(disk, None, None, Depth::Outline).unwrap();
    // Two ranks of one checkpoint.
    disk.put(&shard(2, 0), &contents(&shard(2, 1)));
    assert!(chosen(&disk).refused[0].1.contains("number"), "{:?}", chosen(&disk).refused);
    // The same rank of another checkpoint.
    disk.put(&shard(2, 0), &contents(&shard(1, 0)));
    assert!(chosen(&disk).refused[0].1.contains("checkpoint is not the one"), "{:?}", chosen(&disk).refused);
    disk.put(&shard(2, 0), &contents(&shard(2, 0)));
    assert_eq!(chosen(&disk).manifest.unwrap().epoch, 2);
    // An old manifest played again, in a new place and in the old checkpoint's.
    let old = contents(&catalog.directory_of(1).join("MANIFEST"));
    disk.put(&catalog.directory_of(2).join("MANIFEST"), &old);
    assert!(chosen(&disk).refused[0].1.contains("of epoch 1"), "{:?}", chosen(&disk).refused);
    // Two that claim to be the same.
    let mut twin = Manifest::decode(&old).unwrap();
    twin.epoch = 2;
    disk.put(&catalog.directory_of(2).join("MANIFEST"), &twin.encode());
    assert!(chosen(&disk).manifest.is_none());
    assert!(chosen(&disk).refused.iter().all(|(_, why)| why.contains("same checkpoint")));
    // Another deployment's.
    let other = catalog.choose(&disk, Some(1), Some(1), Depth::Outline).unwrap();
    assert!(other.manifest.is_none());
}

#[test]
fn chunks_that_changed_places_are_refused() {
    let payload = filler(1, 100);
    let here = chunk_crc(SectionKind::TableRows as u16, 3, 1, &payload);
    assert_ne!(here, chunk_crc(SectionKind::TableRows as u16, 3, 2, &payload));
    assert_ne!(here, chunk_crc(SectionKind::TableRows as u16, 4, 1, &payload));
    assert_ne!(here, chunk_crc(SectionKind::RegionData as u16, 3, 1, &payload));
}

#[test]
fn other_versions_and_byte_orders_have_a_defined_end() {
    let good = block(1, 0, 1);
    let refused = |change: &dyn Fn(&mut [u8; PAGE])| {
        let mut page = good.encode();
        change(&mut page);
        let crc = crc32c::crc32c(&page[..PAGE - 4]);
        page[PAGE - 4..].copy_from_slice(&crc.to_le_bytes());
        Superblock::decode(&page)
    };
    assert!(refused(&|page| page[8..12].reverse()).unwrap_err().contains("big-endian"));
    assert!(refused(&|page| page[12] = 2).unwrap_err().contains("version 2.0"));
    // A newer minor version may have filled what is zero here.
    let newer = refused(&|page| {
        page[14] = 3;
        page[1000] = 1;
    });
    assert_eq!(newer.unwrap(), Superblock { minor: 3, ..good });
    assert!(refused(&|page| page[1000] = 1).unwrap_err().contains("must be zero"));
    assert!(refused(&|page| page[23] = 0x80).unwrap_err().contains("requires features"));
    assert_eq!(refused(&|page| page[31] = 0x80).unwrap().optional, 0x80 << 56);
    let unknown = |optional| {
        let mut toc = Toc::default();
        toc.sections.push(crate::checkpoint::format::Section {
            kind: 999,
            version: 1,
            optional,
            id: 0,
            name: String::new(),
            chunks: Vec::new(),
        });
        Toc::decode(&toc.encode(), PAGE as u64)
    };
    assert!(unknown(true).is_ok());
    assert!(unknown(false).unwrap_err().contains("kind 999"));
}

#[test]
fn nothing_that_is_made_of_a_good_file_by_chance_makes_the_parser_fall_or_hoard() {
    let (disk, path, bytes) = one_file();
    let manifest = super::manifest(
        3,
        vec![crate::checkpoint::Member {
            role: Role::Shard,
            rank: 0,
            world: 1,
            bytes: 1,
            digest: [1; 32],
            state_bytes: 9,
        }],
        vec![1, 2],
    )
    .encode();
    let mut state = 88_172_645_463_325_252_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..4000 {
        let mut damaged = bytes.clone();
        for _ in 0..=random() % 4 {
            let at = usize::try_from(random() % damaged.len() as u64).unwrap();
            damaged[at] = random().to_le_bytes()[0];
        }
        // Checksums that fit again, so that what lies behind them is reached.
        mend(&mut damaged);
        disk.put(&path, &damaged);
        let _ = whole(&disk);
        let mut other = manifest.clone();
        let at = usize::try_from(random() % other.len() as u64).unwrap();
        other[at] = random().to_le_bytes()[0];
        let end = other.len() - 4;
        let crc = crc32c::crc32c(&other[..end]);
        other[end..].copy_from_slice(&crc.to_le_bytes());
        let _ = Manifest::decode(&other);
        let _ = Manifest::decode(&other[..at]);
    }
}

/// Puts right the checksums of superblock, table of contents and trailer.
fn mend(bytes: &mut [u8]) {
    let end = bytes.len() - PAGE;
    let seal = |page: &mut [u8]| {
        let crc = crc32c::crc32c(&page[..PAGE - 4]);
        page[PAGE - 4..].copy_from_slice(&crc.to_le_bytes());
    };
    seal(&mut bytes[..PAGE]);
    let read = |bytes: &[u8], at: usize| {
        usize::try_from(u64::from_le_bytes(bytes[end + at..end + at + 8].try_into().unwrap()))
    };
    if let (Ok(toc_at), Ok(toc_bytes)) = (read(bytes, 16), read(bytes, 24))
        && let Some(toc) = toc_at.checked_add(toc_bytes).and_then(|last| bytes.get(toc_at..last))
    {
        let crc = crc32c::crc32c(toc);
        let mut digest = blake3::Hasher::new();
        digest.update(&bytes[..PAGE]).update(toc);
        let digest = *digest.finalize().as_bytes();
        bytes[end + 32..end + 36].copy_from_slice(&crc.to_le_bytes());
        bytes[end + 40..end + 72].copy_from_slice(&digest);
    }
    seal(&mut bytes[end..]);
}

#[test]
fn counts_are_not_believed() {
    let mut toc = Toc::default().encode();
    toc[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(Toc::decode(&toc, PAGE as u64).is_err());
    let mut toc = Toc { files: Vec::new(), sections: Vec::new() };
    toc.sections.push(crate::checkpoint::format::Section {
        kind: 1,
        version: 1,
        optional: false,
        id: 0,
        name: String::new(),
        chunks: Vec::new(),
    });
    let mut bytes = toc.encode();
    let at = bytes.len() - 10;
    bytes[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(Toc::decode(&bytes, PAGE as u64).is_err());
    let _ = plan(SectionKind::App, 1, "", 0);
}
