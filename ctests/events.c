/* The host hears what the library has to say, and its user data is dropped exactly once. C99. */
#include <pthread.h>

#include "cluster.h"

typedef struct listener {
    pthread_mutex_t mutex;
    unsigned events;
    unsigned broken;
    unsigned drops;
    int32_t nested;
} listener;

static void on_event(void* user_data, const reclane_event* event) {
    listener* mine = (listener*)user_data;
    pthread_mutex_lock(&mine->mutex);
    ++mine->events;
    if (event->struct_size < sizeof *event || strlen(event->line) != event->line_length || event->level < 1 ||
        event->level > 5 || strstr(event->line, event->name) == NULL) {
        ++mine->broken;
    }
    mine->nested = (int32_t)reclane_set_event_sink(NULL, NULL);
    pthread_mutex_unlock(&mine->mutex);
}

static void drop(void* user_data) {
    ++((listener*)user_data)->drops;
}

static void traffic(void) {
    reclane_error error = RECLANE_INIT(reclane_error);
    cluster all;
    reclane_client* client = NULL;
    CHECK_OK(cluster_open(&all, 1, NULL, &error));
    CHECK_OK(reclane_client_open(all.options, &client, &error));
    reclane_client_close(client);
    cluster_close(&all);
}

int main(void) {
    reclane_error error = RECLANE_INIT(reclane_error);
    static listener first = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    static listener second = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    reclane_event_sink sink = RECLANE_INIT(reclane_event_sink);
    sink.user_data = &first;
    sink.drop_user_data = drop;
    CHECK_STATUS(RECLANE_STATUS_NULL_POINTER, reclane_set_event_sink(&sink, &error));
    sink.on_event = on_event;
    sink.level = 6;
    CHECK_STATUS(RECLANE_STATUS_INVALID_ARGUMENT, reclane_set_event_sink(&sink, &error));
    sink.level = RECLANE_LEVEL_TRACE;
    sink.struct_size = 8;
    CHECK_STATUS(RECLANE_STATUS_STRUCT_SIZE, reclane_set_event_sink(&sink, &error));
    sink.struct_size = (uint32_t)sizeof sink;
    CHECK(first.drops == 0);

    CHECK_OK(reclane_set_event_sink(&sink, &error));
    traffic();
    sink.user_data = &second;
    CHECK_OK(reclane_set_event_sink(&sink, &error));
    CHECK(first.drops == 1 && second.drops == 0);
    CHECK(first.events > 0 && first.broken == 0);
    CHECK(first.nested == RECLANE_STATUS_WOULD_DEADLOCK);
    const unsigned events = first.events;
    traffic();
    CHECK_OK(reclane_set_event_sink(NULL, &error));
    CHECK_OK(reclane_set_event_sink(NULL, &error));
    CHECK(second.drops == 1 && second.events > 0 && first.events == events);
    traffic();
    return check_end();
}
