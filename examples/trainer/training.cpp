#include "training.hpp"

#include <algorithm>
#include <exception>
#include <numeric>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "../common/clock.hpp"
#include "../common/random.hpp"

namespace trainer {
namespace {

constexpr std::size_t FETCH_KEYS = 256;  // per request, when a whole table is read or written

struct Tables {
    std::uint32_t user;
    std::uint32_t item;
};

/// Where training stands: the next batch of an epoch. What came before follows from the seed.
struct Position {
    std::uint32_t epoch;
    std::size_t batch;
};

std::string to_text(Position position) {
    return std::to_string(position.epoch) + " " + std::to_string(position.batch);
}

Position to_position(const std::string& text) {
    std::istringstream words(text);
    Position position{1, 0};
    if (!text.empty() && !(words >> position.epoch >> position.batch)) {
        throw std::runtime_error("'" + text + "' is no position of a training");
    }
    return position;
}

/// What one trainer thread counted.
struct Counts {
    examples::Histogram get;
    examples::Histogram update;
    std::uint64_t keys = 0;
};

/// One trainer thread: takes every `threads`-th batch of an epoch.
class Worker {
public:
    Worker(RowStore& store, const Ratings& ratings, const TrainingOptions& options, Tables tables)
        : store_(store), options_(options), tables_(tables), batch_(ratings, options.model) {}

    void run_epoch(std::uint32_t epoch, const std::vector<std::uint32_t>& order, std::size_t first_batch, float scale) {
        const std::size_t step = std::size_t{options_.batch_size} * options_.threads;
        std::size_t done = 0;
        for (std::size_t at = first_batch * options_.batch_size; at < order.size(); at += step) {
            if (options_.keep_every != 0 && ++done > 1 && (at / step) % options_.keep_every == 0) {
                store_.keep(to_text({epoch, at / options_.batch_size}));
            }
            batch_.select(order, at, std::min<std::size_t>(options_.batch_size, order.size() - at));
            fetch();
            batch_.compute_gradients(scale);
            send();
            counts_.keys += 2 * (batch_.user.keys.size() + batch_.item.keys.size());
        }
    }

    const Counts& counts() const { return counts_; }

private:
    /// Times `call` into `histogram`.
    template <typename Call>
    static void timed(examples::Histogram& histogram, Call call) {
        const std::uint64_t start = examples::now_ns();
        call();
        histogram.record(examples::now_ns() - start);
    }

    /// Sends two requests, then waits for both; each is timed from its own submit to its own end.
    template <typename First, typename Second>
    static void both(examples::Histogram& histogram, First submit_first, Second submit_second) {
        const std::uint64_t start_first = examples::now_ns();
        const Ticket first = submit_first();
        const std::uint64_t start_second = examples::now_ns();
        const Ticket second = submit_second();
        first->wait();
        histogram.record(examples::now_ns() - start_first);
        second->wait();
        histogram.record(examples::now_ns() - start_second);
    }

    void fetch() {
        Batch::Side& user = batch_.user;
        Batch::Side& item = batch_.item;
        if (options_.pipeline) {
            both(
                counts_.get, [&] { return store_.submit_get(tables_.user, user.keys, user.rows); },
                [&] { return store_.submit_get(tables_.item, item.keys, item.rows); });
            return;
        }
        timed(counts_.get, [&] { store_.get(tables_.user, user.keys, user.rows); });
        timed(counts_.get, [&] { store_.get(tables_.item, item.keys, item.rows); });
    }

    void send() {
        const Batch::Side& user = batch_.user;
        const Batch::Side& item = batch_.item;
        if (options_.pipeline) {
            both(
                counts_.update, [&] { return store_.submit_update(tables_.user, user.keys, user.gradients); },
                [&] { return store_.submit_update(tables_.item, item.keys, item.gradients); });
            return;
        }
        timed(counts_.update, [&] { store_.update(tables_.user, user.keys, user.gradients); });
        timed(counts_.update, [&] { store_.update(tables_.item, item.keys, item.gradients); });
    }

    RowStore& store_;
    TrainingOptions options_;
    Tables tables_;
    Batch batch_;
    Counts counts_;
};

/// Calls `visit(first, keys)` for runs of at most FETCH_KEYS keys.
template <typename Visit>
void in_chunks(const Keys& all, Visit visit) {
    for (std::size_t first = 0; first < all.size(); first += FETCH_KEYS) {
        const auto begin = all.begin() + static_cast<std::ptrdiff_t>(first);
        const std::size_t count = std::min(FETCH_KEYS, all.size() - first);
        visit(first, Keys(begin, begin + static_cast<std::ptrdiff_t>(count)));
    }
}

std::uint32_t make_table(RowStore& store, const TrainingOptions& options, const std::string& name, std::uint64_t number,
                         const Keys& keys) {
    const std::uint32_t dim = options.model.dim();
    const TableSpec spec{options.table_prefix + name, keys.back() + 1, dim, options.learning_rate};
    const std::uint32_t table = store.open_table(spec);
    if (!options.position.empty()) {
        return table;
    }
    in_chunks(keys, [&](std::size_t, const Keys& chunk) {
        store.put(table, chunk, initial_rows(options.model, number, chunk));
    });
    return table;
}

Rows fetch_table(RowStore& store, std::uint32_t table, const Keys& keys, std::uint32_t dim) {
    Rows all(keys.size() * dim);
    in_chunks(keys, [&](std::size_t first, const Keys& chunk) {
        Rows rows(chunk.size() * dim);
        store.get(table, chunk, rows);
        std::copy(rows.begin(), rows.end(), all.begin() + static_cast<std::ptrdiff_t>(first * dim));
    });
    return all;
}

void run_threads(std::vector<Worker>& workers, Position from, const std::vector<std::uint32_t>& order, float scale) {
    std::vector<std::exception_ptr> failures(workers.size());
    std::vector<std::thread> threads;
    for (std::size_t i = 1; i < workers.size(); ++i) {
        threads.emplace_back([&, i] {
            try {
                workers[i].run_epoch(from.epoch, order, from.batch + i, scale);
            } catch (...) {
                failures[i] = std::current_exception();
            }
        });
    }
    try {
        workers[0].run_epoch(from.epoch, order, from.batch, scale);
    } catch (...) {
        failures[0] = std::current_exception();
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    for (const std::exception_ptr& failure : failures) {
        if (failure) {
            std::rethrow_exception(failure);
        }
    }
}

std::uint64_t total_keys(const std::vector<Worker>& workers) {
    return std::accumulate(workers.begin(), workers.end(), std::uint64_t{0},
                           [](std::uint64_t sum, const Worker& worker) { return sum + worker.counts().keys; });
}

}  // namespace

RunReport train(RowStore& store, const Ratings& ratings, const TrainingOptions& options,
                const std::function<void(const EpochReport&)>& progress) {
    const Tables tables{make_table(store, options, "users", 0, ratings.users),
                        make_table(store, options, "items", 1, ratings.items)};
    std::vector<Worker> workers;
    for (std::uint32_t i = 0; i < options.threads; ++i) {
        workers.emplace_back(store, ratings, options, tables);
    }
    std::vector<std::uint32_t> order(ratings.train.size());
    std::iota(order.begin(), order.end(), 0U);
    examples::Random random(options.order_seed);
    RunReport report{};
    float scale = 1.0F;
    const Position begin = to_position(options.position);
    for (std::uint32_t epoch = 1; epoch <= options.epochs; ++epoch) {
        examples::shuffle(order, random);
        if (epoch < begin.epoch) {
            scale *= options.learning_rate_decay;
            continue;
        }
        const std::uint64_t keys_before = total_keys(workers);
        const std::uint64_t start = examples::now_ns();
        run_threads(workers, {epoch, epoch == begin.epoch ? begin.batch : 0}, order, scale);
        const double seconds = examples::seconds_since(start);
        report.seconds += seconds;
        scale *= options.learning_rate_decay;

        report.user_rows = fetch_table(store, tables.user, ratings.users, options.model.dim());
        report.item_rows = fetch_table(store, tables.item, ratings.items, options.model.dim());
        const auto error_of = [&](const std::vector<Rating>& part) {
            return rmse(part, ratings.mean, report.user_rows, report.item_rows, options.model.factors);
        };
        const double keys = static_cast<double>(total_keys(workers) - keys_before);
        report.last = EpochReport{epoch, error_of(ratings.train), error_of(ratings.held_out), keys / seconds};
        progress(report.last);
    }
    for (const Worker& worker : workers) {
        report.get.merge(worker.counts().get);
        report.update.merge(worker.counts().update);
    }
    report.keys = total_keys(workers);
    return report;
}

}  // namespace trainer
