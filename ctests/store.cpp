// A storage engine of the host in C++: methods that throw are answered with -6 and the process lives, and methods that
// run at the same time have different worker numbers. C++17.
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <reclane/reclane.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "check.h"

namespace {

constexpr std::uint32_t kDim = 4;
constexpr std::uint64_t kThrowStandard = 666;
constexpr std::uint64_t kThrowNumber = 667;
constexpr std::uint64_t kMeeting = 668;  // a GET of it returns when there are two

int alive = 0;
std::atomic<unsigned> clashes{0};  // calls with the worker number of another one under way
std::atomic<unsigned> turns{0};

class MapStore final : public reclane::Store {
public:
    explicit MapStore(std::uint32_t workers) : busy_(workers) { ++alive; }
    ~MapStore() override { --alive; }

    int init_table(std::uint32_t worker, const reclane_table_options& options, std::uint32_t& table) override {
        const Turn turn(busy_.at(worker));
        if (std::string(options.name) == "throws")
            throw std::runtime_error("no table today");
        table = 0;
        return options.dim == kDim ? RECLANE_ANSWER_OK : RECLANE_ANSWER_VALUE_SIZE_MISMATCH;
    }
    int table_shape(std::uint32_t table, std::uint32_t& dim) override {
        dim = kDim;
        return table == 0 ? RECLANE_ANSWER_OK : RECLANE_ANSWER_UNKNOWN_TABLE;
    }
    int get_flat(std::uint32_t worker, std::uint32_t, reclane::Span<const std::uint64_t> keys, float* rows,
                 std::uint32_t dim, std::uint32_t& missing_rows) override {
        const Turn turn(busy_.at(worker));
        if (keys[0] == kMeeting)
            return meet();
        const std::lock_guard<std::mutex> hold(mutex_);
        for (const std::uint64_t key : keys) {
            refuse(key);
            const auto found = rows_.find(key);
            if (found == rows_.end())
                ++missing_rows;
            const std::array<float, kDim> row = found == rows_.end() ? std::array<float, kDim>{} : found->second;
            std::memcpy(rows, row.data(), dim * sizeof(float));
            rows += dim;
        }
        return RECLANE_ANSWER_OK;
    }
    int put(std::uint32_t worker, std::uint32_t, reclane::Span<const std::uint64_t> keys, Rows rows) override {
        const Turn turn(busy_.at(worker));
        const std::lock_guard<std::mutex> hold(mutex_);
        for (std::size_t i = 0; i < keys.size(); ++i) {
            refuse(keys[i]);
            std::memcpy(rows_[keys[i]].data(), rows[i], kDim * sizeof(float));
        }
        return RECLANE_ANSWER_OK;
    }
    int update(std::uint32_t worker, std::uint32_t, reclane::Span<const std::uint64_t> keys, Rows gradients) override {
        const Turn turn(busy_.at(worker));
        const std::lock_guard<std::mutex> hold(mutex_);
        for (std::size_t i = 0; i < keys.size(); ++i) {
            refuse(keys[i]);
            for (std::uint32_t j = 0; j < kDim; ++j)
                rows_[keys[i]][j] += gradients[i][j];
        }
        return RECLANE_ANSWER_OK;
    }
    int command(std::uint32_t worker, reclane_command, const char*) override {
        const Turn turn(busy_.at(worker));
        throw 7;
    }
    void prefetch(std::uint32_t, reclane::Span<const std::uint64_t>) override { throw std::runtime_error("not today"); }

private:
    // A worker number while a method runs.
    class Turn {
    public:
        explicit Turn(std::atomic<bool>& busy) : busy_(busy) {
            ++turns;
            if (busy_.exchange(true))
                ++clashes;
        }
        ~Turn() { busy_.store(false); }
        Turn(const Turn&) = delete;
        Turn& operator=(const Turn&) = delete;

    private:
        std::atomic<bool>& busy_;
    };

    int meet() {
        std::unique_lock<std::mutex> hold(meeting_);
        ++arrived_;
        met_.notify_all();
        const bool both = met_.wait_for(hold, std::chrono::seconds(30), [this] { return arrived_ >= 2; });
        return both ? RECLANE_ANSWER_OK : RECLANE_ANSWER_INTERNAL_ERROR;
    }
    static void refuse(std::uint64_t key) {
        if (key == kThrowStandard)
            throw std::runtime_error("this key is cursed");
        if (key == kThrowNumber)
            throw 42;
    }
    std::mutex mutex_;
    std::map<std::uint64_t, std::array<float, kDim>> rows_;
    std::vector<std::atomic<bool>> busy_;
    std::mutex meeting_;
    std::condition_variable met_;
    unsigned arrived_ = 0;
};

reclane::Result<reclane::Options> small_options() {
    auto options = reclane::Options::open();
    const bool set = options && options->set("rdma-control-plane-port", 0) && options->set("slots-per-qp", 4) &&
                     options->set("qps-per-client-per-shard", 2) && options->set("request-slot-bytes", 4096) &&
                     options->set("response-slot-bytes", 4096) && options->set("server-rdma-threads", 2) &&
                     options->set("rdma-rc-server-get-workers", 2);
    CHECK(set);
    return options;
}

void exceptions(reclane::Client& client, std::uint32_t table) {
    std::array<float, kDim> row{1, 2, 3, 4};
    for (const std::uint64_t key : {kThrowStandard, kThrowNumber}) {
        const std::array<std::uint64_t, 1> keys{key};
        CHECK(client.get(table, keys, row).status() == RECLANE_STATUS_INTERNAL_ERROR);
        CHECK(client.put(table, keys, row).status() == RECLANE_STATUS_INTERNAL_ERROR);
        CHECK(client.update_flat(table, keys, row).status() == RECLANE_STATUS_INTERNAL_ERROR);
    }
    CHECK(client.command(RECLANE_COMMAND_CLEAR).status() == RECLANE_STATUS_INTERNAL_ERROR);
    reclane_table_options throwing{};
    throwing.name = "throws";
    throwing.dim = kDim;
    const auto refused = client.init_table(throwing);
    CHECK(refused.status() == RECLANE_STATUS_INTERNAL_ERROR && refused.error().message()[0] != '\0');
}

void round_trip(reclane::Client& client, std::uint32_t table) {
    const std::vector<std::uint64_t> keys{1, 2, 3, 1000000};
    std::vector<float> rows(keys.size() * kDim);
    for (std::size_t i = 0; i < rows.size(); ++i)
        rows[i] = static_cast<float>(i + 1);
    std::vector<float> got(rows.size());
    std::vector<const float*> pointers;
    for (std::size_t i = 0; i < keys.size(); ++i)
        pointers.push_back(rows.data() + i * kDim);
    CHECK(client.put(table, keys, rows).ok());
    CHECK(client.update(table, keys, pointers).ok());
    CHECK(client.update_flat(table, keys, rows).ok());
    CHECK(client.get(table, keys, got).ok());
    for (std::size_t i = 0; i < rows.size(); ++i)
        CHECK(got[i] >= 3 * rows[i] && got[i] <= 3 * rows[i]);
}

// Two threads on one handle: what is called for them at the same time has two worker numbers.
void distinct_workers(reclane::Client& client, std::uint32_t table) {
    std::array<std::atomic<bool>, 2> good{};
    std::vector<std::thread> threads;
    for (std::size_t thread = 0; thread < good.size(); ++thread) {
        threads.emplace_back([&, thread] {
            std::array<float, kDim> row{1, 2, 3, 4};
            const std::array<std::uint64_t, 1> meeting{kMeeting};
            const std::array<std::uint64_t, 1> own{thread};
            bool all = client.get(table, meeting, row).ok();
            for (int i = 0; i < 500 && all; ++i)
                all = client.put(table, own, row).ok() && client.get(table, own, row).ok();
            good[thread] = all;
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    CHECK(good[0] && good[1]);
    CHECK(turns > 2000 && clashes == 0);
}

}  // namespace

int main() {
    auto options = small_options();
    if (!options)
        return check_end();
    const auto workers = options->server_workers();
    CHECK(workers.ok() && *workers >= 4);

    // A store is given away only when the server opens.
    auto kept = std::unique_ptr<reclane::Store>(new MapStore(*workers));
    CHECK(options->set("shard-id", 3).ok());
    CHECK(!reclane::Server::open(*options, std::move(kept)));
    CHECK(kept != nullptr && alive == 1);
    CHECK(options->set("shard-id", 0).ok());

    auto server = reclane::Server::open(*options, std::move(kept));
    if (!CHECK(server.ok()))
        return check_end();
    CHECK(kept == nullptr && alive == 1);
    CHECK(options->set("rdma-control-plane-port", *server->control_plane_port()).ok());
    auto client = reclane::Client::open(*options);
    if (!CHECK(client.ok()))
        return check_end();
    reclane_table_options table_options{};
    table_options.name = "rows";
    table_options.dim = kDim;
    const auto table = client->init_table(table_options);
    CHECK(table.ok());
    exceptions(*client, *table);
    round_trip(*client, *table);
    exceptions(*client, *table);
    distinct_workers(*client, *table);
    CHECK(client->shutdown().ok());
    client->close();
    CHECK(server->stop().ok());
    server->close();
    CHECK(alive == 0);
    return check_end();
}
