//! What the answer to a fetch brings, checked and mapped.

use super::link::Link;
use super::memory::Mapping;
use super::ring::{RING_ENTRIES_MAX, SendRing, ring_bytes};
use super::waker::Bell;
use crate::fabric::{Access, RegionAddress};
use crate::sync::{Arc, AtomicBool};
use std::os::fd::OwnedFd;

/// A region of the peer, mapped here.
#[derive(Debug)]
pub(super) struct PeerRegion {
    pub(super) address: RegionAddress,
    pub(super) mapping: Arc<Mapping>,
    /// Exposed later, so the peer may take it back.
    pub(super) lent: bool,
    /// A pointer into it was handed out for the life of the queue pair.
    pub(super) windowed: AtomicBool,
}

impl PeerRegion {
    /// One that came with the connection.
    pub(super) fn lasting(address: RegionAddress, mapping: Arc<Mapping>) -> PeerRegion {
        PeerRegion { address, mapping, lent: false, windowed: AtomicBool::new(false) }
    }
}

/// What a fetch brought.
pub(super) struct Attachment {
    pub(super) link: Arc<Link>,
    pub(super) regions: Vec<PeerRegion>,
    pub(super) bell: Option<Arc<Bell>>,
    pub(super) ring: Option<SendRing>,
}

/// Checks and maps what the answer to a fetch brought. `bell`: whether its sleeper takes part in barriers.
pub(super) fn attach(
    link: Arc<Link>,
    regions: Vec<(RegionAddress, OwnedFd)>,
    bell: Option<bool>,
    ring_entries: u32,
    fds: Vec<OwnedFd>,
) -> core::result::Result<Attachment, String> {
    let mut mapped = Vec::with_capacity(regions.len());
    for (address, fd) in regions {
        match link.map_region(&fd, &address) {
            Ok(mapping) => mapped.push(PeerRegion::lasting(address, mapping)),
            // Nothing depends on what is lent: without it, it cannot be reached.
            Err(why) if address.access == Access::LENT => crate::event!(
                crate::observe::Level::WARN,
                crate::observe::events::SHM_REGION_NOT_MAPPED,
                pid = link.pid,
                why
            ),
            Err(why) => return Err(format!("shm: process {}: {why}", link.pid)),
        }
    }
    let mut fds = fds.into_iter();
    let missing = || "shm: the peer's answer lacks a descriptor".to_owned();
    let bell = match bell {
        Some(barrier) => {
            let (page, ring) = (fds.next().ok_or_else(missing)?, fds.next().ok_or_else(missing)?);
            Some(link.bell(&page, ring, barrier)?)
        }
        None => None,
    };
    let ring = match ring_entries {
        0 => None,
        1..=RING_ENTRIES_MAX => {
            let fd = fds.next().ok_or_else(missing)?;
            Some(SendRing::new(link.map(&fd, ring_bytes(ring_entries), true)?, ring_entries))
        }
        _ => return Err(format!("shm: the peer's ring of {ring_entries} entries is above {RING_ENTRIES_MAX}")),
    };
    Ok(Attachment { link, regions: mapped, bell, ring })
}
