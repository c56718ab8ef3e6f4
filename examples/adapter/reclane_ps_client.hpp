// A parameter-server host's client interface over reclane. Header only: include it, link reclane::reclane.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <unordered_map>
#include <utility>

#include "parameter_store_client.hpp"
#include "reclane/reclane.hpp"

namespace adapter {

/// Serves ParameterStoreClient from one client handle. All methods may be called from several threads at once; a handle
/// of an asynchronous call is waited for by one thread.
class ReclanePSClient final : public ParameterStoreClient {
public:
    /// Connects and makes the default table: rows of the option value-size, SGD with `learning_rate`.
    static std::unique_ptr<ReclanePSClient> Open(const reclane::Options& options, float learning_rate = 0.01F);
};

}  // namespace adapter
