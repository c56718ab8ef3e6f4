// Results of the library as exceptions, for programs whose only answer to a failure is to say it and end.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include "reclane/reclane.hpp"

namespace examples {

[[noreturn]] inline void raise(const reclane::Error& error, const std::string& what) {
    throw std::runtime_error(what + ": " + error.message());
}

/// The value, or std::runtime_error with the library's words.
template <typename T>
T must(reclane::Result<T>&& result, const std::string& what) {
    if (!result) {
        raise(result.error(), what);
    }
    return std::move(result).value();
}

inline void must(reclane::Result<void>&& result, const std::string& what) {
    if (!result) {
        raise(result.error(), what);
    }
}

}  // namespace examples
