//! The table.

use super::choices::{
    CheckpointRestore, CheckpointSurvivors, CommitScheme, DataInOrder, FabricKind, GetResponseMode, HashMethod,
    HugePages, Integrity, LogLevel, PutTransferMode, RdmaMode, RecoveryPreset, RequestRetry, SharedReads,
};
use super::deployment::Digests;
use super::spec::{Kind, Spec};
use super::value::{FromValue, Value};

/// Slots hold at most this many payload bytes, so that offsets within a lane's memory stay far from overflow.
const SLOT_BYTES_MAX: u64 = 1 << 30;
/// Shards are numbered in 16 bits on the wire; this many processes is also more than one control plane serves.
pub(super) const SHARDS_MAX: u64 = 4096;
pub(super) const CLIENTS_MAX: u64 = 65_536;

/// From one list of rows: the struct with a typed field per row, the table, and the way between them. A row's comment is
/// the option's meaning, in the struct's documentation as in every other place.
macro_rules! option_table {
    ($($(#[doc = $meaning:literal])+ $field:ident: $type:ty = $spec:expr;)+) => {
        /// All options' values at one moment, typed and checked against each other.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Settings {
            $($(#[doc = $meaning])+ pub $field: $type,)+
            /// Digests of the deployment file, when there is one.
            pub contract: Option<Digests>,
        }

        /// All options.
        pub const TABLE: &[Spec] = &[$($spec.documented(stringify!($field), concat!($($meaning),+))),+];

        impl Settings {
            /// `values` has one value per row, in the table's order.
            pub(super) fn from_values(values: &[Value]) -> Settings {
                let mut values = values.iter();
                let mut next = || values.next().unwrap_or(&Value::Auto);
                Settings { $($field: <$type as FromValue>::from_value(next()),)+ contract: None }
            }

            /// One value per row, in the table's order.
            pub(super) fn to_values(&self) -> Vec<Value> {
                vec![$(FromValue::to_value(&self.$field)),+]
            }
        }

        $(const _: () = assert!(
            $spec.fits(<$type as FromValue>::MAX, <$type as FromValue>::WORDS.len()),
            "bounds do not fit the field's type"
        );)+
    };
}

option_table! {
    /// What moves bytes: `shm` between processes of one host, `verbs` over RDMA hardware.
    fabric: FabricKind = Spec::choice("fabric", "shm", FabricKind::WORDS).layout();
    /// How the reader of a slot knows that all of it has arrived. `auto` takes the best that the fabric promises and logs which.
    commit_scheme: CommitScheme = Spec::choice("commit-scheme", "auto", CommitScheme::WORDS).layout();
    /// Checksum over headers and payloads of requests and answers.
    integrity: Integrity = Spec::choice("integrity", "off", Integrity::WORDS).layout();

    /// Lanes (queue pairs) from one client to one shard.
    qps_per_client_per_shard: u32 = Spec::number("qps-per-client-per-shard", "16", 1, 1024).layout()
        .environment(&["RECSTORE_RDMA_RC_QPS_PER_CLIENT_PER_SHARD"]);
    /// Lanes to each shard that a client connects when it opens; 0: those that `async-depth` needs, and one to spare. The others are connected when requests first find no idle slot, twice as many each time, so that memory grows with the lanes that are used. A number above qps-per-client-per-shard means all of them.
    qps_at_open: u32 = Spec::number("qps-at-open", "0", 0, 1024).client();
    /// Slots per lane. Lanes times slots is the most that one client may have under way at one shard.
    slots_per_qp: u32 = Spec::number("slots-per-qp", "1", 1, 1024).layout()
        .environment(&["RECSTORE_RDMA_RC_SLOTS_PER_QP"]);
    /// Requests that one caller keeps under way; at most qps-per-client-per-shard * slots-per-qp.
    async_depth: u32 = Spec::number("async-depth", "1", 1, 1 << 20).client();
    /// Payload bytes of a request slot.
    request_slot_bytes: u32 = Spec::number("rdma-rc-request-slot-bytes", "1048576", 64, SLOT_BYTES_MAX).unit("bytes").layout();
    /// Payload bytes of a response slot.
    response_slot_bytes: u32 = Spec::number("rdma-rc-response-slot-bytes", "1048576", 64, SLOT_BYTES_MAX).unit("bytes").layout();
    /// Completion queue depth.
    cq_depth: u32 = Spec::number("cq-depth", "4096", 16, 1 << 20);
    /// Send queue depth of a lane.
    max_send_wr: u32 = Spec::number("max-send-wr", "1024", 4, 32_768);
    /// Bytes that a work request may carry inline; the device may grant less. `verbs` only.
    inline_bytes: u32 = Spec::number("rdma-rc-inline-bytes", "64", 0, 4096).unit("bytes");

    /// RDMA device, as `ibv_devinfo` names it. Empty: the first one that fits. `verbs` only, like all options up to rdma-data-in-order.
    device: String = Spec::new("rdma-device", "", Kind::Name { min_bytes: 0, max_bytes: 63 });
    /// Port of the device.
    device_port: u32 = Spec::number("rdma-port", "1", 1, 255);
    /// How packets look: InfiniBand, RoCE v1 or RoCE v2. All members have the same.
    rdma_mode: RdmaMode = Spec::choice("rdma-mode", "rocev2", RdmaMode::WORDS);
    /// Place of the address in the port's table. `auto` (-1): found by type and subnet, again with each connection.
    gid_index: Option<u32> = Spec::optional("rdma-gid-index", 0, 65_535);
    /// Subnet of the address when it is found by type, as `10.0.0.0/16`. Empty: any; IPv4 goes first.
    gid_subnet: String = Spec::new("rdma-gid-subnet", "", Kind::Text { max_bytes: 63 });
    /// Largest packet payload; both ends use the smaller one of theirs. 0: what the port has now. Else 256, 512, 1024, 2048 or 4096.
    path_mtu: u32 = Spec::number("rdma-path-mtu", "0", 0, 4096).unit("bytes");
    /// Routers that a packet may pass.
    hop_limit: u32 = Spec::number("rdma-hop-limit", "64", 1, 255);
    /// Traffic class of packets (RoCE v2: DSCP and ECN bits).
    traffic_class: u32 = Spec::number("rdma-traffic-class", "0", 0, 255);
    /// Flow label of packets.
    flow_label: u32 = Spec::number("rdma-flow-label", "0", 0, 0xf_ffff);
    /// Service level of packets.
    service_level: u32 = Spec::number("rdma-service-level", "0", 0, 15);
    /// How long a device waits for an acknowledgement before it sends again: 4.096 us times 2 to this power.
    ack_timeout: u32 = Spec::number("rdma-ack-timeout", "14", 1, 31);
    /// How many times a device sends again before the lane fails. Soft-RoCE takes 7 for ever: there the control plane's verdict ends a lane to a dead peer.
    retry_cnt: u32 = Spec::number("rdma-retry-cnt", "7", 0, 7);
    /// How many times a device sends again when the peer has no receive posted. 7: for ever.
    rnr_retry: u32 = Spec::number("rdma-rnr-retry", "7", 0, 7);
    /// How long a peer without a receive asks to wait, as the verbs number it (12 is 0.64 ms).
    min_rnr_timer: u32 = Spec::number("rdma-min-rnr-timer", "12", 0, 31);
    /// Whether bytes that a device writes become visible in order, which commit scheme `single` needs. `auto` asks the device; `yes` takes it from you, as for adapters on x86 without adaptive routing and without relaxed ordering. Never for Soft-RoCE: its kernel module copies some writes backwards.
    data_in_order: DataInOrder = Spec::choice("rdma-data-in-order", "auto", DataInOrder::WORDS);

    /// How long a request waits for its answer. Counted from the first look that has to wait: at this request, or at
    /// another one of the same client while this one was under way.
    wait_timeout_ms: u64 = Spec::milliseconds("rdma-wait-timeout-ms", "60000", 1)
        .environment(&["RECSTORE_RDMA_WAIT_TIMEOUT_MS"]);
    /// How many times in a row a waiting client looks for its answer before it starts to yield.
    wait_spin_iterations: u32 = Spec::number("rdma-rc-wait-spin-iterations", "300", 0, 1 << 30).client()
        .aliases(&["rdma-wait-spin-loops"]);
    /// How many times a waiting client offers its core to others between two looks, before it starts to sleep.
    wait_yield_iterations: u32 = Spec::number("rdma-wait-yield-iterations", "2000", 0, 1 << 30).client()
        .aliases(&["rdma-wait-yield-loops"]);
    /// How long a waiting client then sleeps between two looks. 0: it goes on yielding.
    wait_sleep_us: u32 = Spec::number("rdma-wait-sleep-us", "50", 0, 1_000_000).client().unit("us");
    /// How many times in a row an idle poll thread scans before it starts to yield.
    poll_spin_iterations: u32 = Spec::number("poll-spin-iterations", "500", 0, 1 << 30).server();
    /// How many times an idle poll thread offers its core to others between two scans, before it sleeps until a request rings.
    poll_yield_iterations: u32 = Spec::number("poll-yield-iterations", "1000", 0, 1 << 30).server();

    /// Where shard 0 serves the control plane.
    control_plane_host: String = Spec::new("rdma-control-plane-host", "127.0.0.1", Kind::Text { max_bytes: 255 })
        .environment(&["RECSTORE_RDMA_CONTROL_PLANE_HOST"]);
    /// Its TCP port. 0 is for shard 0 alone: any free port.
    control_plane_port: u16 = Spec::number("rdma-control-plane-port", "25100", 0, 65_535)
        .environment(&["RECSTORE_RDMA_CONTROL_PLANE_PORT"]);
    /// File with the secret that all members share, one word of 16 to 256 bytes. Who joins without it is refused. Empty: none is asked for.
    control_plane_token_file: String = Spec::new("control-plane-token-file", "", Kind::Text { max_bytes: 4095 });
    /// How long start-up and calls to the control plane may take.
    control_plane_timeout_ms: u64 = Spec::milliseconds("rdma-control-plane-timeout-ms", "30000", 1)
        .environment(&["RECSTORE_RDMA_CONTROL_PLANE_TIMEOUT_MS"]);
    /// Keeps runs apart that share a host or a control plane. Empty means `default`.
    namespace: String = Spec::new("rdma-namespace", "default", Kind::Name { min_bytes: 0, max_bytes: 63 })
        .environment(&["RECSTORE_RDMA_RC_NAMESPACE"]);
    /// The deployment contract, a JSON file (docs/deployment.md). What it says need not be said by options; an option that contradicts it is refused. Empty: none.
    deployment_file: String = Spec::new("deployment-file", "", Kind::Text { max_bytes: 4095 });
    /// The deployment's name. A member of another deployment is refused.
    deployment_id: String = Spec::new("deployment-id", "reclane", Kind::Name { min_bytes: 1, max_bytes: 63 });
    /// The deployment's epoch; only grows. A member of an older epoch is refused.
    deployment_epoch: u64 = Spec::number("deployment-epoch", "1", 1, u64::MAX);

    /// Number of shards, each served by one process.
    num_shards: u32 = Spec::number("num-server-processes", "1", 1, SHARDS_MAX).layout();
    /// Number of client processes that start together.
    num_client_processes: u32 = Spec::number("num-client-processes", "1", 1, CLIENTS_MAX)
        .environment(&["RECSTORE_RDMA_NUM_CLIENT_PROCESSES", "WORLD_SIZE", "LOCAL_WORLD_SIZE"]);
    /// Number of this process over all: servers count from 0, clients go on from num-server-processes. Another way to say shard-id or client-id.
    global_id: Option<u32> = Spec::optional("global-id", 0, SHARDS_MAX + CLIENTS_MAX - 1);
    /// The shard that this server serves.
    shard_id: u32 = Spec::number("shard-id", "0", 0, SHARDS_MAX - 1).server();
    /// This client's number. `auto`: the control plane gives one, above 65535, and another one after each start.
    client_id: Option<u32> = Spec::optional("client-id", 0, CLIENTS_MAX - 1).client()
        .aliases(&["os-client-index", "rdma-logical-client-id"])
        .environment(&["RECSTORE_RDMA_OS_CLIENT_INDEX", "RANK", "LOCAL_RANK"]);

    /// Poll threads of a server.
    server_threads: u32 = Spec::number("server-rdma-threads", "1", 1, 256).server().aliases(&["thread-num"]);
    /// Threads that gather the rows of GETs. 0: the poll thread does it itself.
    get_workers: u32 = Spec::number("rdma-rc-server-get-workers", "0", 0, 256).server()
        .environment(&["RECSTORE_RDMA_RC_SERVER_GET_WORKERS"]);
    /// Scanners per poll thread, each with its share of the lanes.
    coroutines_per_thread: u32 = Spec::number("rdma-rc-server-coroutines-per-thread", "1", 1, 64).server()
        .environment(&["RECSTORE_RDMA_RC_SERVER_COROUTINES_PER_THREAD"]);
    /// NUMA node that slots, buffers and rows of the built-in table come from, as far as it has room. `auto`: wherever they
    /// are touched first.
    numa_id: Option<u32> = Spec::optional("numa-id", 0, 1023);
    /// Most bytes of one registration of memory with the device. Lanes share registrations: a process has few, however many
    /// lanes. `verbs` only.
    region_bytes: u64 = Spec::number("rdma-region-bytes", "134217728", 1 << 20, 1 << 40).unit("bytes");
    /// Huge pages for tables and slots. `auto`: transparent ones. `on`: reserved ones (vm.nr_hugepages); on `shm` both ends must
    /// have it then, and trust each other: who gives such memory can take it back, which ends who touches it.
    huge_pages: HugePages = Spec::choice("huge-pages", "auto", HugePages::WORDS);

    /// How the rows of a GET reach the client: sent straight from the table's memory, or copied to a staging area first.
    /// `auto` and `direct_sg` are the same on `shm`; on `verbs` the device gathers the rows itself with `direct_sg`, and with
    /// `auto` those of 2048 bytes or more, if the server has one poll thread and no GET workers. A server with `staging_copy`
    /// copies whatever clients ask for.
    get_response_mode: GetResponseMode = Spec::choice("rdma-get-response-mode", "auto", GetResponseMode::WORDS)
        .environment(&["RECSTORE_RDMA_GET_RESPONSE_MODE"]);
    /// Whether GETs of the built-in table read the rows in the shard's memory, without a request. `auto`: on `shm`, unless
    /// huge-pages is `on`; what cannot be read at once goes by request. Rows are whole and never older than what was
    /// answered. Such a GET holds a slot as any other until it is finished; the client counts it, and the shard does not.
    /// `off` at either end: never.
    shared_reads: SharedReads = Spec::choice("shared-reads", "auto", SharedReads::WORDS);
    /// Version of the PUT protocol; only 2 is left.
    put_protocol_version: u32 = Spec::number("rdma-put-protocol-version", "2", 2, 2);
    /// How the rows of a PUT reach the server: written into the request slot, or read by the server from the client's registered buffer.
    put_v2_transfer_mode: PutTransferMode = Spec::choice("rdma-put-v2-transfer-mode", "push", PutTransferMode::WORDS).client();
    /// Which shard owns a key.
    hash_method: HashMethod = Spec::choice("hash-method", "city_hash", HashMethod::WORDS).layout();
    /// Bytes of a row of the default table; a multiple of 4.
    value_size: u32 = Spec::number("value-size", "128", 4, 65_536).unit("bytes").layout();
    /// Most keys of one request on the wire; larger batches are split.
    max_kv_num_per_request: u32 = Spec::number("max-kv-num-per-request", "300", 1, 1 << 20).layout()
        .aliases(&["max-keys-per-request"]);

    /// What the options of heartbeat, health, rebuild and retry are that are not given. `plain`: the defaults of this table. `resilient`: rebuild, sweep, refilling attempts, pushed verdicts, idle probes and exactly-once retries are on, and a silent shard is dead after 300 ms.
    recovery_preset: RecoveryPreset = Spec::choice("recovery-preset", "plain", RecoveryPreset::WORDS);
    /// How often each shard reports that it lives.
    heartbeat_interval_ms: u64 = Spec::milliseconds("rdma-heartbeat-interval-ms", "1000", 1);
    /// A shard silent for so long is suspect.
    health_stale_ms: u64 = Spec::milliseconds("rdma-health-stale-ms", "3000", 1);
    /// A shard silent for so long is dead.
    health_dead_ms: u64 = Spec::milliseconds("rdma-health-dead-ms", "9000", 1);
    /// A request that waited so long asks the control plane about its shard. 0: it never asks.
    health_probe_after_ms: u64 = Spec::milliseconds("rdma-health-probe-after-ms", "1000", 0).client();
    /// Time between two such questions.
    health_probe_interval_ms: u64 = Spec::milliseconds("rdma-health-probe-interval-ms", "1000", 1).client();
    /// How long such a question may take.
    health_probe_timeout_ms: u64 = Spec::milliseconds("rdma-health-probe-timeout-ms", "1000", 1).client();
    /// Whether clients act on the control plane's verdicts as soon as it tells them, and not only when a request has waited for long.
    health_push: bool = Spec::new("rdma-health-push", "false", Kind::Flag).client();
    /// Time after which a lane without a request under way is probed. 0: never.
    lane_probe_idle_ms: u64 = Spec::milliseconds("rdma-lane-probe-idle-ms", "0", 0).client();
    /// Accepted for configurations that have it, without effect: a waiting request looks for failed completions at each slow look, microseconds apart, which is sooner than any interval.
    cq_harvest_interval_ms: u64 = Spec::milliseconds("rdma-cq-harvest-interval-ms", "50", 0).client();

    /// Whether a dirty lane is connected anew. Both ends must have it on.
    lane_rebuild_enabled: bool = Spec::new("rdma-lane-rebuild-enabled", "false", Kind::Flag);
    /// Rebuilds of one lane before it is dead; with a refill time, that it has in hand at most.
    lane_rebuild_max_attempts: u32 = Spec::number("rdma-lane-rebuild-max-attempts", "3", 1, 1 << 20);
    /// How long each of the two steps of a rebuild waits for the peer; with a refill time it doubles, up to 16 times, while they fail.
    lane_rebuild_wait_ms: u64 = Spec::milliseconds("rdma-lane-rebuild-wait-ms", "2000", 1);
    /// How often a server looks for lanes that its clients rebuilt.
    lane_rebuild_poll_ms: u64 = Spec::milliseconds("rdma-lane-rebuild-poll-ms", "50", 1).server();
    /// While there are none, that time doubles up to this.
    lane_rebuild_poll_max_ms: u64 = Spec::milliseconds("rdma-lane-rebuild-poll-max-ms", "500", 1).server();
    /// How long one such look may take.
    lane_rebuild_poll_timeout_ms: u64 = Spec::milliseconds("rdma-lane-rebuild-poll-timeout-ms", "100", 1).server();
    /// Least time between two rebuilds of one lane; with a refill time it doubles, up to 16 times, while they fail.
    lane_rebuild_cooldown_ms: u64 = Spec::milliseconds("rdma-lane-rebuild-cooldown-ms", "1000", 0);
    /// How often a client looks for lanes to rebuild that no request asks for. 0: never.
    lane_rebuild_sweep_ms: u64 = Spec::milliseconds("rdma-lane-rebuild-sweep-ms", "0", 0).client();
    /// Time after which a lane gets one rebuild back. 0: never, rdma-lane-rebuild-max-attempts are for its life.
    lane_rebuild_refill_ms: u64 = Spec::milliseconds("rdma-lane-rebuild-refill-ms", "0", 0).client();

    /// Whether a request whose lane was lost is sent again within its wait timeout.
    request_retry: RequestRetry = Spec::choice("request-retry", "off", RequestRetry::WORDS).client();
    /// How long a shard remembers what it executed for a client that has vanished.
    request_window_lease_ms: u64 = Spec::milliseconds("request-window-lease-ms", "60000", 0).server();

    /// Whether requests are counted by kind, and some of them timed. On in any case with one of the next three options, or with profile lines.
    metrics: bool = Spec::new("metrics", "false", Kind::Flag);
    /// Directory of counters files, one for each client and server, which `reclane status` and `reclane top` read even when the process stands still or is gone. Best on a memory file system, as `/dev/shm/reclane`. Empty: none.
    metrics_directory: String = Spec::new("metrics-directory", "", Kind::Text { max_bytes: 4095 });
    /// TCP port of the metrics in Prometheus' text. 0: any free port. `auto`: none.
    metrics_port: Option<u32> = Spec::optional("metrics-port", 0, 65_535);
    /// Address that this port is opened on. There is no authentication.
    metrics_host: String = Spec::new("metrics-host", "127.0.0.1", Kind::Text { max_bytes: 255 });
    /// While requests are counted, one in so many is timed, which reads the clock; rounded up to a power of two. 0: none.
    metrics_sample_every: u32 = Spec::number("metrics-sample-every", "256", 0, 1 << 20);
    /// How often profile lines are written. 0: never.
    profile_interval_ms: u64 = Spec::milliseconds("rdma-rc-profile-interval-ms", "0", 0);
    /// Directory of checkpoints, and of the built-in store's SAVE and LOAD. All shards must see the same files in it. Empty: there are none, and SAVE and LOAD are refused.
    checkpoint_directory: String = Spec::new("checkpoint-directory", "", Kind::Text { max_bytes: 4095 }).server();
    /// How often shard 0 takes a checkpoint of all shards by itself. 0: only when asked.
    checkpoint_interval_ms: u64 = Spec::milliseconds("checkpoint-interval-ms", "0", 0).server();
    /// Checkpoints that are kept, beside older ones that they build on.
    checkpoint_keep: u32 = Spec::number("checkpoint-keep", "2", 2, 1024).server();
    /// Every so many checkpoints everything is written; those between have what changed. 1: always everything.
    checkpoint_full_every: u32 = Spec::number("checkpoint-full-every", "8", 1, 1024).server();
    /// How long requests may wait for a checkpoint: when shards have not all copied their state by then, it is given up.
    checkpoint_hold_timeout_ms: u64 = Spec::milliseconds("checkpoint-hold-timeout-ms", "2000", 1).server();
    /// How long writing a checkpoint may take; also how long a shard that starts waits for shard 0 to choose one.
    checkpoint_write_timeout_ms: u64 = Spec::milliseconds("checkpoint-write-timeout-ms", "600000", 1).server();
    /// Threads of a shard that hash and write a checkpoint.
    checkpoint_writers: u32 = Spec::number("checkpoint-writers", "2", 1, 64).server();
    /// Whether shards start from a checkpoint. `latest`: from the newest that is whole, or empty when there never was one; `require`: not at all when there is none.
    checkpoint_restore: CheckpointRestore = Spec::choice("checkpoint-restore", "off", CheckpointRestore::WORDS).server();
    /// The one epoch to restore. 0: the newest that is whole.
    checkpoint_restore_epoch: u64 = Spec::number("checkpoint-restore-epoch", "0", 0, u64::MAX).server();
    /// What becomes of clients that lived through a restore. `refuse`: they must open again, for what they were told after the checkpoint is undone; `resume`: they go on, and requests that they send again are answered as the checkpoint remembers.
    checkpoint_survivors: CheckpointSurvivors = Spec::choice("checkpoint-survivors", "refuse", CheckpointSurvivors::WORDS).server();
    /// The least important event that is written.
    log_level: LogLevel = Spec::choice("log-level", "info", LogLevel::WORDS);
    /// Where events are written: a file, or `stderr`. Empty: nowhere.
    log_file: String = Spec::new("log-file", "", Kind::Text { max_bytes: 4095 });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_obeys_its_own_bounds_and_reads_back_as_written() {
        for spec in TABLE {
            let value = spec.parse(spec.default, "default").unwrap();
            assert_eq!(value.to_string(), spec.default, "{}", spec.name);
        }
    }

    #[test]
    fn the_fields_are_the_options_each_once() {
        let values: Vec<Value> = TABLE.iter().map(|spec| spec.parse(spec.default, "default").unwrap()).collect();
        let settings = Settings::from_values(&values);
        assert_eq!(settings.to_values(), values);
        let mut fields: Vec<&str> = TABLE.iter().map(|spec| spec.field).collect();
        fields.sort_unstable();
        fields.dedup();
        assert_eq!(fields.len(), TABLE.len());
    }

    #[test]
    fn names_are_spelled_with_dashes_and_have_a_meaning() {
        let spelled = |name: &str| name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        for spec in TABLE {
            assert!(spelled(spec.name) && spec.aliases.iter().all(|alias| spelled(alias)), "{}", spec.name);
            assert!(!spec.meaning.is_empty(), "{}", spec.name);
            assert!(!spec.meaning.contains('|'), "{} would break the table in the document", spec.name);
        }
    }
}
