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
        const reclane::Options options = server_options();
        const std::string shard = shard_of(options);
        const std::uint64_t start = examples::now_ns();
        reclane::Server server = examples::must(reclane::Server::open(options), "server");
        std::printf("event=listening component=reclane_ps_server shard=%s shards=%s fabric=%s namespace=%s\n", ...);
        std::fflush(stdout);
        const char* signal = stop.wait();
        examples::must(server.stop(FLAGS_stop_timeout_ms), "stop");
        return 0;
    } catch (const std::invalid_argument& wrong) {
        std::fprintf(stderr, "reclane_ps_server: %s\n", wrong.what());
        return 2;
    } catch (const std::exception& failure) {
        std::fprintf(stderr, "reclane_ps_server: %s\n", failure.what());
        return 1;
    }
}
