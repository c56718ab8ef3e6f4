// The twin without any transport: one plain array a table.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <mutex>

#include "row_store.hpp"

namespace trainer {

class LocalStore final : public RowStore {
public:
    /// With `shared`, rows are locked for each access, so that several threads may train.
    explicit LocalStore(bool shared) : shared_(shared) {}

    std::uint32_t open_table(const TableSpec& spec) override;
    void put(std::uint32_t table, const Keys& keys, const Rows& rows) override;
    void get(std::uint32_t table, const Keys& keys, Rows& rows) override;
    void update(std::uint32_t table, const Keys& keys, const Rows& gradients) override;
    /// Never: who trains here can start anew.
    bool keep(const std::string&) override { return false; }
    Ticket submit_get(std::uint32_t table, const Keys& keys, Rows& rows) override;
    Ticket submit_update(std::uint32_t table, const Keys& keys, const Rows& gradients) override;

private:
    static constexpr std::size_t STRIPES = 256;

    struct Table {
        TableSpec spec;
        std::vector<float> values;
        std::array<std::mutex, STRIPES> stripes;
    };

    /// Calls `visit(row in the table, position in the request)` for each key, under the row's lock when shared.
    template <typename Visit>
    void for_each_row(std::uint32_t table, const Keys& keys, std::size_t floats, Visit visit);

    bool shared_;
    std::deque<Table> tables_;  // a deque: mutexes do not move
};

}  // namespace trainer
