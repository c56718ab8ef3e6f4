//! Everything `extern "C"`: the guard, handles, versioned structs, errors; then one file per noun. No logic.
//!
//! Each function is one call of the guard: it checks the handle (tag, fork, poison), checks and copies what C handed over,
//! calls the engine, and turns the result into a status. No panic and no C++ exception crosses this room. Nothing that C
//! gives us is ever a Rust enum, bool or reference. The comments of the functions become the comments of the header;
//! `tests/header.rs` generates `include/reclane/reclane.h` from the files of this room.
//!
//! Called by: the host program, on any of its threads.

// The comments are written for the header: each names the lifetimes and sizes that the caller vouches for.
#![allow(clippy::missing_safety_doc)]
// In the header's comments `keys[i]` is an element, not a link.
#![allow(rustdoc::broken_intra_doc_links)]
// The names are those of the header, so that a reader finds one by the other.
#![allow(non_camel_case_types)]

mod arguments;
mod buffer;
mod callback;
mod checkpoint;
mod client;
mod ending;
mod error;
mod event;
mod fork;
mod guard;
mod handle;
mod health;
mod info;
mod metrics;
mod operation;
mod options;
mod outcome;
mod profile;
mod rank;
mod rank_checkpoint;
mod region;
mod request;
mod restore;
mod server;
mod state;
mod state_adapter;
mod store;
mod store_adapter;
mod structs;
mod version;

pub use buffer::*;
pub use checkpoint::*;
pub use client::*;
pub use ending::*;
pub use error::*;
pub use event::*;
pub use health::*;
pub use info::*;
pub use metrics::*;
pub use operation::*;
pub use options::*;
pub use profile::*;
pub use rank::*;
pub use rank_checkpoint::*;
pub use region::*;
pub use request::*;
pub use restore::*;
pub use server::*;
pub use store::*;
pub use version::*;
