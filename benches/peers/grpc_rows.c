/* Rows of a table over gRPC's C++ library: a request is one unary call of plain bytes, header, keys, rows.
 *
 *     grpc_rows unix|tcp [--ms N] [--table-mib N] [--only NAME] */
#define PLAIN_TABLE
#include "rows.h"
#include "grpc_calls.h"
#include <sys/wait.h>

typedef struct { uint16_t op, rows, row_bytes, pad; } header_t;

static uint8_t out[SLOTS][sizeof(header_t) + PAYLOAD_MAX];
static int told_fd = -1;

static size_t handle(const void* request, size_t bytes, void* answer) {
    header_t h;
    if (bytes < sizeof h) return 0;
    memcpy(&h, request, sizeof h);
    size_t row_bytes_all = (size_t)h.rows * h.row_bytes;
    if (h.rows > 512 || row_bytes_all > ROWS_BYTES_MAX || bytes != sizeof h + h.rows * 8u + (h.op == GET ? 0 : row_bytes_all)) return 0;
    const uint64_t* asked = (const uint64_t*)((const uint8_t*)request + sizeof h);
    execute(h.op, h.rows, h.row_bytes, asked, (const float*)(asked + h.rows), answer);
    return h.op == GET ? row_bytes_all : 0;
}

static void told(int port) {
    if (write(told_fd, &port, sizeof port) != sizeof port) _exit(1);
}

static void begin(uint32_t slot, int op, int shape, const uint64_t* asked) {
    uint32_t rows = shapes[shape].rows, row_bytes = shapes[shape].row_bytes;
    header_t h = {(uint16_t)op, (uint16_t)rows, (uint16_t)row_bytes, 0};
    uint8_t* place = out[slot];
    memcpy(place, &h, sizeof h);
    memcpy(place + sizeof h, asked, rows * 8);
    size_t bytes = sizeof h + rows * 8;
    if (op != GET) {
        memcpy(place + bytes, given, (size_t)rows * row_bytes);
        bytes += (size_t)rows * row_bytes;
    }
    grpc_begin(slot, place, bytes);
}

static void finish(uint32_t slot, int op, int shape) {
    const void* answer = NULL;
    size_t bytes = 0, expected = op == GET ? (size_t)shapes[shape].rows * shapes[shape].row_bytes : 0;
    if (grpc_finish(slot, &answer, &bytes) != 0 || bytes != expected) {
        fprintf(stderr, "grpc_rows: a call failed\n");
        exit(1);
    }
    if (op == GET) consume(answer, (uint32_t)bytes);
}

int main(int argc, char** argv) {
    if (take_work(argc, argv) != 2) {
        fprintf(stderr, "usage: grpc_rows unix|tcp [--ms N] [--table-mib N] [--only NAME]\n");
        return 2;
    }
    char place[96] = "127.0.0.1:0", path[64] = "";
    if (strcmp(argv[1], "unix") == 0) {
        snprintf(path, sizeof path, "/tmp/grpc-rows-%d.sock", (int)getpid());
        snprintf(place, sizeof place, "unix:%s", path);
    }
    int fds[2], port = 0;
    if (pipe(fds) != 0) {
        perror("pipe");
        return 1;
    }
    pid_t server = fork();
    if (server == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pin(SERVER_CPU);
        fill_tables();
        told_fd = fds[1];
        grpc_serve(place, handle, told);
        _exit(1);
    }
    close(fds[1]);
    prepare_client();
    if (read(fds[0], &port, sizeof port) != sizeof port) {
        fprintf(stderr, "grpc_rows: the server ended\n");
        return 1;
    }
    if (!path[0]) snprintf(place, sizeof place, "127.0.0.1:%d", port);
    if (grpc_open(place, SLOTS) != 0) {
        fprintf(stderr, "grpc_rows: the server is not reached at %s\n", place);
        kill(server, SIGKILL);
        return 1;
    }
    cells(server);
    if (path[0]) unlink(path);
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    _exit(0);
}
