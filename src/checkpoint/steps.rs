//! Labelled steps: where a test stops the world.
//!
//! Each place at which a process may die with a different outcome says its label. A test sets a hook that kills the
//! process at one of them. Without a hook a step is one load.

use crate::sync::OnceLock;

/// Every label, in the order in which a checkpoint and a restore pass them.
pub const LABELS: &[&str] = &[
    "epoch-promised",
    "prepared",
    "space-allocated",
    "held",
    "cut",
    "captured",
    "resumed",
    "file-written",
    "file-synced",
    "file-renamed",
    "durable",
    "manifest-written",
    "manifest-renamed",
    "committed",
    "collected",
    "restore-chosen",
    "restore-verified",
    "restore-fenced",
    "restore-filled",
];

type Hook = Box<dyn Fn(&'static str) + Send + Sync>;
static HOOK: OnceLock<Hook> = OnceLock::new();

/// Calls `hook` at each step from now on, in whatever thread passes it. Once per process; for tests. False: there was
/// one already.
pub fn set_hook(hook: impl Fn(&'static str) + Send + Sync + 'static) -> bool {
    HOOK.set(Box::new(hook)).is_ok()
}

/// This step is passed.
pub fn at(label: &'static str) {
    debug_assert!(LABELS.contains(&label), "step {label} is not in the list");
    if let Some(hook) = HOOK.get() {
        hook(label);
    }
}
