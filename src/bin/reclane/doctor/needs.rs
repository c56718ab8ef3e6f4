//! What a process with these options needs of its host. Pure.

use reclane::options::{FabricKind, Settings};
use reclane::wire::Geometry;

/// Needs of one process: the larger of a server's and a client's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Needs {
    /// Memory of slots.
    pub slot_bytes: u64,
    /// Memory that a device pins: nothing on `shm`.
    pub locked_bytes: u64,
    /// Queue pairs of a device.
    pub queue_pairs: u64,
    /// Registrations with a device, about.
    pub registrations: u64,
    /// Bytes of the largest one.
    pub largest_region_bytes: u64,
    /// File descriptors, about.
    pub files: u64,
    /// Mappings, about.
    pub mappings: u64,
    /// Threads that spin while there is work.
    pub spinning: u64,
}

/// Descriptors and mappings of a process without peers: the program, its logs, the control plane.
const FILES_BASE: u64 = 64;
const MAPPINGS_BASE: u64 = 1024;
/// Registrations of a process with few lanes: slots and what is sent, zeros for missing rows, a buffer or two.
const REGISTRATIONS_BASE: u64 = 5;
/// Of each peer: a socket, a watch on its process, regions of both sides, a connection of the control plane.
const FILES_A_PEER: u64 = 8;
const MAPPINGS_A_PEER: u64 = 8;

impl Needs {
    /// With all lanes: what is needed in the end.
    pub fn of(settings: &Settings) -> Needs {
        Needs::with_lanes(settings, settings.qps_per_client_per_shard)
    }

    /// With the lanes that clients connect when they open: with less, opening fails.
    pub fn at_open(settings: &Settings) -> Needs {
        Needs::with_lanes(settings, settings.lanes_at_open())
    }

    fn with_lanes(settings: &Settings, lanes: u32) -> Needs {
        let geometry = Geometry {
            lanes,
            slots: settings.slots_per_qp,
            request_payload_bytes: settings.request_slot_bytes,
            response_payload_bytes: settings.response_slot_bytes,
        };
        let (requests, responses) = (geometry.server_region_bytes() as u64, geometry.client_region_bytes() as u64);
        let verbs = settings.fabric == FabricKind::Verbs;
        // What is written by a device is put together in memory of the same shape first.
        let server = requests + if verbs { responses } else { 0 };
        let client = responses + if verbs { requests } else { 0 };
        let (clients, shards) = (u64::from(settings.num_client_processes), u64::from(settings.num_shards));
        let slot_bytes = server.saturating_mul(clients).max(client.saturating_mul(shards));
        let peers = clients.max(shards);
        Needs {
            slot_bytes,
            locked_bytes: if verbs { slot_bytes } else { 0 },
            queue_pairs: peers.saturating_mul(lanes.into()),
            registrations: REGISTRATIONS_BASE + 2 * slot_bytes.div_ceil(settings.region_bytes.max(1)),
            largest_region_bytes: requests.max(responses).max(slot_bytes.min(settings.region_bytes)),
            files: FILES_BASE + FILES_A_PEER * peers,
            mappings: MAPPINGS_BASE + MAPPINGS_A_PEER * peers,
            spinning: u64::from(settings.server_threads) + u64::from(settings.get_workers) + 1,
        }
    }
}

/// Bytes as people say them.
pub fn human(bytes: u64) -> String {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let power = (bytes.max(1).ilog2() / 10).min(4);
    let scaled = bytes >> (10 * power);
    let unit = units.get(power as usize).copied().unwrap_or("bytes");
    let exact = power == 0 || bytes.trailing_zeros() >= 10 * power;
    format!("{}{scaled} {unit}", if exact { "" } else { "about " })
}

#[cfg(test)]
mod tests {
    use super::*;
    use reclane::options::{Options, Side};

    fn needs(pairs: &[(&str, &str)]) -> Needs {
        let mut options = Options::new();
        for (name, value) in pairs {
            options.set(name, value).unwrap();
        }
        Needs::of(&options.settings(Side::Both).unwrap())
    }

    #[test]
    fn shared_memory_locks_nothing_and_a_device_pins_both_sides() {
        let shm = needs(&[]);
        assert_eq!(shm.locked_bytes, 0);
        assert!(shm.slot_bytes >= 16 << 20 && shm.slot_bytes < 17 << 20, "{shm:?}");
        let verbs = needs(&[("fabric", "verbs")]);
        assert_eq!(verbs.locked_bytes, verbs.slot_bytes);
        assert!(verbs.slot_bytes >= 32 << 20 && verbs.slot_bytes < 34 << 20, "{verbs:?}");
    }

    #[test]
    fn opening_takes_the_lanes_at_open_alone() {
        let mut options = Options::new();
        options.set("fabric", "verbs").unwrap();
        let settings = options.settings(Side::Both).unwrap();
        let (open, all) = (Needs::at_open(&settings), Needs::of(&settings));
        assert_eq!((open.queue_pairs, all.queue_pairs), (2, 16));
        assert_eq!((open.slot_bytes, all.slot_bytes), (4_206_592, 33_566_720));
        assert_eq!(open.locked_bytes, open.slot_bytes);
        assert_eq!((open.files, open.mappings, open.spinning), (all.files, all.mappings, all.spinning));
        options.set("qps-at-open", "1024").unwrap();
        let settings = options.settings(Side::Both).unwrap();
        assert_eq!(Needs::at_open(&settings), Needs::of(&settings));
    }

    #[test]
    fn needs_grow_with_peers_and_threads() {
        let many = needs(&[("num-client-processes", "100"), ("server-rdma-threads", "4"), ("get-workers", "2")]);
        let one = needs(&[]);
        assert!(many.slot_bytes >= 100 * (16 << 20) && many.files == one.files + 99 * FILES_A_PEER);
        assert_eq!((many.spinning, one.spinning), (7, 2));
    }

    #[test]
    fn bytes_are_said_in_units() {
        let said = [0, 1, 1023, 1024, 1025, 8 << 20, 3 << 30, u64::MAX].map(human);
        let expected =
            ["0 bytes", "1 bytes", "1023 bytes", "1 KiB", "about 1 KiB", "8 MiB", "3 GiB", "about 16777215 TiB"];
        assert_eq!(said, expected);
    }
}
