/* Several processes: a server in a child, a child that inherits handles, a server that is killed. C99 with POSIX. */
#include <signal.h>
#include <stdlib.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cluster.h"

#define DIM 4

/* A server in a child process; it ends when `stop` is closed. Gives its control plane's port. */
typedef struct child {
    pid_t pid;
    int stop;
    uint32_t port;
} child;

static void serve(int report, int stop) {
    reclane_error error = RECLANE_INIT(reclane_error);
    cluster all;
    uint32_t port = 0;
    char nothing = 0;
    int code = 1;
    if (cluster_open(&all, 1, NULL, &error) == RECLANE_STATUS_OK &&
        reclane_server_control_plane_port(all.servers[0], &port, &error) == RECLANE_STATUS_OK &&
        write(report, &port, sizeof port) == (ssize_t)sizeof port) {
        code = read(stop, &nothing, 1) == 0 ? 0 : 1;
        cluster_close(&all);
    } else {
        fprintf(stderr, "server: %s\n", error.message);
    }
    _exit(code);
}

/* The library has no thread yet when this forks, so the child is as good as a fresh process. */
static int start(child* server) {
    int report[2];
    int stop[2];
    memset(server, 0, sizeof *server);
    if (pipe(report) != 0 || pipe(stop) != 0)
        return 0;
    server->pid = fork();
    if (server->pid == 0) {
        close(report[0]);
        close(stop[1]);
        serve(report[1], stop[0]);
    }
    close(report[1]);
    close(stop[0]);
    server->stop = stop[1];
    const ssize_t got = read(report[0], &server->port, sizeof server->port);
    close(report[0]);
    return server->pid > 0 && got == (ssize_t)sizeof server->port;
}

static int exit_code(pid_t pid) {
    int status = 0;
    if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
        return -1;
    return WEXITSTATUS(status);
}

/* In a forked child every call with an inherited handle is refused, and closing does no harm to the parent. */
static int inherited_handles(reclane_client* client, reclane_options* options, uint32_t table, reclane_buffer* buffer,
                             reclane_server* server) {
    reclane_error error = RECLANE_INIT(reclane_error);
    const uint64_t key = 3;
    float row[DIM];
    reclane_request request = 0;
    reclane_client* fresh = NULL;
    reclane_server_counters counters = RECLANE_INIT(reclane_server_counters);
    CHECK_STATUS(RECLANE_STATUS_FORKED, reclane_client_get(client, table, &key, 1, row, DIM, &error));
    CHECK(strstr(error.message, "fork") != NULL);
    CHECK_STATUS(RECLANE_STATUS_FORKED, reclane_client_submit_get(client, table, &key, 1, row, DIM, &request, &error));
    CHECK_STATUS(RECLANE_STATUS_FORKED, reclane_client_wait(client, 1, 0, &error));
    CHECK_STATUS(RECLANE_STATUS_FORKED, reclane_client_command(client, RECLANE_COMMAND_CLEAR, NULL, &error));
    CHECK_STATUS(RECLANE_STATUS_FORKED, reclane_client_shutdown(client, 0, &error));
    CHECK_STATUS(RECLANE_STATUS_FORKED, reclane_server_stats(server, &counters, &error));
    CHECK_STATUS(RECLANE_STATUS_FORKED, reclane_server_stop(server, 0, &error));
    CHECK_STATUS(RECLANE_STATUS_FORKED, reclane_options_set(options, "slots-per-qp", "1", &error));
    CHECK_STATUS(RECLANE_STATUS_FORKED, reclane_client_open(options, &fresh, &error));
    CHECK_STATUS(RECLANE_STATUS_FORKED, reclane_client_open(NULL, &fresh, &error));
    CHECK(fresh == NULL && reclane_buffer_data(buffer) == NULL && reclane_buffer_bytes(buffer) == 0);
    CHECK(strcmp(reclane_version(), RECLANE_VERSION_STRING) == 0);
    reclane_buffer_close(buffer);
    reclane_client_close(client);
    reclane_server_close(server);
    reclane_options_close(options);
    CHECK_STATUS(RECLANE_STATUS_CLOSED, reclane_client_wait(client, 1, 0, &error));
    return check_end();
}

static void fork_with_handles(reclane_client* client, reclane_options* options, uint32_t table) {
    reclane_error error = RECLANE_INIT(reclane_error);
    reclane_buffer* buffer = NULL;
    cluster here; /* a server in this process, too */
    const uint64_t key = 3;
    float row[DIM] = {1, 2, 3, 4};
    float back[DIM] = {0, 0, 0, 0};
    CHECK_OK(cluster_open(&here, 1, NULL, &error));
    CHECK_OK(reclane_buffer_open(client, 64, &buffer, &error));
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0)
        _exit(inherited_handles(client, options, table, buffer, here.servers[0]));
    CHECK(exit_code(pid) == 0);

    /* The parent goes on, while the child lives and after. */
    CHECK_OK(reclane_client_put(client, table, &key, 1, row, DIM, &error));
    CHECK_OK(reclane_client_get(client, table, &key, 1, back, DIM, &error));
    CHECK(memcmp(row, back, sizeof row) == 0);
    reclane_buffer_close(buffer);
    cluster_close(&here);
}

static void killed_server(reclane_client* client, uint32_t table, child* server) {
    reclane_error error = RECLANE_INIT(reclane_error);
    const uint64_t key = 3;
    float row[DIM] = {1, 2, 3, 4};
    reclane_request before = 0;
    CHECK_OK(reclane_client_submit_update_flat(client, table, &key, 1, row, DIM, &before, &error));
    CHECK_OK(reclane_client_wait(client, before, 0, &error));
    /* Stopped, so that it cannot answer this one. */
    reclane_request lost = 0;
    int status = 0;
    CHECK(kill(server->pid, SIGSTOP) == 0);
    CHECK(waitpid(server->pid, &status, WUNTRACED) == server->pid && WIFSTOPPED(status));
    CHECK_OK(reclane_client_submit_get(client, table, &key, 1, row, DIM, &lost, &error));
    CHECK(kill(server->pid, SIGKILL) == 0);
    CHECK(waitpid(server->pid, &status, 0) == server->pid && WIFSIGNALED(status));
    CHECK_STATUS(RECLANE_STATUS_SHARD_UNREACHABLE, reclane_client_finish(client, lost, 0, &error));
    CHECK(error.status == RECLANE_STATUS_SHARD_UNREACHABLE && error.shard == 0);
    CHECK_STATUS(RECLANE_STATUS_STALE_TOKEN, reclane_client_revoke(client, lost, &error));
    CHECK_STATUS(RECLANE_STATUS_SHARD_UNREACHABLE, reclane_client_get(client, table, &key, 1, row, DIM, &error));
    CHECK(error.shard == 0 && error.message[0] != '\0');

    /* The one that was answered before the kill stays executed. */
    reclane_shard_result result = RECLANE_INIT(reclane_shard_result);
    uint8_t outcome = RECLANE_OUTCOME_UNKNOWN;
    CHECK_OK(reclane_client_key_outcomes(client, before, &outcome, 1, &error));
    CHECK(outcome == RECLANE_OUTCOME_EXECUTED);
    CHECK_OK(reclane_client_shard_result(client, before, 0, &result, &error));
    CHECK(result.status == RECLANE_STATUS_OK && result.key_count == 1 && result.executed_count == 1);
    CHECK_OK(reclane_client_revoke(client, before, &error));
    CHECK_OK(reclane_client_break_lane(client, 0, 0, &error));
}

int main(void) {
    reclane_error error = RECLANE_INIT(reclane_error);
    child server;
    child other;
    reclane_options* options = NULL;
    reclane_client* client = NULL;
    uint32_t table = 0;
    if (!CHECK(start(&server)) || !CHECK(start(&other)))
        return check_end();
    NEED_OK(cluster_options(1, &options, &error));
    NEED_OK(set_number(options, "rdma-control-plane-port", server.port, &error));
    NEED_OK(reclane_client_open(options, &client, &error));
    NEED_OK(make_table(client, "rows", DIM, RECLANE_OPTIMIZER_ADD, &table, &error));
    fork_with_handles(client, options, table);
    killed_server(client, table, &server);
    reclane_client_close(client);
    close(server.stop);

    /* The handle of one deployment is gone; another can be opened. */
    CHECK_OK(set_number(options, "rdma-control-plane-port", other.port, &error));
    CHECK_OK(reclane_client_open(options, &client, &error));
    CHECK_OK(make_table(client, "rows", DIM, RECLANE_OPTIMIZER_ADD, &table, &error));
    reclane_client_close(client);
    close(other.stop);
    CHECK(exit_code(other.pid) == 0);
    reclane_options_close(options);
    return check_end();
}
