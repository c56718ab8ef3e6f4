//! A disk in memory that remembers what it was told and when it was told to keep it, and can be full, fail, or lose its
//! power: for tests and for simulated deployments.

use super::disk::{Disk, DiskFile};
use crate::sync::{Arc, Mutex, lock};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

/// One thing that was done. Files are numbers: the order of their making.
#[derive(Clone, Debug)]
pub enum Op {
    /// A directory was made.
    MakeDir(PathBuf),
    /// A file was made.
    Create(PathBuf, usize),
    /// Bytes were written at a place.
    Write(usize, u64, Vec<u8>),
    /// A length was set.
    SetLen(usize, u64),
    /// A file was synced.
    Sync(usize),
    /// A file got another name.
    Rename(PathBuf, PathBuf),
    /// A directory was synced.
    SyncDir(PathBuf),
    /// A file was removed.
    Remove(PathBuf),
    /// A directory was removed.
    RemoveDir(PathBuf),
}

/// What is on the disk.
#[derive(Clone, Debug, Default)]
struct Held {
    names: BTreeMap<PathBuf, usize>,
    dirs: BTreeSet<PathBuf>,
    contents: Vec<Vec<u8>>,
}

#[derive(Debug, Default)]
struct State {
    held: Held,
    /// What was there when the power came.
    base: Held,
    log: Vec<Op>,
    /// Number of the operation that fails, and how.
    fault: Option<(usize, i32)>,
    /// Bytes that `allocate` has left.
    room: Option<u64>,
    /// So many operations go through before whoever does them is dead.
    dying: Option<usize>,
    /// It says that files are synced and does nothing of the kind.
    lies: bool,
}

impl State {
    fn step(&mut self, op: Op) -> io::Result<()> {
        match &mut self.dying {
            Some(0) => return Err(io::Error::from_raw_os_error(libc::EIO)),
            Some(left) => *left -= 1,
            None => {}
        }
        if let Some((at, errno)) = self.fault
            && at == self.log.len()
        {
            self.fault = None;
            return Err(io::Error::from_raw_os_error(errno));
        }
        self.log.push(op);
        Ok(())
    }
}

impl Held {
    fn write(&mut self, file: usize, at: u64, bytes: &[u8]) {
        let at = place(at);
        let contents = &mut self.contents[file];
        if contents.len() < at + bytes.len() {
            contents.resize(at + bytes.len(), 0);
        }
        contents[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

/// Files here fit memory.
fn place(at: u64) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX)
}

/// The disk. Clones are the same disk.
#[derive(Clone, Debug, Default)]
pub struct ModelDisk(Arc<Mutex<State>>);

#[derive(Debug)]
struct ModelFile(Arc<Mutex<State>>, usize);

fn missing() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOENT)
}

impl ModelDisk {
    /// So many operations were done.
    #[must_use]
    pub fn steps(&self) -> usize {
        lock(&self.0).log.len()
    }

    /// What was done.
    #[must_use]
    pub fn log(&self) -> Vec<Op> {
        lock(&self.0).log.clone()
    }

    /// Lets one operation fail.
    pub fn fail_at(&self, step: usize, errno: i32) {
        lock(&self.0).fault = Some((step, errno));
    }

    /// Lets `allocate` find so much room.
    pub fn leave_room(&self, bytes: u64) {
        lock(&self.0).room = Some(bytes);
    }

    /// Every file's name and contents.
    #[must_use]
    pub fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let state = lock(&self.0);
        state.held.names.iter().map(|(path, file)| (path.clone(), state.held.contents[*file].clone())).collect()
    }

    /// Puts a file there, past all rules.
    pub fn put(&self, path: &Path, bytes: &[u8]) {
        let mut state = lock(&self.0);
        let file = state.held.contents.len();
        state.held.contents.push(bytes.to_vec());
        state.held.names.insert(path.to_owned(), file);
        let mut dir = path.parent();
        while let Some(one) = dir {
            state.held.dirs.insert(one.to_owned());
            dir = one.parent();
        }
    }

    /// From now on only so many operations have an effect; the rest fail, until [`ModelDisk::revive`]. What a process
    /// does that is killed in the middle.
    pub fn die_after(&self, operations: usize) {
        lock(&self.0).dying = Some(operations);
    }

    /// From now on files are said to be synced and are not, or are again.
    pub fn lie(&self, lies: bool) {
        lock(&self.0).lies = lies;
    }

    /// Operations have an effect again, and no fault is left over.
    pub fn revive(&self) {
        let mut state = lock(&self.0);
        (state.dying, state.fault, state.room) = (None, None, None);
    }

    /// Flips a bit of a file, counted on from its beginning. False: there is no such file, or it is empty.
    pub fn damage(&self, path: &Path, bit: u64) -> bool {
        let mut state = lock(&self.0);
        let Some(file) = state.held.names.get(path).copied() else { return false };
        let contents = &mut state.held.contents[file];
        let bits = contents.len() as u64 * 8;
        if bits == 0 {
            return false;
        }
        let at = (bit % bits) / 8;
        contents[place(at)] ^= 1 << (bit % 8);
        let byte = contents[place(at)];
        // It lasts, as what was synced does.
        state.log.extend([Op::Write(file, at, vec![byte]), Op::Sync(file)]);
        true
    }

    /// What another power-on might find after the first `steps` operations. `keeps` is asked, for each thing that was not
    /// made to last, whether it did.
    #[must_use]
    pub fn after_power_cut(&self, steps: usize, keeps: &mut dyn FnMut() -> bool) -> ModelDisk {
        let state = lock(&self.0);
        let log = &state.log[..steps];
        let mut left = state.base.clone();
        let files = log.iter().filter(|op| matches!(op, Op::Create(..))).count();
        left.contents.resize(left.contents.len() + files, Vec::new());
        for at in 0..log.len() {
            left.again(log, at, keeps);
        }
        // A file is there only if the directories above it are.
        let dirs = left.dirs.clone();
        left.names.retain(|path, _| path.parent().is_some_and(|parent| dirs.contains(parent)));
        let state = State { held: left.clone(), base: left, ..State::default() };
        ModelDisk(Arc::new(Mutex::new(state)))
    }
}

impl Held {
    /// The effect that an operation has had on what is found after a power cut.
    fn again(&mut self, log: &[Op], at: usize, keeps: &mut dyn FnMut() -> bool) {
        let rest = &log[at..];
        let synced = |file: usize| rest.iter().any(|op| matches!(op, Op::Sync(other) if *other == file));
        let kept = |dir: Option<&Path>| rest.iter().any(|op| matches!(op, Op::SyncDir(d) if Some(d.as_path()) == dir));
        match &log[at] {
            Op::Write(file, place, bytes) => {
                if synced(*file) || keeps() {
                    self.write(*file, *place, bytes);
                } else if keeps() {
                    self.write(*file, *place, &bytes[..bytes.len() / 2]);
                }
            }
            Op::SetLen(file, bytes) => {
                if synced(*file) || keeps() {
                    self.contents[*file].resize(place(*bytes), 0);
                }
            }
            Op::MakeDir(dir) => {
                if kept(dir.parent()) || keeps() {
                    self.dirs.insert(dir.clone());
                }
            }
            Op::Create(path, file) => {
                if kept(path.parent()) || keeps() {
                    self.names.insert(path.clone(), *file);
                }
            }
            Op::Rename(from, to) => {
                let made = log[..at].iter().rev().find_map(|op| match op {
                    Op::Create(path, file) if path == from => Some(*file),
                    _ => None,
                });
                let file = made.or_else(|| self.names.get(from).copied());
                if kept(to.parent()) || keeps() {
                    self.names.remove(from);
                    self.names.extend(file.map(|file| (to.clone(), file)));
                }
            }
            Op::Remove(path) => {
                if kept(path.parent()) || keeps() {
                    self.names.remove(path);
                }
            }
            Op::RemoveDir(path) => {
                if kept(path.parent()) || keeps() {
                    self.dirs.remove(path);
                }
            }
            Op::Sync(_) | Op::SyncDir(_) => {}
        }
    }
}

impl DiskFile for ModelFile {
    fn allocate(&self, bytes: u64) -> io::Result<()> {
        match &mut lock(&self.0).room {
            Some(room) if *room < bytes => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
            _ => Ok(()),
        }
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = lock(&self.0);
        state.step(Op::Write(self.1, at, bytes.to_vec()))?;
        state.held.write(self.1, at, bytes);
        Ok(())
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        let mut state = lock(&self.0);
        state.step(Op::SetLen(self.1, bytes))?;
        state.held.contents[self.1].resize(place(bytes), 0);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = lock(&self.0);
        if state.lies { Ok(()) } else { state.step(Op::Sync(self.1)) }
    }

    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        let state = lock(&self.0);
        let at = usize::try_from(at).map_err(|_| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        let found = at.checked_add(bytes.len()).and_then(|end| state.held.contents[self.1].get(at..end));
        bytes.copy_from_slice(found.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?);
        Ok(())
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(lock(&self.0).held.contents[self.1].len() as u64)
    }
}

impl Disk for ModelDisk {
    fn make_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = lock(&self.0);
        let mut above: Vec<PathBuf> = path.ancestors().map(Path::to_owned).collect();
        above.reverse();
        for dir in above {
            if !state.held.dirs.contains(&dir) {
                state.step(Op::MakeDir(dir.clone()))?;
                state.held.dirs.insert(dir);
            }
        }
        Ok(())
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut state = lock(&self.0);
        if state.held.names.contains_key(path) {
            return Err(io::Error::from_raw_os_error(libc::EEXIST));
        }
        let file = state.held.contents.len();
        state.step(Op::Create(path.to_owned(), file))?;
        state.held.contents.push(Vec::new());
        state.held.names.insert(path.to_owned(), file);
        Ok(Box::new(ModelFile(Arc::clone(&self.0), file)))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let file = lock(&self.0).held.names.get(path).copied().ok_or_else(missing)?;
        Ok(Box::new(ModelFile(Arc::clone(&self.0), file)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = lock(&self.0);
        let file = state.held.names.get(from).copied().ok_or_else(missing)?;
        state.step(Op::Rename(from.to_owned(), to.to_owned()))?;
        state.held.names.remove(from);
        state.held.names.insert(to.to_owned(), file);
        Ok(())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        lock(&self.0).step(Op::SyncDir(path.to_owned()))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let state = lock(&self.0);
        if !state.held.dirs.contains(path) {
            return Err(missing());
        }
        let paths = state.held.names.keys().chain(&state.held.dirs).filter(|one| one.parent() == Some(path));
        Ok(paths.filter_map(|one| one.file_name()?.to_str().map(str::to_owned)).collect())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut state = lock(&self.0);
        if !state.held.names.contains_key(path) {
            return Err(missing());
        }
        state.step(Op::Remove(path.to_owned()))?;
        state.held.names.remove(path);
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = lock(&self.0);
        if state.held.names.keys().any(|one| one.parent() == Some(path)) {
            return Err(io::Error::from_raw_os_error(libc::ENOTEMPTY));
        }
        state.step(Op::RemoveDir(path.to_owned()))?;
        state.held.dirs.remove(path);
        Ok(())
    }
}
