#include "report.hpp"

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <functional>

namespace trainer {
namespace {

/// A row of the table: its name, its format, and where its value comes from.
struct Line {
    const char* name;
    int decimals;
    std::function<double(const RunReport&)> value;
};

/// The first row in which the tables differ, or the number of rows.
std::size_t first_difference(const Rows& a, const Rows& b, std::size_t rows, std::size_t dim) {
    for (std::size_t row = 0; row < rows; ++row) {
        if (std::memcmp(a.data() + row * dim, b.data() + row * dim, dim * sizeof(float)) != 0) {
            return row;
        }
    }
    return rows;
}

bool same_table(const char* name, const Rows& a, const Rows& b, const Keys& keys, std::size_t dim) {
    if (a.size() != b.size() || a.size() != keys.size() * dim) {
        std::printf("table %s: %zu floats against %zu\n", name, a.size(), b.size());
        return false;
    }
    const std::size_t row = first_difference(a, b, keys.size(), dim);
    if (row == keys.size()) {
        return true;
    }
    for (std::size_t i = row * dim; i < (row + 1) * dim; ++i) {
        if (std::memcmp(&a[i], &b[i], sizeof(float)) != 0) {
            std::printf("table %s: key %" PRIu64 " differs first, float %zu: %.9g against %.9g\n", name, keys[row],
                        i % dim, static_cast<double>(a[i]), static_cast<double>(b[i]));
            break;
        }
    }
    return false;
}

}  // namespace

void print_progress(const std::string& title, const EpochReport& report, std::uint32_t epochs) {
    std::printf("%-7s epoch %2" PRIu32 "/%" PRIu32 "  train RMSE %.4f  held-out RMSE %.4f  %6.2f M keys/s\n",
                title.c_str(), report.epoch, epochs, report.train_rmse, report.held_out_rmse,
                report.keys_per_second / 1e6);
    std::fflush(stdout);
}

void print_table(const std::vector<Column>& columns) {
    const std::vector<Line> lines = {
        {"epochs", 0, [](const RunReport& run) { return static_cast<double>(run.last.epoch); }},
        {"train RMSE", 4, [](const RunReport& run) { return run.last.train_rmse; }},
        {"held-out RMSE", 4, [](const RunReport& run) { return run.last.held_out_rmse; }},
        {"training seconds", 2, [](const RunReport& run) { return run.seconds; }},
        {"keys/s", 0, [](const RunReport& run) { return static_cast<double>(run.keys) / run.seconds; }},
        {"GET p50 us", 2, [](const RunReport& run) { return run.get.percentile_us(50); }},
        {"GET p99 us", 2, [](const RunReport& run) { return run.get.percentile_us(99); }},
        {"UPDATE p50 us", 2, [](const RunReport& run) { return run.update.percentile_us(50); }},
        {"UPDATE p99 us", 2, [](const RunReport& run) { return run.update.percentile_us(99); }},
    };
    std::printf("\n%-18s", "");
    for (const Column& column : columns) {
        std::printf("  %16s", column.title.c_str());
    }
    std::printf("\n");
    for (const Line& line : lines) {
        std::printf("%-18s", line.name);
        for (const Column& column : columns) {
            std::printf("  %16.*f", line.decimals, line.value(*column.run));
        }
        std::printf("\n");
    }
    std::printf("\n");
}

bool same_tables(const RunReport& a, const RunReport& b, const Ratings& ratings, std::uint32_t dim) {
    const bool users = same_table("users", a.user_rows, b.user_rows, ratings.users, dim);
    const bool items = same_table("items", a.item_rows, b.item_rows, ratings.items, dim);
    if (users && items) {
        std::printf("final tables: equal bit for bit (%zu users and %zu items of %" PRIu32 " floats)\n",
                    ratings.users.size(), ratings.items.size(), dim);
    } else {
        std::printf("final tables: DIFFERENT\n");
    }
    return users && items;
}

}  // namespace trainer
