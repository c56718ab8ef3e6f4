//! The one table of metrics. Names, units and meanings stand here; docs/metrics.md, the Prometheus text, the counters file
//! and the dashboard are held to it.

/// What kind of number a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows, while its process lives.
    Counter,
    /// Goes up and down.
    Gauge,
    /// The largest so far.
    Peak,
    /// A distribution, in nanoseconds where it is kept and in seconds in Prometheus' text.
    Histogram,
}

impl Kind {
    /// Its number in the counters file.
    #[must_use]
    pub const fn code(self) -> u32 {
        match self {
            Kind::Counter => 1,
            Kind::Gauge => 2,
            Kind::Peak => 3,
            Kind::Histogram => 4,
        }
    }

    /// The kind with this number.
    #[must_use]
    pub fn from_code(code: u32) -> Option<Kind> {
        [Kind::Counter, Kind::Gauge, Kind::Peak, Kind::Histogram].into_iter().find(|kind| kind.code() == code)
    }

    /// Its word in the document.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Peak => "peak",
            Kind::Histogram => "histogram",
        }
    }

    /// Its type in Prometheus' text.
    #[must_use]
    pub const fn prometheus(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge | Kind::Peak => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// One metric.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// What kind of number it is.
    pub kind: Kind,
    /// Its unit, or what it counts.
    pub unit: &'static str,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// Whether it is there only while requests are counted (options `metrics`, `metrics-directory`, `metrics-port`,
    /// `rdma-rc-profile-interval-ms`).
    pub counted: bool,
    /// What it means, in Markdown.
    pub meaning: &'static str,
}

macro_rules! metrics {
    ($($(#[doc = $meaning:literal])+ $place:ident = $kind:ident($name:literal, $unit:literal, [$($label:literal),*], $counted:literal);)+) => {
        /// Names, for those who make the numbers.
        pub mod name {
            $($(#[doc = $meaning])+ pub const $place: &str = $name;)+
        }

        /// All metrics.
        pub const TABLE: &[Metric] = &[$(Metric {
            name: $name,
            kind: Kind::$kind,
            unit: $unit,
            labels: &[$($label),*],
            counted: $counted,
            meaning: concat!($($meaning),+).trim_ascii(),
        }),+];
    };
}

metrics! {
    /// 1; who it is, as labels: `role` is client or server, `number` its number in the deployment.
    INFO = Gauge("reclane_info", "1", ["role", "number", "fabric", "version"], false);
    /// 1 while the control plane is reached, else 0. Traffic does not need it.
    CONTROL_PLANE_UP = Gauge("reclane_control_plane_up", "0 or 1", [], false);
    /// Times that numbers which nobody writes while requests run were brought up to date; the counters file's `updated` says when.
    REFRESHES = Counter("reclane_refreshes_total", "refreshes", [], false);
    /// Events of the process, all its clients, shards and ranks together. `level` is error, warn or info.
    EVENTS = Counter("reclane_events_total", "events", ["level"], false);

    /// Requests of a client that were answered well, one for each shard that a call touched and each part of a batch. `op` is get, put, update or other.
    CLIENT_REQUESTS = Counter("reclane_client_requests_total", "requests", ["shard", "op"], true);
    /// Keys of those requests.
    CLIENT_KEYS = Counter("reclane_client_keys_total", "keys", ["shard"], true);
    /// Bytes of rows that GETs brought.
    CLIENT_ANSWER_BYTES = Counter("reclane_client_answer_bytes_total", "bytes", ["shard"], true);
    /// Those requests whose keys or rows did not fit the request's own cache line.
    CLIENT_PAYLOADS = Counter("reclane_client_payload_requests_total", "requests", ["shard"], true);
    /// GETs of these that were never sent: the client read the rows in the shard's memory by itself. The shard counts none of them.
    CLIENT_OWN_READS = Counter("reclane_client_own_reads_total", "requests", ["shard"], true);
    /// Requests that failed: refused by the shard, timed out, or lost with their lane.
    CLIENT_FAILED = Counter("reclane_client_failed_total", "requests", ["shard"], true);
    /// Requests that failed because no answer came in time.
    CLIENT_TIMEOUTS = Counter("reclane_client_timeouts_total", "requests", ["shard"], true);
    /// Times that a request was sent again after its lane was lost.
    CLIENT_RETRIES = Counter("reclane_client_retries_total", "sendings", ["shard"], true);
    /// Times that a request found every slot held; a plain call then waits, a submit call fails.
    CLIENT_NO_SLOT = Counter("reclane_client_no_slot_total", "attempts", ["shard"], true);
    /// Uses of slots that have ended: requests of any kind, known without counting, for a slot numbers its uses. One that was sent again over another lane's slot is there twice.
    CLIENT_SLOT_USES = Counter("reclane_client_slot_uses_total", "requests", ["shard"], false);
    /// Request slots of all lanes to a shard: the most requests that can be under way there.
    CLIENT_SLOTS = Gauge("reclane_client_slots", "slots", ["shard"], false);
    /// Slots of these that requests hold.
    CLIENT_SLOTS_HELD = Gauge("reclane_client_slots_held", "slots", ["shard"], false);
    /// Lanes in this state: connecting, active, dirty, rebuilding or dead.
    CLIENT_LANES = Gauge("reclane_client_lanes", "lanes", ["shard", "state"], false);
    /// Times that lanes were connected anew, or tried to be.
    CLIENT_REBUILDS = Counter("reclane_client_lane_rebuilds_total", "attempts", ["shard"], false);
    /// What the control plane last told of a shard: 0 nothing, 1 serving, 2 suspect, 3 dead.
    CLIENT_SHARD_HEALTH = Gauge("reclane_client_shard_health", "0 to 3", ["shard"], false);
    /// Bytes of registered memory of the lanes on the client's side.
    CLIENT_LANE_BYTES = Gauge("reclane_client_lane_bytes", "bytes", [], false);
    /// Library buffers that are open.
    CLIENT_BUFFERS = Gauge("reclane_client_buffers", "buffers", [], false);
    /// Batches under way: calls that were split.
    CLIENT_BATCHES = Gauge("reclane_client_batches", "batches", [], false);
    /// Most batches that can be under way.
    CLIENT_BATCHES_MAX = Gauge("reclane_client_batches_max", "batches", [], false);
    /// Time from submitting a request to taking its answer home, of one request in `metrics-sample-every` of each slot. `op` is get, put or update.
    CLIENT_LATENCY = Histogram("reclane_client_latency_seconds", "seconds", ["op"], true);

    /// Requests that a shard executed. `op` is get, put, update, init_table or command.
    SERVER_REQUESTS = Counter("reclane_server_requests_total", "requests", ["op"], false);
    /// Keys of executed requests. `op` is get or write (PUT and UPDATE).
    SERVER_KEYS = Counter("reclane_server_keys_total", "keys", ["op"], false);
    /// Keys of GETs that had no row and were answered with zeros.
    SERVER_MISSING_ROWS = Counter("reclane_server_missing_rows_total", "rows", [], false);
    /// Bytes of rows that GETs were answered with.
    SERVER_ANSWER_BYTES = Counter("reclane_server_answer_bytes_total", "bytes", [], false);
    /// Requests that were refused as malformed, those for other shards included.
    SERVER_REFUSED = Counter("reclane_server_refused_total", "requests", [], false);
    /// Requests of these that were meant for another shard.
    SERVER_WRONG_SHARD = Counter("reclane_server_wrong_shard_total", "requests", [], false);
    /// Requests whose handler failed.
    SERVER_INTERNAL_ERRORS = Counter("reclane_server_internal_errors_total", "requests", [], false);
    /// Requests that came again and were answered from memory.
    SERVER_REPEATED = Counter("reclane_server_repeated_total", "requests", [], false);
    /// Rounds of a poll thread over its slots. A thread whose rounds stand still is stuck in a handler, or stopped.
    SERVER_ROUNDS = Counter("reclane_server_thread_rounds_total", "rounds", ["thread"], false);
    /// Rounds of these that found nothing.
    SERVER_EMPTY_ROUNDS = Counter("reclane_server_thread_empty_rounds_total", "rounds", ["thread"], false);
    /// Requests that a thread found or was handed.
    SERVER_READY = Counter("reclane_server_thread_requests_total", "requests", ["thread"], false);
    /// Times that a poll thread went to sleep.
    SERVER_SLEEPS = Counter("reclane_server_thread_sleeps_total", "sleeps", ["thread"], false);
    /// Lanes that a poll thread scans.
    SERVER_LANES = Gauge("reclane_server_lanes", "lanes", ["thread"], false);
    /// Request slots of these lanes: the most requests that can be under way there, and so the longest that a queue of workers can be.
    SERVER_SLOTS = Gauge("reclane_server_slots", "slots", ["thread"], false);
    /// Requests that wait for a worker.
    SERVER_QUEUED = Gauge("reclane_server_queued_requests", "requests", [], false);
    /// Bytes of registered memory of the lanes on the shard's side.
    SERVER_LANE_BYTES = Gauge("reclane_server_lane_bytes", "bytes", ["thread"], false);
    /// Clients that a shard has let in and that are here.
    SERVER_CLIENTS = Gauge("reclane_server_clients", "clients", [], false);
    /// Most clients that one deployment takes.
    SERVER_CLIENTS_MAX = Gauge("reclane_server_clients_max", "clients", [], false);
    /// Checkpoints in which this shard took part. `stage` is begun, written or failed.
    SERVER_CHECKPOINTS = Counter("reclane_server_checkpoints_total", "checkpoints", ["stage"], false);
    /// Checkpoints of the deployment that this shard led. `result` is committed or aborted.
    SERVER_CHECKPOINTS_LED = Counter("reclane_server_checkpoints_led_total", "checkpoints", ["result"], false);
    /// The newest epoch of which this shard's part was durable; 0: none since it started.
    SERVER_CHECKPOINT_EPOCH = Gauge("reclane_server_checkpoint_epoch", "epoch", [], false);
    /// Bytes of the shard's state in its parts of checkpoints.
    SERVER_CHECKPOINT_STATE = Counter("reclane_server_checkpoint_state_bytes_total", "bytes", [], false);
    /// Bytes that were written for them: fewer, where a part builds on an earlier one.
    SERVER_CHECKPOINT_WRITTEN = Counter("reclane_server_checkpoint_written_bytes_total", "bytes", [], false);
    /// Time that the shard's gate was shut for checkpoints, while requests waited.
    SERVER_CHECKPOINT_HELD = Counter("reclane_server_checkpoint_held_nanoseconds_total", "nanoseconds", [], false);
    /// The longest of these times.
    SERVER_CHECKPOINT_HELD_MAX = Peak("reclane_server_checkpoint_held_max_nanoseconds", "nanoseconds", [], false);
    /// Time that writing took, beside requests.
    SERVER_CHECKPOINT_WRITING = Counter("reclane_server_checkpoint_writing_nanoseconds_total", "nanoseconds", [], false);
    /// Time that a poll thread takes to execute and answer a request, of rounds that are a multiple of `metrics-sample-every`. `op` is get, put or update.
    SERVER_SERVICE = Histogram("reclane_server_service_seconds", "seconds", ["op"], true);

    /// Operations that a rank posted to peers' regions, reads that flush included. `op` is write, read, fetch_add or compare_swap.
    RANK_OPERATIONS = Counter("reclane_rank_operations_total", "operations", ["op"], false);
    /// Bytes of those. `op` is write or read.
    RANK_BYTES = Counter("reclane_rank_operation_bytes_total", "bytes", ["op"], false);
    /// Operations that ended with their connection. `fate`, as it was judged then, is not_executed or unknown.
    RANK_FAILED = Counter("reclane_rank_failed_operations_total", "operations", ["fate"], false);
    /// Operations under way, to all peers together.
    RANK_UNDER_WAY = Gauge("reclane_rank_operations_under_way", "operations", [], false);
    /// Most operations that can be under way to one peer.
    RANK_PLACES = Gauge("reclane_rank_operations_under_way_max", "operations", [], false);
    /// Lanes to peers. `purpose` is data or atomics; `state` is connected, idle (not used yet, or to be connected with the next use) or gone (the peer is).
    RANK_LANES = Gauge("reclane_rank_lanes", "lanes", ["purpose", "state"], false);
    /// Connections of lanes that were asked for: one when a lane is first used, one more after each loss.
    RANK_CONNECTIONS = Counter("reclane_rank_lane_connections_total", "connections", ["purpose"], false);
    /// Lanes of peers that were let in.
    RANK_GUESTS = Gauge("reclane_rank_guest_lanes", "lanes", [], false);
    /// Peers that are here.
    RANK_PEERS = Gauge("reclane_rank_peers", "ranks", [], false);
    /// Peers that there can be.
    RANK_PEERS_MAX = Gauge("reclane_rank_peers_max", "ranks", [], false);
    /// Regions that are open.
    RANK_REGIONS = Gauge("reclane_rank_regions", "regions", [], false);
    /// Most regions that can be open.
    RANK_REGIONS_MAX = Gauge("reclane_rank_regions_max", "regions", [], false);
    /// Bytes of these regions.
    RANK_REGION_BYTES = Gauge("reclane_rank_region_bytes", "bytes", [], false);
    /// Atomics that this rank executed once for peers.
    RANK_SERVED = Counter("reclane_rank_atomics_executed_total", "operations", [], false);
    /// 1 while a hold keeps new operations back.
    RANK_HELD = Gauge("reclane_rank_held", "0 or 1", [], false);
}

/// The metric of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Metric> {
    TABLE.iter().find(|metric| metric.name == name)
}

/// The table of docs/metrics.md.
#[must_use]
pub fn markdown() -> String {
    let mut text = String::from("| name | kind | unit | labels | meaning |\n| --- | --- | --- | --- | --- |\n");
    for metric in TABLE {
        let labels = metric.labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
        let mark = if metric.counted { " \\*" } else { "" };
        text += &format!(
            "| `{}`{mark} | {} | {} | {labels} | {} |\n",
            metric.name,
            metric.kind.word(),
            metric.unit,
            metric.meaning
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> std::path::PathBuf {
        std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs")
    }

    #[test]
    fn metrics_doc_is_what_the_table_says() {
        let path = root().join("metrics.md");
        let text = std::fs::read_to_string(&path).unwrap();
        let begin = text.find("| name | kind |").expect("the table");
        let end = begin + text[begin..].find("\n\n").expect("its end") + 1;
        let fresh = [&text[..begin], &markdown(), &text[end..]].concat();
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(&path, &fresh).unwrap();
        }
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text == fresh, "docs/metrics.md differs from the table: UPDATE_DOCS=1 cargo test metrics_doc");
    }

    #[test]
    fn the_dashboard_and_the_document_name_metrics_that_exist() {
        for file in ["grafana.json", "metrics.md"] {
            let text = std::fs::read_to_string(root().join(file)).unwrap();
            for (at, _) in text.match_indices("reclane_") {
                let name: String = text[at..]
                    .chars()
                    .take_while(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == '_')
                    .collect();
                let base = name.trim_end_matches("_bucket");
                // Functions of the C interface are none.
                let ours = ["_total", "_seconds"].iter().any(|end| base.ends_with(end)) || file == "grafana.json";
                assert!(!ours || find(base).is_some(), "{file}: {name}");
            }
        }
        let shown = std::fs::read_to_string(root().join("grafana.json")).unwrap();
        let missing: Vec<&str> = TABLE
            .iter()
            .map(|metric| metric.name)
            .filter(|name| name.ends_with("_total") && !shown.contains(name))
            .collect();
        let left_out = [
            name::REFRESHES,
            name::CLIENT_PAYLOADS,
            name::CLIENT_OWN_READS,
            name::CLIENT_SLOT_USES,
            name::SERVER_EMPTY_ROUNDS,
            name::SERVER_READY,
            name::SERVER_KEYS,
        ];
        assert!(missing.iter().all(|name| left_out.contains(name)), "the dashboard does not show {missing:?}");
    }

    #[test]
    fn names_follow_the_rules_of_prometheus_and_stand_once() {
        let spelled = |name: &str| name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        for (place, metric) in TABLE.iter().enumerate() {
            let Metric { name, kind, labels, meaning, unit, .. } = metric;
            assert!(name.starts_with("reclane_") && spelled(name) && labels.iter().all(|l| spelled(l)), "{name}");
            assert_eq!(name.ends_with("_total"), *kind == Kind::Counter, "{name}");
            assert_eq!(name.ends_with("_seconds"), *kind == Kind::Histogram, "{name}");
            assert!(!meaning.is_empty() && !unit.is_empty() && !meaning.contains('|'), "{name}");
            assert!(TABLE[..place].iter().all(|other| other.name != *name), "{name} stands twice");
        }
    }
}
