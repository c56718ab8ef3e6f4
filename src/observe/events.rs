//! Names of events. Those of the lane life cycle are what operators search for first.

/// A lane was taken out of use; `reason` says by what, `verdict` what was known about the peer.
pub const LANE_DIRTY: &str = "lane_dirty";
/// A rebuild succeeded; `attempts` counts this lane's.
pub const LANE_RECOVERED: &str = "lane_recovered";
/// The peer did not answer a rebuild in time; see whether it has rebuilding on as well.
pub const LANE_REBUILD_TIMEOUT: &str = "lane_rebuild_timeout";
/// A rebuild failed; `error` says where.
pub const LANE_REBUILD_FAILED: &str = "lane_rebuild_failed";
/// A lane has no attempts left and is dead.
pub const LANE_REBUILD_EXHAUSTED: &str = "lane_rebuild_exhausted";
/// A rebuild was not tried; `reason` says why.
pub const LANE_REBUILD_SKIPPED: &str = "lane_rebuild_skipped";
/// A handler failed; its client gets status -6 and the server lives on.
pub const HANDLER_EXCEPTION: &str = "handler_exception";
/// Rows of a lane that was rebuilt meanwhile were thrown away and not sent.
pub const GET_PAYLOAD_DROPPED_STALE: &str = "get_payload_dropped_stale";

/// The fabric is open.
pub const FABRIC_READY: &str = "fabric_ready";
/// Lanes to or from a peer are connected; `scheme` is the commit scheme they use.
pub const LANES_READY: &str = "lanes_ready";
/// The table's memory is registered, so rows can be sent from it directly.
pub const VALUE_REGION_REGISTERED: &str = "value_region_registered";
/// It is not, so rows are copied.
pub const VALUE_REGION_UNAVAILABLE: &str = "value_region_unavailable";
/// GET workers run.
pub const GET_PAYLOAD_WORKERS_STARTED: &str = "get_payload_workers_started";
/// A poll thread runs.
pub const POLLING_THREAD_READY: &str = "polling_thread_ready";
/// A server told the control plane that it is ready.
pub const SERVER_READY_PUBLISHED: &str = "server_ready_published";
/// The control plane listens.
pub const LISTENING: &str = "listening";
/// A server or client shuts down.
pub const SHUTDOWN: &str = "shutdown";
/// A request was malformed and was answered with its status.
pub const INVALID_DESCRIPTOR: &str = "invalid_descriptor";
/// A request was meant for another shard.
pub const WRONG_SHARD: &str = "wrong_shard";

/// A member of the deployment joined.
pub const MEMBER_JOINED: &str = "member_joined";
/// A member left or died; `died` says which.
pub const MEMBER_LEFT: &str = "member_left";
/// A member was refused; `reason` says why.
pub const MEMBER_REFUSED: &str = "member_refused";
/// The control plane cannot be reached; data traffic goes on.
pub const CONTROL_PLANE_LOST: &str = "control_plane_lost";
/// The control plane is back.
pub const CONTROL_PLANE_BACK: &str = "control_plane_back";

/// Events did not fit their sink's queue; `count` of them are lost.
pub const EVENTS_DROPPED: &str = "events_dropped";
/// An invariant of the library does not hold. Please report it.
pub const BUG: &str = "bug";
