/* Checks for the C and C++ tests: they count, say where they failed, and end the program with the count. */
#ifndef CHECK_H
#define CHECK_H

#include <reclane/reclane.h>
#include <stdio.h>
#include <string.h>

static int checks_done;
static int checks_failed;

static inline int check_that(int holds, const char* what, const char* file, int line) {
    ++checks_done;
    if (!holds) {
        ++checks_failed;
        fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, what);
    }
    return holds;
}

static inline int check_status(int32_t expected, int32_t got, const reclane_error* error, const char* what,
                               const char* file, int line) {
    ++checks_done;
    if (expected == got)
        return 1;
    ++checks_failed;
    fprintf(stderr, "%s:%d: %s gave %s instead of %s: %s\n", file, line, what, reclane_status_name(got),
            reclane_status_name(expected), error != NULL && got < 0 ? error->message : "");
    return 0;
}

#define CHECK(condition) check_that((condition) ? 1 : 0, #condition, __FILE__, __LINE__)
/* `call` takes &error, a variable that is in scope. */
#define CHECK_STATUS(expected, call) check_status((expected), (int32_t)(call), &error, #call, __FILE__, __LINE__)
#define CHECK_OK(call) CHECK_STATUS(RECLANE_STATUS_OK, call)
/* Ends the program when what follows would make no sense. */
#define NEED_OK(call)           \
    do {                        \
        if (!CHECK_OK(call))    \
            return check_end(); \
    } while (0)

static inline int check_end(void) {
    printf("%d checks, %d failed\n", checks_done, checks_failed);
    return checks_failed == 0 && checks_done > 0 ? 0 : 1;
}

#endif
