// Row contents that follow from the key, so that every answer can be checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "../common/random.hpp"

namespace bench {

/// What float `column` of the row of `key` holds: a small integer, so that it is exact and never 0.
inline float expected_value(std::uint64_t key, std::size_t column) {
    return static_cast<float>(1 + examples::mix64(key * 0x9e3779b97f4a7c15ULL + column) % 1000003);
}

inline void fill_rows(const std::vector<std::uint64_t>& keys, std::size_t dim, std::vector<float>& rows) {
    rows.resize(keys.size() * dim);
    for (std::size_t i = 0; i < keys.size(); ++i) {
        for (std::size_t column = 0; column < dim; ++column) {
            rows[i * dim + column] = expected_value(keys[i], column);
        }
    }
}

/// Checks answers against expected_value(); keys from `present` on are missing and must give zero rows.
class Verifier {
public:
    /// `stride` 0: checks nothing; n: every n-th row of a request.
    Verifier(std::size_t stride, std::size_t dim, std::uint64_t first_present, std::uint64_t present)
        : stride_(stride), dim_(dim), first_present_(first_present), present_(present) {}

    bool enabled() const { return stride_ != 0; }

    /// Throws std::runtime_error that names the first wrong float.
    void check(const std::vector<std::uint64_t>& keys, const float* rows) const {
        if (stride_ == 0) {
            return;
        }
        for (std::size_t i = 0; i < keys.size(); i += stride_) {
            const bool there = keys[i] >= first_present_ && keys[i] - first_present_ < present_;
            for (std::size_t column = 0; column < dim_; ++column) {
                const float wanted = there ? expected_value(keys[i], column) : 0.0F;
                const float found = rows[i * dim_ + column];
                if (std::memcmp(&wanted, &found, sizeof(float)) != 0) {
                    throw std::runtime_error("verification: key " + std::to_string(keys[i]) + ", row " +
                                             std::to_string(i) + " of the request, float " + std::to_string(column) +
                                             ": got " + std::to_string(found) + ", expected " + std::to_string(wanted));
                }
            }
        }
    }

private:
    std::size_t stride_;
    std::size_t dim_;
    std::uint64_t first_present_;
    std::uint64_t present_;
};

}  // namespace bench
