// SPDX-License-Identifier: Apache-2.0
#include "vmm/attach/rip_events.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shared/error.h"

struct rip_events {
	size_t count;
	int fds[]; /* -1: that CPU is offline */
};

size_t rip_events_count(void)
{
	int count = libbpf_num_possible_cpus();

	return count > 0 ? (size_t)count : 1;
}

static int open_event(size_t cpu)
{
	const struct perf_event_attr attribute = {
		.size = sizeof(attribute),
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_BPF_OUTPUT,
		.sample_type = PERF_SAMPLE_IP,
		.sample_period = 1,
	};

	return (int)syscall(SYS_perf_event_open, &attribute, -1, (int)cpu, -1,
			    PERF_FLAG_FD_CLOEXEC);
}

static int put_event(struct rip_events *events, int map_fd, size_t cpu)
{
	const __u32 key = (__u32)cpu;

	events->fds[cpu] = open_event(cpu);
	if (events->fds[cpu] < 0)
		return errno == ENODEV ? 0 : -errno;
	return bpf_map_update_elem(map_fd, &key, &events->fds[cpu], BPF_ANY);
}

int rip_events_open(struct rip_events **result, int map_fd)
{
	size_t count = rip_events_count();
	struct rip_events *events = malloc(sizeof(*events) + count * sizeof(events->fds[0]));
	int error = 0;

	if (!events)
		return error_set(-ENOMEM, "no memory for perf events");
	events->count = 0;
	while (events->count < count && !error)
		error = put_event(events, map_fd, events->count++);
	if (error) {
		rip_events_close(events);
		return error_set(
			error == -EPERM ? -EACCES : error,
			"perf has no event for each CPU, by which KVM is asked where its guest is: %s",
			strerror(-error));
	}
	*result = events;
	return 0;
}

void rip_events_close(struct rip_events *events)
{
	if (!events)
		return;
	for (size_t cpu = 0; cpu < events->count; cpu++)
		if (events->fds[cpu] >= 0)
			close(events->fds[cpu]);
	free(events);
}
