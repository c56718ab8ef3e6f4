// Ranks under a Zipf law, by rejection-inversion: no table, any exponent above 0, about one try per sample.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "random.hpp"

namespace examples {

/// Draws k of 1..=count with probability proportional to k^-exponent.
class Zipf {
public:
    Zipf(std::uint64_t count, double exponent)
        : count_(static_cast<double>(count)),
          exponent_(exponent),
          area_low_(area(1.5) - 1.0),
          area_high_(area(count_ + 0.5)),
          sure_(2.0 - inverse_area(area(2.5) - weight(2.0))) {}

    std::uint64_t draw(Random& random) const {
        for (;;) {
            const double at = area_high_ + random.unit() * (area_low_ - area_high_);
            const double x = inverse_area(at);
            const double rank = std::min(std::max(std::floor(x + 0.5), 1.0), count_);
            // Left of `sure_` the hat touches the law closely enough for every draw to stand.
            if (rank - x <= sure_ || at >= area(rank + 0.5) - weight(rank)) {
                return static_cast<std::uint64_t>(rank);
            }
        }
    }

private:
    double weight(double x) const { return std::exp(-exponent_ * std::log(x)); }

    // The integral of weight(), and its inverse. Near exponent 1 both go over into the logarithm.
    double area(double x) const {
        const double log_x = std::log(x);
        const double power = (1.0 - exponent_) * log_x;
        return std::fabs(power) < 1e-8 ? log_x * (1.0 + power / 2.0) : std::expm1(power) / (1.0 - exponent_);
    }

    double inverse_area(double y) const {
        const double power = std::max((1.0 - exponent_) * y, -1.0);
        return std::fabs(power) < 1e-8 ? std::exp(y * (1.0 - power / 2.0))
                                       : std::exp(std::log1p(power) / (1.0 - exponent_));
    }

    double count_;
    double exponent_;
    double area_low_;
    double area_high_;
    double sure_;
};

}  // namespace examples
