// Refusals of flag values: each names the flag, the value and the bound.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>

namespace bench {

inline void one_of(const char* flag, const std::string& value, std::initializer_list<const char*> words) {
    std::string all;
    for (const char* word : words) {
        if (value == word) {
            return;
        }
        all += (all.empty() ? "" : ", ") + std::string(word);
    }
    throw std::invalid_argument(std::string("--") + flag + ": '" + value + "' is none of " + all);
}

inline void within(const char* flag, std::uint64_t value, std::uint64_t low, std::uint64_t high) {
    if (value < low || value > high) {
        throw std::invalid_argument(std::string("--") + flag + ": " + std::to_string(value) + " is not within " +
                                    std::to_string(low) + ".." + std::to_string(high));
    }
}

}  // namespace bench
