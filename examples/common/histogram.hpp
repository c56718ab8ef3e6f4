// Latencies in fixed memory: buckets of equal relative width, so p50 and p99 are right within about 3 %.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace examples {

class Histogram {
public:
    void record(std::uint64_t value_ns) {
        ++counts_[bucket_of(value_ns)];
        ++total_;
        sum_ns_ += value_ns;
    }

    void merge(const Histogram& other) {
        for (std::size_t i = 0; i < counts_.size(); ++i) {
            counts_[i] += other.counts_[i];
        }
        total_ += other.total_;
        sum_ns_ += other.sum_ns_;
    }

    std::uint64_t count() const { return total_; }

    double mean_us() const {
        return total_ == 0 ? 0.0 : static_cast<double>(sum_ns_) / static_cast<double>(total_) / 1e3;
    }

    /// The value that `percent` of the records do not exceed, in microseconds; 0 when there are none.
    double percentile_us(double percent) const {
        if (total_ == 0) {
            return 0.0;
        }
        const double wanted = percent / 100.0 * static_cast<double>(total_);
        std::uint64_t seen = 0;
        for (std::size_t i = 0; i < counts_.size(); ++i) {
            seen += counts_[i];
            if (seen > 0 && static_cast<double>(seen) >= wanted) {
                return middle_ns(i) / 1e3;
            }
        }
        return middle_ns(counts_.size() - 1) / 1e3;
    }

private:
    // Values under 2^STEP_BITS have a bucket each; above, each power of two is cut into 2^STEP_BITS buckets.
    static constexpr unsigned STEP_BITS = 5;
    static constexpr std::size_t STEPS = std::size_t{1} << STEP_BITS;
    static constexpr std::size_t BUCKETS = (64 - STEP_BITS + 1) * STEPS;

    static std::size_t bucket_of(std::uint64_t value) {
        if (value < STEPS) {
            return static_cast<std::size_t>(value);
        }
        unsigned shift = 0;
        while ((value >> shift) >= 2 * STEPS) {
            ++shift;
        }
        return (static_cast<std::size_t>(shift) + 1) * STEPS + static_cast<std::size_t>((value >> shift) - STEPS);
    }

    static double middle_ns(std::size_t bucket) {
        if (bucket < STEPS) {
            return static_cast<double>(bucket);
        }
        const std::size_t shift = bucket / STEPS - 1;
        const double width = static_cast<double>(std::uint64_t{1} << shift);
        return (static_cast<double>(bucket % STEPS + STEPS) + 0.5) * width;
    }

    std::array<std::uint64_t, BUCKETS> counts_{};
    std::uint64_t total_ = 0;
    std::uint64_t sum_ns_ = 0;
};

}  // namespace examples
