/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/attach/thread_exits.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shared/error.h"
#include "vmm/attach/perf_event.h"

#define PAGE 4096

int thread_exits_open(struct thread_exits *exits)
{
	for (size_t i = 0; i < VMM_VCPUS_MAX; i++)
		exits->threads[i].event = -1;
	exits->fd = epoll_create1(EPOLL_CLOEXEC);
	return exits->fd < 0 ? error_set(-errno, "cannot create an epoll: %s", strerror(errno)) : 0;
}

void thread_exits_close(struct thread_exits *exits)
{
	if (exits->fd < 0)
		return;
	for (unsigned int i = 0; i < VMM_VCPUS_MAX; i++)
		thread_exits_unwatch(exits, i);
	close(exits->fd);
	exits->fd = -1;
}

void thread_exits_watch(struct thread_exits *exits, unsigned int id, pid_t tid)
{
	/* Counts nothing, and needs no right to see the kernel. */
	const struct perf_event_attr attribute = { .size = sizeof(attribute),
						   .type = PERF_TYPE_SOFTWARE,
						   .config = PERF_COUNT_SW_DUMMY,
						   .exclude_kernel = 1,
						   .exclude_hv = 1 };
	struct thread_exit thread = { .event = perf_event_open_thread(&attribute, tid) };
	struct epoll_event hang_up = { .data.u32 = id };

	thread_exits_unwatch(exits, id);
	if (thread.event < 0)
		return;
	/* The first page only: no record is expected. */
	thread.page = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, thread.event, 0);
	if (thread.page == MAP_FAILED) {
		close(thread.event);
		return;
	}
	exits->threads[id] = thread;
	if (epoll_ctl(exits->fd, EPOLL_CTL_ADD, thread.event, &hang_up))
		thread_exits_unwatch(exits, id);
}

void thread_exits_unwatch(struct thread_exits *exits, unsigned int id)
{
	struct thread_exit *thread = &exits->threads[id];

	if (thread->event < 0)
		return;
	munmap(thread->page, PAGE);
	close(thread->event);
	thread->event = -1;
}

unsigned int thread_exits_read(struct thread_exits *exits)
{
	struct epoll_event ended[16];
	unsigned int total = 0;
	int count;

	while ((count = epoll_wait(exits->fd, ended, 16, 0)) > 0) {
		for (int i = 0; i < count; i++)
			thread_exits_unwatch(exits, ended[i].data.u32);
		total += (unsigned int)count;
	}
	return total;
}
