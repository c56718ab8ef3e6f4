//! The bytes by which a queue pair is named to its peer.

use super::message::QpLife;
use super::socket::EndpointName;
use crate::fabric::QpAddress;

const MAGIC: [u8; 4] = *b"rlq1";
const BYTES: usize = 32;

/// Endpoint and queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Address {
    pub(super) endpoint: EndpointName,
    pub(super) qp: QpLife,
}

impl Address {
    /// Layout: magic, endpoint name, queue pair number u32, nonce u64.
    pub(super) fn encode(&self) -> QpAddress {
        let mut out = Vec::with_capacity(BYTES);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&self.endpoint.0);
        out.extend_from_slice(&self.qp.number.to_le_bytes());
        out.extend_from_slice(&self.qp.nonce.to_le_bytes());
        QpAddress(out)
    }

    /// None: not an address of this provider.
    pub(super) fn decode(address: &QpAddress) -> Option<Address> {
        let bytes: &[u8; BYTES] = address.0.as_slice().try_into().ok()?;
        let (magic, rest) = bytes.split_first_chunk::<4>()?;
        let (endpoint, rest) = rest.split_first_chunk::<16>()?;
        let (number, rest) = rest.split_first_chunk::<4>()?;
        let nonce = u64::from_le_bytes(rest.try_into().ok()?);
        let qp = QpLife { number: u32::from_le_bytes(*number), nonce };
        (*magic == MAGIC).then_some(Address { endpoint: EndpointName(*endpoint), qp })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_refusals() {
        let address = Address { endpoint: EndpointName([7; 16]), qp: QpLife { number: 1, nonce: 1 << 60 } };
        let mut bytes = address.encode();
        assert_eq!(Address::decode(&bytes), Some(address));
        bytes.0[0] ^= 1;
        assert_eq!(Address::decode(&bytes), None);
        assert_eq!(Address::decode(&QpAddress(address.encode().0[..31].to_vec())), None);
    }
}
