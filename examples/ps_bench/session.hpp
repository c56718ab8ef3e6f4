// One client handle and the table that a benchmark runs on. Every failure is a std::runtime_error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "reclane/reclane.hpp"
#include "rows.hpp"

namespace bench {

using Keys = std::vector<std::uint64_t>;
using Rows = std::vector<float>;

class Session {
public:
    /// Opens table `name` with rows of `dim` floats; keys from `first` on, `count` of them, will be filled.
    Session(reclane::Client& client, const std::string& name, std::size_t dim, std::uint64_t first,
            std::uint64_t count);

    std::size_t dim() const { return dim_; }
    std::uint64_t first() const { return first_; }
    std::uint64_t count() const { return count_; }

    /// Checks nothing for `stride` 0, else every stride-th row of a request.
    Verifier verifier(std::size_t stride) const { return Verifier(stride, dim_, first_, count_); }

    void get(const Keys& keys, Rows& rows);
    void put(const Keys& keys, const Rows& rows);
    void update(const Keys& keys, const std::vector<const float*>& gradients);
    void update_flat(const Keys& keys, const Rows& gradients);

    /// A GET without waiting; rows must stay where they are until finish(), which makes room for the next request.
    reclane::Request submit_get(const Keys& keys, Rows& rows);
    static void finish(reclane::Request& request);

    /// Waits until all client processes are here.
    void meet(const std::string& where, std::uint32_t processes, std::uint64_t timeout_ms);

private:
    reclane::Client& client_;
    std::uint32_t table_;
    std::size_t dim_;
    std::uint64_t first_;
    std::uint64_t count_;
};

}  // namespace bench
