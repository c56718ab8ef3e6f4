// Many threads on a large table: a load phase that fills it, and a run phase of reads and writes.
#pragma once

#include <optional>
#include <string>

#include "session.hpp"

namespace bench {

struct WorkloadOptions {
    std::string transport;     ///< for the result line
    std::string workload;      ///< micro: a number of batches; transactions: a number of seconds
    std::string mode;          ///< fetch, insert, mixed or fetch_insert
    std::string distribution;  ///< uniform or zipfian
    double zipfian_alpha;
    std::uint32_t threads;
    std::uint32_t load_threads;
    std::uint32_t batch_keys;
    std::uint32_t rounds;  ///< micro: rounds * iterations batches a thread
    std::uint32_t iterations;
    std::uint32_t warmup_rounds;
    std::uint32_t running_seconds;
    std::uint32_t read_ratio;       ///< percent of GETs in mode mixed
    std::uint32_t prefetch_depth;   ///< mode fetch: GETs under way at once a thread; 0 is the same as 1
    std::uint64_t fetch_key_space;  ///< keys are drawn from so many; more than there are records gives misses
    std::size_t verify_stride;
    std::uint64_t seed;
    bool skip_load;
    bool load_only;
    std::uint32_t client_processes;
    std::uint64_t meet_timeout_ms;
};

/// Throws std::invalid_argument for a word or number that is out of its bounds.
void check(const WorkloadOptions& options);

/// Runs both phases and prints a PS_BENCHMARK_RESULT line for each.
void run_workload(Session& session, const WorkloadOptions& options);

}  // namespace bench
