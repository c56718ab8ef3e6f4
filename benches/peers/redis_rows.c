/* The measured work on Redis over a Unix socket: GET is MGET, PUT and UPDATE are MSET of the same bytes (Redis does no
 * arithmetic on rows). A request is one write; at depth, requests are pipelined.
 *
 *     redis_rows [--ms N] [--table-mib N] [--only NAME] */
#include "rows.h"
#include <errno.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

static int fd = -1;
static char socket_path[96];
static char out[512 * (128 + 64) + 4096 + 32 * 600];
/* What has come and is not used yet. */
static char in[1 << 18];
static size_t in_from, in_to;

static void stop(const char* what) {
    fprintf(stderr, "redis_rows: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void send_all(const char* bytes, size_t length) {
    while (length) {
        ssize_t n = write(fd, bytes, length);
        if (n <= 0) stop("write");
        bytes += n, length -= (size_t)n;
    }
}

/* At least so many bytes lie at in_from. */
static void need(size_t length) {
    while (in_to - in_from < length) {
        if (in_from + length > sizeof in || in_to == sizeof in) {
            memmove(in, in + in_from, in_to - in_from);
            in_to -= in_from, in_from = 0;
        }
        ssize_t n = read(fd, in + in_to, sizeof in - in_to);
        if (n <= 0) stop("read");
        in_to += (size_t)n;
    }
}

/* A line of the protocol: its kind and its number. */
static long line(char* kind) {
    size_t at = 1;
    for (;; ++at) {
        need(at + 1);
        if (in[in_from + at] == '\n') break;
    }
    *kind = in[in_from];
    long number = strtol(in + in_from + 1, NULL, 10);
    if (*kind == '-') {
        fprintf(stderr, "redis_rows: %.*s\n", (int)at, in + in_from);
        exit(1);
    }
    in_from += at + 1;
    return number;
}

static size_t put_key(char* place, int shape, uint64_t key) {
    memcpy(place, "$9\r\n", 4);
    place[4] = (char)('a' + shape);
    memcpy(place + 5, &key, 8);
    memcpy(place + 13, "\r\n", 2);
    return 15;
}

static size_t command(int is_get, int shape, uint32_t rows, const uint64_t* asked, const float* values) {
    size_t at = (size_t)sprintf(out, "*%u\r\n$4\r\n%s\r\n", is_get ? rows + 1 : 2 * rows + 1, is_get ? "MGET" : "MSET");
    uint32_t bytes = shapes[shape].row_bytes;
    for (uint32_t i = 0; i < rows; ++i) {
        at += put_key(out + at, shape, asked[i]);
        if (is_get) continue;
        at += (size_t)sprintf(out + at, "$%u\r\n", bytes);
        memcpy(out + at, (const char*)values + (size_t)i * bytes, bytes);
        at += bytes;
        memcpy(out + at, "\r\n", 2);
        at += 2;
    }
    return at;
}

static void begin(uint32_t slot, int op, int shape, const uint64_t* asked) {
    (void)slot;
    send_all(out, command(op == GET, shape, shapes[shape].rows, asked, given));
}

static void finish(uint32_t slot, int op, int shape) {
    (void)slot, (void)shape;
    char kind;
    long count = line(&kind);
    if (op != GET) return;
    for (long i = 0; i < count; ++i) {
        long bytes = line(&kind);
        if (bytes < 0) continue;
        need((size_t)bytes + 2);
        consume(in + in_from, (uint32_t)bytes);
        in_from += (size_t)bytes + 2;
    }
}

static void fill(void) {
    for (int shape = 0; shape < SHAPES; ++shape) {
        if (!is_shape_wanted(shape)) continue;
        uint32_t part = 16384 / shapes[shape].row_bytes, floats = shapes[shape].row_bytes / 4;
        uint64_t rows = work.table_bytes / shapes[shape].row_bytes;
        uint64_t* part_keys = malloc(part * sizeof *part_keys);
        float* values = malloc((size_t)part * shapes[shape].row_bytes);
        for (uint64_t first = 0; first < rows; first += part) {
            uint32_t n = (uint32_t)(rows - first < part ? rows - first : part);
            for (uint32_t k = 0; k < n; ++k) {
                part_keys[k] = first + k;
                for (uint32_t f = 0; f < floats; ++f) values[k * floats + f] = value_of(first + k, f);
            }
            send_all(out, command(0, shape, n, part_keys, values));
            finish(0, PUT, shape);
        }
        free(part_keys);
        free(values);
    }
}

int main(int argc, char** argv) {
    if (take_work(argc, argv) != 1) {
        fprintf(stderr, "usage: redis_rows [--ms N] [--table-mib N] [--only NAME]\n");
        return 2;
    }
    snprintf(socket_path, sizeof socket_path, "/tmp/redis-rows-%d.sock", (int)getpid());
    pid_t server = fork();
    if (server == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pin(SERVER_CPU);
        if (!freopen("/dev/null", "w", stdout)) _exit(1);
        execlp("redis-server", "redis-server", "--port", "0", "--unixsocket", socket_path, "--save", "", "--appendonly", "no", "--daemonize", "no", (char*)NULL);
        _exit(1);
    }
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strncpy(address.sun_path, socket_path, sizeof address.sun_path - 1);
    fd = socket(AF_UNIX, SOCK_STREAM, 0);
    for (int tries = 0; connect(fd, (struct sockaddr*)&address, sizeof address) != 0; ++tries) {
        if (tries > 500 || waitpid(server, NULL, WNOHANG) == server) stop("redis-server does not listen");
        usleep(10000);
    }
    prepare_client();
    fill();
    cells(server);
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    unlink(socket_path);
    return 0;
}
