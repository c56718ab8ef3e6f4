// Which keys a request of the benchmark names.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "../common/random.hpp"
#include "../common/zipf.hpp"

namespace bench {

/// Draws keys of 0..space, uniformly or under a Zipf law. The same seed gives the same keys everywhere.
class KeySource {
public:
    /// `zipf_exponent` empty: uniform. `space` is from 1 to 2^32.
    KeySource(std::uint64_t space, std::optional<double> zipf_exponent, std::uint64_t seed)
        : space_(space), random_(seed) {
        if (zipf_exponent) {
            zipf_.emplace(space, *zipf_exponent);
        }
    }

    std::uint64_t draw() { return zipf_ ? scatter(zipf_->draw(random_) - 1) : random_.below(space_); }

    void fill(std::vector<std::uint64_t>& keys) {
        for (std::uint64_t& key : keys) {
            key = draw();
        }
    }

    /// True in `percent` of the calls.
    bool chance(std::uint32_t percent) { return random_.below(100) < percent; }

private:
    /// Spreads neighbouring ranks over the table, one to one: a prime above 2^31 shares no factor with `space_`, save
    /// where `space_` is a multiple of it, and there ranks stay as they are.
    std::uint64_t scatter(std::uint64_t rank) const {
        constexpr std::uint64_t PRIME = 2654435761ULL;
        return space_ % PRIME == 0 ? rank : rank * PRIME % space_;
    }

    std::uint64_t space_;
    examples::Random random_;
    std::optional<examples::Zipf> zipf_;
};

}  // namespace bench
