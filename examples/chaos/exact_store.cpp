#include "exact_store.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <stdexcept>
#include <thread>
#include <utility>

#include "../common/checked.hpp"
#include "../common/clock.hpp"

namespace chaos {
namespace {

using examples::must;

constexpr double ADDED_MAX = 4.0;

/// Not one that is done already: its call is only made when somebody waits for it.
class Later final : public trainer::Pending {
public:
    explicit Later(std::function<void()> work) : work_(std::move(work)) {}
    void wait() override { work_(); }

private:
    std::function<void()> work_;
};

reclane::Client open_client(const reclane::Options& options) {
    return must(reclane::Client::open(options), "client");
}

}  // namespace

ExactStore::ExactStore(const reclane::Options& options, const std::string& ledger, Habits habits,
                       const std::atomic<bool>& stop)
    : habits_(habits),
      stop_(stop),
      ledger_(ledger, habits.width),
      random_(habits.seed),
      shards_(0),
      client_(open_client(options)) {
    shards_ = must(client_.stats(), "statistics").num_shards;
}

void ExactStore::pause(std::uint64_t since_ns, const reclane::Error& why) const {
    if (stop_) {
        throw Stopped{};
    }
    if (examples::now_ns() - since_ns > habits_.patience_ms * 1'000'000) {
        throw std::runtime_error("nothing went through for " + std::to_string(habits_.patience_ms) +
                                 " ms: " + why.name() + ": " + why.message());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

reclane::Result<std::uint32_t> ExactStore::init(const trainer::TableSpec& spec) {
    reclane_table_options options{};
    options.name = spec.name.c_str();
    options.dim = spec.dim;
    options.num_embeddings = KEYS;
    options.optimizer = RECLANE_OPTIMIZER_SGD;
    options.learning_rate = 1.0F;
    return client_.init_table(options);
}

std::uint32_t ExactStore::open_table(const trainer::TableSpec& spec) {
    if (spec.num_embeddings > KEYS) {
        throw std::runtime_error("table '" + spec.name + "' has more keys than are checked");
    }
    Table& table = tables_[opened_];
    table.spec = spec;
    table.first.assign(static_cast<std::size_t>(spec.num_embeddings) * spec.dim, 0.0F);
    ++opened_;
    know_tables();
    return opened_ - 1;
}

void ExactStore::know_tables() {
    const std::lock_guard<std::mutex> lock(mutex_);
    const std::uint64_t since = examples::now_ns();
    for (std::uint32_t i = 0; i < opened_; ++i) {
        for (;;) {
            const auto tag = init(tables_[i].spec);
            if (tag) {
                tables_[i].tag = tag.value();
                break;
            }
            pause(since, tag.error());
        }
    }
}

void ExactStore::put(std::uint32_t table, const Keys& keys, const Rows& rows) {
    for (std::size_t i = 0; i < keys.size(); ++i) {
        std::copy_n(rows.data() + i * habits_.width, habits_.width,
                    tables_[table].first.data() + static_cast<std::size_t>(keys[i]) * habits_.width);
    }
}

void ExactStore::get(std::uint32_t table, const Keys& keys, Rows& rows) {
    const std::uint64_t since = examples::now_ns();
    for (;;) {
        if (stop_) {
            throw Stopped{};
        }
        const auto done = client_.get(tables_[table].tag, keys, rows);
        if (done) {
            break;
        }
        ++counts_.gets_again;
        pause(since, done.error());
        if (done.error().status() == RECLANE_STATUS_UNKNOWN_TABLE) {
            ++counts_.tables_again;
            know_tables();
        }
    }
    const std::vector<float>& first = tables_[table].first;
    for (std::size_t i = 0; i < keys.size(); ++i) {
        for (std::size_t column = 0; column < habits_.width; ++column) {
            rows[i * habits_.width + column] += first[static_cast<std::size_t>(keys[i]) * habits_.width + column];
        }
    }
}

reclane::Error ExactStore::send(std::uint32_t table, Keys& keys, std::vector<std::int32_t>& added) {
    const std::size_t width = habits_.width;
    Rows gradients(added.size());
    // The servers subtract 1 times the gradient.
    std::transform(added.begin(), added.end(), gradients.begin(),
                   [](std::int32_t quanta) { return static_cast<float>(-quanta * QUANTUM); });
    const std::uint64_t number = ledger_.begin(table, keys, added);
    std::vector<std::uint8_t> outcomes(keys.size(), RECLANE_OUTCOME_NOT_EXECUTED);
    reclane::Error error;
    auto request = client_.submit_update_flat(tables_[table].tag, keys, gradients);
    if (request) {
        const auto ended = request.value().wait();
        error = ended.error();
        must(request.value().key_outcomes(outcomes), "outcomes of an UPDATE");
    } else {
        error = request.error();
    }
    ledger_.end(number, outcomes);
    Keys keys_left;
    std::vector<std::int32_t> added_left;
    for (std::size_t i = 0; i < keys.size(); ++i) {
        const bool in_doubt = outcomes[i] == RECLANE_OUTCOME_UNKNOWN;
        counts_.keys_in_doubt += in_doubt ? 1 : 0;
        if (outcomes[i] == RECLANE_OUTCOME_NOT_EXECUTED || (in_doubt && habits_.resend_doubtful)) {
            keys_left.push_back(keys[i]);
            const auto row = added.begin() + static_cast<std::ptrdiff_t>(i * width);
            added_left.insert(added_left.end(), row, row + static_cast<std::ptrdiff_t>(width));
        }
    }
    keys = std::move(keys_left);
    added = std::move(added_left);
    return error;
}

void ExactStore::update(std::uint32_t table, const Keys& keys, const Rows& gradients) {
    Keys left = keys;
    std::vector<std::int32_t> added(gradients.size());
    std::transform(gradients.begin(), gradients.end(), added.begin(), [this](float gradient) {
        const double wanted = std::clamp(-double{habits_.learning_rate} * double{gradient}, -ADDED_MAX, ADDED_MAX);
        return static_cast<std::int32_t>(std::lround(wanted / QUANTUM));
    });
    const std::uint64_t since = examples::now_ns();
    break_a_lane();
    while (!left.empty()) {
        if (stop_) {
            throw Stopped{};
        }
        const reclane::Error error = send(table, left, added);
        if (left.empty()) {
            break;
        }
        counts_.keys_again += left.size();
        pause(since, error);
        if (error.status() == RECLANE_STATUS_UNKNOWN_TABLE) {
            ++counts_.tables_again;
            know_tables();
        }
    }
    ++counts_.updates;
}

void ExactStore::break_a_lane() {
    if (habits_.break_lane_every == 0) {
        return;
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    if (random_.below(habits_.break_lane_every) == 0) {
        const auto shard = static_cast<std::uint32_t>(random_.below(shards_));
        reclane::Result<void> broken =
            client_.break_lane(shard, static_cast<std::uint32_t>(random_.below(habits_.lanes)));
        // A lane that no request has needed yet is not there to be broken.
        if (broken.status() == RECLANE_STATUS_WRONG_STATE) {
            return;
        }
        must(std::move(broken), "breaking a lane");
        ++counts_.lanes_broken;
    }
}

trainer::Ticket ExactStore::submit_get(std::uint32_t table, const Keys& keys, Rows& rows) {
    return std::make_unique<Later>([this, table, &keys, &rows] { get(table, keys, rows); });
}

trainer::Ticket ExactStore::submit_update(std::uint32_t table, const Keys& keys, const Rows& gradients) {
    return std::make_unique<Later>([this, table, &keys, &gradients] { update(table, keys, gradients); });
}

}  // namespace chaos
