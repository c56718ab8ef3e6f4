// reclane_chaos_check: reads every row from the shards and compares it with the accounts of all trainers. A row must be
// the exact sum of what was acknowledged, and of any choice of what is in doubt.
//
// A shard that was killed has lost its rows, so what counts is what its present life executed. --lives names, in lines
// of "shard killed_us started_us served_us", the moment before each kill, one after it at which the old process was
// gone, and one at which the new one served. What ended before the first was the old life's, what began after the
// second is the new one's; between them it may be either. What began before the third may have been sent to the dead
// one.
//
// Exit status: 0 every row is right and nothing is in doubt without a kill, 1 one is not, or nothing could be read, 2
// wrong flags.

#include <gflags/gflags.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>

#include "../common/checked.hpp"
#include "../common/reclane_flags.hpp"
#include "ledger.hpp"

DEFINE_string(ledgers, "", "the accounts, with commas between");
DEFINE_string(lives, "", "the file of kills; empty: no shard was killed");
DEFINE_bool(allow_lost, false, "UPDATEs may be in doubt though nobody was killed: without exactly-once");
DEFINE_uint32(factors, 8, "as the trainers had it");

namespace {

using Row = std::vector<std::int64_t>;

/// More of them on one row cannot be tried in all choices.
constexpr std::size_t DOUBTFUL_MAX = 22;

struct Life {
    std::int64_t killed_us = 0;
    std::int64_t started_us = 0;
    std::int64_t served_us = 0;
};

/// What is known of one row.
struct Account {
    Row sum;                    ///< of what was executed for certain
    std::vector<Row> doubtful;  ///< each may have been executed or not
};

struct Totals {
    std::uint64_t rows = 0;
    std::uint64_t updates = 0;
    std::uint64_t doubtful = 0;
    std::uint64_t undecided = 0;
    std::uint64_t lost = 0;  ///< in doubt though neither the shard nor the trainer was killed meanwhile
    std::uint64_t wrong = 0;
};

std::vector<std::string> split(const std::string& text, char at) {
    std::vector<std::string> parts;
    std::istringstream stream(text);
    for (std::string part; std::getline(stream, part, at);) {
        parts.push_back(part);
    }
    return parts;
}

/// The kills of each shard that had one, in order.
std::map<std::uint32_t, std::vector<Life>> read_lives() {
    std::map<std::uint32_t, std::vector<Life>> lives;
    std::ifstream file(FLAGS_lives);
    std::uint32_t shard = 0;
    for (Life life; file >> shard >> life.killed_us >> life.started_us >> life.served_us;) {
        lives[shard].push_back(life);
    }
    return lives;
}

class Check {
public:
    Check(reclane::Client& client, std::uint32_t width) : client_(client), width_(width), lives_(read_lives()) {}

    void read(const std::string& path) {
        for (const chaos::Sent& sent : chaos::read_ledger(path, width_)) {
            for (std::size_t i = 0; i < sent.keys.size(); ++i) {
                add(sent, i);
            }
        }
    }

    void compare(std::uint32_t table, std::uint32_t tag) {
        constexpr std::uint64_t STEP = 64;
        for (std::uint64_t first = 0; first < chaos::KEYS; first += STEP) {
            std::vector<std::uint64_t> keys;
            for (std::uint64_t key = first; key < first + STEP; ++key) {
                keys.push_back(key);
            }
            std::vector<float> rows(keys.size() * width_);
            examples::must(client_.get(tag, keys, rows), "GET");
            for (std::size_t i = 0; i < keys.size(); ++i) {
                judge(table, keys[i], rows.data() + i * width_);
            }
        }
    }

    const Totals& totals() const { return totals_; }

private:
    void add(const chaos::Sent& sent, std::size_t i) {
        const auto outcome =
            sent.outcomes.empty() ? RECLANE_OUTCOME_UNKNOWN : static_cast<reclane_outcome>(sent.outcomes.at(i));
        const std::int64_t ended = sent.ended_us == 0 ? std::numeric_limits<std::int64_t>::max() : sent.ended_us;
        const auto life = lives_.find(examples::must(client_.shard_of(sent.keys[i]), "the shard of a key"));
        if (outcome == RECLANE_OUTCOME_UNKNOWN && sent.ended_us != 0 && !killed_meanwhile(life, sent)) {
            ++totals_.lost;
        }
        const bool of_old_life = life != lives_.end() && ended < life->second.back().killed_us;
        if (outcome == RECLANE_OUTCOME_NOT_EXECUTED || of_old_life) {
            return;
        }
        Row added(width_);
        std::copy_n(sent.added.begin() + static_cast<std::ptrdiff_t>(i * width_), width_, added.begin());
        Account& account = accounts_[{sent.table, sent.keys[i]}];
        account.sum.resize(width_);
        const bool of_new_life = life == lives_.end() || sent.began_us > life->second.back().started_us;
        if (outcome == RECLANE_OUTCOME_EXECUTED && of_new_life) {
            for (std::size_t column = 0; column < width_; ++column) {
                account.sum[column] += added[column];
            }
            ++totals_.updates;
        } else {
            account.doubtful.push_back(added);
            ++totals_.doubtful;
        }
    }

    using Lives = std::map<std::uint32_t, std::vector<Life>>;

    bool killed_meanwhile(Lives::const_iterator life, const chaos::Sent& sent) const {
        const auto meanwhile = [&sent](const Life& one) {
            return one.killed_us <= sent.ended_us && one.served_us >= sent.began_us;
        };
        return life != lives_.end() && std::any_of(life->second.begin(), life->second.end(), meanwhile);
    }

    /// Whether some choice of the doubtful ones, from `next` on, makes `rest`.
    static bool explains(const std::vector<Row>& doubtful, std::size_t next, const Row& rest) {
        if (std::all_of(rest.begin(), rest.end(), [](std::int64_t quanta) { return quanta == 0; })) {
            return true;
        }
        if (next == doubtful.size()) {
            return false;
        }
        Row with = rest;
        for (std::size_t column = 0; column < rest.size(); ++column) {
            with[column] -= doubtful[next][column];
        }
        return explains(doubtful, next + 1, rest) || explains(doubtful, next + 1, with);
    }

    void judge(std::uint32_t table, std::uint64_t key, const float* found) {
        Account& account = accounts_[{table, key}];
        account.sum.resize(width_);
        Row rest(width_);
        for (std::size_t column = 0; column < width_; ++column) {
            const double quanta = double{found[column]} / chaos::QUANTUM;
            // Beyond, sums of floats are not exact any more, and say nothing.
            if (!(std::abs(quanta) < 16'777'216.0) || quanta != std::floor(quanta)) {
                throw std::runtime_error("a row is no sum of what trainers add: table " + std::to_string(table) +
                                         ", key " + std::to_string(key) + ", " + std::to_string(found[column]));
            }
            rest[column] = static_cast<std::int64_t>(quanta) - account.sum[column];
        }
        ++totals_.rows;
        const bool is_plain = std::all_of(rest.begin(), rest.end(), [](std::int64_t quanta) { return quanta == 0; });
        if (is_plain) {
            return;
        }
        if (account.doubtful.size() > DOUBTFUL_MAX) {
            ++totals_.undecided;
        } else if (!explains(account.doubtful, 0, rest)) {
            ++totals_.wrong;
            if (totals_.wrong <= 5) {
                std::printf("wrong: table %u key %llu shard %u: off by %lld quanta in column 0; %zu in doubt\n", table,
                            static_cast<unsigned long long>(key),
                            examples::must(client_.shard_of(key), "the shard of a key"),
                            static_cast<long long>(rest[0]), account.doubtful.size());
            }
        }
    }

    reclane::Client& client_;
    std::size_t width_;
    std::map<std::uint32_t, std::vector<Life>> lives_;
    std::map<std::pair<std::uint32_t, std::uint64_t>, Account> accounts_;
    Totals totals_;
};

bool check() {
    const std::uint32_t width = FLAGS_factors + 1;
    reclane::Client client =
        examples::must(reclane::Client::open(examples::options_from_flags()), "the client that checks");
    Check check(client, width);
    for (const std::string& path : split(FLAGS_ledgers, ',')) {
        check.read(path);
    }
    const char* const names[] = {"chaos_users", "chaos_items"};
    for (std::uint32_t table = 0; table < 2; ++table) {
        reclane_table_options options{};
        options.name = names[table];
        options.dim = width;
        // As the trainers say it: the table is found, and made on a shard that has none.
        options.num_embeddings = chaos::KEYS;
        options.optimizer = RECLANE_OPTIMIZER_SGD;
        options.learning_rate = 1.0F;
        check.compare(table, examples::must(client.init_table(options), names[table]));
    }
    const Totals& totals = check.totals();
    std::printf(
        "component=reclane_chaos_check rows=%llu row_updates=%llu in_doubt=%llu undecided=%llu lost=%llu wrong=%llu\n",
        static_cast<unsigned long long>(totals.rows), static_cast<unsigned long long>(totals.updates),
        static_cast<unsigned long long>(totals.doubtful), static_cast<unsigned long long>(totals.undecided),
        static_cast<unsigned long long>(totals.lost), static_cast<unsigned long long>(totals.wrong));
    return totals.wrong == 0 && (totals.lost == 0 || FLAGS_allow_lost);
}

}  // namespace

int main(int argc, char** argv) {
    try {
        gflags::SetUsageMessage("compares all rows with the accounts of their trainers: --ledgers=FILE,FILE ...");
        examples::adopt_library_defaults();
        gflags::ParseCommandLineFlags(&argc, &argv, true);
        if (argc > 1 || FLAGS_ledgers.empty()) {
            throw std::invalid_argument("--ledgers is needed, and nothing but flags");
        }
        return check() ? 0 : 1;
    } catch (const std::invalid_argument& wrong) {
        std::fprintf(stderr, "reclane_chaos_check: %s\n", wrong.what());
        return 2;
    } catch (const std::exception& failure) {
        std::fprintf(stderr, "reclane_chaos_check: %s\n", failure.what());
        return 1;
    }
}
