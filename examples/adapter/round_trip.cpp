// reclane_adapter_round_trip: calls every method of the adapter against running servers and checks what comes back.
// The servers' tables must be empty at the start, and the servers need a checkpoint directory. Exit status: 0 all
// checks hold, 1 one does not, 2 wrong flags.

#include <gflags/gflags.h>

#include <cstdio>
#include <exception>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "../common/reclane_flags.hpp"
#include "reclane_ps_client.hpp"

namespace {

using adapter::EmbeddingTableConfig;
using adapter::KeyTensor;
using adapter::ParameterStoreClient;
using adapter::PSCommand;
using adapter::RawAccess;
using adapter::RowTensor;
using Keys = std::vector<std::uint64_t>;
using Rows = std::vector<float>;

constexpr std::size_t KEYS = 1000;  // more than one request carries, on all shards
constexpr float RATE = 0.5F;        // exact in binary, so that expectations are too

int checks = 0;

void check(bool holds, const std::string& what, const ParameterStoreClient& client) {
    ++checks;
    if (!holds) {
        throw std::runtime_error(what + " (last error: " + client.LastError() + ")");
    }
}

template <typename Call>
bool throws(Call call) {
    try {
        call();
    } catch (const std::invalid_argument&) {
        return true;
    }
    return false;
}

KeyTensor view(const Keys& keys) {
    return {keys.data(), keys.size()};
}

RowTensor view(Rows& rows, std::size_t dim) {
    return {rows.data(), static_cast<std::int64_t>(rows.size() / dim), static_cast<std::int64_t>(dim)};
}

Keys keys_from(std::uint64_t first) {
    Keys keys(KEYS);
    std::iota(keys.begin(), keys.end(), first);
    return keys;
}

Rows rows_of(const Keys& keys, std::size_t dim) {
    Rows rows;
    for (const std::uint64_t key : keys) {
        for (std::size_t column = 0; column < dim; ++column) {
            rows.push_back(static_cast<float>(key * 7 + column));
        }
    }
    return rows;
}

void puts_and_gets(ParameterStoreClient& client, std::size_t dim) {
    const Keys keys = keys_from(1);
    const Rows wanted = rows_of(keys, dim);
    Rows rows(wanted.size(), -1.0F);
    RowTensor out = view(rows, dim);
    check(client.GetParameter(view(keys), out) == 0, "GetParameter of missing rows", client);
    check(rows == Rows(wanted.size(), 0.0F), "missing rows are zero", client);

    Rows values = wanted;
    check(client.PutParameter(view(keys), view(values, dim)) == 0, "PutParameter", client);
    check(client.GetParameter(view(keys), rows.data()) == 0 && rows == wanted, "GetParameter, flat", client);

    rows.assign(wanted.size(), -1.0F);
    const std::uint64_t handle = client.AsyncGetParameter(view(keys), rows.data());
    check(handle != 0 && client.WaitGetParameter(handle) == 0 && rows == wanted, "AsyncGetParameter", client);
    check(throws([&] { client.WaitGetParameter(handle); }), "a second wait throws", client);

    const std::vector<Rows> listed = {Rows(dim, 1.5F), Rows(dim, 2.5F)};
    check(client.PutParameter({5, 6}, listed) == 0, "PutParameter of a list", client);
    const Keys two = {6, 5};
    Rows pair(2 * dim);
    check(client.GetParameter(view(two), pair.data()) == 0 && pair[0] == 2.5F && pair[dim] == 1.5F,
          "rows come in the order of the keys", client);

    RowTensor narrow = view(pair, dim / 2);
    check(client.GetParameter(view(two), narrow) == -1, "a matrix of the wrong shape is refused", client);
    check(client.PutParameter({5}, {Rows(dim + 1, 0.0F)}) == -1, "a row of the wrong width is refused", client);
    check(client.GetParameter(KeyTensor{nullptr, 0}, nullptr) == 0, "GetParameter of no keys", client);
}

void updates(ParameterStoreClient& client) {
    constexpr std::size_t DIM = 6;
    const std::int64_t tag = client.InitEmbeddingTable("adapter", EmbeddingTableConfig{KEYS + 1, DIM});
    check(tag >= 0, "InitEmbeddingTable", client);
    check(client.InitEmbeddingTable("adapter", EmbeddingTableConfig{KEYS + 1, DIM, 7}) == tag, "the same tag again",
          client);
    check(client.InitEmbeddingTable("other", EmbeddingTableConfig{KEYS + 1, DIM, 7}) == -1 &&
              client.LastError().find("'adapter'") != std::string::npos,
          "a table_id of another table is refused", client);
    check(client.InitEmbeddingTable("other", EmbeddingTableConfig{KEYS + 1, DIM, -2}) == -1,
          "a negative table_id is refused", client);
    const std::int64_t other = client.InitEmbeddingTable("other", EmbeddingTableConfig{KEYS + 1, DIM, 8});
    check(other >= 0 && other != tag, "another table has another tag", client);
    check(client.InitEmbeddingTable("adapter", EmbeddingTableConfig{KEYS + 1, DIM + 1}) == -1,
          "a table of the same name and another width is refused", client);
    check(client.InitEmbeddingTable("", EmbeddingTableConfig{1, DIM}) == -1, "a table without a name is refused",
          client);

    // An absent row counts as zeroes: w = 0 - RATE * g, and again.
    const Keys keys = keys_from(1);
    Rows gradients(KEYS * DIM, 4.0F);
    check(client.UpdateParameter("adapter", view(keys), view(gradients, DIM)) == 0, "UpdateParameter", client);
    check(client.UpdateParameterFlat("adapter", view(keys), gradients.data(), KEYS, DIM) == 0, "UpdateParameterFlat",
          client);
    const std::uint64_t handle = client.SubmitUpdateParameterAsync("adapter", view(keys), view(gradients, DIM));
    check(handle != 0 && client.WaitUpdateParameter(handle) == 0, "SubmitUpdateParameterAsync", client);
    check(throws([&] { client.WaitUpdateParameter(handle); }), "a second wait throws", client);
    check(throws([&] {
              client.SubmitUpdateParameterAsync("adapter", {nullptr, 0}, view(gradients, DIM));
          }),
          "an asynchronous update of no keys throws", client);
    check(client.UpdateParameterFlat("adapter", {nullptr, 0}, nullptr, 0, DIM) == 0, "an update of no keys", client);
    check(client.UpdateParameterFlat("adapter", view(keys), gradients.data(), KEYS, DIM - 1) == -1,
          "gradients of the wrong width are refused", client);
    check(client.UpdateParameter("nowhere", view(keys), view(gradients, DIM)) == -1, "an unknown table is refused",
          client);
}

/// Updates of the default table show in its rows.
void descends(ParameterStoreClient& client, std::size_t dim) {
    const Keys keys = keys_from(10'000);
    Rows values(KEYS * dim, 8.0F);
    Rows gradients(KEYS * dim, 4.0F);
    check(client.PutParameter(view(keys), view(values, dim)) == 0, "PutParameter", client);
    for (int i = 0; i < 3; ++i) {
        check(client.UpdateParameter("default", view(keys), view(gradients, dim)) == 0, "UpdateParameter", client);
    }
    Rows rows(KEYS * dim);
    check(client.GetParameter(view(keys), rows.data()) == 0, "GetParameter", client);
    check(rows == Rows(KEYS * dim, 8.0F - 3 * RATE * 4.0F), "each update was applied once", client);
}

void prefetches(ParameterStoreClient& client, std::size_t dim) {
    const Keys keys = keys_from(20'000);
    Rows wanted = rows_of(keys, dim);
    check(client.PutParameter(view(keys), view(wanted, dim)) == 0, "PutParameter", client);
    Rows rows(wanted.size());
    RowTensor out = view(rows, dim);
    const std::uint64_t first = client.PrefetchParameter(view(keys));
    check(first != 0, "PrefetchParameter", client);
    client.WaitForPrefetch(first);
    check(client.IsPrefetchDone(first), "a prefetch that was waited for is done", client);
    check(client.GetPrefetchResult(first, out) && rows == wanted, "GetPrefetchResult", client);
    check(throws([&] { client.IsPrefetchDone(first); }), "a used-up handle throws", client);

    const std::uint64_t second = client.PrefetchParameter(view(keys));
    Rows flat;
    check(client.GetPrefetchResultFlat(second, flat) && flat == wanted, "GetPrefetchResultFlat", client);
    const std::uint64_t third = client.PrefetchParameter(view(keys));
    client.DiscardPrefetch(third);
    check(throws([&] { client.WaitForPrefetch(third); }), "a discarded handle throws", client);
}

/// The same rows through the interface by numbers.
void raw(ParameterStoreClient& client, RawAccess& access, std::size_t dim) {
    const Keys keys = keys_from(30'000);
    const std::int64_t width = static_cast<std::int64_t>(dim);
    Rows wanted = rows_of(keys, dim);
    check(client.PutParameter(view(keys), view(wanted, dim)) == 0, "PutParameter", client);
    Rows rows(wanted.size());
    const int at_once = access.SubmitGetParameter(view(keys), rows.data(), false, 0, width);
    check(at_once > 0 && rows == wanted, "SubmitGetParameter that waits", client);
    check(access.QueryRPCFinished(at_once) && access.WaitRPCFinish(at_once) == 0, "it has finished", client);
    access.RevokeRPCResource(at_once);
    check(throws([&] { access.WaitRPCFinish(at_once); }), "a revoked number throws", client);
    check(throws([&] { access.RevokeRPCResource(at_once); }), "a second revoke throws", client);

    Rows later(wanted.size());
    const int target = access.SubmitGetParameter(view(keys), later.data(), true, 1, width);
    const int in_place = access.SubmitGetParameter(view(keys), nullptr, true, 2, width);
    check(target > 0 && in_place > target, "numbers grow", client);
    while (!access.QueryRPCFinished(target)) {
    }
    check(access.WaitRPCFinish(target) == 0 && later == wanted, "WaitRPCFinish", client);
    std::size_t count = 0;
    const float* borrowed = access.BorrowGetResultPayload(in_place, &count);
    check(borrowed != nullptr && count == KEYS && Rows(borrowed, borrowed + wanted.size()) == wanted,
          "BorrowGetResultPayload", client);
    check(access.BorrowGetResultPayload(target, &count) == nullptr, "rows with a target are not borrowed", client);
    access.RevokeRPCResource(target);
    access.RevokeRPCResource(in_place);
    check(access.SubmitGetParameter(view(keys), rows.data(), true, 3, width + 1) == -1, "another width is refused",
          client);
}

/// Needs servers with a checkpoint directory.
void checkpoints(ParameterStoreClient& client, std::size_t dim) {
    const Keys keys = keys_from(40'000);
    Rows wanted = rows_of(keys, dim);
    Rows rows(wanted.size());
    const auto holds = [&] { return client.GetParameter(view(keys), rows.data()) == 0 && rows == wanted; };
    check(client.PutParameter(view(keys), view(wanted, dim)) == 0, "PutParameter", client);
    check(client.SaveCheckpoint("adapter/one", {}) == 0, "SaveCheckpoint", client);
    check(client.Command(PSCommand::kClearPS) == 0 && !holds(), "CLEAR", client);
    check(client.Command(PSCommand::kReloadPS) == 0 && holds(), "kReloadPS", client);
    check(client.Command(PSCommand::kSaveCheckpoint, "adapter/two") == 0, "kSaveCheckpoint", client);
    check(client.Command(PSCommand::kClearPS) == 0 && !holds(), "CLEAR", client);
    check(client.LoadCheckpoint("adapter/one", {}) == 0 && holds(), "LoadCheckpoint", client);
    check(client.Command(PSCommand::kLoadCheckpoint, "adapter/two") == 0 && holds(), "kLoadCheckpoint", client);
    check(client.LoadCheckpoint("adapter/three", {}) == -1, "a checkpoint that is not there is refused", client);
    check(client.SaveCheckpoint("adapter/one", "about it") == -1, "metadata is refused", client);
    check(client.SaveCheckpoint("../one", {}) == -1, "a path that leads elsewhere is refused", client);
}

void commands(ParameterStoreClient& client, std::size_t dim) {
    check(client.Command(PSCommand::kLoadFakeData) == -1 && !client.LastError().empty(), "fake data is refused",
          client);
    check(client.Command(PSCommand::kClearPS) == 0, "CLEAR", client);
    const Keys keys = keys_from(1);
    Rows rows(KEYS * dim, -1.0F);
    check(client.GetParameter(view(keys), rows.data()) == 0 && rows == Rows(KEYS * dim, 0.0F), "cleared rows are zero",
          client);
}

void run() {
    reclane::Options options = examples::options_from_flags();
    const std::size_t dim = static_cast<std::size_t>(examples::option_number(options, "value_size")) / sizeof(float);
    adapter::ReclanePSClient client(options, RATE);
    puts_and_gets(client, dim);
    updates(client);
    descends(client, dim);
    prefetches(client, dim);
    raw(client, client, dim);
    checkpoints(client, dim);
    commands(client, dim);
    std::printf("adapter: %d checks hold\n", checks);
}

}  // namespace

int main(int argc, char** argv) {
    try {
        gflags::SetUsageMessage("checks the adapter against running servers");
        examples::adopt_library_defaults();
        gflags::ParseCommandLineFlags(&argc, &argv, true);
        if (argc > 1) {
            std::fprintf(stderr, "reclane_adapter_round_trip: '%s' is no flag\n", argv[1]);
            return 2;
        }
        run();
        return 0;
    } catch (const std::exception& failure) {
        std::fprintf(stderr, "reclane_adapter_round_trip: %s\n", failure.what());
        return 1;
    }
}
