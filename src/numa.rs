//! Where on a machine with several memory nodes our memory comes from.

use crate::error::{Error, Result, Status};
use core::ptr::NonNull;

/// `MPOL_PREFERRED`: from this node, and from others when it has none left.
const PREFERRED: libc::c_int = 1;
/// More nodes than Linux can have.
const NODES_MAX: usize = 1024;
const WORD_BITS: usize = libc::c_ulong::BITS as usize;

type Mask = [libc::c_ulong; NODES_MAX / WORD_BITS];

fn mask_of(node: u32) -> Mask {
    let mut mask = [0; NODES_MAX / WORD_BITS];
    let node = node as usize;
    if let Some(word) = mask.get_mut(node / WORD_BITS) {
        *word = 1 << (node % WORD_BITS);
    }
    mask
}

/// Nodes of a list such as `0-3,8`; None when it is none.
fn nodes_of(list: &str) -> Option<Vec<u32>> {
    let mut nodes = Vec::new();
    for part in list.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
        nodes.extend((first..=last).take(NODES_MAX));
    }
    Some(nodes)
}

/// Refuses a node that has no memory here, or cannot be asked for.
///
/// # Errors
/// `OptionBounds` naming the nodes that there are; `OsError` when this system takes no wishes about memory.
pub fn check(node: Option<u32>) -> Result<()> {
    let Some(node) = node else { return Ok(()) };
    let list = std::fs::read_to_string("/sys/devices/system/node/has_memory").unwrap_or_default();
    let nodes = nodes_of(&list).unwrap_or_default();
    if !nodes.contains(&node) {
        let there = if nodes.is_empty() { "none that the system names".to_owned() } else { list.trim().to_owned() };
        let message = format!("numa-id={node}: this machine has no such node with memory; it has {there}; use auto");
        return Err(Error::new(Status::OptionBounds, message));
    }
    with_policy(PREFERRED, &mask_of(node), || ()).map_err(|source| {
        Error::os(format_args!("numa-id={node}: this process may not choose where its memory comes from"), &source)
    })
}

/// Runs `body`, whose memory comes from `node` when it is touched for the first time by this thread.
pub fn on<T>(node: Option<u32>, body: impl Fn() -> T) -> T {
    let Some(node) = node else { return body() };
    // `check` found that it works; a policy that fails all the same costs speed, not correctness.
    with_policy(PREFERRED, &mask_of(node), &body).unwrap_or_else(|_| body())
}

/// Wishes that pages of a mapping that nobody has touched yet come from `node`, whoever touches them.
pub fn prefer(node: Option<u32>, base: NonNull<u8>, bytes: usize) {
    let Some(node) = node else { return };
    let mask = mask_of(node);
    // SAFETY: the kernel reads the mask, and changes no memory: no flag asks for pages to be moved. A refusal, for a range
    // that is not page-aligned say, leaves things as they were.
    let _ = unsafe { libc::syscall(libc::SYS_mbind, base.as_ptr(), bytes, PREFERRED, mask.as_ptr(), NODES_MAX, 0) };
}

fn with_policy<T>(mode: libc::c_int, mask: &Mask, body: impl FnOnce() -> T) -> std::io::Result<T> {
    let (mut mode_before, mut mask_before): (libc::c_int, Mask) = (0, [0; NODES_MAX / WORD_BITS]);
    let done = |result: libc::c_long| if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) };
    // SAFETY: both places are writable and as large as said; no address is asked about.
    done(unsafe {
        let (mode, mask) = (&raw mut mode_before, mask_before.as_mut_ptr());
        libc::syscall(libc::SYS_get_mempolicy, mode, mask, NODES_MAX, 0, 0)
    })?;
    // SAFETY: the kernel reads the mask; this thread's policy alone is changed.
    done(unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, mask.as_ptr(), NODES_MAX) })?;
    let result = body();
    // SAFETY: as above. What was the policy before can be it again.
    let _ = unsafe { libc::syscall(libc::SYS_set_mempolicy, mode_before, mask_before.as_ptr(), NODES_MAX) };
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_nodes_are_read() {
        assert_eq!(nodes_of("0\n"), Some(vec![0]));
        assert_eq!(nodes_of("0-2,5"), Some(vec![0, 1, 2, 5]));
        assert_eq!(nodes_of(""), Some(Vec::new()));
        assert_eq!(nodes_of("zero"), None);
        assert_eq!(nodes_of("0-"), None);
    }

    #[test]
    fn masks_have_one_bit() {
        assert_eq!((mask_of(0)[0], mask_of(65)[1], mask_of(1023)[15]), (1, 2, 1 << 63));
        assert_eq!(mask_of(4096), [0; NODES_MAX / WORD_BITS]);
    }

    #[test]
    fn a_node_that_is_not_there_is_refused_with_those_that_are() {
        let error = check(Some(1023)).expect_err("no machine of ours has so many");
        assert_eq!(error.status, Status::OptionBounds);
        assert!(error.message.contains("numa-id=1023"), "{error}");
        assert!(check(None).is_ok());
    }
}
