// What a trainer has sent, in a file that outlives it: every UPDATE before it is sent, and how each of its keys did.
//
// A record is written with one write(), which a later SIGKILL cannot take back; a file may end in the middle of one.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace chaos {

/// Steps of a row's floats. What is sent is a multiple of it and rows stay below 256, so every sum is exact, in
/// whatever order it is made.
constexpr double QUANTUM = 1.0 / 65536.0;

/// Keys of both tables lie below; who checks reads all of them.
constexpr std::uint64_t KEYS = 2048;

/// One UPDATE.
struct Sent {
    std::uint32_t table;
    std::int64_t began_us;  ///< before it was sent, since 1970
    std::int64_t ended_us;  ///< after its end was seen; 0: it never was
    std::vector<std::uint64_t> keys;
    std::vector<std::int32_t> added;     ///< in quanta, `width` for each key
    std::vector<std::uint8_t> outcomes;  ///< reclane_outcome of each key; empty: nobody knows
};

/// Microseconds since 1970.
std::int64_t wall_us();

/// The writing end. Any thread may call it.
class Ledger {
public:
    explicit Ledger(const std::string& path, std::uint32_t width);
    ~Ledger();
    Ledger(const Ledger&) = delete;
    Ledger& operator=(const Ledger&) = delete;

    /// An UPDATE is about to be sent; its number.
    std::uint64_t begin(std::uint32_t table, const std::vector<std::uint64_t>& keys,
                        const std::vector<std::int32_t>& added);
    /// It has ended.
    void end(std::uint64_t number, const std::vector<std::uint8_t>& outcomes);

private:
    void write(const std::vector<char>& record);

    std::mutex mutex_;
    int file_;
    std::uint32_t width_;
    std::uint64_t next_ = 0;
};

/// Everything that a ledger has.
std::vector<Sent> read_ledger(const std::string& path, std::uint32_t width);

}  // namespace chaos
