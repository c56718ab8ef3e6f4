/* reclane: RDMA transport for parameter servers. Generated from the library's sources; do not edit.
 *
 * The rules, once for all functions:
 *   - Every function that can fail returns a reclane_status: 0 is success, positive values are success with a remark,
 *     negative values are errors. reclane_status_class() says what an error has ruined and so what to do.
 *   - Details go to a reclane_error that the caller owns, the last parameter; it may be NULL.
 *   - Results go through out-parameters. Handles are set to NULL, and request numbers to 0, when the call fails.
 *   - The library never gives memory that the caller must free, and never frees the caller's.
 *   - Structs start with their size and are to be zeroed first; zero is the default of every field.
 *   - Handles are opaque. A closed handle is recognised (RECLANE_STATUS_CLOSED) while it is not among the oldest of some
 *     hundred closed ones; a call on a handle that another thread is closing is not.
 *   - The library installs no signal handler, parses no argv, prints nothing unless asked, and starts no thread before a
 *     server or client is opened. After fork the child may only exec: its calls answer RECLANE_STATUS_FORKED.
 *   - dlclose leaves the library mapped.
 *   - Values of enums may be added: treat an unknown one as "some other".
 * "Threads:" says from which threads a function may be called, "Blocks:" for how long it may keep one.
 */

#ifndef RECLANE_RECLANE_H
#define RECLANE_RECLANE_H

#include <stddef.h>
#include <stdint.h>

#define RECLANE_VERSION_MAJOR 0
#define RECLANE_VERSION_MINOR 1
#define RECLANE_VERSION_PATCH 0
#define RECLANE_VERSION_NUMBER ((RECLANE_VERSION_MAJOR << 16) | (RECLANE_VERSION_MINOR << 8) | RECLANE_VERSION_PATCH)
#define RECLANE_VERSION_STRING "0.1.0"
/* Number of the binary interface, that of the SONAME. */
#define RECLANE_ABI_VERSION 0

/* "No such thing": a shard, lane or slot that a failure does not concern. */
#define RECLANE_NONE UINT32_MAX

/* Starts a struct of this library in C99 and later: reclane_error error = RECLANE_INIT(reclane_error); */
#ifndef __cplusplus
#define RECLANE_INIT(type) { .struct_size = (uint32_t)sizeof(type) }
#endif

#if defined(__cplusplus) && __cplusplus >= 201703L
#define RECLANE_NODISCARD [[nodiscard]]
#elif defined(__GNUC__)
#define RECLANE_NODISCARD __attribute__((warn_unused_result))
#else
#define RECLANE_NODISCARD
#endif

/* Result of a call. Zero is success, positive values are success with a remark, negative values are errors.
 * A caller must treat a value it does not know as "some other error" (negative) or "some other success" (positive).
 */
enum reclane_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /* Done. */
  RECLANE_STATUS_OK = 0,
  /* The request is still under way; nothing is wrong. */
  RECLANE_STATUS_PENDING = 1,
  /* CALLER: an argument is out of its documented range. */
  RECLANE_STATUS_INVALID_ARGUMENT = -100,
  /* CALLER: a required pointer is NULL. */
  RECLANE_STATUS_NULL_POINTER = -101,
  /* CALLER: a struct's size field is unknown to this library, or its unknown tail is not zero. */
  RECLANE_STATUS_STRUCT_SIZE = -102,
  /* CALLER: a string is not UTF-8. */
  RECLANE_STATUS_NOT_UTF8 = -103,
  /* CALLER: no option has this name. */
  RECLANE_STATUS_UNKNOWN_OPTION = -104,
  /* CALLER: an option's value is of the wrong type. */
  RECLANE_STATUS_OPTION_TYPE = -105,
  /* CALLER: an option's value is out of bounds. */
  RECLANE_STATUS_OPTION_BOUNDS = -106,
  /* CALLER: two options contradict each other. */
  RECLANE_STATUS_OPTION_CONFLICT = -107,
  /* CALLER: a buffer is too small for what was asked. */
  RECLANE_STATUS_BUFFER_TOO_SMALL = -108,
  /* CALLER: this is no live handle of the expected kind. */
  RECLANE_STATUS_BAD_HANDLE = -109,
  /* CALLER: the handle was closed. */
  RECLANE_STATUS_CLOSED = -110,
  /* CALLER: the token names a request that was already revoked. */
  RECLANE_STATUS_STALE_TOKEN = -111,
  /* CALLER: this handle belongs to the parent process; after fork only exec is allowed. */
  RECLANE_STATUS_FORKED = -112,
  /* CALLER: the call is not allowed in the object's present state. */
  RECLANE_STATUS_WRONG_STATE = -113,
  /* CALLER: this build, fabric or store does not offer what was asked. */
  RECLANE_STATUS_UNSUPPORTED = -114,
  /* CALLER: called from inside a callback that must not call it. */
  RECLANE_STATUS_WOULD_DEADLOCK = -115,
  /* CALLER: the header's ABI version is not this library's. */
  RECLANE_STATUS_ABI_VERSION = -116,
  /* RETRY: every slot is taken by requests that were not revoked yet; nothing was sent. */
  RECLANE_STATUS_NO_SLOT = -200,
  /* RETRY: another thread is working on this request. */
  RECLANE_STATUS_BUSY = -201,
  /* RETRY: the checkpoint came to nothing; work goes on, and another one may succeed. */
  RECLANE_STATUS_CHECKPOINT_ABORTED = -202,
  /* REQUEST: the server found the request malformed (RpcStatus -1). */
  RECLANE_STATUS_INVALID_PAYLOAD = -300,
  /* REQUEST: the request reached a shard that does not own it (RpcStatus -2). */
  RECLANE_STATUS_WRONG_SHARD = -301,
  /* REQUEST: more keys or bytes than the server allows in one request (RpcStatus -3). */
  RECLANE_STATUS_BATCH_TOO_LARGE = -302,
  /* REQUEST: the row width does not match the table (RpcStatus -4). */
  RECLANE_STATUS_VALUE_SIZE_MISMATCH = -303,
  /* REQUEST: no table has this tag or name (RpcStatus -5). */
  RECLANE_STATUS_UNKNOWN_TABLE = -304,
  /* REQUEST: the server's handler failed; the server lives on (RpcStatus -6). */
  RECLANE_STATUS_INTERNAL_ERROR = -305,
  /* REQUEST: the response does not agree with its own checksum or lengths. */
  RECLANE_STATUS_CORRUPT_RESPONSE = -306,
  /* LANE: the fabric refused a post. */
  RECLANE_STATUS_POST_FAILED = -400,
  /* LANE: a completion came back with an error. */
  RECLANE_STATUS_COMPLETION_ERROR = -401,
  /* LANE: a tracked write's completion did not come in time. */
  RECLANE_STATUS_COMPLETION_TIMEOUT = -402,
  /* LANE: the answer did not come within the wait timeout. */
  RECLANE_STATUS_WAIT_TIMEOUT = -403,
  /* LANE: no lane to this shard is usable. */
  RECLANE_STATUS_LANE_DOWN = -404,
  /* PEER: the shard's process is gone or was judged dead. */
  RECLANE_STATUS_SHARD_UNREACHABLE = -500,
  /* PEER: the peer was started with settings that shape the layout differently; both values are in the message. */
  RECLANE_STATUS_DEPLOYMENT_MISMATCH = -501,
  /* PEER: this member belongs to an older epoch of the deployment, or to another deployment. */
  RECLANE_STATUS_STALE_EPOCH = -502,
  /* PEER: another live process already holds this id. */
  RECLANE_STATUS_DUPLICATE_ID = -503,
  /* PEER: start-up did not finish within its deadline; the message names who is missing. */
  RECLANE_STATUS_STARTUP_TIMEOUT = -504,
  /* PEER: the control plane cannot be reached. */
  RECLANE_STATUS_CONTROL_PLANE_UNREACHABLE = -505,
  /* PEER: the shard is shutting down. */
  RECLANE_STATUS_DRAINING = -506,
  /* CONTEXT: the operating system refused a resource; `os_error` has its number. */
  RECLANE_STATUS_OS_ERROR = -600,
  /* CONTEXT: a limit of the process or the device is exhausted. */
  RECLANE_STATUS_RESOURCE_LIMIT = -601,
  /* CONTEXT: the chosen fabric cannot run here. */
  RECLANE_STATUS_FABRIC_UNAVAILABLE = -602,
  /* CONTEXT: the handle is poisoned by an earlier internal failure; only closing it is allowed. */
  RECLANE_STATUS_POISONED = -603,
  /* BUG: an invariant of the library does not hold. Please report it with the message. */
  RECLANE_STATUS_BUG = -700,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum reclane_status reclane_status;
#else
typedef int32_t reclane_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/* What a failure has ruined. */
enum reclane_class
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /* Nothing: success. */
  RECLANE_CLASS_OK = 0,
  /* The call itself: fix it. */
  RECLANE_CLASS_CALLER = 1,
  /* Nothing happened: the same call may succeed later. */
  RECLANE_CLASS_RETRY = 2,
  /* This request only. */
  RECLANE_CLASS_REQUEST = 3,
  /* The lane that carried the request. */
  RECLANE_CLASS_LANE = 4,
  /* The peer. */
  RECLANE_CLASS_PEER = 5,
  /* The whole context. */
  RECLANE_CLASS_CONTEXT = 6,
  /* A bug in the library. */
  RECLANE_CLASS_BUG = 7,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum reclane_class reclane_class;
#else
typedef int32_t reclane_class;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/* Where a failure was seen: the seven layers of the error model, cheapest to diagnose first. */
enum reclane_layer
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /* Not yet attributed. */
  RECLANE_LAYER_NONE = 0,
  /* The caller's arguments or the local capacity. */
  RECLANE_LAYER_USAGE = 1,
  /* The post of a work request. */
  RECLANE_LAYER_POST = 2,
  /* A completion with an error. */
  RECLANE_LAYER_DEVICE = 3,
  /* A tracked write whose completion did not come. */
  RECLANE_LAYER_TRACKED_WRITE = 4,
  /* The wait for the answer. */
  RECLANE_LAYER_WAIT = 5,
  /* The verdict on the peer's process. */
  RECLANE_LAYER_NODE = 6,
  /* The server's own answer. */
  RECLANE_LAYER_SERVER = 7,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum reclane_layer reclane_layer;
#else
typedef uint32_t reclane_layer;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/* What is known about the execution of a failed request. */
enum reclane_outcome
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /* It cannot be known. */
  RECLANE_OUTCOME_UNKNOWN = 0,
  /* It was certainly not executed. */
  RECLANE_OUTCOME_NOT_EXECUTED = 1,
  /* It was executed. */
  RECLANE_OUTCOME_EXECUTED = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum reclane_outcome reclane_outcome;
#else
typedef uint32_t reclane_outcome;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/* What is known about the peer at the time of the failure. */
enum reclane_verdict
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /* Nobody has judged. */
  RECLANE_VERDICT_UNKNOWN = 0,
  /* It serves. */
  RECLANE_VERDICT_SERVING = 1,
  /* It has been silent for a while. */
  RECLANE_VERDICT_SUSPECT = 2,
  /* It is gone. */
  RECLANE_VERDICT_DEAD = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum reclane_verdict reclane_verdict;
#else
typedef uint32_t reclane_verdict;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/* How UPDATE changes rows: values of reclane_table_options.optimizer. Treat an unknown value as "some other". */
enum reclane_optimizer
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /* w -= learning_rate * g */
  RECLANE_OPTIMIZER_SGD = 0,
  /* a += g * g; w -= learning_rate * g / (sqrt(a) + epsilon), one accumulator per element */
  RECLANE_OPTIMIZER_ADAGRAD = 1,
  /* the same with one accumulator per row, fed with the mean of g * g */
  RECLANE_OPTIMIZER_ROWWISE_ADAGRAD = 2,
  /* w += g, exact for integers */
  RECLANE_OPTIMIZER_ADD = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum reclane_optimizer reclane_optimizer;
#else
typedef uint32_t reclane_optimizer;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/* Words to the store as a whole: values for reclane_client_command(). Treat an unknown value as "some other". */
enum reclane_command
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /* Forgets all rows of all tables; the tables stay. No argument. */
  RECLANE_COMMAND_CLEAR = 1,
  /* Saves the store under the name in the argument. */
  RECLANE_COMMAND_SAVE = 2,
  /* Loads what was saved under the name in the argument. */
  RECLANE_COMMAND_LOAD = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum reclane_command reclane_command;
#else
typedef uint32_t reclane_command;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/* What a callback of reclane_store answers; the client gets it as the status beside. */
enum reclane_answer
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /* Done. */
  RECLANE_ANSWER_OK = 0,
  /* Malformed: RECLANE_STATUS_INVALID_PAYLOAD. */
  RECLANE_ANSWER_INVALID_PAYLOAD = -1,
  /* Another shard's key: RECLANE_STATUS_WRONG_SHARD. */
  RECLANE_ANSWER_WRONG_SHARD = -2,
  /* Too much for one request: RECLANE_STATUS_BATCH_TOO_LARGE. */
  RECLANE_ANSWER_BATCH_TOO_LARGE = -3,
  /* Another row width than the table's: RECLANE_STATUS_VALUE_SIZE_MISMATCH. */
  RECLANE_ANSWER_VALUE_SIZE_MISMATCH = -4,
  /* No such table: RECLANE_STATUS_UNKNOWN_TABLE. */
  RECLANE_ANSWER_UNKNOWN_TABLE = -5,
  /* Failed; the server lives on: RECLANE_STATUS_INTERNAL_ERROR. */
  RECLANE_ANSWER_INTERNAL_ERROR = -6,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum reclane_answer reclane_answer;
#else
typedef int32_t reclane_answer;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/* State of a lane: values of reclane_lane_info.state. Treat an unknown value as "some other". */
enum reclane_lane_state
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /* It is being connected. */
  RECLANE_LANE_STATE_CONNECTING = 0,
  /* It carries requests. */
  RECLANE_LANE_STATE_ACTIVE = 1,
  /* It has failed and carries no new request; a rebuild could help. */
  RECLANE_LANE_STATE_DIRTY = 2,
  /* It is being connected again. */
  RECLANE_LANE_STATE_REBUILDING = 3,
  /* It will not come back. */
  RECLANE_LANE_STATE_DEAD = 4,
  /* It is not connected yet, because no request has needed it: see the option qps-at-open. */
  RECLANE_LANE_STATE_UNCONNECTED = 5,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum reclane_lane_state reclane_lane_state;
#else
typedef uint32_t reclane_lane_state;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/* Health of a shard: values of reclane_health_info.health. Treat an unknown value as RECLANE_HEALTH_UNKNOWN. */
enum reclane_health
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /* Nothing is known: the control plane does not answer, or has never heard of the shard. No verdict. */
  RECLANE_HEALTH_UNKNOWN = 0,
  /* It was heard of lately. */
  RECLANE_HEALTH_SERVING = 1,
  /* Not for rdma-health-stale-ms. */
  RECLANE_HEALTH_SUSPECT = 2,
  /* Not for rdma-health-dead-ms. A shard that is heard of again serves again. */
  RECLANE_HEALTH_DEAD = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum reclane_health reclane_health;
#else
typedef uint32_t reclane_health;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/* How much an event matters: values of reclane_event.level. Treat an unknown value as "some other". */
enum reclane_level
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /* Something is lost and somebody should act. */
  RECLANE_LEVEL_ERROR = 1,
  /* Something is lost; the library deals with it. */
  RECLANE_LEVEL_WARN = 2,
  /* Something happens rarely and in order: a start, a join, an end. */
  RECLANE_LEVEL_INFO = 3,
  /* For the people who work on the library. */
  RECLANE_LEVEL_DEBUG = 4,
  /* The same, with everything. */
  RECLANE_LEVEL_TRACE = 5,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum reclane_level reclane_level;
#else
typedef uint32_t reclane_level;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/* How far a checkpoint is: values of reclane_checkpoint_info.state. They only grow. */
enum reclane_checkpoint_state
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /* Asked for. */
  RECLANE_CHECKPOINT_STATE_ASKED = 0,
  /* Requests come to rest. */
  RECLANE_CHECKPOINT_STATE_HOLDING = 1,
  /* State is being copied. */
  RECLANE_CHECKPOINT_STATE_CAPTURING = 2,
  /* Requests go on; files are being written. */
  RECLANE_CHECKPOINT_STATE_WRITING = 3,
  /* It exists. */
  RECLANE_CHECKPOINT_STATE_COMMITTED = 4,
  /* It came to nothing; requests go on. */
  RECLANE_CHECKPOINT_STATE_ABORTED = 5,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum reclane_checkpoint_state reclane_checkpoint_state;
#else
typedef uint32_t reclane_checkpoint_state;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/* Bits of reclane_checkpoint_request.flags. */
enum reclane_checkpoint_flag
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /* Everything is written, whether it has changed or not. */
  RECLANE_CHECKPOINT_FLAG_FULL = 1,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum reclane_checkpoint_flag reclane_checkpoint_flag;
#else
typedef uint32_t reclane_checkpoint_flag;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/* What other ranks may do with a region; the values can be added. */
enum reclane_right
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /* Write. */
  RECLANE_RIGHT_WRITE = 1,
  /* Read. */
  RECLANE_RIGHT_READ = 2,
  /* Fetch-add and compare-swap. */
  RECLANE_RIGHT_ATOMIC = 4,
  /* All of it. */
  RECLANE_RIGHT_ALL = 7,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum reclane_right reclane_right;
#else
typedef uint32_t reclane_right;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/* What an operation of a batch does. */
enum reclane_operation_kind
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /* Local bytes to the region. */
  RECLANE_OPERATION_KIND_WRITE = 1,
  /* The region's bytes here. */
  RECLANE_OPERATION_KIND_READ = 2,
  /* Adds operand to 8 bytes; local receives the old value, or is NULL. */
  RECLANE_OPERATION_KIND_FETCH_ADD = 3,
  /* Stores swap to 8 bytes if they equal operand; local receives the old value, or is NULL. */
  RECLANE_OPERATION_KIND_COMPARE_SWAP = 4,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum reclane_operation_kind reclane_operation_kind;
#else
typedef uint32_t reclane_operation_kind;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/* What is known of an operation. */
enum reclane_known
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /* It is under way. */
  RECLANE_KNOWN_UNDER_WAY = 0,
  /* Its effect is in the peer's memory, and its result here. */
  RECLANE_KNOWN_DONE = 1,
  /* It had no effect and will have none. */
  RECLANE_KNOWN_NOT_DONE = 2,
  /* It may have had its effect, or not; it will have none from now on. */
  RECLANE_KNOWN_AMBIGUOUS = 3,
  /* An atomic that had its effect, and whose old value is lost. */
  RECLANE_KNOWN_RESULT_LOST = 4,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum reclane_known reclane_known;
#else
typedef uint32_t reclane_known;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/* Memory that the fabric can reach. Opaque; made by reclane_buffer_open(). */
typedef struct reclane_buffer reclane_buffer;

/* A connection to all shards. Opaque; made by reclane_client_open(). */
typedef struct reclane_client reclane_client;

/* A bag of named options. Opaque; made by reclane_options_open(). */
typedef struct reclane_options reclane_options;

/* A rank. Opaque; made by reclane_rank_open(). */
typedef struct reclane_rank reclane_rank;

/* A region of this rank. Opaque; made by reclane_region_open(). */
typedef struct reclane_region reclane_region;

/* A checkpoint that was found whole. Opaque; made by reclane_restore_open(). */
typedef struct reclane_restore reclane_restore;

/* A running shard. Opaque; made by reclane_server_open(). */
typedef struct reclane_server reclane_server;

/* What went wrong, where, and what is known about it. Set struct_size = sizeof(reclane_error) before the call. */
typedef struct reclane_error {
  /* sizeof(reclane_error), set by the caller. */
  uint32_t struct_size;
  /* The status that the call returned, a reclane_status. */
  int32_t status;
  /* Where the failure was seen, a reclane_layer. */
  uint32_t layer;
  /* Whether the request was executed, a reclane_outcome. */
  uint32_t outcome;
  /* What was known about the shard's process, a reclane_verdict. */
  uint32_t verdict;
  /* The shard concerned, or RECLANE_NONE. */
  uint32_t shard;
  /* The lane concerned, or RECLANE_NONE. */
  uint32_t lane;
  /* The slot concerned, or RECLANE_NONE. */
  uint32_t slot;
  /* Generation of the lane; 0 when no lane is concerned. */
  uint32_t generation;
  /* Completion status as the fabric numbers it (ibv_wc_status); 0 when none. */
  uint32_t completion;
  /* The device's own error number; 0 when none. */
  uint32_t vendor_error;
  /* errno of the system call that failed; 0 when none did. */
  int32_t os_error;
  /* Sequence number of the request; 0 when no request is concerned. */
  uint64_t sequence;
  /* Nanoseconds from the start of the request or call to the failure; 0 when not measured. */
  uint64_t elapsed_ns;
  /* One line for people: what, which, the value and its bound, what to do. UTF-8, always NUL-terminated, cut at the
   * end if it is too long.
   */
  char message[512];
} reclane_error;

/* Lets go of user_data: called exactly once, on any thread, when the library needs it no more. */
typedef void (*reclane_drop_fn)(void *user_data);

/* One event. Valid during the callback only. */
typedef struct reclane_event {
  /* sizeof(reclane_event) of the library: fields beyond it are not there. */
  uint32_t struct_size;
  /* A reclane_level. */
  uint32_t level;
  /* Microseconds since 1970-01-01 UTC. */
  uint64_t time_us;
  /* Its name, "lane_dirty" say; docs/errors.md has the list. NUL-terminated UTF-8. */
  const char *name;
  /* The whole event, "time=... level=warn event=lane_dirty shard=1 ...", NUL-terminated UTF-8. */
  const char *line;
  /* Bytes of line without the NUL. */
  uint64_t line_length;
} reclane_event;

/* Takes one event. Runs on one thread of the library, one event after the other. It may block: events that do not fit
 * the queue meanwhile are dropped and counted. It must not call the stop, shutdown and close functions of this library.
 */
typedef void (*reclane_event_fn)(void *user_data,
                                 const struct reclane_event *event);

/* Where events go. Zero the struct, set struct_size = sizeof(reclane_event_sink) and on_event. */
typedef struct reclane_event_sink {
  /* sizeof(reclane_event_sink). */
  uint32_t struct_size;
  /* Highest reclane_level that is wanted. 0 means RECLANE_LEVEL_INFO. */
  uint32_t level;
  /* Given back to on_event. */
  void *user_data;
  /* May be NULL. */
  reclane_drop_fn drop_user_data;
  /* Required. */
  reclane_event_fn on_event;
} reclane_event_sink;

/* What a table is made of. Zero the struct, set struct_size = sizeof(reclane_table_options), name and dim. */
typedef struct reclane_table_options {
  /* sizeof(reclane_table_options). */
  uint32_t struct_size;
  /* floats per row, 1..16384. Required. */
  uint32_t dim;
  /* 1..63 bytes of UTF-8, NUL-terminated. Required. Read during the call only. */
  const char *name;
  /* Keys 0..num_embeddings-1 are expected and get dense storage; others are taken too. 0: no expectation. */
  uint64_t num_embeddings;
  /* A reclane_optimizer. 0 is SGD. */
  uint32_t optimizer;
  /* Learning rate, positive. 0 means 0.01. */
  float learning_rate;
  /* Adagrad's epsilon, not negative. 0 means 1e-10. */
  float epsilon;
  /* Initial value of Adagrad's accumulators, not negative. */
  float initial_accumulator;
} reclane_table_options;

/* Creates a table or finds the same one again; writes its number, 0..65535, to *table. All shards must give a table the
 * same number, or reclane_client_init_table() fails. *table holds a proposal that is the same on all shards, whatever the
 * order in which tables are made: a store without numbers of its own can leave it. Two tables may, rarely, be proposed the
 * same number; a store that finds it taken must choose another one in a way that all shards share.
 */
typedef int (*reclane_store_init_table_fn)(void *user_data,
                                           uint32_t worker,
                                           const struct reclane_table_options *options,
                                           uint32_t *table);

/* Writes the floats per row of a table to *dim; nonzero when there is no such table. Called for each request, by many
 * workers at once: must be quick.
 */
typedef int (*reclane_store_table_shape_fn)(void *user_data,
                                            uint32_t table,
                                            uint32_t *dim);

/* Writes key_count rows of dim floats to rows, in the order of keys; a missing key gives a row of zeroes and counts in
 * *missing_rows.
 */
typedef int (*reclane_store_get_flat_fn)(void *user_data,
                                         uint32_t worker,
                                         uint32_t table,
                                         const uint64_t *keys,
                                         size_t key_count,
                                         float *rows,
                                         uint32_t dim,
                                         uint32_t *missing_rows);

/* Takes key_count rows of dim floats, row i at rows + i * stride_bytes, in the order of keys. A client that breaks the
 * rules can change the bytes meanwhile: read each once, and trust none.
 */
typedef int (*reclane_store_rows_fn)(void *user_data,
                                     uint32_t worker,
                                     uint32_t table,
                                     const uint64_t *keys,
                                     size_t key_count,
                                     const float *rows,
                                     size_t stride_bytes,
                                     uint32_t dim);

/* Does a reclane_command; argument is "" when the command has none. */
typedef int (*reclane_store_command_fn)(void *user_data,
                                        uint32_t worker,
                                        uint32_t command,
                                        const char *argument);

/* Says which keys will be asked for soon. Only a hint. */
typedef void (*reclane_store_prefetch_fn)(void *user_data,
                                          uint32_t table,
                                          const uint64_t *keys,
                                          size_t key_count);

/* One row in place, for pin_rows. */
typedef struct reclane_row {
  /* First byte of the row, aligned to 4 bytes, inside the backing region; NULL when the key has no row. */
  const void *address;
} reclane_row;

/* Names key_count rows in place and keeps each from being freed or torn until unpin_rows of the number that it writes to
 * *pin.
 */
typedef int (*reclane_store_pin_rows_fn)(void *user_data,
                                         uint32_t worker,
                                         uint32_t table,
                                         const uint64_t *keys,
                                         size_t key_count,
                                         struct reclane_row *rows,
                                         uint32_t dim,
                                         uint64_t *pin);

/* Lets pinned rows go; worker may be another one than pinned them. */
typedef void (*reclane_store_unpin_rows_fn)(void *user_data,
                                            uint32_t worker,
                                            uint64_t pin);

/* The host's storage engine. Zero the struct, set struct_size = sizeof(reclane_store) and the required callbacks.
 *
 * Each callback gets user_data first. worker is distinct among calls that run at the same time and lies below what
 * reclane_options_server_workers() says, so it can index per-thread scratch. Callbacks run on the server's threads, many
 * at once. Pointers are valid during the call only. No callback may throw: a C++ exception that leaves one ends the
 * process (reclane.hpp's Store catches them). A callback must not call the stop, shutdown and close functions, nor wait
 * for a request to its own server: the thread that would answer it is the one that waits.
 *
 * Those that return an int return a reclane_answer: 0 when done, -1..-6 when not. Any other number counts as -6. The
 * client gets the answer as its status; the server lives on.
 */
typedef struct reclane_store {
  /* sizeof(reclane_store). */
  uint32_t struct_size;
  /* 0. */
  uint32_t reserved;
  /* Given back to every callback. */
  void *user_data;
  /* May be NULL. */
  reclane_drop_fn drop_user_data;
  /* Required. */
  reclane_store_init_table_fn init_table;
  /* Required. */
  reclane_store_table_shape_fn table_shape;
  /* Required. */
  reclane_store_get_flat_fn get_flat;
  /* Sets rows. May be NULL: PUT is answered with -6. */
  reclane_store_rows_fn put;
  /* Applies gradients as UPDATE brings them, with any stride. May be NULL: update_flat is called with a dense copy. */
  reclane_store_rows_fn update;
  /* Applies gradients as UPDATE_FLAT brings them, stride_bytes = 4 * dim. May be NULL: update is called. Both NULL:
   * UPDATE and UPDATE_FLAT are answered with -6.
   */
  reclane_store_rows_fn update_flat;
  /* May be NULL: commands are answered with -6. */
  reclane_store_command_fn command;
  /* May be NULL. */
  reclane_store_prefetch_fn prefetch;
  /* May be NULL: rows are copied with get_flat. */
  reclane_store_pin_rows_fn pin_rows;
  /* Required when pin_rows is set. */
  reclane_store_unpin_rows_fn unpin_rows;
  /* First byte of the region that holds every pinned row; it stays valid until drop_user_data. Required when pin_rows
   * is set.
   */
  const void *backing_base;
  /* Bytes of that region. */
  uint64_t backing_bytes;
} reclane_store;

/* Keeps the state as it is now, and writes to *bytes how many bytes it takes. Requests wait until this returns; one that
 * only reads may still be under way. The cheap way is to copy what is small, and to copy on write what is large.
 */
typedef int (*reclane_state_freeze_fn)(void *user_data,
                                       uint64_t epoch,
                                       uint64_t *bytes);

/* Writes the count bytes from offset on of the frozen state to buffer. Parts come in any order, while requests go on;
 * a checkpoint may be given up before all were asked for.
 */
typedef int (*reclane_state_save_fn)(void *user_data,
                                     uint64_t offset,
                                     void *buffer,
                                     size_t count);

/* What was frozen is not needed any more: once after each freeze that answered 0. committed is 1 when the checkpoint
 * exists, 0 when it came to nothing or nobody knows.
 */
typedef void (*reclane_state_release_fn)(void *user_data,
                                         uint64_t epoch,
                                         int committed);

/* Takes a piece of saved state back, before the shard serves: the count bytes from offset on of the total bytes that
 * shard `shard` of `shards` had. With as many shards as then a shard gets its own state; with another number each gets
 * that of all, shard by shard, and takes what is its own. Pieces of one shard come in order; a state of 0 bytes comes as
 * one piece of 0 bytes.
 */
typedef int (*reclane_state_load_fn)(void *user_data,
                                     uint32_t shard,
                                     uint32_t shards,
                                     uint64_t total,
                                     uint64_t offset,
                                     const void *buffer,
                                     size_t count);

/* State of the host program. Zero the struct, set struct_size = sizeof(reclane_state) and the callbacks, all of which are
 * required. Those that return an int answer 0 when done; any other number ends the checkpoint, or keeps the shard from
 * starting, and is in the message.
 */
typedef struct reclane_state {
  /* sizeof(reclane_state). */
  uint32_t struct_size;
  /* 0. */
  uint32_t reserved;
  /* Given back to every callback. Stays the caller's, and valid until reclane_server_close() has returned. */
  void *user_data;
  /* Required. */
  reclane_state_freeze_fn freeze;
  /* Required. */
  reclane_state_save_fn save;
  /* Required. */
  reclane_state_release_fn release;
  /* Required. */
  reclane_state_load_fn load;
} reclane_state;

/* Names one submitted request of one client. Never 0. */
typedef uint64_t reclane_request;

/* How the keys of one shard did in one request. Set struct_size = sizeof(reclane_shard_result) before the call. */
typedef struct reclane_shard_result {
  /* sizeof(reclane_shard_result), set by the caller. */
  uint32_t struct_size;
  /* The shard. */
  uint32_t shard;
  /* How its part that failed first did, a reclane_status; RECLANE_STATUS_OK when none failed. */
  int32_t status;
  /* Of its keys together, a reclane_outcome: RECLANE_OUTCOME_UNKNOWN also when some were executed and some were not. */
  uint32_t outcome;
  /* Keys of the request that belong to this shard. */
  uint64_t key_count;
  /* Keys of these that were executed. */
  uint64_t executed_count;
  /* Keys of these that were certainly not executed. The rest is in doubt. */
  uint64_t not_executed_count;
} reclane_shard_result;

/* What one lane is doing. Set struct_size = sizeof(reclane_lane_info) before the call. */
typedef struct reclane_lane_info {
  /* sizeof(reclane_lane_info), set by the caller. */
  uint32_t struct_size;
  /* The shard it leads to. */
  uint32_t shard;
  /* Its number, 0..qps-per-client-per-shard - 1. */
  uint32_t lane;
  /* A reclane_lane_state. */
  uint32_t state;
  /* Counts its connections, from 1; 0 before the first. */
  uint32_t generation;
  /* Number of its queue pair; 0 before the first. */
  uint32_t queue_pair;
  /* How a request is committed: "single", "crc" or "imm"; empty before its first connection. A static string. */
  const char *commit_scheme;
  /* 1 while it is connected anew when it fails or has failed, if rdma-lane-rebuild-enabled is on; 0 when that could
   * not help.
   */
  uint32_t rebuildable;
  /* Times that it was connected anew, or tried to be. */
  uint32_t attempts;
  /* Why it last failed, as in the event lane_dirty; empty when it never has. A static string. */
  const char *reason;
} reclane_lane_info;

/* What a client has at a moment. Set struct_size = sizeof(reclane_client_counters) before the call. */
typedef struct reclane_client_counters {
  /* sizeof(reclane_client_counters), set by the caller. */
  uint32_t struct_size;
  /* Number of this client in the deployment. */
  uint32_t client_id;
  /* Shards of the deployment. */
  uint32_t num_shards;
  /* Lanes to all shards together, connected or not. */
  uint32_t lanes;
  /* Lanes of these that carry requests. */
  uint32_t lanes_active;
  /* Request slots of all lanes. */
  uint32_t slots;
  /* Slots of these that requests hold. */
  uint32_t slots_held;
  /* 0. */
  uint32_t reserved;
  /* Bytes of registered memory for the connected lanes on this side. */
  uint64_t lane_bytes;
} reclane_client_counters;

/* What a server has done and has now. Set struct_size = sizeof(reclane_server_counters) before the call. */
typedef struct reclane_server_counters {
  /* sizeof(reclane_server_counters), set by the caller. */
  uint32_t struct_size;
  /* 0. */
  uint32_t reserved;
  /* GET requests executed. */
  uint64_t gets;
  /* PUT requests executed. */
  uint64_t puts;
  /* UPDATE and UPDATE_FLAT requests executed. */
  uint64_t updates;
  /* INIT_TABLE requests executed. */
  uint64_t init_tables;
  /* COMMAND requests executed. */
  uint64_t commands;
  /* Rows answered. */
  uint64_t get_rows;
  /* Rows of these that had no value. */
  uint64_t missing_rows;
  /* Requests that were refused as malformed. */
  uint64_t refused;
  /* Requests whose handler failed. */
  uint64_t internal_errors;
  /* Lanes that are scanned. */
  uint64_t lanes;
  /* Rounds over all slots. */
  uint64_t scan_rounds;
  /* Rounds of these that found nothing. */
  uint64_t empty_scan_rounds;
  /* Times that a poll thread went to sleep. */
  uint64_t sleeps;
  /* Bytes of registered memory for the lanes on this side. */
  uint64_t lane_bytes;
  /* Requests that came again, and were answered without being executed again. */
  uint64_t repeated;
} reclane_server_counters;

/* What the control plane knows of a shard. Set struct_size = sizeof(reclane_health_info) before the call. */
typedef struct reclane_health_info {
  /* sizeof(reclane_health_info), set by the caller. */
  uint32_t struct_size;
  /* The shard. */
  uint32_t shard;
  /* 1 when anything is known, else 0. */
  uint32_t known;
  /* A reclane_health. */
  uint32_t health;
  /* Milliseconds since the shard was last heard of; 0 when nothing is known. */
  uint64_t idle_ms;
} reclane_health_info;

/* Latencies of one operation. Set struct_size = sizeof(reclane_latency_info) before the call. */
typedef struct reclane_latency_info {
  /* sizeof(reclane_latency_info), set by the caller. */
  uint32_t struct_size;
  /* 0. */
  uint32_t reserved;
  /* Requests that were timed: one in metrics-sample-every. */
  uint64_t count;
  /* Sum of their times, in nanoseconds. */
  uint64_t sum_ns;
  /* Half of them took no longer; at most a thirty-second too large, as are the next three. */
  uint64_t p50_ns;
  /* 90 % of them took no longer. */
  uint64_t p90_ns;
  /* 99 %. */
  uint64_t p99_ns;
  /* 99.9 %. */
  uint64_t p999_ns;
  /* The longest one took so long. */
  uint64_t max_ns;
} reclane_latency_info;

/* Totals of one client to one shard: what the lines component=rdma_rc_client_profile are made of.
 * Set struct_size = sizeof(reclane_client_profile_counters) before the call.
 *
 * Times are those of timed requests, times the number of requests that one of them stands for (metrics-sample-every);
 * divided by the timed_ count beside them they are averages. All are 0 while requests are not counted.
 */
typedef struct reclane_client_profile_counters {
  /* sizeof(reclane_client_profile_counters), set by the caller. */
  uint32_t struct_size;
  /* The shard. */
  uint32_t shard;
  /* Requests sent. */
  uint64_t submit_count;
  /* Requests whose answer was taken home. */
  uint64_t wait_count;
  /* Slots given back. */
  uint64_t revoke_count;
  /* Slots taken. */
  uint64_t acquire_qp_count;
  /* Attempts that found every slot held. */
  uint64_t acquire_qp_failures;
  /* Time of submitting. */
  uint64_t submit_request_ns;
  /* Time from there until the answer was seen. */
  uint64_t wait_status_ns;
  /* Time of taking answers home. */
  uint64_t copy_response_ns;
  /* Bytes of rows taken home. */
  uint64_t copied_bytes;
  /* Time of giving slots back. */
  uint64_t revoke_resource_ns;
  /* Requests that the three times before are of. */
  uint64_t timed_requests;
  /* Revokes that their time is of. */
  uint64_t timed_revokes;
  /* Most requests under way that a timed request found. */
  uint64_t pending_rpc_peak;
  /* Requests under way, added up over the looks. */
  uint64_t pending_rpc_sum;
  /* Timed requests that looked. */
  uint64_t pending_rpc_looks;
  /* Requests under way now. */
  uint64_t pending_rpc_last;
} reclane_client_profile_counters;

/* Totals of writes and answers of one end: what the lines component=rdma_rc_transport_profile are made of.
 * Set struct_size = sizeof(reclane_transport_profile_counters) before the call.
 *
 * Times are those of timed requests, times the number of requests that one of them stands for (metrics-sample-every);
 * divided by the timed_ count beside them they are averages. All are 0 while requests are not counted.
 */
typedef struct reclane_transport_profile_counters {
  /* sizeof(reclane_transport_profile_counters), set by the caller. */
  uint32_t struct_size;
  /* The shard. */
  uint32_t shard;
  /* 1 for a shard's end, 2 for a client's. */
  uint32_t role;
  /* 0. */
  uint32_t reserved;
  /* Requests sent. */
  uint64_t submit_count;
  /* Requests with keys or rows beside their cache line. */
  uint64_t submit_descriptor_writes;
  /* Requests committed. */
  uint64_t submit_commit_writes;
  /* Time of submitting. */
  uint64_t submit_request_ns;
  /* Requests that this time is of. */
  uint64_t timed_submits;
  /* 0: no submit waits for an earlier one. */
  uint64_t drain_submit_count;
  /* 0. */
  uint64_t drain_pending_submit_ns;
  /* Answers. */
  uint64_t complete_count;
  /* Answers with rows beside their cache line. */
  uint64_t response_payload_writes;
  /* 0: no scattered writes. */
  uint64_t response_payload_sg_writes;
  /* 0. */
  uint64_t response_payload_sg_wrs;
  /* Answers committed. */
  uint64_t response_status_writes;
  /* Bytes of rows in answers. */
  uint64_t response_payload_bytes;
  /* Time of answering. */
  uint64_t complete_response_ns;
  /* Answers that this time is of. */
  uint64_t timed_completes;
  /* 0: no answer waits for an earlier one. */
  uint64_t drain_response_count;
  /* 0. */
  uint64_t drain_pending_response_ns;
} reclane_transport_profile_counters;

/* Totals of one shard: what the lines component=rdma_rc_server_profile are made of.
 * Set struct_size = sizeof(reclane_server_profile_counters) before the call.
 *
 * Times are those of timed requests, times the number of requests that one of them stands for (metrics-sample-every);
 * divided by the timed_ count beside them they are averages. All are 0 while requests are not counted.
 */
typedef struct reclane_server_profile_counters {
  /* sizeof(reclane_server_profile_counters), set by the caller. */
  uint32_t struct_size;
  /* The shard. */
  uint32_t shard;
  /* Poll threads. */
  uint64_t threads;
  /* Rounds over slots. */
  uint64_t scan_rounds;
  /* Slots looked at, worked out from the number of slots in use. */
  uint64_t scanned_slots;
  /* Requests found. */
  uint64_t ready_slots;
  /* Looks that found none. */
  uint64_t not_ready_slots;
  /* 0: a slot without a sequence is never ready. */
  uint64_t zero_seq_ready;
  /* Requests that came again and were answered from memory. */
  uint64_t duplicate_seq_ready;
  /* Requests that came again while they were being executed. */
  uint64_t inflight_seq_ready;
  /* Rounds that found nothing. */
  uint64_t empty_scan_rounds;
  /* Rounds that found something. */
  uint64_t ready_rounds;
  /* Most requests that a timed round found. */
  uint64_t max_ready_per_round;
  /* GETs executed. */
  uint64_t handled_get;
  /* PUTs executed. */
  uint64_t handled_put;
  /* UPDATEs of both kinds executed. */
  uint64_t handled_update;
  /* INIT_TABLEs executed. */
  uint64_t handled_init;
  /* Requests refused as malformed, those for other shards included. */
  uint64_t invalid_descriptor;
  /* Requests for other shards. */
  uint64_t wrong_shard;
  /* Time of executing GETs. */
  uint64_t handle_get_ns;
  /* GETs that this and the next four times are of. */
  uint64_t timed_gets;
  /* The store's part of it. */
  uint64_t get_batch_get_ns;
  /* Finding rows; 0 for a store behind callbacks. */
  uint64_t get_index_lookup_ns;
  /* Zeros for missing rows; 0 for a store behind callbacks. */
  uint64_t get_zero_fill_ns;
  /* Copying rows; for a store behind callbacks all of its part. */
  uint64_t get_row_copy_ns;
  /* Keys of GETs. */
  uint64_t get_rows;
  /* Bytes of rows answered. */
  uint64_t get_value_bytes;
  /* Keys without a row. */
  uint64_t get_missing_rows;
  /* GETs whose rows were copied once, from the table to their place. */
  uint64_t get_direct_sg;
  /* GETs whose rows were copied twice. */
  uint64_t get_direct_sg_fallback;
  /* Time of executing the former. */
  uint64_t get_direct_sg_ns;
  /* GETs that this time is of. */
  uint64_t timed_direct;
  /* Writes for them. */
  uint64_t get_direct_sg_wr;
  /* Time of executing PUTs. */
  uint64_t handle_put_ns;
  /* PUTs that this time is of. */
  uint64_t timed_puts;
  /* Time of executing UPDATEs. */
  uint64_t handle_update_ns;
  /* UPDATEs that this time is of. */
  uint64_t timed_updates;
  /* Time of executing INIT_TABLEs. */
  uint64_t handle_init_ns;
  /* INIT_TABLEs that this time is of. */
  uint64_t timed_inits;
  /* Time of answering. */
  uint64_t complete_response_ns;
  /* Answers that this time is of. */
  uint64_t timed_answers;
  /* Time of poll threads that were not asleep. */
  uint64_t poll_loop_ns;
  /* Poll threads that executed a GET. */
  uint64_t poller_active;
  /* GETs that poll threads executed. */
  uint64_t poller_total_get;
  /* GETs of the poll thread with the fewest. */
  uint64_t poller_min_get;
  /* Its number. */
  uint64_t poller_min_get_thread;
  /* GETs of the poll thread with the most. */
  uint64_t poller_max_get;
  /* Its number. */
  uint64_t poller_max_get_thread;
} reclane_server_profile_counters;

/* What is asked for. Set struct_size = sizeof(reclane_checkpoint_request) and the rest to zero before filling it in. */
typedef struct reclane_checkpoint_request {
  /* sizeof(reclane_checkpoint_request), set by the caller. */
  uint32_t struct_size;
  /* 0 or RECLANE_CHECKPOINT_FLAG_FULL. */
  uint32_t flags;
  /* Name of the application section, NUL-terminated UTF-8 of at most 255 bytes; NULL: there is none. Copied. */
  const char *section_name;
  /* Its bytes, at most 32768. Copied during the call. */
  const void *section;
  /* How many. */
  uint64_t section_bytes;
} reclane_checkpoint_request;

/* How far a checkpoint is. Set struct_size = sizeof(reclane_checkpoint_info) before the call. */
typedef struct reclane_checkpoint_info {
  /* sizeof(reclane_checkpoint_info), set by the caller. */
  uint32_t struct_size;
  /* A reclane_checkpoint_state. */
  uint32_t state;
  /* Its epoch; 0 while it has none. */
  uint64_t epoch;
  /* Nanoseconds that requests waited at most; 0 until they go on. */
  uint64_t hold_ns;
  /* Nanoseconds from the first word until all was durable; 0 until then. */
  uint64_t total_ns;
  /* Bytes of state in it; 0 until it is committed. */
  uint64_t state_bytes;
  /* Bytes that were written for it; the rest lies in earlier ones. */
  uint64_t written_bytes;
} reclane_checkpoint_info;

/* What checkpoints, restores and failures cost. Set struct_size = sizeof(reclane_checkpoint_cost) before the call. */
typedef struct reclane_checkpoint_cost {
  /* sizeof(reclane_checkpoint_cost), set by the caller. */
  uint32_t struct_size;
  /* 0. */
  uint32_t reserved;
  /* Nanoseconds that work stands still for one checkpoint, as reclane_checkpoint_info.hold_ns. */
  uint64_t pause_ns;
  /* Nanoseconds until one is durable, as reclane_checkpoint_info.total_ns. */
  uint64_t durable_ns;
  /* Nanoseconds from a failure until work goes on. */
  uint64_t restart_ns;
  /* Mean nanoseconds between two failures of the whole deployment. */
  uint64_t mtbf_ns;
} reclane_checkpoint_cost;

/* What a restore would bring back. Set struct_size = sizeof(reclane_restore_info) before the call. */
typedef struct reclane_restore_info {
  /* sizeof(reclane_restore_info), set by the caller. */
  uint32_t struct_size;
  /* How many shards it was taken of; 0: it is of ranks. It can be restored by any number. */
  uint32_t shards;
  /* Its epoch. */
  uint64_t epoch;
  /* The one that it builds on; 0: none. */
  uint64_t parent;
  /* When it was committed, microseconds since 1970 UTC. */
  uint64_t unix_us;
  /* Bytes of state. */
  uint64_t state_bytes;
  /* Bytes of its own files. */
  uint64_t file_bytes;
  /* Nanoseconds that requests waited for it at most. */
  uint64_t hold_ns;
  /* Nanoseconds until it was durable. */
  uint64_t total_ns;
  /* Newer ones that were passed over; reclane_restore_refused() says why. */
  uint32_t refused;
  /* Earlier ones that it builds on. */
  uint32_t needs;
  /* How many ranks it was taken of; 0: it is of a parameter server. As many get their regions back. */
  uint32_t ranks;
  /* 0. */
  uint32_t reserved;
} reclane_restore_info;

/* What a rank has and has done. Set struct_size = sizeof(reclane_rank_info) before the call. */
typedef struct reclane_rank_info {
  /* sizeof(reclane_rank_info), set by the caller. */
  uint32_t struct_size;
  /* Its number. */
  uint32_t rank;
  /* Ranks of the job. */
  uint32_t ranks;
  /* Port of the control plane; of rank 0 the one that it listens on. */
  uint32_t control_plane_port;
  /* Regions that it has open. */
  uint32_t regions;
  /* Ranks that it has a working lane to. */
  uint32_t lanes;
  /* Operations that were posted on all lanes. */
  uint64_t posted;
  /* Operations that are settled. */
  uint64_t settled;
  /* Epoch of the checkpoint that it started from; 0: it started empty. */
  uint64_t restored_epoch;
} reclane_rank_info;

/* Brings the program to rest within so many milliseconds: until the resume callback nothing of it touches its regions.
 * Operations that are under way may end. Returns 0, or another number when it cannot; the checkpoint is given up then.
 */
typedef int (*reclane_rest_fn)(void *user_data,
                               uint64_t within_ms);

/* The program's own bytes, as it rests, and how many; valid until the resume callback. */
typedef const void *(*reclane_section_fn)(void *user_data,
                                          uint64_t *bytes);

/* The program goes on. copied is 1 when it is in the checkpoint, if that is committed, and 0 when it was given up. */
typedef void (*reclane_resume_fn)(void *user_data,
                                  int copied);

/* What brings a program to rest. Zero the struct, set struct_size = sizeof(reclane_rank_hooks) and the required callbacks.
 *
 * They are called on a thread of the rank, one at a time, in this order. No callback may throw: a C++ exception that
 * leaves one ends the process. A callback must not begin, wait for or abort a checkpoint, nor close the rank.
 */
typedef struct reclane_rank_hooks {
  /* sizeof(reclane_rank_hooks). */
  uint32_t struct_size;
  /* 0. */
  uint32_t reserved;
  /* Given back to every callback. */
  void *user_data;
  /* May be NULL. */
  reclane_drop_fn drop_user_data;
  /* Required. */
  reclane_rest_fn rest;
  /* May be NULL: the program has no bytes of its own. */
  reclane_section_fn section;
  /* Required. */
  reclane_resume_fn resume;
  /* Name of the section, NUL-terminated UTF-8 of at most 255 bytes; copied. Required with section. */
  const char *section_name;
} reclane_rank_hooks;

/* What is known of a region of another rank. Set struct_size = sizeof(reclane_region_info) before the call. */
typedef struct reclane_region_info {
  /* sizeof(reclane_region_info), set by the caller. */
  uint32_t struct_size;
  /* The rank that owns it. */
  uint32_t rank;
  /* Its id. */
  uint32_t region;
  /* What other ranks may do with it, reclane_right values added. */
  uint32_t rights;
  /* Its length in bytes. */
  uint64_t bytes;
  /* Counts the owner's changes of its regions: another number is another registration. */
  uint64_t version;
} reclane_region_info;

/* One operation of a batch. Zero it first; fields that it does not use stay 0. */
typedef struct reclane_operation {
  /* A reclane_operation_kind. */
  uint32_t kind;
  /* The peer's region. */
  uint32_t region;
  /* Byte offset in it; a multiple of 8 for atomics. */
  uint64_t offset;
  /* Length of a write or read, at most 2^30; 8 for atomics. */
  uint64_t bytes;
  /* A write's source, a read's target, where an atomic's old value goes. */
  void *local;
  /* What is added, or compared with. */
  uint64_t operand;
  /* What is stored if equal. */
  uint64_t swap;
  /* 0. */
  uint64_t reserved;
} reclane_operation;

/* Number of operations that were posted without waiting. It is not a handle: nothing has to be given back. */
typedef uint64_t reclane_ticket;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/* ----------------------------------------------------------------------------------------------------
 * Which library this is, and what its numbers mean.
 *
 * These functions need no handle, cannot block, and may be called at any time, in a forked child too.
 */

/* Version of the loaded library as text, "0.1.0" say. Compare with RECLANE_VERSION_STRING, that of the header.
 *
 * Returns a static string.
 * Threads: any.  Blocks: never.
 */
const char *reclane_version(void);

/* Version of the loaded library as (major << 16) | (minor << 8) | patch. Compare with RECLANE_VERSION_NUMBER.
 *
 * Threads: any.  Blocks: never.
 */
uint32_t reclane_version_number(void);

/* Number of the binary interface of the loaded library. Compare with RECLANE_ABI_VERSION.
 *
 * Threads: any.  Blocks: never.
 */
uint32_t reclane_abi_version(void);

/* Checks that the loaded library fits the header: call it with RECLANE_ABI_VERSION before anything else.
 *
 * abi_version  RECLANE_ABI_VERSION of the header that the caller was compiled with.
 * error        may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_OK           they fit
 * RECLANE_STATUS_ABI_VERSION  they do not; the message has both numbers
 * Threads: any.  Blocks: never.
 */
RECLANE_NODISCARD
reclane_status reclane_abi_check(uint32_t abi_version,
                                 struct reclane_error *error);

/* Name of a status: that of its constant, "RECLANE_STATUS_LANE_DOWN" say; "RECLANE_STATUS_?" for a number that this
 * library does not know.
 *
 * Returns a static string.
 * Threads: any.  Blocks: never.
 */
const char *reclane_status_name(int32_t status);

/* What a status says was ruined, and so what to do next. Any number has a class, known or not.
 *
 * Threads: any.  Blocks: never.
 */
reclane_class reclane_status_class(int32_t status);

/* ----------------------------------------------------------------------------------------------------
 * Options: a bag of named values that a server or a client is opened with.
 *
 * Names are those of docs/options.md, spelled with dashes or underscores alike ("slots-per-qp", "rdma_namespace").
 * Values are text, checked when they are set; contradictions between options are found when something is opened.
 * An options handle is read only while a server or client is being opened, so it may be changed or closed afterwards.
 */

/* Opens a bag of options in which each has its default.
 *
 * out    receives the handle; NULL is written on failure. Close it with reclane_options_close().
 * error  may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_NULL_POINTER  out is NULL
 * RECLANE_STATUS_STRUCT_SIZE   error has a size that cannot be
 * Threads: any.  Blocks: never.
 */
RECLANE_NODISCARD
reclane_status reclane_options_open(struct reclane_options **out,
                                    struct reclane_error *error);

/* Sets one option.
 *
 * options  from reclane_options_open().
 * name     name of the option, NUL-terminated UTF-8, dashes or underscores alike, without leading dashes. Copied.
 * value    its value as text: a decimal number, "true" or "false", or one of the option's words. Copied.
 * error    may be NULL; filled on failure only, with the name, the value and its bounds.
 *
 * RECLANE_STATUS_UNKNOWN_OPTION  no option has this name
 * RECLANE_STATUS_OPTION_TYPE     the value is of the wrong type
 * RECLANE_STATUS_OPTION_BOUNDS   the value is out of bounds
 * RECLANE_STATUS_NULL_POINTER, _NOT_UTF8, _BAD_HANDLE, _CLOSED, _FORKED, _STRUCT_SIZE  as their names say
 * Threads: one at a time per options.  Blocks: never.
 */
RECLANE_NODISCARD
reclane_status reclane_options_set(struct reclane_options *options,
                                   const char *name,
                                   const char *value,
                                   struct reclane_error *error);

/* Sets one option from a command-line word: "--name=value", "-name=value" or "--name" (meaning "true"). For programs
 * that pass their own flags on.
 *
 * options  from reclane_options_open().
 * flag     NUL-terminated UTF-8. Copied.
 * error    may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_INVALID_ARGUMENT  flag does not start with a dash or has no name
 * RECLANE_STATUS_UNKNOWN_OPTION, _OPTION_TYPE, _OPTION_BOUNDS  as reclane_options_set()
 * RECLANE_STATUS_NULL_POINTER, _NOT_UTF8, _BAD_HANDLE, _CLOSED, _FORKED, _STRUCT_SIZE  as their names say
 * Threads: one at a time per options.  Blocks: never.
 */
RECLANE_NODISCARD
reclane_status reclane_options_set_flag(struct reclane_options *options,
                                        const char *flag,
                                        struct reclane_error *error);

/* Reads one option as text: the value that was set, or its default.
 *
 * options   from reclane_options_open().
 * name      name of the option, as in reclane_options_set().
 * buffer    receives the value, always NUL-terminated when capacity is not 0; cut if it does not fit.
 * capacity  bytes of buffer, the NUL included.
 * length    may be NULL; receives the bytes of the whole value without the NUL, also when buffer is too small.
 * error     may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_UNKNOWN_OPTION    no option has this name
 * RECLANE_STATUS_BUFFER_TOO_SMALL  the value and its NUL need more than capacity bytes; call again with *length + 1
 * RECLANE_STATUS_NULL_POINTER, _NOT_UTF8, _BAD_HANDLE, _CLOSED, _FORKED, _STRUCT_SIZE  as their names say
 * Threads: one at a time per options.  Blocks: never.
 */
RECLANE_NODISCARD
reclane_status reclane_options_get(const struct reclane_options *options,
                                   const char *name,
                                   char *buffer,
                                   size_t capacity,
                                   size_t *length,
                                   struct reclane_error *error);

/* How many workers a server with these options has: a store's callbacks get worker numbers below it.
 *
 * options  from reclane_options_open(); NULL for all defaults.
 * workers  receives the number, 1..513.
 * error    may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_OPTION_CONFLICT  two options contradict each other, or one the deployment file
 * RECLANE_STATUS_OS_ERROR, _UNKNOWN_OPTION, _OPTION_TYPE, _OPTION_BOUNDS, _INVALID_ARGUMENT, _NOT_UTF8  the deployment
 * file cannot be read or is wrong; the message names it
 * RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _STRUCT_SIZE  as their names say
 * Threads: one at a time per options.  Blocks: while the deployment file is read, if one is named.
 */
RECLANE_NODISCARD
reclane_status reclane_options_server_workers(const struct reclane_options *options,
                                              uint32_t *workers,
                                              struct reclane_error *error);

/* Closes a bag of options. NULL and an already closed handle do nothing.
 *
 * Threads: one at a time per options.  Blocks: never.
 */
void reclane_options_close(struct reclane_options *options);

/* ----------------------------------------------------------------------------------------------------
 * Events: what the library has to say, one line of key=value each.
 *
 * The options log-level and log-file send events to a file or to standard error; a sink sends them to the host, too. By
 * default they go nowhere.
 */

/* Sends the events of this process to the host's callback, beside the places that the options name.
 *
 * sink   where events go; copied. It takes the place of the one before. NULL takes the present one away. When the call
 *        returns, the one before has got what was reported until then, is not called any more, and its user_data was
 *        dropped. On RECLANE_STATUS_OK the library owns sink->user_data and calls sink->drop_user_data once; on any
 *        other status it stays the caller's.
 * error  may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_NULL_POINTER      on_event is NULL
 * RECLANE_STATUS_INVALID_ARGUMENT  level is none of 0..5
 * RECLANE_STATUS_WOULD_DEADLOCK    called from inside a callback
 * RECLANE_STATUS_STRUCT_SIZE       sink or error has a size that cannot be, or an unknown tail
 * RECLANE_STATUS_OS_ERROR          no thread could be started
 * RECLANE_STATUS_FORKED            the process was forked from one that uses the library
 * Threads: any.  Blocks: until the callbacks of the sink before have returned.
 */
RECLANE_NODISCARD
reclane_status reclane_set_event_sink(const struct reclane_event_sink *sink,
                                      struct reclane_error *error);

/* ----------------------------------------------------------------------------------------------------
 * Server: one shard of the parameter server inside the host process.
 *
 * It serves the built-in table, or the host's own storage engine through the callbacks of reclane_store. Its threads
 * start in reclane_server_open() and end in reclane_server_close(); they are named, block all signals, and call back
 * only through reclane_store. Shard 0 hosts the control plane. After a fork the child may not use the handle.
 */

/* Starts a shard: registers memory, starts its threads, joins the control plane (shard 0 starts it first) and says
 * that it is ready. Returns when the shard serves.
 *
 * options  options of the server side; NULL for all defaults. Read during the call only.
 * store    the host's storage engine, or NULL for the built-in table. The struct is copied. On RECLANE_STATUS_OK the
 *          library owns store->user_data and calls store->drop_user_data once, at the latest in
 *          reclane_server_close(); on any other status it stays the caller's.
 * out      receives the handle; NULL is written on failure. Close it with reclane_server_close().
 * error    may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_OPTION_CONFLICT            two options contradict each other, or one the deployment file
 * RECLANE_STATUS_UNKNOWN_OPTION, _OPTION_TYPE, _OPTION_BOUNDS, _INVALID_ARGUMENT, _NOT_UTF8  a field of the deployment
 * file is wrong, or it is no such file; the message names it
 * RECLANE_STATUS_STRUCT_SIZE                store or error has a size that cannot be, or an unknown tail
 * RECLANE_STATUS_NULL_POINTER               out, or a required callback, is NULL
 * RECLANE_STATUS_FABRIC_UNAVAILABLE         the chosen fabric cannot run here
 * RECLANE_STATUS_DUPLICATE_ID               another live process serves this shard
 * RECLANE_STATUS_DEPLOYMENT_MISMATCH        settings differ from those of the deployment; the message has both values
 * RECLANE_STATUS_STALE_EPOCH                the deployment has a newer epoch, or another id
 * RECLANE_STATUS_CONTROL_PLANE_UNREACHABLE  shard 0 did not answer within rdma-control-plane-timeout-ms
 * RECLANE_STATUS_OS_ERROR, _RESOURCE_LIMIT, _BAD_HANDLE, _CLOSED, _FORKED, _BUG  as their names say
 * Threads: any.  Blocks: up to the option rdma-control-plane-timeout-ms.
 */
RECLANE_NODISCARD
reclane_status reclane_server_open(const struct reclane_options *options,
                                   const struct reclane_store *store,
                                   struct reclane_server **out,
                                   struct reclane_error *error);

/* The same, with state of the host program that is part of the shard's checkpoints and comes back with them: of a size
 * that the program chooses, beside the built-in table, or as the whole state of a storage engine behind callbacks, which
 * has checkpoints only in this way.
 *
 * options  as for reclane_server_open().
 * store    as for reclane_server_open().
 * state    its callbacks; the struct is copied. On a restore load is called before this function returns.
 * out      as for reclane_server_open().
 * error    may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_NULL_POINTER    also when state, or one of its callbacks, is NULL
 * RECLANE_STATUS_INTERNAL_ERROR  load has refused what was saved; the message has its answer
 * Others as for reclane_server_open().
 * Threads: any.  Blocks: up to the option rdma-control-plane-timeout-ms, and while a checkpoint is read.
 */
RECLANE_NODISCARD
reclane_status reclane_server_open_with_state(const struct reclane_options *options,
                                              const struct reclane_store *store,
                                              const struct reclane_state *state,
                                              struct reclane_server **out,
                                              struct reclane_error *error);

/* Stops serving in order: says "draining" to the control plane, answers what has arrived, then ends its threads. May be
 * called again after a failure. Requests that arrive later are not answered.
 *
 * server      from reclane_server_open().
 * timeout_ms  how long to wait for requests under way, milliseconds; 0 for 10 s.
 * error       may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_BUSY            a callback or handler has not returned yet; the server goes on stopping
 * RECLANE_STATUS_WOULD_DEADLOCK  called from inside a callback
 * RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names say
 * Threads: any.  Blocks: up to timeout_ms, whatever clients do; a goodbye and a scraper of the metrics
 * port that is being answered may take a second more.
 */
reclane_status reclane_server_stop(struct reclane_server *server,
                                   uint64_t timeout_ms,
                                   struct reclane_error *error);

/* Port on which this shard's control plane listens: of use when the option rdma-control-plane-port is 0, "any".
 *
 * server  from reclane_server_open().
 * port    receives the port, 1..65535.
 * error   may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_WRONG_STATE  this server hosts no control plane: it is not shard 0
 * RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE  as their names say
 * Threads: any.  Blocks: never.
 */
RECLANE_NODISCARD
reclane_status reclane_server_control_plane_port(const struct reclane_server *server,
                                                 uint32_t *port,
                                                 struct reclane_error *error);

/* Closes a server: stops it if it was not stopped, ends its threads, gives its memory back and drops the store. No
 * callback runs after it returns. NULL and an already closed handle do nothing. Inside a callback of reclane_store it
 * does nothing either, since it would wait for that callback; in a forked child it only forgets.
 *
 * Threads: one at a time per server; no other call on it may be under way.  Blocks: until its threads have ended.
 */
void reclane_server_close(struct reclane_server *server);

/* ----------------------------------------------------------------------------------------------------
 * Client: a process's connection to all shards of a parameter server.
 *
 * One handle serves any number of threads: every call on it may run at the same time as every other, close apart.
 * Batches are split by shard and by request limit inside; rows come back in the caller's order. Keys are uint64_t,
 * rows are float, row-major, one row of the table's width per key. A key may occur more than once in a batch.
 * After a fork the child may not use the handle: its calls answer RECLANE_STATUS_FORKED.
 */

/* Connects to every shard of a deployment: the entry for programs with flags or setters. The environment is not read.
 *
 * options  options of the client side; NULL for all defaults. Read during the call only.
 * out      receives the handle; NULL is written on failure. Close it with reclane_client_close().
 * error    may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_OPTION_CONFLICT            two options contradict each other, or one the deployment file
 * RECLANE_STATUS_UNKNOWN_OPTION, _OPTION_TYPE, _OPTION_BOUNDS, _INVALID_ARGUMENT, _NOT_UTF8  a field of the deployment
 * file is wrong, or it is no such file; the message names it
 * RECLANE_STATUS_STARTUP_TIMEOUT            not every shard was ready in time; the message names the missing ones
 * RECLANE_STATUS_CONTROL_PLANE_UNREACHABLE  nobody answers at rdma-control-plane-host and -port
 * RECLANE_STATUS_DEPLOYMENT_MISMATCH        settings differ from those of the deployment; the message has both values
 * RECLANE_STATUS_STALE_EPOCH                the deployment has a newer epoch, or another id
 * RECLANE_STATUS_DUPLICATE_ID               another live process holds this client id
 * RECLANE_STATUS_FABRIC_UNAVAILABLE         the chosen fabric cannot run here
 * RECLANE_STATUS_OS_ERROR, _RESOURCE_LIMIT, _NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _STRUCT_SIZE, _BUG  as their
 * names say
 * Threads: any.  Blocks: up to the option rdma-control-plane-timeout-ms.
 */
RECLANE_NODISCARD
reclane_status reclane_client_open(const struct reclane_options *options,
                                   struct reclane_client **out,
                                   struct reclane_error *error);

/* Connects to every shard of a deployment that the environment alone describes (RECLANE_* and its aliases, rank and
 * world size from RANK, WORLD_SIZE and their relatives; docs/options.md has the list): the entry for plug-ins that have
 * no command line.
 *
 * out    receives the handle; NULL is written on failure. Close it with reclane_client_close().
 * error  may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_UNKNOWN_OPTION, _OPTION_TYPE, _OPTION_BOUNDS  an environment variable is wrong; the message names it
 * and all statuses of reclane_client_open()
 * Threads: any; no other thread may change the environment meanwhile.  Blocks: as reclane_client_open().
 */
RECLANE_NODISCARD
reclane_status reclane_client_open_from_environment(struct reclane_client **out,
                                                    struct reclane_error *error);

/* Ends a client in order: waits until every request was revoked, then leaves the deployment. May be called again after
 * a failure. Afterwards requests and buffers are refused with RECLANE_STATUS_CLOSED.
 *
 * client      from reclane_client_open().
 * timeout_ms  how long to wait, milliseconds; 0 for 10 s.
 * error       may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_BUSY            requests were not revoked yet
 * RECLANE_STATUS_WOULD_DEADLOCK  called from inside a callback
 * RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names say
 * Threads: any.  Blocks: up to timeout_ms.
 */
reclane_status reclane_client_shutdown(struct reclane_client *client,
                                       uint64_t timeout_ms,
                                       struct reclane_error *error);

/* Closes a client: abandons requests under way, leaves the deployment, ends its threads. The caller's memory named by
 * requests is not touched after it returns; the rows of GETs in place are gone. Buffers of this client keep their memory
 * until they are closed themselves. NULL and an already closed handle do nothing; in a forked child it only forgets;
 * inside a callback of reclane_store it does nothing.
 *
 * Threads: one at a time per client; no other call on it may be under way.  Blocks: until its threads have ended.
 */
void reclane_client_close(struct reclane_client *client);

/* Creates a table on every shard, or finds the one of this name again: then everything in the options must agree. With
 * the built-in table its number follows from the options: a shard that was started anew gives it the same one. Call it
 * again after a shard was; the rows are gone until they are put or loaded.
 *
 * client         from reclane_client_open().
 * table_options  what to create. Read during the call only.
 * table          receives the number by which all other calls name the table.
 * error          may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_INVALID_ARGUMENT  a field is out of its range; the message names it
 * RECLANE_STATUS_INVALID_PAYLOAD   a table of this name exists with other options
 * RECLANE_STATUS_DEPLOYMENT_MISMATCH  stores of the host program's own give it different numbers on different shards
 * RECLANE_STATUS_RESOURCE_LIMIT    so many tables exist that no number was found for it
 * RECLANE_STATUS_INTERNAL_ERROR    a shard's store failed; it lives on
 * RECLANE_STATUS_WAIT_TIMEOUT, _SHARD_UNREACHABLE, _LANE_DOWN, _DRAINING  as their names say
 * RECLANE_STATUS_NULL_POINTER, _NOT_UTF8, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names
 * say
 * Threads: any.  Blocks: up to the option rdma-wait-timeout-ms.
 */
RECLANE_NODISCARD
reclane_status reclane_client_init_table(struct reclane_client *client,
                                         const struct reclane_table_options *table_options,
                                         uint32_t *table,
                                         struct reclane_error *error);

/* Says a word to every shard's store as a whole.
 *
 * client    from reclane_client_open().
 * command   a reclane_command.
 * argument  for RECLANE_COMMAND_SAVE and _LOAD a name of 1 or more bytes, NUL-terminated UTF-8; NULL or "" for
 *           RECLANE_COMMAND_CLEAR. Copied.
 * error     may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_INVALID_ARGUMENT  no such command, or an argument where none belongs, or none where one does
 * RECLANE_STATUS_INVALID_PAYLOAD   a shard's store does not know the command
 * RECLANE_STATUS_INTERNAL_ERROR    a shard's store could not do it; it lives on
 * RECLANE_STATUS_WAIT_TIMEOUT, _SHARD_UNREACHABLE, _LANE_DOWN, _DRAINING  as their names say
 * RECLANE_STATUS_NULL_POINTER, _NOT_UTF8, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names
 * say
 * Threads: any.  Blocks: up to the option rdma-wait-timeout-ms.
 */
RECLANE_NODISCARD
reclane_status reclane_client_command(struct reclane_client *client,
                                      uint32_t command,
                                      const char *argument,
                                      struct reclane_error *error);

/* Waits until as many members of the deployment as `participants` have called it with this name.
 *
 * client        from reclane_client_open().
 * name          name of the barrier, NUL-terminated UTF-8, 1 or more bytes. Copied. It may be used again once passed.
 * participants  how many members (clients, not calls) make the barrier open, at least 1; all must say the same number.
 * timeout_ms    how long to wait, milliseconds; 0 for 60 s.
 * error         may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_STARTUP_TIMEOUT            not all came in time; the message says who did
 * RECLANE_STATUS_SHARD_UNREACHABLE          a participant died or left while it waited; the message names it
 * RECLANE_STATUS_INVALID_ARGUMENT           participants is 0, the name is empty, or the others say another number
 * RECLANE_STATUS_RESOURCE_LIMIT             too many barriers are waited for at once
 * RECLANE_STATUS_CONTROL_PLANE_UNREACHABLE  the control plane is gone
 * RECLANE_STATUS_NULL_POINTER, _NOT_UTF8, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names
 * say
 * Threads: any.  Blocks: up to timeout_ms.
 */
RECLANE_NODISCARD
reclane_status reclane_client_barrier(struct reclane_client *client,
                                      const char *name,
                                      uint32_t participants,
                                      uint64_t timeout_ms,
                                      struct reclane_error *error);

/* The shard that owns a key, 0..num_shards-1.
 *
 * client  from reclane_client_open().
 * key     any key.
 * shard   receives the shard.
 * error   may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE  as their names say
 * Threads: any.  Blocks: never.
 */
RECLANE_NODISCARD
reclane_status reclane_client_shard_of(const struct reclane_client *client,
                                       uint64_t key,
                                       uint32_t *shard,
                                       struct reclane_error *error);

/* Takes a lane out of use, as a failed completion would: its queue pair goes to ERR. For maintenance, and for tests of what
 * depends on this library. Requests under way on it fail, or are sent again with request-retry=exactly-once; the lane
 * comes back where rdma-lane-rebuild-enabled is on.
 *
 * client  from reclane_client_open().
 * shard   the shard it leads to, 0..num_shards - 1.
 * lane    its number, 0..qps-per-client-per-shard - 1.
 * error   may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_INVALID_ARGUMENT  there is no such shard or lane
 * RECLANE_STATUS_WRONG_STATE       the lane is not connected yet
 * RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names say
 * Threads: any.  Blocks: never.
 */
RECLANE_NODISCARD
reclane_status reclane_client_break_lane(struct reclane_client *client,
                                         uint32_t shard,
                                         uint32_t lane,
                                         struct reclane_error *error);

/* ----------------------------------------------------------------------------------------------------
 * Request: one GET, PUT, UPDATE or UPDATE_FLAT.
 *
 * The plain calls send a request and wait for its end. The submit calls send it and return a reclane_request, a number
 * that stays good until it is released: query it, wait for it, borrow its rows, then revoke it; or wait and release with
 * reclane_client_finish(). Every request that was submitted must be released once, also when it failed; a number that
 * was released is recognised and refused with RECLANE_STATUS_STALE_TOKEN. A request belongs to one thread at a time;
 * different requests of one client may be worked on by different threads at once.
 *
 * Each open request holds a slot until it is released, also when it has ended; one of several parts holds a slot for
 * each part that was sent, until the part's answer is taken home. To one shard there are qps-per-client-per-shard times
 * slots-per-qp slots, for all threads together. When all are held,
 *   - submit calls answer RECLANE_STATUS_NO_SLOT at once, and a plain call waits for one, at most rdma-wait-timeout-ms.
 *     A thread that holds them all itself would wait for itself: its submit call is refused, and its plain call fails
 *     with RECLANE_STATUS_NO_SLOT when that time is over. It must release a request first.
 *   - a request whose keys go to several shards, or do not fit one slot, is taken all the same: its parts are sent, as
 *     slots become free, by who queries it or waits for it, and before any single request takes a slot. If none becomes
 *     free for rdma-wait-timeout-ms, it fails with RECLANE_STATUS_NO_SLOT, or with RECLANE_STATUS_WAIT_TIMEOUT when a
 *     part was sent.
 *
 * A client connects few of its lanes when it opens: those that the option async-depth needs, and one to spare. When all
 * slots of these are held, as many lanes more are connected as there are already, and the request that needed them waits
 * for that; some milliseconds, 1 s at most, once for each time that a client needs more than ever before. Set
 * async-depth to the requests that the client keeps under way at one shard, or the option qps-at-open to 1024, and
 * reclane_client_open() connects them all, so that no submit call waits.
 *
 * There is no thread behind a request: query, wait and borrow drive it. Keys are copied before a submit call returns.
 * Rows that are sent, and the array of pointers to gradients, must stay valid and unchanged, and memory that a GET writes
 * to must stay valid, until the request has ended or was revoked. keys and rows may be NULL when key_count is 0; such a
 * request is done at once. The parts of a batch that was split may be executed in any order.
 *
 * Every call below can give, beside what its comment lists:
 *   RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names say
 * and every call that sends or ends a request:
 *   RECLANE_STATUS_INVALID_ARGUMENT  an array is misaligned or impossibly long
 *   RECLANE_STATUS_UNKNOWN_TABLE     this client knows no table of this number: call reclane_client_init_table() first
 *   RECLANE_STATUS_BUFFER_TOO_SMALL  the floats given are not key_count rows of the table's width; nothing was sent
 *   RECLANE_STATUS_NO_SLOT           too many requests are open; nothing was sent, revoke some and try again
 *   RECLANE_STATUS_INVALID_PAYLOAD, _WRONG_SHARD, _BATCH_TOO_LARGE, _VALUE_SIZE_MISMATCH, _INTERNAL_ERROR  the server's
 *   answer
 *   RECLANE_STATUS_CORRUPT_RESPONSE  the server's answer disagrees with its checksum, or answers something else; the lane
 *   goes on
 *   RECLANE_STATUS_WAIT_TIMEOUT, _LANE_DOWN, _POST_FAILED, _COMPLETION_ERROR, _COMPLETION_TIMEOUT  the lane that carried
 *   it is lost
 *   RECLANE_STATUS_SHARD_UNREACHABLE, _DRAINING  the shard is gone or going; error names it
 * error->outcome says whether a failed PUT or UPDATE was executed.
 */

/* Reads rows: GET. A key that has no row gives a row of zeroes.
 *
 * client         from reclane_client_open().
 * table          from reclane_client_init_table().
 * keys           key_count keys.
 * rows           receives key_count rows, row i for keys[i]. Its content is undefined on failure.
 * rows_capacity  floats that fit in rows; at least key_count times the table's width.
 * error          may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_BUFFER_TOO_SMALL  rows_capacity is too small; nothing was sent
 * Threads: any.  Blocks: up to the option rdma-wait-timeout-ms.
 */
RECLANE_NODISCARD
reclane_status reclane_client_get(struct reclane_client *client,
                                  uint32_t table,
                                  const uint64_t *keys,
                                  size_t key_count,
                                  float *rows,
                                  size_t rows_capacity,
                                  struct reclane_error *error);

/* Sets rows: PUT. A key that occurs twice has the later row.
 *
 * client       from reclane_client_open().
 * table        from reclane_client_init_table().
 * keys         key_count keys.
 * rows         key_count rows, row i for keys[i].
 * float_count  floats in rows: key_count times the table's width.
 * error        may be NULL; filled on failure only.
 *
 * Threads: any.  Blocks: up to the option rdma-wait-timeout-ms.
 */
RECLANE_NODISCARD
reclane_status reclane_client_put(struct reclane_client *client,
                                  uint32_t table,
                                  const uint64_t *keys,
                                  size_t key_count,
                                  const float *rows,
                                  size_t float_count,
                                  struct reclane_error *error);

/* Applies gradients through the table's optimizer, given as one pointer per row: UPDATE. A key that occurs twice is
 * updated twice.
 *
 * client     from reclane_client_open().
 * table      from reclane_client_init_table().
 * keys       key_count keys.
 * gradients  key_count pointers; gradients[i] points to one row of the table's width for keys[i].
 * error      may be NULL; filled on failure only.
 *
 * Threads: any.  Blocks: up to the option rdma-wait-timeout-ms.
 */
RECLANE_NODISCARD
reclane_status reclane_client_update(struct reclane_client *client,
                                     uint32_t table,
                                     const uint64_t *keys,
                                     size_t key_count,
                                     const float *const *gradients,
                                     struct reclane_error *error);

/* Applies gradients through the table's optimizer, given as one matrix: UPDATE_FLAT. A key that occurs twice is updated
 * twice.
 *
 * client       from reclane_client_open().
 * table        from reclane_client_init_table().
 * keys         key_count keys.
 * gradients    key_count rows, row i for keys[i].
 * float_count  floats in gradients: key_count times the table's width.
 * error        may be NULL; filled on failure only.
 *
 * Threads: any.  Blocks: up to the option rdma-wait-timeout-ms.
 */
RECLANE_NODISCARD
reclane_status reclane_client_update_flat(struct reclane_client *client,
                                          uint32_t table,
                                          const uint64_t *keys,
                                          size_t key_count,
                                          const float *gradients,
                                          size_t float_count,
                                          struct reclane_error *error);

/* Sends a GET whose rows go to the caller's memory.
 *
 * client, table, keys, key_count, rows, rows_capacity  as reclane_client_get(); rows must stay valid until the request
 *          is revoked, and is complete once reclane_client_wait() gave RECLANE_STATUS_OK.
 * request  receives the request's number; 0 on failure. Release it with reclane_client_revoke().
 * error    may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_BUFFER_TOO_SMALL  rows_capacity is too small; nothing was sent
 * RECLANE_STATUS_NO_SLOT  all slots to the shard are held, by this thread maybe; nothing was sent: release one first
 * Threads: any.  Blocks: never; but up to 1 s while a lane is connected for the first time.
 */
RECLANE_NODISCARD
reclane_status reclane_client_submit_get(struct reclane_client *client,
                                         uint32_t table,
                                         const uint64_t *keys,
                                         size_t key_count,
                                         float *rows,
                                         size_t rows_capacity,
                                         reclane_request *request,
                                         struct reclane_error *error);

/* Sends a GET whose rows stay where the library has them: read them in place with reclane_client_borrow(). When all keys
 * belong to one shard and fit one request, that is where the server put them, and they can be read as they come in.
 *
 * client, table, keys, key_count  as reclane_client_get().
 * request  receives the request's number; 0 on failure. Release it with reclane_client_revoke(); the rows are gone then.
 * error    may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_NO_SLOT  all slots to the shard are held, by this thread maybe; nothing was sent: release one first
 * Threads: any.  Blocks: never; but up to 1 s while a lane is connected for the first time.
 */
RECLANE_NODISCARD
reclane_status reclane_client_submit_get_in_place(struct reclane_client *client,
                                                  uint32_t table,
                                                  const uint64_t *keys,
                                                  size_t key_count,
                                                  reclane_request *request,
                                                  struct reclane_error *error);

/* Sends a GET whose rows land in a buffer of the library; without a second copy when all keys belong to one shard and
 * fit one request.
 *
 * client, table, keys, key_count  as reclane_client_get().
 * buffer        from reclane_buffer_open() of this client; its bytes from offset_bytes on belong to the request until it
 *               is revoked.
 * offset_bytes  where the first row goes, a multiple of 4.
 * request       receives the request's number; 0 on failure. Release it with reclane_client_revoke().
 * error         may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_BUFFER_TOO_SMALL  the rows do not fit behind offset_bytes; nothing was sent
 * RECLANE_STATUS_NO_SLOT  all slots to the shard are held, by this thread maybe; nothing was sent: release one first
 * Threads: any.  Blocks: never; but up to 1 s while a lane is connected for the first time.
 */
RECLANE_NODISCARD
reclane_status reclane_client_submit_get_into(struct reclane_client *client,
                                              uint32_t table,
                                              const uint64_t *keys,
                                              size_t key_count,
                                              struct reclane_buffer *buffer,
                                              size_t offset_bytes,
                                              reclane_request *request,
                                              struct reclane_error *error);

/* Sends a PUT.
 *
 * client, table, keys, key_count, rows, float_count  as reclane_client_put().
 * request  receives the request's number; 0 on failure. Release it with reclane_client_revoke().
 * error    may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_NO_SLOT  all slots to the shard are held, by this thread maybe; nothing was sent: release one first
 * Threads: any.  Blocks: never; but up to 1 s while a lane is connected for the first time.
 */
RECLANE_NODISCARD
reclane_status reclane_client_submit_put(struct reclane_client *client,
                                         uint32_t table,
                                         const uint64_t *keys,
                                         size_t key_count,
                                         const float *rows,
                                         size_t float_count,
                                         reclane_request *request,
                                         struct reclane_error *error);

/* Sends a PUT whose rows lie in a buffer of the library: key_count rows from offset_bytes on.
 *
 * client, table, keys, key_count  as reclane_client_put().
 * buffer        from reclane_buffer_open() of this client; the rows must not change until the request has ended.
 * offset_bytes  where the first row is, a multiple of 4.
 * request       receives the request's number; 0 on failure. Release it with reclane_client_revoke().
 * error         may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_BUFFER_TOO_SMALL  the buffer ends before the last row; nothing was sent
 * RECLANE_STATUS_NO_SLOT  all slots to the shard are held, by this thread maybe; nothing was sent: release one first
 * Threads: any.  Blocks: never; but up to 1 s while a lane is connected for the first time.
 */
RECLANE_NODISCARD
reclane_status reclane_client_submit_put_from(struct reclane_client *client,
                                              uint32_t table,
                                              const uint64_t *keys,
                                              size_t key_count,
                                              struct reclane_buffer *buffer,
                                              size_t offset_bytes,
                                              reclane_request *request,
                                              struct reclane_error *error);

/* Sends an UPDATE.
 *
 * client, table, keys, key_count, gradients  as reclane_client_update().
 * request  receives the request's number; 0 on failure. Release it with reclane_client_revoke().
 * error    may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_NO_SLOT  all slots to the shard are held, by this thread maybe; nothing was sent: release one first
 * Threads: any.  Blocks: never; but up to 1 s while a lane is connected for the first time.
 */
RECLANE_NODISCARD
reclane_status reclane_client_submit_update(struct reclane_client *client,
                                            uint32_t table,
                                            const uint64_t *keys,
                                            size_t key_count,
                                            const float *const *gradients,
                                            reclane_request *request,
                                            struct reclane_error *error);

/* Sends an UPDATE_FLAT.
 *
 * client, table, keys, key_count, gradients, float_count  as reclane_client_update_flat()
 * request  receives the request's number; 0 on failure. Release it with reclane_client_revoke().
 * error    may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_NO_SLOT  all slots to the shard are held, by this thread maybe; nothing was sent: release one first
 * Threads: any.  Blocks: never; but up to 1 s while a lane is connected for the first time.
 */
RECLANE_NODISCARD
reclane_status reclane_client_submit_update_flat(struct reclane_client *client,
                                                 uint32_t table,
                                                 const uint64_t *keys,
                                                 size_t key_count,
                                                 const float *gradients,
                                                 size_t float_count,
                                                 reclane_request *request,
                                                 struct reclane_error *error);

/* Sends an UPDATE_FLAT whose gradients lie in a buffer of the library: key_count rows from offset_bytes on.
 *
 * client, table, keys, key_count  as reclane_client_update_flat().
 * buffer        from reclane_buffer_open() of this client; the rows must not change until the request has ended.
 * offset_bytes  where the first row is, a multiple of 4.
 * request       receives the request's number; 0 on failure. Release it with reclane_client_revoke().
 * error         may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_BUFFER_TOO_SMALL  the buffer ends before the last row; nothing was sent
 * RECLANE_STATUS_NO_SLOT  all slots to the shard are held, by this thread maybe; nothing was sent: release one first
 * Threads: any.  Blocks: never; but up to 1 s while a lane is connected for the first time.
 */
RECLANE_NODISCARD
reclane_status reclane_client_submit_update_flat_from(struct reclane_client *client,
                                                      uint32_t table,
                                                      const uint64_t *keys,
                                                      size_t key_count,
                                                      struct reclane_buffer *buffer,
                                                      size_t offset_bytes,
                                                      reclane_request *request,
                                                      struct reclane_error *error);

/* ----------------------------------------------------------------------------------------------------
 * Ending: look at a submitted request, wait for it, read its rows in place, release it.
 */

/* Looks whether a request has ended, and drives it on. Does not release it.
 *
 * client   from reclane_client_open().
 * request  from a submit call of this client.
 * error    may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_OK           it has ended, well or not: reclane_client_wait() tells how
 * RECLANE_STATUS_PENDING      it is under way
 * RECLANE_STATUS_STALE_TOKEN  it was revoked
 * RECLANE_STATUS_BUSY         another thread is working on it
 * Threads: one at a time per request.  Blocks: never.
 */
RECLANE_NODISCARD
reclane_status reclane_client_query(struct reclane_client *client,
                                    reclane_request request,
                                    struct reclane_error *error);

/* Waits until a request has ended. Does not release it.
 *
 * client      from reclane_client_open().
 * request     from a submit call of this client.
 * timeout_ms  how long to wait, milliseconds. 0 for the option rdma-wait-timeout-ms, after which the request fails.
 * error       may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_OK            it has ended well: its rows are there
 * RECLANE_STATUS_PENDING       timeout_ms is over and it is still under way; wait again
 * RECLANE_STATUS_WAIT_TIMEOUT  it did not end within the option's time; the lane that carried it is lost
 * RECLANE_STATUS_STALE_TOKEN   it was revoked
 * RECLANE_STATUS_BUSY          another thread is working on it
 * and what it ended with: the statuses of sending and ending a request
 * Threads: one at a time per request.  Blocks: up to timeout_ms.
 */
RECLANE_NODISCARD
reclane_status reclane_client_wait(struct reclane_client *client,
                                   reclane_request request,
                                   uint64_t timeout_ms,
                                   struct reclane_error *error);

/* Waits until a request has ended and releases it: reclane_client_wait() and reclane_client_revoke() in one call, for
 * less than the two. For requests with memory of the caller's: the rows of a GET in place are gone with the release.
 *
 * client      from reclane_client_open().
 * request     from a submit call of this client; valid afterwards only with the statuses that say so.
 * timeout_ms  how long to wait, milliseconds. 0 for the option rdma-wait-timeout-ms, after which the request fails.
 * error       may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_OK            it has ended well: its rows are in the caller's memory
 * RECLANE_STATUS_PENDING       timeout_ms is over and it is still under way: it stays valid
 * RECLANE_STATUS_WAIT_TIMEOUT  it did not end within the option's time; the lane that carried it is lost
 * RECLANE_STATUS_STALE_TOKEN   it was revoked before
 * RECLANE_STATUS_BUSY          another thread is working on it: it stays valid
 * and what it ended with: the statuses of sending and ending a request
 * Threads: one at a time per request.  Blocks: up to timeout_ms.
 */
RECLANE_NODISCARD
reclane_status reclane_client_finish(struct reclane_client *client,
                                     reclane_request request,
                                     uint64_t timeout_ms,
                                     struct reclane_error *error);

/* Gives the rows of a GET where they are, also while it is under way: the server publishes its progress, so the first
 * rows can be read before the last are there.
 *
 * client      from reclane_client_open().
 * request     from reclane_client_submit_get_in_place() of this client.
 * rows        receives a pointer to the first row, aligned to 4 bytes. It belongs to the library and is valid until the
 *             request is revoked or the client closed.
 * rows_ready  receives how many rows, from the first on, can be read now.
 * rows_total  receives how many there will be.
 * error       may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_OK           all rows are ready
 * RECLANE_STATUS_PENDING      rows_ready of them are; call again
 * RECLANE_STATUS_WRONG_STATE  the request is no GET in place
 * RECLANE_STATUS_STALE_TOKEN  it was revoked
 * and what it ended with: the statuses of sending and ending a request
 * Threads: one at a time per request.  Blocks: never.
 */
RECLANE_NODISCARD
reclane_status reclane_client_borrow(struct reclane_client *client,
                                     reclane_request request,
                                     const float **rows,
                                     size_t *rows_ready,
                                     size_t *rows_total,
                                     struct reclane_error *error);

/* Releases a request. One that is still under way is waited for, since its memory may still be written; the parts of a
 * batch that were not sent yet are not sent.
 *
 * client   from reclane_client_open().
 * request  from a submit call of this client; not valid afterwards.
 * error    may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_STALE_TOKEN  it was revoked before
 * RECLANE_STATUS_BUSY         another thread is working on it; it stays valid
 * Threads: one at a time per request.  Blocks: up to the option rdma-wait-timeout-ms when it is under way.
 */
reclane_status reclane_client_revoke(struct reclane_client *client,
                                     reclane_request request,
                                     struct reclane_error *error);

/* ----------------------------------------------------------------------------------------------------
 * Outcome: how a request that has ended did, shard by shard and key by key.
 *
 * A request whose keys belong to several shards, or do not fit one slot, travels in parts, and each part has an end of its
 * own. After reclane_client_wait() has failed, and before reclane_client_revoke(), these calls tell which keys were
 * executed, which were certainly not, and which are in doubt: only the second kind may be sent again without counting
 * twice. With request-retry=exactly-once few are ever in doubt: those of a shard whose process has ended.
 */

/* Tells how the keys of one shard did.
 *
 * client   from reclane_client_open().
 * request  from a submit call of this client, ended and not revoked.
 * shard    0..num_shards - 1.
 * result   receives the report; struct_size must be set.
 * error    may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_INVALID_ARGUMENT  there is no such shard
 * RECLANE_STATUS_WRONG_STATE       the request is still under way
 * RECLANE_STATUS_STALE_TOKEN       it was revoked
 * RECLANE_STATUS_BUSY              another thread is working on it
 * RECLANE_STATUS_STRUCT_SIZE       result or error has a size that cannot be
 * RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _BUG  as their names say
 * Threads: one at a time per request.  Blocks: never.
 */
RECLANE_NODISCARD
reclane_status reclane_client_shard_result(struct reclane_client *client,
                                           reclane_request request,
                                           uint32_t shard,
                                           struct reclane_shard_result *result,
                                           struct reclane_error *error);

/* Tells how each key did.
 *
 * client     from reclane_client_open().
 * request    from a submit call of this client, ended and not revoked.
 * outcomes   receives key_count values of reclane_outcome, one byte each, in the order of the request's keys.
 * key_count  the request's.
 * error      may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_BUFFER_TOO_SMALL  the request has not key_count keys
 * RECLANE_STATUS_WRONG_STATE       the request is still under way
 * RECLANE_STATUS_STALE_TOKEN       it was revoked
 * RECLANE_STATUS_BUSY              another thread is working on it
 * RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names say
 * Threads: one at a time per request.  Blocks: never.
 */
RECLANE_NODISCARD
reclane_status reclane_client_key_outcomes(struct reclane_client *client,
                                           reclane_request request,
                                           uint8_t *outcomes,
                                           size_t key_count,
                                           struct reclane_error *error);

/* ----------------------------------------------------------------------------------------------------
 * Buffer: memory of the library that the fabric can reach without a copy.
 *
 * A GET of one shard's keys that fits one request lands there directly; a PUT or UPDATE from a buffer can be read by
 * the server from there. Close a buffer only when every request that names it was revoked. Rows in it are float,
 * row-major.
 */

/* Allocates a zeroed, registered buffer, aligned to a page.
 *
 * client  from reclane_client_open(). The buffer can be used with this client only; its memory may outlive it.
 * bytes   its size, at least 1.
 * out     receives the handle; NULL is written on failure. Close it with reclane_buffer_close().
 * error   may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_INVALID_ARGUMENT          bytes is 0
 * RECLANE_STATUS_RESOURCE_LIMIT, _OS_ERROR  there is no memory, or it cannot be registered
 * RECLANE_STATUS_SHARD_UNREACHABLE          a shard did not map it
 * RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names say
 * Threads: any.  Blocks: until every shard has mapped it, at most 5 s for each lane.
 *
 * A client has at most 1023 buffers open at a time.
 */
RECLANE_NODISCARD
reclane_status reclane_buffer_open(struct reclane_client *client,
                                   size_t bytes,
                                   struct reclane_buffer **out,
                                   struct reclane_error *error);

/* First byte of a buffer, valid until reclane_buffer_close(). Returns NULL for a handle that cannot be used.
 *
 * buffer  from reclane_buffer_open(). The bytes may be read and written freely while no request names them.
 *
 * Threads: any.  Blocks: never.
 */
void *reclane_buffer_data(const struct reclane_buffer *buffer);

/* Size of a buffer in bytes. Returns 0 for a handle that cannot be used.
 *
 * buffer  from reclane_buffer_open().
 *
 * Threads: any.  Blocks: never.
 */
size_t reclane_buffer_bytes(const struct reclane_buffer *buffer);

/* Closes a buffer. Its bytes must not be touched any more, and no request that was not revoked may name it. NULL and an
 * already closed handle do nothing. The shards let go of it too, each when it has done with what it is executing.
 *
 * Threads: one at a time per buffer.  Blocks: never.
 */
void reclane_buffer_close(struct reclane_buffer *buffer);

/* ----------------------------------------------------------------------------------------------------
 * Reports: what a lane, a client and a server are doing. Numbers of events only grow, until the handle is closed.
 */

/* Reports on one lane.
 *
 * client  from reclane_client_open().
 * shard   the shard it leads to, 0..num_shards - 1.
 * lane    its number, 0..qps-per-client-per-shard - 1.
 * info    receives the report; struct_size must be set.
 * error   may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_INVALID_ARGUMENT  there is no such shard or lane
 * RECLANE_STATUS_STRUCT_SIZE       info or error has a size that cannot be
 * RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _BUG  as their names say
 * Threads: any.  Blocks: never.
 */
RECLANE_NODISCARD
reclane_status reclane_client_lane(const struct reclane_client *client,
                                   uint32_t shard,
                                   uint32_t lane,
                                   struct reclane_lane_info *info,
                                   struct reclane_error *error);

/* Reports what a client has.
 *
 * client  from reclane_client_open().
 * stats   receives the report; struct_size must be set.
 * error   may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_STRUCT_SIZE  stats or error has a size that cannot be
 * RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _BUG  as their names say
 * Threads: any.  Blocks: never.
 */
RECLANE_NODISCARD
reclane_status reclane_client_stats(const struct reclane_client *client,
                                    struct reclane_client_counters *stats,
                                    struct reclane_error *error);

/* Reports what a server has done and has.
 *
 * server  from reclane_server_open().
 * stats   receives the report; struct_size must be set.
 * error   may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_STRUCT_SIZE  stats or error has a size that cannot be
 * RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _BUG  as their names say
 * Threads: any.  Blocks: never.
 */
RECLANE_NODISCARD
reclane_status reclane_server_stats(const struct reclane_server *server,
                                    struct reclane_server_counters *stats,
                                    struct reclane_error *error);

/* ----------------------------------------------------------------------------------------------------
 * Health: what the control plane knows of a shard.
 */

/* Asks the control plane about a shard. That it does not answer is no error and no verdict: known is 0 then.
 *
 * client  from reclane_client_open().
 * shard   0..num_shards - 1.
 * info    receives the report; struct_size must be set.
 * error   may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_INVALID_ARGUMENT  there is no such shard
 * RECLANE_STATUS_STRUCT_SIZE       info or error has a size that cannot be
 * RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _BUG  as their names say
 * Threads: any.  Blocks: up to the option rdma-health-probe-timeout-ms.
 */
RECLANE_NODISCARD
reclane_status reclane_client_health(const struct reclane_client *client,
                                     uint32_t shard,
                                     struct reclane_health_info *info,
                                     struct reclane_error *error);

/* ----------------------------------------------------------------------------------------------------
 * Metrics: all numbers as text, one by name, and latencies as a struct. docs/metrics.md has the names.
 */

/* Writes all numbers of a client as Prometheus' text.
 *
 * client    from reclane_client_open().
 * buffer    receives the text, always NUL-terminated when capacity is not 0; cut if it does not fit.
 * capacity  bytes of buffer, the NUL included.
 * length    may be NULL; receives the bytes of the whole text without the NUL, also when buffer is too small.
 * error     may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_BUFFER_TOO_SMALL  the text and its NUL need more than capacity bytes; call again with some more than
 * *length + 1, for numbers grow
 * RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _BUG, _STRUCT_SIZE  as their names say
 * Threads: any.  Blocks: never.
 */
RECLANE_NODISCARD
reclane_status reclane_client_metrics_text(const struct reclane_client *client,
                                           char *buffer,
                                           size_t capacity,
                                           size_t *length,
                                           struct reclane_error *error);

/* Reads one number of a client by name.
 *
 * client  from reclane_client_open().
 * name    "metric" (over all its labels), "metric{label=\"value\"}", of a histogram with .count, .sum, .max, .p50, .p90,
 *         .p99 or .p999 behind (nanoseconds), or "component/field" of a profile. NUL-terminated UTF-8.
 * value   receives the number.
 * error   may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_INVALID_ARGUMENT  no number has this name; some are there only while requests are counted
 * RECLANE_STATUS_NULL_POINTER, _NOT_UTF8, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _BUG, _STRUCT_SIZE  as their names say
 * Threads: any.  Blocks: never.
 */
RECLANE_NODISCARD
reclane_status reclane_client_metric(const struct reclane_client *client,
                                     const char *name,
                                     uint64_t *value,
                                     struct reclane_error *error);

/* Reports how long requests of a client took, from submit to the answer.
 *
 * client  from reclane_client_open().
 * op      "get", "put" or "update". NUL-terminated UTF-8.
 * info    receives the report; struct_size must be set.
 * error   may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_INVALID_ARGUMENT  op is another word, or requests are not counted (options metrics and others)
 * RECLANE_STATUS_STRUCT_SIZE  info or error has a size that cannot be
 * RECLANE_STATUS_NULL_POINTER, _NOT_UTF8, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _BUG  as their names say
 * Threads: any.  Blocks: never.
 */
RECLANE_NODISCARD
reclane_status reclane_client_latency(const struct reclane_client *client,
                                      const char *op,
                                      struct reclane_latency_info *info,
                                      struct reclane_error *error);

/* Tells the TCP port of a client's metrics.
 *
 * client  from reclane_client_open().
 * port    receives the port; 0 when the option metrics-port is auto.
 * error   may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _BUG, _STRUCT_SIZE  as their names say
 * Threads: any.  Blocks: never.
 */
RECLANE_NODISCARD
reclane_status reclane_client_metrics_port(const struct reclane_client *client,
                                           uint32_t *port,
                                           struct reclane_error *error);

/* Writes all numbers of a shard as Prometheus' text.
 *
 * server    from reclane_server_open().
 * buffer    receives the text, always NUL-terminated when capacity is not 0; cut if it does not fit.
 * capacity  bytes of buffer, the NUL included.
 * length    may be NULL; receives the bytes of the whole text without the NUL, also when buffer is too small.
 * error     may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_BUFFER_TOO_SMALL  the text and its NUL need more than capacity bytes; call again with some more than
 * *length + 1, for numbers grow
 * RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _BUG, _STRUCT_SIZE  as their names say
 * Threads: any.  Blocks: never.
 */
RECLANE_NODISCARD
reclane_status reclane_server_metrics_text(const struct reclane_server *server,
                                           char *buffer,
                                           size_t capacity,
                                           size_t *length,
                                           struct reclane_error *error);

/* Reads one number of a shard by name.
 *
 * server  from reclane_server_open().
 * name    "metric" (over all its labels), "metric{label=\"value\"}", of a histogram with .count, .sum, .max, .p50, .p90,
 *         .p99 or .p999 behind (nanoseconds), or "component/field" of a profile. NUL-terminated UTF-8.
 * value   receives the number.
 * error   may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_INVALID_ARGUMENT  no number has this name; some are there only while requests are counted
 * RECLANE_STATUS_NULL_POINTER, _NOT_UTF8, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _BUG, _STRUCT_SIZE  as their names say
 * Threads: any.  Blocks: never.
 */
RECLANE_NODISCARD
reclane_status reclane_server_metric(const struct reclane_server *server,
                                     const char *name,
                                     uint64_t *value,
                                     struct reclane_error *error);

/* Reports how long a shard took to execute and answer requests.
 *
 * server  from reclane_server_open().
 * op      "get", "put" or "update". NUL-terminated UTF-8.
 * info    receives the report; struct_size must be set.
 * error   may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_INVALID_ARGUMENT  op is another word, or requests are not counted (options metrics and others)
 * RECLANE_STATUS_STRUCT_SIZE  info or error has a size that cannot be
 * RECLANE_STATUS_NULL_POINTER, _NOT_UTF8, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _BUG  as their names say
 * Threads: any.  Blocks: never.
 */
RECLANE_NODISCARD
reclane_status reclane_server_latency(const struct reclane_server *server,
                                      const char *op,
                                      struct reclane_latency_info *info,
                                      struct reclane_error *error);

/* Tells the TCP port of a shard's metrics.
 *
 * server  from reclane_server_open().
 * port    receives the port; 0 when the option metrics-port is auto.
 * error   may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _BUG, _STRUCT_SIZE  as their names say
 * Threads: any.  Blocks: never.
 */
RECLANE_NODISCARD
reclane_status reclane_server_metrics_port(const struct reclane_server *server,
                                           uint32_t *port,
                                           struct reclane_error *error);

/* Writes all numbers of a rank as Prometheus' text.
 *
 * rank      from reclane_rank_open().
 * buffer    receives the text, always NUL-terminated when capacity is not 0; cut if it does not fit.
 * capacity  bytes of buffer, the NUL included.
 * length    may be NULL; receives the bytes of the whole text without the NUL, also when buffer is too small.
 * error     may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_BUFFER_TOO_SMALL  the text and its NUL need more than capacity bytes; call again with some more than
 * *length + 1, for numbers grow
 * RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _BUG, _STRUCT_SIZE  as their names say
 * Threads: any.  Blocks: never.
 */
RECLANE_NODISCARD
reclane_status reclane_rank_metrics_text(const struct reclane_rank *rank,
                                         char *buffer,
                                         size_t capacity,
                                         size_t *length,
                                         struct reclane_error *error);

/* Reads one number of a rank by name.
 *
 * rank    from reclane_rank_open().
 * name    "metric" (over all its labels), "metric{label=\"value\"}". NUL-terminated UTF-8.
 * value   receives the number.
 * error   may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_INVALID_ARGUMENT  no number has this name
 * RECLANE_STATUS_NULL_POINTER, _NOT_UTF8, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _BUG, _STRUCT_SIZE  as their names say
 * Threads: any.  Blocks: never.
 */
RECLANE_NODISCARD
reclane_status reclane_rank_metric(const struct reclane_rank *rank,
                                   const char *name,
                                   uint64_t *value,
                                   struct reclane_error *error);

/* Tells the TCP port of a rank's metrics.
 *
 * rank    from reclane_rank_open().
 * port    receives the port; 0 when the option metrics-port is auto.
 * error   may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _BUG, _STRUCT_SIZE  as their names say
 * Threads: any.  Blocks: never.
 */
RECLANE_NODISCARD
reclane_status reclane_rank_metrics_port(const struct reclane_rank *rank,
                                         uint32_t *port,
                                         struct reclane_error *error);

/* ----------------------------------------------------------------------------------------------------
 * Profiles: totals of a client or a shard, as structs.
 */

/* Reports what a client has done at one shard.
 *
 * client  from reclane_client_open().
 * shard   the shard that its lanes lead to, 0..num_shards - 1.
 * totals  receives the report; struct_size must be set.
 * error   may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_INVALID_ARGUMENT  there is no such shard
 * RECLANE_STATUS_STRUCT_SIZE  totals or error has a size that cannot be
 * RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _BUG  as their names say
 * Threads: any.  Blocks: never.
 */
RECLANE_NODISCARD
reclane_status reclane_client_profile(const struct reclane_client *client,
                                      uint32_t shard,
                                      struct reclane_client_profile_counters *totals,
                                      struct reclane_error *error);

/* Reports a client's end of the transport to one shard.
 *
 * client  from reclane_client_open().
 * shard   the shard that its lanes lead to, 0..num_shards - 1.
 * totals  receives the report; struct_size must be set.
 * error   may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_INVALID_ARGUMENT  there is no such shard
 * RECLANE_STATUS_STRUCT_SIZE  totals or error has a size that cannot be
 * RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _BUG  as their names say
 * Threads: any.  Blocks: never.
 */
RECLANE_NODISCARD
reclane_status reclane_client_transport_profile(const struct reclane_client *client,
                                                uint32_t shard,
                                                struct reclane_transport_profile_counters *totals,
                                                struct reclane_error *error);

/* Reports what a shard has done.
 *
 * server  from reclane_server_open().
 * totals  receives the report; struct_size must be set.
 * error   may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_STRUCT_SIZE  totals or error has a size that cannot be
 * RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _BUG  as their names say
 * Threads: any.  Blocks: never.
 */
RECLANE_NODISCARD
reclane_status reclane_server_profile(const struct reclane_server *server,
                                      struct reclane_server_profile_counters *totals,
                                      struct reclane_error *error);

/* Reports a shard's end of the transport.
 *
 * server  from reclane_server_open().
 * totals  receives the report; struct_size must be set.
 * error   may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_STRUCT_SIZE  totals or error has a size that cannot be
 * RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _BUG  as their names say
 * Threads: any.  Blocks: never.
 */
RECLANE_NODISCARD
reclane_status reclane_server_transport_profile(const struct reclane_server *server,
                                                struct reclane_transport_profile_counters *totals,
                                                struct reclane_error *error);

/* ----------------------------------------------------------------------------------------------------
 * Checkpoints: all shards of a deployment as they were at one moment, on disk (docs/checkpoint.md).
 *
 * Shard 0 leads; the option checkpoint-directory of all servers says where. A client asks for one here, with a section of
 * its own bytes that is part of it; servers can take them by themselves too (checkpoint-interval-ms). Requests wait while
 * state is copied (milliseconds), not while it is written.
 *
 * Restoring is the servers' start: with checkpoint-restore, or with options that reclane_restore_apply() has filled in.
 */

/* Asks shard 0 for a checkpoint of all shards. What requests have done whose answer this thread has seen is in it; other
 * threads' and clients' requests are executed before it or after it, each as a whole.
 *
 * client   from reclane_client_open().
 * request  NULL: what has changed, without a section of the application.
 * number   receives the request's number, for the other calls. The last 64 are remembered.
 * error    may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_INVALID_ARGUMENT           unknown flags, or a section that is too large
 * RECLANE_STATUS_SHARD_UNREACHABLE          shard 0 is not here
 * RECLANE_STATUS_CONTROL_PLANE_UNREACHABLE  the control plane does not answer
 * RECLANE_STATUS_NULL_POINTER, _NOT_UTF8, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names
 * say
 * Threads: any.  Blocks: for one exchange with the control plane.
 */
RECLANE_NODISCARD
reclane_status reclane_checkpoint_begin(const struct reclane_client *client,
                                        const struct reclane_checkpoint_request *request,
                                        uint64_t *number,
                                        struct reclane_error *error);

/* Waits until a checkpoint is so far. RECLANE_CHECKPOINT_STATE_WRITING: state is copied, and what is done from now on is
 * not in it; a program that has a section may go on then. RECLANE_CHECKPOINT_STATE_COMMITTED: it exists.
 *
 * client      from reclane_client_open().
 * number      from reclane_checkpoint_begin().
 * state       a reclane_checkpoint_state up to RECLANE_CHECKPOINT_STATE_COMMITTED.
 * timeout_ms  how long to wait, milliseconds; 0 for 600 s.
 * info        may be NULL; receives how far it is. struct_size must be set.
 * error       may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_CHECKPOINT_ABORTED  it came to nothing; the message says why, and requests go on
 * RECLANE_STATUS_BUSY                it is not so far yet; call again
 * RECLANE_STATUS_INVALID_ARGUMENT    no such request, or no such state
 * RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names say
 * Threads: any.  Blocks: up to timeout_ms.
 */
RECLANE_NODISCARD
reclane_status reclane_checkpoint_wait(const struct reclane_client *client,
                                       uint64_t number,
                                       uint32_t state,
                                       uint64_t timeout_ms,
                                       struct reclane_checkpoint_info *info,
                                       struct reclane_error *error);

/* How far a checkpoint is, as far as this client has heard.
 *
 * client  from reclane_client_open().
 * number  from reclane_checkpoint_begin().
 * info    receives it; struct_size must be set.
 * error   may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_INVALID_ARGUMENT  no such request, or one of long ago
 * RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names say
 * Threads: any.  Blocks: never.
 */
RECLANE_NODISCARD
reclane_status reclane_checkpoint_status(const struct reclane_client *client,
                                         uint64_t number,
                                         struct reclane_checkpoint_info *info,
                                         struct reclane_error *error);

/* Gives a checkpoint up. When its manifest is being written already, it is committed all the same.
 *
 * client  from reclane_client_open().
 * number  from reclane_checkpoint_begin().
 * error   may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_INVALID_ARGUMENT           no such request
 * RECLANE_STATUS_SHARD_UNREACHABLE          shard 0 is not here
 * RECLANE_STATUS_CONTROL_PLANE_UNREACHABLE  the control plane does not answer
 * RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names say
 * Threads: any.  Blocks: for one exchange with the control plane.
 */
reclane_status reclane_checkpoint_abort(const struct reclane_client *client,
                                        uint64_t number,
                                        struct reclane_error *error);

/* How often to take a checkpoint, by Daly's formula (Young's, where pauses are short): the interval at which pauses,
 * repeated work and restarts together cost the least.
 *
 * cost         what was measured; struct_size must be set.
 * interval_ns  receives the time between two checkpoints, nanoseconds.
 * lost         may be NULL; receives the part of the time that is lost then. Above 1 nothing gets done.
 * error        may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_INVALID_ARGUMENT  failures come faster than a checkpoint is through, so no interval helps
 * RECLANE_STATUS_NULL_POINTER, _STRUCT_SIZE  as their names say
 * Threads: any.  Blocks: never.
 */
RECLANE_NODISCARD
reclane_status reclane_checkpoint_advise(const struct reclane_checkpoint_cost *cost,
                                         uint64_t *interval_ns,
                                         double *lost,
                                         struct reclane_error *error);

/* ----------------------------------------------------------------------------------------------------
 * Restore: a checkpoint that was found whole, what is in it, and servers that start from it.
 *
 * Nothing is made before every byte was looked at. The newest checkpoint that is whole is taken; newer ones that are not
 * are passed over. Servers do the same by themselves with the option checkpoint-restore; this is for programs that want
 * to know first, or that have a section of their own in the checkpoint.
 */

/* Finds the newest checkpoint that is whole, and reads every byte of it once.
 *
 * directory  the servers' checkpoint-directory, NUL-terminated UTF-8.
 * epoch      this one and no other; 0: the newest that is whole.
 * out        receives the handle; NULL is written on failure. Close it with reclane_restore_close().
 * error      may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_INVALID_ARGUMENT  there is none; the message has the reasons against those that are there
 * RECLANE_STATUS_OS_ERROR          the directory cannot be read
 * RECLANE_STATUS_NULL_POINTER, _NOT_UTF8, _FORKED, _STRUCT_SIZE, _BUG  as their names say
 * Threads: any.  Blocks: while files are read.
 */
RECLANE_NODISCARD
reclane_status reclane_restore_open(const char *directory,
                                    uint64_t epoch,
                                    struct reclane_restore **out,
                                    struct reclane_error *error);

/* What a restore would bring back.
 *
 * restore  from reclane_restore_open().
 * info     receives it; struct_size must be set.
 * error    may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _STRUCT_SIZE  as their names say
 * Threads: any.  Blocks: never.
 */
RECLANE_NODISCARD
reclane_status reclane_restore_describe(const struct reclane_restore *restore,
                                        struct reclane_restore_info *info,
                                        struct reclane_error *error);

/* Why a newer checkpoint was passed over.
 *
 * restore   from reclane_restore_open().
 * index     0..reclane_restore_info.refused - 1, newest first.
 * epoch     may be NULL; receives its epoch.
 * buffer    receives the reason, always NUL-terminated when capacity is not 0; cut if it does not fit.
 * capacity  bytes of buffer, the NUL included.
 * length    may be NULL; receives the bytes of the whole reason without the NUL, also when buffer is too small.
 * error     may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_INVALID_ARGUMENT  there is none with this index
 * RECLANE_STATUS_BUFFER_TOO_SMALL  the reason and its NUL need more than capacity bytes; call again with *length + 1
 * RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _STRUCT_SIZE  as their names say
 * Threads: any.  Blocks: never.
 */
RECLANE_NODISCARD
reclane_status reclane_restore_refused(const struct reclane_restore *restore,
                                       uint32_t index,
                                       uint64_t *epoch,
                                       char *buffer,
                                       size_t capacity,
                                       size_t *length,
                                       struct reclane_error *error);

/* Copies an application section out of the checkpoint. Of a checkpoint of ranks: rank 0's.
 *
 * restore   from reclane_restore_open().
 * name      the section's name, NUL-terminated UTF-8.
 * buffer    receives its bytes; may be NULL when capacity is 0, to ask for the length.
 * capacity  bytes of buffer.
 * length    receives the section's bytes, also when buffer is too small.
 * error     may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_INVALID_ARGUMENT  the checkpoint has no section of this name
 * RECLANE_STATUS_BUFFER_TOO_SMALL  it has more than capacity bytes; nothing was copied
 * RECLANE_STATUS_OS_ERROR          its file cannot be read any more
 * RECLANE_STATUS_NULL_POINTER, _NOT_UTF8, _BAD_HANDLE, _CLOSED, _FORKED, _STRUCT_SIZE  as their names say
 * Threads: any.  Blocks: while the section is read.
 */
RECLANE_NODISCARD
reclane_status reclane_restore_section(const struct reclane_restore *restore,
                                       const char *name,
                                       void *buffer,
                                       size_t capacity,
                                       size_t *length,
                                       struct reclane_error *error);

/* Copies bytes of a rank's region out of the checkpoint: for programs that go on with another number of ranks, or that look
 * into it.
 *
 * restore   from reclane_restore_open().
 * rank      the rank that it was of.
 * region    its id.
 * offset    first byte that is wanted.
 * buffer    receives the bytes from there on, as many as it takes and there are; may be NULL when capacity is 0.
 * capacity  bytes of buffer.
 * length    receives the length of the whole region.
 * error     may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_INVALID_ARGUMENT  the checkpoint has no such rank or region
 * RECLANE_STATUS_OS_ERROR          its file cannot be read any more
 * RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _STRUCT_SIZE  as their names say
 * Threads: any.  Blocks: while it is read.
 */
RECLANE_NODISCARD
reclane_status reclane_restore_region(const struct reclane_restore *restore,
                                      uint32_t rank,
                                      uint32_t region,
                                      uint64_t offset,
                                      void *buffer,
                                      size_t capacity,
                                      uint64_t *length,
                                      struct reclane_error *error);

/* Lets servers, or ranks, that are opened with these options start from this checkpoint and no other: sets
 * checkpoint-directory, checkpoint-restore and checkpoint-restore-epoch. All shards must do so, in any number; rows
 * find their shards.
 *
 * restore  from reclane_restore_open().
 * options  from reclane_options_open().
 * error    may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_OPTION_TYPE, _OPTION_BOUNDS  the directory is no value of an option
 * RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _STRUCT_SIZE  as their names say
 * Threads: one at a time per options.  Blocks: never.
 */
RECLANE_NODISCARD
reclane_status reclane_restore_apply(const struct reclane_restore *restore,
                                     struct reclane_options *options,
                                     struct reclane_error *error);

/* Closes a restore. Files are left alone. NULL and an already closed handle do nothing.
 *
 * Threads: one at a time per restore; no other call on it may be under way.  Blocks: never.
 */
void reclane_restore_close(struct reclane_restore *restore);

/* ----------------------------------------------------------------------------------------------------
 * Rank: one process of a job that uses regions and one-sided operations.
 *
 * Ranks are a deployment of their own, beside or without a parameter server: the option num-server-processes is their
 * number, shard-id the rank, and rank 0 hosts the control plane. Lanes to other ranks come up when they are first used,
 * and again after a failure when they are next used. docs/memory.md tells the whole of it.
 */

/* Joins a job: rank shard-id of num-server-processes. Rank 0 starts the control plane first. Does not wait for the
 * others: reclane_rank_barrier() does.
 *
 * options  NULL for all defaults. Read during the call only.
 * out      receives the handle; NULL is written on failure. Close it with reclane_rank_close().
 * error    may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_OPTION_CONFLICT            two options contradict each other, or one the deployment file
 * RECLANE_STATUS_FABRIC_UNAVAILABLE         the chosen fabric cannot run here
 * RECLANE_STATUS_DUPLICATE_ID               another live process is this rank
 * RECLANE_STATUS_DEPLOYMENT_MISMATCH        settings differ from those of the job; the message has both values
 * RECLANE_STATUS_STALE_EPOCH                the job has a newer epoch, or another id
 * RECLANE_STATUS_CONTROL_PLANE_UNREACHABLE  rank 0 did not answer within rdma-control-plane-timeout-ms
 * RECLANE_STATUS_OS_ERROR, _RESOURCE_LIMIT, _NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _STRUCT_SIZE, _BUG  as their
 * names say
 * Threads: any.  Blocks: up to the option rdma-control-plane-timeout-ms.
 */
RECLANE_NODISCARD
reclane_status reclane_rank_open(const struct reclane_options *options,
                                 struct reclane_rank **out,
                                 struct reclane_error *error);

/* What a rank has and has done.
 *
 * rank   from reclane_rank_open().
 * info   receives the report; struct_size must be set.
 * error  may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_STRUCT_SIZE  info or error has a size that cannot be
 * RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _BUG  as their names say
 * Threads: any.  Blocks: never.
 */
RECLANE_NODISCARD
reclane_status reclane_rank_describe(const struct reclane_rank *rank,
                                     struct reclane_rank_info *info,
                                     struct reclane_error *error);

/* Waits until all ranks of the job have come to the barrier of this name. A name can be used again.
 *
 * rank        from reclane_rank_open().
 * name        UTF-8, at most 256 bytes; the same on all ranks.
 * timeout_ms  how long to wait, milliseconds; 0 for 60 s.
 * error       may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_STARTUP_TIMEOUT    not all came in time; the message names who did
 * RECLANE_STATUS_SHARD_UNREACHABLE  a rank died or left while it waited there; the message names it
 * RECLANE_STATUS_CONTROL_PLANE_UNREACHABLE, _RESOURCE_LIMIT, _INVALID_ARGUMENT, _NOT_UTF8  as their names say
 * RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names say
 * Threads: any; calls of one rank at one barrier count once.  Blocks: up to timeout_ms.
 */
RECLANE_NODISCARD
reclane_status reclane_rank_barrier(const struct reclane_rank *rank,
                                    const char *name,
                                    uint64_t timeout_ms,
                                    struct reclane_error *error);

/* Holds a rank still: closes the gate before everything that it posts, then waits until nothing of it is under way.
 * Operations of its other threads wait meanwhile, up to their own timeouts. What other ranks have under way towards this
 * one is theirs: for a consistent copy hold all ranks, then have a barrier, then copy.
 *
 * rank        from reclane_rank_open().
 * drain_ms    how long to wait for what is under way, milliseconds; 0 for 60 s.
 * lapse_ms    after how long the hold ends by itself, milliseconds, so that a holder that died holds up nobody; 0 for
 *             60 s; never before drain_ms.
 * hold        receives the number to release it with.
 * error       may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_WAIT_TIMEOUT  something is under way still; the message names the rank it goes to; the gate is open
 * RECLANE_STATUS_BUSY          another hold is under way
 * RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names say
 * Threads: any.  Blocks: up to drain_ms.
 */
RECLANE_NODISCARD
reclane_status reclane_rank_hold(const struct reclane_rank *rank,
                                 uint64_t drain_ms,
                                 uint64_t lapse_ms,
                                 uint64_t *hold,
                                 struct reclane_error *error);

/* Ends a hold: operations go on.
 *
 * rank   from reclane_rank_open().
 * hold   from reclane_rank_hold().
 * error  may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_STALE_TOKEN  the hold had lapsed: what was copied since then may be mixed
 * RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names say
 * Threads: any.  Blocks: never.
 */
RECLANE_NODISCARD
reclane_status reclane_rank_release(const struct reclane_rank *rank,
                                    uint64_t hold,
                                    struct reclane_error *error);

/* Gives everything of the device back, in place: lanes, registrations of regions, descriptors, mappings and threads of the
 * fabric. A tool that cannot deal with devices may act on the process then. Regions stay readable and writable where they
 * are; operations wait, up to their own timeouts. All ranks call it, each at a point where no other thread of its program
 * posts or touches regions until it has returned. The session with the control plane stays open. Only fabric=shm can.
 *
 * rank        from reclane_rank_open().
 * timeout_ms  how long to wait for what is under way and for the other ranks, milliseconds; 0 for 60 s.
 * error       may be NULL; filled on failure only. The rank is awake then, as far as that was possible.
 *
 * RECLANE_STATUS_WAIT_TIMEOUT     something is under way still; the message names the rank it goes to
 * RECLANE_STATUS_STARTUP_TIMEOUT  not all ranks came in time
 * RECLANE_STATUS_UNSUPPORTED      the fabric cannot be suspended
 * RECLANE_STATUS_WRONG_STATE      it is suspended already
 * RECLANE_STATUS_BUSY             a hold or a checkpoint is under way
 * RECLANE_STATUS_SHARD_UNREACHABLE, _OS_ERROR, _RESOURCE_LIMIT, _CONTROL_PLANE_UNREACHABLE  as their names say
 * RECLANE_STATUS_BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names say
 * Threads: any; one at a time per rank.  Blocks: up to timeout_ms.
 */
RECLANE_NODISCARD
reclane_status reclane_rank_suspend(const struct reclane_rank *rank,
                                    uint64_t timeout_ms,
                                    struct reclane_error *error);

/* Takes the device again, with new keys under the same addresses. Returns when all ranks have called it; lanes come up with
 * the next operation.
 *
 * rank        from reclane_rank_open().
 * timeout_ms  how long to wait for the other ranks, milliseconds; 0 for 60 s.
 * error       may be NULL; filled on failure only. Operations wait still then; call again.
 *
 * RECLANE_STATUS_WRONG_STATE      it is not suspended
 * RECLANE_STATUS_STARTUP_TIMEOUT  not all ranks came in time
 * RECLANE_STATUS_SHARD_UNREACHABLE, _OS_ERROR, _RESOURCE_LIMIT, _CONTROL_PLANE_UNREACHABLE, _FABRIC_UNAVAILABLE  as their
 * names say
 * RECLANE_STATUS_BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names say
 * Threads: any; one at a time per rank.  Blocks: up to timeout_ms.
 */
RECLANE_NODISCARD
reclane_status reclane_rank_resume(const struct reclane_rank *rank,
                                   uint64_t timeout_ms,
                                   struct reclane_error *error);

/* Leaves the job and closes the handle: lanes end, and so does what is under way on them; regions that are still open stay
 * readable here until reclane_region_close(). Rank 0 stays for the others to leave first, at most 5 s. NULL and an
 * already closed handle do nothing.
 *
 * Threads: one at a time per rank; no other call on it may be under way.  Blocks: until its threads have ended.
 */
void reclane_rank_close(struct reclane_rank *rank);

/* ----------------------------------------------------------------------------------------------------
 * Checkpoints of ranks: the regions of all ranks and the programs' own sections at one moment (docs/checkpoint.md).
 *
 * Set checkpoint-directory on all ranks, to the same files. Programs that work in step come to a checkpoint together:
 * reclane_rank_checkpoint(). Others set hooks that bring them to rest, and any rank, or the option checkpoint-interval-ms,
 * begins one. Rank 0 leads.
 *
 * With checkpoint-restore a job starts from the newest checkpoint that is whole: reclane_region_open() finds regions
 * filled, under the ids and addresses that peers knew them by; reclane_rank_describe() says from which checkpoint.
 */

/* Takes a checkpoint of all ranks: each calls this at a point where its program rests, that is, where no other thread of it
 * posts or touches its regions. When all have come, lanes are drained and regions copied; then this returns, and the
 * program goes on while files are written. When it fails the program goes on without a checkpoint.
 *
 * rank        from reclane_rank_open().
 * request     NULL: what has changed, without a section. The section may have up to 64 MiB here.
 * timeout_ms  how long to wait for the other ranks, milliseconds; 0 for 60 s. Copying is bounded by the option
 *             checkpoint-hold-timeout-ms.
 * number      receives the request's number, for the other calls. The last 64 are remembered.
 * error       may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_CHECKPOINT_ABORTED  it came to nothing; the message says why: a rank is gone, the one before is still being
 *                                    written, a disk is full
 * RECLANE_STATUS_BUSY                not all ranks came in time, or another thread of this rank is in this call
 * RECLANE_STATUS_WRONG_STATE         there is no checkpoint-directory
 * RECLANE_STATUS_WOULD_DEADLOCK      called from inside a callback
 * RECLANE_STATUS_INVALID_ARGUMENT, _NOT_UTF8  as their names say
 * RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names say
 * Threads: any; one at a time per rank.  Blocks: up to timeout_ms, then until copying has ended.
 */
RECLANE_NODISCARD
reclane_status reclane_rank_checkpoint(const struct reclane_rank *rank,
                                       const struct reclane_checkpoint_request *request,
                                       uint64_t timeout_ms,
                                       uint64_t *number,
                                       struct reclane_error *error);

/* Begins a checkpoint of all ranks, whose programs' hooks bring them to rest. Does not wait.
 *
 * rank    from reclane_rank_open().
 * flags   0 or RECLANE_CHECKPOINT_FLAG_FULL.
 * number  receives the request's number, for the other calls.
 * error   may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_WRONG_STATE       there is no checkpoint-directory
 * RECLANE_STATUS_INVALID_ARGUMENT  unknown flags
 * RECLANE_STATUS_WOULD_DEADLOCK    called from inside a callback
 * RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names say
 * Threads: any.  Blocks: for one exchange with the control plane.
 */
RECLANE_NODISCARD
reclane_status reclane_rank_checkpoint_begin(const struct reclane_rank *rank,
                                             uint32_t flags,
                                             uint64_t *number,
                                             struct reclane_error *error);

/* Waits until a checkpoint is so far; see reclane_checkpoint_wait().
 *
 * rank        from reclane_rank_open().
 * number      from reclane_rank_checkpoint() or reclane_rank_checkpoint_begin() of this rank.
 * state       a reclane_checkpoint_state up to RECLANE_CHECKPOINT_STATE_COMMITTED.
 * timeout_ms  how long to wait, milliseconds; 0 for 600 s.
 * info        may be NULL; receives how far it is. struct_size must be set.
 * error       may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_CHECKPOINT_ABORTED  it came to nothing; the message says why
 * RECLANE_STATUS_BUSY                it is not so far yet; call again
 * RECLANE_STATUS_INVALID_ARGUMENT    no such request, or no such state
 * RECLANE_STATUS_WOULD_DEADLOCK      called from inside a callback
 * RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names say
 * Threads: any.  Blocks: up to timeout_ms.
 */
RECLANE_NODISCARD
reclane_status reclane_rank_checkpoint_wait(const struct reclane_rank *rank,
                                            uint64_t number,
                                            uint32_t state,
                                            uint64_t timeout_ms,
                                            struct reclane_checkpoint_info *info,
                                            struct reclane_error *error);

/* How far a checkpoint is, as far as this rank has heard.
 *
 * rank    from reclane_rank_open().
 * number  from reclane_rank_checkpoint() or reclane_rank_checkpoint_begin() of this rank.
 * info    receives it; struct_size must be set.
 * error   may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_INVALID_ARGUMENT  no such request, or one of long ago
 * RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names say
 * Threads: any.  Blocks: never.
 */
RECLANE_NODISCARD
reclane_status reclane_rank_checkpoint_status(const struct reclane_rank *rank,
                                              uint64_t number,
                                              struct reclane_checkpoint_info *info,
                                              struct reclane_error *error);

/* Gives a checkpoint up. When its manifest is being written already, it is committed all the same.
 *
 * rank    from reclane_rank_open().
 * number  from reclane_rank_checkpoint() or reclane_rank_checkpoint_begin() of this rank.
 * error   may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_INVALID_ARGUMENT  no such request
 * RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names say
 * Threads: any.  Blocks: for one exchange with the control plane.
 */
reclane_status reclane_rank_checkpoint_abort(const struct reclane_rank *rank,
                                             uint64_t number,
                                             struct reclane_error *error);

/* Sets what brings the program to rest for checkpoints that it does not wait for in reclane_rank_checkpoint().
 *
 * rank   from reclane_rank_open().
 * hooks  copied; they take the place of those before. NULL: none. On RECLANE_STATUS_OK the library owns
 *        hooks->user_data and calls hooks->drop_user_data once, when no callback is under way; on any other status it
 *        stays the caller's.
 * error  may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_NULL_POINTER    a required callback, or the name of the section, is NULL
 * RECLANE_STATUS_WOULD_DEADLOCK  called from inside a callback
 * RECLANE_STATUS_NOT_UTF8, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names say
 * Threads: any.  Blocks: never.
 */
RECLANE_NODISCARD
reclane_status reclane_rank_set_hooks(const struct reclane_rank *rank,
                                      const struct reclane_rank_hooks *hooks,
                                      struct reclane_error *error);

/* Copies a section of the checkpoint that this rank started from; it is the one that this rank had brought.
 *
 * rank      from reclane_rank_open().
 * name      the section's name, NUL-terminated UTF-8.
 * buffer    receives its bytes; may be NULL when capacity is 0, to ask for the length.
 * capacity  bytes of buffer.
 * length    receives the section's bytes, also when buffer is too small.
 * error     may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_INVALID_ARGUMENT  it did not start from a checkpoint, or had no section of this name
 * RECLANE_STATUS_BUFFER_TOO_SMALL  it has more than capacity bytes; nothing was copied
 * RECLANE_STATUS_NULL_POINTER, _NOT_UTF8, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names
 * say
 * Threads: any.  Blocks: never.
 */
RECLANE_NODISCARD
reclane_status reclane_rank_restored_section(const struct reclane_rank *rank,
                                             const char *name,
                                             void *buffer,
                                             size_t capacity,
                                             size_t *length,
                                             struct reclane_error *error);

/* ----------------------------------------------------------------------------------------------------
 * Region: memory of a rank that all ranks reach by (rank, region, offset).
 *
 * The library allocates it, zeroed and aligned to a page. Its address for peers belongs to its id and is the same in every
 * life of the rank; keys stay inside the library.
 */

/* Allocates a zeroed region and shows it to all ranks. When this returns, every rank that has a lane to this one can use
 * it, and others when they make one. A region that came back from a checkpoint is there already, filled: this hands it out,
 * and refuses another length or other rights than it had.
 *
 * rank    from reclane_rank_open(); closed after the region, or before: then peers have lost the region already.
 * id      0..511, free on this rank.
 * bytes   its length, 1 to 2^40.
 * rights  what other ranks may do with it, reclane_right values added; at least one.
 * out     receives the handle; NULL is written on failure. Close it with reclane_region_close().
 * error   may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_INVALID_ARGUMENT           id, bytes or rights cannot be, or the id is open
 * RECLANE_STATUS_RESOURCE_LIMIT, _OS_ERROR  there is no memory, or it cannot be registered
 * RECLANE_STATUS_UNSUPPORTED                the fabric cannot register memory under a chosen address
 * RECLANE_STATUS_SHARD_UNREACHABLE          a rank that has a lane to this one did not map it within 5 s
 * RECLANE_STATUS_CONTROL_PLANE_UNREACHABLE  ranks that have a lane to this one could not be told
 * RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names say
 * Threads: any.  Blocks: until ranks with lanes have mapped it, at most 5 s for each.
 */
RECLANE_NODISCARD
reclane_status reclane_region_open(const struct reclane_rank *rank,
                                   uint32_t id,
                                   size_t bytes,
                                   uint32_t rights,
                                   struct reclane_region **out,
                                   struct reclane_error *error);

/* First byte of a region, valid until reclane_region_close(). Returns NULL for a handle that cannot be used. Other ranks
 * read and write it at any time: use atomics where both sides touch the same bytes.
 *
 * region  from reclane_region_open().
 *
 * Threads: any.  Blocks: never.
 */
void *reclane_region_data(const struct reclane_region *region);

/* Length of a region in bytes. Returns 0 for a handle that cannot be used.
 *
 * region  from reclane_region_open().
 *
 * Threads: any.  Blocks: never.
 */
size_t reclane_region_bytes(const struct reclane_region *region);

/* Waits until another rank has a region open, and connects the lane to it. An operation does the same without waiting for
 * the region; this is for programs that have no barrier between opening and using.
 *
 * rank        from reclane_rank_open().
 * peer        the rank that owns the region; it may be this one.
 * region      its id.
 * timeout_ms  how long to wait, milliseconds; 0 for 60 s.
 * info        receives what is known of it; struct_size must be set.
 * error       may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_INVALID_ARGUMENT   there is no such rank, or it has no such region within the time
 * RECLANE_STATUS_SHARD_UNREACHABLE  the rank is gone or does not answer
 * RECLANE_STATUS_CONTROL_PLANE_UNREACHABLE, _RESOURCE_LIMIT, _OS_ERROR  as their names say
 * RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names say
 * Threads: any.  Blocks: up to timeout_ms.
 */
RECLANE_NODISCARD
reclane_status reclane_region_find(const struct reclane_rank *rank,
                                   uint32_t peer,
                                   uint32_t region,
                                   uint64_t timeout_ms,
                                   struct reclane_region_info *info,
                                   struct reclane_error *error);

/* Closes a region: other ranks cannot use it any more, and its bytes must not be touched any more, nor be named by an
 * operation under way. NULL and an already closed handle do nothing.
 *
 * Threads: one at a time per region.  Blocks: until ranks with lanes were told, up to rdma-control-plane-timeout-ms.
 */
void reclane_region_close(struct reclane_region *region);

/* ----------------------------------------------------------------------------------------------------
 * Operation: reading and changing regions of other ranks without their doing anything.
 *
 * A place is (peer, region, offset): the rank that owns the region, its id, and an offset in bytes. On `shm` local memory
 * may be any; on other fabrics it lies inside a region of this rank. Each call that fails says in reclane_error.outcome
 * whether the operation took effect, as far as that can be known: the log of what was posted and the peer's evidence
 * decide, nothing is guessed, and nothing but a read is made again by itself when that is not certain.
 */

/* Writes to a region of another rank and waits until the bytes are in its memory.
 *
 * rank    from reclane_rank_open().
 * peer    the rank that owns the region.
 * region  its id.
 * offset  where, in bytes.
 * source  the bytes; read during the call only.
 * bytes   how many, at most 2^30.
 * error   may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_INVALID_ARGUMENT   there is no such rank or region, the range is not in it, its owner gave no right, or
 *                                   local memory is in no region (other fabrics than shm)
 * RECLANE_STATUS_SHARD_UNREACHABLE  the rank is gone, or did not let a lane in
 * RECLANE_STATUS_COMPLETION_ERROR   the fabric says that it failed; outcome says whether it took effect
 * RECLANE_STATUS_WAIT_TIMEOUT       it did not complete within rdma-wait-timeout-ms; its lane was ended
 * RECLANE_STATUS_BUSY               a hold lasted longer than that; nothing was posted
 * RECLANE_STATUS_POST_FAILED, _CONTROL_PLANE_UNREACHABLE, _RESOURCE_LIMIT, _OS_ERROR  as their names say
 * RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names say
 * Threads: any.  Blocks: until it is settled, up to rdma-wait-timeout-ms.
 */
RECLANE_NODISCARD
reclane_status reclane_rank_write(const struct reclane_rank *rank,
                                  uint32_t peer,
                                  uint32_t region,
                                  uint64_t offset,
                                  const void *source,
                                  size_t bytes,
                                  struct reclane_error *error);

/* Reads from a region of another rank. A read that a failing lane did not bring is made once more over the next one.
 *
 * rank    from reclane_rank_open().
 * peer    the rank that owns the region.
 * region  its id.
 * offset  where, in bytes.
 * target  receives the bytes; written during the call only. After a failure its content is undefined.
 * bytes   how many, at most 2^30.
 * error   may be NULL; filled on failure only.
 *
 * Statuses as reclane_rank_write().
 * Threads: any.  Blocks: until it is settled, up to rdma-wait-timeout-ms.
 */
RECLANE_NODISCARD
reclane_status reclane_rank_read(const struct reclane_rank *rank,
                                 uint32_t peer,
                                 uint32_t region,
                                 uint64_t offset,
                                 void *target,
                                 size_t bytes,
                                 struct reclane_error *error);

/* Adds to 8 bytes of another rank's region by the fabric: at most once. When the lane fails meanwhile, outcome says
 * whether it took effect; the old value is lost then. reclane_rank_fetch_add_once() has no such doubt.
 *
 * rank    from reclane_rank_open().
 * peer    the rank that owns the region.
 * region  its id; opened with RECLANE_RIGHT_ATOMIC.
 * offset  where, in bytes, a multiple of 8.
 * add     what is added, modulo 2^64.
 * old     receives the value before, or is NULL.
 * error   may be NULL; filled on failure only.
 *
 * Statuses as reclane_rank_write().
 * Threads: any.  Blocks: until it is settled, up to rdma-wait-timeout-ms.
 */
RECLANE_NODISCARD
reclane_status reclane_rank_fetch_add(const struct reclane_rank *rank,
                                      uint32_t peer,
                                      uint32_t region,
                                      uint64_t offset,
                                      uint64_t add,
                                      uint64_t *old,
                                      struct reclane_error *error);

/* Stores to 8 bytes of another rank's region if they equal `expect`, by the fabric: at most once, as
 * reclane_rank_fetch_add().
 *
 * rank    from reclane_rank_open().
 * peer    the rank that owns the region.
 * region  its id; opened with RECLANE_RIGHT_ATOMIC.
 * offset  where, in bytes, a multiple of 8.
 * expect  what they are compared with.
 * swap    what is stored if equal.
 * old     receives the value before, or is NULL: equal to `expect` when it was stored.
 * error   may be NULL; filled on failure only.
 *
 * Statuses as reclane_rank_write().
 * Threads: any.  Blocks: until it is settled, up to rdma-wait-timeout-ms.
 */
RECLANE_NODISCARD
reclane_status reclane_rank_compare_swap(const struct reclane_rank *rank,
                                         uint32_t peer,
                                         uint32_t region,
                                         uint64_t offset,
                                         uint64_t expect,
                                         uint64_t swap,
                                         uint64_t *old,
                                         struct reclane_error *error);

/* Adds to 8 bytes of another rank's region exactly once, whatever happens to the lane: the owner's library executes it and
 * remembers its answer. Slower than reclane_rank_fetch_add(). Do not mix the two kinds on the same bytes, except on shm:
 * an adapter's atomics need not be atomic with a processor's.
 *
 * rank    from reclane_rank_open().
 * peer    the rank that owns the region.
 * region  its id; opened with RECLANE_RIGHT_ATOMIC.
 * offset  where, in bytes, a multiple of 8.
 * add     what is added, modulo 2^64.
 * old     receives the value before, or is NULL.
 * error   may be NULL; filled on failure only. outcome is unknown only when the owner is gone or silent.
 *
 * RECLANE_STATUS_NO_SLOT  16 such requests are under way to this rank already; nothing was sent
 * Other statuses as reclane_rank_write().
 * Threads: any.  Blocks: until it is answered, up to rdma-wait-timeout-ms.
 */
RECLANE_NODISCARD
reclane_status reclane_rank_fetch_add_once(const struct reclane_rank *rank,
                                           uint32_t peer,
                                           uint32_t region,
                                           uint64_t offset,
                                           uint64_t add,
                                           uint64_t *old,
                                           struct reclane_error *error);

/* Stores to 8 bytes of another rank's region if they equal `expect`, exactly once, as reclane_rank_fetch_add_once().
 *
 * rank    from reclane_rank_open().
 * peer    the rank that owns the region.
 * region  its id; opened with RECLANE_RIGHT_ATOMIC.
 * offset  where, in bytes, a multiple of 8.
 * expect  what they are compared with.
 * swap    what is stored if equal.
 * old     receives the value before, or is NULL.
 * error   may be NULL; filled on failure only.
 *
 * Statuses as reclane_rank_fetch_add_once().
 * Threads: any.  Blocks: until it is answered, up to rdma-wait-timeout-ms.
 */
RECLANE_NODISCARD
reclane_status reclane_rank_compare_swap_once(const struct reclane_rank *rank,
                                              uint32_t peer,
                                              uint32_t region,
                                              uint64_t offset,
                                              uint64_t expect,
                                              uint64_t swap,
                                              uint64_t *old,
                                              struct reclane_error *error);

/* Posts operations on one rank's regions together, with one doorbell where they fit, and does not wait. All are posted or
 * none. Reads and atomics come after earlier writes; of two writes to the same bytes the later one stays where the fabric
 * orders writes (shm does), elsewhere flush between them.
 *
 * rank        from reclane_rank_open().
 * peer        the rank that owns the regions.
 * operations  an array of `count`; copied. What they name here stays valid until reclane_rank_wait() or
 *             reclane_rank_flush() has said that they are settled.
 * count       1 to 64; also at most a quarter of the option max-send-wr.
 * ticket      receives the number of the last one.
 * error       may be NULL; filled on failure only.
 *
 * Statuses as reclane_rank_write(); after a failure nothing was posted.
 * Threads: any.  Blocks: while the send queue is full, a hold is in force, or the lane connects, up to
 * rdma-wait-timeout-ms.
 */
RECLANE_NODISCARD
reclane_status reclane_rank_post(const struct reclane_rank *rank,
                                 uint32_t peer,
                                 const struct reclane_operation *operations,
                                 size_t count,
                                 reclane_ticket *ticket,
                                 struct reclane_error *error);

/* Waits until the operations of a ticket, and all that were posted to the same rank before, are settled.
 *
 * rank        from reclane_rank_open().
 * ticket      from reclane_rank_post().
 * timeout_ms  how long to wait, milliseconds; 0 for 60 s.
 * error       may be NULL; filled on failure only: of the last operation; reclane_rank_outcomes() has each.
 *
 * RECLANE_STATUS_WAIT_TIMEOUT       they are under way still
 * RECLANE_STATUS_SHARD_UNREACHABLE, _COMPLETION_ERROR  the last one failed; outcome says whether it took effect
 * RECLANE_STATUS_STALE_TOKEN        no such ticket, or too long ago
 * RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names say
 * Threads: any.  Blocks: up to timeout_ms.
 */
RECLANE_NODISCARD
reclane_status reclane_rank_wait(const struct reclane_rank *rank,
                                 reclane_ticket ticket,
                                 uint64_t timeout_ms,
                                 struct reclane_error *error);

/* What is known of the operations that end with a ticket's: of a batch, when count is its own.
 *
 * rank    from reclane_rank_open().
 * ticket  from reclane_rank_post().
 * known   receives `count` values of reclane_known, in the order of the operations.
 * count   how many, at least 1.
 * error   may be NULL; filled on failure only.
 *
 * RECLANE_STATUS_STALE_TOKEN  no such ticket, or some are too long ago: a lane remembers half of the option max-send-wr
 * RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names say
 * Threads: any.  Blocks: never.
 */
RECLANE_NODISCARD
reclane_status reclane_rank_outcomes(const struct reclane_rank *rank,
                                     reclane_ticket ticket,
                                     uint32_t *known,
                                     size_t count,
                                     struct reclane_error *error);

/* Waits until everything that was posted to a rank so far is settled and visible to its processor.
 *
 * rank        from reclane_rank_open().
 * peer        the rank.
 * timeout_ms  how long to wait, milliseconds; 0 for 60 s.
 * error       may be NULL; filled on failure only: the newest failure that no call has told of yet.
 *
 * RECLANE_STATUS_WAIT_TIMEOUT  something is under way still
 * RECLANE_STATUS_SHARD_UNREACHABLE, _COMPLETION_ERROR  an operation failed; outcome says whether it took effect
 * RECLANE_STATUS_INVALID_ARGUMENT  there is no such rank
 * RECLANE_STATUS_NULL_POINTER, _BAD_HANDLE, _CLOSED, _FORKED, _POISONED, _STRUCT_SIZE, _BUG  as their names say
 * Threads: any.  Blocks: up to timeout_ms.
 */
RECLANE_NODISCARD
reclane_status reclane_rank_flush(const struct reclane_rank *rank,
                                  uint32_t peer,
                                  uint64_t timeout_ms,
                                  struct reclane_error *error);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* RECLANE_RECLANE_H */
