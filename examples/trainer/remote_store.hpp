// Rows on parameter servers, over reclane.
#pragma once

#include "reclane/reclane.hpp"
#include "row_store.hpp"

namespace trainer {

class RemoteStore final : public RowStore {
public:
    /// Connects to the servers that the options name.
    explicit RemoteStore(const reclane::Options& options);

    std::uint32_t num_shards() const;

    std::uint32_t open_table(const TableSpec& spec) override;
    void put(std::uint32_t table, const Keys& keys, const Rows& rows) override;
    void get(std::uint32_t table, const Keys& keys, Rows& rows) override;
    void update(std::uint32_t table, const Keys& keys, const Rows& gradients) override;
    bool keep(const std::string& position) override;
    Ticket submit_get(std::uint32_t table, const Keys& keys, Rows& rows) override;
    Ticket submit_update(std::uint32_t table, const Keys& keys, const Rows& gradients) override;

private:
    reclane::Client client_;
};

}  // namespace trainer
