/* Every operation, plain and submitted, over two shards. C99. */
#include <pthread.h>

#include "cluster.h"

#define DIM 8
#define MANY 1000

static uint64_t keys[MANY];
static float rows[MANY * DIM];
static float got[MANY * DIM];
static const float* pointers[MANY];

static void fill(float first) {
    for (size_t i = 0; i < MANY; ++i) {
        keys[i] = i * 977 + 13;
        pointers[i] = rows + i * DIM;
        for (size_t j = 0; j < DIM; ++j)
            rows[i * DIM + j] = first + (float)(i * DIM + j);
    }
}

static int same(const float* left, const float* right, size_t count) {
    return memcmp(left, right, count * sizeof *left) == 0;
}

static int all_are(const float* values, size_t count, float expected) {
    for (size_t i = 0; i < count; ++i) {
        if (values[i] < expected || values[i] > expected)
            return 0;
    }
    return 1;
}

static void plain_calls(reclane_client* client, uint32_t table) {
    reclane_error error = RECLANE_INIT(reclane_error);
    const size_t floats = (size_t)MANY * DIM;
    fill(1.0F);
    memset(got, 0xFF, sizeof got);
    CHECK_OK(reclane_client_get(client, table, keys, MANY, got, floats, &error));
    CHECK(all_are(got, floats, 0.0F));

    CHECK_OK(reclane_client_put(client, table, keys, MANY, rows, floats, &error));
    CHECK_OK(reclane_client_get(client, table, keys, MANY, got, floats, &error));
    CHECK(same(got, rows, floats));

    /* The order is the caller's, and a key may come twice. */
    const uint64_t picked[4] = {keys[5], keys[900], keys[5], 3};
    CHECK_OK(reclane_client_get(client, table, picked, 4, got, 4 * DIM, &error));
    CHECK(same(got, rows + 5 * DIM, DIM) && same(got + DIM, rows + 900 * DIM, DIM));
    CHECK(same(got + 2 * DIM, rows + 5 * DIM, DIM) && all_are(got + 3 * DIM, DIM, 0.0F));

    /* w += g twice, in both forms. */
    CHECK_OK(reclane_client_update(client, table, keys, MANY, pointers, &error));
    CHECK_OK(reclane_client_update_flat(client, table, keys, MANY, rows, floats, &error));
    CHECK_OK(reclane_client_get(client, table, keys, MANY, got, floats, &error));
    int tripled = 1;
    for (size_t i = 0; i < floats; ++i)
        tripled = tripled && got[i] >= 3 * rows[i] && got[i] <= 3 * rows[i];
    CHECK(tripled);

    CHECK_OK(reclane_client_get(client, table, NULL, 0, NULL, 0, &error));
    CHECK_OK(reclane_client_put(client, table, NULL, 0, NULL, 0, &error));
    CHECK_OK(reclane_client_update(client, table, NULL, 0, NULL, &error));
    CHECK_OK(reclane_client_update_flat(client, table, NULL, 0, NULL, 0, &error));
}

static void finish(reclane_client* client, reclane_request request) {
    reclane_error error = RECLANE_INIT(reclane_error);
    CHECK(request != 0);
    CHECK_OK(reclane_client_wait(client, request, 0, &error));
    CHECK_OK(reclane_client_query(client, request, &error));
    CHECK_OK(reclane_client_revoke(client, request, &error));
    CHECK_STATUS(RECLANE_STATUS_STALE_TOKEN, reclane_client_wait(client, request, 0, &error));
    CHECK_STATUS(RECLANE_STATUS_STALE_TOKEN, reclane_client_query(client, request, &error));
    CHECK_STATUS(RECLANE_STATUS_STALE_TOKEN, reclane_client_revoke(client, request, &error));
}

static void submitted_calls(reclane_client* client, uint32_t table) {
    reclane_error error = RECLANE_INIT(reclane_error);
    reclane_request request = 0;
    fill(7.0F);
    CHECK_OK(reclane_client_submit_put(client, table, keys, MANY, rows, MANY * DIM, &request, &error));
    finish(client, request);

    /* Several at a time, ended in another order than begun. */
    reclane_request open[4];
    static float parts[4][16 * DIM];
    for (size_t i = 0; i < 4; ++i) {
        CHECK_OK(reclane_client_submit_get(client, table, keys + 16 * i, 16, parts[i], 16 * DIM, &open[i], &error));
    }
    for (size_t i = 4; i-- > 0;) {
        reclane_status status = RECLANE_STATUS_PENDING;
        while (status == RECLANE_STATUS_PENDING)
            status = reclane_client_query(client, open[i], &error);
        CHECK_OK(status);
        finish(client, open[i]);
        CHECK(same(parts[i], rows + 16 * DIM * i, 16 * DIM));
    }

    CHECK_OK(reclane_client_submit_update(client, table, keys, MANY, pointers, &request, &error));
    finish(client, request);
    CHECK_OK(reclane_client_submit_update_flat(client, table, keys, MANY, rows, MANY * DIM, &request, &error));
    finish(client, request);
    CHECK_OK(reclane_client_get(client, table, keys + 999, 1, got, DIM, &error));
    CHECK(got[0] >= 3 * rows[999 * DIM] && got[0] <= 3 * rows[999 * DIM]);

    CHECK_OK(reclane_client_submit_get(client, table, NULL, 0, NULL, 0, &request, &error));
    finish(client, request);

    /* Waited for and released in one call: one slot's, and many slots'. */
    const size_t counts[] = {0, 1, 16, MANY};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; ++i) {
        CHECK_OK(reclane_client_put(client, table, keys, MANY, rows, MANY * DIM, &error));
        CHECK_OK(reclane_client_submit_get(client, table, keys, counts[i], got, MANY * DIM, &request, &error));
        CHECK_OK(reclane_client_finish(client, request, 0, &error));
        CHECK(same(got, rows, counts[i] * DIM));
        CHECK_STATUS(RECLANE_STATUS_STALE_TOKEN, reclane_client_finish(client, request, 0, &error));
        CHECK_STATUS(RECLANE_STATUS_STALE_TOKEN, reclane_client_revoke(client, request, &error));
    }

    /* A request that nobody waited for can be let go. */
    CHECK_OK(reclane_client_submit_get(client, table, keys, MANY, got, MANY * DIM, &request, &error));
    CHECK_OK(reclane_client_revoke(client, request, &error));
}

static void borrowed_rows(reclane_client* client, uint32_t table, size_t count) {
    reclane_error error = RECLANE_INIT(reclane_error);
    reclane_request request = 0;
    const float* in_place = NULL;
    size_t ready = 0;
    size_t total = 0;
    CHECK_OK(reclane_client_put(client, table, keys, MANY, rows, MANY * DIM, &error));
    CHECK_OK(reclane_client_submit_get_in_place(client, table, keys, count, &request, &error));
    size_t seen = 0;
    reclane_status status = RECLANE_STATUS_PENDING;
    while (status == RECLANE_STATUS_PENDING) {
        status = reclane_client_borrow(client, request, &in_place, &ready, &total, &error);
        CHECK(ready >= seen && ready <= total);
        CHECK(ready == seen || same(in_place + seen * DIM, rows + seen * DIM, (ready - seen) * DIM));
        seen = ready;
    }
    CHECK_OK(status);
    CHECK(seen == count && total == count);
    CHECK_OK(reclane_client_revoke(client, request, &error));
    CHECK_STATUS(RECLANE_STATUS_STALE_TOKEN, reclane_client_borrow(client, request, &in_place, &ready, &total, &error));

    CHECK_OK(reclane_client_submit_get(client, table, keys, count, got, count * DIM, &request, &error));
    CHECK_STATUS(RECLANE_STATUS_WRONG_STATE, reclane_client_borrow(client, request, &in_place, &ready, &total, &error));
    finish(client, request);
}

static void buffers(reclane_client* client, uint32_t table, size_t count) {
    reclane_error error = RECLANE_INIT(reclane_error);
    reclane_buffer* buffer = NULL;
    reclane_request request = 0;
    const size_t offset = 64;
    const size_t bytes = count * DIM * sizeof(float);
    CHECK_OK(reclane_buffer_open(client, offset + bytes, &buffer, &error));
    CHECK(reclane_buffer_bytes(buffer) >= offset + bytes);
    if (buffer == NULL)
        return;
    char* data = (char*)reclane_buffer_data(buffer);
    memcpy(data + offset, rows, bytes);
    CHECK_OK(reclane_client_submit_put_from(client, table, keys, count, buffer, offset, &request, &error));
    finish(client, request);
    CHECK_OK(reclane_client_submit_update_flat_from(client, table, keys, count, buffer, offset, &request, &error));
    finish(client, request);
    memset(data, 0xFF, offset + bytes);
    CHECK_OK(reclane_client_submit_get_into(client, table, keys, count, buffer, offset, &request, &error));
    finish(client, request);
    memcpy(got, data + offset, bytes);
    int doubled = 1;
    for (size_t i = 0; i < count * DIM; ++i)
        doubled = doubled && got[i] >= 2 * rows[i] && got[i] <= 2 * rows[i];
    CHECK(doubled);
    CHECK((unsigned char)data[offset - 1] == 0xFF);
    const size_t end = reclane_buffer_bytes(buffer);
    CHECK_STATUS(RECLANE_STATUS_BUFFER_TOO_SMALL,
                 reclane_client_submit_get_into(client, table, keys, count, buffer, end - 4, &request, &error));
    CHECK(request == 0);
    reclane_buffer_close(buffer);
}

static void tables_and_commands(reclane_client* client, uint32_t table) {
    reclane_error error = RECLANE_INIT(reclane_error);
    uint32_t again = 99;
    uint32_t wide = 99;
    CHECK_OK(make_table(client, "rows", DIM, RECLANE_OPTIMIZER_ADD, &again, &error));
    CHECK(again == table);
    CHECK_STATUS(RECLANE_STATUS_INVALID_PAYLOAD,
                 make_table(client, "rows", DIM + 1, RECLANE_OPTIMIZER_ADD, &again, &error));
    CHECK(strstr(error.message, "rows") != NULL);
    CHECK_OK(make_table(client, "wide", 100, RECLANE_OPTIMIZER_SGD, &wide, &error));
    CHECK(wide != table);

    const uint64_t key = 5;
    float row[100];
    for (size_t i = 0; i < 100; ++i)
        row[i] = (float)i;
    CHECK_OK(reclane_client_put(client, wide, &key, 1, row, 100, &error));
    CHECK_OK(reclane_client_update_flat(client, wide, &key, 1, row, 100, &error)); /* w -= 0.5 * w */
    float back[100];
    CHECK_OK(reclane_client_get(client, wide, &key, 1, back, 100, &error));
    CHECK(back[99] >= 49.5F && back[99] <= 49.5F);

    CHECK_OK(reclane_client_command(client, RECLANE_COMMAND_CLEAR, NULL, &error));
    CHECK_OK(reclane_client_get(client, wide, &key, 1, back, 100, &error));
    CHECK(all_are(back, 100, 0.0F));
    CHECK_OK(reclane_client_barrier(client, "alone", 1, 1000, &error));
    CHECK_OK(reclane_client_barrier(client, "alone", 1, 1000, &error));
}

static void reports(reclane_client* client, const cluster* all) {
    reclane_error error = RECLANE_INIT(reclane_error);
    reclane_client_counters counters = RECLANE_INIT(reclane_client_counters);
    CHECK_OK(reclane_client_stats(client, &counters, &error));
    CHECK(counters.num_shards == 2 && counters.lanes == 4 && counters.lanes_active == 4);
    CHECK(counters.slots == 16 && counters.slots_held == 0 && counters.lane_bytes > 0);

    reclane_lane_info lane = RECLANE_INIT(reclane_lane_info);
    CHECK_OK(reclane_client_lane(client, 1, 1, &lane, &error));
    CHECK(lane.shard == 1 && lane.lane == 1 && lane.state == RECLANE_LANE_STATE_ACTIVE && lane.generation >= 1);
    CHECK(strcmp(lane.commit_scheme, "?") != 0);
    CHECK_STATUS(RECLANE_STATUS_INVALID_ARGUMENT, reclane_client_lane(client, 1, 2, &lane, &error));
    reclane_health_info health = RECLANE_INIT(reclane_health_info);
    CHECK_OK(reclane_client_health(client, 1, &health, &error));
    CHECK(health.shard == 1 && health.known <= 1);
    CHECK(health.known == 1 ? health.health == RECLANE_HEALTH_SERVING : health.health == RECLANE_HEALTH_UNKNOWN);
    CHECK_STATUS(RECLANE_STATUS_INVALID_ARGUMENT, reclane_client_health(client, 9, &health, &error));

    unsigned seen[2] = {0, 0};
    for (uint64_t key = 0; key < 100; ++key) {
        uint32_t shard = 99;
        CHECK_OK(reclane_client_shard_of(client, key, &shard, &error));
        if (CHECK(shard < 2))
            ++seen[shard];
    }
    CHECK(seen[0] > 0 && seen[1] > 0);

    reclane_server_counters server = RECLANE_INIT(reclane_server_counters);
    CHECK_OK(reclane_server_stats(all->servers[1], &server, &error));
}

#define ADDS 200

typedef struct adder {
    reclane_client* client;
    uint32_t table;
    int failures;
} adder;

static void* add_ones(void* argument) {
    adder* mine = (adder*)argument;
    const uint64_t key[2] = {77, 78};
    float ones[2 * DIM];
    for (size_t i = 0; i < 2 * DIM; ++i)
        ones[i] = 1.0F;
    for (int i = 0; i < ADDS; ++i) {
        if (reclane_client_update_flat(mine->client, mine->table, key, 2, ones, 2 * DIM, NULL) != RECLANE_STATUS_OK) {
            ++mine->failures;
        }
    }
    return NULL;
}

static void threads_on_one_handle(reclane_client* client, uint32_t table) {
    reclane_error error = RECLANE_INIT(reclane_error);
    pthread_t threads[3];
    adder adders[3];
    for (size_t i = 0; i < 3; ++i) {
        adders[i].client = client;
        adders[i].table = table;
        adders[i].failures = 0;
        CHECK(pthread_create(&threads[i], NULL, add_ones, &adders[i]) == 0);
    }
    for (size_t i = 0; i < 3; ++i) {
        CHECK(pthread_join(threads[i], NULL) == 0);
        CHECK(adders[i].failures == 0);
    }
    const uint64_t key[2] = {77, 78};
    CHECK_OK(reclane_client_get(client, table, key, 2, got, 2 * DIM, &error));
    CHECK(all_are(got, 2 * DIM, 3.0F * ADDS));
}

static void ending(reclane_client* client, uint32_t table) {
    reclane_error error = RECLANE_INIT(reclane_error);
    reclane_request request = 0;
    CHECK_OK(reclane_client_submit_get(client, table, keys, 1, got, DIM, &request, &error));
    CHECK_STATUS(RECLANE_STATUS_BUSY, reclane_client_shutdown(client, 1, &error));
    CHECK_OK(reclane_client_revoke(client, request, &error));
    CHECK_OK(reclane_client_shutdown(client, 0, &error));
    CHECK_STATUS(RECLANE_STATUS_CLOSED, reclane_client_get(client, table, keys, 1, got, DIM, &error));
    CHECK_STATUS(RECLANE_STATUS_CLOSED, reclane_client_command(client, RECLANE_COMMAND_CLEAR, NULL, &error));
    reclane_client_close(client);
}

int main(void) {
    reclane_error error = RECLANE_INIT(reclane_error);
    cluster all;
    reclane_client* client = NULL;
    uint32_t table = 0;
    NEED_OK(reclane_abi_check(RECLANE_ABI_VERSION, &error));
    NEED_OK(cluster_open(&all, 2, NULL, &error));
    NEED_OK(reclane_client_open(all.options, &client, &error));
    NEED_OK(make_table(client, "rows", DIM, RECLANE_OPTIMIZER_ADD, &table, &error));
    plain_calls(client, table);
    submitted_calls(client, table);
    borrowed_rows(client, table, 1);
    borrowed_rows(client, table, MANY);
    buffers(client, table, 1);
    buffers(client, table, MANY);
    tables_and_commands(client, table);
    threads_on_one_handle(client, table);
    reports(client, &all);
    ending(client, table);
    /* The shard that hosts the control plane first: the other must not wait for it. */
    for (unsigned shard = 0; shard < 2; ++shard)
        CHECK_OK(reclane_server_stop(all.servers[shard], 0, &error));
    CHECK_OK(reclane_server_stop(all.servers[0], 0, &error));
    cluster_close(&all);
    return check_end();
}
