// The C++ layer: handles move and close themselves, results carry values or errors, nothing throws unless asked. C++17.
// Compiled with and without RECLANE_EXCEPTIONS, and with -fno-exceptions.
#include <array>
#include <cstring>
#include <reclane/reclane.hpp>
#include <string>
#include <type_traits>
#include <vector>

#include "check.h"

namespace {

using reclane::Buffer;
using reclane::Client;
using reclane::Options;
using reclane::Request;
using reclane::Server;
using reclane::Span;

template <class T>
constexpr bool kMoveOnly = std::is_nothrow_move_constructible_v<T>&& std::is_nothrow_move_assignable_v<T> &&
                           !std::is_copy_constructible_v<T> && !std::is_copy_assignable_v<T>;
static_assert(kMoveOnly<Options> && kMoveOnly<Server> && kMoveOnly<Client> && kMoveOnly<Buffer> && kMoveOnly<Request>);
static_assert(std::is_convertible_v<std::vector<float>&, Span<float>>);
static_assert(std::is_convertible_v<const std::vector<float>&, Span<const float>>);
static_assert(!std::is_convertible_v<const std::vector<float>&, Span<float>>);
static_assert(!std::is_convertible_v<std::vector<double>&, Span<float>>);
static_assert(std::is_convertible_v<Span<float>, Span<const float>>);

// Whether {0, 2} makes one: it would be a null pointer and a length.
template <class S, class = void>
struct TakesNumbers : std::false_type {};
template <class S>
struct TakesNumbers<S, std::void_t<decltype(S{0, 2})>> : std::true_type {};
static_assert(!TakesNumbers<Span<const std::uint64_t>>::value && !TakesNumbers<Span<float>>::value);
static_assert(std::is_constructible_v<Span<float>, std::nullptr_t, std::size_t>);

void options_and_errors(Options& options) {
    CHECK(options.set("slots-per-qp", 4).ok() && options.set(std::string("qps-per-client-per-shard"), 2).ok());
    CHECK(options.set("rdma-lane-rebuild-enabled", false).ok() && options.set("rdma-namespace", "cpp").ok());
    CHECK(options.set_flag("--rdma-control-plane-port=0").ok());
    const auto name = options.get("rdma_namespace");
    CHECK(name.ok() && *name == "cpp");
    const std::string long_path(200, 'x');
    CHECK(options.set("log-file", long_path).ok() && options.get("log-file").value() == long_path);
    CHECK(options.set("log-file", "").ok());
    const auto refused = options.set("slots-per-qp", 0);
    CHECK(!refused && refused.status() == RECLANE_STATUS_OPTION_BOUNDS);
    CHECK(refused.error().status_class() == RECLANE_CLASS_CALLER);
    CHECK(std::strstr(refused.error().message(), "slots-per-qp") != nullptr);
    const reclane::Error copy = refused.error();
    CHECK(std::strcmp(copy.message(), refused.error().message()) == 0);
    CHECK(!options.get("no-such-thing") && options.get("no-such-thing").error().message()[0] != '\0');
    CHECK(std::strcmp(options.set("slots-per-qp", 4).error().message(), "") == 0);
#ifdef RECLANE_EXCEPTIONS
    bool thrown = false;
    try {
        options.set("slots-per-qp", "x").value();
    } catch (const reclane::Failure& failure) {
        thrown = failure.error().status() == RECLANE_STATUS_OPTION_TYPE &&
                 std::strstr(failure.what(), "RECLANE_STATUS_OPTION_TYPE") != nullptr &&
                 std::strstr(failure.what(), failure.error().message()) != nullptr &&
                 std::strstr(failure.what(), "slots-per-qp") != nullptr;
    }
    CHECK(thrown);
#endif
}

bool says(const reclane::Result<void>& result, const char* words) {
    return std::strstr(result.error().message(), words) != nullptr;
}

void empty_handles() {
    Options nothing;
    CHECK(!nothing && nothing.set("a", "b").status() == RECLANE_STATUS_NULL_POINTER);
    Client no_client;
    const auto refused = no_client.shutdown();
    CHECK(refused.status() == RECLANE_STATUS_NULL_POINTER && says(refused, "reclane_client_open()"));
    Buffer no_buffer;
    CHECK(no_buffer.data() == nullptr && no_buffer.bytes() == 0 && no_buffer.floats().empty());
    Request no_request;
    const auto waited = no_request.wait();
    CHECK(!no_request && waited.status() == RECLANE_STATUS_NULL_POINTER && says(waited, "this Request is empty"));
    CHECK(waited.error().raw().layer == RECLANE_LAYER_USAGE);
    CHECK(waited.error().outcome() == RECLANE_OUTCOME_NOT_EXECUTED);
    CHECK(says(no_request.query(), "empty") && says(no_request.finish(), "empty") &&
          says(no_request.borrow(), "empty"));
    std::array<std::uint8_t, 1> outcomes{};
    CHECK(says(no_request.key_outcomes(outcomes), "empty") && says(no_request.shard_result(0), "empty"));
    CHECK(says(no_request.revoke(), "empty"));
}

void requests(Client& client, std::uint32_t table) {
    constexpr std::size_t dim = 4;
    const std::array<std::uint64_t, 3> keys{5, 6, 7};
    std::vector<float> rows{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    std::vector<float> got(rows.size());

    auto put = client.submit_put(table, keys, rows);
    CHECK(put && put->wait() && put->wait().value() && put->query().value() && put->revoke());
    CHECK(!*put && put->token() == 0);
    {
        auto get = client.submit_get(table, keys, got);
        CHECK(get.ok());
        Request moved = std::move(*get);
        CHECK(!*get && moved && moved.wait());
        CHECK(got == rows);
        CHECK(client.stats()->slots_held > 0);
    }
    CHECK(client.stats()->slots_held == 0);

    const std::vector<const float*> gradients{rows.data(), rows.data() + dim, rows.data() + 2 * dim};
    auto again = client.submit_get(table, keys, got);
    CHECK(again && again->finish() && again->token() == 0 && got == rows);
    CHECK(again->finish().status() == RECLANE_STATUS_STALE_TOKEN && says(again->finish(), "finished"));
    CHECK(client.stats()->slots_held == 0);
    CHECK(client.submit_update(table, keys, gradients)->wait().ok());
    CHECK(client.submit_update_flat(table, keys, rows)->wait().ok());
    const std::vector<const float*> too_few(gradients.begin(), gradients.begin() + 1);
    const auto refused = client.update(table, keys, too_few);
    CHECK(refused.status() == RECLANE_STATUS_INVALID_ARGUMENT && says(refused, "1 pointers, keys has 3 keys"));
    CHECK(refused.error().outcome() == RECLANE_OUTCOME_NOT_EXECUTED);
    CHECK(client.submit_update(table, keys, too_few).status() == RECLANE_STATUS_INVALID_ARGUMENT);

    const std::vector<float> nothing(rows.size());
    auto told = client.submit_update_flat(table, keys, nothing);
    CHECK(told && told->wait().ok());
    std::array<std::uint8_t, 3> outcomes{};
    CHECK(told->key_outcomes(outcomes).ok());
    CHECK(outcomes[0] == RECLANE_OUTCOME_EXECUTED && outcomes[1] == outcomes[0] && outcomes[2] == outcomes[0]);
    CHECK(told->key_outcomes({outcomes.data(), 2}).status() == RECLANE_STATUS_BUFFER_TOO_SMALL);
    std::uint64_t executed = 0;
    for (std::uint32_t shard = 0; shard < client.stats()->num_shards; ++shard) {
        const auto part = told->shard_result(shard);
        CHECK(part.ok() && part->shard == shard && part->status == RECLANE_STATUS_OK);
        CHECK(part->outcome == RECLANE_OUTCOME_EXECUTED && part->key_count == part->executed_count);
        executed += part->executed_count;
    }
    CHECK(executed == keys.size());
    CHECK(told->shard_result(99).status() == RECLANE_STATUS_INVALID_ARGUMENT);
    CHECK(told->revoke().ok() && told->shard_result(0).status() == RECLANE_STATUS_STALE_TOKEN);

    auto in_place = client.submit_get_in_place(table, keys);
    CHECK(in_place && in_place->wait());
    const auto borrowed = in_place->borrow();
    CHECK(borrowed && borrowed->complete() && borrowed->total == 3);
    CHECK(borrowed->rows[0] >= 3.0F && borrowed->rows[0] <= 3.0F);
    CHECK(in_place->revoke().ok());

    auto buffer = client.buffer(keys.size() * dim * sizeof(float));
    CHECK(buffer && buffer->floats().size() >= rows.size());
    std::memcpy(buffer->data(), rows.data(), rows.size() * sizeof(float));
    CHECK(client.submit_put_from(table, keys, *buffer)->wait().ok());
    CHECK(client.submit_update_flat_from(table, keys, *buffer)->wait().ok());
    CHECK(client.submit_get_into(table, keys, *buffer)->wait().ok());
    CHECK((*buffer).floats()[11] >= 24.0F && (*buffer).floats()[11] <= 24.0F);
}

void reports(Client& client, Server& server) {
    CHECK(client.break_lane(0, 99).status() == RECLANE_STATUS_INVALID_ARGUMENT);
    CHECK(client.lane(0, 1).ok() && client.lane(0, 99).status() == RECLANE_STATUS_INVALID_ARGUMENT);
    CHECK(client.shard_of(12).value() == 0 && client.stats()->num_shards == 1 && server.stats().ok());
    CHECK(client.barrier("cpp", 1, 1000).ok() && client.command(RECLANE_COMMAND_CLEAR).ok());
}

}  // namespace

int main() {
    CHECK(reclane::abi_check().ok() && !reclane::abi_check(99));
    CHECK(std::strcmp(reclane::version(), RECLANE_VERSION_STRING) == 0);
    CHECK(reclane::version_number() == RECLANE_VERSION_NUMBER && reclane::abi_version() == RECLANE_ABI_VERSION);
    empty_handles();
    auto options = Options::open();
    if (!CHECK(options.ok()))
        return check_end();
    options_and_errors(*options);
    CHECK(options->set("request-slot-bytes", 4096).ok() && options->set("response-slot-bytes", 4096).ok());
    auto server = Server::open(*options);
    if (!CHECK(server.ok()))
        return check_end();
    CHECK(options->set("rdma-control-plane-port", server->control_plane_port().value()).ok());
    auto opened = Client::open(*options);
    if (!CHECK(opened.ok()))
        return check_end();
    Client client = std::move(*opened);
    CHECK(!*opened && client);
    reclane_table_options table_options{};
    table_options.name = "rows";
    table_options.dim = 4;
    table_options.optimizer = RECLANE_OPTIMIZER_ADD;
    const auto table = client.init_table(table_options);
    CHECK(table.ok());
    requests(client, table.value());
    reports(client, *server);
    client = Client();
    server->close();
    CHECK(!*server);
    return check_end();
}
