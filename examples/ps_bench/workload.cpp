#include "workload.hpp"

#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <exception>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <thread>

#include "../common/clock.hpp"
#include "../common/histogram.hpp"
#include "bounds.hpp"
#include "keys.hpp"

namespace bench {
namespace {

constexpr std::uint64_t LOAD_KEYS = 256;  // per PUT of the load phase

/// What one thread did in the measured part of a phase.
struct Counts {
    examples::Histogram requests;
    std::uint64_t keys = 0;
};

/// When a thread's phase ends: after so many requests, or at a time.
struct Limit {
    std::uint64_t requests;
    std::uint64_t until_ns;

    bool reached(std::uint64_t done) const { return requests != 0 ? done >= requests : examples::now_ns() >= until_ns; }
};

/// Calls `body(thread number)` on so many threads; the first failure stops all of them and is thrown.
void on_threads(std::uint32_t threads, std::atomic<bool>& stop, const std::function<void(std::uint32_t)>& body) {
    std::vector<std::exception_ptr> failures(threads);
    std::vector<std::thread> running;
    for (std::uint32_t i = 0; i < threads; ++i) {
        running.emplace_back([&, i] {
            try {
                body(i);
            } catch (...) {
                failures[i] = std::current_exception();
                stop.store(true);
            }
        });
    }
    for (std::thread& thread : running) {
        thread.join();
    }
    for (const std::exception_ptr& failure : failures) {
        if (failure) {
            std::rethrow_exception(failure);
        }
    }
}

/// One request that may be under way.
struct Flight {
    Keys keys;
    Rows rows;
    reclane::Request request;
    std::uint64_t start_ns = 0;
};

/// One thread of the run phase.
class Runner {
public:
    Runner(Session& session, const WorkloadOptions& options, std::uint32_t thread, const std::atomic<bool>& stop)
        : session_(session),
          options_(options),
          stop_(stop),
          verifier_(session.verifier(options.verify_stride)),
          source_(options.fetch_key_space != 0 ? options.fetch_key_space : session.count(),
                  options.distribution == "zipfian" ? std::optional<double>(options.zipfian_alpha) : std::nullopt,
                  examples::mix64(options.seed) + thread),
          flights_(std::max<std::uint32_t>(options.prefetch_depth, 1)) {
        for (Flight& flight : flights_) {
            flight.keys.resize(options.batch_keys);
            flight.rows.resize(options.batch_keys * session.dim());
        }
    }

    Counts run(Limit limit) {
        counts_ = Counts{};
        if (options_.mode == "fetch" && flights_.size() > 1) {
            stream(limit);
        } else {
            for (std::uint64_t done = 0; !stop_.load() && !limit.reached(done); ++done) {
                step(flights_[0]);
            }
        }
        return counts_;
    }

private:
    void step(Flight& flight) {
        source_.fill(flight.keys);
        const bool both = options_.mode == "fetch_insert";
        const bool reads =
            both || options_.mode == "fetch" || (options_.mode == "mixed" && source_.chance(options_.read_ratio));
        if (reads) {
            flight.start_ns = examples::now_ns();
            session_.get(flight.keys, flight.rows);
            arrived(flight);
        }
        if (!reads || both) {
            fill_rows(flight.keys, session_.dim(), flight.rows);
            const std::uint64_t start = examples::now_ns();
            session_.put(flight.keys, flight.rows);
            counts_.requests.record(examples::now_ns() - start);
            counts_.keys += flight.keys.size();
        }
    }

    /// Books a GET's answer and checks it.
    void arrived(const Flight& flight) {
        counts_.requests.record(examples::now_ns() - flight.start_ns);
        counts_.keys += flight.keys.size();
        verifier_.check(flight.keys, flight.rows.data());
    }

    void start(Flight& flight) {
        source_.fill(flight.keys);
        flight.start_ns = examples::now_ns();
        flight.request = session_.submit_get(flight.keys, flight.rows);
    }

    void finish(Flight& flight) {
        Session::finish(flight.request);
        arrived(flight);
    }

    /// A ring of GETs; the last ones are collected when the limit is reached.
    void stream(Limit limit) {
        std::uint64_t sent = 0;
        std::uint64_t done = 0;
        while (!stop_.load() && !limit.reached(sent)) {
            if (sent - done == flights_.size()) {
                finish(flights_[done++ % flights_.size()]);
            }
            start(flights_[sent++ % flights_.size()]);
        }
        while (done < sent) {
            finish(flights_[done++ % flights_.size()]);
        }
    }

    Session& session_;
    const WorkloadOptions& options_;
    const std::atomic<bool>& stop_;
    Verifier verifier_;
    KeySource source_;
    std::vector<Flight> flights_;
    Counts counts_;
};

void print_result(const WorkloadOptions& options, const Session& session, const char* phase, std::uint32_t threads,
                  std::uint64_t batch, double seconds, const Counts& counts) {
    const double time = seconds > 0.0 ? seconds : 1e-9;
    const examples::Histogram& requests = counts.requests;
    std::printf("PS_BENCHMARK_RESULT phase=%s transport=%s mode=%s distribution=%s zipfian_alpha=%g threads=%" PRIu32
                " batch_size=%" PRIu64 " records=%" PRIu64 " runtime_s=%.3f batches=%" PRIu64 " key_ops=%" PRIu64
                " throughput_batches_sec=%.1f throughput_keys_sec=%.1f"
                " request_us_p50=%.3f request_us_p95=%.3f request_us_p99=%.3f\n",
                phase, options.transport.c_str(), options.mode.c_str(), options.distribution.c_str(),
                options.zipfian_alpha, threads, batch, session.count(), seconds, requests.count(), counts.keys,
                static_cast<double>(requests.count()) / time, static_cast<double>(counts.keys) / time,
                requests.percentile_us(50), requests.percentile_us(95), requests.percentile_us(99));
    std::fflush(stdout);
}

Counts sum(const std::vector<Counts>& parts) {
    Counts all;
    for (const Counts& part : parts) {
        all.requests.merge(part.requests);
        all.keys += part.keys;
    }
    return all;
}

/// Each thread writes every load_threads-th block of LOAD_KEYS records.
void load(Session& session, const WorkloadOptions& options) {
    std::vector<Counts> parts(options.load_threads);
    std::atomic<bool> stop{false};
    const std::uint64_t start = examples::now_ns();
    on_threads(options.load_threads, stop, [&](std::uint32_t thread) {
        Keys keys;
        Rows rows;
        const std::uint64_t step = LOAD_KEYS * options.load_threads;
        for (std::uint64_t at = thread * LOAD_KEYS; at < session.count() && !stop.load(); at += step) {
            keys.resize(static_cast<std::size_t>(std::min(LOAD_KEYS, session.count() - at)));
            std::iota(keys.begin(), keys.end(), session.first() + at);
            fill_rows(keys, session.dim(), rows);
            const std::uint64_t sent = examples::now_ns();
            session.put(keys, rows);
            parts[thread].requests.record(examples::now_ns() - sent);
            parts[thread].keys += keys.size();
        }
    });
    print_result(options, session, "load", options.load_threads, LOAD_KEYS, examples::seconds_since(start), sum(parts));
}

void run(Session& session, const WorkloadOptions& options) {
    std::atomic<bool> stop{false};
    std::vector<Runner> runners;
    for (std::uint32_t i = 0; i < options.threads; ++i) {
        runners.emplace_back(session, options, i, stop);
    }
    std::vector<Counts> parts(options.threads);
    const auto phase = [&](Limit limit) {
        on_threads(options.threads, stop, [&](std::uint32_t thread) { parts[thread] = runners[thread].run(limit); });
    };
    const bool counted = options.workload == "micro";
    if (options.warmup_rounds != 0) {
        phase(Limit{std::uint64_t{options.warmup_rounds} * options.iterations, 0});
    }
    const std::uint64_t start = examples::now_ns();
    phase(counted ? Limit{std::uint64_t{options.rounds} * options.iterations, 0}
                  : Limit{0, start + std::uint64_t{options.running_seconds} * 1'000'000'000});
    print_result(options, session, "run", options.threads, options.batch_keys, examples::seconds_since(start),
                 sum(parts));
}

}  // namespace

void check(const WorkloadOptions& options) {
    one_of("workload", options.workload, {"micro", "transactions"});
    one_of("mode", options.mode, {"fetch", "insert", "mixed", "fetch_insert"});
    one_of("distribution", options.distribution, {"uniform", "zipfian"});
    within("thread_num", options.threads, 1, 1024);
    within("load_thread_num", options.load_threads, 1, 1024);
    within("batch_keys", options.batch_keys, 1, 1U << 20);
    within("rounds", options.rounds, 1, UINT32_MAX);
    within("iterations", options.iterations, 1, UINT32_MAX);
    within("running_seconds", options.running_seconds, 1, 86'400);
    within("read_ratio", options.read_ratio, 0, 100);
    within("prefetch_depth", options.prefetch_depth, 0, 1U << 20);
    within("fetch_key_space", options.fetch_key_space, 0, std::uint64_t{1} << 32);
    if (!(options.zipfian_alpha > 0.0 && options.zipfian_alpha <= 10.0)) {
        throw std::invalid_argument("--zipfian_alpha: " + std::to_string(options.zipfian_alpha) +
                                    " is not above 0 and at most 10");
    }
    if (options.mode != "fetch" && options.fetch_key_space != 0) {
        throw std::invalid_argument("--fetch_key_space is for --mode=fetch: a mode that writes would fill the misses");
    }
}

void run_workload(Session& session, const WorkloadOptions& options) {
    if (!options.skip_load) {
        load(session, options);
    }
    if (options.load_only) {
        return;
    }
    session.meet("reclane_ps_bench_loaded", options.client_processes, options.meet_timeout_ms);
    run(session, options);
}

}  // namespace bench
