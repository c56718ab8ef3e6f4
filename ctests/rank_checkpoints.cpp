// Checkpoints of ranks, restore, suspend and resume through reclane.hpp: one rank, whose lives follow each other.
// C++17.
#include <stdlib.h>

#include <cstring>
#include <reclane/reclane.hpp>
#include <string>

#include "check.h"

namespace {

constexpr std::uint32_t REGION = 9;
constexpr std::size_t BYTES = 10000;

reclane::Result<reclane::Rank> open_rank(const std::string& directory, const char* restore, const char* ranks = "1") {
    reclane::Options options = reclane::Options::open().value();
    CHECK(options.set("num-server-processes", ranks).ok() && options.set("rdma-control-plane-port", 0).ok());
    CHECK(options.set("rdma-namespace", "rank-checkpoints").ok());
    CHECK(options.set("checkpoint-directory", directory).ok() && options.set("checkpoint-restore", restore).ok());
    CHECK(options.set("checkpoint-hold-timeout-ms", 20000).ok());
    return reclane::Rank::open(options);
}

// What the hooks were asked for, in order.
struct Program {
    std::string calls;
    std::string state = "state of the program";
    int refuse = 0;
};

int rest(void* user_data, std::uint64_t within_ms) {
    auto* program = static_cast<Program*>(user_data);
    program->calls += within_ms > 0 ? "rest " : "late ";
    return program->refuse;
}

const void* section(void* user_data, std::uint64_t* bytes) {
    auto* program = static_cast<Program*>(user_data);
    program->calls += "section ";
    *bytes = program->state.size();
    return program->state.data();
}

void resume(void* user_data, int copied) {
    static_cast<Program*>(user_data)->calls += copied != 0 ? "copied " : "given-up ";
}

void dropped(void* user_data) {
    static_cast<Program*>(user_data)->calls += "dropped ";
}

reclane_rank_hooks hooks_of(Program& program) {
    reclane_rank_hooks hooks{};
    hooks.user_data = &program;
    hooks.drop_user_data = dropped;
    hooks.rest = rest;
    hooks.section = section;
    hooks.resume = resume;
    hooks.section_name = "hooked";
    return hooks;
}

void first_life(const std::string& directory) {
    auto rank = open_rank(directory, "latest").value();
    CHECK(rank.describe().value().restored_epoch == 0 && !rank.restored_section("position").ok());
    auto region = rank.open_region(REGION, BYTES).value();
    std::memset(region.data(), 7, BYTES);
    CHECK(rank.fetch_add({0, REGION, 0}, 1).ok() && rank.fetch_add_once({0, REGION, 8}, 1).ok());
    const auto taken = rank.checkpoint("position", std::string("a\0b", 3), 0, RECLANE_CHECKPOINT_FLAG_FULL);
    CHECK(taken.ok() && *taken != 0);
    const auto info = rank.checkpoint_wait(*taken).value();
    CHECK(info.state == RECLANE_CHECKPOINT_STATE_COMMITTED && info.epoch != 0 && info.state_bytes > BYTES);
    CHECK(rank.checkpoint_status(*taken).value().epoch == info.epoch && rank.checkpoint_status(77).status() < 0);
    // Not in it.
    std::memset(region.data(), 8, BYTES);
    CHECK(rank.checkpoint("position", "x", 0, 64).status() == RECLANE_STATUS_INVALID_ARGUMENT);
    CHECK(rank.checkpoint_begin(64).status() == RECLANE_STATUS_INVALID_ARGUMENT);
    CHECK(rank.checkpoint_wait(*taken, 9).status() == RECLANE_STATUS_INVALID_ARGUMENT);
    // Nobody is copied while it works.
    const auto refused = rank.checkpoint_begin();
    CHECK(refused.ok() && rank.checkpoint_wait(*refused).status() == RECLANE_STATUS_CHECKPOINT_ABORTED);
    CHECK(rank.checkpoint_abort(*refused).ok() && !rank.checkpoint_abort(77).ok());
}

void second_life(const std::string& directory) {
    auto rank = open_rank(directory, "require").value();
    CHECK(rank.describe().value().restored_epoch != 0);
    CHECK(*rank.restored_section("position") == std::string("a\0b", 3));
    CHECK(rank.open_region(REGION, BYTES - 1).status() == RECLANE_STATUS_INVALID_ARGUMENT);
    auto region = rank.open_region(REGION, BYTES).value();
    const auto bytes = region.as<unsigned char>();
    CHECK(bytes[0] == 8 && bytes[8] == 8 && bytes[16] == 7 && bytes[BYTES - 1] == 7);

    Program program;
    reclane_rank_hooks wrong = hooks_of(program);
    wrong.rest = nullptr;
    CHECK(rank.set_hooks(wrong).status() == RECLANE_STATUS_NULL_POINTER);
    CHECK(rank.set_hooks(hooks_of(program)).ok());
    const auto begun = rank.checkpoint_begin().value();
    CHECK(rank.checkpoint_wait(begun).ok());
    program.refuse = 3;
    const auto given_up = rank.checkpoint_begin().value();
    const auto why = rank.checkpoint_wait(given_up);
    CHECK(why.status() == RECLANE_STATUS_CHECKPOINT_ABORTED &&
          std::string(why.error().message()).find("(3)") != std::string::npos);
    CHECK(rank.clear_hooks().ok());
    CHECK(program.calls == "rest section copied rest dropped ");

    // In place: bytes and address stay, operations go on.
    void* const place = region.data();
    CHECK(rank.resume().status() == RECLANE_STATUS_WRONG_STATE);
    for (unsigned char round = 1; round < 4; ++round) {
        if (!CHECK(rank.suspend().ok()))
            return;
        CHECK(region.data() == place && bytes[16] == 6 + round);
        bytes[16] = static_cast<unsigned char>(bytes[16] + 1);
        CHECK(rank.suspend().status() == RECLANE_STATUS_WRONG_STATE && rank.resume(1000).ok());
        CHECK(rank.fetch_add_once({0, REGION, 24}, 1).ok() && bytes[24] == 7 + round);
        CHECK(rank.write({0, REGION, 32}, place, 8).ok() && std::memcmp(&bytes[32], place, 8) == 0);
    }
}

void looked_into(const std::string& directory) {
    const auto restore = reclane::Restore::open(directory).value();
    const auto info = restore.describe().value();
    CHECK(info.ranks == 1 && info.shards == 0);
    // The one that was given up, and nothing that was committed.
    CHECK(info.refused == 1 && restore.refused(0)->find("not committed") != std::string::npos);
    CHECK(*restore.section("hooked") == "state of the program");
    const std::string bytes = restore.region(0, REGION).value();
    CHECK(bytes.size() == BYTES && bytes[0] == 8 && bytes[BYTES - 1] == 7);
    CHECK(restore.region(0, 1).status() == RECLANE_STATUS_INVALID_ARGUMENT && !restore.region(1, REGION).ok());
    char piece[4] = {0, 0, 0, 0};
    std::uint64_t length = 0;
    CHECK(reclane_restore_region(restore.raw(), 0, REGION, 15, piece, 2, &length, nullptr) == RECLANE_STATUS_OK);
    CHECK(length == BYTES && piece[0] == 7 && piece[1] == 7 && piece[2] == 0);
    CHECK(reclane_restore_region(restore.raw(), 0, REGION, BYTES - 1, piece, 4, &length, nullptr) == RECLANE_STATUS_OK);
    CHECK(piece[0] == 7 && piece[2] == 0);
    const auto two = open_rank(directory, "latest", "2");
    CHECK(two.status() == RECLANE_STATUS_INVALID_ARGUMENT &&
          std::string(two.error().message()).find("is of 1 ranks, this job has 2") != std::string::npos);
}

}  // namespace

int main() {
    char name[] = "/tmp/reclane-rank-checkpoints-XXXXXX";
    if (!CHECK(mkdtemp(name) != nullptr))
        return check_end();
    first_life(name);
    second_life(name);
    looked_into(name);
    CHECK(std::system(("rm -rf " + std::string(name)).c_str()) == 0);
    return check_end();
}
