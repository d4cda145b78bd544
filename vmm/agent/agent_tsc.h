/* SPDX-License-Identifier: Apache-2.0 */
/* Converts TSC readings to host time. With a known TSC offset a guest's reading gives the time of a
 * clock exchange much more precisely than the messages do. One thread at a time.
 */
#ifndef KVMSCOPE_AGENT_AGENT_TSC_H
#define KVMSCOPE_AGENT_AGENT_TSC_H

#include <stdbool.h>
#include <stdint.h>

/* Both clocks read together. */
struct tsc_mark {
	uint64_t time;       /* ns, CLOCK_MONOTONIC_RAW */
	uint64_t tsc, width; /* TIME was read within the WIDTH cycles after TSC */
};

/* The host's clocksources (Documentation/ABI/testing/sysfs-devices-system-clocksource). */
#define TSC_CLOCKSOURCES "/sys/devices/system/clocksource/clocksource0"

/* True if the host's kernel considers the TSC a clock that is the same on all CPUs. It may change
 * its mind at any time. */
bool tsc_is_reliable(const char *clocksources);

/* True if the host's clocksource is the TSC; KVM then bases its guests' clocks on it, too. */
bool tsc_is_clocksource(const char *clocksources);

/* Reads the clock between two readings of the TSC. No system call if the vDSO has the clock. Any
 * thread. */
struct tsc_mark tsc_mark_now(void);

/* Bounds the time at which the TSC was VALUE by *LOW and *HIGH (ns). False if VALUE is not between
 * the two marks, or the marks are unusable.
 */
bool tsc_time(const struct tsc_mark *first, const struct tsc_mark *last, uint64_t value,
	      uint64_t *low, uint64_t *high);

#endif
