//! A container is any bytes: opened and read whole, it is refused or good.
#![no_main]

use libfuzzer_sys::fuzz_target;
use reclane::checkpoint::disk::{Disk, DiskFile};
use reclane::checkpoint::Container;
use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};

/// A disk with one file.
#[derive(Clone, Debug)]
struct One(Vec<u8>);

fn no<T>() -> Result<T> {
    Err(Error::from(ErrorKind::Unsupported))
}

impl DiskFile for One {
    fn allocate(&self, _: u64) -> Result<()> {
        no()
    }
    fn write_at(&self, _: u64, _: &[u8]) -> Result<()> {
        no()
    }
    fn set_len(&self, _: u64) -> Result<()> {
        no()
    }
    fn sync(&self) -> Result<()> {
        no()
    }
    fn read_at(&self, at: u64, bytes: &mut [u8]) -> Result<()> {
        let found = usize::try_from(at).ok().and_then(|at| self.0.get(at..at.checked_add(bytes.len())?));
        bytes.copy_from_slice(found.ok_or_else(|| Error::from(ErrorKind::UnexpectedEof))?);
        Ok(())
    }
    fn bytes(&self) -> Result<u64> {
        Ok(self.0.len() as u64)
    }
}

impl Disk for One {
    fn make_dir(&self, _: &Path) -> Result<()> {
        no()
    }
    fn create(&self, _: &Path) -> Result<Box<dyn DiskFile>> {
        no()
    }
    fn open(&self, path: &Path) -> Result<Box<dyn DiskFile>> {
        if path == Path::new("it") { Ok(Box::new(self.clone())) } else { no() }
    }
    fn rename(&self, _: &Path, _: &Path) -> Result<()> {
        no()
    }
    fn sync_dir(&self, _: &Path) -> Result<()> {
        no()
    }
    fn list(&self, _: &Path) -> Result<Vec<String>> {
        no()
    }
    fn remove_file(&self, _: &Path) -> Result<()> {
        no()
    }
    fn remove_dir(&self, _: &Path) -> Result<()> {
        no()
    }
}

fuzz_target!(|data: &[u8]| {
    let elsewhere = |_| PathBuf::from("elsewhere");
    if let Ok(container) = Container::open(&One(data.to_vec()), Path::new("it"), &elsewhere) {
        let _ = container.verify();
    }
});
