/* SPDX-License-Identifier: Apache-2.0 */
/* The perf event that vCPU threads are sampled by: cycles where they can be counted, else the
 * clock. Any thread. */
#ifndef KVMSCOPE_ATTACH_PERF_EVENT_H
#define KVMSCOPE_ATTACH_PERF_EVENT_H

#include <linux/perf_event.h>
#include <sys/types.h>

#include "vmm/attach/backend.h"

struct perf_event_choice {
	enum attach_event event;
	struct perf_event_attr
		attribute; /* of samples by CLOCK_MONOTONIC_RAW; without a sample_type */
};

/*
 * Tries it on process PID, at FREQUENCY Hz; the clock, if no other may be, with a warning where it
 * is for the frequency. -EACCES, -ENOTSUP and others of perf_event_open(), with the message.
 */
int perf_event_choose(struct perf_event_choice *choice, pid_t pid, unsigned int frequency,
		      bool clock_only);

/* Hz: events that are opened from now on have it. */
void perf_event_set_frequency(struct perf_event_choice *choice, unsigned int frequency);

/*
 * An event on thread TID, on whatever CPU it runs; the descriptor, or a negative errno without
 * message. Where the kernel has come to allow a lower frequency only
 * (kernel.perf_event_max_sample_rate), it has that one: a sample says for how much it stands.
 */
int perf_event_open_thread(const struct perf_event_attr *attribute, pid_t tid);

/* Sets the message for an ERROR of that, and returns it as backends do. */
int perf_event_explain(int error, pid_t pid);

#endif
