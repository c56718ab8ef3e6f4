/* Shards in this process, for the tests. */
#ifndef CLUSTER_H
#define CLUSTER_H

#include <stdlib.h>

#include "check.h"

#define SHARDS_MAX 4

typedef struct cluster {
    reclane_options* options; /* of a client, and of a server but for its shard */
    reclane_server* servers[SHARDS_MAX];
    unsigned shards;
} cluster;

static inline reclane_status set_number(reclane_options* options, const char* name, unsigned long value,
                                        reclane_error* error) {
    char text[24];
    snprintf(text, sizeof text, "%lu", value);
    return reclane_options_set(options, name, text, error);
}

/* What the environment says about every deployment of these tests, as name=value with blanks between: another fabric.
 */
static inline reclane_status given_options(reclane_options* options, reclane_error* error) {
    const char* given = getenv("RECLANE_CTEST_OPTIONS");
    char text[512], *rest = text;
    if (given == NULL)
        return RECLANE_STATUS_OK;
    snprintf(text, sizeof text, "%s", given);
    for (char* pair = strtok_r(rest, " ", &rest); pair != NULL; pair = strtok_r(NULL, " ", &rest)) {
        char* value = strchr(pair, '=');
        if (value == NULL)
            continue;
        *value++ = '\0';
        reclane_status status = reclane_options_set(options, pair, value, error);
        if (status != RECLANE_STATUS_OK)
            return status;
    }
    return RECLANE_STATUS_OK;
}

/* Small slots, so that batches of some hundred keys are split. */
static inline reclane_status cluster_options(unsigned shards, reclane_options** options, reclane_error* error) {
    reclane_status status = reclane_options_open(options, error);
    if (status == RECLANE_STATUS_OK)
        status = set_number(*options, "num-server-processes", shards, error);
    if (status == RECLANE_STATUS_OK)
        status = set_number(*options, "rdma-control-plane-port", 0, error);
    if (status == RECLANE_STATUS_OK)
        status = set_number(*options, "qps-per-client-per-shard", 2, error);
    if (status == RECLANE_STATUS_OK)
        status = set_number(*options, "slots-per-qp", 4, error);
    if (status == RECLANE_STATUS_OK)
        status = set_number(*options, "async-depth", 8, error);
    if (status == RECLANE_STATUS_OK)
        status = set_number(*options, "request-slot-bytes", 4096, error);
    if (status == RECLANE_STATUS_OK)
        status = set_number(*options, "response-slot-bytes", 4096, error);
    if (status == RECLANE_STATUS_OK)
        status = given_options(*options, error);
    return status;
}

/* `stores` may be NULL: the built-in table. `flag` may be NULL: nothing beside the usual options. */
static inline reclane_status cluster_open_with(cluster* all, unsigned shards, const reclane_store* stores,
                                               const char* flag, reclane_error* error) {
    memset(all, 0, sizeof *all);
    reclane_status status = cluster_options(shards, &all->options, error);
    if (status == RECLANE_STATUS_OK && flag != NULL)
        status = reclane_options_set_flag(all->options, flag, error);
    for (unsigned shard = 0; shard < shards && status == RECLANE_STATUS_OK; ++shard) {
        status = set_number(all->options, "shard-id", shard, error);
        if (status == RECLANE_STATUS_OK) {
            status =
                reclane_server_open(all->options, stores == NULL ? NULL : stores + shard, &all->servers[shard], error);
        }
        if (status == RECLANE_STATUS_OK)
            ++all->shards;
        if (status == RECLANE_STATUS_OK && shard == 0) {
            uint32_t port = 0;
            status = reclane_server_control_plane_port(all->servers[0], &port, error);
            if (status == RECLANE_STATUS_OK)
                status = set_number(all->options, "rdma-control-plane-port", port, error);
        }
    }
    return status;
}

static inline reclane_status cluster_open(cluster* all, unsigned shards, const reclane_store* stores,
                                          reclane_error* error) {
    return cluster_open_with(all, shards, stores, NULL, error);
}

static inline void cluster_close(cluster* all) {
    while (all->shards > 0)
        reclane_server_close(all->servers[--all->shards]);
    reclane_options_close(all->options);
}

static inline reclane_status make_table(reclane_client* client, const char* name, uint32_t dim, uint32_t optimizer,
                                        uint32_t* table, reclane_error* error) {
    reclane_table_options options;
    memset(&options, 0, sizeof options);
    options.struct_size = (uint32_t)sizeof options;
    options.name = name;
    options.dim = dim;
    options.optimizer = optimizer;
    options.learning_rate = 0.5F;
    return reclane_client_init_table(client, &options, table, error);
}

#endif
