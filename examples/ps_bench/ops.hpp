// Single operations on a small fixed set of keys: latency and rate of one request after another, or of several at once.
#pragma once

#include <string>
#include <vector>

#include "session.hpp"

namespace bench {

struct OpOptions {
    std::string transport;  ///< for the result line
    std::string op;         ///< put, update, update_flat, get, async_get, async_stream, mixed, or all
    std::uint32_t rounds;
    std::uint32_t warmup_rounds;
    std::uint32_t iterations;   ///< per round; async operations make `depth` requests each
    std::uint32_t batch_keys;   ///< per request
    std::uint32_t async_depth;  ///< requests under way at once, of the async operations
    std::uint32_t get_ratio;    ///< percent of GETs in `mixed`
    std::size_t verify_stride;  ///< 0: nothing is checked
    std::uint64_t seed;
    bool every_round;  ///< a result line per round as well
};

/// Throws std::invalid_argument for a word or number that is out of its bounds.
void check(const OpOptions& options);

/// Fills the session's keys, runs each operation and prints its result line.
void run_ops(Session& session, const OpOptions& options);

}  // namespace bench
