// The ratings, read from a typed .inter file and split into a training and a held-out part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace trainer {

/// One rating; `user` and `item` are positions in Ratings::users and Ratings::items.
struct Rating {
    std::uint32_t user;
    std::uint32_t item;
    float stars;
};

struct Ratings {
    std::vector<std::uint64_t> users;  ///< keys of the user table, ascending
    std::vector<std::uint64_t> items;  ///< keys of the item table, ascending
    std::vector<Rating> train;         ///< nine tenths
    std::vector<Rating> held_out;      ///< one tenth, never trained on
    float mean;                        ///< of the training part
};

/// Reads the file and splits it: the file's lines are shuffled by examples::Random(seed) and the first tenth is held
/// out, so the split depends on the file and the seed alone. Throws std::runtime_error that names file and line.
Ratings load_ratings(const std::string& path, std::uint64_t seed);

}  // namespace trainer
