//! The control plane: who belongs to the deployment, who is ready, how lanes find each other, barriers.
//!
//! [`Plane`] is the state machine and knows nothing of the outside; `hub`, `service` and `host` bring it to life behind
//! gRPC; [`ControlClient`] is a member's side, and [`View`](view) what a member knows. Nothing of it is on the path of a
//! request: the hot path asks nobody.
//!
//! - A member's session is its stream: when that breaks, the member is dead, and everybody is told at once. Hosts that
//!   vanish without a word are found by pings within [`KEEPALIVE_INTERVAL`](limits::KEEPALIVE_INTERVAL) +
//!   [`KEEPALIVE_TIMEOUT`](limits::KEEPALIVE_TIMEOUT).
//! - Soft state: a restarted control plane knows nothing and is told again by its members.
//! - Everything that a peer sends is checked for form and bounds ([`limits`]); a refusal carries its status and reason as
//!   values, not only as text.
//! - Threads: `reclane-control` in every member, `reclane-plane` in the process that serves; both block all signals, and
//!   both end with their handle. No call pins a thread of the control plane while it waits.

mod barriers;
mod client;
mod codec;
mod driver;
mod events;
mod health;
mod history;
mod host;
mod hub;
mod identity;
mod incoming;
pub mod limits;
mod link;
pub mod messages;
mod offers;
pub mod overview;
mod overview_codec;
mod reach;
mod refusal;
mod requests;
mod runtime;
mod secret;
mod service;
mod session;
mod types;
pub mod view;
mod waits;

#[cfg(test)]
mod tests;

pub use client::ControlClient;
pub use health::{Health, HealthReport, Thresholds};
pub use host::ControlPlane;
pub use reach::{Spectator, probe};
pub use refusal::{Reason, Refusal};
pub use secret::{Proof, Secret};
pub use session::Plane;
pub use types::{Event, Identity, Member, Peer, Role};
