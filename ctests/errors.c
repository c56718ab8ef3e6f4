/* Every mistake that a C caller can make is answered with its status and a message, and changes nothing. C11. */
#include <stdlib.h>

#include "cluster.h"

#define DIM 4

static _Alignas(8) char bytes[64 + DIM * 4];

static void options_mistakes(void) {
    reclane_error error = RECLANE_INIT(reclane_error);
    reclane_options* options = NULL;
    CHECK_STATUS(RECLANE_STATUS_NULL_POINTER, reclane_options_open(NULL, &error));
    CHECK(strstr(error.message, "out") != NULL && error.status == RECLANE_STATUS_NULL_POINTER);
    CHECK(error.shard == RECLANE_NONE && error.outcome == RECLANE_OUTCOME_NOT_EXECUTED);
    CHECK_OK(reclane_options_open(&options, &error));

    CHECK_STATUS(RECLANE_STATUS_NULL_POINTER, reclane_options_set(NULL, "slots-per-qp", "1", &error));
    CHECK_STATUS(RECLANE_STATUS_NULL_POINTER, reclane_options_set(options, NULL, "1", &error));
    CHECK_STATUS(RECLANE_STATUS_NULL_POINTER, reclane_options_set(options, "slots-per-qp", NULL, &error));
    CHECK_STATUS(RECLANE_STATUS_UNKNOWN_OPTION, reclane_options_set(options, "no-such-thing", "1", &error));
    CHECK(strstr(error.message, "no-such-thing") != NULL);
    CHECK_STATUS(RECLANE_STATUS_OPTION_TYPE, reclane_options_set(options, "slots-per-qp", "many", &error));
    CHECK(strstr(error.message, "many") != NULL);
    CHECK_STATUS(RECLANE_STATUS_OPTION_BOUNDS, reclane_options_set(options, "slots_per_qp", "0", &error));
    CHECK_STATUS(RECLANE_STATUS_NOT_UTF8, reclane_options_set(options, "rdma-namespace", "a\xFF", &error));
    CHECK_STATUS(RECLANE_STATUS_INVALID_ARGUMENT, reclane_options_set_flag(options, "slots-per-qp=2", &error));
    CHECK_STATUS(RECLANE_STATUS_NULL_POINTER, reclane_options_set_flag(options, NULL, &error));
    CHECK_OK(reclane_options_set_flag(options, "--slots-per-qp=2", NULL));

    char value[16];
    size_t length = 99;
    CHECK_OK(reclane_options_get(options, "slots_per_qp", value, sizeof value, &length, &error));
    CHECK(strcmp(value, "2") == 0 && length == 1);
    CHECK_OK(reclane_options_set(options, "rdma-namespace", "twelve_bytes", &error));
    CHECK_STATUS(RECLANE_STATUS_BUFFER_TOO_SMALL,
                 reclane_options_get(options, "rdma-namespace", value, 7, &length, &error));
    CHECK(strcmp(value, "twelve") == 0 && length == 12);
    CHECK_STATUS(RECLANE_STATUS_BUFFER_TOO_SMALL,
                 reclane_options_get(options, "rdma-namespace", NULL, 0, NULL, &error));
    CHECK_OK(reclane_options_get(options, "rdma-namespace", value, 13, NULL, &error));
    CHECK_STATUS(RECLANE_STATUS_UNKNOWN_OPTION, reclane_options_get(options, "x", value, 13, NULL, &error));
    uint32_t workers = 0;
    CHECK_STATUS(RECLANE_STATUS_NULL_POINTER, reclane_options_server_workers(options, NULL, &error));
    CHECK_OK(reclane_options_server_workers(NULL, &workers, &error));
    CHECK(workers >= 1);

    /* A contradiction is found when something is opened. */
    reclane_client* client = (reclane_client*)bytes;
    CHECK_OK(reclane_options_set(options, "async-depth", "1000", &error));
    CHECK_STATUS(RECLANE_STATUS_OPTION_CONFLICT, reclane_client_open(options, &client, &error));
    CHECK(client == NULL && strstr(error.message, "1000") != NULL);

    reclane_options_close(options);
    reclane_options_close(options);
    reclane_options_close(NULL);
    CHECK_STATUS(RECLANE_STATUS_CLOSED, reclane_options_set(options, "slots-per-qp", "1", &error));
    CHECK_STATUS(RECLANE_STATUS_CLOSED, reclane_client_open(options, &client, &error));
}

static void error_struct_mistakes(void) {
    reclane_options* options = NULL;
    reclane_error error = RECLANE_INIT(reclane_error);
    error.struct_size = 0;
    CHECK_STATUS(RECLANE_STATUS_STRUCT_SIZE, reclane_options_open(&options, &error));
    error.struct_size = (uint32_t)sizeof error - 1;
    CHECK_STATUS(RECLANE_STATUS_STRUCT_SIZE, reclane_options_open(&options, &error));
    CHECK(options == NULL);

    /* A program of a later release has a longer one: what we do not know stays as it is. */
    struct {
        reclane_error known;
        uint64_t later;
    } longer;
    memset(&longer, 0x5A, sizeof longer);
    longer.known.struct_size = (uint32_t)sizeof longer;
    CHECK(reclane_options_open(NULL, &longer.known) == RECLANE_STATUS_NULL_POINTER);
    CHECK(longer.known.status == RECLANE_STATUS_NULL_POINTER && longer.later == 0x5A5A5A5A5A5A5A5AU);
    CHECK(longer.known.struct_size == sizeof longer);

    /* Success leaves it alone. */
    error.struct_size = (uint32_t)sizeof error;
    error.status = 77;
    CHECK_OK(reclane_options_open(&options, &error));
    CHECK(error.status == 77);
    reclane_options_close(options);
}

static int never_init(void* user_data, uint32_t worker, const reclane_table_options* options, uint32_t* table) {
    (void)user_data, (void)worker, (void)options, (void)table;
    return -6;
}

static int never_shape(void* user_data, uint32_t table, uint32_t* dim) {
    (void)user_data, (void)table, (void)dim;
    return -5;
}

static int never_get(void* user_data, uint32_t worker, uint32_t table, const uint64_t* keys, size_t key_count,
                     float* rows, uint32_t dim, uint32_t* missing_rows) {
    (void)user_data, (void)worker, (void)table, (void)keys, (void)key_count, (void)rows, (void)dim, (void)missing_rows;
    return -6;
}

static int never_pin(void* user_data, uint32_t worker, uint32_t table, const uint64_t* keys, size_t key_count,
                     reclane_row* rows, uint32_t dim, uint64_t* pin) {
    (void)user_data, (void)worker, (void)table, (void)keys, (void)key_count, (void)rows, (void)dim, (void)pin;
    return -6;
}

static void count_drop(void* user_data) {
    ++*(int*)user_data;
}

static void server_mistakes(void) {
    reclane_error error = RECLANE_INIT(reclane_error);
    reclane_options* options = NULL;
    reclane_server* server = NULL;
    int drops = 0;
    CHECK_OK(cluster_options(1, &options, &error));
    CHECK_STATUS(RECLANE_STATUS_NULL_POINTER, reclane_server_open(options, NULL, NULL, &error));

    reclane_store store = RECLANE_INIT(reclane_store);
    store.user_data = &drops;
    store.drop_user_data = count_drop;
    CHECK_STATUS(RECLANE_STATUS_NULL_POINTER, reclane_server_open(options, &store, &server, &error));
    CHECK(strstr(error.message, "init_table") != NULL);
    store.init_table = never_init;
    store.table_shape = never_shape;
    CHECK_STATUS(RECLANE_STATUS_NULL_POINTER, reclane_server_open(options, &store, &server, &error));
    store.get_flat = never_get;
    store.pin_rows = never_pin;
    CHECK_STATUS(RECLANE_STATUS_NULL_POINTER, reclane_server_open(options, &store, &server, &error));
    CHECK(strstr(error.message, "unpin_rows") != NULL);
    store.pin_rows = NULL;
    store.reserved = 1;
    CHECK_STATUS(RECLANE_STATUS_INVALID_ARGUMENT, reclane_server_open(options, &store, &server, &error));
    store.reserved = 0;
    store.struct_size = 8;
    CHECK_STATUS(RECLANE_STATUS_STRUCT_SIZE, reclane_server_open(options, &store, &server, &error));

    /* A struct of a later release is taken while its unknown tail is zero. */
    struct {
        reclane_store known;
        uint64_t later;
    } longer = {.known = store, .later = 1};
    longer.known.struct_size = (uint32_t)sizeof longer;
    CHECK_STATUS(RECLANE_STATUS_STRUCT_SIZE, reclane_server_open(options, &longer.known, &server, &error));
    CHECK(server == NULL && drops == 0);
    longer.later = 0;
    CHECK_OK(reclane_server_open(options, &longer.known, &server, &error));
    CHECK(drops == 0);

    reclane_server_counters counters = RECLANE_INIT(reclane_server_counters);
    counters.struct_size = 4;
    CHECK_STATUS(RECLANE_STATUS_STRUCT_SIZE, reclane_server_stats(server, &counters, &error));
    CHECK_STATUS(RECLANE_STATUS_NULL_POINTER, reclane_server_stats(server, NULL, &error));
    CHECK_STATUS(RECLANE_STATUS_NULL_POINTER, reclane_server_stop(NULL, 0, &error));
    CHECK_STATUS(RECLANE_STATUS_NULL_POINTER, reclane_server_control_plane_port(server, NULL, &error));
    uint32_t port = 0;
    CHECK_STATUS(RECLANE_STATUS_BAD_HANDLE,
                 reclane_server_control_plane_port((reclane_server*)(void*)options, &port, &error));
    reclane_server_close((reclane_server*)(void*)options);
    CHECK_OK(reclane_options_set(options, "shard-id", "0", &error));
    CHECK_OK(reclane_server_control_plane_port(server, &port, &error));

    /* A second shard 0 of the same deployment. */
    CHECK_OK(set_number(options, "rdma-control-plane-port", port, &error));
    reclane_server* second = NULL;
    CHECK(reclane_server_open(options, NULL, &second, &error) < 0);
    CHECK(second == NULL && error.message[0] != '\0');

    reclane_server_close(server);
    CHECK(drops == 1);
    reclane_server_close(server);
    reclane_server_close(NULL);
    CHECK(drops == 1);
    CHECK_STATUS(RECLANE_STATUS_CLOSED, reclane_server_stop(server, 0, &error));
    reclane_options_close(options);
}

static void handle_mistakes(reclane_client* client, uint32_t table, reclane_options* options) {
    reclane_error error = RECLANE_INIT(reclane_error);
    const uint64_t key = 1;
    float row[DIM] = {0};
    reclane_request request = 7;
    /* Another kind of handle, no handle at all, NULL. */
    reclane_client* wrong = (reclane_client*)(void*)options;
    CHECK_STATUS(RECLANE_STATUS_BAD_HANDLE, reclane_client_get(wrong, table, &key, 1, row, DIM, &error));
    reclane_client_close(wrong);
    wrong = (reclane_client*)(void*)bytes;
    CHECK_STATUS(RECLANE_STATUS_BAD_HANDLE, reclane_client_get(wrong, table, &key, 1, row, DIM, &error));
    CHECK_STATUS(RECLANE_STATUS_NULL_POINTER, reclane_client_get(NULL, table, &key, 1, row, DIM, &error));
    CHECK(reclane_buffer_data((reclane_buffer*)(void*)client) == NULL);
    CHECK(reclane_buffer_bytes(NULL) == 0);
    reclane_buffer_close(NULL);
    CHECK_STATUS(RECLANE_STATUS_NULL_POINTER, reclane_client_put(NULL, table, &key, 1, row, DIM, &error));
    CHECK_STATUS(RECLANE_STATUS_NULL_POINTER, reclane_client_update(NULL, table, &key, 1, NULL, &error));
    CHECK_STATUS(RECLANE_STATUS_NULL_POINTER, reclane_client_update_flat(NULL, table, &key, 1, row, DIM, &error));
    CHECK_STATUS(RECLANE_STATUS_NULL_POINTER, reclane_client_wait(NULL, 1, 0, &error));
    CHECK_STATUS(RECLANE_STATUS_NULL_POINTER, reclane_client_finish(NULL, 1, 0, &error));
    CHECK_STATUS(RECLANE_STATUS_NULL_POINTER, reclane_client_query(NULL, 1, &error));
    CHECK_STATUS(RECLANE_STATUS_NULL_POINTER, reclane_client_revoke(NULL, 1, &error));
    CHECK_STATUS(RECLANE_STATUS_NULL_POINTER, reclane_client_shutdown(NULL, 0, &error));
    CHECK_STATUS(RECLANE_STATUS_NULL_POINTER, reclane_client_command(NULL, 1, NULL, &error));
    CHECK_STATUS(RECLANE_STATUS_NULL_POINTER, reclane_client_barrier(NULL, "b", 1, 0, &error));
    CHECK_STATUS(RECLANE_STATUS_NULL_POINTER,
                 reclane_client_submit_get_in_place(NULL, table, &key, 1, &request, &error));

    /* Requests that never were. */
    const reclane_request never[] = {0, 1, UINT64_MAX, (uint64_t)1 << 63, (uint64_t)1 << 62};
    for (size_t i = 0; i < sizeof never / sizeof never[0]; ++i) {
        if (never[i] == (uint64_t)1 << 62 || never[i] == (uint64_t)1 << 63)
            continue; /* the very first ones look so */
        CHECK_STATUS(RECLANE_STATUS_STALE_TOKEN, reclane_client_wait(client, never[i], 0, &error));
        CHECK_STATUS(RECLANE_STATUS_STALE_TOKEN, reclane_client_finish(client, never[i], 0, &error));
        CHECK_STATUS(RECLANE_STATUS_STALE_TOKEN, reclane_client_revoke(client, never[i], &error));
    }
}

static void argument_mistakes(reclane_client* client, uint32_t table) {
    reclane_error error = RECLANE_INIT(reclane_error);
    const uint64_t keys[2] = {1, 2};
    float rows[2 * DIM] = {0};
    const float* pointers[2] = {rows, NULL};
    reclane_request request = 7;
    const uint64_t* crooked = (const uint64_t*)(const void*)(bytes + 4);
    const size_t absurd = (size_t)-1 / 4;

    CHECK_STATUS(RECLANE_STATUS_NULL_POINTER, reclane_client_get(client, table, NULL, 2, rows, 2 * DIM, &error));
    CHECK_STATUS(RECLANE_STATUS_NULL_POINTER, reclane_client_get(client, table, keys, 2, NULL, 2 * DIM, &error));
    CHECK_STATUS(RECLANE_STATUS_BUFFER_TOO_SMALL,
                 reclane_client_get(client, table, keys, 2, rows, 2 * DIM - 1, &error));
    CHECK_STATUS(RECLANE_STATUS_INVALID_ARGUMENT, reclane_client_get(client, table, crooked, 1, rows, DIM, &error));
    CHECK_STATUS(RECLANE_STATUS_INVALID_ARGUMENT, reclane_client_get(client, table, keys, absurd, rows, DIM, &error));
    /* The shard was not asked. */
    const uint32_t unknown[] = {12345, 65536 + table};
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; ++i) {
        CHECK_STATUS(RECLANE_STATUS_UNKNOWN_TABLE, reclane_client_get(client, unknown[i], keys, 1, rows, DIM, &error));
        CHECK(error.layer == RECLANE_LAYER_USAGE && error.outcome == RECLANE_OUTCOME_NOT_EXECUTED);
        CHECK(strstr(error.message, "init_table") != NULL);
    }
    CHECK_STATUS(RECLANE_STATUS_BUFFER_TOO_SMALL,
                 reclane_client_put(client, table, keys, 2, rows, 2 * DIM - 1, &error));
    CHECK(strstr(error.message, "need 8 floats (32 bytes), 7 floats (28 bytes) were given") != NULL);
    CHECK_STATUS(RECLANE_STATUS_BUFFER_TOO_SMALL, reclane_client_put(client, table, keys, 1, rows, 2 * DIM, &error));
    CHECK_STATUS(RECLANE_STATUS_NULL_POINTER, reclane_client_put(client, table, keys, 2, NULL, 2 * DIM, &error));
    CHECK_STATUS(RECLANE_STATUS_NULL_POINTER, reclane_client_update(client, table, keys, 2, NULL, &error));
    CHECK_STATUS(RECLANE_STATUS_NULL_POINTER, reclane_client_update(client, table, keys, 2, pointers, &error));
    CHECK(strstr(error.message, "gradients[1]") != NULL);
    CHECK_STATUS(RECLANE_STATUS_BUFFER_TOO_SMALL, reclane_client_update_flat(client, table, keys, 2, rows, 1, &error));

    CHECK_STATUS(RECLANE_STATUS_NULL_POINTER,
                 reclane_client_submit_get(client, table, keys, 2, rows, 2 * DIM, NULL, &error));
    CHECK_STATUS(RECLANE_STATUS_BUFFER_TOO_SMALL,
                 reclane_client_submit_get(client, table, keys, 2, rows, DIM, &request, &error));
    CHECK(request == 0);
    CHECK_STATUS(RECLANE_STATUS_NULL_POINTER,
                 reclane_client_submit_get_into(client, table, keys, 2, NULL, 0, &request, &error));
    reclane_buffer* buffer = NULL;
    CHECK_STATUS(RECLANE_STATUS_INVALID_ARGUMENT, reclane_buffer_open(client, 0, &buffer, &error));
    CHECK_STATUS(RECLANE_STATUS_NULL_POINTER, reclane_buffer_open(client, 64, NULL, &error));
    CHECK_OK(reclane_buffer_open(client, 64, &buffer, &error));
    CHECK_STATUS(RECLANE_STATUS_BUFFER_TOO_SMALL,
                 reclane_client_submit_get_into(client, table, keys, 2, buffer, 2, &request, &error));
    CHECK_STATUS(RECLANE_STATUS_BUFFER_TOO_SMALL,
                 reclane_client_submit_get_into(client, table, keys, 2, buffer, 40, &request, &error));
    CHECK(strstr(error.message, "need 32 bytes, the buffer of 64 bytes has 24 from offset_bytes 40 on") != NULL);
    CHECK_STATUS(RECLANE_STATUS_BUFFER_TOO_SMALL,
                 reclane_client_submit_put_from(client, table, keys, 2, buffer, (size_t)-4, &request, &error));
    reclane_buffer_close(buffer);
    CHECK_STATUS(RECLANE_STATUS_CLOSED,
                 reclane_client_submit_update_flat_from(client, table, keys, 1, buffer, 0, &request, &error));

    /* Too many open requests. */
    reclane_request open[64];
    size_t count = 0;
    reclane_status status = RECLANE_STATUS_OK;
    while (count < 64) {
        status = reclane_client_submit_get(client, table, keys, 1, rows, DIM, &open[count], &error);
        if (status != RECLANE_STATUS_OK)
            break;
        ++count;
    }
    CHECK_STATUS(RECLANE_STATUS_NO_SLOT, status);
    CHECK(reclane_status_class(status) == RECLANE_CLASS_RETRY && count >= 8);
    CHECK(strstr(error.message, "no idle slot to shard 0") != NULL && strstr(error.message, "slots-per-qp") != NULL);
    while (count > 0)
        CHECK_OK(reclane_client_revoke(client, open[--count], &error));
    CHECK_OK(reclane_client_get(client, table, keys, 1, rows, DIM, &error));
}

static void table_mistakes(reclane_client* client) {
    reclane_error error = RECLANE_INIT(reclane_error);
    reclane_table_options options = RECLANE_INIT(reclane_table_options);
    uint32_t table = 0;
    CHECK_STATUS(RECLANE_STATUS_NULL_POINTER, reclane_client_init_table(client, NULL, &table, &error));
    CHECK_STATUS(RECLANE_STATUS_NULL_POINTER, reclane_client_init_table(client, &options, &table, &error));
    options.name = "t";
    CHECK_STATUS(RECLANE_STATUS_INVALID_ARGUMENT, reclane_client_init_table(client, &options, &table, &error));
    CHECK(strstr(error.message, "dim 0") != NULL);
    options.dim = 4;
    CHECK_STATUS(RECLANE_STATUS_NULL_POINTER, reclane_client_init_table(client, &options, NULL, &error));
    options.optimizer = 4;
    CHECK_STATUS(RECLANE_STATUS_INVALID_ARGUMENT, reclane_client_init_table(client, &options, &table, &error));
    options.optimizer = RECLANE_OPTIMIZER_ADAGRAD;
    options.learning_rate = -1.0F;
    CHECK_STATUS(RECLANE_STATUS_INVALID_ARGUMENT, reclane_client_init_table(client, &options, &table, &error));
    /* Everything of a table that exists must agree; the first difference is named with both values. */
    options.learning_rate = 0.1F;
    CHECK_OK(reclane_client_init_table(client, &options, &table, &error));
    options.learning_rate = 0.5F;
    CHECK_STATUS(RECLANE_STATUS_INVALID_PAYLOAD, reclane_client_init_table(client, &options, &table, &error));
    CHECK(strstr(error.message, "'t'") != NULL);
    CHECK(strstr(error.message, "learning_rate is 0.5 in this call and 0.1 on the shard") != NULL);
    options.dim = 8;
    CHECK_STATUS(RECLANE_STATUS_INVALID_PAYLOAD, reclane_client_init_table(client, &options, &table, &error));
    CHECK(strstr(error.message, "dim is 8 in this call and 4 on the shard") != NULL);
    options.name = "caf\xE9";
    CHECK_STATUS(RECLANE_STATUS_NOT_UTF8, reclane_client_init_table(client, &options, &table, &error));
    options.struct_size = 12;
    CHECK_STATUS(RECLANE_STATUS_STRUCT_SIZE, reclane_client_init_table(client, &options, &table, &error));

    CHECK_STATUS(RECLANE_STATUS_INVALID_ARGUMENT, reclane_client_command(client, 77, NULL, &error));
    CHECK_STATUS(RECLANE_STATUS_INVALID_ARGUMENT, reclane_client_command(client, RECLANE_COMMAND_CLEAR, "x", &error));
    CHECK_STATUS(RECLANE_STATUS_INVALID_ARGUMENT, reclane_client_command(client, RECLANE_COMMAND_SAVE, NULL, &error));
    CHECK_STATUS(RECLANE_STATUS_NULL_POINTER, reclane_client_barrier(client, NULL, 1, 10, &error));
    CHECK_STATUS(RECLANE_STATUS_STARTUP_TIMEOUT, reclane_client_barrier(client, "never", 2, 50, &error));
    CHECK_STATUS(RECLANE_STATUS_INVALID_ARGUMENT, reclane_client_barrier(client, "none", 0, 50, &error));
    CHECK_STATUS(RECLANE_STATUS_NULL_POINTER, reclane_client_shard_of(client, 1, NULL, &error));
    reclane_lane_info lane = RECLANE_INIT(reclane_lane_info);
    lane.struct_size = 31;
    CHECK_STATUS(RECLANE_STATUS_STRUCT_SIZE, reclane_client_lane(client, 0, 0, &lane, &error));
    CHECK_STATUS(RECLANE_STATUS_NULL_POINTER, reclane_client_lane(client, 0, 0, NULL, &error));
    CHECK_STATUS(RECLANE_STATUS_NULL_POINTER, reclane_client_stats(client, NULL, &error));
}

static void versions(void) {
    reclane_error error = RECLANE_INIT(reclane_error);
    CHECK(strcmp(reclane_version(), RECLANE_VERSION_STRING) == 0);
    CHECK(reclane_version_number() == RECLANE_VERSION_NUMBER);
    CHECK(reclane_abi_version() == RECLANE_ABI_VERSION);
    CHECK_STATUS(RECLANE_STATUS_ABI_VERSION, reclane_abi_check(RECLANE_ABI_VERSION + 1, &error));
    CHECK(strcmp(reclane_status_name(RECLANE_STATUS_FORKED), "RECLANE_STATUS_FORKED") == 0);
    CHECK(strcmp(reclane_status_name(-12345), "RECLANE_STATUS_?") == 0);
    CHECK(reclane_status_class(RECLANE_STATUS_FORKED) == RECLANE_CLASS_CALLER);
    CHECK(reclane_status_class(12345) == RECLANE_CLASS_OK);
}

static void deployment_mistakes(reclane_options* options) {
    reclane_error error = RECLANE_INIT(reclane_error);
    reclane_client* client = NULL;
    CHECK_STATUS(RECLANE_STATUS_NULL_POINTER, reclane_client_open(options, NULL, &error));
    /* What shapes the layout must agree; the message has both values. */
    CHECK_OK(set_number(options, "slots-per-qp", 8, &error));
    CHECK_STATUS(RECLANE_STATUS_DEPLOYMENT_MISMATCH, reclane_client_open(options, &client, &error));
    CHECK(strchr(error.message, '8') != NULL && strchr(error.message, '4') != NULL && client == NULL);
    CHECK_OK(set_number(options, "slots-per-qp", 4, &error));
    CHECK_OK(reclane_options_set(options, "deployment-id", "another", &error));
    CHECK_STATUS(RECLANE_STATUS_STALE_EPOCH, reclane_client_open(options, &client, &error));
    CHECK(reclane_status_class(error.status) == RECLANE_CLASS_PEER && client == NULL);
    CHECK_OK(reclane_options_set(options, "deployment-id", "reclane", &error));
}

/* A row that no slot holds: the table is made, and its rows are refused before anything is sent. */
static void rows_too_wide(reclane_client* client) {
    enum { WIDE = 2048 };
    static float row[WIDE];
    reclane_error error = RECLANE_INIT(reclane_error);
    const uint64_t key = 1;
    const float* pointer = row;
    uint32_t table = 0;
    CHECK_OK(make_table(client, "wide", WIDE, RECLANE_OPTIMIZER_ADD, &table, &error));
    CHECK_STATUS(RECLANE_STATUS_BATCH_TOO_LARGE, reclane_client_get(client, table, &key, 1, row, WIDE, &error));
    CHECK(strstr(error.message, "8192 bytes") != NULL && error.outcome == RECLANE_OUTCOME_NOT_EXECUTED);
    CHECK_STATUS(RECLANE_STATUS_BATCH_TOO_LARGE, reclane_client_put(client, table, &key, 1, row, WIDE, &error));
    CHECK_STATUS(RECLANE_STATUS_BATCH_TOO_LARGE, reclane_client_update(client, table, &key, 1, &pointer, &error));
    CHECK_STATUS(RECLANE_STATUS_BATCH_TOO_LARGE, reclane_client_update_flat(client, table, &key, 1, row, WIDE, &error));
}

/* A number that a living process holds is refused to the next one, and free again when it leaves. */
static void numbers_that_are_taken(reclane_options* options) {
    reclane_error error = RECLANE_INIT(reclane_error);
    reclane_client* first = NULL;
    reclane_client* second = NULL;
    CHECK_OK(set_number(options, "client-id", 7, &error));
    if (!CHECK_OK(reclane_client_open(options, &first, &error)))
        return;
    CHECK_STATUS(RECLANE_STATUS_DUPLICATE_ID, reclane_client_open(options, &second, &error));
    CHECK(strchr(error.message, '7') != NULL && second == NULL);
    reclane_client_close(first);
    if (CHECK_OK(reclane_client_open(options, &second, &error)))
        reclane_client_close(second);
}

/* Of two shards one is not started. The client has time enough to join and to see that, also under valgrind. */
static void a_missing_shard(void) {
    reclane_error error = RECLANE_INIT(reclane_error);
    reclane_options* options = NULL;
    reclane_server* servers[2] = {NULL, NULL};
    reclane_server* again = NULL;
    reclane_client* client = NULL;
    uint32_t port = 0;
    CHECK_OK(cluster_options(2, &options, &error));
    CHECK_OK(set_number(options, "shard-id", 0, &error));
    CHECK_OK(reclane_server_open(options, NULL, &servers[0], &error));
    CHECK_OK(reclane_server_control_plane_port(servers[0], &port, &error));
    CHECK_OK(set_number(options, "rdma-control-plane-port", port, &error));
    CHECK_OK(set_number(options, "rdma-control-plane-timeout-ms", 3000, &error));
    CHECK_STATUS(RECLANE_STATUS_STARTUP_TIMEOUT, reclane_client_open(options, &client, &error));
    CHECK(strstr(error.message, "shard 1") != NULL && client == NULL);
    CHECK_OK(set_number(options, "rdma-control-plane-timeout-ms", 30000, &error));
    CHECK_OK(set_number(options, "shard-id", 1, &error));
    CHECK_OK(reclane_server_open(options, NULL, &servers[1], &error));
    CHECK_STATUS(RECLANE_STATUS_DUPLICATE_ID, reclane_server_open(options, NULL, &again, &error));
    CHECK(strstr(error.message, "shard 1") != NULL && again == NULL);
    reclane_server_close(servers[1]);
    reclane_server_close(servers[0]);

    /* Now nobody listens at that port. */
    CHECK_OK(set_number(options, "rdma-control-plane-timeout-ms", 200, &error));
    CHECK_STATUS(RECLANE_STATUS_CONTROL_PLANE_UNREACHABLE, reclane_client_open(options, &client, &error));
    CHECK(strstr(error.message, "was not reached within") != NULL && client == NULL);
    reclane_options_close(options);
}

static void environment_entry(const char* port) {
    reclane_error error = RECLANE_INIT(reclane_error);
    reclane_client* client = NULL;
    const char* const wanted[][2] = {{"RECLANE_RDMA_CONTROL_PLANE_PORT", port},
                                     {"RECLANE_QPS_PER_CLIENT_PER_SHARD", "2"},
                                     {"RECLANE_SLOTS_PER_QP", "4"},
                                     {"RECLANE_ASYNC_DEPTH", "8"},
                                     {"RECLANE_REQUEST_SLOT_BYTES", "4096"},
                                     {"RECLANE_RESPONSE_SLOT_BYTES", "4096"}};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; ++i)
        setenv(wanted[i][0], wanted[i][1], 1);
    if (CHECK_OK(reclane_client_open_from_environment(&client, &error)))
        reclane_client_close(client);
    setenv("RECLANE_SLOTS_PER_QP", "none", 1);
    CHECK_STATUS(RECLANE_STATUS_OPTION_TYPE, reclane_client_open_from_environment(&client, &error));
    CHECK(strstr(error.message, "RECLANE_SLOTS_PER_QP") != NULL && client == NULL);
    setenv("RECLANE_NO_SUCH_THING", "1", 1);
    unsetenv("RECLANE_SLOTS_PER_QP");
    CHECK_STATUS(RECLANE_STATUS_UNKNOWN_OPTION, reclane_client_open_from_environment(&client, &error));
    CHECK_STATUS(RECLANE_STATUS_NULL_POINTER, reclane_client_open_from_environment(NULL, &error));
}

int main(void) {
    reclane_error error = RECLANE_INIT(reclane_error);
    cluster all;
    reclane_client* client = NULL;
    uint32_t table = 0;
    versions();
    options_mistakes();
    error_struct_mistakes();
    server_mistakes();
    NEED_OK(cluster_open(&all, 1, NULL, &error));
    NEED_OK(reclane_client_open(all.options, &client, &error));
    NEED_OK(make_table(client, "rows", DIM, RECLANE_OPTIMIZER_ADD, &table, &error));
    handle_mistakes(client, table, all.options);
    argument_mistakes(client, table);
    table_mistakes(client);
    rows_too_wide(client);
    reclane_client_close(client);
    reclane_client_close(client);
    reclane_client_close(NULL);
    float row[DIM];
    const uint64_t key = 1;
    CHECK_STATUS(RECLANE_STATUS_CLOSED, reclane_client_get(client, table, &key, 1, row, DIM, &error));
    CHECK(strstr(error.message, "reclane_client was closed") != NULL);
    CHECK(strstr(error.message, "reclane_client_open()") != NULL);
    CHECK_STATUS(RECLANE_STATUS_CLOSED, reclane_client_query(client, 1, &error));
    uint32_t port = 0;
    char text[8];
    CHECK_OK(reclane_server_control_plane_port(all.servers[0], &port, &error));
    snprintf(text, sizeof text, "%u", (unsigned)port % 100000U);
    environment_entry(text);
    deployment_mistakes(all.options);
    numbers_that_are_taken(all.options);
    cluster_close(&all);
    a_missing_shard();
    return check_end();
}
