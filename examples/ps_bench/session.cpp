#include "session.hpp"

#include "../common/checked.hpp"

namespace bench {

using examples::must;

Session::Session(reclane::Client& client, const std::string& name, std::size_t dim, std::uint64_t first,
                 std::uint64_t count)
    : client_(client), table_(0), dim_(dim), first_(first), count_(count) {
    reclane_table_options options{};
    options.name = name.c_str();
    options.dim = static_cast<std::uint32_t>(dim);
    // Dense storage is worth its memory where the keys start at 0.
    options.num_embeddings = first == 0 ? count : 0;
    options.optimizer = RECLANE_OPTIMIZER_SGD;
    table_ = must(client_.init_table(options), "table '" + name + "'");
}

void Session::get(const Keys& keys, Rows& rows) {
    must(client_.get(table_, keys, rows), "GET");
}

void Session::put(const Keys& keys, const Rows& rows) {
    must(client_.put(table_, keys, rows), "PUT");
}

void Session::update(const Keys& keys, const std::vector<const float*>& gradients) {
    must(client_.update(table_, keys, gradients), "UPDATE");
}

void Session::update_flat(const Keys& keys, const Rows& gradients) {
    must(client_.update_flat(table_, keys, gradients), "UPDATE_FLAT");
}

reclane::Request Session::submit_get(const Keys& keys, Rows& rows) {
    return must(client_.submit_get(table_, keys, rows), "GET");
}

void Session::finish(reclane::Request& request) {
    must(request.finish(), "waiting for an answer");
}

void Session::meet(const std::string& where, std::uint32_t processes, std::uint64_t timeout_ms) {
    if (processes > 1) {
        must(client_.barrier(where, processes, timeout_ms), "barrier");
    }
}

}  // namespace bench
