//! What the yardsticks take from the system: cores to stand on, memory to share, a second process.

use super::CHILD_COMMAND;
use reclane::error::{Error, Result, Status};
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::process::{Child, Command, Stdio};
use std::ptr::NonNull;

fn os_error(what: &str) -> Box<Error> {
    Error::os(what, &std::io::Error::last_os_error())
}

/// The processors that this process may use, lowest first.
pub fn cpus() -> Vec<usize> {
    // SAFETY: a cpu_set_t is a bit mask, and all zero is the empty one.
    let mut set: libc::cpu_set_t = unsafe { core::mem::zeroed() };
    // SAFETY: the set is ours and its size is the one that is passed.
    if unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) } != 0 {
        return Vec::new();
    }
    // SAFETY: the number is below CPU_SETSIZE, which is what the set holds.
    (0..libc::CPU_SETSIZE.unsigned_abs() as usize).filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) }).collect()
}

/// The cores of the two ends of a yardstick: `None` twice when there is one core only.
pub fn two_cpus() -> (Option<usize>, Option<usize>) {
    match cpus()[..] {
        [first, second, ..] => (Some(first), Some(second)),
        _ => (None, None),
    }
}

/// Binds the calling thread to a core.
///
/// # Errors
/// `OsError` when the core is not this process's to use.
pub fn pin(cpu: Option<usize>) -> Result<()> {
    let Some(cpu) = cpu else { return Ok(()) };
    // SAFETY: a cpu_set_t is a bit mask, and all zero is the empty one.
    let mut set: libc::cpu_set_t = unsafe { core::mem::zeroed() };
    // SAFETY: the set is ours; a number beyond its end is refused by the bound of the slice inside.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: 0 is the calling thread; the set is ours and its size is the one that is passed.
    if unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) } == 0 {
        Ok(())
    } else {
        Err(os_error(&format!("binding a thread to CPU {cpu}")))
    }
}

/// Runs `work` on a thread of its own that is bound to a core, so that the caller's threads stay where they are.
///
/// # Errors
/// What `work` returns; `OsError` when there is no such core or no thread.
pub fn on_cpu<T: Send>(cpu: Option<usize>, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("yardstick".to_owned())
            .spawn_scoped(scope, move || pin(cpu).and_then(|()| work()))
            .map_err(|e| Error::os("starting a thread for a yardstick", &e))?;
        thread.join().unwrap_or_else(|_| Err(Error::new(Status::InternalError, "a yardstick panicked")))
    })
}

/// Zeroed memory, mapped; unmapped when dropped.
#[derive(Debug)]
pub struct Memory {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to the whole process; what is read and written through it is the users' concern.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    fn map(bytes: usize, flags: libc::c_int, fd: libc::c_int) -> Result<Memory> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the system's choice touches no memory that is in use.
        let address = unsafe { libc::mmap(core::ptr::null_mut(), bytes, protection, flags, fd, 0) };
        if address == libc::MAP_FAILED {
            return Err(os_error(&format!("mapping {bytes} bytes")));
        }
        let start = NonNull::new(address.cast()).ok_or_else(|| os_error("mapping at address 0"))?;
        Ok(Memory { start, bytes })
    }

    /// Private memory, on huge pages where the system gives them.
    ///
    /// # Errors
    /// `OsError` when the memory cannot be had.
    pub fn private(bytes: usize) -> Result<Memory> {
        let memory = Memory::map(bytes, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1)?;
        // SAFETY: the range is the mapping just made; the call is advice, and its refusal costs only speed.
        unsafe { libc::madvise(memory.start.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
        Ok(memory)
    }

    /// New memory that can be shared by handing on the file.
    ///
    /// # Errors
    /// `OsError` when the memory cannot be had.
    pub fn shared(bytes: usize) -> Result<(Memory, File)> {
        // SAFETY: the name is a C string that outlives the call.
        let fd = unsafe { libc::memfd_create(c"reclane-yardstick".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(os_error("memfd_create"));
        }
        // SAFETY: the descriptor is new and nobody else's.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(bytes as u64).map_err(|e| Error::os(format!("sizing a memfd to {bytes} bytes"), &e))?;
        Ok((Memory::map(bytes, libc::MAP_SHARED, file.as_raw_fd())?, file))
    }

    /// The memory behind standard input.
    ///
    /// # Errors
    /// `OsError` when standard input is no such memory.
    pub fn inherited(bytes: usize) -> Result<Memory> {
        Memory::map(bytes, libc::MAP_SHARED, 0)
    }

    /// Start; valid for [`Memory::bytes`].
    pub fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Length.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping of `map`, which nobody can reach any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// A second process of this program: stopped while nothing is measured, killed when dropped.
#[derive(Debug)]
pub struct Companion(Child);

impl Companion {
    /// Starts this program again as the other end of a yardstick, with the shared memory as its standard input.
    ///
    /// # Errors
    /// `OsError` when the program cannot be started.
    pub fn start(role: &str, cpu: Option<usize>, memory: File) -> Result<Companion> {
        let program = std::env::current_exe().map_err(|e| Error::os("finding this program's own file", &e))?;
        let mut command = Command::new(program);
        command.args([CHILD_COMMAND, role, &cpu.map_or("-".to_owned(), |c| c.to_string())]);
        command.stdin(Stdio::from(memory)).stdout(Stdio::null());
        command.spawn().map(Companion).map_err(|e| Error::os("starting the other process of a yardstick", &e))
    }

    /// Lets it spin on.
    pub fn resume(&self) {
        self.signal(libc::SIGCONT);
    }

    /// Takes it off its core.
    pub fn stop(&self) {
        self.signal(libc::SIGSTOP);
    }

    fn signal(&self, signal: libc::c_int) {
        if let Ok(pid) = libc::pid_t::try_from(self.0.id()) {
            // SAFETY: takes no pointer; the child is not reaped before drop, so the number is not another process's.
            unsafe { libc::kill(pid, signal) };
        }
    }
}

impl Drop for Companion {
    fn drop(&mut self) {
        // It may have ended by itself, and then there is nothing to kill.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Makes this process end with its parent.
pub fn end_with_parent() {
    // SAFETY: sets a flag of this process; takes no pointer.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_memory_is_shared() {
        let (memory, file) = Memory::shared(4096).unwrap();
        let twin = Memory::map(4096, libc::MAP_SHARED, file.as_raw_fd()).unwrap();
        // SAFETY: both mappings hold 4096 bytes and no other thread knows them.
        unsafe { memory.start().write_volatile(7) };
        // SAFETY: as above.
        assert_eq!(unsafe { twin.start().read_volatile() }, 7);
        assert_eq!(memory.bytes(), 4096);
    }

    #[test]
    fn a_pinned_thread_has_one_cpu() {
        let first = cpus()[0];
        assert_eq!(on_cpu(Some(first), || Ok(cpus())).unwrap(), [first]);
        assert!(on_cpu(Some(libc::CPU_SETSIZE.unsigned_abs() as usize - 1), || Ok(())).is_err());
    }
}
