#include "solver.hpp"

#include <algorithm>
#include <cmath>

namespace heat {

Part part_of(const Plate& plate, std::uint32_t rank, std::uint32_t ranks) {
    const std::size_t inner = plate.rows - 2;
    const std::size_t each = inner / ranks;
    const std::size_t larger = inner % ranks;
    Part part;
    part.first = 1 + rank * each + std::min<std::size_t>(rank, larger);
    part.count = each + (rank < larger ? 1 : 0);
    return part;
}

void begin(const Plate& plate, const Part& part, double* rows) {
    std::fill(rows, rows + (part.count + 2) * plate.columns, 0.0);
    if (part.first == 1) {
        std::fill(rows, rows + plate.columns, plate.hot);
    }
}

double step(const Plate& plate, std::size_t count, const double* now, double* next) {
    const std::size_t width = plate.columns;
    double change = 0.0;
    for (std::size_t row = 1; row <= count; ++row) {
        const double* here = now + row * width;
        double* to = next + row * width;
        for (std::size_t column = 1; column + 1 < width; ++column) {
            const double value =
                0.25 * (((here - width)[column] + (here + width)[column]) + (here[column - 1] + here[column + 1]));
            change = std::max(change, std::fabs(value - here[column]));
            to[column] = value;
        }
    }
    return change;
}

Outcome solve_alone(const Plate& plate, const Steady& steady, std::vector<double>& rows) {
    const Part whole = part_of(plate, 0, 1);
    std::vector<double> other(plate.rows * plate.columns);
    rows.resize(other.size());
    begin(plate, whole, rows.data());
    begin(plate, whole, other.data());
    Outcome outcome;
    while (!outcome.steady && outcome.steps < steady.steps_max) {
        const double change = step(plate, whole.count, rows.data(), other.data());
        rows.swap(other);
        ++outcome.steps;
        outcome.steady = outcome.steps % steady.every == 0 && change < steady.change;
    }
    return outcome;
}

}  // namespace heat
