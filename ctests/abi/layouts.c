/* Sizes and offsets of every struct of the interface, and the numbers of every enum, on 64-bit Linux. A line that no
 * longer compiles is a break of the binary interface; a new field or value is a new line. C11. */
#include <reclane/reclane.h>
#include <stddef.h>

#define SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), "size of " #type)
#define AT(type, field, offset) _Static_assert(offsetof(type, field) == (offset), "offset of " #type "." #field)
#define VALUE(name, number) _Static_assert((name) == (number), "value of " #name)

SIZE(reclane_error, 576);
AT(reclane_error, struct_size, 0);
AT(reclane_error, status, 4);
AT(reclane_error, layer, 8);
AT(reclane_error, outcome, 12);
AT(reclane_error, verdict, 16);
AT(reclane_error, shard, 20);
AT(reclane_error, lane, 24);
AT(reclane_error, slot, 28);
AT(reclane_error, generation, 32);
AT(reclane_error, completion, 36);
AT(reclane_error, vendor_error, 40);
AT(reclane_error, os_error, 44);
AT(reclane_error, sequence, 48);
AT(reclane_error, elapsed_ns, 56);
AT(reclane_error, message, 64);

SIZE(reclane_event, 40);
AT(reclane_event, struct_size, 0);
AT(reclane_event, level, 4);
AT(reclane_event, time_us, 8);
AT(reclane_event, name, 16);
AT(reclane_event, line, 24);
AT(reclane_event, line_length, 32);

SIZE(reclane_event_sink, 32);
AT(reclane_event_sink, struct_size, 0);
AT(reclane_event_sink, level, 4);
AT(reclane_event_sink, user_data, 8);
AT(reclane_event_sink, drop_user_data, 16);
AT(reclane_event_sink, on_event, 24);

SIZE(reclane_table_options, 40);
AT(reclane_table_options, struct_size, 0);
AT(reclane_table_options, dim, 4);
AT(reclane_table_options, name, 8);
AT(reclane_table_options, num_embeddings, 16);
AT(reclane_table_options, optimizer, 24);
AT(reclane_table_options, learning_rate, 28);
AT(reclane_table_options, epsilon, 32);
AT(reclane_table_options, initial_accumulator, 36);

SIZE(reclane_row, 8);
AT(reclane_row, address, 0);

SIZE(reclane_store, 120);
AT(reclane_store, struct_size, 0);
AT(reclane_store, reserved, 4);
AT(reclane_store, user_data, 8);
AT(reclane_store, drop_user_data, 16);
AT(reclane_store, init_table, 24);
AT(reclane_store, table_shape, 32);
AT(reclane_store, get_flat, 40);
AT(reclane_store, put, 48);
AT(reclane_store, update, 56);
AT(reclane_store, update_flat, 64);
AT(reclane_store, command, 72);
AT(reclane_store, prefetch, 80);
AT(reclane_store, pin_rows, 88);
AT(reclane_store, unpin_rows, 96);
AT(reclane_store, backing_base, 104);
AT(reclane_store, backing_bytes, 112);

SIZE(reclane_rank_info, 40);
AT(reclane_rank_info, struct_size, 0);
AT(reclane_rank_info, rank, 4);
AT(reclane_rank_info, ranks, 8);
AT(reclane_rank_info, control_plane_port, 12);
AT(reclane_rank_info, regions, 16);
AT(reclane_rank_info, lanes, 20);
AT(reclane_rank_info, posted, 24);
AT(reclane_rank_info, settled, 32);

SIZE(reclane_region_info, 32);
AT(reclane_region_info, struct_size, 0);
AT(reclane_region_info, rank, 4);
AT(reclane_region_info, region, 8);
AT(reclane_region_info, rights, 12);
AT(reclane_region_info, bytes, 16);
AT(reclane_region_info, version, 24);

SIZE(reclane_operation, 56);
AT(reclane_operation, kind, 0);
AT(reclane_operation, region, 4);
AT(reclane_operation, offset, 8);
AT(reclane_operation, bytes, 16);
AT(reclane_operation, local, 24);
AT(reclane_operation, operand, 32);
AT(reclane_operation, swap, 40);
AT(reclane_operation, reserved, 48);

SIZE(reclane_lane_info, 48);
AT(reclane_lane_info, struct_size, 0);
AT(reclane_lane_info, shard, 4);
AT(reclane_lane_info, lane, 8);
AT(reclane_lane_info, state, 12);
AT(reclane_lane_info, generation, 16);
AT(reclane_lane_info, queue_pair, 20);
AT(reclane_lane_info, commit_scheme, 24);
AT(reclane_lane_info, rebuildable, 32);
AT(reclane_lane_info, attempts, 36);
AT(reclane_lane_info, reason, 40);

SIZE(reclane_health_info, 24);
AT(reclane_health_info, struct_size, 0);
AT(reclane_health_info, shard, 4);
AT(reclane_health_info, known, 8);
AT(reclane_health_info, health, 12);
AT(reclane_health_info, idle_ms, 16);

SIZE(reclane_client_counters, 40);
AT(reclane_client_counters, struct_size, 0);
AT(reclane_client_counters, client_id, 4);
AT(reclane_client_counters, num_shards, 8);
AT(reclane_client_counters, lanes, 12);
AT(reclane_client_counters, lanes_active, 16);
AT(reclane_client_counters, slots, 20);
AT(reclane_client_counters, slots_held, 24);
AT(reclane_client_counters, reserved, 28);
AT(reclane_client_counters, lane_bytes, 32);

SIZE(reclane_server_counters, 128);
AT(reclane_server_counters, struct_size, 0);
AT(reclane_server_counters, reserved, 4);
AT(reclane_server_counters, gets, 8);
AT(reclane_server_counters, puts, 16);
AT(reclane_server_counters, updates, 24);
AT(reclane_server_counters, init_tables, 32);
AT(reclane_server_counters, commands, 40);
AT(reclane_server_counters, get_rows, 48);
AT(reclane_server_counters, missing_rows, 56);
AT(reclane_server_counters, refused, 64);
AT(reclane_server_counters, internal_errors, 72);
AT(reclane_server_counters, lanes, 80);
AT(reclane_server_counters, scan_rounds, 88);
AT(reclane_server_counters, empty_scan_rounds, 96);
AT(reclane_server_counters, sleeps, 104);
AT(reclane_server_counters, lane_bytes, 112);
AT(reclane_server_counters, repeated, 120);

VALUE(RECLANE_STATUS_OK, 0);
VALUE(RECLANE_STATUS_PENDING, 1);
VALUE(RECLANE_STATUS_INVALID_ARGUMENT, -100);
VALUE(RECLANE_STATUS_NULL_POINTER, -101);
VALUE(RECLANE_STATUS_STRUCT_SIZE, -102);
VALUE(RECLANE_STATUS_NOT_UTF8, -103);
VALUE(RECLANE_STATUS_UNKNOWN_OPTION, -104);
VALUE(RECLANE_STATUS_OPTION_TYPE, -105);
VALUE(RECLANE_STATUS_OPTION_BOUNDS, -106);
VALUE(RECLANE_STATUS_OPTION_CONFLICT, -107);
VALUE(RECLANE_STATUS_BUFFER_TOO_SMALL, -108);
VALUE(RECLANE_STATUS_BAD_HANDLE, -109);
VALUE(RECLANE_STATUS_CLOSED, -110);
VALUE(RECLANE_STATUS_STALE_TOKEN, -111);
VALUE(RECLANE_STATUS_FORKED, -112);
VALUE(RECLANE_STATUS_WRONG_STATE, -113);
VALUE(RECLANE_STATUS_UNSUPPORTED, -114);
VALUE(RECLANE_STATUS_WOULD_DEADLOCK, -115);
VALUE(RECLANE_STATUS_ABI_VERSION, -116);
VALUE(RECLANE_STATUS_NO_SLOT, -200);
VALUE(RECLANE_STATUS_BUSY, -201);
VALUE(RECLANE_STATUS_INVALID_PAYLOAD, -300);
VALUE(RECLANE_STATUS_WRONG_SHARD, -301);
VALUE(RECLANE_STATUS_BATCH_TOO_LARGE, -302);
VALUE(RECLANE_STATUS_VALUE_SIZE_MISMATCH, -303);
VALUE(RECLANE_STATUS_UNKNOWN_TABLE, -304);
VALUE(RECLANE_STATUS_INTERNAL_ERROR, -305);
VALUE(RECLANE_STATUS_CORRUPT_RESPONSE, -306);
VALUE(RECLANE_STATUS_POST_FAILED, -400);
VALUE(RECLANE_STATUS_COMPLETION_ERROR, -401);
VALUE(RECLANE_STATUS_COMPLETION_TIMEOUT, -402);
VALUE(RECLANE_STATUS_WAIT_TIMEOUT, -403);
VALUE(RECLANE_STATUS_LANE_DOWN, -404);
VALUE(RECLANE_STATUS_SHARD_UNREACHABLE, -500);
VALUE(RECLANE_STATUS_DEPLOYMENT_MISMATCH, -501);
VALUE(RECLANE_STATUS_STALE_EPOCH, -502);
VALUE(RECLANE_STATUS_DUPLICATE_ID, -503);
VALUE(RECLANE_STATUS_STARTUP_TIMEOUT, -504);
VALUE(RECLANE_STATUS_CONTROL_PLANE_UNREACHABLE, -505);
VALUE(RECLANE_STATUS_DRAINING, -506);
VALUE(RECLANE_STATUS_OS_ERROR, -600);
VALUE(RECLANE_STATUS_RESOURCE_LIMIT, -601);
VALUE(RECLANE_STATUS_FABRIC_UNAVAILABLE, -602);
VALUE(RECLANE_STATUS_POISONED, -603);
VALUE(RECLANE_STATUS_BUG, -700);
VALUE(RECLANE_CLASS_OK, 0);
VALUE(RECLANE_CLASS_CALLER, 1);
VALUE(RECLANE_CLASS_RETRY, 2);
VALUE(RECLANE_CLASS_REQUEST, 3);
VALUE(RECLANE_CLASS_LANE, 4);
VALUE(RECLANE_CLASS_PEER, 5);
VALUE(RECLANE_CLASS_CONTEXT, 6);
VALUE(RECLANE_CLASS_BUG, 7);
VALUE(RECLANE_LAYER_NONE, 0);
VALUE(RECLANE_LAYER_USAGE, 1);
VALUE(RECLANE_LAYER_POST, 2);
VALUE(RECLANE_LAYER_DEVICE, 3);
VALUE(RECLANE_LAYER_TRACKED_WRITE, 4);
VALUE(RECLANE_LAYER_WAIT, 5);
VALUE(RECLANE_LAYER_NODE, 6);
VALUE(RECLANE_LAYER_SERVER, 7);
VALUE(RECLANE_OUTCOME_UNKNOWN, 0);
VALUE(RECLANE_OUTCOME_NOT_EXECUTED, 1);
VALUE(RECLANE_OUTCOME_EXECUTED, 2);
VALUE(RECLANE_VERDICT_UNKNOWN, 0);
VALUE(RECLANE_VERDICT_SERVING, 1);
VALUE(RECLANE_VERDICT_SUSPECT, 2);
VALUE(RECLANE_VERDICT_DEAD, 3);
VALUE(RECLANE_OPTIMIZER_SGD, 0);
VALUE(RECLANE_OPTIMIZER_ADAGRAD, 1);
VALUE(RECLANE_OPTIMIZER_ROWWISE_ADAGRAD, 2);
VALUE(RECLANE_OPTIMIZER_ADD, 3);
VALUE(RECLANE_COMMAND_CLEAR, 1);
VALUE(RECLANE_COMMAND_SAVE, 2);
VALUE(RECLANE_COMMAND_LOAD, 3);
VALUE(RECLANE_ANSWER_OK, 0);
VALUE(RECLANE_ANSWER_INVALID_PAYLOAD, -1);
VALUE(RECLANE_ANSWER_WRONG_SHARD, -2);
VALUE(RECLANE_ANSWER_BATCH_TOO_LARGE, -3);
VALUE(RECLANE_ANSWER_VALUE_SIZE_MISMATCH, -4);
VALUE(RECLANE_ANSWER_UNKNOWN_TABLE, -5);
VALUE(RECLANE_ANSWER_INTERNAL_ERROR, -6);
VALUE(RECLANE_LANE_STATE_CONNECTING, 0);
VALUE(RECLANE_LANE_STATE_ACTIVE, 1);
VALUE(RECLANE_LANE_STATE_DIRTY, 2);
VALUE(RECLANE_LANE_STATE_REBUILDING, 3);
VALUE(RECLANE_LANE_STATE_DEAD, 4);
VALUE(RECLANE_RIGHT_WRITE, 1);
VALUE(RECLANE_RIGHT_READ, 2);
VALUE(RECLANE_RIGHT_ATOMIC, 4);
VALUE(RECLANE_RIGHT_ALL, 7);
VALUE(RECLANE_OPERATION_KIND_WRITE, 1);
VALUE(RECLANE_OPERATION_KIND_READ, 2);
VALUE(RECLANE_OPERATION_KIND_FETCH_ADD, 3);
VALUE(RECLANE_OPERATION_KIND_COMPARE_SWAP, 4);
VALUE(RECLANE_KNOWN_UNDER_WAY, 0);
VALUE(RECLANE_KNOWN_DONE, 1);
VALUE(RECLANE_KNOWN_NOT_DONE, 2);
VALUE(RECLANE_KNOWN_AMBIGUOUS, 3);
VALUE(RECLANE_KNOWN_RESULT_LOST, 4);
VALUE(RECLANE_LEVEL_ERROR, 1);
VALUE(RECLANE_LEVEL_WARN, 2);
VALUE(RECLANE_LEVEL_INFO, 3);
VALUE(RECLANE_LEVEL_DEBUG, 4);
VALUE(RECLANE_LEVEL_TRACE, 5);

int main(void) {
    return 0;
}
