// What the trainer prints, and what it concludes.
#pragma once

#include <string>
#include <vector>

#include "training.hpp"

namespace trainer {

/// One column of the table at the end.
struct Column {
    std::string title;
    const RunReport* run;
};

/// One line after an epoch.
void print_progress(const std::string& title, const EpochReport& report, std::uint32_t epochs);

/// Epochs, errors, speed and latencies, one column a run.
void print_table(const std::vector<Column>& columns);

/// Compares the final tables bit for bit and says what it found.
bool same_tables(const RunReport& a, const RunReport& b, const Ratings& ratings, std::uint32_t dim);

}  // namespace trainer
