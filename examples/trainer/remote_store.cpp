#include "remote_store.hpp"

#include <utility>

#include "../common/checked.hpp"

namespace trainer {
namespace {

using examples::must;

class Sent final : public Pending {
public:
    explicit Sent(reclane::Request request) : request_(std::move(request)) {}

    void wait() override { must(request_.wait(), "waiting for an answer"); }

private:
    reclane::Request request_;
};

}  // namespace

RemoteStore::RemoteStore(const reclane::Options& options) : client_(must(reclane::Client::open(options), "client")) {}

std::uint32_t RemoteStore::num_shards() const {
    return must(client_.stats(), "statistics").num_shards;
}

std::uint32_t RemoteStore::open_table(const TableSpec& spec) {
    reclane_table_options options{};
    options.name = spec.name.c_str();
    options.dim = spec.dim;
    options.num_embeddings = spec.num_embeddings;
    options.optimizer = RECLANE_OPTIMIZER_SGD;
    options.learning_rate = spec.learning_rate;
    return must(client_.init_table(options), "table '" + spec.name + "'");
}

void RemoteStore::put(std::uint32_t table, const Keys& keys, const Rows& rows) {
    must(client_.put(table, keys, rows), "PUT");
}

void RemoteStore::get(std::uint32_t table, const Keys& keys, Rows& rows) {
    must(client_.get(table, keys, rows), "GET");
}

void RemoteStore::update(std::uint32_t table, const Keys& keys, const Rows& gradients) {
    must(client_.update_flat(table, keys, gradients), "UPDATE");
}

bool RemoteStore::keep(const std::string& position) {
    const auto number = client_.checkpoint_begin("trainer", position);
    if (!number) {
        return false;
    }
    // Once all is copied, what this trainer does is in the next one.
    return client_.checkpoint_wait(number.value(), RECLANE_CHECKPOINT_STATE_WRITING).ok();
}

Ticket RemoteStore::submit_get(std::uint32_t table, const Keys& keys, Rows& rows) {
    return std::make_unique<Sent>(must(client_.submit_get(table, keys, rows), "GET"));
}

Ticket RemoteStore::submit_update(std::uint32_t table, const Keys& keys, const Rows& gradients) {
    return std::make_unique<Sent>(must(client_.submit_update_flat(table, keys, gradients), "UPDATE"));
}

}  // namespace trainer
