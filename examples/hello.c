/* One page of reclane in C: a server with one shard and a client of it, in one process.
 *
 *     cc hello.c $(pkg-config --cflags --libs reclane-static) -o hello && ./hello
 */
#include <reclane/reclane.h>
#include <stdio.h>

#define DIM 4

static int failed(const char* what, const reclane_error* error) {
    fprintf(stderr, "%s: %s: %s\n", what, reclane_status_name(error->status), error->message);
    return 1;
}

int main(void) {
    reclane_error error = RECLANE_INIT(reclane_error);
    reclane_options* options = NULL;
    reclane_server* server = NULL;
    reclane_client* client = NULL;

    /* The server serves shared memory of this host; its control plane takes any free port. */
    if (reclane_options_open(&options, &error) < 0)
        return failed("options", &error);
    if (reclane_options_set(options, "rdma-control-plane-port", "0", &error) < 0)
        return failed("options", &error);
    if (reclane_server_open(options, NULL, &server, &error) < 0)
        return failed("server", &error);

    /* The client must know that port. */
    uint32_t port = 0;
    char text[8];
    if (reclane_server_control_plane_port(server, &port, &error) < 0)
        return failed("port", &error);
    snprintf(text, sizeof text, "%u", (unsigned)port);
    if (reclane_options_set(options, "rdma-control-plane-port", text, &error) < 0)
        return failed("options", &error);
    if (reclane_client_open(options, &client, &error) < 0)
        return failed("client", &error);

    /* A table of rows of DIM floats; UPDATE does plain gradient descent on it. */
    reclane_table_options table_options = RECLANE_INIT(reclane_table_options);
    table_options.name = "users";
    table_options.dim = DIM;
    table_options.learning_rate = 0.5F;
    uint32_t table = 0;
    if (reclane_client_init_table(client, &table_options, &table, &error) < 0)
        return failed("table", &error);

    const uint64_t keys[2] = {7, 1000000007};
    const float rows[2 * DIM] = {1, 2, 3, 4, 5, 6, 7, 8};
    const float gradients[2 * DIM] = {1, 1, 1, 1, 2, 2, 2, 2};
    float got[2 * DIM];
    if (reclane_client_put(client, table, keys, 2, rows, 2 * DIM, &error) < 0)
        return failed("put", &error);
    if (reclane_client_update_flat(client, table, keys, 2, gradients, 2 * DIM, &error) < 0)
        return failed("update", &error);
    if (reclane_client_get(client, table, keys, 2, got, 2 * DIM, &error) < 0)
        return failed("get", &error);
    for (size_t i = 0; i < 2; ++i) {
        printf("%llu: %g %g %g %g\n", (unsigned long long)keys[i], (double)got[i * DIM], (double)got[i * DIM + 1],
               (double)got[i * DIM + 2], (double)got[i * DIM + 3]);
    }

    reclane_client_close(client);
    reclane_server_close(server);
    reclane_options_close(options);
    return 0;
}
