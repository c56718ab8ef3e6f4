/* What the C programs that are measured have in common: the work, the table, the clock and what is printed. Included
 * once by each of them, after which they define begin() and finish() and call cells(). */
#ifndef ROWS_H
#define ROWS_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

enum { GET, PUT, UPDATE, OPS };
static const char* const op_names[OPS] = {"get", "put", "update"};
enum { SHAPES = 3, DEPTHS = 3 };
static const struct { uint32_t rows, row_bytes; } shapes[SHAPES] = {{1, 64}, {32, 512}, {512, 128}};
static const int depths[DEPTHS] = {1, 8, 32};

#define SLOTS 32
#define ROWS_BYTES_MAX (512 * 128)
#define PAYLOAD_MAX (512 * (8 + 128))
/* So small that no gradient changes a row: the rows can be checked. */
#define LEARNING_RATE 1.17549435e-38f
#define SERVER_CPU 1
#define CLIENT_CPU 0

/* What one run is told on its command line. */
static struct {
    double ms;           /* of each cell */
    size_t table_bytes;  /* of each of the three tables */
    const char* filter;  /* only cells whose name contains this */
    double zipf;         /* skew of the keys; 0: uniform */
} work = {30, 64u << 20, "", 0};

static void pin(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0) perror("sched_setaffinity");
}

/* CPU time of a process so far; 0: this one. */
static uint64_t cpu_ns(pid_t pid) {
    struct timespec t;
    clockid_t id = pid ? (clockid_t)((~(unsigned)pid << 3) | 2) : CLOCK_PROCESS_CPUTIME_ID;
    return clock_gettime(id, &t) == 0 ? (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec : 0;
}

static double ns_per_tick;
static void calibrate(void) {
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    uint64_t first = __rdtsc();
    double ns;
    do {
        clock_gettime(CLOCK_MONOTONIC, &b);
        ns = (double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec);
    } while (ns < 20e6);
    ns_per_tick = ns / (double)(__rdtsc() - first);
}

static void* huge(size_t bytes) {
    void* p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    madvise(p, bytes, MADV_HUGEPAGE);
    return p;
}

/* What key's row holds at first. */
static float value_of(uint64_t key, uint32_t at) { return (float)((key & 0xffffff) + at); }

/* --- keys --------------------------------------------------------------------------------------------------------- */

#define KEYS (1u << 20)
static uint64_t* keys;
static size_t key_next;
static float* given;

/* Draws keys: uniform, or the k-th most frequent with a probability of about 1 / k^zipf. */
static void draw_keys(uint64_t below) {
    uint64_t state = 42;
    double n = (double)below, s = work.zipf;
    for (size_t i = 0; i < KEYS; ++i) {
        uint64_t z = state += 0x9e3779b97f4a7c15u;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        z ^= z >> 31;
        if (s == 0) {
            keys[i] = (uint64_t)(((unsigned __int128)z * below) >> 64);
            continue;
        }
        double u = (double)(z >> 11) / 9007199254740992.0;
        double rank = fabs(s - 1) < 1e-9 ? exp(u * log(n + 1)) : pow((pow(n + 1, 1 - s) - 1) * u + 1, 1 / (1 - s));
        /* Frequent keys do not lie beside each other. */
        keys[i] = ((uint64_t)rank - 1) * 0x9e3779b97f4a7c15u % below;
    }
    key_next = 0;
}

static const uint64_t* next_keys(uint32_t rows) {
    if (key_next + rows > KEYS) key_next = 0;
    const uint64_t* here = keys + key_next;
    key_next += rows;
    return here;
}

/* Reads a word of every line, as somebody who uses rows does. */
static volatile uint32_t consumed;
static void consume(const void* rows, uint32_t bytes) {
    uint32_t sum = 0;
    for (uint32_t at = 0; at < bytes; at += 64) sum += *(const uint32_t*)((const char*)rows + at);
    consumed = sum;
}

/* --- the plain table of those that bring none of their own ---------------------------------------------------------- */

#ifdef PLAIN_TABLE
static float* tables[SHAPES];
static uint64_t table_rows[SHAPES];

static void fill_tables(void) {
    for (int i = 0; i < SHAPES; ++i) {
        tables[i] = huge(work.table_bytes);
        table_rows[i] = work.table_bytes / shapes[i].row_bytes;
        uint32_t floats = shapes[i].row_bytes / 4;
        for (uint64_t key = 0; key < table_rows[i]; ++key)
            for (uint32_t f = 0; f < floats; ++f) tables[i][key * floats + f] = value_of(key, f);
    }
}

#define AHEAD 16
/* A key is the number of its row: no index is asked. */
static void execute(int op, uint32_t rows, uint32_t row_bytes, const uint64_t* asked, const float* rows_in, uint8_t* out) {
    int t = row_bytes == 64 ? 0 : row_bytes == 512 ? 1 : 2;
    uint32_t floats = row_bytes / 4;
    for (uint32_t i = 0; i < rows; ++i) {
        if (i + AHEAD < rows && asked[i + AHEAD] < table_rows[t]) {
            const char* next = (const char*)(tables[t] + asked[i + AHEAD] * floats);
            for (uint32_t line = 0; line < row_bytes; line += 64) __builtin_prefetch(next + line);
        }
        if (asked[i] >= table_rows[t]) continue;
        float* row = tables[t] + asked[i] * floats;
        const float* in = rows_in + (size_t)i * floats;
        if (op == GET) memcpy(out + (size_t)i * row_bytes, row, row_bytes);
        else if (op == PUT) memcpy(row, in, row_bytes);
        else
            for (uint32_t f = 0; f < floats; ++f) row[f] -= LEARNING_RATE * in[f];
    }
}
#endif

/* --- measuring ---------------------------------------------------------------------------------------------------- */

/* Begins a request in a slot; ends the one of a slot, and uses its rows. */
static void begin(uint32_t slot, int op, int shape, const uint64_t* asked);
static void finish(uint32_t slot, int op, int shape);

#define SAMPLES (1u << 22)
#define RATES 4096
static uint32_t* samples;
static int by_sample(const void* a, const void* b) {
    uint32_t x = *(const uint32_t*)a, y = *(const uint32_t*)b;
    return (x > y) - (x < y);
}
static int by_rate(const void* a, const void* b) {
    double x = *(const double*)a, y = *(const double*)b;
    return (x > y) - (x < y);
}

typedef struct { uint32_t n; size_t slices; uint64_t requests, cpu_client, cpu_server; double mean, rates[RATES]; } measured_t;

/* CPU time that anybody has spent on the two processors so far. */
static uint64_t busy_ns(void) {
    unsigned long long total = 0, v[8];
    char name[16], rest[256];
    FILE* file = fopen("/proc/stat", "r");
    if (!file) return 0;
    while (fscanf(file, "%15s %llu %llu %llu %llu %llu %llu %llu %llu%255[^\n]", name, &v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &v[6], &v[7], rest) == 10)
        if (strcmp(name, "cpu0") == 0 || strcmp(name, "cpu1") == 0) total += v[0] + v[1] + v[2] + v[5] + v[6] + v[7];
    fclose(file);
    return (uint64_t)total * 1000000000u / (uint64_t)sysconf(_SC_CLK_TCK);
}

static uint64_t wall_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Of all windows in which something was measured: their length, what was spent in them, and our own part of it. */
static uint64_t windows_ns, windows_busy_ns, windows_own_ns;

/* With several requests under way one of so many is timed: to read the counter twice and keep the figure takes as long as
 * half of a small request. Odd, so that each slot has its turn. */
enum { TIMED_EVERY = 7 };

/* Requests for so long, after an eighth of that to warm up. The rate is the median of slices of 8 ms. */
static void measure(pid_t server, int op, int shape, int depth, measured_t* m) {
    uint64_t wall = 0, busy = 0;
    uint64_t begun[SLOTS] /* 0: not timed */, total = 0, before = 0, in_slice = 0, slice_start = 0;
    uint64_t slice = (uint64_t)((work.ms < 24 ? work.ms / 3 : 8) * 1e6 / ns_per_tick);
    uint64_t from = __rdtsc() + (uint64_t)(work.ms / 8 * 1e6 / ns_per_tick), end = from + (uint64_t)(work.ms * 1e6 / ns_per_tick);
    memset(m, 0, sizeof *m);
    uint32_t rows = shapes[shape].rows, slot = 0, untimed = 0;
    for (;; ++total) {
        if (total >= (uint64_t)depth) {
            finish(slot, op, shape);
            ++in_slice;
            uint64_t t = begun[slot] ? __rdtsc() : 0;
            if (t >= from) {
                if (slice_start == 0) {
                    wall = wall_ns(), busy = busy_ns();
                    m->cpu_client = cpu_ns(0), m->cpu_server = cpu_ns(server), before = total, in_slice = 0, slice_start = __rdtsc();
                } else {
                    if (m->n < SAMPLES) samples[m->n++] = (uint32_t)fmin((double)(t - begun[slot]) * ns_per_tick, 4e9);
                    if (t >= slice_start + slice && m->slices < RATES) {
                        m->rates[m->slices++] = (double)in_slice / ((double)(t - slice_start) * ns_per_tick) * 1e9;
                        slice_start = t, in_slice = 0;
                    }
                    if (t >= end) break;
                }
            }
        }
        untimed = depth == 1 || untimed + 1 == TIMED_EVERY ? 0 : untimed + 1;
        begun[slot] = untimed == 0 ? __rdtsc() : 0;
        begin(slot, op, shape, next_keys(rows));
        slot = slot + 1 == (uint32_t)depth ? 0 : slot + 1;
    }
    m->requests = total - before;
    m->cpu_client = cpu_ns(0) - m->cpu_client, m->cpu_server = cpu_ns(server) - m->cpu_server;
    wall = wall_ns() - wall;
    m->mean = (double)m->requests * 1e9 / (double)wall;
    windows_ns += wall, windows_busy_ns += busy_ns() - busy, windows_own_ns += m->cpu_client + m->cpu_server;
    /* What is still under way: all but the one that was finished last. */
    for (uint64_t i = total - (uint64_t)depth + 1; i < total; ++i) finish((uint32_t)(i % (uint64_t)depth), op, shape);
}

static void cell(pid_t server, int op, int shape, int depth) {
    static measured_t m;
    draw_keys(work.table_bytes / shapes[shape].row_bytes);
    measure(server, op, shape, depth, &m);
    qsort(samples, m.n, sizeof *samples, by_sample);
    qsort(m.rates, m.slices, sizeof *m.rates, by_rate);
    printf("{\"op\":\"%s\",\"rows\":%u,\"row_bytes\":%u,\"depth\":%d,\"p50_ns\":%u,\"p99_ns\":%u,\"per_s\":%.0f,"
           "\"mean_per_s\":%.0f,\"max_ns\":%u,\"cpu_client_ns\":%llu,\"cpu_server_ns\":%llu,\"requests\":%llu}\n",
           op_names[op], shapes[shape].rows, shapes[shape].row_bytes, depth, m.n ? samples[m.n / 2] : 0,
           m.n ? samples[(uint64_t)m.n * 99 / 100] : 0, m.slices ? m.rates[m.slices / 2] : 0.0, m.mean, m.n ? samples[m.n - 1] : 0,
           (unsigned long long)m.cpu_client, (unsigned long long)m.cpu_server, (unsigned long long)m.requests);
    fflush(stdout);
}

/* Whether the filter names a cell. One that ends with '$' names the end. */
static int is_wanted(int op, int shape, int d) {
    char name[64];
    snprintf(name, sizeof name, "%s_%ux%u_d%d", op_names[op], shapes[shape].rows, shapes[shape].row_bytes, depths[d]);
    size_t length = strlen(work.filter), whole = strlen(name);
    if (length == 0 || work.filter[length - 1] != '$') return strstr(name, work.filter) != NULL;
    return whole >= length - 1 && strncmp(name + whole - (length - 1), work.filter, length - 1) == 0;
}

__attribute__((unused)) static int is_shape_wanted(int shape) {
    for (int op = 0; op < OPS; ++op)
        for (int d = 0; d < DEPTHS; ++d)
            if (is_wanted(op, shape, d)) return 1;
    return 0;
}

/* All cells that are wanted, and how much of the two processors others took meanwhile. */
static void cells(pid_t server) {
    for (int op = 0; op < OPS; ++op)
        for (int shape = 0; shape < SHAPES; ++shape)
            for (int d = 0; d < DEPTHS; ++d)
                if (is_wanted(op, shape, d)) cell(server, op, shape, depths[d]);
    uint64_t foreign = windows_busy_ns > windows_own_ns ? windows_busy_ns - windows_own_ns : 0;
    printf("{\"foreign\":%.3f}\n", windows_ns ? (double)foreign / (2.0 * (double)windows_ns) : 0.0);
}

static void prepare_client(void) {
    pin(CLIENT_CPU);
    calibrate();
    samples = huge(SAMPLES * sizeof *samples);
    memset(samples, 1, SAMPLES * sizeof *samples);
    keys = huge(KEYS * sizeof *keys);
    given = huge(ROWS_BYTES_MAX);
    for (size_t i = 0; i < ROWS_BYTES_MAX / 4; ++i) given[i] = 1;
}

/* Takes --ms, --table-mib, --table-kib, --only, --zipf from the arguments; the rest is left. Returns how many are left. */
static int take_work(int argc, char** argv) {
    int left = 1;
    for (int i = 1; i < argc; ++i) {
        const char* value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--ms") == 0) work.ms = atof(value), ++i;
        else if (strcmp(argv[i], "--table-mib") == 0) work.table_bytes = (size_t)atol(value) << 20, ++i;
        else if (strcmp(argv[i], "--table-kib") == 0) work.table_bytes = (size_t)atol(value) << 10, ++i;
        else if (strcmp(argv[i], "--only") == 0) work.filter = value, ++i;
        else if (strcmp(argv[i], "--zipf") == 0) work.zipf = atof(value), ++i;
        else argv[left++] = argv[i];
    }
    return left;
}

#endif
