// A stand-in for libibverbs.so.1, for tests: two devices in one process that move bytes between its own queue pairs,
// and that have the faults and link layers which Soft-RoCE cannot show. What it does wrong is said by RECLANE_STAND_IN,
// words with spaces between:
//
//   ib            ports are InfiniBand, with LIDs
//   v1            addresses of type RoCE v1 only
//   mtu=N         the second device's port has this ibv_mtu (1 to 5)
//   qps=N         N queue pairs, then ENOMEM; cqs=N: completion queues, whether they were destroyed or not
//   sges=N        no queue pair with more pieces for a request than N
//   inline=N      no queue pair with more inline bytes than N
//   mrs=N         N memory regions, then ENOMEM
//   post=N        the N-th request that is posted is refused with ENOMEM
//   deaf          the peer acknowledges nothing: requests stay under way until the queue pair goes to ERR
//   lost          completions of flushed work get lost
//   overrun=N     after N completions the completion queue has overrun
//   fatal=N       after N completions the device fails
//
// Everything is under one lock; a post is executed before it returns.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

enum { DEVICES = 2, QPS = 4096, MRS = 4096, CQES = 65536, RECVS = 4096, DEPTH = 4096 };

struct context {
    struct verbs_context whole;  // the library looks for its query_port
    int device;
    int wake;
};
struct region {
    struct ibv_mr mr;
    uint64_t iova;
    int access;
    int live;
};
struct queue {
    struct ibv_cq cq;
    struct ibv_wc* all;
    unsigned head, tail;
    int armed, wake;
};
struct pair {
    struct ibv_qp qp;
    int live;
    struct ibv_qp_attr attr;
    unsigned max_send, max_sge, max_recv, sent;
    int sig_all;
    uint64_t recvs[RECVS];
    unsigned recv_head, recv_tail;
    struct ibv_wc waiting[DEPTH];  // deaf: under way for ever
    unsigned waiting_count;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
// As they are from the start: several threads read them at once. The transport is 0, which is IB.
static struct ibv_device devices[DEVICES] = {{.node_type = IBV_NODE_CA, .name = "stand0", .dev_name = "uverbs0"},
                                             {.node_type = IBV_NODE_CA, .name = "stand1", .dev_name = "uverbs1"}};
static struct pair* pairs[QPS];
static struct region* regions[MRS];
static struct context* contexts[DEVICES];
static unsigned next_qp = 17, completions, posts;

// fault NAME: its number, 1 for a word without one, -1 when it is not asked for.
static long fault(const char* name) {
    const char* text = getenv("RECLANE_STAND_IN");
    size_t length = strlen(name);
    while (text && *text) {
        const char* end = strchrnul(text, ' ');
        if (!strncmp(text, name, length) && (text[length] == '=' || text[length] == ' ' || text[length] == 0))
            return text[length] == '=' ? strtol(text + length + 1, NULL, 10) : 1;
        text = *end ? end + 1 : end;
    }
    return -1;
}

static int device_of(struct ibv_context* c) {
    return ((struct context*)((char*)c - offsetof(struct context, whole.context)))->device;
}

struct ibv_device** ibv_get_device_list(int* count) {
    struct ibv_device** list = calloc(DEVICES + 1, sizeof *list);
    for (int i = 0; i < DEVICES; i++)
        list[i] = &devices[i];
    if (count)
        *count = DEVICES;
    return list;
}
void ibv_free_device_list(struct ibv_device** list) {
    free(list);
}

static int query_port(struct ibv_context* c, uint8_t port, struct ibv_port_attr* attr, size_t bytes) {
    struct ibv_port_attr a = {0};
    if (port != 1)
        return EINVAL;
    int device = device_of(c), ib = fault("ib") > 0;
    long mtu = device == 1 && fault("mtu") > 0 ? fault("mtu") : IBV_MTU_4096;
    a.state = IBV_PORT_ACTIVE;
    a.max_mtu = IBV_MTU_4096;
    a.active_mtu = mtu;
    a.gid_tbl_len = 2;
    a.lid = ib ? 5 + device : 0;
    a.phys_state = 5;
    a.link_layer = ib ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET;
    memcpy(attr, &a, bytes < sizeof a ? bytes : sizeof a);
    return 0;
}
int ibv_query_port(struct ibv_context* c, uint8_t port, struct _compat_ibv_port_attr* attr) {
    return query_port(c, port, (struct ibv_port_attr*)attr, offsetof(struct ibv_port_attr, port_cap_flags2));
}

static void gid_of(int device, union ibv_gid* gid) {
    memset(gid, 0, sizeof *gid);
    gid->raw[10] = gid->raw[11] = 255;
    gid->raw[12] = 10, gid->raw[13] = 77, gid->raw[15] = device + 1;
}
int ibv_query_gid(struct ibv_context* c, uint8_t port, int index, union ibv_gid* gid) {
    if (port != 1 || index != 0)
        return -1;
    gid_of(device_of(c), gid);
    return 0;
}
static uint32_t kind(void) {
    return fault("ib") > 0 ? IBV_GID_TYPE_IB : fault("v1") > 0 ? IBV_GID_TYPE_ROCE_V1 : IBV_GID_TYPE_ROCE_V2;
}
int _ibv_query_gid_ex(struct ibv_context* c, uint32_t port, uint32_t index, struct ibv_gid_entry* e, uint32_t flags,
                      size_t bytes) {
    struct ibv_gid_entry entry = {0};
    (void)flags;
    if (port != 1 || index != 0)
        return ENODATA;
    gid_of(device_of(c), &entry.gid);
    entry.port_num = 1;
    entry.gid_type = kind();
    memcpy(e, &entry, bytes < sizeof entry ? bytes : sizeof entry);
    return 0;
}
ssize_t _ibv_query_gid_table(struct ibv_context* c, struct ibv_gid_entry* e, size_t most, uint32_t flags,
                             size_t bytes) {
    return most < 1 ? -EINVAL : _ibv_query_gid_ex(c, 1, 0, e, flags, bytes) ? 0 : 1;
}
int ibv_query_device(struct ibv_context* c, struct ibv_device_attr* a) {
    (void)c;
    memset(a, 0, sizeof *a);
    a->max_qp = fault("qps") >= 0 ? fault("qps") : QPS;
    a->max_qp_wr = DEPTH;
    a->max_sge = 30;
    a->max_cq = 4096;
    a->max_cqe = CQES;
    a->max_mr = fault("mrs") >= 0 ? fault("mrs") : MRS;
    a->max_mr_size = 1ull << 40;
    a->max_qp_rd_atom = a->max_qp_init_rd_atom = 16;
    a->atomic_cap = IBV_ATOMIC_HCA;
    a->phys_port_cnt = 1;
    return 0;
}

static void wake(int fd) {
    char one = 1;
    if (write(fd, &one, 1) != 1)
        abort();
}

// The events of a device, and notices of a completion queue, go through pipes.
struct notice {
    struct ibv_async_event event;
};
static void tell(int device, enum ibv_event_type type, struct ibv_cq* cq) {
    struct notice n = {{.event_type = type}};
    if (cq)
        n.event.element.cq = cq;
    if (contexts[device] && write(contexts[device]->wake, &n, sizeof n) != sizeof n)
        abort();
}
int ibv_get_async_event(struct ibv_context* c, struct ibv_async_event* event) {
    struct notice n;
    if (read(c->async_fd, &n, sizeof n) != sizeof n)
        return -1;
    *event = n.event;
    return 0;
}
void ibv_ack_async_event(struct ibv_async_event* event) {
    (void)event;
}

static struct pair* by_number(uint32_t number) {
    return number < QPS ? pairs[number] : NULL;
}

static void complete(struct pair* p, int receive, struct ibv_wc wc) {
    struct queue* q = (struct queue*)(receive ? p->qp.recv_cq : p->qp.send_cq);
    wc.qp_num = p->qp.qp_num;
    if (q->tail - q->head < CQES)
        q->all[q->tail++ % CQES] = wc;
    if (q->armed)
        q->armed = 0, wake(q->wake);
    completions++;
    if (fault("overrun") > 0 && completions == fault("overrun"))
        tell(device_of(p->qp.context), IBV_EVENT_CQ_ERR, &q->cq);
    if (fault("fatal") > 0 && completions == fault("fatal"))
        tell(device_of(p->qp.context), IBV_EVENT_DEVICE_FATAL, NULL);
}
static void fall(struct pair* p) {
    if (p->attr.qp_state == IBV_QPS_ERR)
        return;
    p->attr.qp_state = IBV_QPS_ERR;
    for (unsigned i = 0; i < p->waiting_count; i++) {
        p->waiting[i].status = IBV_WC_WR_FLUSH_ERR;
        if (fault("lost") < 0)
            complete(p, 0, p->waiting[i]);
    }
    p->waiting_count = 0;
    while (p->recv_head != p->recv_tail) {
        struct ibv_wc wc = {
            .wr_id = p->recvs[p->recv_head++ % RECVS], .status = IBV_WC_WR_FLUSH_ERR, .opcode = IBV_WC_RECV};
        if (fault("lost") < 0)
            complete(p, 1, wc);
    }
}

static struct region* key(struct ibv_pd* pd, uint32_t k) {
    struct region* r = k < MRS ? regions[k] : NULL;
    return r && r->live && r->mr.pd == pd ? r : NULL;
}
// Where a remote range lies, with the rights asked for.
static char* reach(struct ibv_pd* pd, uint32_t k, uint64_t at, uint64_t bytes, int access) {
    struct region* r = key(pd, k);
    if (!r || (r->access & access) != access || at < r->iova || bytes > r->mr.length ||
        at - r->iova > r->mr.length - bytes)
        return NULL;
    return (char*)r->mr.addr + (at - r->iova);
}
static int local_ok(struct pair* p, struct ibv_sge* s, int flags) {
    if (flags & IBV_SEND_INLINE)
        return 1;
    struct region* r = key(p->qp.pd, s->lkey);
    return r && s->addr >= (uint64_t)(uintptr_t)r->mr.addr && s->length <= r->mr.length &&
           s->addr - (uint64_t)(uintptr_t)r->mr.addr <= r->mr.length - s->length;
}

// The last 8 bytes become visible last, in one piece.
static void put(char* to, const char* from, size_t bytes, int last) {
    if (last && bytes >= 8 && !((uintptr_t)(to + bytes) & 7)) {
        uint64_t word;
        memcpy(to, from, bytes - 8);
        memcpy(&word, from + bytes - 8, 8);
        __atomic_store_n((uint64_t*)(to + bytes - 8), word, __ATOMIC_RELEASE);
    } else {
        memcpy(to, from, bytes);
    }
}

static enum ibv_wc_status run(struct pair* p, struct pair* peer, struct ibv_send_wr* w, uint32_t* length) {
    uint64_t bytes = 0;
    for (int i = 0; i < w->num_sge; i++) {
        if (!local_ok(p, &w->sg_list[i], w->send_flags))
            return IBV_WC_LOC_PROT_ERR;
        bytes += w->sg_list[i].length;
    }
    *length = bytes;
    int atomic = w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
    int access = atomic                          ? IBV_ACCESS_REMOTE_ATOMIC
                 : w->opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_REMOTE_READ
                                                 : IBV_ACCESS_REMOTE_WRITE;
    uint64_t at = atomic ? w->wr.atomic.remote_addr : w->wr.rdma.remote_addr;
    uint32_t rkey = atomic ? w->wr.atomic.rkey : w->wr.rdma.rkey;
    if (w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM && peer->recv_head == peer->recv_tail)
        return IBV_WC_RNR_RETRY_EXC_ERR;
    char* place = reach(peer->qp.pd, rkey, at, bytes, access);
    if (bytes && (!place || (atomic && at & 7))) {
        fall(peer);
        return IBV_WC_REM_ACCESS_ERR;
    }
    if (atomic) {
        uint64_t old = __atomic_load_n((uint64_t*)place, __ATOMIC_ACQUIRE);
        if (w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
            old = __atomic_fetch_add((uint64_t*)place, w->wr.atomic.compare_add, __ATOMIC_ACQ_REL);
        else if (old == w->wr.atomic.compare_add)
            __atomic_store_n((uint64_t*)place, w->wr.atomic.swap, __ATOMIC_RELEASE);
        memcpy((void*)(uintptr_t)w->sg_list[0].addr, &old, 8);
        return IBV_WC_SUCCESS;
    }
    for (int i = 0; i < w->num_sge; i++) {
        struct ibv_sge* s = &w->sg_list[i];
        char* mine = (char*)(uintptr_t)s->addr;
        int reads = w->opcode == IBV_WR_RDMA_READ;
        put(reads ? mine : place, reads ? place : mine, s->length, i + 1 == w->num_sge);
        place += s->length;
    }
    if (w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
        struct ibv_wc wc = {.opcode = IBV_WC_RECV_RDMA_WITH_IMM, .wc_flags = IBV_WC_WITH_IMM, .byte_len = bytes};
        wc.wr_id = peer->recvs[peer->recv_head++ % RECVS], wc.imm_data = w->imm_data;
        complete(peer, 1, wc);
    }
    return IBV_WC_SUCCESS;
}

static enum ibv_wc_opcode opcode(enum ibv_wr_opcode op) {
    switch (op) {
        case IBV_WR_RDMA_READ:
            return IBV_WC_RDMA_READ;
        case IBV_WR_ATOMIC_CMP_AND_SWP:
            return IBV_WC_COMP_SWAP;
        case IBV_WR_ATOMIC_FETCH_AND_ADD:
            return IBV_WC_FETCH_ADD;
        default:
            return IBV_WC_RDMA_WRITE;
    }
}
// Whether the other end is there and was told of this one.
static struct pair* other_end(struct pair* p) {
    struct pair* peer = by_number(p->attr.dest_qp_num);
    int there = peer && peer->live && peer->attr.qp_state >= IBV_QPS_RTR && peer->attr.qp_state <= IBV_QPS_RTS;
    return there && peer->attr.dest_qp_num == p->qp.qp_num && peer->attr.rq_psn == p->attr.sq_psn ? peer : NULL;
}

static int post_send(struct ibv_qp* qp, struct ibv_send_wr* w, struct ibv_send_wr** bad) {
    struct pair* p = (struct pair*)qp;
    int result = 0;
    pthread_mutex_lock(&lock);
    for (; w; w = w->next) {
        *bad = w;
        if (p->attr.qp_state != IBV_QPS_RTS && p->attr.qp_state != IBV_QPS_ERR) {
            result = EINVAL;
            break;
        }
        if ((unsigned)w->num_sge > p->max_sge) {
            result = EINVAL;
            break;
        }
        if (fault("post") > 0 && ++posts == (unsigned)fault("post")) {
            result = ENOMEM;
            break;
        }
        struct ibv_wc wc = {.wr_id = w->wr_id, .opcode = opcode(w->opcode)};
        int asked = p->sig_all || w->send_flags & IBV_SEND_SIGNALED;
        if (p->attr.qp_state == IBV_QPS_ERR)
            wc.status = IBV_WC_WR_FLUSH_ERR;
        else if (fault("deaf") > 0) {
            if (p->waiting_count < DEPTH)
                p->waiting[p->waiting_count++] = wc;
            continue;
        } else if (p->attr.retry_cnt == 7 && by_number(p->attr.dest_qp_num) && !other_end(p)) {
            // Soft-RoCE sends for ever to a queue pair that drops what it gets; seven stands for that here too.
            if (p->waiting_count < DEPTH)
                p->waiting[p->waiting_count++] = wc;
            continue;
        } else {
            struct pair* peer = other_end(p);
            wc.status = peer ? run(p, peer, w, &wc.byte_len) : IBV_WC_RETRY_EXC_ERR;
        }
        if (wc.status == IBV_WC_SUCCESS ? asked : wc.status != IBV_WC_WR_FLUSH_ERR || fault("lost") < 0)
            complete(p, 0, wc);
        if (wc.status != IBV_WC_SUCCESS)
            fall(p);
    }
    pthread_mutex_unlock(&lock);
    return result;
}
static int post_recv(struct ibv_qp* qp, struct ibv_recv_wr* w, struct ibv_recv_wr** bad) {
    struct pair* p = (struct pair*)qp;
    int result = 0;
    pthread_mutex_lock(&lock);
    for (; w; w = w->next) {
        *bad = w;
        if (p->attr.qp_state == IBV_QPS_RESET || p->recv_tail - p->recv_head >= p->max_recv) {
            result = ENOMEM;
            break;
        }
        p->recvs[p->recv_tail++ % RECVS] = w->wr_id;
        if (p->attr.qp_state == IBV_QPS_ERR) {
            struct ibv_wc wc = {
                .wr_id = p->recvs[p->recv_head++ % RECVS], .status = IBV_WC_WR_FLUSH_ERR, .opcode = IBV_WC_RECV};
            complete(p, 1, wc);
        }
    }
    pthread_mutex_unlock(&lock);
    return result;
}
static int poll_cq(struct ibv_cq* cq, int room, struct ibv_wc* out) {
    struct queue* q = (struct queue*)cq;
    int count = 0;
    pthread_mutex_lock(&lock);
    while (count < room && q->head != q->tail)
        out[count++] = q->all[q->head++ % CQES];
    pthread_mutex_unlock(&lock);
    return count;
}
static int req_notify(struct ibv_cq* cq, int solicited) {
    pthread_mutex_lock(&lock);
    ((struct queue*)cq)->armed = 1;
    pthread_mutex_unlock(&lock);
    return 0;
}

struct ibv_context* ibv_open_device(struct ibv_device* device) {
    struct context* c = calloc(1, sizeof *c);
    int ends[2];
    if (!c || pipe2(ends, O_CLOEXEC))
        return NULL;
    c->device = device - devices;
    c->wake = ends[1];
    c->whole.sz = sizeof c->whole;
    c->whole.query_port = query_port;
    c->whole.context.device = device;
    c->whole.context.async_fd = ends[0];
    c->whole.context.abi_compat = (void*)-1;
    c->whole.context.ops.post_send = post_send;
    c->whole.context.ops.post_recv = post_recv;
    c->whole.context.ops.poll_cq = poll_cq;
    c->whole.context.ops.req_notify_cq = req_notify;
    pthread_mutex_lock(&lock);
    if (!contexts[c->device])
        contexts[c->device] = c;  // others are opened to be looked at, and closed
    pthread_mutex_unlock(&lock);
    return &c->whole.context;
}
int ibv_close_device(struct ibv_context* c) {
    struct context* own = (struct context*)((char*)c - offsetof(struct context, whole.context));
    pthread_mutex_lock(&lock);
    if (contexts[own->device] == own)
        contexts[own->device] = NULL;
    pthread_mutex_unlock(&lock);
    close(c->async_fd);
    close(own->wake);
    free(own);
    return 0;
}
struct ibv_pd* ibv_alloc_pd(struct ibv_context* c) {
    struct ibv_pd* pd = calloc(1, sizeof *pd);
    pd->context = c;
    return pd;
}
int ibv_dealloc_pd(struct ibv_pd* pd) {
    return free(pd), 0;
}

static struct ibv_mr* reg(struct ibv_pd* pd, void* addr, size_t bytes, uint64_t iova, int access) {
    struct ibv_mr* mr = NULL;
    pthread_mutex_lock(&lock);
    long live = 0, most = fault("mrs") >= 0 ? fault("mrs") : MRS - 1;
    unsigned at = 0;
    for (unsigned i = 1; i < MRS; i++) {
        if (regions[i] && regions[i]->live)
            live++;
        else if (!at && !regions[i])
            at = i;
    }
    if (live < most && at) {
        struct region* r = calloc(1, sizeof *r);
        r->mr =
            (struct ibv_mr){.context = pd->context, .pd = pd, .addr = addr, .length = bytes, .lkey = at, .rkey = at};
        r->iova = iova, r->access = access, r->live = 1;
        regions[at] = r;
        mr = &r->mr;
    } else {
        errno = ENOMEM;
    }
    pthread_mutex_unlock(&lock);
    return mr;
}
struct ibv_mr* ibv_reg_mr(struct ibv_pd* pd, void* addr, size_t bytes, int access) {
    return reg(pd, addr, bytes, (uintptr_t)addr, access);
}
struct ibv_mr* ibv_reg_mr_iova(struct ibv_pd* pd, void* addr, size_t bytes, uint64_t iova, int access) {
    return reg(pd, addr, bytes, iova, access);
}
struct ibv_mr* ibv_reg_mr_iova2(struct ibv_pd* pd, void* addr, size_t bytes, uint64_t iova, unsigned access) {
    return reg(pd, addr, bytes, iova, access);
}
int ibv_dereg_mr(struct ibv_mr* mr) {
    pthread_mutex_lock(&lock);
    regions[mr->lkey] = NULL;
    free(mr);
    pthread_mutex_unlock(&lock);
    return 0;
}

struct ibv_comp_channel* ibv_create_comp_channel(struct ibv_context* c) {
    int ends[2];
    struct ibv_comp_channel* channel = calloc(1, sizeof *channel);
    if (!channel || pipe2(ends, O_CLOEXEC | O_NONBLOCK))
        return NULL;
    channel->context = c;
    channel->fd = ends[0];
    channel->refcnt = ends[1];
    return channel;
}
int ibv_destroy_comp_channel(struct ibv_comp_channel* channel) {
    close(channel->fd);
    close(channel->refcnt);
    free(channel);
    return 0;
}
struct ibv_cq* ibv_create_cq(struct ibv_context* c, int entries, void* owner, struct ibv_comp_channel* channel,
                             int vector) {
    static _Atomic int made;
    if (fault("cqs") >= 0 && made++ >= fault("cqs"))
        return errno = ENOMEM, NULL;
    struct queue* q = calloc(1, sizeof *q);
    q->all = calloc(CQES, sizeof *q->all);
    q->cq.context = c, q->cq.channel = channel, q->cq.cq_context = owner, q->cq.cqe = entries;
    q->wake = channel ? channel->refcnt : -1;
    return &q->cq;
}
int ibv_destroy_cq(struct ibv_cq* cq) {
    free(((struct queue*)cq)->all);
    free(cq);
    return 0;
}
// A channel serves one queue in this library's use, which the waker knows itself.
int ibv_get_cq_event(struct ibv_comp_channel* channel, struct ibv_cq** cq, void** owner) {
    char one;
    *cq = NULL, *owner = NULL;
    return read(channel->fd, &one, 1) == 1 ? 0 : -1;
}
void ibv_ack_cq_events(struct ibv_cq* cq, unsigned count) {}

struct ibv_qp* ibv_create_qp(struct ibv_pd* pd, struct ibv_qp_init_attr* a) {
    struct ibv_qp* made = NULL;
    pthread_mutex_lock(&lock);
    long live = 0, most = fault("qps") >= 0 ? fault("qps") : QPS;
    for (unsigned i = 0; i < QPS; i++)
        live += pairs[i] && pairs[i]->live;
    errno = ENOMEM;
    int refused = live >= most || a->cap.max_send_wr > DEPTH || a->cap.max_recv_wr > RECVS;
    if (fault("sges") > 0 && a->cap.max_send_sge > (unsigned)fault("sges"))
        refused = 1, errno = EINVAL;
    if (fault("inline") >= 0 && a->cap.max_inline_data > (unsigned)fault("inline"))
        refused = 1, errno = EINVAL;
    for (unsigned tries = 0; !refused && !made && tries < QPS; tries++) {
        unsigned at = next_qp++ % QPS;
        if (at < 2 || pairs[at])
            continue;
        struct pair* p = calloc(1, sizeof *p);
        p->qp.context = pd->context, p->qp.pd = pd, p->qp.qp_num = at, p->qp.qp_type = a->qp_type;
        p->qp.send_cq = a->send_cq, p->qp.recv_cq = a->recv_cq;
        p->live = 1, p->sig_all = a->sq_sig_all;
        p->max_send = a->cap.max_send_wr, p->max_sge = a->cap.max_send_sge, p->max_recv = a->cap.max_recv_wr;
        pairs[at] = p;
        made = &p->qp;
    }
    pthread_mutex_unlock(&lock);
    return made;
}
int ibv_destroy_qp(struct ibv_qp* qp) {
    pthread_mutex_lock(&lock);
    pairs[qp->qp_num] = NULL;
    free(qp);
    pthread_mutex_unlock(&lock);
    return 0;
}
// What a way to the peer must have: on InfiniBand its LID, on RoCE its address; packets as the port takes them.
static int way(struct pair* p, struct ibv_qp_attr* a) {
    struct ibv_port_attr port;
    query_port(p->qp.context, 1, &port, sizeof port);
    if (a->path_mtu > port.active_mtu || a->path_mtu < IBV_MTU_256)
        return EINVAL;
    if (port.link_layer == IBV_LINK_LAYER_INFINIBAND)
        return a->ah_attr.dlid == 5 || a->ah_attr.dlid == 6 ? 0 : EINVAL;
    return a->ah_attr.is_global && a->ah_attr.grh.dgid.raw[12] == 10 ? 0 : EINVAL;
}
int ibv_modify_qp(struct ibv_qp* qp, struct ibv_qp_attr* a, int mask) {
    struct pair* p = (struct pair*)qp;
    int result = 0;
    pthread_mutex_lock(&lock);
    enum ibv_qp_state from = p->attr.qp_state, to = a->qp_state;
    if (to == IBV_QPS_ERR)
        fall(p);
    else if (to == IBV_QPS_RESET) {
        memset(&p->attr, 0, sizeof p->attr);
        p->recv_head = p->recv_tail = p->waiting_count = 0;
    } else if (to == IBV_QPS_INIT && from == IBV_QPS_RESET && mask & IBV_QP_PORT && a->port_num == 1)
        p->attr.qp_state = to;
    else if (to == IBV_QPS_RTR && from == IBV_QPS_INIT) {
        if (!(result = way(p, a)))
            p->attr.qp_state = to, p->attr.dest_qp_num = a->dest_qp_num, p->attr.rq_psn = a->rq_psn;
    } else if (to == IBV_QPS_RTS && from == IBV_QPS_RTR)
        p->attr.qp_state = to, p->attr.sq_psn = a->sq_psn, p->attr.retry_cnt = a->retry_cnt;
    else
        result = EINVAL;
    pthread_mutex_unlock(&lock);
    return result;
}
int ibv_query_qp_data_in_order(struct ibv_qp* qp, enum ibv_wr_opcode op, uint32_t flags) {
    (void)qp, (void)op, (void)flags;
    return 1;
}
