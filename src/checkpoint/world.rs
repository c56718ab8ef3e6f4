//! Which world owns a directory of checkpoints.
//!
//! A *world* is all processes that run together from one start, or one restore, on. Its number is an epoch that was
//! promised for it, so a later world has a higher one. The file `WORLD` names the newest, and the checkpoint that it was
//! restored from; a process of an older world that wakes up finds that it is none of this one. A *seat* is the place of
//! one rank in a world: it is taken once.

use super::catalog::{Catalog, read_small};
use super::disk::Disk;
use super::writer::write_small;
use crate::error::{Error, Result, Status};
use std::io;

const WORLD: &str = "WORLD";
const SEAT_PREFIX: &str = "WORLD-rank-";
const WORLD_BYTES_MAX: u64 = 256;

/// A world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct World {
    /// Its number.
    pub number: u64,
    /// Epoch of the checkpoint that it was restored from; 0: it began empty.
    pub restored: u64,
    /// Random name of that checkpoint.
    pub checkpoint: u128,
}

impl World {
    fn encode(&self) -> String {
        let text = format!("{:020} {:020} {:032x}", self.number, self.restored, self.checkpoint);
        let crc = crc32c::crc32c(text.as_bytes());
        format!("{text} {crc:08x}\n")
    }

    fn decode(bytes: &[u8]) -> Option<World> {
        let mut words = core::str::from_utf8(bytes).ok()?.split(' ');
        let number = words.next()?.parse().ok()?;
        let restored = words.next()?.parse().ok()?;
        let checkpoint = u128::from_str_radix(words.next()?, 16).ok()?;
        let world = World { number, restored, checkpoint };
        (world.encode().as_bytes() == bytes).then_some(world)
    }
}

fn read(disk: &dyn Disk, catalog: &Catalog, name: &str) -> Result<Option<World>> {
    let path = catalog.root().join(name);
    let bytes = match read_small(disk, &path, WORLD_BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::os(format_args!("cannot read {}", path.display()), &error)),
    };
    let malformed = || {
        let message = format!("{} is damaged; start all ranks again, rank 0 writes it anew", path.display());
        Error::new(Status::InvalidArgument, message)
    };
    World::decode(&bytes).map(Some).ok_or_else(malformed)
}

impl Catalog {
    /// The newest world; None: there was none yet.
    ///
    /// # Errors
    /// `OsError`; `InvalidArgument` when the file is damaged.
    pub fn world(&self, disk: &dyn Disk) -> Result<Option<World>> {
        read(disk, self, WORLD)
    }

    /// Begins a world, whose number was promised for it. It is durable when this returns.
    ///
    /// # Errors
    /// `OsError`.
    pub fn begin_world(&self, disk: &dyn Disk, world: &World, nonce: u128) -> Result<()> {
        write_small(disk, self.root(), WORLD, nonce, world.encode().as_bytes())
    }

    /// Refuses a world that is not the newest any more.
    ///
    /// # Errors
    /// `StaleEpoch`; as [`Catalog::world`].
    pub fn check_world(&self, disk: &dyn Disk, number: u64) -> Result<()> {
        match self.world(disk)? {
            Some(world) if world.number == number => Ok(()),
            other => {
                let newest = other.map_or(0, |world| world.number);
                let message = format!(
                    "this process belongs to world {number}, which is over: world {newest} was started in {}",
                    self.root().display()
                );
                Err(Error::new(Status::StaleEpoch, message))
            }
        }
    }

    /// Takes a rank's seat in a world. False: another process has had it.
    ///
    /// # Errors
    /// `OsError`.
    pub fn take_seat(&self, disk: &dyn Disk, rank: u32, world: &World, nonce: u128) -> Result<bool> {
        let name = format!("{SEAT_PREFIX}{rank}");
        // A damaged one is of a process that wrote it as the power went: that one is gone with everybody.
        if read(disk, self, &name).is_ok_and(|taken| taken.as_ref() == Some(world)) {
            return Ok(false);
        }
        write_small(disk, self.root(), &name, nonce, world.encode().as_bytes()).map(|()| true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::RealDisk;

    #[test]
    fn a_later_world_ends_an_earlier_one_and_a_seat_is_taken_once() {
        let root = std::env::temp_dir().join(format!("reclane-world-{}", std::process::id()));
        let catalog = Catalog::new(&root);
        assert_eq!(catalog.world(&RealDisk).expect("none"), None);
        let first = World { number: catalog.promise(&RealDisk, 1).expect("an epoch"), restored: 0, checkpoint: 0 };
        catalog.begin_world(&RealDisk, &first, 2).expect("written");
        catalog.check_world(&RealDisk, first.number).expect("it is the newest");
        assert!(catalog.take_seat(&RealDisk, 1, &first, 3).expect("written"));
        assert!(!catalog.take_seat(&RealDisk, 1, &first, 3).expect("written"));
        let number = catalog.promise(&RealDisk, 1).expect("an epoch");
        let second = World { number, restored: 7, checkpoint: u128::MAX };
        catalog.begin_world(&RealDisk, &second, 2).expect("written");
        assert_eq!(catalog.world(&RealDisk).expect("there"), Some(second));
        assert_eq!(catalog.check_world(&RealDisk, first.number).expect_err("over").status, Status::StaleEpoch);
        assert!(catalog.take_seat(&RealDisk, 1, &second, 3).expect("written"));
        let path = root.join(WORLD);
        let mut bytes = std::fs::read(&path).expect("bytes");
        for at in 0..bytes.len() {
            bytes[at] ^= 1;
            assert_eq!(World::decode(&bytes), None, "byte {at}");
            bytes[at] ^= 1;
        }
        std::fs::remove_dir_all(root).expect("removed");
    }
}
