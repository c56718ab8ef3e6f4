// Biased matrix factorisation: rating = mean + user bias + item bias + user factors . item factors.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ratings.hpp"
#include "row_store.hpp"

namespace trainer {

struct ModelOptions {
    std::uint32_t factors;
    float init_scale;      ///< factors start uniform in [-init_scale, init_scale), biases at 0
    float regularisation;  ///< of the factors, per rating
    float bias_regularisation;
    std::uint64_t seed;

    /// Floats in a row: the bias, then the factors.
    std::uint32_t dim() const { return factors + 1; }
};

/// The first rows of a table; a row depends on seed, table and key alone.
Rows initial_rows(const ModelOptions& options, std::uint64_t table, const Keys& keys);

/// The rating that these two rows predict.
float predict(float mean, const float* user, const float* item, std::uint32_t factors);

/// Some ratings on their way through one step: which rows they need, those rows, and their gradients. A row that
/// several ratings need is fetched once, and its gradients are summed in the order of the ratings.
class Batch {
public:
    Batch(const Ratings& ratings, const ModelOptions& options);

    /// Takes `count` ratings, the first at order[first], and lists their keys.
    void select(const std::vector<std::uint32_t>& order, std::size_t first, std::size_t count);

    /// Fills the gradients of squared error / 2 plus regularisation, all times `scale`.
    void compute_gradients(float scale);

    /// The rows of one side.
    struct Side {
        Keys keys;
        Rows rows;
        Rows gradients;
        std::vector<std::uint32_t> slot_of;  ///< by position in the table: its place in this batch
        std::vector<std::uint64_t> seen_in;  ///< by position in the table: the batch that last used it
    };

    Side user;
    Side item;

private:
    struct Member {
        std::uint32_t user_slot;
        std::uint32_t item_slot;
        float stars;
    };

    std::uint32_t take(Side& side, std::uint32_t position, std::uint64_t key) const;

    const Ratings& ratings_;
    ModelOptions options_;
    std::vector<Member> members_;
    std::uint64_t number_ = 0;  // of the batch, from 1
};

/// Root of the mean squared error over `ratings`, given all user rows and all item rows.
double rmse(const std::vector<Rating>& ratings, float mean, const Rows& users, const Rows& items,
            std::uint32_t factors);

}  // namespace trainer
