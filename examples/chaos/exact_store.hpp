// Rows on parameter servers that may be killed, stopped and started again at any moment, and an account of what was
// sent.
//
// The servers hold what was added to each row; the first values are known to every trainer. So a shard that was started
// again alone, and has lost its rows, goes on from the first values. Nothing that may have been executed is sent twice.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>

#include "../common/random.hpp"
#include "../trainer/row_store.hpp"
#include "ledger.hpp"
#include "reclane/reclane.hpp"

namespace chaos {

using trainer::Keys;
using trainer::Rows;

/// Thrown out of any call once the program is to end.
struct Stopped {};

/// How a trainer behaves.
struct Habits {
    float learning_rate;
    std::uint32_t width;             ///< floats in a row
    std::uint32_t break_lane_every;  ///< UPDATEs between two lanes that are broken on purpose, on average; 0: none
    std::uint32_t lanes;             ///< of this client to each shard
    std::uint64_t seed;              ///< of which ones
    std::uint64_t patience_ms;       ///< how long a request is tried again before the program gives up
    bool resend_doubtful;            ///< a deliberate mistake: what may have been executed is sent again
};

/// What was met.
struct Counts {
    std::atomic<std::uint64_t> updates{0};
    std::atomic<std::uint64_t> keys_again{0};     ///< keys that were certainly not executed, and were sent again
    std::atomic<std::uint64_t> keys_in_doubt{0};  ///< keys that may have been executed
    std::atomic<std::uint64_t> gets_again{0};
    std::atomic<std::uint64_t> tables_again{0};
    std::atomic<std::uint64_t> lanes_broken{0};
};

class ExactStore final : public trainer::RowStore {
public:
    ExactStore(const reclane::Options& options, const std::string& ledger, Habits habits,
               const std::atomic<bool>& stop);

    std::uint32_t open_table(const trainer::TableSpec& spec) override;
    /// The first values, before anything was added: they stay here.
    void put(std::uint32_t table, const Keys& keys, const Rows& rows) override;
    void get(std::uint32_t table, const Keys& keys, Rows& rows) override;
    void update(std::uint32_t table, const Keys& keys, const Rows& gradients) override;
    bool keep(const std::string&) override { return false; }
    trainer::Ticket submit_get(std::uint32_t table, const Keys& keys, Rows& rows) override;
    trainer::Ticket submit_update(std::uint32_t table, const Keys& keys, const Rows& gradients) override;

    const Counts& counts() const { return counts_; }

private:
    struct Table {
        trainer::TableSpec spec;
        std::atomic<std::uint32_t> tag{0};
        std::vector<float> first;  ///< by key and column
    };

    /// Waits a moment; throws Stopped, or std::runtime_error when `since_ns` is too long ago.
    void pause(std::uint64_t since_ns, const reclane::Error& why) const;
    /// Makes the tables known again to shards that have lost them.
    void know_tables();
    reclane::Result<std::uint32_t> init(const trainer::TableSpec& spec);
    /// Sends once. Leaves in `keys` and `added` what was certainly not executed.
    reclane::Error send(std::uint32_t table, Keys& keys, std::vector<std::int32_t>& added);
    void break_a_lane();

    Habits habits_;
    const std::atomic<bool>& stop_;
    Ledger ledger_;
    Counts counts_;
    Table tables_[2];
    std::uint32_t opened_ = 0;
    std::mutex mutex_;
    examples::Random random_;
    std::uint32_t shards_;
    reclane::Client client_;  // last: it is gone before what its requests use
};

}  // namespace chaos
