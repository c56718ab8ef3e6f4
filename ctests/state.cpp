// State of the host program in checkpoints: a storage engine behind callbacks, in a process of its own that is killed
// and comes back with every row. C++17. Without arguments this is the test; "serve" makes it the server.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <reclane/reclane.hpp>
#include <string>
#include <vector>

#include "check.h"

extern char** environ;

namespace {

constexpr std::uint32_t kDim = 4;
// More than one chunk of a container, and no multiple of one.
constexpr std::size_t kBlob = (3U << 20) + 77;

using Row = std::array<float, kDim>;

// The engine's memory: rows, and bytes that follow from how many updates there were.
struct Memory {
    std::mutex mutex;
    std::map<std::uint64_t, Row> rows;
    std::uint64_t updates = 0;
};

class Engine final : public reclane::Store {
public:
    explicit Engine(Memory& memory) : memory_(memory) {}
    int init_table(std::uint32_t, const reclane_table_options& options, std::uint32_t& table) override {
        table = 0;
        return options.dim == kDim ? RECLANE_ANSWER_OK : RECLANE_ANSWER_VALUE_SIZE_MISMATCH;
    }
    int table_shape(std::uint32_t table, std::uint32_t& dim) override {
        dim = kDim;
        return table == 0 ? RECLANE_ANSWER_OK : RECLANE_ANSWER_UNKNOWN_TABLE;
    }
    int get_flat(std::uint32_t, std::uint32_t, reclane::Span<const std::uint64_t> keys, float* rows, std::uint32_t dim,
                 std::uint32_t& missing_rows) override {
        const std::lock_guard<std::mutex> hold(memory_.mutex);
        for (const std::uint64_t key : keys) {
            const auto found = memory_.rows.find(key);
            if (found == memory_.rows.end())
                ++missing_rows;
            const Row row = found == memory_.rows.end() ? Row{} : found->second;
            std::memcpy(rows, row.data(), dim * sizeof(float));
            rows += dim;
        }
        return RECLANE_ANSWER_OK;
    }
    int update(std::uint32_t, std::uint32_t, reclane::Span<const std::uint64_t> keys, Rows gradients) override {
        const std::lock_guard<std::mutex> hold(memory_.mutex);
        ++memory_.updates;
        for (std::size_t i = 0; i < keys.size(); ++i) {
            for (std::uint32_t j = 0; j < kDim; ++j)
                memory_.rows[keys[i]][j] += gradients[i][j];
        }
        return RECLANE_ANSWER_OK;
    }

private:
    Memory& memory_;
};

unsigned char blob_byte(std::uint64_t updates, std::size_t at) {
    return static_cast<unsigned char>((updates * 31 + at * 7) ^ (at >> 11));
}

class Saved final : public reclane::State {
public:
    Saved(Memory& memory, bool refuses) : memory_(memory), refuses_(refuses) {}

    int freeze(std::uint64_t, std::uint64_t& bytes) override {
        if (refuses_)
            return 41;
        const std::lock_guard<std::mutex> hold(memory_.mutex);
        put(&memory_.updates, sizeof memory_.updates);
        for (const auto& entry : memory_.rows) {
            put(&entry.first, sizeof entry.first);
            put(entry.second.data(), sizeof entry.second);
        }
        const std::uint64_t end = ~std::uint64_t{0};
        put(&end, sizeof end);
        for (std::size_t i = 0; i < kBlob; ++i)
            frozen_.push_back(blob_byte(memory_.updates, i));
        bytes = frozen_.size();
        return 0;
    }
    int save(std::uint64_t offset, void* buffer, std::size_t count) override {
        if (offset + count > frozen_.size())
            return 42;
        std::memcpy(buffer, frozen_.data() + offset, count);
        return 0;
    }
    void release(std::uint64_t, bool committed) override {
        frozen_.clear();
        (committed ? committed_ : given_up_) += 1;
    }
    int load(const Piece& piece) override {
        const auto* bytes = static_cast<const unsigned char*>(piece.bytes);
        if (piece.offset != loaded_.size() || piece.shard != 0 || piece.shards != 1)
            return 43;
        loaded_.insert(loaded_.end(), bytes, bytes + piece.count);
        return loaded_.size() < piece.total ? 0 : take();
    }

    std::size_t loaded() const { return loaded_.size(); }
    unsigned committed() const { return committed_; }
    unsigned given_up() const { return given_up_; }

private:
    void put(const void* from, std::size_t count) {
        const auto* bytes = static_cast<const unsigned char*>(from);
        frozen_.insert(frozen_.end(), bytes, bytes + count);
    }
    // The whole state is here.
    int take() {
        std::size_t at = 0;
        const auto get = [&](void* to, std::size_t count) {
            std::memcpy(to, loaded_.data() + at, count);
            at += count;
        };
        get(&memory_.updates, sizeof memory_.updates);
        for (;;) {
            std::uint64_t key = 0;
            get(&key, sizeof key);
            if (key == ~std::uint64_t{0})
                break;
            get(memory_.rows[key].data(), sizeof(Row));
        }
        for (std::size_t i = 0; i < kBlob; ++i) {
            if (loaded_[at + i] != blob_byte(memory_.updates, i))
                return 44;
        }
        return 0;
    }

    Memory& memory_;
    bool refuses_;
    std::vector<unsigned char> frozen_;
    std::vector<unsigned char> loaded_;
    unsigned committed_ = 0;
    unsigned given_up_ = 0;
};

reclane::Result<reclane::Options> options_for(const std::string& directory) {
    auto options = reclane::Options::open();
    const bool set = options && options->set("rdma-control-plane-port", 0) && options->set("slots-per-qp", 4) &&
                     options->set("qps-per-client-per-shard", 2) && options->set("request-slot-bytes", 4096) &&
                     options->set("response-slot-bytes", 4096) && options->set("checkpoint-directory", directory) &&
                     options->set("checkpoint-restore", "latest");
    CHECK(set);
    return options;
}

// The server's process: says its port and what it was filled with, then serves until it is killed or hears a line.
int serve(const std::string& directory, bool refuses) {
    Memory memory;
    Saved saved(memory, refuses);
    auto options = options_for(directory);
    auto server = reclane::Server::open(*options, std::unique_ptr<reclane::Store>(new Engine(memory)), saved);
    if (!server) {
        std::printf("0 0 %s\n", server.error().message());
        return 1;
    }
    std::printf("%u %zu serving\n", *server->control_plane_port(), saved.loaded());
    std::fflush(stdout);
    char line[64];
    if (std::fgets(line, sizeof line, stdin) != nullptr) {
        server->close();
        std::printf("%u %u\n", saved.committed(), saved.given_up());
    }
    return 0;
}

struct Child {
    pid_t pid = 0;
    std::FILE* to = nullptr;
    std::FILE* from = nullptr;

    void end(int signal) {
        if (signal != 0)
            kill(pid, signal);
        int status = 0;
        waitpid(pid, &status, 0);
        std::fclose(to);
        std::fclose(from);
    }
};

Child start(const char* program, const std::string& directory, const char* how) {
    int in[2], out[2];
    Child child;
    if (!CHECK(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0))
        return child;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    std::string name(program), place(directory), mode(how);
    char* arguments[] = {&name[0], &mode[0], &place[0], nullptr};
    CHECK(posix_spawn(&child.pid, program, &actions, nullptr, arguments, environ) == 0);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    child.to = fdopen(in[1], "w");
    child.from = fdopen(out[0], "r");
    return child;
}

struct Said {
    unsigned port = 0;
    std::size_t loaded = 0;
};

Said hear(const Child& child) {
    Said said;
    CHECK(std::fscanf(child.from, "%u %zu serving", &said.port, &said.loaded) == 2);
    return said;
}

struct Session {
    reclane::Result<reclane::Options> options;
    reclane::Result<reclane::Client> client;
    std::uint32_t table = 0;

    Session(const std::string& directory, unsigned port) : options(options_for(directory)) {
        CHECK(options->set("rdma-control-plane-port", port).ok());
        client = reclane::Client::open(*options);
        reclane_table_options made{};
        made.name = "rows";
        made.dim = kDim;
        const auto found = client->init_table(made);
        CHECK(found.ok());
        table = *found;
    }
    // Updates key and key + 1.
    void update(std::uint64_t key) {
        const std::vector<std::uint64_t> keys{key, key + 1};
        const std::vector<float> rows(keys.size() * kDim, static_cast<float>(key + 1));
        CHECK(client->update_flat(table, keys, rows).ok());
    }
    float value(std::uint64_t key) {
        const std::array<std::uint64_t, 1> keys{key};
        std::array<float, kDim> row{};
        CHECK(client->get(table, keys, row).ok());
        return row[kDim - 1];
    }
    reclane::Result<reclane_checkpoint_info> checkpoint() {
        const auto number = client->checkpoint_begin();
        CHECK(number.ok());
        return client->checkpoint_wait(*number, RECLANE_CHECKPOINT_STATE_COMMITTED);
    }
};

bool same(float one, float other) {
    return one >= other && one <= other;
}

// Killed with SIGKILL, three times over; what was updated after a checkpoint is undone, all else is there.
void kills(const char* program, const std::string& directory) {
    std::size_t size = 0;
    for (std::uint64_t life = 0; life < 4; ++life) {
        Child child = start(program, directory, "serve");
        const Said said = hear(child);
        CHECK(said.loaded == size);
        {
            Session session(directory, said.port);
            for (std::uint64_t key = 0; key < 100 * life; ++key) {
                const float expected = static_cast<float>(key + 1) + (key % 100 == 0 ? 0.0F : static_cast<float>(key));
                CHECK(same(session.value(key), expected));
            }
            CHECK(same(session.value(100 * life + 50), 0.0F));
            for (std::uint64_t key = 100 * life; key < 100 * life + 99; ++key)
                session.update(key);
            const std::array<std::uint64_t, 1> last{100 * life + 99};
            const std::vector<float> row(kDim, static_cast<float>(100 * life + 100));
            CHECK(session.client->update_flat(session.table, last, row).ok());
            const auto info = session.checkpoint();
            CHECK(info.ok() && info->state_bytes > kBlob);
            size = sizeof(std::uint64_t) * 2 + (100 * (life + 1)) * (sizeof(std::uint64_t) + sizeof(Row)) + kBlob;
            // Not in it.
            session.update(100 * (life + 1) + 50);
            child.end(SIGKILL);
        }
    }
}

// A program that cannot freeze its state has no checkpoints, and is told why; one that can hears how each ended.
void refusals(const char* program, const std::string& directory) {
    Child child = start(program, directory, "refuse");
    {
        Session session(directory, hear(child).port);
        const auto info = session.checkpoint();
        CHECK(info.status() == RECLANE_STATUS_CHECKPOINT_ABORTED);
        CHECK(std::strstr(info.error().message(), "answered 41") != nullptr);
        session.update(0);
    }
    child.end(SIGKILL);
    // What was saved is not dropped silently.
    auto options = options_for(directory);
    Memory memory;
    const auto bare = reclane::Server::open(*options, std::unique_ptr<reclane::Store>(new Engine(memory)));
    CHECK(bare.status() == RECLANE_STATUS_UNSUPPORTED);
    const auto builtin = reclane::Server::open(*options);
    CHECK(builtin.status() == RECLANE_STATUS_UNSUPPORTED);
    CHECK(std::strstr(builtin.error().message(), "reclane_server_open_with_state") != nullptr);
    reclane_state empty{};
    empty.struct_size = sizeof empty;
    reclane_server* server = nullptr;
    CHECK(reclane_server_open_with_state(options->raw(), nullptr, &empty, &server, nullptr) ==
          RECLANE_STATUS_NULL_POINTER);
    CHECK(reclane_server_open_with_state(options->raw(), nullptr, nullptr, &server, nullptr) ==
          RECLANE_STATUS_NULL_POINTER);
    CHECK(server == nullptr);
    Child orderly = start(program, directory, "serve");
    {
        Session session(directory, hear(orderly).port);
        CHECK(session.checkpoint().ok() && session.checkpoint().ok());
        CHECK(session.client->shutdown().ok());
    }
    std::fputs("stop\n", orderly.to);
    std::fflush(orderly.to);
    unsigned committed = 0, given_up = 0;
    CHECK(std::fscanf(orderly.from, "%u %u", &committed, &given_up) == 2 && committed == 2 && given_up == 0);
    orderly.end(0);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc == 3)
        return serve(argv[2], std::strcmp(argv[1], "refuse") == 0);
    char directory[] = "/tmp/reclane-state-XXXXXX";
    if (!CHECK(mkdtemp(directory) != nullptr))
        return check_end();
    kills(argv[0], directory);
    refusals(argv[0], directory);
    const std::string remove = std::string("rm -r ") + directory;
    CHECK(std::system(remove.c_str()) == 0);
    return check_end();
}
