//! What a deployment tells of itself: counters files, metrics, profiles, status. Servers and clients are processes of
//! their own, for they are stopped and killed.

mod child;
#[cfg(feature = "command")]
mod command;
mod files;
mod http;
mod numbers;
mod profiles;
#[path = "../kills/rows.rs"]
#[allow(dead_code)] // shared with tests/kills, which uses all of it
mod rows;
#[path = "../kills/support.rs"]
#[allow(dead_code)] // as above
mod support;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// The other processes of a test.
#[test]
fn child() {
    child::play();
}

/// A directory of a test's own, on a memory file system where there is one.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let shm = PathBuf::from("/dev/shm");
        let base = if shm.is_dir() { shm } else { std::env::temp_dir() };
        let name = format!("reclane-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = base.join(name);
        std::fs::create_dir_all(&path).expect("a directory");
        Folder(path)
    }

    fn text(&self) -> String {
        self.0.display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
