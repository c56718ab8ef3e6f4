/* A storage engine of the host in C, behind the callbacks, with every answer that it can give. C99. */
#include <pthread.h>
#include <stdlib.h>

#include "cluster.h"

#define DIM 4
#define ROWS 64
#define SLOW_KEY 56   /* its GET waits until the test opens the gate */
#define POISON_KEY 57 /* failing keys from here on: 57 answers -1, 58 answers -2, ... */
#define POISONS 7

typedef struct engine {
    float rows[ROWS][DIM]; /* row k of key k; the backing region */
    unsigned char present[ROWS];
    unsigned pins;
    unsigned unpins;
    unsigned prefetches;
    unsigned drops;
    unsigned saves;
    uint32_t deadlock_status;
    reclane_server* server;
} engine;

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static int answer_for(const uint64_t* keys, size_t key_count) {
    /* The last one is no answer at all: it counts as -6. */
    static const int answers[POISONS] = {-1, -2, -3, -4, -5, -6, 4711};
    for (size_t i = 0; i < key_count; ++i) {
        if (keys[i] >= POISON_KEY && keys[i] < POISON_KEY + POISONS)
            return answers[keys[i] - POISON_KEY];
        if (keys[i] >= ROWS)
            return -6;
    }
    return 0;
}

static int init_table(void* user_data, uint32_t worker, const reclane_table_options* options, uint32_t* table) {
    (void)user_data, (void)worker;
    if (options->struct_size < sizeof *options || options->dim != DIM)
        return -4;
    if (strcmp(options->name, "refused") == 0)
        return -1;
    if (strcmp(options->name, "absurd") == 0) {
        *table = 70000;
        return 0;
    }
    *table = 5;
    return 0;
}

static int table_shape(void* user_data, uint32_t table, uint32_t* dim) {
    (void)user_data;
    if (table != 5)
        return -5;
    *dim = DIM;
    return 0;
}

static int get_flat(void* user_data, uint32_t worker, uint32_t table, const uint64_t* keys, size_t key_count,
                    float* rows, uint32_t dim, uint32_t* missing_rows) {
    engine* mine = (engine*)user_data;
    const int answer = answer_for(keys, key_count);
    (void)worker;
    if (answer != 0)
        return answer;
    if (table != 5 || dim != DIM)
        return -5;
    if (key_count == 1 && keys[0] == SLOW_KEY) {
        pthread_mutex_lock(&gate);
        pthread_mutex_unlock(&gate);
    }
    for (size_t i = 0; i < key_count; ++i) {
        if (!mine->present[keys[i]])
            ++*missing_rows;
        memcpy(rows + i * DIM, mine->rows[keys[i]], sizeof mine->rows[0]);
    }
    return 0;
}

static const float* row_at(const float* rows, size_t stride_bytes, size_t i) {
    return (const float*)(const void*)((const char*)rows + i * stride_bytes);
}

static int put(void* user_data, uint32_t worker, uint32_t table, const uint64_t* keys, size_t key_count,
               const float* rows, size_t stride_bytes, uint32_t dim) {
    engine* mine = (engine*)user_data;
    const int answer = answer_for(keys, key_count);
    (void)worker, (void)table;
    if (answer != 0)
        return answer;
    if (dim != DIM)
        return -4;
    for (size_t i = 0; i < key_count; ++i) {
        memcpy(mine->rows[keys[i]], row_at(rows, stride_bytes, i), sizeof mine->rows[0]);
        mine->present[keys[i]] = 1;
    }
    return 0;
}

static int update(void* user_data, uint32_t worker, uint32_t table, const uint64_t* keys, size_t key_count,
                  const float* rows, size_t stride_bytes, uint32_t dim) {
    engine* mine = (engine*)user_data;
    const int answer = answer_for(keys, key_count);
    (void)worker, (void)table;
    if (answer != 0)
        return answer;
    for (size_t i = 0; i < key_count; ++i) {
        for (uint32_t j = 0; j < dim; ++j)
            mine->rows[keys[i]][j] += row_at(rows, stride_bytes, i)[j];
    }
    return 0;
}

/* The library promises dense rows here. */
static int update_flat(void* user_data, uint32_t worker, uint32_t table, const uint64_t* keys, size_t key_count,
                       const float* rows, size_t stride_bytes, uint32_t dim) {
    if (stride_bytes != 4 * (size_t)dim)
        return -6;
    return update(user_data, worker, table, keys, key_count, rows, stride_bytes, dim);
}

static int command(void* user_data, uint32_t worker, uint32_t what, const char* argument) {
    engine* mine = (engine*)user_data;
    (void)worker;
    if (what == RECLANE_COMMAND_CLEAR && argument[0] == '\0') {
        /* A callback may use the library, but must not wait for itself. */
        mine->deadlock_status = (uint32_t)(-reclane_server_stop(mine->server, 1, NULL));
        reclane_server_close(mine->server);
        memset(mine->rows, 0, sizeof mine->rows);
        memset(mine->present, 0, sizeof mine->present);
        return 0;
    }
    if (what == RECLANE_COMMAND_SAVE && strcmp(argument, "here") == 0) {
        ++mine->saves;
        return 0;
    }
    return -1;
}

static void prefetch(void* user_data, uint32_t table, const uint64_t* keys, size_t key_count) {
    (void)table, (void)keys, (void)key_count;
    ++((engine*)user_data)->prefetches;
}

static int pin_rows(void* user_data, uint32_t worker, uint32_t table, const uint64_t* keys, size_t key_count,
                    reclane_row* rows, uint32_t dim, uint64_t* pin) {
    engine* mine = (engine*)user_data;
    (void)worker, (void)table, (void)dim;
    if (answer_for(keys, key_count) != 0)
        return -6;
    for (size_t i = 0; i < key_count; ++i)
        rows[i].address = mine->present[keys[i]] ? mine->rows[keys[i]] : NULL;
    *pin = ++mine->pins;
    return 0;
}

static void unpin_rows(void* user_data, uint32_t worker, uint64_t pin) {
    (void)worker, (void)pin;
    ++((engine*)user_data)->unpins;
}

static void drop(void* user_data) {
    ++((engine*)user_data)->drops;
}

static reclane_store face_of(engine* mine) {
    reclane_store store = RECLANE_INIT(reclane_store);
    store.user_data = mine;
    store.drop_user_data = drop;
    store.init_table = init_table;
    store.table_shape = table_shape;
    store.get_flat = get_flat;
    store.put = put;
    store.update = update;
    store.update_flat = update_flat;
    store.command = command;
    store.prefetch = prefetch;
    return store;
}

static void answers(reclane_client* client, uint32_t table) {
    /* Behind the poisons there is no row any more. */
    static const int32_t expected[POISONS + 1] = {RECLANE_STATUS_INVALID_PAYLOAD, RECLANE_STATUS_WRONG_SHARD,
                                                  RECLANE_STATUS_BATCH_TOO_LARGE, RECLANE_STATUS_VALUE_SIZE_MISMATCH,
                                                  RECLANE_STATUS_UNKNOWN_TABLE,   RECLANE_STATUS_INTERNAL_ERROR,
                                                  RECLANE_STATUS_INTERNAL_ERROR,  RECLANE_STATUS_INTERNAL_ERROR};
    reclane_error error = RECLANE_INIT(reclane_error);
    float row[DIM] = {0};
    for (uint64_t i = 0; i < POISONS + 1; ++i) {
        const uint64_t key = POISON_KEY + i;
        CHECK_STATUS(expected[i], reclane_client_get(client, table, &key, 1, row, DIM, &error));
        CHECK(error.layer == RECLANE_LAYER_SERVER && error.shard == 0);
        CHECK_STATUS(expected[i], reclane_client_put(client, table, &key, 1, row, DIM, &error));
        CHECK_STATUS(expected[i], reclane_client_update_flat(client, table, &key, 1, row, DIM, &error));
    }
    uint32_t other = 0;
    CHECK_STATUS(RECLANE_STATUS_INVALID_PAYLOAD,
                 make_table(client, "refused", DIM, RECLANE_OPTIMIZER_SGD, &other, &error));
    CHECK_STATUS(RECLANE_STATUS_VALUE_SIZE_MISMATCH,
                 make_table(client, "wide", DIM + 1, RECLANE_OPTIMIZER_SGD, &other, &error));
    CHECK_STATUS(RECLANE_STATUS_INTERNAL_ERROR,
                 make_table(client, "absurd", DIM, RECLANE_OPTIMIZER_SGD, &other, &error));
}

static void rows_and_commands(reclane_client* client, uint32_t table, engine* mine, int has_command) {
    reclane_error error = RECLANE_INIT(reclane_error);
    const uint64_t keys[3] = {7, 50, 8};
    const float rows[3 * DIM] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    const float* pointers[3] = {rows, rows + DIM, rows + 2 * DIM};
    float got[3 * DIM];
    CHECK_OK(reclane_client_put(client, table, keys, 3, rows, 3 * DIM, &error));
    CHECK_OK(reclane_client_update(client, table, keys, 3, pointers, &error));
    CHECK_OK(reclane_client_update_flat(client, table, keys, 3, rows, 3 * DIM, &error));
    CHECK_OK(reclane_client_get(client, table, keys, 3, got, 3 * DIM, &error));
    for (size_t i = 0; i < 3 * DIM; ++i)
        CHECK(got[i] >= 3 * rows[i] && got[i] <= 3 * rows[i]);
    if (!has_command) {
        CHECK_STATUS(RECLANE_STATUS_INTERNAL_ERROR,
                     reclane_client_command(client, RECLANE_COMMAND_CLEAR, NULL, &error));
        return;
    }
    CHECK_OK(reclane_client_command(client, RECLANE_COMMAND_SAVE, "here", &error));
    CHECK(mine->saves == 1);
    CHECK_STATUS(RECLANE_STATUS_INVALID_PAYLOAD,
                 reclane_client_command(client, RECLANE_COMMAND_LOAD, "nowhere", &error));
    CHECK_OK(reclane_client_command(client, RECLANE_COMMAND_CLEAR, NULL, &error));
    CHECK(mine->deadlock_status == (uint32_t)(-RECLANE_STATUS_WOULD_DEADLOCK));
    CHECK_OK(reclane_client_get(client, table, keys, 3, got, 3 * DIM, &error));
    for (size_t i = 0; i < 3 * DIM; ++i)
        CHECK(got[i] >= 0 && got[i] <= 0);
}

/* While a callback does not return: waiting with a limit, stopping with a limit, and then the rest in order. */
static void a_slow_callback(reclane_client* client, uint32_t table, reclane_server* server) {
    reclane_error error = RECLANE_INIT(reclane_error);
    const uint64_t key = SLOW_KEY;
    const float row[DIM] = {1, 2, 3, 4};
    float got[DIM] = {0, 0, 0, 0};
    reclane_request request = 0;
    CHECK_OK(reclane_client_put(client, table, &key, 1, row, DIM, &error));
    pthread_mutex_lock(&gate);
    CHECK_OK(reclane_client_submit_get(client, table, &key, 1, got, DIM, &request, &error));
    error.status = 77;
    CHECK_STATUS(RECLANE_STATUS_PENDING, reclane_client_query(client, request, &error));
    CHECK_STATUS(RECLANE_STATUS_PENDING, reclane_client_wait(client, request, 20, &error));
    CHECK_STATUS(RECLANE_STATUS_PENDING, reclane_client_finish(client, request, 20, &error));
    CHECK(error.status == 77); /* no failure, so it was left alone */
    CHECK_STATUS(RECLANE_STATUS_BUSY, reclane_client_shutdown(client, 20, &error));
    CHECK_STATUS(RECLANE_STATUS_BUSY, reclane_server_stop(server, 20, &error));
    pthread_mutex_unlock(&gate);
    CHECK_OK(reclane_client_finish(client, request, 0, &error));
    CHECK(memcmp(got, row, sizeof row) == 0);
    CHECK_STATUS(RECLANE_STATUS_STALE_TOKEN, reclane_client_finish(client, request, 0, &error));
    CHECK_OK(reclane_server_stop(server, 0, &error));
    CHECK(reclane_client_get(client, table, &key, 1, got, DIM, &error) < 0);
}

/* One server over one store: `variant` 0 all callbacks, 1 without the optional ones, 2 rows sent in place. */
static int serve(int variant) {
    reclane_error error = RECLANE_INIT(reclane_error);
    static engine engines[3];
    engine* mine = &engines[variant];
    reclane_store store = face_of(mine);
    cluster all;
    reclane_client* client = NULL;
    uint32_t table = 0;
    if (variant == 1) {
        store.command = NULL;
        store.prefetch = NULL;
        store.update = NULL; /* UPDATE must come as dense rows, then */
    }
    if (variant == 2) {
        store.pin_rows = pin_rows;
        store.unpin_rows = unpin_rows;
        store.backing_base = mine->rows;
        store.backing_bytes = sizeof mine->rows;
        store.update_flat = NULL; /* UPDATE_FLAT must come to update, then */
    }
    NEED_OK(cluster_open_with(&all, 1, &store, variant == 2 ? "--rdma-get-response-mode=direct_sg" : NULL, &error));
    memset(&store, 0xA5, sizeof store); /* the library has its copy */
    mine->server = all.servers[0];
    NEED_OK(reclane_client_open(all.options, &client, &error));
    NEED_OK(make_table(client, "rows", DIM, RECLANE_OPTIMIZER_SGD, &table, &error));
    CHECK(table == 5);
    answers(client, table);
    rows_and_commands(client, table, mine, variant != 1);
    if (variant == 0)
        a_slow_callback(client, table, all.servers[0]);
    reclane_client_close(client);
    CHECK(variant == 0 || mine->drops == 0); /* variant 0 was stopped already */
    cluster_close(&all);
    CHECK(mine->drops == 1 && mine->pins == mine->unpins);
    if (variant == 2) {
        /* A device sends rows from where they lie; shared memory has them copied to their place. */
        const char* given = getenv("RECLANE_CTEST_OPTIONS");
        CHECK((mine->pins > 0) == (given != NULL && strstr(given, "fabric=verbs") != NULL));
    }
    return 0;
}

int main(void) {
    for (int variant = 0; variant < 3; ++variant) {
        if (serve(variant) != 0)
            return 1;
    }
    return check_end();
}
