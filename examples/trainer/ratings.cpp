#include "ratings.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <stdexcept>
#include <string_view>

#include "../common/random.hpp"

namespace trainer {
namespace {

/// A rating as the file has it.
struct Line {
    std::uint64_t user;
    std::uint64_t item;
    float stars;
};

/// Where the columns that we need are.
struct Columns {
    std::size_t user;
    std::size_t item;
    std::size_t stars;
};

[[noreturn]] void fail(const std::string& path, std::size_t line, const std::string& why) {
    throw std::runtime_error(path + ":" + std::to_string(line) + ": " + why);
}

std::vector<std::string_view> split(std::string_view line) {
    if (!line.empty() && line.back() == '\r') {
        line.remove_suffix(1);
    }
    std::vector<std::string_view> fields;
    std::size_t start = 0;
    for (std::size_t tab = line.find('\t'); tab != std::string_view::npos; tab = line.find('\t', start)) {
        fields.push_back(line.substr(start, tab - start));
        start = tab + 1;
    }
    fields.push_back(line.substr(start));
    return fields;
}

std::size_t column(const std::string& path, const std::vector<std::string_view>& header, std::string_view name) {
    const auto found = std::find(header.begin(), header.end(), name);
    if (found == header.end()) {
        fail(path, 1, "the header has no column '" + std::string(name) + "'");
    }
    return static_cast<std::size_t>(found - header.begin());
}

template <typename Number>
Number number(const std::string& path, std::size_t line, std::string_view text) {
    Number value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size()) {
        fail(path, line, "'" + std::string(text) + "' is not a number of the expected kind");
    }
    return value;
}

std::vector<Line> read_lines(const std::string& path) {
    std::ifstream file(path);
    std::string text;
    if (!file || !std::getline(file, text)) {
        throw std::runtime_error(path + ": cannot be read, or is empty");
    }
    const std::vector<std::string_view> header = split(text);
    const Columns columns{column(path, header, "user_id:token"), column(path, header, "item_id:token"),
                          column(path, header, "rating:float")};
    const std::size_t width = header.size();
    std::vector<Line> lines;
    for (std::size_t at = 2; std::getline(file, text); ++at) {
        if (text.empty()) {
            continue;
        }
        const std::vector<std::string_view> fields = split(text);
        if (fields.size() != width) {
            fail(path, at, std::to_string(fields.size()) + " fields, the header has " + std::to_string(width));
        }
        lines.push_back(Line{number<std::uint64_t>(path, at, fields[columns.user]),
                             number<std::uint64_t>(path, at, fields[columns.item]),
                             number<float>(path, at, fields[columns.stars])});
    }
    if (lines.size() < 10) {
        throw std::runtime_error(path + ": " + std::to_string(lines.size()) + " ratings; at least 10 are needed");
    }
    return lines;
}

std::uint32_t position(const std::vector<std::uint64_t>& sorted, std::uint64_t key) {
    return static_cast<std::uint32_t>(std::lower_bound(sorted.begin(), sorted.end(), key) - sorted.begin());
}

void sort_unique(std::vector<std::uint64_t>& keys) {
    std::sort(keys.begin(), keys.end());
    keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
}

}  // namespace

Ratings load_ratings(const std::string& path, std::uint64_t seed) {
    std::vector<Line> lines = read_lines(path);
    Ratings ratings{};
    for (const Line& line : lines) {
        ratings.users.push_back(line.user);
        ratings.items.push_back(line.item);
    }
    sort_unique(ratings.users);
    sort_unique(ratings.items);

    examples::Random random(seed);
    examples::shuffle(lines, random);
    const std::size_t held_out = lines.size() / 10;
    double sum = 0.0;
    for (std::size_t i = 0; i < lines.size(); ++i) {
        const Rating rating{position(ratings.users, lines[i].user), position(ratings.items, lines[i].item),
                            lines[i].stars};
        if (i < held_out) {
            ratings.held_out.push_back(rating);
        } else {
            ratings.train.push_back(rating);
            sum += static_cast<double>(rating.stars);
        }
    }
    ratings.mean = static_cast<float>(sum / static_cast<double>(ratings.train.size()));
    return ratings;
}

}  // namespace trainer
