// Random numbers that are the same on every machine and with every standard library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace examples {

/// Mixes 64 bits so that each input bit moves about half of the output bits (the finaliser of splitmix64).
inline std::uint64_t mix64(std::uint64_t x) {
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9ULL;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebULL;
    x ^= x >> 31;
    return x;
}

/// splitmix64: one 64-bit state, every seed is a good seed.
class Random {
public:
    explicit Random(std::uint64_t seed) : state_(seed) {}

    std::uint64_t next() {
        state_ += 0x9e3779b97f4a7c15ULL;
        return mix64(state_);
    }

    /// Uniform in [0, 1), 53 bits.
    double unit() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

    /// Uniform in [0, bound) without bias; `bound` must not be 0.
    std::uint64_t below(std::uint64_t bound) {
        // Values under `refuse` would make the first 2^64 mod bound results likelier than the others.
        const std::uint64_t refuse = (0 - bound) % bound;
        std::uint64_t value = next();
        while (value < refuse) {
            value = next();
        }
        return value % bound;
    }

private:
    std::uint64_t state_;
};

/// Puts `items` into an order that depends on the generator alone (Fisher-Yates).
template <typename T>
void shuffle(std::vector<T>& items, Random& random) {
    for (std::size_t left = items.size(); left > 1; --left) {
        const std::size_t pick = static_cast<std::size_t>(random.below(left));
        const T moved = items[left - 1];
        items[left - 1] = items[pick];
        items[pick] = moved;
    }
}

}  // namespace examples
