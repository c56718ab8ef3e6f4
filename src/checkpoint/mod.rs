//! Checkpoints: how state is cut, written, found again and judged. docs/checkpoint.md is the manual.
//!
//! - [`mod@format`] is the container file, [`manifest`] the file whose presence makes a checkpoint exist; both are pure and
//!   take every byte for hostile.
//! - [`cut`] decides when everybody stops, copies and goes on: state machines without clock, thread or file.
//! - [`world`] says which processes run together, so that those of an earlier start are told apart.
//! - [`disk`] is the door to files, so that tests can lose what was not synced; [`writer`], [`reader`] and [`catalog`]
//!   go through it.
//! - What is in the sections is the business of those whose state it is.

pub mod advise;
pub mod ahead;
pub mod catalog;
pub mod cut;
pub mod disk;
pub mod format;
pub mod manifest;
pub mod model;
pub mod reader;
pub mod steps;
pub mod verify;
pub mod world;
pub mod writer;

#[cfg(test)]
mod tests;

pub use advise::{Advice, Cost, advise};
pub use catalog::{Catalog, Found};
pub use disk::{Disk, DiskFile, RealDisk};
pub use format::{SectionKind, Superblock};
pub use manifest::{Manifest, Member, Role};
pub use reader::Container;
pub use world::World;
pub use writer::{ChunkSource, SectionPlan, Written, write_container};
