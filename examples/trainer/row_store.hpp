// What the trainer needs of a parameter store. Two of them exist: plain arrays in this process, and reclane.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace trainer {

using Keys = std::vector<std::uint64_t>;
using Rows = std::vector<float>;

/// What a store must know of a table before its first use.
struct TableSpec {
    std::string name;
    std::uint64_t num_embeddings;  ///< keys lie in 0..num_embeddings
    std::uint32_t dim;             ///< floats in a row
    float learning_rate;           ///< of the SGD that update() applies
};

/// A request on its way. Dropping it abandons the request.
class Pending {
public:
    Pending() = default;
    Pending(const Pending&) = delete;
    Pending& operator=(const Pending&) = delete;
    virtual ~Pending() = default;

    /// Returns when the request has ended; throws std::runtime_error when it failed.
    virtual void wait() = 0;
};

using Ticket = std::unique_ptr<Pending>;

/// Rows by key. All calls may be made from several threads at once; each throws std::runtime_error when it fails.
/// Keys, rows and gradients of a submitted request must stay as they are until its ticket is gone.
class RowStore {
public:
    RowStore() = default;
    RowStore(const RowStore&) = delete;
    RowStore& operator=(const RowStore&) = delete;
    virtual ~RowStore() = default;

    /// Creates a table and returns its number.
    virtual std::uint32_t open_table(const TableSpec& spec) = 0;

    /// Sets rows: keys.size() * dim floats, in the order of the keys.
    virtual void put(std::uint32_t table, const Keys& keys, const Rows& rows) = 0;

    /// Fills rows (already of the right size) in the order of the keys.
    virtual void get(std::uint32_t table, const Keys& keys, Rows& rows) = 0;

    /// row = row - learning_rate * gradient, product and difference rounded one after the other.
    virtual void update(std::uint32_t table, const Keys& keys, const Rows& gradients) = 0;

    /// Keeps a copy of everything as it is now, with `position` beside it. False: none could be made; nothing has
    /// changed.
    virtual bool keep(const std::string& position) = 0;

    /// The same two, without waiting.
    virtual Ticket submit_get(std::uint32_t table, const Keys& keys, Rows& rows) = 0;
    virtual Ticket submit_update(std::uint32_t table, const Keys& keys, const Rows& gradients) = 0;
};

}  // namespace trainer
