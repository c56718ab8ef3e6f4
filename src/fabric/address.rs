//! What a peer needs to reach a queue pair or a region, as bytes for the control plane.

use super::types::Access;

/// How to reach a queue pair. Opaque to everyone but the provider that made it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QpAddress(pub Vec<u8>);

impl QpAddress {
    /// Longest address a peer may send.
    pub const BYTES_MAX: usize = 512;
}

/// How to reach a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegionAddress {
    /// First address in the owner's numbering.
    pub iova: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Remote key.
    pub rkey: u32,
    /// The peer's rights.
    pub access: Access,
}

impl RegionAddress {
    /// Bytes of the encoding: iova u64, bytes u64, rkey u32, access u32.
    pub const ENCODED_BYTES: usize = 24;

    /// Encodes.
    #[must_use]
    pub fn encode(&self) -> [u8; RegionAddress::ENCODED_BYTES] {
        let mut out = [0; RegionAddress::ENCODED_BYTES];
        out[0..8].copy_from_slice(&self.iova.to_le_bytes());
        out[8..16].copy_from_slice(&self.bytes.to_le_bytes());
        out[16..20].copy_from_slice(&self.rkey.to_le_bytes());
        out[20..24].copy_from_slice(&u32::from(self.access.0).to_le_bytes());
        out
    }

    /// Decodes what a peer sent; None when it is not one.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<RegionAddress> {
        let bytes: &[u8; RegionAddress::ENCODED_BYTES] = bytes.try_into().ok()?;
        let (iova, rest) = bytes.split_first_chunk::<8>()?;
        let (length, rest) = rest.split_first_chunk::<8>()?;
        let (rkey, rest) = rest.split_first_chunk::<4>()?;
        let access = u32::from_le_bytes(rest.try_into().ok()?);
        let address = RegionAddress {
            iova: u64::from_le_bytes(*iova),
            bytes: u64::from_le_bytes(*length),
            rkey: u32::from_le_bytes(*rkey),
            access: Access(u8::try_from(access).ok().filter(|a| *a <= Access::ALL.0 || *a == Access::LENT.0)?),
        };
        address.iova.checked_add(address.bytes)?;
        Some(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_refusals() {
        let address = RegionAddress { iova: 0x7000, bytes: 4096, rkey: 9, access: Access::ALL };
        assert_eq!(RegionAddress::decode(&address.encode()), Some(address));
        assert_eq!(RegionAddress::decode(&address.encode()[1..]), None);
        let wrapping = RegionAddress { iova: u64::MAX, ..address };
        assert_eq!(RegionAddress::decode(&wrapping.encode()), None);
    }
}
