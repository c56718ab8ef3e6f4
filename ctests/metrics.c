/* Metrics and profiles: as text, by name, as structs; with counting and without. C99. */
#include "cluster.h"

#define DIM 16
#define REQUESTS 50

static uint64_t number(const reclane_client* client, const char* name) {
    reclane_error error = RECLANE_INIT(reclane_error);
    uint64_t value = 0;
    CHECK_OK(reclane_client_metric(client, name, &value, &error));
    return value;
}

static void traffic(reclane_client* client, uint32_t table) {
    reclane_error error = RECLANE_INIT(reclane_error);
    uint64_t keys[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    float rows[8 * DIM] = {0};
    CHECK_OK(reclane_client_put(client, table, keys, 8, rows, 8 * DIM, &error));
    for (int i = 0; i < REQUESTS; ++i)
        CHECK_OK(reclane_client_get(client, table, keys, 8, rows, 8 * DIM, &error));
}

static void structs(const reclane_client* client) {
    reclane_error error = RECLANE_INIT(reclane_error);
    reclane_client_profile_counters mine = RECLANE_INIT(reclane_client_profile_counters);
    CHECK_OK(reclane_client_profile(client, 0, &mine, &error));
    CHECK(mine.shard == 0 && mine.submit_count == REQUESTS + 2 && mine.wait_count == REQUESTS + 2);
    CHECK(mine.revoke_count == mine.acquire_qp_count && mine.copied_bytes == REQUESTS * 8 * DIM * 4);
    CHECK(mine.timed_requests > 0 && mine.submit_request_ns > 0 && mine.wait_status_ns > 0);
    CHECK(mine.submit_count == number(client, "rdma_rc_client_profile/submit_count"));
    CHECK_STATUS(RECLANE_STATUS_INVALID_ARGUMENT, reclane_client_profile(client, 1, &mine, &error));
    mine.struct_size = 4;
    CHECK_STATUS(RECLANE_STATUS_STRUCT_SIZE, reclane_client_profile(client, 0, &mine, &error));

    reclane_transport_profile_counters transport = RECLANE_INIT(reclane_transport_profile_counters);
    CHECK_OK(reclane_client_transport_profile(client, 0, &transport, &error));
    CHECK(transport.role == 2 && transport.complete_count == REQUESTS + 2);
    CHECK(transport.response_payload_bytes == REQUESTS * 8 * DIM * 4);

    reclane_latency_info latency = RECLANE_INIT(reclane_latency_info);
    CHECK_OK(reclane_client_latency(client, "get", &latency, &error));
    CHECK(latency.count > 0 && latency.p50_ns > 0 && latency.p50_ns <= latency.p99_ns);
    CHECK(latency.p99_ns <= latency.max_ns && latency.max_ns <= latency.sum_ns);
    CHECK_STATUS(RECLANE_STATUS_INVALID_ARGUMENT, reclane_client_latency(client, "sum", &latency, &error));
    CHECK_STATUS(RECLANE_STATUS_NULL_POINTER, reclane_client_latency(client, NULL, &latency, &error));
}

static void text(const reclane_client* client) {
    reclane_error error = RECLANE_INIT(reclane_error);
    char small[8];
    size_t length = 0;
    CHECK_STATUS(RECLANE_STATUS_BUFFER_TOO_SMALL,
                 reclane_client_metrics_text(client, small, sizeof small, &length, &error));
    CHECK(length > 1000 && strlen(small) == sizeof small - 1);
    char* all = malloc(length + 1024);
    CHECK_OK(reclane_client_metrics_text(client, all, length + 1024, &length, &error));
    CHECK(strlen(all) == length);
    CHECK(strstr(all, "\nreclane_client_requests_total{shard=\"0\",op=\"get\"} 50\n") != NULL);
    CHECK(strstr(all, "\n# TYPE reclane_client_latency_seconds histogram\n") != NULL);
    free(all);
}

static void server_side(reclane_server* server) {
    reclane_error error = RECLANE_INIT(reclane_error);
    reclane_server_profile_counters totals = RECLANE_INIT(reclane_server_profile_counters);
    /* Threads tell what they did every some rounds. */
    do {
        CHECK_OK(reclane_server_profile(server, &totals, &error));
    } while (totals.handled_get < REQUESTS);
    CHECK(totals.handled_get == REQUESTS && totals.handled_put == 1 && totals.threads == 1);
    CHECK(totals.get_rows == REQUESTS * 8 && totals.get_missing_rows == 0 && totals.poller_active == 1);
    reclane_transport_profile_counters transport = RECLANE_INIT(reclane_transport_profile_counters);
    CHECK_OK(reclane_server_transport_profile(server, &transport, &error));
    CHECK(transport.role == 1 && transport.response_payload_writes == REQUESTS);
    uint64_t value = 0;
    CHECK_OK(reclane_server_metric(server, "reclane_server_keys_total{op=\"get\"}", &value, &error));
    CHECK(value == REQUESTS * 8);
    CHECK_STATUS(RECLANE_STATUS_INVALID_ARGUMENT, reclane_server_metric(server, "nothing", &value, &error));
    CHECK_STATUS(RECLANE_STATUS_NULL_POINTER, reclane_server_metric(server, "reclane_info", NULL, &error));
    reclane_latency_info latency = RECLANE_INIT(reclane_latency_info);
    CHECK_OK(reclane_server_latency(server, "put", &latency, &error));
    char line[4096];
    const reclane_status status = reclane_server_metrics_text(server, line, sizeof line, NULL, &error);
    CHECK(status == RECLANE_STATUS_OK || status == RECLANE_STATUS_BUFFER_TOO_SMALL);
    uint32_t port = 7;
    CHECK_OK(reclane_server_metrics_port(server, &port, &error));
    CHECK(port == 0);
}

static void counted(void) {
    reclane_error error = RECLANE_INIT(reclane_error);
    cluster all;
    reclane_client* client = NULL;
    uint32_t table = 0, port = 0;
    CHECK_OK(cluster_open_with(&all, 1, NULL, "--metrics=true", &error));
    CHECK_OK(reclane_options_set(all.options, "metrics-sample-every", "1", &error));
    CHECK_OK(reclane_options_set(all.options, "metrics-port", "0", &error));
    /* GETs that need no request are counted at the client alone. */
    CHECK_OK(reclane_options_set(all.options, "shared-reads", "off", &error));
    CHECK_OK(reclane_client_open(all.options, &client, &error));
    CHECK_OK(make_table(client, "t", DIM, RECLANE_OPTIMIZER_SGD, &table, &error));
    traffic(client, table);
    CHECK(number(client, "reclane_client_requests_total{op=\"get\"}") == REQUESTS);
    CHECK(number(client, "reclane_client_failed_total") == 0);
    structs(client);
    text(client);
    server_side(all.servers[0]);
    CHECK_OK(reclane_client_metrics_port(client, &port, &error));
    CHECK(port != 0);
    reclane_client_close(client);
    cluster_close(&all);
}

static void not_counted(void) {
    reclane_error error = RECLANE_INIT(reclane_error);
    cluster all;
    reclane_client* client = NULL;
    uint32_t table = 0;
    uint64_t value = 0;
    CHECK_OK(cluster_open(&all, 1, NULL, &error));
    CHECK_OK(reclane_client_open(all.options, &client, &error));
    CHECK_OK(make_table(client, "t", DIM, RECLANE_OPTIMIZER_SGD, &table, &error));
    traffic(client, table);
    CHECK(number(client, "reclane_client_slot_uses_total") == REQUESTS + 2);
    CHECK_STATUS(RECLANE_STATUS_INVALID_ARGUMENT,
                 reclane_client_metric(client, "reclane_client_requests_total", &value, &error));
    CHECK(strstr(error.message, "metrics=true") != NULL);
    reclane_client_profile_counters mine = RECLANE_INIT(reclane_client_profile_counters);
    CHECK_OK(reclane_client_profile(client, 0, &mine, &error));
    CHECK(mine.submit_count == REQUESTS + 2 && mine.submit_request_ns == 0 && mine.timed_requests == 0);
    reclane_client_close(client);
    cluster_close(&all);
}

int main(void) {
    counted();
    not_counted();
    return check_end();
}
