//! Where slots lie. Both ends compute the same numbers from the same options; the deployment digest covers those.

/// A header is one cache line.
pub const HEADER_BYTES: usize = 64;
/// Room for keys or small results inside a header.
pub const INLINE_BYTES: usize = 24;
/// Alignment of areas within a region.
pub const PAGE_BYTES: usize = 4096;

/// Layout of the memory of a group of lanes that were connected together: one region on the server, one on the client.
///
/// Server region: all request headers dense, lane by lane and slot by slot, so that a poller scans neighbouring lines;
/// then, page-aligned, the request payload areas. Client region: one response slot after the other, each with its
/// header in its last 64 bytes and the payload right-aligned before it.
///
/// Strides are odd multiples of 128 bytes: with a power of two, the headers of all slots would fall into one cache set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Lanes in the group.
    pub lanes: u32,
    /// Slots per lane.
    pub slots: u32,
    /// Payload bytes that a request slot takes.
    pub request_payload_bytes: u32,
    /// Payload bytes that a response slot takes.
    pub response_payload_bytes: u32,
}

const fn odd_lines(bytes: usize) -> usize {
    let pairs = bytes.div_ceil(128);
    (pairs | 1) * 128
}

impl Geometry {
    fn count(&self) -> usize {
        self.lanes as usize * self.slots as usize
    }

    fn index(&self, lane: u32, slot: u32) -> usize {
        debug_assert!(lane < self.lanes && slot < self.slots);
        lane as usize * self.slots as usize + slot as usize
    }

    /// Bytes of the server's region.
    #[must_use]
    pub fn server_region_bytes(&self) -> usize {
        self.request_area() + (self.count() * self.request_stride()).next_multiple_of(PAGE_BYTES)
    }

    /// Bytes of the client's region.
    #[must_use]
    pub fn client_region_bytes(&self) -> usize {
        (self.count() * self.response_stride()).next_multiple_of(PAGE_BYTES)
    }

    fn request_area(&self) -> usize {
        (self.count() * HEADER_BYTES).next_multiple_of(PAGE_BYTES)
    }

    fn request_stride(&self) -> usize {
        odd_lines(self.request_payload_bytes as usize)
    }

    fn response_stride(&self) -> usize {
        odd_lines(self.response_payload_bytes as usize + HEADER_BYTES)
    }

    /// Offset of a request header in the server's region.
    #[must_use]
    pub fn request_header(&self, lane: u32, slot: u32) -> usize {
        self.index(lane, slot) * HEADER_BYTES
    }

    /// Offset of a request's payload in the server's region.
    #[must_use]
    pub fn request_payload(&self, lane: u32, slot: u32) -> usize {
        self.request_area() + self.index(lane, slot) * self.request_stride()
    }

    /// Offset of a response header in the client's region. It is the second line of a 128-byte pair, so that the line
    /// with the end of a payload is its neighbour.
    #[must_use]
    pub fn response_header(&self, lane: u32, slot: u32) -> usize {
        (self.index(lane, slot) + 1) * self.response_stride() - HEADER_BYTES
    }

    /// How far before its header a payload of this length begins: whole cache lines.
    #[inline]
    #[must_use]
    pub fn response_payload_distance(bytes: u32) -> usize {
        (bytes as usize).next_multiple_of(HEADER_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn slots_do_not_overlap(lanes in 1_u32..20, slots in 1_u32..9, request in 1_u32..300_000, response in 1_u32..300_000) {
            let g = Geometry { lanes, slots, request_payload_bytes: request, response_payload_bytes: response };
            let headers_end = g.request_header(lanes - 1, slots - 1) + HEADER_BYTES;
            let mut payload_end = headers_end;
            let mut response_end = 0;
            for lane in 0..lanes {
                for slot in 0..slots {
                    prop_assert!(g.request_payload(lane, slot) >= payload_end);
                    payload_end = g.request_payload(lane, slot) + request as usize;
                    let header = g.response_header(lane, slot);
                    prop_assert_eq!(header % 128, 64);
                    prop_assert!(header - Geometry::response_payload_distance(response) >= response_end);
                    response_end = header + HEADER_BYTES;
                }
            }
            prop_assert!(payload_end <= g.server_region_bytes());
            prop_assert!(response_end <= g.client_region_bytes());
        }
    }
}
