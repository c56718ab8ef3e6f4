//! A queue pair's address, as bytes for the control plane. Pure.

use super::info::{GidKind, gid_text, link_layer_name};
use crate::fabric::QpAddress;
use crate::wire::checksum_append;

const MAGIC: u32 = 0x3156_4c52;
const BYTES: usize = 48;

/// What the peer of a connection must know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Address {
    /// How its packets look: the code of the option `rdma-mode`.
    pub(super) mode: u8,
    pub(super) link_layer: u8,
    /// Its port's MTU, numbered as `ibv_mtu`.
    pub(super) mtu: u8,
    /// How many reads and atomics of the peer it takes at a time.
    pub(super) reads_max: u8,
    pub(super) lid: u16,
    pub(super) qp: u32,
    /// Number of its first packet: random for each connection, so that packets of an earlier one do not fit.
    pub(super) psn: u32,
    pub(super) gid: [u8; 16],
    /// Random for each connection.
    pub(super) nonce: u64,
}

impl Address {
    /// Encodes: magic u32, mode, link layer, MTU, reads u8 each, LID u16, zero u16, queue pair u32, PSN u32, GID (16
    /// bytes), nonce u64, CRC32C of all this u32.
    pub(super) fn encode(&self) -> QpAddress {
        let mut out = Vec::with_capacity(BYTES);
        out.extend_from_slice(&MAGIC.to_le_bytes());
        out.extend_from_slice(&[self.mode, self.link_layer, self.mtu, self.reads_max]);
        out.extend_from_slice(&u32::from(self.lid).to_le_bytes());
        out.extend_from_slice(&self.qp.to_le_bytes());
        out.extend_from_slice(&self.psn.to_le_bytes());
        out.extend_from_slice(&self.gid);
        out.extend_from_slice(&self.nonce.to_le_bytes());
        out.extend_from_slice(&checksum_append(0, &out).to_le_bytes());
        QpAddress(out)
    }

    /// Decodes what a peer sent.
    pub(super) fn decode(address: &QpAddress) -> Option<Address> {
        let (body, sum) = address.0.split_last_chunk::<4>()?;
        if body.len() + 4 != BYTES || u32::from_le_bytes(*sum) != checksum_append(0, body) {
            return None;
        }
        let word = |at: usize| body.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes);
        let [mode, link_layer, mtu, reads_max] = word(4).to_le_bytes();
        let (qp, psn) = (word(12), word(16));
        let is_one = word(0) == MAGIC && (1..=5).contains(&mtu) && mode <= 2 && qp < 1 << 24 && psn < 1 << 24;
        is_one.then_some(Address {
            mode,
            link_layer,
            mtu,
            reads_max,
            lid: u16::try_from(word(8)).ok()?,
            qp,
            psn,
            gid: body.get(20..36)?.try_into().ok()?,
            nonce: u64::from(word(36)) | u64::from(word(40)) << 32,
        })
    }

    /// What keeps these two from talking to each other, in words.
    pub(super) fn refusal(&self, peer: &Address) -> Option<String> {
        let kind = |mode: u8| match mode {
            0 => GidKind::Ib.name(),
            1 => GidKind::RoceV1.name(),
            _ => GidKind::RoceV2.name(),
        };
        if self.link_layer != peer.link_layer {
            return Some(format!(
                "the link layer is {} here and {} at the peer {}; name ports of one link layer with rdma-device and rdma-port",
                link_layer_name(self.link_layer),
                link_layer_name(peer.link_layer),
                gid_text(peer.gid)
            ));
        }
        (self.mode != peer.mode).then(|| {
            format!(
                "rdma-mode is {} here and {} at the peer {}; set the same one on both",
                kind(self.mode),
                kind(peer.mode),
                gid_text(peer.gid)
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address() -> Address {
        let gid = core::array::from_fn(|at| u8::try_from(at).unwrap());
        Address { mode: 2, link_layer: 2, mtu: 5, reads_max: 16, lid: 7, qp: 0x12_3456, psn: 0xff_ffff, gid, nonce: 9 }
    }

    #[test]
    fn round_trip() {
        assert_eq!(Address::decode(&address().encode()), Some(address()));
        assert_eq!(address().encode().0.len(), BYTES);
    }

    #[test]
    fn one_changed_byte_is_refused() {
        let whole = address().encode().0;
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            assert_eq!(Address::decode(&QpAddress(bytes)), None, "byte {at}");
        }
        assert_eq!(Address::decode(&QpAddress(whole[1..].to_vec())), None);
        assert_eq!(Address::decode(&Address { qp: 1 << 24, ..address() }.encode()), None);
        assert_eq!(Address::decode(&Address { mtu: 0, ..address() }.encode()), None);
    }

    #[test]
    fn what_cannot_talk_is_told() {
        let refusal = |peer: Address| address().refusal(&peer).unwrap_or_default();
        for (peer, words) in [
            (
                Address { link_layer: 1, ..address() },
                ["Ethernet here and InfiniBand at the peer", "; name ports of one link layer with rdma-device and"],
            ),
            (Address { mode: 1, ..address() }, ["RoCE v2 here and RoCE v1 at the peer", "; set the same one on both"]),
        ] {
            let told = refusal(peer);
            words.iter().for_each(|word| assert!(told.contains(word), "{word:?} is not in: {told}"));
        }
        assert_eq!(address().refusal(&address()), None);
    }
}
