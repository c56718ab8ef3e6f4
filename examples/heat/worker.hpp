// One rank of the solver: its part of the plate lies in a region, its neighbours write their edges into it.
#pragma once

#include <cstdint>
#include <vector>

#include "reclane/reclane.hpp"
#include "solver.hpp"

namespace heat {

/// For trying out what the others do when a rank is killed.
struct Death {
    std::int64_t rank = -1;
    std::uint64_t step = 0;
};

/// What became of the checkpoints that this rank came to.
struct Checkpoints {
    std::uint64_t taken = 0;
    std::uint64_t skipped = 0;
};

class Worker {
public:
    /// Begins anew, or where the checkpoint was made that the rank started from.
    Worker(reclane::Rank& rank, const Plate& plate, const Steady& steady);

    /// Waits until all ranks have their regions.
    void meet();

    /// Solves together with the other ranks, after meet(), with a checkpoint every so many steps; 0: none. Throws when
    /// a rank is gone.
    Outcome solve(const Death& death, std::uint64_t checkpoint_every);

    /// Steps that were done before this life.
    std::uint64_t begun() const { return begun_; }
    Checkpoints checkpoints() const { return checkpoints_; }

    /// The whole plate, read from all ranks' regions. Between two barriers only.
    std::vector<double> gather(const Outcome& outcome);

private:
    double* plane(std::uint64_t step);
    void send_edges(std::uint64_t step);
    void send_row(std::uint32_t peer, std::uint64_t step, std::size_t from, std::size_t to);
    void wait_for(std::size_t word, std::uint64_t step, std::uint32_t peer);
    bool all_steady(std::uint64_t step, bool mine);
    void resume();
    void checkpoint(std::uint64_t steps);

    reclane::Rank& rank_;
    Plate plate_;
    Steady steady_;
    std::uint32_t number_;
    std::uint32_t ranks_;
    Part part_;
    std::uint64_t begun_ = 0;
    Checkpoints checkpoints_;
    reclane::Region rows_;
    reclane::Region words_;
    reclane::Region votes_;
};

}  // namespace heat
