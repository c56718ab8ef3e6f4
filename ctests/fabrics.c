/* fabric=verbs where it cannot be had: an error with a reason, and shm works beside it. What libibverbs there is, is
 * the caller's business: see verbs_library.sh. Prints the reason. */
#include "cluster.h"

int main(void) {
    reclane_error error = RECLANE_INIT(reclane_error);
    reclane_options* options = NULL;
    reclane_server* server = NULL;
    NEED_OK(cluster_options(1, &options, &error));
    NEED_OK(reclane_options_set(options, "fabric", "verbs", &error));
    /* Twice: a library that could not be used is looked for again. */
    for (int i = 0; i < 2; ++i) {
        CHECK_STATUS(RECLANE_STATUS_FABRIC_UNAVAILABLE, reclane_server_open(options, NULL, &server, &error));
        CHECK(server == NULL);
    }
    printf("%s\n", error.message);
    reclane_options_close(options);

    cluster all;
    reclane_client* client = NULL;
    NEED_OK(cluster_open(&all, 1, NULL, &error));
    NEED_OK(reclane_client_open(all.options, &client, &error));
    reclane_client_close(client);
    cluster_close(&all);
    return check_end();
}
