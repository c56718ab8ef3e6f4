/* Rows of a table over UCX: the same requests that reclane is measured with, as somebody would write them on UCX's own
 * calls. Two ways: `am`, a request and an answer are active messages; `put`, each side writes into slots of the other
 * one's memory, payload first, a fence, then a word.
 *
 *     ucx_rows am|put none|peer [--ms N] [--table-mib N] [--only NAME]
 *
 * The second argument is the error handling mode of the endpoints. What carries it is chosen by UCX_TLS. */
#define PLAIN_TABLE
#include "rows.h"
#include <sys/socket.h>
#include <sys/wait.h>
#include <ucp/api/ucp.h>

/* Of a slot: payload, then header and word in a line of their own; not a power of two, for the cache's sets. */
#define SLOT_BYTES ((PAYLOAD_MAX + 63) / 64 * 64 + 64 + 64)
#define HEADER_AT (SLOT_BYTES - 64)
#define WORD_AT (SLOT_BYTES - 8)

typedef struct { uint16_t op_slot, rows, row_bytes, pad; } header_t;
static uint32_t slot_of(const header_t* h) { return h->op_slot & 0xff; }
static int op_of(const header_t* h) { return h->op_slot >> 8; }
/* An answer repeats the header with `pad` set. */
static uint32_t payload_bytes_of(const header_t* h) {
    uint32_t rows = (uint32_t)h->rows * h->row_bytes;
    if (h->pad) return op_of(h) == GET ? rows : 0;
    return (uint32_t)h->rows * 8 + (op_of(h) == GET ? 0 : rows);
}

static void die(const char* what, ucs_status_t status) {
    fprintf(stderr, "ucx_rows: %s: %s\n", what, ucs_status_string(status));
    exit(1);
}
#define CHECK(call) do { ucs_status_t s_ = (call); if (s_ != UCS_OK) die(#call, s_); } while (0)

static ucp_context_h context;
static ucp_worker_h worker;
static ucp_ep_h peer;
static int is_put, is_server, error_mode;

/* Own slots, which the peer writes with `put`; bounce memory for what is sent. */
static uint8_t *own_slots, *out_slots;
static ucp_mem_h own_memory, out_memory;
static ucp_rkey_h remote_key;
static uint64_t remote_slots;

/* --- UCX ---------------------------------------------------------------------------------------------------------- */

static void forget(ucs_status_ptr_t request) {
    if (request == NULL) return;
    if (UCS_PTR_IS_ERR(request)) die("an operation", UCS_PTR_STATUS(request));
    ucp_request_free(request); /* frees itself when it is complete */
}

static void failed(void* arg, ucp_ep_h ep, ucs_status_t status) {
    (void)arg, (void)ep;
    if (status != UCS_ERR_CONNECTION_RESET && status != UCS_ERR_ENDPOINT_TIMEOUT) fprintf(stderr, "ucx_rows: endpoint: %s\n", ucs_status_string(status));
}

/* What an active message does when it is there: at the server it is executed and answered, at the client it is noted. */
static void handle(const header_t* h, const uint8_t* payload);

typedef struct { header_t header; } receive_t;
static void received(void* request, ucs_status_t status, size_t length, void* user) {
    (void)length;
    receive_t* r = user;
    if (status != UCS_OK) die("receiving", status);
    handle(&r->header, own_slots + (size_t)slot_of(&r->header) * SLOT_BYTES);
    free(r);
    if (request) ucp_request_free(request);
}

static ucs_status_t on_message(void* arg, const void* header, size_t header_bytes, void* data, size_t bytes, const ucp_am_recv_param_t* param) {
    (void)arg;
    header_t h;
    if (header_bytes != sizeof h) return UCS_OK;
    memcpy(&h, header, sizeof h);
    if (!(param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV)) {
        handle(&h, data);
        return UCS_OK;
    }
    receive_t* r = malloc(sizeof *r);
    r->header = h;
    ucp_request_param_t p = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL, .cb.recv_am = received, .user_data = r};
    ucs_status_ptr_t q = ucp_am_recv_data_nbx(worker, data, own_slots + (size_t)slot_of(&h) * SLOT_BYTES, bytes, &p);
    if (UCS_PTR_IS_ERR(q)) die("receiving", UCS_PTR_STATUS(q));
    return UCS_OK;
}

static void map(size_t bytes, uint8_t** place, ucp_mem_h* memory) {
    ucp_mem_map_params_t p = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS, .length = bytes, .flags = UCP_MEM_MAP_ALLOCATE};
    CHECK(ucp_mem_map(context, &p, memory));
    ucp_mem_attr_t a = {.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS};
    CHECK(ucp_mem_query(*memory, &a));
    *place = a.address;
    memset(*place, 0, bytes);
}

static void exchange(int fd, const void* mine, size_t bytes, void** theirs, size_t* their_bytes) {
    uint64_t n = bytes, m = 0;
    if (write(fd, &n, 8) != 8 || write(fd, mine, bytes) != (ssize_t)bytes || read(fd, &m, 8) != 8) { fprintf(stderr, "ucx_rows: the other process ended\n"); exit(1); }
    *theirs = malloc(m);
    for (size_t got = 0; got < m;) {
        ssize_t r = read(fd, (char*)*theirs + got, m - got);
        if (r <= 0) { fprintf(stderr, "ucx_rows: the other process ended\n"); exit(1); }
        got += (size_t)r;
    }
    *their_bytes = m;
}

static void connect_peer(int fd) {
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED, .features = UCP_FEATURE_AM | UCP_FEATURE_RMA};
    ucp_config_t* config;
    CHECK(ucp_config_read(NULL, NULL, &config));
    CHECK(ucp_init(&params, config, &context));
    ucp_config_release(config);
    ucp_worker_params_t w = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE, .thread_mode = UCS_THREAD_MODE_SINGLE};
    CHECK(ucp_worker_create(context, &w, &worker));
    ucp_am_handler_param_t am = {.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_FLAGS, .id = 1, .cb = on_message, .flags = UCP_AM_FLAG_WHOLE_MSG};
    CHECK(ucp_worker_set_am_recv_handler(worker, &am));
    map((size_t)SLOTS * SLOT_BYTES, &own_slots, &own_memory);
    map((size_t)SLOTS * SLOT_BYTES, &out_slots, &out_memory);

    ucp_address_t* address;
    size_t bytes;
    void* theirs;
    CHECK(ucp_worker_get_address(worker, &address, &bytes));
    size_t their_bytes;
    exchange(fd, address, bytes, &theirs, &their_bytes);
    ucp_ep_params_t e = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER, .address = theirs, .err_mode = error_mode ? UCP_ERR_HANDLING_MODE_PEER : UCP_ERR_HANDLING_MODE_NONE, .err_handler.cb = failed};
    CHECK(ucp_ep_create(worker, &e, &peer));
    void *key, *slots;
    CHECK(ucp_rkey_pack(context, own_memory, &key, &bytes));
    exchange(fd, key, bytes, &theirs, &their_bytes);
    CHECK(ucp_ep_rkey_unpack(peer, theirs, &remote_key));
    uint64_t place = (uint64_t)(uintptr_t)own_slots;
    exchange(fd, &place, 8, &slots, &their_bytes);
    memcpy(&remote_slots, slots, 8);
}

/* Sends what lies in the slot's bounce memory. */
static uint64_t put_words[SLOTS];
static void send_slot(const header_t* h) {
    uint8_t* place = out_slots + (size_t)slot_of(h) * SLOT_BYTES;
    if (!is_put) {
        static header_t kept[SLOTS];
        kept[slot_of(h)] = *h;
        ucp_request_param_t p = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = 0};
        forget(ucp_am_send_nbx(peer, 1, &kept[slot_of(h)], sizeof *h, place, payload_bytes_of(h), &p));
        return;
    }
    ucp_request_param_t p = {.op_attr_mask = 0};
    uint64_t to = remote_slots + (uint64_t)slot_of(h) * SLOT_BYTES;
    /* The payload ends where the header begins, so that both are one write. */
    size_t lines = ((size_t)payload_bytes_of(h) + 63) / 64 * 64;
    memcpy(place + HEADER_AT, h, sizeof *h);
    forget(ucp_put_nbx(peer, place + HEADER_AT - lines, lines + sizeof *h, to + HEADER_AT - lines, remote_key, &p));
    CHECK(ucp_worker_fence(worker));
    memcpy(place + WORD_AT, &put_words[slot_of(h)], 8);
    forget(ucp_put_nbx(peer, place + WORD_AT, 8, to + WORD_AT, remote_key, &p));
}

static uint8_t* payload_place(uint32_t slot, uint32_t bytes) {
    uint8_t* place = out_slots + (size_t)slot * SLOT_BYTES;
    return is_put ? place + HEADER_AT - ((size_t)bytes + 63) / 64 * 64 : place;
}

/* --- the server --------------------------------------------------------------------------------------------------- */

static void serve_one(const header_t* h, const uint8_t* payload) {
    header_t answer = *h;
    answer.pad = 1;
    const uint64_t* asked = (const uint64_t*)payload;
    execute(op_of(h), h->rows, h->row_bytes, asked, (const float*)(asked + h->rows), payload_place(slot_of(h), payload_bytes_of(&answer)));
    send_slot(&answer);
}

static void serve(int fd) {
    uint64_t expected[SLOTS];
    for (int i = 0; i < SLOTS; ++i) expected[i] = 1;
    for (unsigned round = 0;; ++round) {
        ucp_worker_progress(worker);
        if (is_put) {
            for (int slot = 0; slot < SLOTS; ++slot) {
                uint8_t* place = own_slots + (size_t)slot * SLOT_BYTES;
                if (__atomic_load_n((uint64_t*)(place + WORD_AT), __ATOMIC_ACQUIRE) != expected[slot]) continue;
                header_t h;
                memcpy(&h, place + HEADER_AT, sizeof h);
                put_words[slot] = expected[slot]++;
                serve_one(&h, place + HEADER_AT - ((size_t)payload_bytes_of(&h) + 63) / 64 * 64);
            }
        }
        char byte;
        if (round % 65536 == 0 && recv(fd, &byte, 1, MSG_DONTWAIT) == 0) _exit(0);
    }
}

/* --- the client --------------------------------------------------------------------------------------------------- */

static void begin(uint32_t slot, int op, int shape, const uint64_t* asked) {
    uint32_t rows = shapes[shape].rows, row_bytes = shapes[shape].row_bytes;
    header_t h = {.op_slot = (uint16_t)(op << 8 | (int)slot), .rows = (uint16_t)rows, .row_bytes = (uint16_t)row_bytes};
    uint8_t* place = payload_place(slot, payload_bytes_of(&h));
    memcpy(place, asked, rows * 8);
    if (op != GET) memcpy(place + rows * 8, given, (size_t)rows * row_bytes);
    put_words[slot]++;
    send_slot(&h);
}

static char answered[SLOTS];
static void finish(uint32_t slot, int op, int shape) {
    uint32_t answer_bytes = shapes[shape].rows * shapes[shape].row_bytes;
    if (is_put) {
        uint8_t* place = own_slots + (size_t)slot * SLOT_BYTES;
        while (__atomic_load_n((uint64_t*)(place + WORD_AT), __ATOMIC_ACQUIRE) != put_words[slot]) ucp_worker_progress(worker);
        if (op == GET) consume(place + HEADER_AT - (answer_bytes + 63) / 64 * 64, answer_bytes);
        return;
    }
    while (!answered[slot]) ucp_worker_progress(worker);
    answered[slot] = 0;
}

static void handle(const header_t* h, const uint8_t* payload) {
    if (is_server) {
        serve_one(h, payload);
        return;
    }
    /* Eager data is there during the call only, so it is read here. */
    if (op_of(h) == GET) consume(payload, payload_bytes_of(h));
    answered[slot_of(h)] = 1;
}

int main(int argc, char** argv) {
    if (take_work(argc, argv) != 3) {
        fprintf(stderr, "usage: ucx_rows am|put none|peer [--ms N] [--table-mib N] [--only NAME]\n");
        return 2;
    }
    is_put = strcmp(argv[1], "put") == 0;
    error_mode = strcmp(argv[2], "peer") == 0;
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) != 0) {
        perror("socketpair");
        return 1;
    }
    pid_t server = fork();
    if (server == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(fds[0]);
        pin(SERVER_CPU);
        is_server = 1;
        fill_tables();
        connect_peer(fds[1]);
        char go = 1;
        if (write(fds[1], &go, 1) != 1) return 1;
        serve(fds[1]);
    }
    close(fds[1]);
    prepare_client();
    connect_peer(fds[0]);
    char go;
    for (ssize_t r = 0; r != 1;) {
        ucp_worker_progress(worker);
        r = recv(fds[0], &go, 1, MSG_DONTWAIT);
        if (r == 0) {
            fprintf(stderr, "ucx_rows: the server ended\n");
            return 1;
        }
    }
    cells(server);
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    /* Not by way of UCX's own clean-up, which waits for the peer. */
    _exit(0);
}
