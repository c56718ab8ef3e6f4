//! The life of a request between a client's slot and a server's answer, over any fabric.
//!
//! The client side is a [`Channel`]: all lanes of one client to one shard. A request takes a slot, writes payload and
//! header into the server's memory with the commit word last, and watches its own memory for the answer's word. The
//! server side is a [`ServerLane`] with its slots and a [`Scanner`] per poll thread that finds committed requests.
//!
//! Two ways of moving bytes, chosen once per lane by [`Capabilities::load_store`](crate::fabric::Capabilities): through
//! a window (plain stores into the peer's mapped memory, no copy in between), or posted (staging memory and work
//! requests). Nothing here allocates, locks or calls the system per request.

mod bell;
mod channel;
mod client_lane;
mod connection;
mod down;
mod fetch;
mod grow;
mod hints;
mod immediate;
mod moves;
mod pace;
mod probe;
mod raw;
mod retry;
mod scan;
mod scheme;
mod server_lane;
mod server_posts;
mod signals;
mod slot;
mod slow;
mod window;
mod working;

pub use bell::Bell;
pub use channel::{AcquireError, Channel, Judgement};
pub use client_lane::ClientLane;
pub use connection::{ClientLaneParts, Connection, MappedRows, Placement, Witness};
pub use fetch::{Posted, take_completions};
pub use pace::{Pace, PacePolicy, Turn};
pub use probe::Probe;
pub use raw::copy_keys;
pub use retry::Resend;
pub(crate) use scan::request_agrees;
pub use scan::{READY_MAX, Ready, Scanner};
pub use scheme::Scheme;
pub use server_lane::{Answer, ServerLane, ServerLaneParts};
pub use slot::{Held, Slot};
pub use window::{Claim, Window};
