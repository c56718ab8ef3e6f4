//! Everything that can be set, as one table.
//!
//! [`TABLE`] has a row per option: name, aliases, type, default, unit, bounds, meaning, the side that looks at it, and
//! whether it shapes the layout that both ends must agree on. The named setter, the environment, `reclane options`,
//! docs/options.md, [`Settings`] and the deployment digest are all derived from it.
//!
//! There are two entries and they never mix ([`Entry`]): the PetPS entry takes names and values (a host program's flags)
//! and reads no environment; the op-layer entry takes the environment alone. Both can name a deployment file
//! ([`deployment`]), whose words count as if they had been given with them.

#![forbid(unsafe_code)]

mod bag;
mod choices;
pub mod deployment;
mod document;
mod environment;
mod layout;
mod legacy;
mod names;
mod rules;
mod spec;
mod subnet;
mod table;
#[cfg(test)]
mod tests;
mod value;

pub use bag::{Entry, Options};
pub use choices::{
    CheckpointRestore, CheckpointSurvivors, CommitScheme, DataInOrder, FabricKind, GetResponseMode, HashMethod,
    HugePages, Integrity, LogLevel, PutTransferMode, RdmaMode, RecoveryPreset, RequestRetry, SharedReads, Side,
};
pub use document::{describe, help, markdown};
pub use layout::layout_difference;
pub use legacy::{Accepted, LEGACY, Legacy};
pub use names::look_up;
pub use spec::{Kind, Spec};
pub use subnet::Subnet;
pub use table::{Settings, TABLE};
