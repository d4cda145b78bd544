/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cli/run_times.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "vmm/attach/proc_files.h"

struct run_times {
	pthread_mutex_t lock;
	int directory;                   /* /proc/self */
	struct vcpu_times_rows replaced; /* without rows: it is not */
	enum vcpu_times_detail detail;
	unsigned int count;
	struct running {
		int fd;                    /* the thread's schedstat; -1: none runs */
		uint64_t start;            /* ns, CLOCK_MONOTONIC */
		struct vcpu_times earlier; /* of threads that have ended */
	} vcpus[];
};

int run_times_create(struct run_times **result, unsigned int vcpus)
{
	struct run_times *times = calloc(1, sizeof(*times) + vcpus * sizeof(times->vcpus[0]));

	if (!times)
		return error_set(-ENOMEM, "no memory for the times of vCPUs");
	pthread_mutex_init(&times->lock, NULL);
	times->directory = open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	times->count = vcpus;
	for (unsigned int i = 0; i < vcpus; i++)
		times->vcpus[i].fd = -1;
	*result = times;
	return 0;
}

void run_times_destroy(struct run_times *times)
{
	if (!times)
		return;
	for (unsigned int i = 0; i < times->count; i++)
		if (times->vcpus[i].fd >= 0)
			close(times->vcpus[i].fd);
	if (times->directory >= 0)
		close(times->directory);
	vcpu_times_free(&times->replaced);
	pthread_mutex_destroy(&times->lock);
	free(times);
}

void run_times_enter(struct run_times *times, unsigned int vcpu)
{
	struct running *running = &times->vcpus[vcpu];

	pthread_mutex_lock(&times->lock);
	running->fd = proc_open_thread_file(times->directory, gettid(), "schedstat");
	running->start = clock_ns(CLOCK_MONOTONIC);
	pthread_mutex_unlock(&times->lock);
}

/* A vCPU's thread begins with no time. The kernel updates both times at different moments, so the
 * rest may be too small at first. */
static void add(const struct running *running, struct vcpu_times *to)
{
	uint64_t passed = clock_ns(CLOCK_MONOTONIC) - running->start, used;
	struct thread_cpu_times times;

	if (running->fd < 0 || !thread_cpu_times_read(running->fd, &times))
		return;
	used = times.ran + times.waited;
	to->ns[VCPU_RUNNING] += times.ran;
	to->ns[VCPU_WAITING] += times.waited;
	to->ns[VCPU_ASLEEP] += passed > used ? passed - used : 0;
}

void run_times_leave(struct run_times *times, unsigned int vcpu)
{
	struct running *running = &times->vcpus[vcpu];

	pthread_mutex_lock(&times->lock);
	add(running, &running->earlier);
	if (running->fd >= 0)
		close(running->fd);
	running->fd = -1;
	pthread_mutex_unlock(&times->lock);
}

static int read_vcpu(const struct running *running, unsigned int vcpu, struct vcpu_times_rows *rows)
{
	struct vcpu_times now = running->earlier, *row;

	add(running, &now);
	if (!now.ns[VCPU_RUNNING])
		return 0;
	row = vcpu_times_row(rows, vcpu);
	if (!row)
		return -ENOMEM;
	now.vcpu = vcpu;
	*row = now;
	return 0;
}

static int read_vcpus(const struct run_times *times, struct vcpu_times_rows *rows)
{
	int error = 0;

	for (unsigned int i = 0; i < times->count && !error; i++)
		error = read_vcpu(&times->vcpus[i], i, rows);
	return error;
}

static int copy(struct vcpu_times_rows *to, const struct vcpu_times_rows *rows)
{
	*to = (struct vcpu_times_rows){ 0 };
	for (size_t i = 0; i < rows->count; i++) {
		struct vcpu_times *row = vcpu_times_row(to, rows->rows[i].vcpu);

		if (!row)
			return -ENOMEM;
		*row = rows->rows[i];
	}
	return 0;
}

int run_times_replace(struct run_times *times, const struct vcpu_times_rows *rows,
		      enum vcpu_times_detail detail)
{
	int error;

	pthread_mutex_lock(&times->lock);
	error = copy(&times->replaced, rows);
	times->detail = detail;
	pthread_mutex_unlock(&times->lock);
	return error;
}

int run_times_read(struct run_times *times, struct vcpu_times_rows *rows,
		   enum vcpu_times_detail *detail)
{
	int error;

	*rows = (struct vcpu_times_rows){ 0 };
	*detail = VCPU_TIMES_OF_PROC;
	pthread_mutex_lock(&times->lock);
	if (times->replaced.count)
		*detail = times->detail;
	error = times->replaced.count ? copy(rows, &times->replaced) : read_vcpus(times, rows);
	pthread_mutex_unlock(&times->lock);
	return error;
}
