//! Locked memory: what this process has registered, and the limit that it runs into. The kernel counts for each process,
//! over all its devices, and every registration of a page anew.

use crate::sync::{AtomicU64, Ordering};
use std::fs;

/// Bytes of all registrations of this process.
static BYTES: AtomicU64 = AtomicU64::new(0);

/// Bit of CAP_IPC_LOCK: who has it is not bound by the limit.
const CAP_IPC_LOCK: u32 = 14;

/// There are registrations of so many bytes more.
pub(super) fn add(bytes: u64) {
    BYTES.fetch_add(bytes, Ordering::Relaxed);
}

/// They are gone.
pub(super) fn remove(bytes: u64) {
    BYTES.fetch_sub(bytes, Ordering::Relaxed);
}

/// What is registered now.
pub(super) fn bytes() -> u64 {
    BYTES.load(Ordering::Relaxed)
}

/// Memory that this process may lock, in bytes; None when nothing limits it.
pub(super) fn limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is ours.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) } == 0;
    let binds = known && limit.rlim_cur != libc::RLIM_INFINITY;
    (binds && !may_lock_all(&fs::read_to_string("/proc/self/status").unwrap_or_default())).then_some(limit.rlim_cur)
}

fn may_lock_all(status: &str) -> bool {
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = effective.and_then(|word| u64::from_str_radix(word.trim(), 16).ok());
    bits.is_some_and(|bits| bits >> CAP_IPC_LOCK & 1 == 1)
}

/// How to have the limit raised to what is needed.
pub(super) fn cure(needed: u64) -> String {
    format!(
        "raise it with 'ulimit -l {}' or 'unlimited', in /etc/security/limits.conf (memlock), with \
         LimitMEMLOCK=infinity for a systemd unit, or --ulimit memlock=-1 for a container",
        needed.div_ceil(1024)
    )
}

/// What to look at when a driver had no memory for a queue: some lock the queues' memory, and do not say so.
pub(super) fn suspicion(limit: Option<u64>, registered: u64) -> String {
    limit.map_or_else(String::new, |limit| {
        format!(
            "; or it is the limit of locked memory, for some drivers lock their queues, too: it is {limit} bytes, and \
             {registered} are registered already; {}",
            cure(limit.max(registered).saturating_mul(2))
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capability_lifts_the_limit() {
        assert!(may_lock_all("Name:\tx\nCapEff:\t0000000000004000\nCapBnd:\t0\n"));
        for bound in ["", "CapEff:\t0000000000003fff\n", "CapEff:\tnone\n", "CapBnd:\t0000000000004000\n"] {
            assert!(!may_lock_all(bound), "{bound:?}");
        }
    }

    #[test]
    fn a_limit_is_named_with_what_is_registered_and_what_raises_it() {
        let told = suspicion(Some(65_536), 40_960);
        for word in ["limit of locked memory", "it is 65536 bytes", "40960 are registered already", "ulimit -l 128"] {
            assert!(told.contains(word), "{word:?} is not in: {told}");
        }
        assert_eq!(suspicion(None, 40_960), "");
    }
}
