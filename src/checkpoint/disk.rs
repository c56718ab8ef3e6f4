//! The door to files. Checkpoints go through it, so that a test can play a disk that forgets what was not synced, is
//! full, or fails.

use core::fmt::Debug;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;

/// An open file. Threads: any.
pub trait DiskFile: Send + Sync + Debug {
    /// Sets blocks aside, so that a full disk shows now. Grows the file.
    ///
    /// # Errors
    /// As the system says; `Ok` where the file system has no such thing.
    fn allocate(&self, bytes: u64) -> io::Result<()>;
    /// Writes all of it at a place.
    ///
    /// # Errors
    /// As the system says.
    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()>;
    /// Makes the file this long.
    ///
    /// # Errors
    /// As the system says.
    fn set_len(&self, bytes: u64) -> io::Result<()>;
    /// Contents and length are on the disk when this returns. A failure is final for the file: what was not written may
    /// be forgotten, and a second call may say that all is well.
    ///
    /// # Errors
    /// As the system says.
    fn sync(&self) -> io::Result<()>;
    /// Reads exactly as much.
    ///
    /// # Errors
    /// As the system says; `UnexpectedEof`.
    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()>;
    /// Its length.
    ///
    /// # Errors
    /// As the system says.
    fn bytes(&self) -> io::Result<u64>;
    /// Tells the system to begin writing out; only a hint.
    fn start_writing(&self, _at: u64, _bytes: u64) {}
}

/// A file system.
pub trait Disk: Send + Sync + Debug {
    /// Makes a directory if there is none, with those above it.
    ///
    /// # Errors
    /// As the system says.
    fn make_dir(&self, path: &Path) -> io::Result<()>;
    /// Makes a file that is not there yet.
    ///
    /// # Errors
    /// As the system says.
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;
    /// Opens a file for reading.
    ///
    /// # Errors
    /// As the system says.
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;
    /// Gives a file another name, in one step.
    ///
    /// # Errors
    /// As the system says.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// The names in a directory are on the disk when this returns.
    ///
    /// # Errors
    /// As the system says.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// Names in a directory, in no order; those that are not UTF-8 are left out.
    ///
    /// # Errors
    /// As the system says.
    fn list(&self, path: &Path) -> io::Result<Vec<String>>;
    /// Removes a file.
    ///
    /// # Errors
    /// As the system says.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty directory.
    ///
    /// # Errors
    /// As the system says.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
}

/// The real one.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

impl DiskFile for File {
    fn allocate(&self, bytes: u64) -> io::Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let Ok(length) = libc::off_t::try_from(bytes) else {
            return Err(io::Error::from_raw_os_error(libc::EFBIG));
        };
        loop {
            // SAFETY: the descriptor is open as long as `self`; no memory is touched.
            if unsafe { libc::fallocate(self.as_raw_fd(), 0, 0, length) } == 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::EOPNOTSUPP | libc::ENOSYS) => return Ok(()),
                _ => return Err(error),
            }
        }
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, at)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        File::set_len(self, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(bytes, at)
    }

    fn bytes(&self) -> io::Result<u64> {
        self.metadata().map(|metadata| metadata.len())
    }

    fn start_writing(&self, at: u64, bytes: u64) {
        let (Ok(at), Ok(bytes)) = (libc::off64_t::try_from(at), libc::off64_t::try_from(bytes)) else { return };
        // SAFETY: as in `allocate`. A refusal does no harm.
        unsafe { libc::sync_file_range(self.as_raw_fd(), at, bytes, libc::SYNC_FILE_RANGE_WRITE) };
    }
}

impl Disk for RealDisk {
    fn make_dir(&self, path: &Path) -> io::Result<()> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
        Ok(Box::new(file))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        // Not blocking on what is no file, a pipe say.
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
        }
        Ok(Box::new(file))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(path)? {
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_dir(path)
    }
}
