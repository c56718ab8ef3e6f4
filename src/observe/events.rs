//! Names of events. Those of the lane life cycle are what operators search for first.

/// A lane was taken out of use; `reason` says by what, `verdict` what was known about the peer.
pub const LANE_DIRTY: &str = "lane_dirty";
/// A rebuild succeeded; `attempts` counts this lane's.
pub const LANE_RECOVERED: &str = "lane_recovered";
/// A lane was connected for the first time, because requests needed it.
pub const LANE_CONNECTED: &str = "lane_connected";
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

/// The device of the `verbs` fabric is open; `port`, `gid` and `mtu_bytes` say how.
pub const FABRIC_READY: &str = "fabric_ready";
/// The two ends of a connection have ports with different MTUs: packets are as large as the smaller one takes.
pub const MTU_DIFFERS: &str = "mtu_differs";
/// The table's memory is registered, so rows can be sent from it directly.
pub const VALUE_REGION_REGISTERED: &str = "value_region_registered";
/// It is not, so rows are copied.
pub const VALUE_REGION_UNAVAILABLE: &str = "value_region_unavailable";
/// A server told the control plane that it is ready.
pub const SERVER_READY_PUBLISHED: &str = "server_ready_published";
/// A server or client shuts down.
pub const SHUTDOWN: &str = "shutdown";

/// A member of the deployment joined.
pub const MEMBER_JOINED: &str = "member_joined";
/// A member left or died; `died` says which.
pub const MEMBER_LEFT: &str = "member_left";
/// The control plane cannot be reached; data traffic goes on.
pub const CONTROL_PLANE_LOST: &str = "control_plane_lost";
/// The control plane is back.
pub const CONTROL_PLANE_BACK: &str = "control_plane_back";

/// A checkpoint exists.
pub const CHECKPOINT_COMMITTED: &str = "checkpoint_committed";
/// A checkpoint came to nothing; `error` says why. Work goes on.
pub const CHECKPOINT_ABORTED: &str = "checkpoint_aborted";
/// A shard could not write its part of a checkpoint.
pub const CHECKPOINT_FAILED: &str = "checkpoint_failed";
/// A shard's part of a checkpoint is durable.
pub const CHECKPOINT_FILE: &str = "checkpoint_file";
/// Checkpoints that nobody needs were removed.
pub const CHECKPOINT_COLLECTED: &str = "checkpoint_collected";
/// A checkpoint was passed over in a restore; `why` says what is wrong with it.
pub const CHECKPOINT_REFUSED: &str = "checkpoint_refused";
/// A shard starts from a checkpoint.
pub const CHECKPOINT_RESTORED: &str = "checkpoint_restored";
/// The deployment was restored under this running shard: it lets nobody in any more and must be started again.
pub const CHECKPOINT_SUPERSEDED: &str = "checkpoint_superseded";

/// Events did not fit their sink's queue; `count` of them are lost.
pub const EVENTS_DROPPED: &str = "events_dropped";
/// An invariant of the library does not hold. Please report it.
pub const BUG: &str = "bug";

/// A shard says that it is about to leave.
pub const SHARD_DRAINING: &str = "shard_draining";
/// What the control plane thinks of a shard has changed; `health` is serving, suspect or dead.
pub const SHARD_HEALTH: &str = "shard_health";
/// A client has lanes to every shard.
pub const CLIENT_READY: &str = "client_ready";
/// A shard let a client's lanes in.
pub const CLIENT_ADMITTED: &str = "client_admitted";
/// A shard did not let a client's lanes in; `error` says why.
pub const CLIENT_REFUSED: &str = "client_refused";
/// A poll thread dropped lanes whose client is gone.
pub const LANES_DROPPED: &str = "lanes_dropped";
/// A server was closed while a handler had not returned; its thread is left behind.
pub const SERVER_ABANDONED: &str = "server_abandoned";
/// A stopping shard could not tell the control plane first.
pub const DRAINING_NOT_PUBLISHED: &str = "draining_not_published";
/// The built-in store refused or failed a request; the message says which and why.
pub const STORE_REFUSED: &str = "store_refused";
/// The shm fabric cannot accept links any more.
pub const SHM_ACCEPT_FAILED: &str = "shm_accept_failed";
/// The shm fabric refused a process that dialled; `error` says why.
pub const SHM_PEER_REFUSED: &str = "shm_peer_refused";
/// Memory that a peer lets this process read could not be mapped; `why` says so. GETs go by request then.
pub const SHM_REGION_NOT_MAPPED: &str = "shm_region_not_mapped";
/// Rows of the built-in store do not lie where clients on this host can read them; `error` says why. GETs go by request.
pub const ROWS_NOT_SHARED: &str = "rows_not_shared";
/// A link between two processes ended; `why` says how.
pub const SHM_LINK_CLOSED: &str = "shm_link_closed";
/// A peer shut the way by which it wakes an idle poll thread.
pub const SHM_BELL_SHUT: &str = "shm_bell_shut";
/// The control plane serves.
pub const CONTROL_PLANE_LISTENING: &str = "control_plane_listening";
/// The control plane refused a call; the fields say whose and why.
pub const CONTROL_PLANE_REFUSES: &str = "control_plane_refuses";
/// The control plane cannot serve any more.
pub const CONTROL_PLANE_FAILED: &str = "control_plane_failed";
/// The control plane's thread panicked.
pub const CONTROL_PLANE_PANICKED: &str = "control_plane_panicked";
/// The control plane could not accept a connection.
pub const CONTROL_ACCEPT_FAILED: &str = "control_accept_failed";
/// The control plane closed a connection that broke its rules.
pub const CONTROL_CONNECTION_REFUSED: &str = "control_connection_refused";
/// A process without the deployment's token wanted to join.
pub const CONTROL_JOIN_REFUSED: &str = "control_join_refused";
/// A member does not read its events and is taken for dead.
pub const CONTROL_MEMBER_DEAF: &str = "control_member_deaf";
/// A restarted control plane refused what this member told it again.
pub const CONTROL_REFILL_REFUSED: &str = "control_refill_refused";
/// A member's control thread panicked.
pub const CONTROL_THREAD_PANICKED: &str = "control_thread_panicked";
/// Events that nobody took were dropped.
pub const CONTROL_EVENTS_DROPPED: &str = "control_events_dropped";
/// A member could not say that it leaves.
pub const CONTROL_GOODBYE_FAILED: &str = "control_goodbye_failed";
/// The metrics are served over HTTP.
pub const METRICS_LISTENING: &str = "metrics_listening";
/// A rank is in its deployment and can be reached.
pub const RANK_READY: &str = "rank_ready";
/// A rank did not let another one's lane in; `error` says why.
pub const RANK_NOT_ADMITTED: &str = "rank_not_admitted";
/// A rank learned that another one is gone; `died` says how.
pub const RANK_LOST: &str = "rank_lost";
