#include "worker.hpp"

#include <signal.h>
#include <unistd.h>

#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>

#include "../common/checked.hpp"
#include "../common/clock.hpp"

namespace heat {
namespace {

using examples::must;

// Region ids, the same on all ranks.
constexpr std::uint32_t ROWS = 0;   // two planes, each: the row before, the part, the row behind
constexpr std::uint32_t WORDS = 1;  // below
constexpr std::uint32_t VOTES =
    2;  // of rank 0: a word for each round of votes, ranks that voted << 32 | of those, for steady
constexpr std::uint32_t LANDING = 3;
// Words of 8 bytes, each on a cache line of its own.
constexpr std::size_t ABOVE = 0;  // steps whose edge has come from the rank above
constexpr std::size_t BELOW = 1;  // the same from below
constexpr std::size_t OWN = 2;    // what is sent to the neighbours' two
constexpr std::size_t SEEN = 3;   // where reads of another rank's word land
constexpr std::size_t STRIDE = 64;
constexpr std::size_t WORDS_BYTES = 4096;
// Looks at the own memory between two looks at the clock, and how long to wait before others are asked whether they are
// there at all.
constexpr std::uint64_t LOOKS = 64;
constexpr std::uint64_t ASK_NS = 50000000;

std::uint64_t load(const reclane::Region& region, std::size_t index) {
    const char* at = static_cast<const char*>(region.data()) + index * STRIDE;
    return __atomic_load_n(reinterpret_cast<const std::uint64_t*>(at), __ATOMIC_ACQUIRE);
}

void store(const reclane::Region& region, std::size_t index, std::uint64_t value) {
    char* at = static_cast<char*>(region.data()) + index * STRIDE;
    __atomic_store_n(reinterpret_cast<std::uint64_t*>(at), value, __ATOMIC_RELEASE);
}

// The section of a checkpoint: what of this rank is not in its regions.
constexpr char SECTION[] = "heat";

struct Position {
    std::uint64_t steps;
    std::uint64_t rows;
    std::uint64_t columns;
};

char* place(const reclane::Region& region, std::size_t index) {
    return static_cast<char*>(region.data()) + index * STRIDE;
}

}  // namespace

Worker::Worker(reclane::Rank& rank, const Plate& plate, const Steady& steady)
    : rank_(rank), plate_(plate), steady_(steady) {
    const reclane_rank_info info = must(rank.describe(), "rank");
    number_ = info.rank;
    ranks_ = info.ranks;
    part_ = part_of(plate_, number_, ranks_);
    const std::size_t bytes = 2 * (part_.count + 2) * plate_.columns * sizeof(double);
    rows_ = must(rank.open_region(ROWS, bytes, RECLANE_RIGHT_READ | RECLANE_RIGHT_WRITE), "rows");
    words_ = must(rank.open_region(WORDS, WORDS_BYTES), "words");
    if (number_ == 0) {
        const std::size_t rounds = static_cast<std::size_t>(steady_.steps_max / steady_.every + 1);
        votes_ = must(rank.open_region(VOTES, rounds * sizeof(std::uint64_t)), "votes");
    }
    if (info.restored_epoch != 0) {
        resume();
        return;
    }
    begin(plate_, part_, plane(0));
    begin(plate_, part_, plane(1));
}

/// The regions have come back filled, the neighbours' edges among them; the section says how far they are.
void Worker::resume() {
    const std::string bytes = must(rank_.restored_section(SECTION), "position");
    Position position{};
    if (bytes.size() != sizeof position) {
        throw std::runtime_error("the checkpoint's position has another size");
    }
    std::memcpy(&position, bytes.data(), sizeof position);
    if (position.rows != plate_.rows || position.columns != plate_.columns) {
        throw std::invalid_argument("the checkpoint is of a plate of another size: --rows and --columns must stay");
    }
    begun_ = position.steps;
}

/// All ranks come here after the same step, when their neighbours' edges have arrived: nothing is under way. A
/// checkpoint that cannot be now, because the one before is still being written say, is left out by all of them.
void Worker::checkpoint(std::uint64_t steps) {
    const Position position{steps, plate_.rows, plate_.columns};
    const std::string bytes(reinterpret_cast<const char*>(&position), sizeof position);
    const reclane::Result<std::uint64_t> taken = rank_.checkpoint(SECTION, bytes);
    if (taken) {
        ++checkpoints_.taken;
    } else if (taken.error().status() == RECLANE_STATUS_CHECKPOINT_ABORTED) {
        ++checkpoints_.skipped;
    } else {
        examples::raise(taken.error(), "checkpoint");
    }
}

double* Worker::plane(std::uint64_t step) {
    return static_cast<double*>(rows_.data()) + (step % 2) * (part_.count + 2) * plate_.columns;
}

/// Row `from` of this rank's plane of a step to row `to` of the peer's.
void Worker::send_row(std::uint32_t peer, std::uint64_t step, std::size_t from, std::size_t to) {
    const std::size_t rows = part_of(plate_, peer, ranks_).count + 2;
    const std::size_t row_bytes = plate_.columns * sizeof(double);
    const std::uint64_t offset = ((step % 2) * rows + to) * row_bytes;
    must(rank_.write({peer, ROWS, offset}, plane(step) + from * plate_.columns, row_bytes), "edge");
}

/// A neighbour has read its plane of two steps ago before it sent the edge of the last one, which this rank has waited
/// for; so that plane is free. The step's number follows when the row is there for the neighbour to see.
void Worker::send_edges(std::uint64_t step) {
    store(words_, OWN, step);
    if (number_ > 0) {
        const std::uint32_t above = number_ - 1;
        send_row(above, step, 1, part_of(plate_, above, ranks_).count + 1);
        must(rank_.flush(above), "edge");
        must(rank_.write({above, WORDS, BELOW * STRIDE}, place(words_, OWN), 8), "step");
    }
    if (number_ + 1 < ranks_) {
        const std::uint32_t below = number_ + 1;
        send_row(below, step, part_.count, 0);
        must(rank_.flush(below), "edge");
        must(rank_.write({below, WORDS, ABOVE * STRIDE}, place(words_, OWN), 8), "step");
    }
}

/// Until the neighbour has sent the edge of this step. Asks it for its word now and then: a rank that is gone sends
/// nothing.
void Worker::wait_for(std::size_t index, std::uint64_t step, std::uint32_t peer) {
    for (std::uint64_t asked = examples::now_ns(), looks = 1; load(words_, index) < step; ++looks) {
        if (looks % LOOKS == 0 && examples::now_ns() - asked > ASK_NS) {
            must(rank_.read({peer, WORDS, OWN * STRIDE}, place(words_, SEEN), 8), "waiting for an edge");
            asked = examples::now_ns();
        }
        std::this_thread::yield();
    }
}

/// Every rank votes by adding to this round's word of rank 0, and reads it until all have.
bool Worker::all_steady(std::uint64_t step, bool mine) {
    const reclane::Place at{0, VOTES, step / steady_.every * sizeof(std::uint64_t)};
    must(rank_.fetch_add(at, (std::uint64_t{1} << 32) | (mine ? 1 : 0)), "vote");
    std::uint64_t asked = examples::now_ns();
    for (;;) {
        if (examples::now_ns() - asked > ASK_NS) {
            // One that is gone does not vote.
            for (std::uint32_t peer = 0; peer < ranks_; ++peer) {
                must(rank_.read({peer, WORDS, OWN * STRIDE}, place(words_, SEEN), 8), "waiting for votes");
            }
            asked = examples::now_ns();
        }
        must(rank_.read(at, place(words_, SEEN), 8), "votes");
        const std::uint64_t seen = load(words_, SEEN);
        if ((seen >> 32) == ranks_) {
            return (seen & 0xffffffffU) == ranks_;
        }
        std::this_thread::yield();
    }
}

void Worker::meet() {
    must(rank_.barrier("begin"), "begin");
}

Outcome Worker::solve(const Death& death, std::uint64_t checkpoint_every) {
    Outcome outcome;
    outcome.steps = begun_;
    while (!outcome.steady && outcome.steps < steady_.steps_max) {
        const std::uint64_t step_number = outcome.steps + 1;
        if (death.rank == static_cast<std::int64_t>(number_) && death.step == step_number) {
            kill(getpid(), SIGKILL);
        }
        const double change = step(plate_, part_.count, plane(outcome.steps), plane(step_number));
        send_edges(step_number);
        outcome.steps = step_number;
        if (step_number % steady_.every == 0) {
            outcome.steady = all_steady(step_number, change < steady_.change);
        }
        if (number_ > 0) {
            wait_for(ABOVE, step_number, number_ - 1);
        }
        if (number_ + 1 < ranks_) {
            wait_for(BELOW, step_number, number_ + 1);
        }
        if (checkpoint_every != 0 && step_number % checkpoint_every == 0 && !outcome.steady) {
            checkpoint(step_number);
        }
    }
    must(rank_.barrier("end"), "end");
    return outcome;
}

std::vector<double> Worker::gather(const Outcome& outcome) {
    const std::size_t width = plate_.columns;
    std::vector<double> all(plate_.rows * width, 0.0);
    for (std::size_t column = 0; column < width; ++column) {
        all[column] = plate_.hot;
    }
    // Local memory of a read lies in a region, for fabrics that need it so.
    reclane::Region landing =
        must(rank_.open_region(LANDING, all.size() * sizeof(double), RECLANE_RIGHT_READ), "landing");
    for (std::uint32_t peer = 0; peer < ranks_; ++peer) {
        const Part part = part_of(plate_, peer, ranks_);
        const std::uint64_t offset = ((outcome.steps % 2) * (part.count + 2) + 1) * width * sizeof(double);
        const std::size_t bytes = part.count * width * sizeof(double);
        must(rank_.read({peer, ROWS, offset}, landing.data(), bytes), "gather");
        std::memcpy(all.data() + part.first * width, landing.data(), bytes);
    }
    return all;
}

}  // namespace heat
