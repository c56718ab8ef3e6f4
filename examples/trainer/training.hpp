// One training run against a store, with what it measured.
#pragma once

#include <functional>

#include "../common/histogram.hpp"
#include "model.hpp"

namespace trainer {

struct TrainingOptions {
    ModelOptions model;
    float learning_rate;        ///< given to the store once, when the tables are made
    float learning_rate_decay;  ///< factor per epoch, applied to the gradients
    std::uint32_t epochs;
    std::uint32_t batch_size;
    std::uint32_t threads;
    bool pipeline;             ///< user and item requests of a batch travel together
    std::uint64_t order_seed;  ///< of the order of batches
    std::string table_prefix;
    std::uint32_t keep_every;  ///< batches between two copies that the store keeps; 0: none
    std::string position;      ///< where a kept copy was made: training goes on from there. Empty: from the beginning
};

struct EpochReport {
    std::uint32_t epoch;  ///< from 1
    double train_rmse;
    double held_out_rmse;
    double keys_per_second;
};

struct RunReport {
    EpochReport last;
    std::uint64_t keys;  ///< fetched plus updated while training
    double seconds;      ///< of training, without evaluation
    examples::Histogram get;
    examples::Histogram update;
    Rows user_rows;  ///< the final tables, in the order of Ratings::users and Ratings::items
    Rows item_rows;
};

/// Makes and fills the two tables in `store`, trains, and calls `progress` after each epoch.
RunReport train(RowStore& store, const Ratings& ratings, const TrainingOptions& options,
                const std::function<void(const EpochReport&)>& progress);

}  // namespace trainer
