/* The measured work on reclane, by its C interface: shards and clients in processes of their own.
 *
 *     reclane_rows [--ms N] [--table-mib N] [--only NAME] [--zipf S] [--registered] [--clients N] [--shards N] [--dies] [--died]
 *                  [name=value...]
 *
 * --registered: rows of PUT and UPDATE lie in a buffer of the library, and the server reads them there. --clients: so
 * many client processes on one core; each prints its own cells. --shards: so many servers on one core. --dies: a second
 * client is killed in the middle of each cell; --died: it was killed before the first one. Words name=value are options of both ends. The first line says how long
 * the client took to open, what memory the first server then had, and what one round of its scan without work takes. */
#include "rows.h"
#include <reclane/reclane.h>
#include <errno.h>
#include <sys/wait.h>

static reclane_client* client;
static reclane_buffer* buffer;
static uint32_t tables[SHAPES];
static reclane_request requests[SLOTS];
static const uint64_t* asked_by[SLOTS];
static int is_registered, shards = 1;

/* Rows of one PUT when tables are filled, and bytes from which on an answer grows while it is read. */
enum { PART = 8192, GROWS_FROM = 8192 };

/* Where small answers land. */
static float landed[SLOTS][GROWS_FROM / sizeof(float)];

/* What the first server tells of itself, in memory that all processes share. */
static volatile struct { uint64_t rounds, ns, ready; } * idle;

static void check(int status, const reclane_error* error, const char* what) {
    if (status >= 0) return;
    fprintf(stderr, "reclane_rows: %s: %s\n", what, error->message);
    exit(1);
}

static void set(reclane_options* options, const char* name, const char* value) {
    reclane_error error = RECLANE_INIT(reclane_error);
    check(reclane_options_set(options, name, value, &error), &error, name);
}

static void set_number(reclane_options* options, const char* name, unsigned value) {
    char text[16];
    snprintf(text, sizeof text, "%u", value);
    set(options, name, text);
}

static reclane_options* options_of(int count, char** words, uint32_t port) {
    reclane_error error = RECLANE_INIT(reclane_error);
    reclane_options* options = NULL;
    check(reclane_options_open(&options, &error), &error, "options");
    set(options, "qps-per-client-per-shard", "4");
    set(options, "slots-per-qp", "8");
    set(options, "max-kv-num-per-request", "1024");
    set(options, "hash-method", "simple_mod");
    for (int i = 0; i < count; ++i) {
        char text[300];
        snprintf(text, sizeof text, "%s", words[i]);
        char* equals = strchr(text, '=');
        if (!equals) continue;
        *equals = 0;
        set(options, text, equals + 1);
    }
    char name[32];
    snprintf(name, sizeof name, "rows-%d", (int)getpgrp());
    set(options, "rdma-namespace", name);
    set_number(options, "rdma-control-plane-port", port);
    set_number(options, "num-server-processes", (unsigned)shards);
    return options;
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Tells its port, and for ever what its poll thread did in the last tenth of a second. */
static void serve(int fd, int shard, uint32_t port, int count, char** words) {
    reclane_error error = RECLANE_INIT(reclane_error);
    reclane_server* server = NULL;
    reclane_options* options = options_of(count, words, port);
    set_number(options, "shard-id", (unsigned)shard);
    check(reclane_server_open(options, NULL, &server, &error), &error, "server");
    if (shard == 0) check(reclane_server_control_plane_port(server, &port, &error), &error, "port");
    if (write(fd, &port, sizeof port) != sizeof port) _exit(1);
    uint64_t rounds = 0, at = now_ns();
    for (;;) {
        usleep(50000);
        reclane_server_counters counters = RECLANE_INIT(reclane_server_counters);
        if (shard != 0 || reclane_server_stats(server, &counters, &error) < 0) continue;
        uint64_t later = now_ns();
        idle->rounds = counters.scan_rounds - rounds, idle->ns = later - at;
        rounds = counters.scan_rounds, at = later;
    }
}

static pid_t start_shards(uint32_t* port, int count, char** words) {
    pid_t first = 0;
    for (int shard = 0; shard < shards; ++shard) {
        int fds[2];
        if (pipe(fds) != 0) exit(1);
        pid_t pid = fork();
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            pin(SERVER_CPU);
            serve(fds[1], shard, *port, count, words);
        }
        close(fds[1]);
        if (read(fds[0], port, sizeof *port) != sizeof *port) {
            fprintf(stderr, "reclane_rows: shard %d ended\n", shard);
            exit(1);
        }
        if (shard == 0) first = pid;
    }
    return first;
}

static void fill(void) {
    reclane_error error = RECLANE_INIT(reclane_error);
    for (int i = 0; i < SHAPES; ++i) {
        if (!is_shape_wanted(i)) continue;
        uint32_t floats = shapes[i].row_bytes / 4;
        uint64_t rows = work.table_bytes / shapes[i].row_bytes;
        char name[32];
        snprintf(name, sizeof name, "rows-%u", shapes[i].row_bytes);
        reclane_table_options wanted = RECLANE_INIT(reclane_table_options);
        wanted.name = name, wanted.dim = floats, wanted.num_embeddings = rows, wanted.learning_rate = LEARNING_RATE;
        check(reclane_client_init_table(client, &wanted, &tables[i], &error), &error, "table");
        /* Many at a time: the library splits them over all slots. */
        uint64_t* part_keys = malloc(PART * sizeof *part_keys);
        float* part = malloc((size_t)PART * shapes[i].row_bytes);
        for (uint64_t first = 0; first < rows; first += PART) {
            uint64_t n = rows - first < PART ? rows - first : PART;
            for (uint64_t k = 0; k < n; ++k) {
                part_keys[k] = first + k;
                for (uint32_t f = 0; f < floats; ++f) part[k * floats + f] = value_of(first + k, f);
            }
            check(reclane_client_put(client, tables[i], part_keys, n, part, n * floats, &error), &error, "put");
        }
        free(part);
        free(part_keys);
    }
}

/* Small answers land in the caller's memory; large ones are read in place while they grow. */
static int grows(int shape) { return shapes[shape].rows * shapes[shape].row_bytes >= (uint32_t)GROWS_FROM; }

static void begin(uint32_t slot, int op, int shape, const uint64_t* asked) {
    reclane_error error = RECLANE_INIT(reclane_error);
    uint32_t rows = shapes[shape].rows, floats = shapes[shape].row_bytes / 4, table = tables[shape];
    reclane_request* request = &requests[slot];
    asked_by[slot] = asked;
    int status;
    if (op == GET && grows(shape)) status = reclane_client_submit_get_in_place(client, table, asked, rows, request, &error);
    else if (op == GET) status = reclane_client_submit_get(client, table, asked, rows, landed[slot], (size_t)rows * floats, request, &error);
    else if (is_registered && op == PUT) status = reclane_client_submit_put_from(client, table, asked, rows, buffer, 0, request, &error);
    else if (is_registered) status = reclane_client_submit_update_flat_from(client, table, asked, rows, buffer, 0, request, &error);
    else if (op == PUT) status = reclane_client_submit_put(client, table, asked, rows, given, (size_t)rows * floats, request, &error);
    else status = reclane_client_submit_update_flat(client, table, asked, rows, given, (size_t)rows * floats, request, &error);
    check(status, &error, "submit");
}

/* Rows are read while the rest is still gathered. */
static void read_rows(reclane_request request, int shape) {
    reclane_error error = RECLANE_INIT(reclane_error);
    size_t done = 0, ready = 0, total = shapes[shape].rows;
    const float* rows = NULL;
    while (done < total) {
        check(reclane_client_borrow(client, request, &rows, &ready, &total, &error), &error, "borrow");
        /* Right before the end fewer may be told than before; they stay readable. */
        if (ready <= done) {
            _mm_pause();
            continue;
        }
        consume((const char*)rows + done * shapes[shape].row_bytes, (uint32_t)(ready - done) * shapes[shape].row_bytes);
        done = ready;
    }
}

static void finish(uint32_t slot, int op, int shape) {
    reclane_error error = RECLANE_INIT(reclane_error);
    if (op == GET && grows(shape)) {
        read_rows(requests[slot], shape);
        check(reclane_client_revoke(client, requests[slot], &error), &error, "revoke");
        return;
    }
    check(reclane_client_finish(client, requests[slot], 0, &error), &error, "finish");
    if (op == GET) consume((const char*)landed[slot], shapes[shape].rows * shapes[shape].row_bytes);
}

static uint64_t resident_bytes(pid_t pid) {
    char path[64];
    unsigned long long total = 0, resident = 0;
    snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
    FILE* file = fopen(path, "r");
    if (file && fscanf(file, "%llu %llu", &total, &resident) != 2) resident = 0;
    if (file) fclose(file);
    return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void open_client(int count, char** words, uint32_t port, pid_t server) {
    reclane_error error = RECLANE_INIT(reclane_error);
    reclane_options* options = options_of(count, words, port);
    if (is_registered) set(options, "rdma-put-v2-transfer-mode", "read");
    uint64_t before = now_ns();
    check(reclane_client_open(options, &client, &error), &error, "client");
    double open_ms = (double)(now_ns() - before) / 1e6;
    usleep(160000); /* longer than the server's report */
    printf("{\"open_ms\":%.1f,\"server_bytes\":%llu,\"client_bytes\":%llu,\"round_ns\":%.1f}\n", open_ms,
           (unsigned long long)resident_bytes(server), (unsigned long long)resident_bytes(getpid()),
           idle->rounds ? (double)idle->ns / (double)idle->rounds : 0.0);
    fflush(stdout);
    if (!is_registered) return;
    check(reclane_buffer_open(client, ROWS_BYTES_MAX, &buffer, &error), &error, "buffer");
    memcpy(reclane_buffer_data(buffer), given, ROWS_BYTES_MAX);
}

/* A client of the same tables that does one request after the other, and dies in the middle of one. */
static void live_and_die(int count, char** words, uint32_t port) {
    reclane_error error = RECLANE_INIT(reclane_error);
    prepare_client();
    check(reclane_client_open(options_of(count, words, port), &client, &error), &error, "client");
    fill();
    draw_keys(work.table_bytes / shapes[0].row_bytes);
    uint64_t end = now_ns() + (uint64_t)(work.ms / 2 * 1e6);
    while (now_ns() < end) {
        begin(0, GET, 0, next_keys(1));
        finish(0, GET, 0);
    }
    begin(0, GET, 0, next_keys(1));
    kill(getpid(), SIGKILL);
}

int main(int argc, char** argv) {
    int clients = 1, left = 1, dies = 0, died = 0;
    argc = take_work(argc, argv);
    for (int i = 1; i < argc; ++i) {
        if (strcmp(argv[i], "--registered") == 0) is_registered = 1;
        else if (strcmp(argv[i], "--dies") == 0) dies = 1;
        else if (strcmp(argv[i], "--died") == 0) dies = died = 1;
        else if (strcmp(argv[i], "--clients") == 0 && i + 1 < argc) clients = atoi(argv[++i]);
        else if (strcmp(argv[i], "--shards") == 0 && i + 1 < argc) shards = atoi(argv[++i]);
        else argv[left++] = argv[i];
    }
    setpgid(0, 0);
    char** words = argv + 1;
    int count = left - 1;
    idle = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    uint32_t port = 0;
    pid_t server = start_shards(&port, count, words), self = getpid(), pids[64];
    int children = 0;
    for (int i = 1; i < clients && i < 64; ++i) {
        pid_t pid = fork();
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            break;
        }
        pids[children++] = pid;
    }
    pid_t victim = 0;
    if (dies && getpid() == self) {
        pid_t pid = victim = fork();
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            live_and_die(count, words, port);
        }
    }
    prepare_client();
    open_client(count, words, port, server);
    fill();
    if (died && victim) {
        waitpid(victim, NULL, 0);
        usleep(300000); /* until everybody has heard of it */
    }
    /* All clients begin together. */
    __atomic_fetch_add(&idle->ready, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&idle->ready, __ATOMIC_SEQ_CST) < (uint64_t)clients) usleep(1000);
    cells(server);
    if (getpid() != self) _exit(0);
    for (int i = 0; i < children; ++i) waitpid(pids[i], NULL, 0);
    reclane_client_close(client);
    kill(server, SIGKILL);
    return 0;
}
