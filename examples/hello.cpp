// One page of reclane in C++: a server with one shard and a client of it, in one process.
//
//     c++ -std=c++17 hello.cpp $(pkg-config --cflags --libs reclane-static) -o hello && ./hello
#define RECLANE_EXCEPTIONS  // value() throws; leave it out and test each Result instead
#include <cstdio>
#include <exception>
#include <reclane/reclane.hpp>
#include <vector>

static void run() {
    constexpr std::size_t dim = 4;

    // The server serves shared memory of this host; its control plane takes any free port, which the client must know.
    auto options = reclane::Options::open().value();
    options.set("rdma-control-plane-port", 0).value();
    auto server = reclane::Server::open(options).value();
    options.set("rdma-control-plane-port", server.control_plane_port().value()).value();
    auto client = reclane::Client::open(options).value();

    // A table of rows of dim floats; UPDATE does plain gradient descent on it.
    reclane_table_options table_options{};
    table_options.name = "users";
    table_options.dim = dim;
    table_options.learning_rate = 0.5F;
    const auto table = client.init_table(table_options).value();

    const std::vector<std::uint64_t> keys{7, 1000000007};
    const std::vector<float> rows{1, 2, 3, 4, 5, 6, 7, 8};
    const std::vector<float> gradients{1, 1, 1, 1, 2, 2, 2, 2};
    client.put(table, keys, rows).value();
    client.update_flat(table, keys, gradients).value();

    // Rows can be read where the library has them, without a copy, until the request goes.
    auto request = client.submit_get_in_place(table, keys).value();
    request.wait().value();
    const auto got = request.borrow().value();
    for (std::size_t i = 0; i < got.total; ++i) {
        const float* row = got.rows + i * dim;
        std::printf("%llu: %g %g %g %g\n", static_cast<unsigned long long>(keys[i]), static_cast<double>(row[0]),
                    static_cast<double>(row[1]), static_cast<double>(row[2]), static_cast<double>(row[3]));
    }
}

int main() {
    try {
        run();
    } catch (const std::exception& failure) {
        std::fprintf(stderr, "%s\n", failure.what());
        return 1;
    }
    return 0;
}
