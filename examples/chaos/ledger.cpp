#include "ledger.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace chaos {
namespace {

enum class Kind : std::uint32_t { BEGIN = 1, END = 2 };

/// What every record starts with; `count` keys follow.
struct Head {
    Kind kind;
    std::uint32_t table;
    std::uint32_t count;
    std::uint32_t width;
    std::uint64_t number;
    std::int64_t at_us;
};

template <typename T>
void append(std::vector<char>& record, const T* values, std::size_t count) {
    if (count != 0) {
        const std::size_t at = record.size();
        record.resize(at + count * sizeof(T));
        std::memcpy(record.data() + at, values, count * sizeof(T));
    }
}

/// Takes `count` values away from the front of what is left; false when there are not so many.
template <typename T>
bool take(const char*& from, const char* end, std::vector<T>& values, std::size_t count) {
    if (static_cast<std::size_t>(end - from) / sizeof(T) < count) {
        return false;
    }
    values.resize(count);
    std::memcpy(values.data(), from, count * sizeof(T));
    from += count * sizeof(T);
    return true;
}

}  // namespace

std::int64_t wall_us() {
    const auto since = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::microseconds>(since).count();
}

Ledger::Ledger(const std::string& path, std::uint32_t width)
    : file_(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600)), width_(width) {
    if (file_ < 0) {
        throw std::runtime_error(path + ": cannot be made: " + std::strerror(errno));
    }
}

Ledger::~Ledger() {
    close(file_);
}

void Ledger::write(const std::vector<char>& record) {
    // A short write would be a record that says something else.
    if (::write(file_, record.data(), record.size()) != static_cast<ssize_t>(record.size())) {
        throw std::runtime_error(std::string("the ledger cannot be written: ") + std::strerror(errno));
    }
}

std::uint64_t Ledger::begin(std::uint32_t table, const std::vector<std::uint64_t>& keys,
                            const std::vector<std::int32_t>& added) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const Head head{Kind::BEGIN, table, static_cast<std::uint32_t>(keys.size()), width_, next_, wall_us()};
    std::vector<char> record;
    append(record, &head, 1);
    append(record, keys.data(), keys.size());
    append(record, added.data(), added.size());
    write(record);
    return next_++;
}

void Ledger::end(std::uint64_t number, const std::vector<std::uint8_t>& outcomes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const Head head{Kind::END, 0, static_cast<std::uint32_t>(outcomes.size()), width_, number, wall_us()};
    std::vector<char> record;
    append(record, &head, 1);
    append(record, outcomes.data(), outcomes.size());
    write(record);
}

std::vector<Sent> read_ledger(const std::string& path, std::uint32_t width) {
    std::ifstream file(path, std::ios::binary);
    if (!file) {
        throw std::runtime_error(path + ": cannot be read");
    }
    const std::vector<char> bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    const char* from = bytes.data();
    const char* const end = from + bytes.size();
    std::vector<Sent> all;
    std::vector<Head> head;
    while (take(from, end, head, 1)) {
        if (head[0].width != width || (head[0].kind != Kind::BEGIN && head[0].kind != Kind::END)) {
            throw std::runtime_error(path + ": is no ledger of rows of this width");
        }
        if (head[0].kind == Kind::BEGIN) {
            Sent sent{head[0].table, head[0].at_us, 0, {}, {}, {}};
            if (!take(from, end, sent.keys, head[0].count) ||
                !take(from, end, sent.added, std::size_t{head[0].count} * width)) {
                break;  // killed while it wrote: it was not sent either
            }
            all.push_back(std::move(sent));
            continue;
        }
        std::vector<std::uint8_t> outcomes;
        if (!take(from, end, outcomes, head[0].count)) {
            break;
        }
        Sent& sent = all.at(head[0].number);
        sent.ended_us = head[0].at_us;
        sent.outcomes = std::move(outcomes);
    }
    return all;
}

}  // namespace chaos
