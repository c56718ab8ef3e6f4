// gflags for the options of the library, under the names that RecStore's programs use.
//
// The names are defined once, in reclane_flags.cpp. Values are not judged here: those that the command line sets are
// handed to the library by name, which knows type and bounds; the others keep the library's defaults. gflags takes
// dashes for underscores by itself.
#pragma once

#include <cstdint>
#include <string>

#include "reclane/reclane.hpp"

namespace examples {

/// Shows the library's defaults in --help. Call before gflags::ParseCommandLineFlags.
void adopt_library_defaults();

/// The options that the command line set. Throws std::runtime_error with the library's words.
reclane::Options options_from_flags();

/// Sets one option; throws std::runtime_error with the library's words.
void set_option(reclane::Options& options, const std::string& name, const std::string& value);

/// Raises async_depth to `depth`, the requests that a program has under way at once. The library refuses, when a client
/// is opened, what its lanes and slots do not carry.
void ask_for_depth(reclane::Options& options, std::uint64_t depth);

/// The value of an option, set or default. Throws std::runtime_error.
std::string option_text(const reclane::Options& options, const std::string& name);
std::uint64_t option_number(const reclane::Options& options, const std::string& name);

}  // namespace examples
