// reclane_chaos_trainer: trains the model of the MovieLens trainer, with several other processes of its kind, against
// shards that are killed, stopped and started again, until SIGINT or SIGTERM, and keeps an account of what it sent.
//
// Exit status: 0 told to stop, 1 failed, 2 wrong flags.

#include <gflags/gflags.h>

#include <cinttypes>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>

#include "../common/checked.hpp"
#include "../common/reclane_flags.hpp"
#include "../common/stop_signal.hpp"
#include "../trainer/training.hpp"
#include "exact_store.hpp"

DEFINE_string(data, "", "the ratings: a tab-separated file with the header user_id:token item_id:token rating:float");
DEFINE_string(ledger, "", "the account; must not exist yet");
DEFINE_uint32(factors, 8, "factors of a user and of an item");
DEFINE_uint32(batch_size, 64, "ratings in a batch");
DEFINE_double(learning_rate, 0.02, "times the gradient is what is added to a row");
DEFINE_uint64(seed, 1, "of the split and the first rows: the same for all trainers");
DEFINE_uint64(order_seed, 1, "of the order of batches, and of the lanes that are broken");
DEFINE_uint32(threads, 2, "trainer threads");
DEFINE_uint32(break_lane_every, 50, "UPDATEs between two lanes that are broken on purpose, on average; 0: none");
DEFINE_uint64(patience_ms, 60'000, "how long a request is tried again");
DEFINE_bool(resend_doubtful, false, "a deliberate mistake, to see it noticed: send again what may have been executed");

namespace {

trainer::TrainingOptions training_options() {
    trainer::TrainingOptions options{};
    options.model.factors = FLAGS_factors;
    options.model.init_scale = 0.05F;
    options.model.regularisation = 0.08F;
    options.model.bias_regularisation = 0.01F;
    options.model.seed = FLAGS_seed;
    options.order_seed = FLAGS_order_seed;
    options.learning_rate = 1.0F;
    options.learning_rate_decay = 1.0F;
    options.epochs = 1'000'000;
    options.batch_size = FLAGS_batch_size;
    options.threads = FLAGS_threads;
    options.table_prefix = "chaos_";
    return options;
}

int work(const examples::StopSignal& signal) {
    const trainer::TrainingOptions options = training_options();
    const trainer::Ratings ratings = trainer::load_ratings(FLAGS_data, FLAGS_seed);
    reclane::Options flags = examples::options_from_flags();
    examples::ask_for_depth(flags, options.threads);
    chaos::Habits habits{};
    habits.learning_rate = static_cast<float>(FLAGS_learning_rate);
    habits.width = options.model.dim();
    habits.break_lane_every = FLAGS_break_lane_every;
    habits.lanes = static_cast<std::uint32_t>(examples::option_number(flags, "qps_per_client_per_shard"));
    habits.seed = FLAGS_order_seed;
    habits.patience_ms = FLAGS_patience_ms;
    habits.resend_doubtful = FLAGS_resend_doubtful;
    std::atomic<bool> stop{false};
    // Ends with the process: a signal that never comes is not waited for.
    std::thread([&signal, &stop] {
        signal.wait();
        stop = true;
    }).detach();
    chaos::ExactStore store(flags, FLAGS_ledger, habits, stop);
    std::printf("component=reclane_chaos_trainer event=training\n");
    std::fflush(stdout);
    try {
        trainer::train(store, ratings, options, [](const trainer::EpochReport& report) {
            std::printf("component=reclane_chaos_trainer event=epoch epoch=%u held_out_rmse=%.4f\n", report.epoch,
                        report.held_out_rmse);
            std::fflush(stdout);
        });
    } catch (const chaos::Stopped&) {
        // As it should be.
    }
    const chaos::Counts& counts = store.counts();
    std::printf("component=reclane_chaos_trainer event=stopped updates=%" PRIu64 " keys_again=%" PRIu64
                " keys_in_doubt=%" PRIu64 " gets_again=%" PRIu64 " tables_again=%" PRIu64 " lanes_broken=%" PRIu64 "\n",
                counts.updates.load(), counts.keys_again.load(), counts.keys_in_doubt.load(), counts.gets_again.load(),
                counts.tables_again.load(), counts.lanes_broken.load());
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        const examples::StopSignal signal;
        gflags::SetUsageMessage("trains until SIGTERM and keeps an account: --data=FILE --ledger=FILE ...");
        examples::adopt_library_defaults();
        gflags::ParseCommandLineFlags(&argc, &argv, true);
        if (argc > 1 || FLAGS_data.empty() || FLAGS_ledger.empty() || FLAGS_threads == 0) {
            throw std::invalid_argument("--data, --ledger and at least one thread are needed, and nothing but flags");
        }
        return work(signal);
    } catch (const std::invalid_argument& wrong) {
        std::fprintf(stderr, "reclane_chaos_trainer: %s\n", wrong.what());
        return 2;
    } catch (const std::exception& failure) {
        std::fprintf(stderr, "reclane_chaos_trainer: %s\n", failure.what());
        return 1;
    }
}
