// The interface through which a parameter-server host (RecStore and its relatives) reaches its transport.
//
// The method names are those that such a host calls; the declarations are our own. Return values are the host's: 0 for
// success and -1 for failure where nothing else is said.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace adapter {

/// Keys, borrowed from the caller.
struct KeyTensor {
    const std::uint64_t* data;
    std::size_t count;
};

/// A dense matrix of floats in row order, borrowed from the caller.
struct RowTensor {
    float* data;
    std::int64_t rows;
    std::int64_t columns;
};

/// What InitEmbeddingTable is told.
struct EmbeddingTableConfig {
    std::uint64_t num_embeddings;
    std::uint64_t embedding_dim;
    /// The host's own number of the table, which stays on this side; NO_TABLE_ID: it has none.
    std::int64_t table_id = NO_TABLE_ID;

    static constexpr std::int64_t NO_TABLE_ID = -1;
};

/// Words to the store as a whole.
enum class PSCommand { kClearPS, kReloadPS, kLoadFakeData, kDumpFakeData, kSaveCheckpoint, kLoadCheckpoint };

/// Asynchronous calls give handles above 0, or 0 when they failed. A handle is good for one wait; using one that is
/// unknown or was used up throws std::invalid_argument.
class ParameterStoreClient {
public:
    ParameterStoreClient() = default;
    ParameterStoreClient(const ParameterStoreClient&) = delete;
    ParameterStoreClient& operator=(const ParameterStoreClient&) = delete;
    virtual ~ParameterStoreClient() = default;

    /// Rows of the default table, in the order of the keys; a missing key gives a zero row. No keys: nothing to do, 0.
    virtual int GetParameter(KeyTensor keys, RowTensor& rows) = 0;
    /// The same into keys.count rows of the default width.
    virtual int GetParameter(KeyTensor keys, float* rows) = 0;
    /// The same without waiting. WaitGetParameter uses the handle up; until then `rows` stays where it is.
    virtual std::uint64_t AsyncGetParameter(KeyTensor keys, float* rows) = 0;
    virtual int WaitGetParameter(std::uint64_t handle) = 0;

    /// Sets rows of the default table.
    virtual int PutParameter(KeyTensor keys, const RowTensor& rows) = 0;
    virtual int PutParameter(const std::vector<std::uint64_t>& keys, const std::vector<std::vector<float>>& rows) = 0;

    /// Applies gradients through the table's optimizer. No keys: 0.
    virtual int UpdateParameter(const std::string& table, KeyTensor keys, const RowTensor& gradients) = 0;
    virtual int UpdateParameterFlat(const std::string& table, KeyTensor keys, const float* gradients, std::int64_t rows,
                                    std::int64_t dim) = 0;
    /// The same without waiting. WaitUpdateParameter uses the handle up. No keys: throws std::invalid_argument.
    virtual std::uint64_t SubmitUpdateParameterAsync(const std::string& table, KeyTensor keys,
                                                     const RowTensor& gradients) = 0;
    virtual int WaitUpdateParameter(std::uint64_t handle) = 0;

    /// Creates a table on all shards, or finds the same one again: its tag, or -1. A table_id belongs to one name.
    virtual std::int64_t InitEmbeddingTable(const std::string& name, const EmbeddingTableConfig& config) = 0;

    /// kReloadPS loads what was saved or loaded last; kSaveCheckpoint and kLoadCheckpoint need `path`, the others
    /// ignore it.
    virtual int Command(PSCommand command, const std::string& path) = 0;
    int Command(PSCommand command) { return Command(command, {}); }
    /// `path` is a name below the servers' checkpoint directory. Metadata that is not empty is refused: the servers
    /// have no place for it.
    virtual int SaveCheckpoint(const std::string& path, const std::string& metadata) = 0;
    virtual int LoadCheckpoint(const std::string& path, const std::string& metadata) = 0;

    /// Fetches rows of the default table ahead of their use, into memory of the client.
    virtual std::uint64_t PrefetchParameter(KeyTensor keys) = 0;
    virtual bool IsPrefetchDone(std::uint64_t handle) = 0;
    virtual void WaitForPrefetch(std::uint64_t handle) = 0;
    /// Gives the rows out, waiting if need be, and uses the handle up.
    virtual bool GetPrefetchResult(std::uint64_t handle, RowTensor& rows) = 0;
    virtual bool GetPrefetchResultFlat(std::uint64_t handle, std::vector<float>& rows) = 0;

    /// Abandons a prefetch.
    virtual void DiscardPrefetch(std::uint64_t handle) = 0;

    /// What the last failed call of this thread had to say.
    virtual std::string LastError() const = 0;
};

/// The interface below the one above, which benchmarks use: requests by number, from 1, which keep their slots until
/// they are revoked. A number that is unknown or was revoked throws std::invalid_argument.
class RawAccess {
public:
    RawAccess() = default;
    RawAccess(const RawAccess&) = delete;
    RawAccess& operator=(const RawAccess&) = delete;
    virtual ~RawAccess() = default;

    /// GETs rows of the default table, which has `dim` columns: the request's number, or -1. Without `is_async` the
    /// rows are there on return. `rows` stays where it is until the request is revoked; NULL leaves the rows with the
    /// library, for BorrowGetResultPayload. `async_req_id` is the caller's and has no meaning here.
    virtual int SubmitGetParameter(KeyTensor keys, float* rows, bool is_async, int async_req_id, std::int64_t dim) = 0;
    virtual bool QueryRPCFinished(int rpc_id) = 0;
    /// 0 when the rows are there, -1 when the request failed. May be called again.
    virtual int WaitRPCFinish(int rpc_id) = 0;
    /// Rows of a finished request without a target, in place until the request is revoked. NULL: it failed.
    virtual const float* BorrowGetResultPayload(int rpc_id, std::size_t* rows) = 0;
    virtual void RevokeRPCResource(int rpc_id) = 0;
};

}  // namespace adapter
