// reclane_train_mf: fits a biased matrix-factorisation model whose embeddings live on parameter servers, and does the
// same in this process without any transport, for comparison.
//
// Exit status: 0 trained, good enough, and equal bit for bit where that can be; 1 otherwise; 2 for wrong flags.

#include <gflags/gflags.h>

#include <cmath>
#include <cstdio>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>

#include "../common/checked.hpp"
#include "../common/reclane_flags.hpp"
#include "local_store.hpp"
#include "remote_store.hpp"
#include "report.hpp"

DEFINE_string(data, "", "the ratings: a tab-separated file with the header user_id:token item_id:token rating:float");
DEFINE_string(mode, "both", "where the embeddings live: remote, local, or both, one after the other");
DEFINE_uint32(factors, 32, "factors of a user and of an item");
DEFINE_uint32(epochs, 20, "passes over the training ratings");
DEFINE_uint32(batch_size, 64, "ratings in a batch");
DEFINE_double(learning_rate, 0.05, "of the servers' SGD in the first epoch");
DEFINE_double(learning_rate_decay, 0.9, "factor per epoch");
DEFINE_double(regularisation, 0.08, "of the factors");
DEFINE_double(bias_regularisation, 0.01, "of the biases");
DEFINE_double(init_scale, 0.05, "factors start uniform within plus and minus this");
DEFINE_uint64(seed, 1, "of the split, the first rows and the order of the batches");
DEFINE_double(max_rmse, 0.92, "the held-out error must be below this");
DEFINE_uint32(threads, 1, "trainer threads on one client handle; tables are compared bit for bit only with 1");
DEFINE_bool(pipeline, false, "send a batch's user and item requests together");
DEFINE_uint32(checkpoint_every, 0, "batches between two checkpoints of the servers; 0: none");
DEFINE_string(resume_from, "",
              "go on where the newest good checkpoint in this directory was made, which the servers have restored");
DEFINE_string(table_prefix, "mf_", "of the names of the two tables");

namespace {

using trainer::RunReport;

void check_flags() {
    const auto demand = [](bool holds, const std::string& what) {
        if (!holds) {
            throw std::invalid_argument(what);
        }
    };
    demand(!FLAGS_data.empty(), "--data: the file with the ratings must be named");
    demand(FLAGS_mode == "remote" || FLAGS_mode == "local" || FLAGS_mode == "both",
           "--mode: '" + FLAGS_mode + "' is none of remote, local, both");
    demand(FLAGS_factors >= 1 && FLAGS_factors <= 1024, "--factors must be within 1..1024");
    demand(FLAGS_epochs >= 1 && FLAGS_epochs <= 10'000, "--epochs must be within 1..10000");
    demand(FLAGS_batch_size >= 1 && FLAGS_batch_size <= 65'536, "--batch_size must be within 1..65536");
    demand(FLAGS_threads >= 1 && FLAGS_threads <= 256, "--threads must be within 1..256");
    demand(FLAGS_checkpoint_every == 0 || FLAGS_threads == 1, "--checkpoint_every needs --threads=1");
    demand(FLAGS_learning_rate > 0.0, "--learning_rate must be above 0");
    demand(FLAGS_learning_rate_decay > 0.0 && FLAGS_learning_rate_decay <= 1.0,
           "--learning_rate_decay must be above 0 and at most 1");
}

trainer::TrainingOptions training_options() {
    trainer::TrainingOptions options{};
    options.model.factors = FLAGS_factors;
    options.model.init_scale = static_cast<float>(FLAGS_init_scale);
    options.model.regularisation = static_cast<float>(FLAGS_regularisation);
    options.model.bias_regularisation = static_cast<float>(FLAGS_bias_regularisation);
    options.model.seed = FLAGS_seed;
    options.order_seed = FLAGS_seed + 1;
    options.learning_rate = static_cast<float>(FLAGS_learning_rate);
    options.learning_rate_decay = static_cast<float>(FLAGS_learning_rate_decay);
    options.epochs = FLAGS_epochs;
    options.batch_size = FLAGS_batch_size;
    options.threads = FLAGS_threads;
    options.pipeline = FLAGS_pipeline;
    options.table_prefix = FLAGS_table_prefix;
    options.keep_every = 0;
    return options;
}

/// Where the checkpoint that the servers have restored was made; empty when there is none.
std::string last_position() {
    if (FLAGS_resume_from.empty()) {
        return "";
    }
    const auto restore = reclane::Restore::open(FLAGS_resume_from);
    if (!restore) {
        std::printf("starting from the beginning: %s\n", restore.error().message());
        return "";
    }
    const std::string position = examples::must(restore.value().section("trainer"), "the position in the checkpoint");
    std::printf("resuming at epoch and batch %s, checkpoint %llu\n", position.c_str(),
                static_cast<unsigned long long>(examples::must(restore.value().describe(), "checkpoint").epoch));
    std::fflush(stdout);
    return position;
}

std::unique_ptr<RunReport> run(trainer::RowStore& store, const std::string& title, const trainer::Ratings& ratings,
                               const trainer::TrainingOptions& options) {
    return std::make_unique<RunReport>(trainer::train(store, ratings, options, [&](const trainer::EpochReport& report) {
        trainer::print_progress(title, report, options.epochs);
    }));
}

/// Not a number is not good enough either.
bool good_enough(const trainer::Column& column) {
    if (column.run->last.held_out_rmse < FLAGS_max_rmse) {
        return true;
    }
    std::printf("%s: held-out RMSE %.4f is not below %.4f\n", column.title.c_str(), column.run->last.held_out_rmse,
                FLAGS_max_rmse);
    return false;
}

/// Trains as the flags say; false when a result is not what it must be.
bool train_and_judge() {
    const trainer::TrainingOptions options = training_options();
    const trainer::Ratings ratings = trainer::load_ratings(FLAGS_data, FLAGS_seed);
    std::printf("%zu ratings to train on, %zu held out, %zu users, %zu items, mean %.4f\n", ratings.train.size(),
                ratings.held_out.size(), ratings.users.size(), ratings.items.size(), static_cast<double>(ratings.mean));
    std::vector<trainer::Column> columns;
    std::unique_ptr<RunReport> remote;
    std::unique_ptr<RunReport> local;
    if (FLAGS_mode != "local") {
        reclane::Options flags = examples::options_from_flags();
        examples::ask_for_depth(flags, std::uint64_t{options.threads} * (options.pipeline ? 2 : 1));
        trainer::RemoteStore store(flags);
        std::printf("remote: %u shards, fabric %s\n", store.num_shards(),
                    examples::option_text(flags, "fabric").c_str());
        trainer::TrainingOptions kept = options;
        kept.keep_every = FLAGS_checkpoint_every;
        kept.position = last_position();
        remote = run(store, "remote", ratings, kept);
        columns.push_back({"remote", remote.get()});
    }
    if (FLAGS_mode != "remote") {
        trainer::LocalStore store(options.threads > 1);
        local = run(store, "local", ratings, options);
        columns.push_back({"local", local.get()});
    }
    trainer::print_table(columns);
    bool good = true;
    for (const trainer::Column& column : columns) {
        good = good_enough(column) && good;
    }
    if (remote && local && options.threads == 1) {
        good = trainer::same_tables(*remote, *local, ratings, options.model.dim()) && good;
    } else if (remote && local) {
        std::printf("final tables: not compared, as %u threads update them in no fixed order\n", options.threads);
    }
    return good;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        gflags::SetUsageMessage("trains a matrix-factorisation model against parameter servers: --data=FILE ...");
        examples::adopt_library_defaults();
        gflags::ParseCommandLineFlags(&argc, &argv, true);
        if (argc > 1) {
            throw std::invalid_argument(std::string("'") + argv[1] + "' is no flag");
        }
        check_flags();
        return train_and_judge() ? 0 : 1;
    } catch (const std::invalid_argument& wrong) {
        std::fprintf(stderr, "reclane_train_mf: %s\n", wrong.what());
        return 2;
    } catch (const std::exception& failure) {
        std::fprintf(stderr, "reclane_train_mf: %s\n", failure.what());
        return 1;
    }
}
