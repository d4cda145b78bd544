/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest side of the agent protocol: the session of kvmscope-agent on a kernel without events.
 * Input: the bytes that the host sends.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "guest-agent/connector.h"
#include "guest-agent/host_link.h"
#include "guest-agent/kernel_events.h"
#include "guest-agent/proc_snapshot.h"
#include "guest-agent/reference_tasks.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/*
 * Replaces the C library's function: time advances with each call, so that an input behaves the
 * same in each run. libFuzzer's own calls get the real time.
 */
static uint64_t time_now; /* ns */

int clock_gettime(clockid_t clock, struct timespec *time)
{
	if (clock == CLOCK_REALTIME)
		return (int)syscall(SYS_clock_gettime, clock, time);
	time_now += 10000;
	*time = (struct timespec){ .tv_sec = (time_t)(time_now / 1000000000),
				   .tv_nsec = (long)(time_now % 1000000000) };
	return 0;
}

int events_open(struct events *events)
{
	*events = (struct events){ 0 };
	return 0;
}

void events_close(struct events *events)
{
}

void events_open_new_cpus(struct events *events)
{
}

bool events_drain(struct events *events, struct output *output)
{
	return true;
}

void snapshot_begin(struct snapshot *snapshot, bool anew)
{
}

void snapshot_end(struct snapshot *snapshot)
{
}

bool snapshot_step(struct snapshot *snapshot, struct events *events, struct output *output)
{
	return true;
}

bool snapshot_process(struct snapshot *snapshot, pid_t pid, struct events *events,
		      struct output *output)
{
	return true;
}

pid_t connector_due(struct connector *connector, uint64_t now)
{
	return 0;
}

/* No processes are started for an input. */
void reference_tasks_request(void)
{
}

bool reference_tasks_send(struct output *output)
{
	return true;
}

void reference_tasks_cancel(void)
{
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	bool stop = false;
	int fds[2];

	time_now = 1000000000;
	if (size > 4096 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds))
		return 0;
	if (write(fds[0], data, size) != (ssize_t)size)
		abort();
	/* The end of the input is the end of the connection. */
	shutdown(fds[0], SHUT_WR);
	if (session_serve(fds[1], false, &stop) != -EPIPE)
		abort();
	close(fds[0]);
	close(fds[1]);
	return 0;
}
