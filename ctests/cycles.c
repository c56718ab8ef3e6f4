/* Opening and closing, many times: no descriptor, no thread and no memory stays behind. C99 with POSIX.
 * Usage: cycles [COUNT]; below 200, and under a sanitizer, which keeps what was freed for a while, the memory is not
 * judged by its size (valgrind and the sanitizer name what leaks). */
#include <dirent.h>
#include <stdlib.h>
#include <unistd.h>

#include "cluster.h"

#define DIM 4

#if defined(__SANITIZE_ADDRESS__)
#define SIZE_TELLS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SIZE_TELLS 0
#endif
#endif
#ifndef SIZE_TELLS
#define SIZE_TELLS 1
#endif

static int entries(const char* path) {
    int count = 0;
    DIR* directory = opendir(path);
    if (directory == NULL)
        return -1;
    while (readdir(directory) != NULL)
        ++count;
    closedir(directory);
    return count;
}

static long resident_kib(void) {
    long pages = 0;
    long total = 0;
    FILE* file = fopen("/proc/self/statm", "r");
    if (file == NULL)
        return -1;
    if (fscanf(file, "%ld %ld", &total, &pages) != 2)
        pages = -1;
    fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static int one_client(const cluster* all) {
    reclane_error error = RECLANE_INIT(reclane_error);
    reclane_client* client = NULL;
    reclane_buffer* buffer = NULL;
    reclane_request request = 0;
    uint32_t table = 0;
    const uint64_t key = 9;
    float row[DIM] = {1, 2, 3, 4};
    if (!CHECK_OK(reclane_client_open(all->options, &client, &error)))
        return 0;
    CHECK_OK(make_table(client, "rows", DIM, RECLANE_OPTIMIZER_ADD, &table, &error));
    CHECK_OK(reclane_buffer_open(client, 4096, &buffer, &error));
    CHECK_OK(reclane_client_put(client, table, &key, 1, row, DIM, &error));
    CHECK_OK(reclane_client_submit_get_into(client, table, &key, 1, buffer, 0, &request, &error));
    CHECK_OK(reclane_client_wait(client, request, 0, &error));
    CHECK(memcmp(reclane_buffer_data(buffer), row, sizeof row) == 0);
    CHECK_OK(reclane_client_revoke(client, request, &error));
    /* Left open on purpose: closing the client ends it. */
    CHECK_OK(reclane_client_submit_get_in_place(client, table, &key, 1, &request, &error));
    reclane_client_close(client);
    reclane_buffer_close(buffer);
    return 1;
}

static int one_server(void) {
    reclane_error error = RECLANE_INIT(reclane_error);
    cluster all;
    if (!CHECK_OK(cluster_open(&all, 1, NULL, &error)))
        return 0;
    cluster_close(&all);
    return 1;
}

static int one_refusal(const cluster* all) {
    reclane_error error = RECLANE_INIT(reclane_error);
    reclane_client* client = NULL;
    CHECK_OK(reclane_options_set(all->options, "deployment-id", "another", &error));
    CHECK(reclane_client_open(all->options, &client, &error) < 0 && client == NULL);
    CHECK_OK(reclane_options_set(all->options, "deployment-id", "reclane", &error));
    return 1;
}

int main(int argc, char** argv) {
    const int cycles = argc > 1 ? atoi(argv[1]) : 1000;
    const int warm_up = cycles >= 200 ? 100 : 2;
    reclane_error error = RECLANE_INIT(reclane_error);
    cluster all;
    int files = 0;
    int threads = 0;
    long memory = 0;
    NEED_OK(cluster_open(&all, 1, NULL, &error));
    for (int i = 0; i < cycles + warm_up; ++i) {
        if (i == warm_up) {
            files = entries("/proc/self/fd");
            threads = entries("/proc/self/task");
            memory = resident_kib();
        }
        if (!one_client(&all))
            break;
        if (i % 10 == 0 && (!one_server() || !one_refusal(&all)))
            break;
    }
    /* The server lets a client's lanes go when it hears that the client left: a little after the client's close. */
    int files_now = entries("/proc/self/fd");
    int threads_now = entries("/proc/self/task");
    for (int i = 0; i < 2000 && (files_now > files || threads_now > threads); ++i) {
        usleep(10000);
        files_now = entries("/proc/self/fd");
        threads_now = entries("/proc/self/task");
    }
    const long memory_now = resident_kib();
    printf("descriptors %d -> %d, threads %d -> %d, resident KiB %ld -> %ld\n", files, files_now, threads, threads_now,
           memory, memory_now);
    CHECK(files_now <= files);
    CHECK(threads_now <= threads);
    /* One cycle that kept one page each would show as 4000 KiB. */
    if (cycles >= 200 && SIZE_TELLS)
        CHECK(memory_now - memory < 3000);
    cluster_close(&all);
    return check_end();
}
