/* Ranks through the C interface: two processes, each operation, refusals, a killed rank. C99 with POSIX. */
#include <signal.h>
#include <stdlib.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cluster.h"

#define REGION 5
#define WORDS 16

static reclane_status rank_options(unsigned rank, unsigned port, reclane_options** options, reclane_error* error) {
    reclane_status status = reclane_options_open(options, error);
    if (status == RECLANE_STATUS_OK)
        status = set_number(*options, "num-server-processes", 2, error);
    if (status == RECLANE_STATUS_OK)
        status = set_number(*options, "shard-id", rank, error);
    if (status == RECLANE_STATUS_OK)
        status = set_number(*options, "rdma-control-plane-port", port, error);
    if (status == RECLANE_STATUS_OK)
        status = given_options(*options, error);
    return status;
}

static reclane_status open_rank(unsigned number, unsigned port, reclane_rank** rank, reclane_error* error) {
    reclane_options* options = NULL;
    reclane_status status = rank_options(number, port, &options, error);
    if (status == RECLANE_STATUS_OK)
        status = reclane_rank_open(options, rank, error);
    reclane_options_close(options);
    return status;
}

/* Rank 0 in a process of its own; it ends when `stop` is closed. */
static void serve(int report, int stop) {
    reclane_error error = RECLANE_INIT(reclane_error);
    reclane_rank_info info = RECLANE_INIT(reclane_rank_info);
    reclane_rank* rank = NULL;
    reclane_region* region = NULL;
    char nothing = 0;
    int code = 1;
    if (open_rank(0, 0, &rank, &error) == RECLANE_STATUS_OK &&
        reclane_region_open(rank, REGION, WORDS * 8, RECLANE_RIGHT_ALL, &region, &error) == RECLANE_STATUS_OK &&
        reclane_rank_describe(rank, &info, &error) == RECLANE_STATUS_OK &&
        write(report, &info.control_plane_port, sizeof(uint32_t)) == (ssize_t)sizeof(uint32_t)) {
        code = read(stop, &nothing, 1) == 0 ? 0 : 1;
    } else {
        fprintf(stderr, "rank 0: %s\n", error.message);
    }
    reclane_region_close(region);
    reclane_rank_close(rank);
    _exit(code);
}

static void one_by_one(reclane_rank* rank, uint64_t* words) {
    reclane_error error = RECLANE_INIT(reclane_error);
    uint64_t old = 0;
    words[0] = 40;
    CHECK_OK(reclane_rank_write(rank, 0, REGION, 8, words, 8, &error));
    CHECK_OK(reclane_rank_fetch_add(rank, 0, REGION, 8, 2, &old, &error));
    CHECK(old == 40);
    CHECK_OK(reclane_rank_compare_swap(rank, 0, REGION, 8, 42, 50, NULL, &error));
    CHECK_OK(reclane_rank_fetch_add_once(rank, 0, REGION, 8, 1, &old, &error));
    CHECK(old == 50);
    CHECK_OK(reclane_rank_compare_swap_once(rank, 0, REGION, 8, 51, 60, &old, &error));
    CHECK(old == 51);
    CHECK_OK(reclane_rank_read(rank, 0, REGION, 8, words + 1, 8, &error));
    CHECK(words[1] == 60);
}

static void together(reclane_rank* rank, uint64_t* words) {
    reclane_error error = RECLANE_INIT(reclane_error);
    reclane_operation batch[4];
    reclane_ticket ticket = 7;
    uint32_t known[4] = {9, 9, 9, 9};
    memset(batch, 0, sizeof batch);
    words[2] = 7;
    for (unsigned i = 0; i < 4; ++i) {
        batch[i].kind = i < 2 ? RECLANE_OPERATION_KIND_WRITE : RECLANE_OPERATION_KIND_FETCH_ADD;
        batch[i].region = REGION;
        batch[i].offset = 64 + 8 * (i % 2);
        batch[i].bytes = 8;
        batch[i].local = i < 2 ? words + 2 : words + 4 + i;
        batch[i].operand = i < 2 ? 0 : 10 * i;
    }
    CHECK_OK(reclane_rank_post(rank, 0, batch, 4, &ticket, &error));
    CHECK_OK(reclane_rank_wait(rank, ticket, 0, &error));
    CHECK_OK(reclane_rank_outcomes(rank, ticket, known, 4, &error));
    for (unsigned i = 0; i < 4; ++i)
        CHECK(known[i] == RECLANE_KNOWN_DONE);
    CHECK(words[6] == 7 && words[7] == 7);
    CHECK_OK(reclane_rank_read(rank, 0, REGION, 64, words + 8, 16, &error));
    CHECK(words[8] == 27 && words[9] == 37);
    CHECK_OK(reclane_rank_flush(rank, 0, 0, &error));
    batch[3].kind = 9;
    CHECK_STATUS(RECLANE_STATUS_INVALID_ARGUMENT, reclane_rank_post(rank, 0, batch, 4, &ticket, &error));
    CHECK(ticket == 0 && strstr(error.message, "operations[3]") != NULL);
    CHECK_STATUS(RECLANE_STATUS_INVALID_ARGUMENT, reclane_rank_post(rank, 0, batch, 65, &ticket, &error));
    CHECK_STATUS(RECLANE_STATUS_STALE_TOKEN, reclane_rank_wait(rank, 3, 0, &error));
    CHECK_STATUS(RECLANE_STATUS_NULL_POINTER, reclane_rank_post(rank, 0, NULL, 1, &ticket, &error));
}

static void refusals(reclane_rank* rank, uint64_t* words) {
    reclane_error error = RECLANE_INIT(reclane_error);
    reclane_region* region = NULL;
    reclane_region_info info = RECLANE_INIT(reclane_region_info);
    CHECK_STATUS(RECLANE_STATUS_INVALID_ARGUMENT, reclane_rank_write(rank, 2, REGION, 0, words, 8, &error));
    CHECK_STATUS(RECLANE_STATUS_INVALID_ARGUMENT, reclane_rank_write(rank, 0, 6, 0, words, 8, &error));
    CHECK(strstr(error.message, "rank 0 has no region 6") != NULL && error.outcome == RECLANE_OUTCOME_NOT_EXECUTED);
    CHECK_STATUS(RECLANE_STATUS_INVALID_ARGUMENT, reclane_rank_write(rank, 0, REGION, WORDS * 8 - 4, words, 8, &error));
    CHECK_STATUS(RECLANE_STATUS_NULL_POINTER, reclane_rank_write(rank, 0, REGION, 0, NULL, 8, &error));
    CHECK_STATUS(RECLANE_STATUS_INVALID_ARGUMENT,
                 reclane_rank_write(rank, 0, REGION, 0, words, (size_t)1 << 40, &error));
    CHECK_STATUS(RECLANE_STATUS_INVALID_ARGUMENT, reclane_region_open(rank, 1, 8, 8, &region, &error));
    CHECK_STATUS(RECLANE_STATUS_INVALID_ARGUMENT, reclane_region_open(rank, 1, 8, 0, &region, &error));
    CHECK(region == NULL && reclane_region_data(region) == NULL && reclane_region_bytes(region) == 0);
    CHECK_STATUS(RECLANE_STATUS_NULL_POINTER, reclane_rank_write(NULL, 0, REGION, 0, words, 8, &error));
    CHECK_OK(reclane_region_find(rank, 0, REGION, 0, &info, &error));
    CHECK(info.bytes == WORDS * 8 && info.rights == RECLANE_RIGHT_ALL && info.version == 1);
    CHECK_STATUS(RECLANE_STATUS_INVALID_ARGUMENT, reclane_region_find(rank, 0, 9, 1, &info, &error));
    info.struct_size = 3;
    CHECK_STATUS(RECLANE_STATUS_STRUCT_SIZE, reclane_region_find(rank, 0, REGION, 0, &info, &error));
}

static void holds(reclane_rank* rank) {
    reclane_error error = RECLANE_INIT(reclane_error);
    uint64_t hold = 0, second = 0;
    CHECK_OK(reclane_rank_hold(rank, 0, 0, &hold, &error));
    CHECK(hold != 0);
    CHECK_STATUS(RECLANE_STATUS_BUSY, reclane_rank_hold(rank, 0, 0, &second, &error));
    CHECK_OK(reclane_rank_release(rank, hold, &error));
    CHECK_STATUS(RECLANE_STATUS_STALE_TOKEN, reclane_rank_release(rank, hold, &error));
}

static void numbers(reclane_rank* rank) {
    reclane_error error = RECLANE_INIT(reclane_error);
    uint64_t value = 0;
    uint32_t port = 1;
    size_t length = 0;
    char text[16];
    CHECK_OK(reclane_rank_metric(rank, "reclane_rank_operations_total{op=\"write\"}", &value, &error));
    CHECK(value > 0);
    CHECK_STATUS(RECLANE_STATUS_INVALID_ARGUMENT, reclane_rank_metric(rank, "reclane_nothing", &value, &error));
    CHECK_STATUS(RECLANE_STATUS_BUFFER_TOO_SMALL, reclane_rank_metrics_text(rank, text, sizeof text, &length, &error));
    CHECK(length > sizeof text && text[sizeof text - 1] == '\0');
    CHECK_OK(reclane_rank_metrics_port(rank, &port, &error));
    CHECK(port == 0);
}

int main(void) {
    reclane_error error = RECLANE_INIT(reclane_error);
    reclane_rank* rank = NULL;
    reclane_region* region = NULL;
    uint32_t port = 0;
    int report[2], stop[2];
    if (!CHECK(pipe(report) == 0 && pipe(stop) == 0))
        return check_end();
    /* The library has no thread yet when this forks. */
    const pid_t child = fork();
    if (child == 0) {
        close(stop[1]);
        serve(report[1], stop[0]);
    }
    close(stop[0]);
    if (!CHECK(read(report[0], &port, sizeof port) == (ssize_t)sizeof port))
        return check_end();
    NEED_OK(open_rank(1, port, &rank, &error));
    NEED_OK(reclane_region_open(rank, REGION, 4096, RECLANE_RIGHT_READ, &region, &error));
    uint64_t* words = reclane_region_data(region);
    one_by_one(rank, words);
    together(rank, words);
    refusals(rank, words);
    holds(rank);
    numbers(rank);

    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
    /* Its memory is there until this process hears of its end. */
    reclane_status got = RECLANE_STATUS_OK;
    while (got == RECLANE_STATUS_OK)
        got = reclane_rank_write(rank, 0, REGION, 0, words, 8, &error);
    const reclane_class class_of = reclane_status_class(got);
    CHECK(class_of == RECLANE_CLASS_PEER || class_of == RECLANE_CLASS_LANE);
    CHECK(error.message[0] != '\0');
    reclane_rank_close(rank);
    CHECK_STATUS(RECLANE_STATUS_CLOSED, reclane_rank_flush(rank, 0, 0, &error));
    reclane_region_close(region);
    return check_end();
}
