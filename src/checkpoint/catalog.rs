//! The directory of a deployment's checkpoints: what is there, the next epoch, and what may go.
//!
//! ```text
//! EPOCH                        the highest epoch that was ever promised
//! WORLD                        of ranks: the start that owns the directory, and whose seats are taken
//! epoch-00000000000000000007/  one checkpoint, or an attempt at one
//!     shard-0-of-2.rck ...     containers
//!     MANIFEST                 written last
//! ```

use super::disk::Disk;
use super::manifest::{MANIFEST_BYTES_MAX, Manifest, Role};
use super::verify::{Depth, verify};
use super::writer::{is_unfinished, write_small};
use crate::error::{Error, Result, Status};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

/// Name of the manifest.
pub const MANIFEST: &str = "MANIFEST";
const EPOCH: &str = "EPOCH";
const EPOCH_PREFIX: &str = "epoch-";
const EPOCH_DIGITS: usize = 20;
/// How often a promise is written again when its file is gone before it has its name.
const TRIES: u128 = 3;

/// A directory of checkpoints.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Catalog {
    root: PathBuf,
}

/// One epoch that was found, with its manifest or why there is none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// The epoch, by the directory's name.
    pub epoch: u64,
    /// The manifest; None: an attempt that was not committed; an error: what is wrong with it.
    pub manifest: core::result::Result<Option<Manifest>, String>,
}

/// The checkpoint to restore, and what was passed over on the way to it, newest first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Choice {
    /// The newest that is whole; None: there is none.
    pub manifest: Option<Manifest>,
    /// Newer ones, each with the reason against it.
    pub refused: Vec<(u64, String)>,
    /// Those of them that were committed, are of this job, and are not whole.
    pub damaged: BTreeSet<u64>,
}

fn failed(doing: &str, path: &Path, error: &io::Error) -> Box<Error> {
    Error::os(format_args!("cannot {doing} {}", path.display()), error)
}

/// The epoch that a directory name stands for.
fn epoch_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(EPOCH_PREFIX)?;
    let plain = digits.len() == EPOCH_DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
    if plain { digits.parse().ok() } else { None }
}

impl Catalog {
    /// The checkpoints below `root`, which need not exist.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Catalog {
        Catalog { root: root.into() }
    }

    /// Where it is.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The directory of an epoch.
    #[must_use]
    pub fn directory_of(&self, epoch: u64) -> PathBuf {
        self.root.join(format!("{EPOCH_PREFIX}{epoch:0EPOCH_DIGITS$}"))
    }

    /// Epochs that have a directory, ascending.
    ///
    /// # Errors
    /// `OsError`. A root that does not exist has none.
    pub fn epochs(&self, disk: &dyn Disk) -> Result<Vec<u64>> {
        let names = match disk.list(&self.root) {
            Ok(names) => names,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(failed("list checkpoints in", &self.root, &error)),
        };
        let mut epochs: Vec<u64> = names.iter().filter_map(|name| epoch_of(name)).collect();
        epochs.sort_unstable();
        Ok(epochs)
    }

    /// The manifest of an epoch.
    fn manifest_of(&self, disk: &dyn Disk, epoch: u64) -> core::result::Result<Option<Manifest>, String> {
        let path = self.directory_of(epoch).join(MANIFEST);
        let bytes = match read_small(disk, &path, MANIFEST_BYTES_MAX) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(format!("{} cannot be read: {error}", path.display())),
        };
        let manifest = Manifest::decode(&bytes).map_err(|what| format!("the manifest {} {what}", path.display()))?;
        if manifest.epoch != epoch {
            let own = manifest.epoch;
            return Err(format!("the manifest {} is of epoch {own}: it does not belong here", path.display()));
        }
        Ok(Some(manifest))
    }

    /// Everything that is there, newest first. Files other than manifests are not looked at.
    ///
    /// # Errors
    /// As for [`Catalog::epochs`].
    pub fn list(&self, disk: &dyn Disk) -> Result<Vec<Found>> {
        let epochs = self.epochs(disk)?;
        let mut all: Vec<Found> = epochs
            .iter()
            .rev()
            .map(|epoch| Found { epoch: *epoch, manifest: self.manifest_of(disk, *epoch) })
            .collect();
        let mut names: BTreeMap<u128, Vec<u64>> = BTreeMap::new();
        for found in &all {
            if let Ok(Some(manifest)) = &found.manifest {
                names.entry(manifest.checkpoint).or_default().push(found.epoch);
            }
        }
        names.retain(|_, epochs| epochs.len() > 1);
        for found in &mut all {
            let twins = match &found.manifest {
                Ok(Some(manifest)) => names.get(&manifest.checkpoint),
                _ => None,
            };
            if let Some(epochs) = twins {
                found.manifest = Err(format!("epochs {epochs:?} claim to be the same checkpoint"));
            }
        }
        Ok(all)
    }

    /// The newest checkpoint of this job that is whole; `wanted` asks for one epoch and no other.
    ///
    /// # Errors
    /// `OsError` when the directory cannot be listed. What is wrong with single checkpoints is in the choice.
    pub fn choose(&self, disk: &dyn Disk, job: Option<u128>, wanted: Option<u64>, depth: Depth) -> Result<Choice> {
        self.choose_by(disk, job, wanted, &mut |manifest| verify(disk, self, manifest, depth))
    }

    /// The same, where the caller looks whether one is whole. The last that it was asked about is the choice, if it was.
    ///
    /// # Errors
    /// As for [`Catalog::choose`].
    pub fn choose_by(
        &self,
        disk: &dyn Disk,
        job: Option<u128>,
        wanted: Option<u64>,
        judge: &mut dyn FnMut(&Manifest) -> Result<()>,
    ) -> Result<Choice> {
        let mut choice = Choice { manifest: None, refused: Vec::new(), damaged: BTreeSet::new() };
        for found in self.list(disk)? {
            if wanted.is_some_and(|wanted| wanted != found.epoch) {
                continue;
            }
            let manifest = match found.manifest {
                Ok(Some(manifest)) => manifest,
                Ok(None) => {
                    choice.refused.push((found.epoch, "it was not committed".to_owned()));
                    continue;
                }
                Err(why) => {
                    choice.damaged.insert(found.epoch);
                    choice.refused.push((found.epoch, why));
                    continue;
                }
            };
            if job.is_some_and(|job| job != manifest.job) {
                let why = format!("it is of another deployment, '{}'", manifest.job_name);
                choice.refused.push((found.epoch, why));
                continue;
            }
            match judge(&manifest) {
                Ok(()) => {
                    choice.manifest = Some(manifest);
                    break;
                }
                Err(error) => {
                    choice.damaged.insert(found.epoch);
                    choice.refused.push((found.epoch, error.message));
                }
            }
        }
        Ok(choice)
    }

    /// Promises the next epoch: one that was never used and never will be, by anybody who reads this directory. It is
    /// durable when this returns.
    ///
    /// # Errors
    /// `OsError`; `ResourceLimit` at the end of numbers.
    pub fn promise(&self, disk: &dyn Disk, nonce: u128) -> Result<u64> {
        let epoch = self.fence(disk, nonce)?;
        super::steps::at("epoch-promised");
        Ok(epoch)
    }

    /// Promises an epoch that nobody will use: leaders of lower ones cannot commit any more.
    ///
    /// # Errors
    /// As for [`Catalog::promise`].
    pub fn fence(&self, disk: &dyn Disk, nonce: u128) -> Result<u64> {
        disk.make_dir(&self.root).map_err(|error| failed("make directory", &self.root, &error))?;
        // Where the root is new, its own name must last too. Only a hint where the parent may not be opened.
        let _ = self.root.parent().filter(|parent| !parent.as_os_str().is_empty()).map(|parent| disk.sync_dir(parent));
        let last = self.epochs(disk)?.last().copied().unwrap_or(0).max(self.promised(disk));
        let next = last
            .checked_add(1)
            .ok_or_else(|| Error::new(Status::ResourceLimit, format!("epoch {last} is the last there is")))?;
        let write = |again: u128| write_small(disk, &self.root, EPOCH, nonce ^ again, format_epoch(next).as_bytes());
        // Another leader that tidies up may take the file under its first name for a leftover.
        let taken = |error: &Error| error.os_error == libc::ENOENT;
        let written = (0..TRIES).map(write).find(|written| written.as_ref().err().is_none_or(|error| !taken(error)));
        written.unwrap_or_else(|| write(TRIES))?;
        Ok(next)
    }

    /// The highest epoch that is known to be promised.
    fn promised(&self, disk: &dyn Disk) -> u64 {
        read_small(disk, &self.root.join(EPOCH), 64).ok().and_then(|bytes| parse_epoch(&bytes)).unwrap_or(0)
    }

    /// Makes a checkpoint exist. Whoever has promised a later epoch meanwhile has taken the directory over: a leader that
    /// slept through a restore makes nothing exist.
    ///
    /// # Errors
    /// `StaleEpoch` for one that was taken over. `OsError`; it does not exist then, or is as good as any: who reads the
    /// directory decides.
    pub fn commit(&self, disk: &dyn Disk, manifest: &Manifest, nonce: u128) -> Result<()> {
        let promised = self.promised(disk);
        if promised > manifest.epoch {
            let message = format!(
                "epoch {} was given up: epoch {promised} was promised meanwhile in {}, by a deployment that was restored \
                 while this one still ran, or by another that has the same checkpoint-directory",
                manifest.epoch,
                self.root.display()
            );
            return Err(Error::new(Status::StaleEpoch, message));
        }
        write_small(disk, &self.directory_of(manifest.epoch), MANIFEST, nonce, &manifest.encode())?;
        // The directory's own name.
        disk.sync_dir(&self.root).map_err(|error| failed("sync", &self.root, &error))
    }

    /// Removes what nobody needs: checkpoints beyond the newest `keep` and those that they build on, and attempts below
    /// `before` that were not committed; of another job nothing. Those that are known to be `damaged` do not count among
    /// the newest. A directory whose manifest is there and cannot be read is left alone, and so is every file that is not
    /// ours. The epochs that went.
    ///
    /// # Errors
    /// `OsError` when the directory cannot be listed; what cannot be removed stays until the next time.
    pub fn collect(
        &self,
        disk: &dyn Disk,
        job: u128,
        keep: usize,
        before: u64,
        damaged: &BTreeSet<u64>,
    ) -> Result<Vec<u64>> {
        let all = self.list(disk)?;
        let ours = |manifest: &&Manifest| manifest.job == job;
        let committed = || all.iter().filter_map(|found| found.manifest.as_ref().ok()?.as_ref()).filter(ours);
        let mut live = BTreeSet::new();
        for manifest in committed().filter(|manifest| !damaged.contains(&manifest.epoch)).take(keep.max(1)) {
            live.insert(manifest.epoch);
            live.extend(&manifest.needs);
        }
        let mut gone = Vec::new();
        for found in &all {
            let doomed = match &found.manifest {
                Ok(Some(manifest)) => manifest.job == job && !live.contains(&found.epoch),
                // What a live one builds on is needed even if its own manifest went before a crash.
                Ok(None) => found.epoch < before && !live.contains(&found.epoch),
                Err(_) => false,
            };
            if doomed && self.remove(disk, found.epoch).is_ok() {
                gone.push(found.epoch);
            }
        }
        // Leftovers of small files that were being written when somebody died.
        for name in disk.list(&self.root).unwrap_or_default() {
            if is_unfinished(&name) {
                let _ = disk.remove_file(&self.root.join(name));
            }
        }
        super::steps::at("collected");
        Ok(gone)
    }

    /// The manifest goes first, and durably: half a checkpoint never has one.
    fn remove(&self, disk: &dyn Disk, epoch: u64) -> io::Result<()> {
        let directory = self.directory_of(epoch);
        match disk.remove_file(&directory.join(MANIFEST)) {
            Ok(()) => disk.sync_dir(&directory)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        for name in disk.list(&directory)?.iter().filter(|name| is_ours(name)) {
            disk.remove_file(&directory.join(name))?;
        }
        disk.remove_dir(&directory)
    }
}

/// Whether a name in an epoch's directory is one that this library gives.
fn is_ours(name: &str) -> bool {
    let container = || {
        let stem = name.strip_suffix(".rck")?;
        let (role, rest) = stem.split_once('-')?;
        let (rank, world) = rest.split_once("-of-")?;
        let number = |text: &str| text.parse::<u32>().ok();
        Some([Role::Shard, Role::Rank, Role::App].iter().any(|r| r.name() == role) && number(rank)? < number(world)?)
    };
    is_unfinished(name) || container() == Some(true)
}

pub(super) fn read_small(disk: &dyn Disk, path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = disk.open(path)?;
    let length = file.bytes()?;
    if length > most {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("it has {length} bytes, more than {most}")));
    }
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
    file.read_at(0, &mut bytes)?;
    Ok(bytes)
}

fn format_epoch(epoch: u64) -> String {
    let text = format!("{epoch:0EPOCH_DIGITS$}");
    let crc = crc32c::crc32c(text.as_bytes());
    format!("{text} {crc:08x}\n")
}

/// The epoch in the file; None when it is damaged, and then the directories' names have to do.
fn parse_epoch(bytes: &[u8]) -> Option<u64> {
    let epoch = core::str::from_utf8(bytes).ok()?.split(' ').next()?.parse().ok()?;
    (format_epoch(epoch).as_bytes() == bytes).then_some(epoch)
}
