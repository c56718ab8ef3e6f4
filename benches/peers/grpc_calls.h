/* What grpc_rows.c needs of gRPC's C++ library. */
#ifndef GRPC_CALLS_H
#define GRPC_CALLS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Executes a request: its bytes in, how many bytes of the answer were written. */
typedef size_t (*grpc_handler)(const void* request, size_t bytes, void* answer);

/* Serves for ever at "unix:PATH" or "127.0.0.1:0"; calls `told` with the port (0 for a path) as soon as it listens. */
void grpc_serve(const char* place, grpc_handler handler, void (*told)(int port));

/* A client; 0, or -1 when the server is not reached within 10 s. */
int grpc_open(const char* place, unsigned slots);

/* Begins a call of a slot; waits for the one of a slot, and gives its answer, which is good until the next begin. */
void grpc_begin(unsigned slot, const void* request, size_t bytes);
int grpc_finish(unsigned slot, const void** answer, size_t* bytes);

#ifdef __cplusplus
}
#endif
#endif
