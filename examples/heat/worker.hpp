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

class Worker {
public:
    Worker(reclane::Rank& rank, const Plate& plate, const Steady& steady);

    /// Solves together with the other ranks. Throws when one of them is gone.
    Outcome solve(const Death& death);

    /// The whole plate, read from all ranks' regions. Between two barriers only.
    std::vector<double> gather(const Outcome& outcome);

private:
    double* plane(std::uint64_t step);
    void send_edges(std::uint64_t step);
    void send_row(std::uint32_t peer, std::uint64_t step, std::size_t from, std::size_t to);
    void wait_for(std::size_t word, std::uint64_t step, std::uint32_t peer);
    bool all_steady(std::uint64_t step, bool mine);

    reclane::Rank& rank_;
    Plate plate_;
    Steady steady_;
    std::uint32_t number_;
    std::uint32_t ranks_;
    Part part_;
    reclane::Region rows_;
    reclane::Region words_;
    reclane::Region votes_;
};

}  // namespace heat
