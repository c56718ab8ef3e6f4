// reclane_ps_bench: measures a running deployment from a client.
//
// Without --workload, single operations (--op) on a small fixed set of keys, one result line an operation. With
// --workload=micro or transactions, many threads on a large table, one PS_BENCHMARK_RESULT line a phase. All
// percentiles are of single requests. Exit status: 0 done, 1 failed, 2 wrong flags.

#include <gflags/gflags.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>

#include "../common/checked.hpp"
#include "../common/reclane_flags.hpp"
#include "ops.hpp"
#include "workload.hpp"

DEFINE_string(op, "all", "single operations: put, update, update_flat, get, async_get, async_stream, mixed, or all");
DEFINE_string(workload, "", "micro (a number of batches) or transactions (a number of seconds); empty: --op");
DEFINE_string(mode, "fetch", "workload: fetch, insert, mixed or fetch_insert");
DEFINE_uint32(iterations, 100,
              "requests in a round (a thread's, in a workload); async operations make async_depth each");
DEFINE_uint32(rounds, 5, "measured rounds");
DEFINE_uint32(warmup_rounds, 1, "rounds before, not measured");
DEFINE_uint32(batch_keys, 16, "keys in a request");
DEFINE_uint32(get_ratio, 95, "percent of GETs in --op=mixed");
DEFINE_uint32(read_ratio, 100, "percent of GETs in --mode=mixed");
DEFINE_string(report_mode, "summary", "summary, or rounds for a line per round as well");
DEFINE_bool(verify_values, false, "check the contents of the rows");
DEFINE_uint32(verify_value_row_stride, 1, "with --verify_values: check every n-th row of a request");
DEFINE_uint64(record_count, 1'000'000, "workload: rows in the table");
DEFINE_uint32(thread_num, 16, "workload: threads of the run phase, on one client handle");
DEFINE_uint32(load_thread_num, 0, "workload: threads of the load phase; 0: thread_num");
DEFINE_uint32(running_seconds, 5, "workload=transactions: length of the run phase");
DEFINE_string(distribution, "uniform", "workload: uniform or zipfian keys");
DEFINE_double(zipfian_alpha, 0.9, "exponent of the zipfian distribution");
DEFINE_uint64(fetch_key_space, 0, "mode=fetch: draw keys from so many; 0: record_count; more gives misses");
DEFINE_uint32(prefetch_depth, 0, "mode=fetch: GETs under way at once a thread; 0: one after the other");
DEFINE_uint64(seed, 1, "of keys and choices");
DEFINE_bool(skip_load, false, "workload: the table is filled already");
DEFINE_bool(load_only, false, "workload: fill the table and end");

namespace {

constexpr std::uint64_t FIRST_KEY = 1'000'001;  // of the fixed set of --op

/// The options of a client that may have as many requests under way as the flags ask for.
reclane::Options client_options() {
    reclane::Options options = examples::options_from_flags();
    if (!FLAGS_workload.empty()) {
        const std::uint64_t a_thread = std::max<std::uint64_t>(FLAGS_prefetch_depth, 1);
        const std::uint64_t threads = std::max(FLAGS_thread_num, FLAGS_load_thread_num);
        examples::ask_for_depth(options, threads * a_thread);
    }
    return options;
}

std::size_t verify_stride() {
    if (FLAGS_verify_value_row_stride == 0) {
        throw std::invalid_argument("--verify_value_row_stride must be at least 1");
    }
    return FLAGS_verify_values ? FLAGS_verify_value_row_stride : 0;
}

bench::OpOptions op_options(const reclane::Options& options) {
    bench::OpOptions chosen{};
    chosen.transport = examples::option_text(options, "fabric");
    chosen.op = FLAGS_op;
    chosen.rounds = FLAGS_rounds;
    chosen.warmup_rounds = FLAGS_warmup_rounds;
    chosen.iterations = FLAGS_iterations;
    chosen.batch_keys = FLAGS_batch_keys;
    chosen.async_depth = static_cast<std::uint32_t>(examples::option_number(options, "async_depth"));
    chosen.get_ratio = FLAGS_get_ratio;
    chosen.verify_stride = verify_stride();
    chosen.seed = FLAGS_seed;
    chosen.every_round = FLAGS_report_mode == "rounds";
    bench::check(chosen);
    return chosen;
}

bench::WorkloadOptions workload_options(const reclane::Options& options) {
    bench::WorkloadOptions chosen{};
    chosen.transport = examples::option_text(options, "fabric");
    chosen.workload = FLAGS_workload;
    chosen.mode = FLAGS_mode;
    chosen.distribution = FLAGS_distribution;
    chosen.zipfian_alpha = FLAGS_zipfian_alpha;
    chosen.threads = FLAGS_thread_num;
    chosen.load_threads = FLAGS_load_thread_num != 0 ? FLAGS_load_thread_num : FLAGS_thread_num;
    chosen.batch_keys = FLAGS_batch_keys;
    chosen.rounds = FLAGS_rounds;
    chosen.iterations = FLAGS_iterations;
    chosen.warmup_rounds = FLAGS_warmup_rounds;
    chosen.running_seconds = FLAGS_running_seconds;
    chosen.read_ratio = FLAGS_read_ratio;
    chosen.prefetch_depth = FLAGS_prefetch_depth;
    chosen.fetch_key_space = FLAGS_fetch_key_space;
    chosen.verify_stride = verify_stride();
    chosen.seed = FLAGS_seed;
    chosen.skip_load = FLAGS_skip_load;
    chosen.load_only = FLAGS_load_only;
    chosen.client_processes = static_cast<std::uint32_t>(examples::option_number(options, "num_client_processes"));
    chosen.meet_timeout_ms = examples::option_number(options, "rdma_wait_timeout_ms");
    bench::check(chosen);
    return chosen;
}

void run() {
    if (FLAGS_report_mode != "summary" && FLAGS_report_mode != "rounds") {
        throw std::invalid_argument("--report_mode: '" + FLAGS_report_mode + "' is neither summary nor rounds");
    }
    if (FLAGS_record_count == 0 || FLAGS_record_count > (std::uint64_t{1} << 32)) {
        throw std::invalid_argument("--record_count must be within 1..2^32");
    }
    const reclane::Options options = client_options();
    const std::size_t dim = static_cast<std::size_t>(examples::option_number(options, "value_size")) / sizeof(float);
    if (FLAGS_workload.empty()) {
        const bench::OpOptions chosen = op_options(options);
        reclane::Client client = examples::must(reclane::Client::open(options), "client");
        bench::Session session(client, "ps_bench_ops", dim, FIRST_KEY, FLAGS_batch_keys);
        bench::run_ops(session, chosen);
    } else {
        const bench::WorkloadOptions chosen = workload_options(options);
        reclane::Client client = examples::must(reclane::Client::open(options), "client");
        bench::Session session(client, "ps_bench_records", dim, 0, FLAGS_record_count);
        bench::run_workload(session, chosen);
    }
}

}  // namespace

int main(int argc, char** argv) {
    try {
        gflags::SetUsageMessage("measures a running deployment: --op=get ..., or --workload=transactions ...");
        examples::adopt_library_defaults();
        gflags::ParseCommandLineFlags(&argc, &argv, true);
        if (argc > 1) {
            throw std::invalid_argument(std::string("'") + argv[1] + "' is no flag");
        }
        run();
        return 0;
    } catch (const std::invalid_argument& wrong) {
        std::fprintf(stderr, "reclane_ps_bench: %s\n", wrong.what());
        return 2;
    } catch (const std::exception& failure) {
        std::fprintf(stderr, "reclane_ps_bench: %s\n", failure.what());
        return 1;
    }
}
