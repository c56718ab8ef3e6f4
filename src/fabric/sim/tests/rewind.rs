//! Packet numbers that two ends do not agree on: what a device says then, and what a probe must be to notice.

use super::open;
use crate::fabric::conformance::pair::{PATIENCE, Pair};
use crate::fabric::sim::qp::check;
use crate::fabric::sim::{Net, Policy, Sim};
use crate::fabric::{Qp, QpAddress, WcStatus, WorkOp};
use crate::sync::{Arc, OnceLock, Ordering};

fn fabric() -> Sim {
    static NET: OnceLock<Arc<Net>> = OnceLock::new();
    open(&NET, Policy::calm)
}

/// The address with its first packet number moved on.
fn moved(address: &QpAddress, by: u32) -> QpAddress {
    let mut bytes = address.0.clone();
    let psn = u32::from_le_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]).wrapping_add(by) & 0x00ff_ffff;
    bytes[12..16].copy_from_slice(&psn.to_le_bytes());
    let end = bytes.len() - 4;
    let sum = check(&bytes[..end]);
    bytes[end..].copy_from_slice(&sum.to_le_bytes());
    QpAddress(bytes)
}

/// `a` sends numbers that `b` takes for old ones, so many.
fn rewound(by: u32) -> Pair<Sim> {
    let pair = Pair::new(&fabric);
    pair.a.qp.connect(&pair.b.qp.address(), PATIENCE).expect("a connects");
    pair.b.qp.connect(&moved(&pair.a.qp.address(), by), PATIENCE).expect("b connects");
    pair
}

/// A rewound sender is told SUCCESS and nothing is done, so neither a write's completion nor a write of no bytes proves
/// anything. A nonce that is written and found at the other end does.
#[test]
fn a_rewound_connection_acknowledges_what_it_does_not_do_and_only_a_nonce_shows_it() {
    // As a probe this passes.
    let pair = rewound(1);
    assert_eq!(pair.a.outcome(WorkOp::Write, 0, pair.b.at(64)), WcStatus::Success);
    let pair = rewound(1);
    let (a, b) = (&pair.a, &pair.b);
    b.word(64).store(1, Ordering::Relaxed);
    a.staged(0).store(0x0123_4567_89ab_cdef, Ordering::Relaxed);
    assert_eq!(a.outcome(WorkOp::Write, 8, b.at(64)), WcStatus::Success);
    assert_eq!(b.word(64).load(Ordering::Relaxed), 1, "it was acknowledged and not done");
    // Reading back shows it, and so does the other end's own look.
    a.run(WorkOp::Read, 8, b.at(64));
    assert_eq!(a.staged(0).load(Ordering::Relaxed), 1);
    // The numbers have met by now: from here on all is done, and nobody was ever told.
    a.staged(0).store(77, Ordering::Relaxed);
    a.run(WorkOp::Write, 8, b.at(64));
    assert_eq!(b.word(64).load(Ordering::Relaxed), 77);
}

/// A sender that is ahead is refused until it gives up: no success, and no effect.
#[test]
fn a_connection_that_is_ahead_fails() {
    let pair = rewound(0x00ff_fff0);
    let (a, b) = (&pair.a, &pair.b);
    b.word(64).store(1, Ordering::Relaxed);
    a.staged(0).store(2, Ordering::Relaxed);
    assert_ne!(a.outcome(WorkOp::Write, 8, b.at(64)), WcStatus::Success);
    assert_eq!(b.word(64).load(Ordering::Relaxed), 1);
}
