//! Counters files in their directory: made, found, read, and cleared away when their process is gone.
//!
//! A process holds a lock on its file as long as it lives; the kernel lets go of it, however the process ends. A process
//! that stands still keeps it. A closed client or server removes its file; what a killed one leaves is there to be read,
//! until another process takes its place twice over, or `reclane status --clean` is called.

use super::layout::{self, FILE_BYTES_MAX, Head, Series};
use super::sample::{Sample, samples};
use crate::error::{Error, Result, Status};
use crate::sync::{AtomicU64, Ordering};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// What counters files end with.
pub const SUFFIX: &str = ".counters";
/// Most entries of a directory that are looked at.
const FILES_MAX: usize = 65_536;

/// A file of this process, locked; removed when dropped.
#[derive(Debug)]
pub struct Owned {
    path: PathBuf,
    file: File,
    pid: u32,
}

impl Owned {
    /// Where it lies.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // A forked child has a copy of this value, and the file is not its own.
        if self.pid == std::process::id() {
            // Somebody else may have removed it.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Makes the file of a process. Files of its dead predecessors are removed, but for the last one.
///
/// # Errors
/// `OsError` naming the file.
pub fn create(folder: &str, head: &Head, bytes: usize) -> Result<Owned> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let failed =
        |what: &Path, source: &std::io::Error| Error::os(format!("metrics-directory: {}", what.display()), source);
    let folder = Path::new(folder);
    let made = DirBuilder::new().recursive(true).mode(0o755).create(folder);
    made.map_err(|source| failed(folder, &source))?;
    forget_predecessors(folder, head);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name =
        format!("{}.{}.{}-{}.{}.{number}", head.deployment, head.namespace, head.role.word(), head.number, head.pid);
    let (path, draft) = (folder.join(format!("{name}{SUFFIX}")), folder.join(format!(".{name}.draft")));
    // What a process of the same pid left half-made, long ago.
    let _ = std::fs::remove_file(&draft);
    let mut how = OpenOptions::new();
    how.read(true).write(true).create_new(true).mode(0o644).custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC);
    let file = how.open(&draft).map_err(|source| failed(&draft, &source))?;
    let owned = Owned { path: draft, file, pid: std::process::id() };
    let length = libc::off_t::try_from(bytes).unwrap_or(libc::off_t::MAX);
    // SAFETY: plain system calls on a descriptor that is open. Room is taken now: a full disk must not show when the
    // memory is touched.
    let code = unsafe {
        match libc::flock(owned.file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) {
            0 => libc::posix_fallocate(owned.file.as_raw_fd(), 0, length),
            _ => libc::EWOULDBLOCK,
        }
    };
    if code != 0 {
        return Err(failed(&owned.path, &std::io::Error::from_raw_os_error(code)));
    }
    // It is seen by others only now that it is locked: whoever finds it without a lock may remove it.
    std::fs::rename(&owned.path, &path).map_err(|source| failed(&path, &source))?;
    let mut owned = owned;
    owned.path = path;
    Ok(owned)
}

/// What is known of the process of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// It runs.
    Running,
    /// It was stopped by a signal or a debugger.
    Stopped,
    /// It is gone.
    Dead,
}

impl Life {
    /// Its word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Life::Running => "running",
            Life::Stopped => "stopped",
            Life::Dead => "dead",
        }
    }
}

/// A counters file, read.
#[derive(Clone, Debug)]
pub struct Report {
    /// Whose it is.
    pub head: Head,
    /// Whether that process lives.
    pub life: Life,
    /// Its numbers.
    pub samples: Vec<Sample>,
}

/// Reads a counters file.
///
/// # Errors
/// `OsError`, or `InvalidArgument` that says what is wrong with it; both name the file.
pub fn read(path: &Path) -> Result<Report> {
    let (file, head, series, words) = open(path)?;
    Ok(Report { life: life(&file, &head), samples: samples(&words, &series), head })
}

fn open(path: &Path) -> Result<(File, Head, Vec<Series>, Vec<u64>)> {
    let failed = |source: &std::io::Error| Error::os(format!("the counters file {}", path.display()), source);
    let bad = |why: String| {
        Error::new(
            Status::InvalidArgument,
            format!("the counters file {}: {why}; remove it if it is not needed", path.display()),
        )
    };
    let mut how = OpenOptions::new();
    // Not waiting for the writer of a pipe.
    how.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK);
    let mut file = how.open(path).map_err(|source| failed(&source))?;
    let about = file.metadata().map_err(|source| failed(&source))?;
    if !about.is_file() || about.len() > FILE_BYTES_MAX || about.len() % 8 != 0 {
        let what = if about.is_file() { format!("it has {} bytes", about.len()) } else { "it is no file".to_owned() };
        return Err(bad(format!("{what}; at most {FILE_BYTES_MAX} in words of 8 are read")));
    }
    let mut bytes = Vec::new();
    (&mut file).take(FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(|source| failed(&source))?;
    let words: Vec<u64> = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let (head, series) = layout::decode(&words).map_err(|error| bad(error.message))?;
    Ok((file, head, series, words))
}

/// The counters files of a directory, by path, each read or with the reason why not.
///
/// # Errors
/// `OsError` naming the directory.
pub fn list(folder: &Path) -> Result<Vec<(PathBuf, Result<Report>)>> {
    Ok(paths(folder)?.into_iter().map(|path| (path.clone(), read(&path))).collect())
}

/// Removes the files of processes that are gone; which. Files that cannot be read stay.
///
/// # Errors
/// `OsError` naming the directory or a file that cannot be removed.
pub fn clean(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut removed = Vec::new();
    for path in paths(folder)? {
        if let Ok((file, head, ..)) = open(&path)
            && life(&file, &head) == Life::Dead
        {
            std::fs::remove_file(&path)
                .map_err(|source| Error::os(format!("removing the counters file {}", path.display()), &source))?;
            removed.push(path);
        }
    }
    Ok(removed)
}

fn paths(folder: &Path) -> Result<Vec<PathBuf>> {
    let failed = |source: &std::io::Error| Error::os(format!("the directory {}", folder.display()), source);
    let entries = std::fs::read_dir(folder).map_err(|source| failed(&source))?;
    let mut paths = Vec::new();
    for entry in entries.take(FILES_MAX) {
        let path = entry.map_err(|source| failed(&source))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.ends_with(SUFFIX) && !name.starts_with('.') {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// A process that is killed and started again leaves a file each time: the last one is kept, to be looked into.
fn forget_predecessors(folder: &Path, head: &Head) {
    let mut dead: Vec<(u64, PathBuf)> = Vec::new();
    for path in paths(folder).unwrap_or_default() {
        let Ok((file, theirs, ..)) = open(&path) else { continue };
        let same = (&theirs.deployment, &theirs.namespace, theirs.role, theirs.number)
            == (&head.deployment, &head.namespace, head.role, head.number);
        if same && life(&file, &theirs) == Life::Dead {
            dead.push((theirs.created_us, path));
        }
    }
    dead.sort();
    dead.pop();
    for (_, path) in dead {
        // Another process may have been faster.
        let _ = std::fs::remove_file(path);
    }
}

/// Whether the process of an open counters file lives.
fn life(file: &File, head: &Head) -> Life {
    // SAFETY: a plain system call on a descriptor that is open; closing it lets go of the lock.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_SH | libc::LOCK_NB) } == 0 {
        // SAFETY: as above.
        unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_UN) };
        return Life::Dead;
    }
    if head.pid_namespace != pid_namespace() {
        return Life::Running;
    }
    // A forked child keeps its parent's lock: the process itself is asked for as well.
    match process(head.pid) {
        Some((_, start)) if start != head.start_ticks => Life::Dead,
        Some((b'T' | b't', _)) => Life::Stopped,
        Some((b'Z' | b'X', _)) | None => Life::Dead,
        Some(_) => Life::Running,
    }
}

/// The number of this process's pid namespace; 0 when it is not known.
#[must_use]
pub fn pid_namespace() -> u64 {
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |about| about.ino())
}

/// When this process was started, in the kernel's ticks; 0 when it is not known.
#[must_use]
pub fn start_ticks() -> u64 {
    process(std::process::id()).map_or(0, |(_, start)| start)
}

/// State and start of a process.
fn process(pid: u32) -> Option<(u8, u64)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may hold anything.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = *fields.next()?.as_bytes().first()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}
