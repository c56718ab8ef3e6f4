// reclane_ps_server: serves one shard with the built-in table until SIGINT or SIGTERM.
//
// Prints event=listening when clients can be served and event=stopped with totals at the end. Exit status: 0 stopped in
// order, 1 failed, 2 wrong flags.

#include <gflags/gflags.h>

#include <cinttypes>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>

#include "../common/checked.hpp"
#include "../common/clock.hpp"
#include "../common/reclane_flags.hpp"
#include "../common/stop_signal.hpp"

DEFINE_string(thread_num, "1", "same as server_rdma_threads: poll threads");
DEFINE_uint64(stop_timeout_ms, 10'000, "how long stopping may take");

namespace {

reclane::Options server_options() {
    reclane::Options options = examples::options_from_flags();
    if (!gflags::GetCommandLineFlagInfoOrDie("thread_num").is_default) {
        examples::set_option(options, "thread_num", FLAGS_thread_num);
    }
    return options;
}

/// The shard that these options make this process.
std::string shard_of(const reclane::Options& options) {
    const std::string global_id = examples::option_text(options, "global_id");
    return global_id == "auto" ? examples::option_text(options, "shard_id") : global_id;
}

void serve(const reclane::Options& options, const examples::StopSignal& stop) {
    const std::uint64_t start = examples::now_ns();
    const auto text = [&options](const char* name) { return examples::option_text(options, name); };
    reclane::Server server = examples::must(reclane::Server::open(options), "server");
    const std::string shard = shard_of(options);
    const auto port = server.control_plane_port();
    const std::string control_plane =
        text("rdma_control_plane_host") + ":" + (port ? std::to_string(*port) : text("rdma_control_plane_port"));
    std::printf(
        "component=reclane_ps_server event=listening shard=%s shards=%s fabric=%s namespace=%s control_plane=%s"
        " threads=%s startup_ms=%.1f\n",
        shard.c_str(), text("num_server_processes").c_str(), text("fabric").c_str(), text("rdma_namespace").c_str(),
        control_plane.c_str(), text("server_rdma_threads").c_str(), examples::seconds_since(start) * 1e3);
    std::fflush(stdout);

    const char* signal = stop.wait();
    examples::must(server.stop(FLAGS_stop_timeout_ms), "stop");
    const reclane_server_counters total = examples::must(server.stats(), "statistics");
    std::printf("component=reclane_ps_server event=stopped shard=%s reason=%s gets=%" PRIu64 " puts=%" PRIu64
                " updates=%" PRIu64 " get_rows=%" PRIu64 " missing_rows=%" PRIu64 " refused=%" PRIu64
                " internal_errors=%" PRIu64 " seconds=%.1f\n",
                shard.c_str(), signal, total.gets, total.puts, total.updates, total.get_rows, total.missing_rows,
                total.refused, total.internal_errors, examples::seconds_since(start));
    std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
    try {
        const examples::StopSignal stop;
        gflags::SetUsageMessage("serves one shard until SIGINT or SIGTERM: --global_id=0 --num_server_processes=1 ...");
        examples::adopt_library_defaults();
        gflags::ParseCommandLineFlags(&argc, &argv, true);
        if (argc > 1) {
            throw std::invalid_argument(std::string("'") + argv[1] + "' is no flag");
        }
        serve(server_options(), stop);
        return 0;
    } catch (const std::invalid_argument& wrong) {
        std::fprintf(stderr, "reclane_ps_server: %s\n", wrong.what());
        return 2;
    } catch (const std::exception& failure) {
        std::fprintf(stderr, "reclane_ps_server: %s\n", failure.what());
        return 1;
    }
}
