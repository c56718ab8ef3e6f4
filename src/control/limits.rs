//! Bounds on everything that a peer can make the control plane keep, and the times it lives by.

#![forbid(unsafe_code)]

use core::time::Duration;

/// Largest lane offer. A queue pair's address takes tens of bytes, so this is thousands of lanes.
pub const OFFER_BYTES_MAX: usize = 256 * 1024;
/// Largest letter from member to member.
pub const MAIL_BYTES_MAX: usize = 40 * 1024;
/// Notices that wait for a member, beyond which letters for it are lost: nobody can fill its memory with them.
pub const MAIL_WAITING_MAX: usize = 256;
/// All lane offers together: 4096 clients with 64 shards at 1 KiB each.
pub const OFFERS_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Lane offers by one publisher: one for each possible peer.
pub const OFFERS_PER_MEMBER_MAX: usize = 8192;
/// Live clients.
pub const CLIENTS_MAX: u32 = 4096;
/// Deployment id, namespace, host name, barrier name.
pub const NAME_BYTES_MAX: usize = 256;
/// The lines that describe the layout.
pub const LAYOUT_BYTES_MAX: usize = 16 * 1024;
/// Barriers under way, failed ones included.
pub const BARRIERS_MAX: usize = 1024;
/// Barriers at which one member waits: nobody can take all of them.
pub const BARRIERS_PER_MEMBER_MAX: usize = 64;
/// Calls of one member that wait at the same time.
pub const WAITS_PER_MEMBER_MAX: usize = 1024;
/// Joins that wait to see whether the holder of their id is still alive.
pub const CONTENDERS_MAX: usize = 256;
/// Released barrier calls that are remembered, so that a retry whose answer was lost is not counted again.
pub const RELEASED_CALLS_MAX: usize = 8192;
/// Numbers in one member's report about itself.
pub const FIGURES_MAX: usize = 64;
/// The name of one.
pub const FIGURE_NAME_BYTES_MAX: usize = 48;
/// Events that are kept for observers: those that the control plane saw.
pub const TOLD_MAX: usize = 256;
/// Those that members said had happened in their processes.
pub const SAID_MAX: usize = 512;
/// Largest overview: every member with a full report.
pub const OVERVIEW_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Longest wait that a call may ask for.
pub const WAIT_MAX: Duration = Duration::from_secs(24 * 3600);
/// Longest message to a caller; it travels in HTTP/2 headers, which peers bound to 16 KiB.
pub const MESSAGE_BYTES_MAX: usize = 2048;
/// Largest message on the wire: an offer and its names.
pub const FRAME_BYTES_MAX: usize = OFFER_BYTES_MAX + 64 * 1024;
/// Notices that may wait for one member's stream: joins and leaves of everybody, twice over. A member that does not
/// read that many is taken for dead, so that it cannot make the control plane grow.
pub const NOTICES_MAX: usize = 4 * CLIENTS_MAX as usize;
/// Connections at the same time; each member has one.
pub const CONNECTIONS_MAX: usize = 2 * CLIENTS_MAX as usize;

/// How long a join waits for the holder of its id to turn out dead: the end of a killed process's connection and its
/// successor's join may arrive in either order.
pub const DUPLICATE_GRACE: Duration = Duration::from_millis(250);
/// A connection on which nothing moves is pinged this often. A process that dies closes its connection at once; pings
/// find hosts and networks that vanish without a word. Interval and timeout add up to the 9 s after which a silent
/// shard is held to be dead.
pub const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(3);
/// A ping must be answered within this time.
pub const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(6);
/// A connection that has not said what every client says first for this long after it was accepted is closed: it holds a
/// descriptor, and is not pinged yet.
pub const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// That is HTTP/2's preface and the head of a frame.
pub const HELLO_BYTES: usize = 24 + 9;
/// First pause between attempts to reach the control plane.
pub const RETRY_FIRST: Duration = Duration::from_millis(10);
/// Longest pause while a process starts: start-up should not wait long for a control plane that has just come up.
pub const RETRY_JOINING_MAX: Duration = Duration::from_millis(200);
/// Longest pause while a running process has lost the control plane: many members come back at once.
pub const RETRY_LOST_MAX: Duration = Duration::from_millis(1000);
/// One attempt to connect, and one to join again, takes at most this long, so that a lost packet does not eat the whole
/// deadline.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// After a restart of the control plane, members that do not come back within this time are held to be dead. Several
/// times the longest pause between attempts.
pub const RESETTLE: Duration = Duration::from_secs(10);
/// How long a goodbye may take before the member just goes.
pub const GOODBYE_TIMEOUT: Duration = Duration::from_millis(1000);
/// The control plane answers a wait at its deadline; the caller gives the answer this much time to arrive.
pub const ANSWER_SLACK: Duration = Duration::from_secs(2);
/// Events that wait for the engine. Older ones are dropped beyond it, with a warning.
pub const EVENTS_MAX: usize = 65536;
