//! How packets of a process travel: port, address, and what a queue pair is told about both. Plain values.

use super::address::Address;
use super::info::GidKind;
use super::sys::{code, ibv_ah_attr, ibv_gid};
use crate::options::RdmaMode;

/// One process's end of every path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    pub(super) port: u8,
    pub(super) mode: RdmaMode,
    pub(super) link_layer: u8,
    pub(super) is_ib: bool,
    pub(super) lid: u16,
    pub(super) gid: [u8; 16],
    /// Where the address was found; it may move.
    pub(super) gid_index: u32,
    /// Numbered as `ibv_mtu`.
    pub(super) mtu: u8,
    pub(super) hop_limit: u8,
    pub(super) traffic_class: u8,
    pub(super) flow_label: u32,
    pub(super) service_level: u8,
    pub(super) ack_timeout: u8,
    pub(super) retry_cnt: u8,
    pub(super) rnr_retry: u8,
    pub(super) min_rnr_timer: u8,
    /// Pieces of one work request.
    pub(super) sges: u32,
    /// Bytes of inline data, as granted.
    pub(super) inline: u32,
}

impl Path {
    /// The address vector to a peer.
    pub(super) fn fill(&self, vector: &mut ibv_ah_attr, peer: &Address, gid_index: u32) {
        vector.port_num = self.port;
        vector.sl = self.service_level;
        vector.dlid = peer.lid;
        // On InfiniBand a global header is for another subnet only.
        let other_subnet = self.gid[..8] != peer.gid[..8];
        if self.kind() != GidKind::Ib || other_subnet {
            vector.is_global = 1;
            vector.grh.dgid = ibv_gid { raw: peer.gid };
            vector.grh.sgid_index = u8::try_from(gid_index).unwrap_or(u8::MAX);
            vector.grh.hop_limit = self.hop_limit;
            vector.grh.traffic_class = self.traffic_class;
            vector.grh.flow_label = self.flow_label;
        }
    }
}

/// The `ibv_mtu` of a number of bytes; None when it is none.
pub(super) fn mtu_code(bytes: u32) -> Option<u8> {
    (1..=5).find(|code| super::info::mtu_bytes(*code) == bytes)
}

/// Whether a link layer is InfiniBand.
pub(super) fn is_ib(link_layer: u8) -> bool {
    link_layer == code::LINK_INFINIBAND
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(mode: RdmaMode) -> Path {
        Path {
            port: 1,
            mode,
            link_layer: 2,
            is_ib: mode == RdmaMode::Ib,
            lid: 3,
            gid: [1; 16],
            gid_index: 1,
            mtu: 5,
            hop_limit: 9,
            traffic_class: 106,
            flow_label: 77,
            service_level: 3,
            ack_timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            sges: 4,
            inline: 64,
        }
    }

    #[test]
    fn the_vector_has_what_was_asked_for() {
        let peer =
            Address { mode: 2, link_layer: 2, mtu: 5, reads_max: 1, lid: 8, qp: 1, psn: 1, gid: [2; 16], nonce: 0 };
        // SAFETY: plain numbers, for which zero is a value.
        let mut vector: ibv_ah_attr = unsafe { core::mem::zeroed() };
        path(RdmaMode::RoceV2).fill(&mut vector, &peer, 4);
        assert_eq!((vector.is_global, vector.sl, vector.dlid, vector.port_num), (1, 3, 8, 1));
        let grh = vector.grh;
        assert_eq!((grh.sgid_index, grh.hop_limit, grh.traffic_class, grh.flow_label), (4, 9, 106, 77));
        // SAFETY: the bytes are a view that every value of the union has.
        assert_eq!(unsafe { grh.dgid.raw }, [2; 16]);
    }

    #[test]
    fn infiniband_takes_a_global_header_between_subnets_only() {
        for (gid, is_global) in [([1; 16], 0), ([2; 16], 1)] {
            let peer = Address { mode: 0, link_layer: 1, mtu: 5, reads_max: 1, lid: 8, qp: 1, psn: 1, gid, nonce: 0 };
            // SAFETY: as above.
            let mut vector: ibv_ah_attr = unsafe { core::mem::zeroed() };
            path(RdmaMode::Ib).fill(&mut vector, &peer, 0);
            assert_eq!(vector.is_global, is_global);
        }
    }

    #[test]
    fn mtus_have_numbers() {
        assert_eq!((mtu_code(256), mtu_code(4096), mtu_code(4095), mtu_code(0)), (Some(1), Some(5), None, None));
    }
}
