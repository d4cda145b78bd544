/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A private session of LTTng-UST for a bench: its daemon has its own home below the temporary
 * directory and runs as an unprivileged user if we are root (root's daemon has a fixed place that
 * may be in use). Its buffers have 1 MiB per CPU, are overwritten and are never read, which is the
 * cheapest mode.
 */
#ifndef KVMSCOPE_TESTS_BENCH_LTTNG_SESSION_H
#define KVMSCOPE_TESTS_BENCH_LTTNG_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Starts the session and executes this program again in it, because the tracer attaches at program
 * start: call it first in main(). Returns in the new program, or in the old one if the session is
 * unavailable.
 */
void lttng_session_start(char **arguments);

/* NULL if events are recorded, else the reason. */
const char *lttng_session_missing(void);

/* Writes COUNT events of SIZE bytes. */
void lttng_session_write(const uint8_t *bytes, size_t size, size_t count);

/* Ends the daemon and removes its home. */
void lttng_session_end(void);

#endif
