//! A directory of checkpoints.

use reclane::checkpoint::disk::RealDisk;
use reclane::checkpoint::{Catalog, Found};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory of this test; gone afterwards.
pub struct Directory(pub PathBuf);

impl Directory {
    pub fn new() -> Directory {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("reclane-checkpoints-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory");
        Directory(path)
    }

    pub fn path(&self) -> &str {
        self.0.to_str().expect("UTF-8")
    }

    pub fn catalog(&self) -> Catalog {
        Catalog::new(self.path())
    }

    /// Epochs that are committed, newest first.
    pub fn committed(&self) -> Vec<u64> {
        let all = self.catalog().list(&RealDisk).expect("a list");
        let committed = |found: &Found| matches!(found.manifest, Ok(Some(_)));
        all.iter().filter(|found| committed(found)).map(|found| found.epoch).collect()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
