/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The event that LTTng-UST writes in bench_ring: a sequence of bytes. LTTng's macros include this
 * file again.
 */
#undef TRACEPOINT_PROVIDER
#define TRACEPOINT_PROVIDER kvmscope_bench
#undef TRACEPOINT_INCLUDE
#define TRACEPOINT_INCLUDE "tests/bench/lttng_events.h"

#if !defined(KVMSCOPE_TESTS_LTTNG_EVENTS_H) || defined(TRACEPOINT_HEADER_MULTI_READ)
#define KVMSCOPE_TESTS_LTTNG_EVENTS_H

#include <lttng/tracepoint.h>
#include <stdint.h>

/* clang-format off */
TRACEPOINT_EVENT(kvmscope_bench, record,
	TP_ARGS(const uint8_t *, bytes, size_t, size),
	TP_FIELDS(ctf_sequence(uint8_t, bytes, bytes, size_t, size))
)
/* clang-format on */

#endif

#include <lttng/tracepoint-event.h>
