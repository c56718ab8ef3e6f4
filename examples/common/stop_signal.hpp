// SIGINT and SIGTERM for a program that has to stop things in order. The library installs no handlers; this is the
// program's own business.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <stdexcept>

namespace examples {

/// Makes both signals wait for wait(). Construct it before any thread starts, so that all threads inherit the mask.
class StopSignal {
public:
    StopSignal() {
        sigemptyset(&signals_);
        sigaddset(&signals_, SIGINT);
        sigaddset(&signals_, SIGTERM);
        if (pthread_sigmask(SIG_BLOCK, &signals_, nullptr) != 0) {
            throw std::runtime_error("the signal mask cannot be set");
        }
    }

    /// Sleeps until one of them comes, and names it.
    const char* wait() const {
        int signal = 0;
        while (sigwait(&signals_, &signal) != 0) {
        }
        return signal == SIGINT ? "SIGINT" : "SIGTERM";
    }

private:
    sigset_t signals_;
};

}  // namespace examples
