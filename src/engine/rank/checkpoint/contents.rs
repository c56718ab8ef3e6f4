//! What a rank's container has in it: regions, what was executed exactly once, lanes for people, the program's sections.

use super::desk::Section;
use crate::checkpoint::format::{CHUNK_BYTES, Reader, put_u32, put_u64, put_u128};
use crate::checkpoint::{ChunkSource, SectionKind, SectionPlan};
use crate::fabric::{Access, Fabric, Region};
use crate::ids::Incarnation;
use crate::memory::{Executed, LaneFacts, REGION_BYTES_MAX, RegionFacts, iova_of};
use crate::wire::region::REGIONS_MAX;
use core::fmt::Write as _;
use std::collections::BTreeMap;

/// Bytes of a region in the table.
const REGION_BYTES: usize = 32;
/// Bytes of one executed request.
const EXECUTED_BYTES: usize = 40;

/// A region as a checkpoint has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SavedRegion {
    pub(super) id: u32,
    pub(super) bytes: u64,
    pub(super) access: Access,
}

/// A rank at the cut.
#[derive(Debug, Default)]
pub(super) struct Contents {
    regions: Vec<(SavedRegion, Vec<u8>)>,
    pub(super) executed: Vec<Executed>,
    pub(super) lanes: Vec<LaneFacts>,
    pub(super) sections: Vec<Section>,
    pub(super) host: String,
    made: Vec<(SectionPlan, Made)>,
}

/// How a section's chunks are made.
#[derive(Debug)]
enum Made {
    Bytes(Vec<u8>),
    Region(usize),
    Section(usize),
}

/// Memory for copies, by region; kept from one checkpoint to the next.
pub(super) type Spare = BTreeMap<u32, Vec<u8>>;

/// Makes room for copies, and touches it: page faults are not for the time in which everybody waits.
pub(super) fn make_room(spare: &mut Spare, regions: &[RegionFacts]) {
    spare.retain(|id, _| regions.iter().any(|region| region.id == *id));
    for region in regions {
        spare.entry(region.id).or_default().resize(region.bytes, 0);
    }
}

impl Contents {
    /// Copies the regions.
    ///
    /// # Safety
    /// Nobody writes to them during the call.
    pub(super) unsafe fn copy<F: Fabric>(&mut self, regions: &[(RegionFacts, F::Region)], spare: &mut Spare) {
        for (facts, memory) in regions {
            let mut copy = spare.remove(&facts.id).unwrap_or_default();
            copy.resize(facts.bytes, 0);
            // SAFETY: the region is mapped as long as `memory` lives and has that many bytes, as has the copy; nobody
            // writes to it, as the caller promises.
            unsafe { core::ptr::copy_nonoverlapping(memory.base().as_ptr(), copy.as_mut_ptr(), facts.bytes) };
            let saved = SavedRegion { id: facts.id, bytes: facts.bytes as u64, access: facts.access };
            self.regions.push((saved, copy));
        }
    }

    /// The memory of the copies, for the next time.
    pub(super) fn into_spare(self) -> Spare {
        self.regions.into_iter().map(|(region, copy)| (region.id, copy)).collect()
    }

    /// Lays out the sections. After the gate is open again.
    pub(super) fn lay_out(&mut self) {
        let mut made = Vec::new();
        let mut add = |kind, id, name: &str, optional, bytes: usize, how| {
            let chunks = u32::try_from(bytes.div_ceil(CHUNK_BYTES).max(1)).unwrap_or(u32::MAX);
            made.push((SectionPlan { kind, id, name: name.to_owned(), version: 1, optional, chunks }, how));
        };
        let mut bytes = |kind, optional, bytes: Vec<u8>| add(kind, 0, "", optional, bytes.len(), Made::Bytes(bytes));
        bytes(SectionKind::Host, true, self.host.clone().into_bytes());
        bytes(SectionKind::Lanes, true, lane_lines(&self.lanes).into_bytes());
        bytes(SectionKind::Dedupe, false, encode_executed(&self.executed));
        bytes(SectionKind::Regions, false, encode_regions(self.regions.iter().map(|(region, _)| region)));
        for (at, (region, copy)) in self.regions.iter().enumerate() {
            add(SectionKind::RegionData, region.id, "", false, copy.len(), Made::Region(at));
        }
        for (id, (at, (name, section))) in (0..).zip(self.sections.iter().enumerate()) {
            add(SectionKind::App, id, name, false, section.len(), Made::Section(at));
        }
        self.made = made;
    }

    pub(super) fn plans(&self) -> Vec<SectionPlan> {
        self.made.iter().map(|(plan, _)| plan.clone()).collect()
    }
}

impl ChunkSource for Contents {
    fn chunk(&self, section: usize, index: u32, out: &mut Vec<u8>) {
        let all: &[u8] = match &self.made[section].1 {
            Made::Bytes(bytes) => bytes,
            Made::Region(at) => &self.regions[*at].1,
            Made::Section(at) => &self.sections[*at].1,
        };
        let from = (index as usize).saturating_mul(CHUNK_BYTES).min(all.len());
        let to = from.saturating_add(CHUNK_BYTES).min(all.len());
        out.extend_from_slice(&all[from..to]);
    }
}

/// For people: what the lanes had done. Nothing of a device is in it, and nothing is made from it.
fn lane_lines(lanes: &[LaneFacts]) -> String {
    let mut out = String::new();
    for LaneFacts { peer, generation, posted, retired } in lanes {
        let _ = writeln!(out, "peer={peer} generation={generation} posted={posted} settled={retired}");
    }
    out
}

fn encode_regions<'a>(regions: impl Iterator<Item = &'a SavedRegion>) -> Vec<u8> {
    let mut out = Vec::new();
    for region in regions {
        put_u32(&mut out, region.id);
        put_u32(&mut out, u32::from(region.access.0));
        put_u64(&mut out, region.bytes);
        put_u64(&mut out, iova_of(region.id));
        put_u64(&mut out, 0);
    }
    out
}

/// The region table of a container. In words, what is wrong with it.
pub(super) fn decode_regions(bytes: &[u8]) -> Result<Vec<SavedRegion>, String> {
    if !bytes.len().is_multiple_of(REGION_BYTES) || bytes.len() / REGION_BYTES > REGIONS_MAX {
        return Err("a region table of a length that cannot be".to_owned());
    }
    let (mut r, mut regions) = (Reader(bytes), Vec::<SavedRegion>::new());
    while !r.is_empty() {
        let words = (|| Some((r.u32()?, r.u32()?, r.u64()?, r.u64()?, r.u64()?)))();
        let (id, rights, bytes, iova, _) = words.ok_or("a region table that is cut off")?;
        let access = u8::try_from(rights).ok().map(Access).filter(|a| *a != Access::LOCAL && a.0 <= Access::ALL.0);
        let sound = (id as usize) < REGIONS_MAX && bytes != 0 && bytes <= REGION_BYTES_MAX && iova == iova_of(id);
        let ascending = regions.last().is_none_or(|last| last.id < id);
        let Some(access) = access.filter(|_| sound && ascending) else {
            return Err(format!("region {id} with {bytes} bytes, rights {rights:#x}: that cannot be"));
        };
        regions.push(SavedRegion { id, bytes, access });
    }
    Ok(regions)
}

fn encode_executed(executed: &[Executed]) -> Vec<u8> {
    let mut out = Vec::with_capacity(executed.len() * EXECUTED_BYTES);
    for one in executed {
        put_u128(&mut out, one.incarnation.0);
        put_u64(&mut out, one.sequence);
        put_u64(&mut out, one.value);
        put_u32(&mut out, one.cell);
        put_u32(&mut out, one.status);
    }
    out
}

/// What was executed exactly once. None: it is malformed.
pub(super) fn decode_executed(bytes: &[u8]) -> Option<Vec<Executed>> {
    let (mut r, mut all) = (Reader(bytes), Vec::new());
    while !r.is_empty() {
        let (incarnation, sequence, value) = (Incarnation(r.u128()?), r.u64()?, r.u64()?);
        all.push(Executed { incarnation, sequence, value, cell: r.u32()?, status: r.u32()? });
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tables_come_back_and_what_cannot_be_does_not() {
        let regions = [(0, 1, Access::ALL), (511, 1 << 40, Access::REMOTE_READ)];
        let saved = regions.map(|(id, bytes, access)| SavedRegion { id, bytes, access });
        let bytes = encode_regions(saved.iter());
        assert_eq!(decode_regions(&bytes), Ok(saved.to_vec()));
        assert!(decode_regions(&bytes[..bytes.len() - 1]).is_err());
        let twice = encode_regions([saved[0], saved[0]].iter());
        assert!(decode_regions(&twice).is_err());
        for (id, bytes, access) in
            [(512, 1, Access::ALL), (1, 0, Access::ALL), (1, u64::MAX, Access::ALL), (1, 1, Access(8))]
        {
            let wrong = encode_regions([SavedRegion { id, bytes, access }].iter());
            assert!(decode_regions(&wrong).is_err(), "{id} {bytes}");
        }
        let executed = [Executed { incarnation: Incarnation(u128::MAX), cell: 3, sequence: 9, status: 2, value: 77 }];
        let bytes = encode_executed(&executed);
        assert_eq!((bytes.len(), decode_executed(&bytes)), (EXECUTED_BYTES, Some(executed.to_vec())));
        assert_eq!(decode_executed(&bytes[..39]), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(regions) = decode_regions(&bytes) {
                prop_assert!(regions.len() * REGION_BYTES == bytes.len());
            }
            let _ = decode_executed(&bytes);
        }
    }
}
