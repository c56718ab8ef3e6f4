//! The exactly-once windows of a shard's clients, as bytes: the DEDUPE section.
//!
//! Records: client u32, slots u32, incarnation u128, number u64, entries u32, 0 u32; then for each entry slot u32, 0 u32,
//! word u64, result u64. A client with many entries has several records.

use crate::checkpoint::format::{CHUNK_BYTES, Reader, put_u32, put_u64, put_u128};
use crate::ids::{ClientId, Incarnation};
use crate::rpc::Window;
use crate::sync::Arc;

const HEAD_BYTES: usize = 40;
const ENTRY_BYTES: usize = 24;
/// Most slots of a client: lanes times slots per lane.
const SLOTS_MAX: u32 = 1 << 20;

/// One client's window.
#[derive(Clone, Debug)]
pub(crate) struct SavedWindow {
    pub(crate) client: ClientId,
    pub(crate) incarnation: Incarnation,
    pub(crate) window: Arc<Window>,
}

/// What a window held at the cut.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Exported {
    pub(crate) client: ClientId,
    pub(crate) incarnation: Incarnation,
    number: u64,
    slots: u32,
    /// Slot, word and result of each.
    pub(crate) entries: Vec<(u32, u64, u64)>,
}

impl Exported {
    pub(crate) fn of(client: ClientId, incarnation: Incarnation, window: &Window) -> Exported {
        let (slots, entries) = window.export();
        Exported { client, incarnation, number: window.number(), slots, entries }
    }
}

/// Chunks of the section.
pub(crate) fn encode(windows: &[Exported]) -> Vec<Vec<u8>> {
    let (mut chunks, mut out) = (Vec::new(), Vec::new());
    for window in windows {
        let most = (CHUNK_BYTES - HEAD_BYTES) / ENTRY_BYTES;
        // A window without entries is remembered too: its client is known.
        let parts: Vec<_> =
            if window.entries.is_empty() { vec![&[][..]] } else { window.entries.chunks(most).collect() };
        for part in parts {
            if out.len() + HEAD_BYTES + part.len() * ENTRY_BYTES > CHUNK_BYTES && !out.is_empty() {
                chunks.push(core::mem::take(&mut out));
            }
            put_u32(&mut out, window.client.0);
            put_u32(&mut out, window.slots);
            put_u128(&mut out, window.incarnation.0);
            put_u64(&mut out, window.number);
            put_u32(&mut out, u32::try_from(part.len()).unwrap_or(0));
            put_u32(&mut out, 0);
            for (slot, word, result) in part {
                put_u32(&mut out, *slot);
                put_u32(&mut out, 0);
                put_u64(&mut out, *word);
                put_u64(&mut out, *result);
            }
        }
    }
    if !out.is_empty() {
        chunks.push(out);
    }
    chunks
}

/// Adds the windows of a chunk. None: it is malformed.
pub(crate) fn decode(chunk: &[u8], windows: &mut Vec<SavedWindow>) -> Option<()> {
    let mut r = Reader(chunk);
    while !r.is_empty() {
        let (client, slots, incarnation) = (ClientId(r.u32()?), r.u32()?, Incarnation(r.u128()?));
        let number = r.u64()?;
        let (count, _) = (r.count(ENTRY_BYTES)?, r.u32()?);
        if slots > SLOTS_MAX || number & Window::LASTING == 0 {
            return None;
        }
        let known = windows.iter().rposition(|known| (known.client, known.incarnation) == (client, incarnation));
        let at = known.unwrap_or_else(|| {
            windows.push(SavedWindow { client, incarnation, window: Arc::new(Window::new(number, slots)) });
            windows.len() - 1
        });
        for _ in 0..count {
            let (slot, _, word, result) = (r.u32()?, r.u32()?, r.u64()?, r.u64()?);
            if !windows[at].window.import((slot, word, result)) {
                return None;
            }
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::Claim;
    use crate::wire::RequestHeader;

    #[test]
    fn windows_come_back_and_malformed_ones_do_not() {
        let window = Window::new(Window::LASTING | 5, 60_000);
        for slot in 0..60_000 {
            let identity = RequestHeader::identity(slot, u64::from(slot) + 1);
            assert_eq!(window.claim(identity), Claim::Execute);
            window.settle(identity, -1, slot);
        }
        let quiet = Window::new(Window::LASTING | 6, 3);
        let exported =
            [Exported::of(ClientId(1), Incarnation(9), &window), Exported::of(ClientId(2), Incarnation(8), &quiet)];
        let chunks = encode(&exported);
        assert!(chunks.len() > 1, "60,000 entries take more than one chunk");
        let mut back = Vec::new();
        chunks.iter().for_each(|chunk| decode(chunk, &mut back).expect("it is well-formed"));
        assert_eq!(back.len(), 2);
        for slot in [0, 31_000, 59_999] {
            let identity = RequestHeader::identity(slot, u64::from(slot) + 1);
            assert_eq!(back[0].window.claim(identity), Claim::Done(-1, slot));
        }
        assert_eq!(back[0].window.number(), window.number());
        for end in [1, HEAD_BYTES - 1, HEAD_BYTES + 1] {
            assert!(decode(&chunks[0][..end], &mut Vec::new()).is_none());
        }
        let mut hostile = chunks[0].clone();
        hostile[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(decode(&hostile, &mut Vec::new()).is_none());
    }
}
