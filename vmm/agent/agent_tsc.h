/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host's time by its TSC, so that a guest's TSC reading, whose offset the
 * owner of the VM knows, tells when it was made: far closer than the way of a
 * message does. One thread at a time.
 */
#ifndef KVMSCOPE_AGENT_AGENT_TSC_H
#define KVMSCOPE_AGENT_AGENT_TSC_H

#include <stdbool.h>
#include <stdint.h>

/* Both clocks read together. */
struct tsc_mark {
	uint64_t time;       /* ns, CLOCK_MONOTONIC_RAW */
	uint64_t tsc, width; /* it was read in the WIDTH cycles from TSC on */
};

/* Of this host's kernel (Documentation/ABI/testing/sysfs-devices-system-clocksource), for the next
 * two. */
#define TSC_CLOCKSOURCES "/sys/devices/system/clocksource/clocksource0"

/* Does it hold the TSC for a clock, the same on all processors? It may find out any time that it is
 * none. */
bool tsc_is_reliable(const char *clocksources);

/* Does it tell the time by the TSC? Then so do the clocks that KVM gives its guests. */
bool tsc_is_clocksource(const char *clocksources);

/* The clock is asked between two readings of the TSC: no system call where the vDSO has it. Any
 * thread. */
struct tsc_mark tsc_mark_now(void);

/*
 * When was the TSC at VALUE? Between *LOW and *HIGH, if it was between two
 * marks; false if it was not, or the marks tell nothing.
 */
bool tsc_time(const struct tsc_mark *first, const struct tsc_mark *last, uint64_t value,
	      uint64_t *low, uint64_t *high);

#endif
