#include "local_store.hpp"

#include <algorithm>
#include <stdexcept>

namespace trainer {
namespace {

class Done final : public Pending {
public:
    void wait() override {}
};

}  // namespace

template <typename Visit>
void LocalStore::for_each_row(std::uint32_t table, const Keys& keys, std::size_t floats, Visit visit) {
    Table& found = tables_.at(table);
    const std::size_t dim = found.spec.dim;
    if (floats != keys.size() * dim) {
        throw std::runtime_error("table '" + found.spec.name + "': " + std::to_string(floats) + " floats given for " +
                                 std::to_string(keys.size()) + " rows of " + std::to_string(dim));
    }
    for (std::size_t i = 0; i < keys.size(); ++i) {
        const std::uint64_t key = keys[i];
        if (key >= found.spec.num_embeddings) {
            throw std::runtime_error("table '" + found.spec.name + "': key " + std::to_string(key) + " is not below " +
                                     std::to_string(found.spec.num_embeddings));
        }
        float* row = found.values.data() + static_cast<std::size_t>(key) * dim;
        if (shared_) {
            const std::lock_guard<std::mutex> lock(found.stripes[static_cast<std::size_t>(key % STRIPES)]);
            visit(row, i * dim, dim);
        } else {
            visit(row, i * dim, dim);
        }
    }
}

std::uint32_t LocalStore::open_table(const TableSpec& spec) {
    Table& made = tables_.emplace_back();
    made.spec = spec;
    made.values.assign(static_cast<std::size_t>(spec.num_embeddings) * spec.dim, 0.0F);
    return static_cast<std::uint32_t>(tables_.size() - 1);
}

void LocalStore::put(std::uint32_t table, const Keys& keys, const Rows& rows) {
    for_each_row(table, keys, rows.size(),
                 [&rows](float* row, std::size_t at, std::size_t dim) { std::copy_n(rows.data() + at, dim, row); });
}

void LocalStore::get(std::uint32_t table, const Keys& keys, Rows& rows) {
    for_each_row(table, keys, rows.size(), [&rows](const float* row, std::size_t at, std::size_t dim) {
        std::copy_n(row, dim, rows.data() + at);
    });
}

void LocalStore::update(std::uint32_t table, const Keys& keys, const Rows& gradients) {
    const float rate = tables_.at(table).spec.learning_rate;
    for_each_row(table, keys, gradients.size(), [&gradients, rate](float* row, std::size_t at, std::size_t dim) {
        for (std::size_t i = 0; i < dim; ++i) {
            // Built with -ffp-contract=off: a fused multiply-add would round once where the server rounds twice.
            row[i] -= rate * gradients[at + i];
        }
    });
}

Ticket LocalStore::submit_get(std::uint32_t table, const Keys& keys, Rows& rows) {
    get(table, keys, rows);
    return std::make_unique<Done>();
}

Ticket LocalStore::submit_update(std::uint32_t table, const Keys& keys, const Rows& gradients) {
    update(table, keys, gradients);
    return std::make_unique<Done>();
}

}  // namespace trainer
