/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session of LTTng-UST of a bench's own: its daemon, with a home of its own
 * below the temporary folder, as a user without rights if we are root (root's
 * daemon has a fixed place that may be in use). Buffers of 1 MiB a CPU that
 * are overwritten and that nobody reads: the cheapest that it has.
 */
#ifndef KVMSCOPE_TESTS_BENCH_LTTNG_SESSION_H
#define KVMSCOPE_TESTS_BENCH_LTTNG_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Starts the session and this program again, in which the tracer finds it:
 * first in main(). Returns in the new one, or in the old one if it can not be
 * had.
 */
void lttng_session_start(char **arguments);

/* NULL if events are recorded; else why not. */
const char *lttng_session_missing(void);

/* COUNT events of SIZE bytes. */
void lttng_session_write(const uint8_t *bytes, size_t size, size_t count);

/* Ends the daemon and removes its folder. */
void lttng_session_end(void);

#endif
