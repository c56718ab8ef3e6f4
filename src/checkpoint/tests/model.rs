//! A disk in memory that remembers what it was told and when it was told to keep it, and can be full or fail.

use crate::checkpoint::disk::{Disk, DiskFile};
use crate::sync::{Arc, Mutex, lock};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

/// One thing that was done.
#[derive(Clone, Debug)]
pub enum Op {
    MakeDir(PathBuf),
    Create(PathBuf, usize),
    Write(usize, u64, Vec<u8>),
    SetLen(usize, u64),
    Sync(usize),
    Rename(PathBuf, PathBuf),
    SyncDir(PathBuf),
    Remove(PathBuf),
    RemoveDir(PathBuf),
}

#[derive(Debug, Default)]
struct State {
    names: BTreeMap<PathBuf, usize>,
    dirs: BTreeSet<PathBuf>,
    contents: Vec<Vec<u8>>,
    log: Vec<Op>,
    /// Number of the operation that fails, and how.
    fault: Option<(usize, i32)>,
    /// Bytes that `allocate` has left.
    room: Option<u64>,
}

impl State {
    fn step(&mut self, op: Op) -> io::Result<()> {
        if let Some((at, errno)) = self.fault
            && at == self.log.len()
        {
            self.fault = None;
            return Err(io::Error::from_raw_os_error(errno));
        }
        self.log.push(op);
        Ok(())
    }

    fn write(&mut self, file: usize, at: u64, bytes: &[u8]) {
        let at = usize::try_from(at).unwrap();
        let contents = &mut self.contents[file];
        if contents.len() < at + bytes.len() {
            contents.resize(at + bytes.len(), 0);
        }
        contents[at..at + bytes.len()].copy_from_slice(bytes);
    }
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
    pub fn steps(&self) -> usize {
        lock(&self.0).log.len()
    }

    /// What was done.
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
    pub fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let state = lock(&self.0);
        state.names.iter().map(|(path, file)| (path.clone(), state.contents[*file].clone())).collect()
    }

    /// Puts a file there, past all rules.
    pub fn put(&self, path: &Path, bytes: &[u8]) {
        let mut state = lock(&self.0);
        let file = state.contents.len();
        state.contents.push(bytes.to_vec());
        state.names.insert(path.to_owned(), file);
        let mut dir = path.parent();
        while let Some(one) = dir {
            state.dirs.insert(one.to_owned());
            dir = one.parent();
        }
    }

    /// What another power-on might find after the first `steps` operations. `keeps` is asked, for each thing that was not
    /// made to last, whether it did.
    pub fn after_power_cut(&self, steps: usize, keeps: &mut dyn FnMut() -> bool) -> ModelDisk {
        let log = &lock(&self.0).log[..steps];
        let synced_later =
            |file: usize, from: usize| log[from..].iter().any(|op| matches!(op, Op::Sync(f) if *f == file));
        let kept_later = |dir: Option<&Path>, from: usize| {
            log[from..].iter().any(|op| matches!(op, Op::SyncDir(d) if Some(d.as_path()) == dir))
        };
        let mut left = State::default();
        let files = log.iter().filter(|op| matches!(op, Op::Create(..))).count();
        left.contents.resize(files, Vec::new());
        for (at, op) in log.iter().enumerate() {
            match op {
                Op::Write(file, place, bytes) => {
                    if synced_later(*file, at) || keeps() {
                        left.write(*file, *place, bytes);
                    } else if keeps() {
                        left.write(*file, *place, &bytes[..bytes.len() / 2]);
                    }
                }
                Op::SetLen(file, bytes) => {
                    if synced_later(*file, at) || keeps() {
                        left.contents[*file].resize(usize::try_from(*bytes).unwrap(), 0);
                    }
                }
                Op::MakeDir(dir) => {
                    if kept_later(dir.parent(), at) || keeps() {
                        left.dirs.insert(dir.clone());
                    }
                }
                Op::Create(path, file) => {
                    if kept_later(path.parent(), at) || keeps() {
                        left.names.insert(path.clone(), *file);
                    }
                }
                Op::Rename(from, to) => {
                    let file = log[..at].iter().rev().find_map(|op| match op {
                        Op::Create(path, file) if path == from => Some(*file),
                        _ => None,
                    });
                    if kept_later(to.parent(), at) || keeps() {
                        left.names.remove(from);
                        left.names.extend(file.map(|file| (to.clone(), file)));
                    }
                }
                Op::Remove(path) => {
                    if kept_later(path.parent(), at) || keeps() {
                        left.names.remove(path);
                    }
                }
                Op::RemoveDir(path) => {
                    if kept_later(path.parent(), at) || keeps() {
                        left.dirs.remove(path);
                    }
                }
                Op::Sync(_) | Op::SyncDir(_) => {}
            }
        }
        // A file is there only if the directories above it are.
        let dirs = left.dirs.clone();
        left.names.retain(|path, _| path.parent().is_some_and(|parent| dirs.contains(parent)));
        ModelDisk(Arc::new(Mutex::new(left)))
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
        state.write(self.1, at, bytes);
        Ok(())
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        let mut state = lock(&self.0);
        state.step(Op::SetLen(self.1, bytes))?;
        state.contents[self.1].resize(usize::try_from(bytes).unwrap(), 0);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        lock(&self.0).step(Op::Sync(self.1))
    }

    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        let state = lock(&self.0);
        let at = usize::try_from(at).map_err(|_| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        let found = at.checked_add(bytes.len()).and_then(|end| state.contents[self.1].get(at..end));
        bytes.copy_from_slice(found.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?);
        Ok(())
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(lock(&self.0).contents[self.1].len() as u64)
    }
}

impl Disk for ModelDisk {
    fn make_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = lock(&self.0);
        let mut above: Vec<PathBuf> = path.ancestors().map(Path::to_owned).collect();
        above.reverse();
        for dir in above {
            if !state.dirs.contains(&dir) {
                state.step(Op::MakeDir(dir.clone()))?;
                state.dirs.insert(dir);
            }
        }
        Ok(())
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut state = lock(&self.0);
        if state.names.contains_key(path) {
            return Err(io::Error::from_raw_os_error(libc::EEXIST));
        }
        let file = state.contents.len();
        state.step(Op::Create(path.to_owned(), file))?;
        state.contents.push(Vec::new());
        state.names.insert(path.to_owned(), file);
        Ok(Box::new(ModelFile(Arc::clone(&self.0), file)))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let file = lock(&self.0).names.get(path).copied().ok_or_else(missing)?;
        Ok(Box::new(ModelFile(Arc::clone(&self.0), file)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = lock(&self.0);
        let file = state.names.get(from).copied().ok_or_else(missing)?;
        state.step(Op::Rename(from.to_owned(), to.to_owned()))?;
        state.names.remove(from);
        state.names.insert(to.to_owned(), file);
        Ok(())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        lock(&self.0).step(Op::SyncDir(path.to_owned()))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let state = lock(&self.0);
        if !state.dirs.contains(path) {
            return Err(missing());
        }
        let paths = state.names.keys().chain(&state.dirs).filter(|one| one.parent() == Some(path));
        Ok(paths.filter_map(|one| one.file_name()?.to_str().map(str::to_owned)).collect())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut state = lock(&self.0);
        if !state.names.contains_key(path) {
            return Err(missing());
        }
        state.step(Op::Remove(path.to_owned()))?;
        state.names.remove(path);
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = lock(&self.0);
        if state.names.keys().any(|one| one.parent() == Some(path)) {
            return Err(io::Error::from_raw_os_error(libc::ENOTEMPTY));
        }
        state.step(Op::RemoveDir(path.to_owned()))?;
        state.dirs.remove(path);
        Ok(())
    }
}
