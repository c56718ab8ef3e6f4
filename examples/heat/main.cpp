// reclane_heat: solves the heat equation on a plate over several ranks and checks the result, bit for bit, against the
// same solution by one process.
//
//     reclane_heat --ranks=4                      starts all ranks on this host as processes of its own
//     reclane_heat --ranks=4 --checkpoint_every=200 --checkpoint_directory=DIR --checkpoint_restore=latest
//                                                 goes on from the last checkpoint, whenever and however it was killed
//     reclane_heat --ranks=4 --rank=2 --rdma_control_plane_port=25100 ...   is one of them
//
// Exit status: 0 equal, 1 failed, 2 wrong flags, 3 another rank was lost.

#include <gflags/gflags.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "../common/checked.hpp"
#include "../common/clock.hpp"
#include "../common/reclane_flags.hpp"
#include "worker.hpp"

DEFINE_uint32(ranks, 4, "processes that share the plate");
DEFINE_int32(rank, -1, "which of them this is; -1 starts all of them here");
DEFINE_uint32(rows, 130, "rows of the plate, with both edges");
DEFINE_uint32(columns, 128, "columns of the plate, with both edges");
DEFINE_double(change, 1e-3, "it is steady when no point changes by as much in one step");
DEFINE_uint64(every, 50, "steps between two looks whether it is steady");
DEFINE_uint64(steps_max, 20000, "steps after which it is given up");
DEFINE_uint64(checkpoint_every, 0, "steps between two checkpoints, with --checkpoint_directory; 0: none");
DEFINE_int32(die_rank, -1, "this rank kills itself");
DEFINE_uint64(die_step, 100, "in this step");

namespace {

constexpr int LOST = 3;

heat::Plate plate_from_flags() {
    heat::Plate plate;
    plate.rows = FLAGS_rows;
    plate.columns = FLAGS_columns;
    if (FLAGS_ranks < 1 || FLAGS_ranks > 64) {
        throw std::invalid_argument("--ranks must be 1 to 64");
    }
    if (FLAGS_rows < FLAGS_ranks + 2 || FLAGS_columns < 3 || FLAGS_rows > 65536 || FLAGS_columns > 65536) {
        throw std::invalid_argument("--rows must be ranks + 2 to 65536, --columns 3 to 65536");
    }
    if (FLAGS_every < 1 || FLAGS_steps_max < 1 || FLAGS_steps_max / FLAGS_every > 1000000) {
        throw std::invalid_argument("--every and --steps_max must be 1 or more, and at most 1000000 rounds apart");
    }
    return plate;
}

heat::Steady steady_from_flags() {
    heat::Steady steady;
    steady.every = FLAGS_every;
    steady.change = FLAGS_change;
    steady.steps_max = FLAGS_steps_max;
    return steady;
}

/// Rank 0 compares all with the solution of one process.
bool is_equal(const heat::Plate& plate, const heat::Outcome& outcome, const std::vector<double>& together) {
    std::vector<double> alone;
    const heat::Outcome expected = heat::solve_alone(plate, steady_from_flags(), alone);
    const bool equal = expected.steps == outcome.steps && expected.steady == outcome.steady &&
                       std::memcmp(alone.data(), together.data(), alone.size() * sizeof(double)) == 0;
    std::printf("component=reclane_heat event=checked steps=%" PRIu64 " steps_alone=%" PRIu64 " steady=%d %s\n",
                outcome.steps, expected.steps, outcome.steady ? 1 : 0,
                equal ? "the plates are equal bit for bit" : "the plates DIFFER");
    return equal;
}

/// One rank. `report` receives the control plane's port of rank 0, unless it is -1.
int work(std::uint32_t number, const std::string& port, int report) {
    const heat::Plate plate = plate_from_flags();
    reclane::Options options = examples::options_from_flags();
    examples::set_option(options, "num-server-processes", std::to_string(FLAGS_ranks));
    examples::set_option(options, "shard-id", std::to_string(number));
    if (!port.empty()) {
        examples::set_option(options, "rdma-control-plane-port", port);
    }
    reclane::Rank rank = examples::must(reclane::Rank::open(options), "rank");
    if (report >= 0) {
        const std::uint32_t bound = examples::must(rank.describe(), "rank").control_plane_port;
        if (write(report, &bound, sizeof bound) != static_cast<ssize_t>(sizeof bound)) {
            throw std::runtime_error("the port cannot be told");
        }
    }
    heat::Worker worker(rank, plate, steady_from_flags());
    heat::Death death;
    death.rank = FLAGS_die_rank;
    death.step = FLAGS_die_step;
    const std::uint64_t start = examples::now_ns();
    worker.meet();
    if (number == 0 && FLAGS_checkpoint_every != 0) {
        const bool resumed = worker.begun() != 0;
        std::printf("component=reclane_heat event=%s step=%" PRIu64 "\n", resumed ? "resuming" : "starting",
                    worker.begun());
        std::fflush(stdout);
    }
    const heat::Outcome outcome = worker.solve(death, FLAGS_checkpoint_every);
    const double seconds = examples::seconds_since(start);
    bool equal = true;
    if (number == 0) {
        std::printf("component=reclane_heat event=solved ranks=%u steps=%" PRIu64 " seconds=%.3f us_per_step=%.1f\n",
                    FLAGS_ranks, outcome.steps, seconds,
                    seconds * 1e6 / static_cast<double>(outcome.steps - worker.begun()));
        if (FLAGS_checkpoint_every != 0) {
            const heat::Checkpoints checkpoints = worker.checkpoints();
            std::printf("component=reclane_heat event=checkpoints taken=%" PRIu64 " skipped=%" PRIu64 "\n",
                        checkpoints.taken, checkpoints.skipped);
        }
        equal = is_equal(plate, outcome, worker.gather(outcome));
    }
    // The others wait here while rank 0 checks; it finds them, or one of them is gone.
    examples::must(rank.barrier("checked", number == 0 ? 10000 : 0), "end");
    return equal ? 0 : 1;
}

int guarded(std::uint32_t number, const std::string& port, int report) {
    try {
        return work(number, port, report);
    } catch (const std::invalid_argument& wrong) {
        std::fprintf(stderr, "reclane_heat: %s\n", wrong.what());
        return 2;
    } catch (const std::exception& failure) {
        std::fprintf(stderr, "reclane_heat: rank %u gives up: %s\n", number, failure.what());
        return LOST;
    }
}

/// The ranks are made before the library has a thread in this process, so each is as good as a fresh one.
pid_t start(std::uint32_t number, const std::string& port, int report) {
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        const int status = guarded(number, port, report);
        std::fflush(nullptr);
        _exit(status);
    }
    if (child < 0) {
        throw std::runtime_error("a process cannot be started");
    }
    return child;
}

/// All ranks here. The worst of their exit statuses.
int launch() {
    int ends[2];
    if (pipe(ends) != 0) {
        throw std::runtime_error("no pipe");
    }
    std::vector<pid_t> children{start(0, "0", ends[1])};
    close(ends[1]);
    std::uint32_t port = 0;
    const bool told = read(ends[0], &port, sizeof port) == static_cast<ssize_t>(sizeof port);
    for (std::uint32_t number = 1; told && number < FLAGS_ranks; ++number) {
        children.push_back(start(number, std::to_string(port), -1));
    }
    int worst = told ? 0 : 1;
    for (const pid_t child : children) {
        int status = 0;
        waitpid(child, &status, 0);
        if (WIFSIGNALED(status)) {
            std::printf("component=reclane_heat event=killed pid=%d signal=%d\n", static_cast<int>(child),
                        WTERMSIG(status));
        } else if (WEXITSTATUS(status) > worst) {
            worst = WEXITSTATUS(status);
        }
    }
    return worst;
}

}  // namespace

int main(int argc, char** argv) {
    gflags::SetUsageMessage("solves the heat equation over ranks: --ranks=4");
    examples::adopt_library_defaults();
    gflags::ParseCommandLineFlags(&argc, &argv, true);
    try {
        plate_from_flags();
        if (argc > 1) {
            throw std::invalid_argument(std::string("'") + argv[1] + "' is no flag");
        }
        return FLAGS_rank < 0 ? launch() : guarded(static_cast<std::uint32_t>(FLAGS_rank), "", -1);
    } catch (const std::invalid_argument& wrong) {
        std::fprintf(stderr, "reclane_heat: %s\n", wrong.what());
        return 2;
    } catch (const std::exception& failure) {
        std::fprintf(stderr, "reclane_heat: %s\n", failure.what());
        return 1;
    }
}
