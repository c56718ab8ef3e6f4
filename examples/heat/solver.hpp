// The heat equation on a plate, by Jacobi's method: each inner point becomes the mean of its four neighbours. The top
// edge is hot, the others are cold; the first row of a part and its last are edges or belong to a neighbour.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace heat {

struct Plate {
    std::size_t rows = 0;     // with both edges
    std::size_t columns = 0;  // with both edges
    double hot = 100.0;
};

/// Rows [first, first + count) of the plate's inner rows, which are numbered from 1.
struct Part {
    std::size_t first = 1;
    std::size_t count = 0;
};

/// The part of one of `ranks` ranks: as equal as whole rows allow, the first ones larger.
Part part_of(const Plate& plate, std::uint32_t rank, std::uint32_t ranks);

/// Sets a part's rows, the row before and the row behind, to what they are at the beginning.
void begin(const Plate& plate, const Part& part, double* rows);

/// One step from `now` to `next`, both with a row before and a row behind the part. The largest change of a point.
double step(const Plate& plate, std::size_t count, const double* now, double* next);

/// When to look whether it has become steady, and when it has.
struct Steady {
    std::uint64_t every = 50;
    double change = 1e-4;
    std::uint64_t steps_max = 100000;
};

struct Outcome {
    std::uint64_t steps = 0;
    bool steady = false;
};

/// The whole plate in one process. `rows` receives it, edges included.
Outcome solve_alone(const Plate& plate, const Steady& steady, std::vector<double>& rows);

}  // namespace heat
