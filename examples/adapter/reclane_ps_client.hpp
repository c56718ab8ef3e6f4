// A parameter-server host's client interface over reclane. Header only: include it and link reclane::reclane.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <stdexcept>
#include <utility>

#include "parameter_store_client.hpp"
#include "reclane/reclane.hpp"

namespace adapter {

/// Serves ParameterStoreClient and RawAccess from one client handle. All methods may be called from several threads at
/// once, but a handle of an asynchronous call is used by one thread at a time.
class ReclanePSClient final : public ParameterStoreClient, public RawAccess {
public:
    /// Connects and opens the default table: rows of the option value-size. All tables are updated by SGD with this
    /// learning rate. Throws std::runtime_error with the library's words.
    explicit ReclanePSClient(const reclane::Options& options, float learning_rate = 0.01F)
        : client_(Opened(options)), learning_rate_(learning_rate), default_dim_(RowBytes(options) / sizeof(float)) {
        if (InitEmbeddingTable(DEFAULT_TABLE, EmbeddingTableConfig{0, default_dim_}) < 0) {
            throw std::runtime_error(LastError());
        }
    }

    int GetParameter(KeyTensor keys, RowTensor& rows) override {
        return Fits(keys, rows, default_dim_) ? GetParameter(keys, rows.data) : -1;
    }

    int GetParameter(KeyTensor keys, float* rows) override {
        return Answer(client_.get(DefaultTag(), View(keys), {rows, keys.count * default_dim_}));
    }

    std::uint64_t AsyncGetParameter(KeyTensor keys, float* rows) override {
        return Keep({}, client_.submit_get(DefaultTag(), View(keys), {rows, keys.count * default_dim_}));
    }

    int WaitGetParameter(std::uint64_t handle) override { return Answer(Take(handle)->request.wait()); }

    int PutParameter(KeyTensor keys, const RowTensor& rows) override {
        if (!Fits(keys, rows, default_dim_)) {
            return -1;
        }
        return Answer(client_.put(DefaultTag(), View(keys), {rows.data, keys.count * default_dim_}));
    }

    int PutParameter(const std::vector<std::uint64_t>& keys, const std::vector<std::vector<float>>& rows) override {
        std::vector<float> flat;
        flat.reserve(keys.size() * default_dim_);
        for (const std::vector<float>& row : rows) {
            if (row.size() != default_dim_) {
                return Refuse("a row of " + std::to_string(row.size()) + " floats for a table of " +
                              std::to_string(default_dim_));
            }
            flat.insert(flat.end(), row.begin(), row.end());
        }
        return Answer(client_.put(DefaultTag(), keys, flat));
    }

    int UpdateParameter(const std::string& table, KeyTensor keys, const RowTensor& gradients) override {
        return UpdateParameterFlat(table, keys, gradients.data, gradients.rows, gradients.columns);
    }

    int UpdateParameterFlat(const std::string& table, KeyTensor keys, const float* gradients, std::int64_t rows,
                            std::int64_t dim) override {
        const Table* found = Find(table);
        if (found == nullptr || !Fits(keys, rows, dim, found->dim)) {
            return -1;
        }
        return Answer(client_.update_flat(found->tag, View(keys), {gradients, keys.count * found->dim}));
    }

    std::uint64_t SubmitUpdateParameterAsync(const std::string& table, KeyTensor keys,
                                             const RowTensor& gradients) override {
        if (keys.count == 0) {
            throw std::invalid_argument("an asynchronous update of no keys");
        }
        const Table* found = Find(table);
        if (found == nullptr || !Fits(keys, gradients, found->dim)) {
            return 0;
        }
        return Keep({}, client_.submit_update_flat(found->tag, View(keys), {gradients.data, keys.count * found->dim}));
    }

    int WaitUpdateParameter(std::uint64_t handle) override { return Answer(Take(handle)->request.wait()); }

    std::int64_t InitEmbeddingTable(const std::string& name, const EmbeddingTableConfig& config) override {
        reclane_table_options options{};
        options.name = name.c_str();
        options.dim = static_cast<std::uint32_t>(std::min<std::uint64_t>(config.embedding_dim, UINT32_MAX));
        options.num_embeddings = config.num_embeddings;
        options.optimizer = RECLANE_OPTIMIZER_SGD;
        options.learning_rate = learning_rate_;
        if (!IsFree(config.table_id, name)) {
            return -1;
        }
        const reclane::Result<std::uint32_t> tag = client_.init_table(options);
        if (Answer(tag) != 0) {
            return -1;
        }
        const std::unique_lock<std::shared_mutex> lock(tables_mutex_);
        tables_[name] = Table{*tag, options.dim};
        if (config.table_id != EmbeddingTableConfig::NO_TABLE_ID) {
            names_[config.table_id] = name;
        }
        return *tag;
    }

    using ParameterStoreClient::Command;

    int Command(PSCommand command, const std::string& path) override {
        switch (command) {
            case PSCommand::kClearPS:
                return Answer(client_.command(RECLANE_COMMAND_CLEAR));
            case PSCommand::kReloadPS:
                return LoadCheckpoint(LastCheckpoint(), {});
            case PSCommand::kSaveCheckpoint:
                return SaveCheckpoint(path, {});
            case PSCommand::kLoadCheckpoint:
                return LoadCheckpoint(path, {});
            case PSCommand::kLoadFakeData:
            case PSCommand::kDumpFakeData:
                break;
        }
        return Refuse("fake data is not offered: put rows instead");
    }

    int SaveCheckpoint(const std::string& path, const std::string& metadata) override {
        return Checkpoint(RECLANE_COMMAND_SAVE, path, metadata);
    }
    int LoadCheckpoint(const std::string& path, const std::string& metadata) override {
        return Checkpoint(RECLANE_COMMAND_LOAD, path, metadata);
    }

    std::uint64_t PrefetchParameter(KeyTensor keys) override {
        std::vector<float> rows(keys.count * default_dim_);
        reclane::Result<reclane::Request> sent = client_.submit_get(DefaultTag(), View(keys), rows);
        return Keep(std::move(rows), std::move(sent));  // moving a vector leaves its floats where they are
    }

    /// True also when it failed: the result says so.
    bool IsPrefetchDone(std::uint64_t handle) override {
        const reclane::Result<bool> ended = Peek(handle)->request.query();
        return !ended || *ended;
    }

    void WaitForPrefetch(std::uint64_t handle) override { (void)Answer(Peek(handle)->request.wait()); }

    bool GetPrefetchResult(std::uint64_t handle, RowTensor& rows) override {
        const std::shared_ptr<Pending> pending = Take(handle);
        if (Answer(pending->request.wait()) != 0) {
            return false;
        }
        const KeyTensor keys{nullptr, pending->rows.size() / default_dim_};
        if (!Fits(keys, rows, default_dim_)) {
            return false;
        }
        std::copy(pending->rows.begin(), pending->rows.end(), rows.data);
        return true;
    }

    bool GetPrefetchResultFlat(std::uint64_t handle, std::vector<float>& rows) override {
        const std::shared_ptr<Pending> pending = Take(handle);
        if (Answer(pending->request.wait()) != 0) {
            return false;
        }
        (void)pending->request.revoke();  // before its memory is given away
        rows = std::move(pending->rows);
        return true;
    }

    void DiscardPrefetch(std::uint64_t handle) override { (void)Take(handle); }

    int SubmitGetParameter(KeyTensor keys, float* rows, bool is_async, int /*async_req_id*/,
                           std::int64_t dim) override {
        if (!Fits(keys, static_cast<std::int64_t>(keys.count), dim, default_dim_)) {
            return -1;
        }
        reclane::Result<reclane::Request> sent =
            rows == nullptr ? client_.submit_get_in_place(DefaultTag(), View(keys))
                            : client_.submit_get(DefaultTag(), View(keys), {rows, keys.count * default_dim_});
        if (Answer(sent) != 0) {
            return -1;
        }
        const int id = raw_.Add(std::make_shared<Pending>(Pending{{}, std::move(sent).value()}));
        if (!is_async) {
            (void)WaitRPCFinish(id);  // how it ended is kept for the caller's own wait
        }
        return id;
    }

    bool QueryRPCFinished(int rpc_id) override {
        const reclane::Result<bool> ended = raw_.Find(rpc_id)->request.query();
        return !ended || *ended;
    }

    int WaitRPCFinish(int rpc_id) override { return Answer(raw_.Find(rpc_id)->request.wait()); }

    const float* BorrowGetResultPayload(int rpc_id, std::size_t* rows) override {
        const std::shared_ptr<Pending> pending = raw_.Find(rpc_id);
        if (Answer(pending->request.wait()) != 0) {
            return nullptr;
        }
        const auto borrowed = pending->request.borrow();
        if (Answer(borrowed) != 0) {
            return nullptr;
        }
        *rows = borrowed->total;
        return borrowed->rows;
    }

    void RevokeRPCResource(int rpc_id) override { (void)raw_.Take(rpc_id); }

    std::string LastError() const override { return LastErrorOfThread(); }

private:
    static constexpr const char* DEFAULT_TABLE = "default";

    struct Table {
        std::uint32_t tag;
        std::uint32_t dim;
    };

    /// A request under way, and the memory of the client that it fills. The request is the later member: it is revoked
    /// before the memory goes.
    struct Pending {
        std::vector<float> rows;
        reclane::Request request;
    };

    /// Requests under way by their numbers.
    template <typename Number>
    class Register {
    public:
        Number Add(std::shared_ptr<Pending> pending) {
            const std::lock_guard<std::mutex> lock(mutex_);
            pending_.emplace(++last_, std::move(pending));
            return last_;
        }

        std::shared_ptr<Pending> Find(Number number) {
            const std::lock_guard<std::mutex> lock(mutex_);
            return Entry(number)->second;
        }

        std::shared_ptr<Pending> Take(Number number) {
            const std::lock_guard<std::mutex> lock(mutex_);
            const auto found = Entry(number);
            std::shared_ptr<Pending> pending = std::move(found->second);
            pending_.erase(found);
            return pending;
        }

    private:
        typename std::map<Number, std::shared_ptr<Pending>>::iterator Entry(Number number) {
            const auto found = pending_.find(number);
            if (found == pending_.end()) {
                throw std::invalid_argument("handle " + std::to_string(number) + " is unknown or used up");
            }
            return found;
        }

        std::mutex mutex_;
        std::map<Number, std::shared_ptr<Pending>> pending_;
        Number last_ = 0;
    };

    static std::string& LastErrorOfThread() {
        static thread_local std::string last;
        return last;
    }

    static int Refuse(const std::string& why) {
        LastErrorOfThread() = why;
        return -1;
    }

    static int Answer(const reclane::Result<void>& result) {
        return result ? 0 : Refuse(std::string(result.error().name()) + ": " + result.error().message());
    }

    static reclane::Client Opened(const reclane::Options& options) {
        reclane::Result<reclane::Client> client = reclane::Client::open(options);
        if (!client) {
            throw std::runtime_error(client.error().message());
        }
        return std::move(client).value();
    }

    static std::uint32_t RowBytes(const reclane::Options& options) {
        const reclane::Result<std::string> text = options.get("value-size");
        if (!text) {
            throw std::runtime_error(text.error().message());
        }
        return static_cast<std::uint32_t>(std::stoul(*text));
    }

    static reclane::Span<const std::uint64_t> View(KeyTensor keys) { return {keys.data, keys.count}; }

    static bool Fits(KeyTensor keys, std::int64_t rows, std::int64_t columns, std::uint32_t dim) {
        if (keys.count == 0 || (rows == static_cast<std::int64_t>(keys.count) && columns == dim)) {
            return true;
        }
        (void)Refuse("a matrix of " + std::to_string(rows) + " x " + std::to_string(columns) + " floats for " +
                     std::to_string(keys.count) + " rows of " + std::to_string(dim));
        return false;
    }

    static bool Fits(KeyTensor keys, const RowTensor& rows, std::uint32_t dim) {
        return Fits(keys, rows.rows, rows.columns, dim);
    }

    /// Tables are never taken away, so the pointer stays good. NULL: no such table.
    const Table* Find(const std::string& name) const {
        const std::shared_lock<std::shared_mutex> lock(tables_mutex_);
        const auto found = tables_.find(name);
        if (found == tables_.end()) {
            (void)Refuse("table '" + name + "' is unknown: call InitEmbeddingTable first");
            return nullptr;
        }
        return &found->second;
    }

    bool IsFree(std::int64_t table_id, const std::string& name) const {
        if (table_id < EmbeddingTableConfig::NO_TABLE_ID) {
            (void)Refuse("table '" + name + "': table_id " + std::to_string(table_id) + " is negative");
            return false;
        }
        const std::shared_lock<std::shared_mutex> lock(tables_mutex_);
        const auto found = names_.find(table_id);
        if (found != names_.end() && found->second != name) {
            (void)Refuse("table_id " + std::to_string(table_id) + " is that of table '" + found->second +
                         "', not of '" + name + "'");
            return false;
        }
        return true;
    }

    std::uint32_t DefaultTag() const { return Find(DEFAULT_TABLE)->tag; }

    int Checkpoint(reclane_command command, const std::string& path, const std::string& metadata) {
        if (!metadata.empty()) {
            return Refuse("checkpoint '" + path + "': the servers keep no metadata with it");
        }
        const int answer = Answer(client_.command(command, path.c_str()));
        if (answer == 0) {
            const std::unique_lock<std::shared_mutex> lock(tables_mutex_);
            last_checkpoint_ = path;
        }
        return answer;
    }

    std::string LastCheckpoint() const {
        const std::shared_lock<std::shared_mutex> lock(tables_mutex_);
        return last_checkpoint_;
    }

    std::uint64_t Keep(std::vector<float> rows, reclane::Result<reclane::Request>&& sent) {
        if (Answer(sent) != 0) {
            return 0;
        }
        return handles_.Add(std::make_shared<Pending>(Pending{std::move(rows), std::move(sent).value()}));
    }

    std::shared_ptr<Pending> Peek(std::uint64_t handle) { return handles_.Find(handle); }
    std::shared_ptr<Pending> Take(std::uint64_t handle) { return handles_.Take(handle); }

    reclane::Client client_;  // first: requests must not outlive it
    float learning_rate_;
    std::uint32_t default_dim_;
    mutable std::shared_mutex tables_mutex_;
    std::map<std::string, Table> tables_;
    std::map<std::int64_t, std::string> names_;  // of tables with a number of the host's
    std::string last_checkpoint_;
    Register<std::uint64_t> handles_;
    Register<int> raw_;
};

}  // namespace adapter
