// A raw callback that throws must end the process with SIGABRT, never unwind through the library. C++17 with POSIX.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>

#include "check.h"
#include "cluster.h"

namespace {

int throwing_shape(void*, std::uint32_t, std::uint32_t*) {
    throw std::runtime_error("must not pass");
}
int throwing_init(void*, std::uint32_t, const reclane_table_options*, std::uint32_t*) {
    throw std::runtime_error("must not pass");
}
int throwing_get(void*, std::uint32_t, std::uint32_t, const std::uint64_t*, std::size_t, float*, std::uint32_t,
                 std::uint32_t*) {
    throw std::runtime_error("must not pass");
}

[[noreturn]] void run() {
    reclane_error error{};
    error.struct_size = sizeof error;
    reclane_store store{};
    store.struct_size = sizeof store;
    store.init_table = throwing_init;
    store.table_shape = throwing_shape;
    store.get_flat = throwing_get;
    cluster all;
    reclane_client* client = nullptr;
    std::uint32_t table = 0;
    if (std::freopen("/dev/null", "w", stderr) == nullptr)
        _exit(3);
    if (cluster_open(&all, 1, &store, &error) != RECLANE_STATUS_OK)
        _exit(4);
    if (reclane_client_open(all.options, &client, &error) != RECLANE_STATUS_OK)
        _exit(5);
    (void)make_table(client, "rows", 4, 0, &table, &error);
    _exit(0);  // the exception went somewhere, and the process lives: wrong
}

}  // namespace

int main() {
    const pid_t pid = fork();
    if (pid == 0)
        run();
    int status = 0;
    CHECK(waitpid(pid, &status, 0) == pid);
    if (!CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT))
        std::fprintf(stderr, "wait status %#x\n", status);
    return check_end();
}
