// value() of a failure says on standard error what failed, and aborts. Compiled with and without -fno-exceptions,
// without RECLANE_EXCEPTIONS. C++17 with POSIX.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <reclane/reclane.hpp>
#include <string>

#include "check.h"

namespace {

// What a process says on standard error that does `work`, and how it ends.
std::string child(void (*work)(), int& status) {
    int ends[2];
    std::string said;
    if (!CHECK(pipe(ends) == 0))
        return said;
    const pid_t pid = fork();
    if (pid == 0) {
        if (dup2(ends[1], STDERR_FILENO) < 0)
            _exit(3);
        work();
        _exit(0);  // it lives on with a value that is none: wrong
    }
    close(ends[1]);
    char bytes[256];
    for (ssize_t count; (count = read(ends[0], bytes, sizeof bytes)) > 0;)
        said.append(bytes, static_cast<std::size_t>(count));
    close(ends[0]);
    CHECK(waitpid(pid, &status, 0) == pid);
    return said;
}

void no_value() {
    auto options = reclane::Options::open().value();
    options.set("slots-per-qp", 0).value();
}

void no_object() {
    reclane::Client nothing;
    (void)*nothing.shard_of(1);
}

void check(void (*work)(), const char* status_name, const char* message) {
    int status = 0;
    const std::string said = child(work, status);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    if (!CHECK(said.find(status_name) != std::string::npos && said.find(message) != std::string::npos))
        std::fprintf(stderr, "wait status %#x, said '%s'\n", static_cast<unsigned>(status), said.c_str());
    CHECK(!said.empty() && said.back() == '\n');
}

}  // namespace

int main() {
    check(no_value, "RECLANE_STATUS_OPTION_BOUNDS", "slots-per-qp");
    check(no_object, "RECLANE_STATUS_NULL_POINTER", "client");
    return check_end();
}
