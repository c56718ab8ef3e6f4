#include "reclane_flags.hpp"

#include <gflags/gflags.h>

#include <stdexcept>

#include "checked.hpp"

// Two lists: X(name, meaning) of flags with a value, and of switches. Programs with a meaning of their own for a name
// (thread_num, global_id of a server) define it themselves.
#define TEXT_FLAGS(X)                                                                                    \
    X(fabric, "what moves bytes: shm or verbs")                                                          \
    X(commit_scheme, "how a slot's reader knows that all has arrived: auto, single, crc or imm")         \
    X(integrity, "checksum over requests and answers: off or crc32c")                                    \
    X(qps_per_client_per_shard, "lanes from one client to one shard")                                    \
    X(rdma_rc_qps_per_client_per_shard, "same as qps_per_client_per_shard")                              \
    X(qps_at_open, "lanes to each shard that are connected when the client opens; 0: by async_depth")    \
    X(slots_per_qp, "slots per lane")                                                                    \
    X(rdma_rc_slots_per_qp, "same as slots_per_qp")                                                      \
    X(async_depth, "requests that one caller keeps under way, at most lanes * slots")                    \
    X(rdma_rc_request_slot_bytes, "payload bytes of a request slot")                                     \
    X(rdma_rc_response_slot_bytes, "payload bytes of a response slot")                                   \
    X(cq_depth, "completion queue depth")                                                                \
    X(max_send_wr, "send queue depth of a lane")                                                         \
    X(rdma_rc_inline_bytes, "bytes that a work request may carry inline")                                \
    X(rdma_region_bytes, "most bytes of one registration of memory with the device")                     \
    X(rdma_device, "RDMA device; empty: the first one that fits")                                        \
    X(rdma_port, "port of the device")                                                                   \
    X(rdma_mode, "how packets look: ib, rocev1 or rocev2")                                               \
    X(rdma_gid_index, "place of the address; -1: by type and subnet")                                    \
    X(rdma_gid_subnet, "subnet of the address, as 10.0.0.0/16")                                          \
    X(rdma_path_mtu, "largest packet payload; 0: the port's")                                            \
    X(rdma_hop_limit, "routers that a packet may pass")                                                  \
    X(rdma_traffic_class, "traffic class of packets")                                                    \
    X(rdma_flow_label, "flow label of packets")                                                          \
    X(rdma_service_level, "service level of packets")                                                    \
    X(rdma_ack_timeout, "wait for an acknowledgement, 4.096 us * 2^N")                                   \
    X(rdma_retry_cnt, "repetitions without an acknowledgement")                                          \
    X(rdma_rnr_retry, "repetitions without a receive; 7: for ever")                                      \
    X(rdma_min_rnr_timer, "what a peer without a receive asks to wait")                                  \
    X(rdma_data_in_order, "who vouches for the order of bytes: auto, yes or no")                         \
    X(rdma_wait_timeout_ms, "how long a request waits for its answer, ms")                               \
    X(rdma_rc_wait_spin_iterations, "looks of a waiting client before it yields")                        \
    X(rdma_wait_spin_loops, "same as rdma_rc_wait_spin_iterations")                                      \
    X(rdma_wait_yield_iterations, "yields of a waiting client before it sleeps")                         \
    X(rdma_wait_yield_loops, "same as rdma_wait_yield_iterations")                                       \
    X(rdma_wait_sleep_us, "pause of a waiting client between looks, us")                                 \
    X(poll_spin_iterations, "scans of an idle server thread before it yields")                           \
    X(poll_yield_iterations, "yields of an idle server thread before it sleeps")                         \
    X(rdma_control_plane_host, "where shard 0 serves the control plane")                                 \
    X(rdma_control_plane_port, "TCP port of the control plane")                                          \
    X(control_plane_token_file, "file with the secret that all members share")                           \
    X(rdma_control_plane_timeout_ms, "how long start-up may take, ms")                                   \
    X(rdma_namespace, "keeps runs apart that share a host")                                              \
    X(rdma_rc_namespace, "same as rdma_namespace")                                                       \
    X(deployment_file, "the deployment contract, a JSON file")                                           \
    X(deployment_id, "name of the deployment")                                                           \
    X(deployment_epoch, "epoch of the deployment; only grows")                                           \
    X(num_server_processes, "number of shards")                                                          \
    X(num_shards, "same as num_server_processes")                                                        \
    X(num_client_processes, "number of client processes that start together")                            \
    X(global_id, "number of this process: servers from 0, clients from num_server_processes")            \
    X(shard_id, "number of this server; global_id is the same for both kinds of processes")              \
    X(client_id, "number of this client")                                                                \
    X(rdma_logical_client_id, "same as client_id")                                                       \
    X(server_rdma_threads, "poll threads of a server")                                                   \
    X(rdma_rc_server_get_workers, "threads of a server that gather rows; 0: its poll threads")           \
    X(rdma_rc_server_coroutines_per_thread, "scanners per poll thread")                                  \
    X(numa_id, "NUMA node that memory comes from")                                                       \
    X(huge_pages, "huge pages: auto, off or on")                                                         \
    X(rdma_get_response_mode, "how rows reach the client: auto, direct_sg or staging_copy")              \
    X(shared_reads, "GETs that read in the shard's memory, without a request: auto or off")              \
    X(rdma_put_protocol_version, "version of the PUT protocol; only 2")                                  \
    X(rdma_put_v2_transfer_mode, "how rows reach the server: push or read")                              \
    X(rdma_transport_mode, "only rc_write")                                                              \
    X(hash_method, "which shard owns a key: city_hash or simple_mod")                                    \
    X(value_size, "bytes of a row of the default table")                                                 \
    X(max_kv_num_per_request, "most keys of one request on the wire")                                    \
    X(checkpoint_directory, "where checkpoints, SAVE and LOAD have their files; empty: none")            \
    X(checkpoint_interval_ms, "how often servers take a checkpoint by themselves, ms; 0: never")         \
    X(checkpoint_keep, "checkpoints that are kept")                                                      \
    X(checkpoint_full_every, "every so many checkpoints everything is written")                          \
    X(checkpoint_hold_timeout_ms, "how long requests may wait for a checkpoint, ms")                     \
    X(checkpoint_write_timeout_ms, "how long writing a checkpoint may take, ms")                         \
    X(checkpoint_writers, "threads of a server that write a checkpoint")                                 \
    X(checkpoint_restore, "whether servers start from a checkpoint: off, latest or require")             \
    X(checkpoint_restore_epoch, "the one checkpoint to restore; 0: the newest good one")                 \
    X(checkpoint_survivors, "clients that lived through a restore: refuse or resume")                    \
    X(recovery_preset, "plain, or resilient: lanes are rebuilt and requests sent again")                 \
    X(request_retry, "exactly-once: an interrupted request is sent again; off: it fails")                \
    X(request_window_lease_ms, "how long a shard remembers a vanished client, ms")                       \
    X(rdma_heartbeat_interval_ms, "how often each shard reports that it lives, ms")                      \
    X(rdma_health_stale_ms, "a shard silent for so long is suspect, ms")                                 \
    X(rdma_health_dead_ms, "a shard silent for so long is dead, ms")                                     \
    X(rdma_health_probe_after_ms, "a request that waited so long asks about its shard, ms; 0: never")    \
    X(rdma_health_probe_interval_ms, "time between two such questions, ms")                              \
    X(rdma_health_probe_timeout_ms, "how long such a question may take, ms")                             \
    X(rdma_lane_probe_idle_ms, "a lane without a request for so long is probed, ms; 0: never")           \
    X(rdma_cq_harvest_interval_ms, "accepted, without effect: failed completions are looked for sooner") \
    X(rdma_lane_rebuild_max_attempts, "rebuilds of a lane before it is dead")                            \
    X(rdma_lane_rebuild_wait_ms, "how long each step of a rebuild waits for the peer, ms")               \
    X(rdma_lane_rebuild_poll_ms, "how often a server looks for rebuilt lanes, ms")                       \
    X(rdma_lane_rebuild_poll_max_ms, "longest time between two such looks, ms")                          \
    X(rdma_lane_rebuild_poll_timeout_ms, "how long such a look may take, ms")                            \
    X(rdma_lane_rebuild_cooldown_ms, "least time between two rebuilds of a lane, ms")                    \
    X(rdma_lane_rebuild_sweep_ms, "how often a client looks for lanes to rebuild, ms; 0: never")         \
    X(rdma_lane_rebuild_refill_ms, "time after which a lane gets one rebuild back, ms; 0: never")        \
    X(rdma_rc_profile_interval_ms, "how often profile lines are written, ms; 0: never")                  \
    X(metrics_directory, "where counters files are; empty: none")                                        \
    X(metrics_port, "TCP port of the metrics for Prometheus; auto: none")                                \
    X(metrics_host, "address of that port")                                                              \
    X(metrics_sample_every, "one request in so many is timed; 0: none")                                  \
    X(log_level, "least important event that is written")                                                \
    X(log_file, "where events are written: a file, stderr, or empty for nowhere")

#define SWITCHES(X)                                                               \
    X(rdma_lane_rebuild_enabled, "whether a dirty lane is connected anew")        \
    X(rdma_health_push, "whether the control plane's verdicts are acted on soon") \
    X(metrics, "whether requests are counted by kind, and some of them timed")

#define DEFINE_TEXT(name, meaning) DEFINE_string(name, "", meaning);
#define DEFINE_SWITCH(name, meaning) DEFINE_bool(name, false, meaning);
TEXT_FLAGS(DEFINE_TEXT)
SWITCHES(DEFINE_SWITCH)

namespace examples {
namespace {

#define NAME_OF(name, meaning) #name,
constexpr const char* NAMES[] = {TEXT_FLAGS(NAME_OF) SWITCHES(NAME_OF)};

}  // namespace

void set_option(reclane::Options& options, const std::string& name, const std::string& value) {
    must(options.set(name, value), "--" + name);
}

std::string option_text(const reclane::Options& options, const std::string& name) {
    return must(options.get(name), "option " + name);
}

std::uint64_t option_number(const reclane::Options& options, const std::string& name) {
    const std::string text = option_text(options, name);
    std::size_t used = 0;
    const std::uint64_t value = std::stoull(text, &used);
    if (used != text.size()) {
        throw std::runtime_error("option " + name + ": '" + text + "' is not a number");
    }
    return value;
}

void ask_for_depth(reclane::Options& options, std::uint64_t depth) {
    if (depth > option_number(options, "async_depth")) {
        set_option(options, "async_depth", std::to_string(depth));
    }
}

void adopt_library_defaults() {
    const reclane::Options options = must(reclane::Options::open(), "options");
    for (const char* name : NAMES) {
        const auto value = options.get(name);
        if (value) {
            gflags::SetCommandLineOptionWithMode(name, value.value().c_str(), gflags::SET_FLAGS_DEFAULT);
        }
    }
}

reclane::Options options_from_flags() {
    reclane::Options options = must(reclane::Options::open(), "options");
    for (const char* name : NAMES) {
        const gflags::CommandLineFlagInfo flag = gflags::GetCommandLineFlagInfoOrDie(name);
        if (!flag.is_default) {
            set_option(options, name, flag.current_value);
        }
    }
    return options;
}

}  // namespace examples
