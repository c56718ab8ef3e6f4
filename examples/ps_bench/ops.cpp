#include "ops.hpp"

#include <array>
#include <cinttypes>
#include <cstdio>
#include <numeric>

#include "../common/clock.hpp"
#include "../common/histogram.hpp"
#include "../common/random.hpp"
#include "bounds.hpp"

namespace bench {
namespace {

constexpr std::array<const char*, 7> OPS = {"put",       "update",       "update_flat", "get",
                                            "async_get", "async_stream", "mixed"};

/// What some rounds took.
struct Measured {
    examples::Histogram requests;
    double seconds = 0.0;
};

/// One GET that may be under way.
struct Lane {
    Rows rows;
    reclane::Request request;
    std::uint64_t start_ns = 0;
};

class OpRunner {
public:
    OpRunner(Session& session, const OpOptions& options)
        : session_(session),
          options_(options),
          verifier_(session.verifier(options.verify_stride)),
          random_(options.seed),
          keys_(options.batch_keys),
          lanes_(options.async_depth) {
        std::iota(keys_.begin(), keys_.end(), session.first());
        fill_rows(keys_, session.dim(), values_);
        // Gradients of zero: all of the work, and the rows stay what the verifier expects.
        zeros_.assign(values_.size(), 0.0F);
        for (std::size_t i = 0; i < keys_.size(); ++i) {
            zero_rows_.push_back(zeros_.data() + i * session.dim());
        }
        for (Lane& lane : lanes_) {
            lane.rows.assign(values_.size(), 0.0F);
        }
    }

    void load() { session_.put(keys_, values_); }

    /// After writes: whether the table holds what was written.
    void check_table() {
        if (verifier_.enabled()) {
            session_.get(keys_, lanes_[0].rows);
            verifier_.check(keys_, lanes_[0].rows.data());
        }
    }

    Measured round(const std::string& op) {
        Measured measured;
        const std::uint64_t start = examples::now_ns();
        if (op == "async_stream") {
            stream(measured);
        } else if (op == "async_get") {
            for (std::uint32_t i = 0; i < options_.iterations; ++i) {
                burst(measured);
            }
        } else {
            for (std::uint32_t i = 0; i < options_.iterations; ++i) {
                single(op, measured);
            }
        }
        measured.seconds = examples::seconds_since(start);
        return measured;
    }

private:
    void single(const std::string& op, Measured& measured) {
        const bool reads = op == "get" || (op == "mixed" && random_.below(100) < options_.get_ratio);
        Rows& rows = lanes_[0].rows;
        const std::uint64_t start = examples::now_ns();
        if (reads) {
            session_.get(keys_, rows);
        } else if (op == "update") {
            session_.update(keys_, zero_rows_);
        } else if (op == "update_flat") {
            session_.update_flat(keys_, zeros_);
        } else {
            session_.put(keys_, values_);
        }
        measured.requests.record(examples::now_ns() - start);
        if (reads) {
            verifier_.check(keys_, rows.data());
        }
    }

    void start(Lane& lane) {
        lane.start_ns = examples::now_ns();
        lane.request = session_.submit_get(keys_, lane.rows);
    }

    void finish(Lane& lane, Measured& measured) {
        Session::finish(lane.request);
        measured.requests.record(examples::now_ns() - lane.start_ns);
        verifier_.check(keys_, lane.rows.data());
    }

    /// As many requests as lanes, then all of their answers.
    void burst(Measured& measured) {
        for (Lane& lane : lanes_) {
            start(lane);
        }
        for (Lane& lane : lanes_) {
            finish(lane, measured);
        }
    }

    /// A ring: the oldest answer makes room for the next request.
    void stream(Measured& measured) {
        const std::uint64_t total = std::uint64_t{options_.iterations} * lanes_.size();
        for (Lane& lane : lanes_) {
            start(lane);
        }
        for (std::uint64_t done = 0; done < total; ++done) {
            Lane& oldest = lanes_[done % lanes_.size()];
            finish(oldest, measured);
            if (done + lanes_.size() < total) {
                start(oldest);
            }
        }
    }

    Session& session_;
    const OpOptions& options_;
    Verifier verifier_;
    examples::Random random_;
    Keys keys_;
    Rows values_;
    Rows zeros_;
    std::vector<const float*> zero_rows_;
    std::vector<Lane> lanes_;
};

void print_result(const OpOptions& options, const std::string& op, const char* phase, std::uint32_t rounds,
                  const Measured& measured) {
    const double requests = static_cast<double>(measured.requests.count());
    const double per_second = measured.seconds > 0.0 ? requests / measured.seconds : 0.0;
    std::printf("transport=%s op=%s phase=%s summary rounds=%" PRIu32 " iterations=%" PRIu32 " batch_keys=%" PRIu32
                " elapsed_us_mean=%.3f elapsed_us_p50=%.3f elapsed_us_p95=%.3f elapsed_us_p99=%.3f"
                " ops_per_sec=%.1f key_ops_per_sec=%.1f async_depth=%" PRIu32 " requests=%" PRIu64 "\n",
                options.transport.c_str(), op.c_str(), phase, rounds, options.iterations, options.batch_keys,
                measured.requests.mean_us(), measured.requests.percentile_us(50), measured.requests.percentile_us(95),
                measured.requests.percentile_us(99), per_second, per_second * options.batch_keys,
                op.compare(0, 5, "async") == 0 ? options.async_depth : 1, measured.requests.count());
    std::fflush(stdout);
}

std::vector<std::string> op_names(const std::string& op) {
    if (op == "all") {
        return std::vector<std::string>(OPS.begin(), OPS.end());
    }
    return {op};
}

}  // namespace

void check(const OpOptions& options) {
    if (options.op != "all") {
        one_of("op", options.op, {"put", "update", "update_flat", "get", "async_get", "async_stream", "mixed"});
    }
    within("rounds", options.rounds, 1, UINT32_MAX);
    within("iterations", options.iterations, 1, UINT32_MAX);
    within("batch_keys", options.batch_keys, 1, 1U << 20);
    within("get_ratio", options.get_ratio, 0, 100);
}

void run_ops(Session& session, const OpOptions& options) {
    OpRunner runner(session, options);
    runner.load();
    for (const std::string& op : op_names(options.op)) {
        for (std::uint32_t i = 0; i < options.warmup_rounds; ++i) {
            runner.round(op);
        }
        Measured all;
        for (std::uint32_t i = 0; i < options.rounds; ++i) {
            const Measured one = runner.round(op);
            if (options.every_round) {
                print_result(options, op, "round", 1, one);
            }
            all.requests.merge(one.requests);
            all.seconds += one.seconds;
        }
        runner.check_table();
        print_result(options, op, "measure", options.rounds, all);
    }
}

}  // namespace bench
