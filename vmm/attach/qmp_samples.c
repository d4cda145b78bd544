/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/attach/qmp_samples.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shared/error.h"
#include "vmm/attach/proc_files.h"

/* The kernel tells a running thread's time once in a tick: so many looks share what it tells then.
 */
#define UNTIMED_MAX 8

struct looked_at {
	struct vmm_vcpu vcpu;
	int time_fd;   /* schedstat of its thread */
	uint64_t used; /* ns of the thread's CPU time that looks stand for */
	struct look untimed[UNTIMED_MAX];
	size_t untimed_count;
	bool runs; /* in the latest look */
};

/* ns, or 0. */
static uint64_t read_used(int fd)
{
	struct thread_times times;

	return thread_times_read(fd, &times) ? times.ran : 0;
}

static void queue_look(struct looks *looks, const struct look *look)
{
	if (looks->queued == LOOKS_QUEUE) {
		looks->lost++;
		return;
	}
	looks->queue[(looks->first + looks->queued++) % LOOKS_QUEUE] = *look;
}

/* PERIOD is what all looks that wait for it stand for together. */
static void settle(struct looks *looks, struct looked_at *at, uint64_t period)
{
	size_t count = at->untimed_count;

	for (size_t i = 0; i < count; i++) {
		at->untimed[i].period = period / count;
		queue_look(looks, &at->untimed[i]);
	}
	at->untimed_count = 0;
}

/* The vCPUs that the thread of the one at FIRST runs: of those that run now, each had as much of
 * its time. */
static void settle_thread(struct looks *looks, size_t first)
{
	pid_t tid = looks->of[first]->vcpu.tid;
	uint64_t used = read_used(looks->of[first]->time_fd), period, running = 0;

	for (size_t i = first; i < looks->count; i++)
		running += looks->of[i]->vcpu.tid == tid && looks->of[i]->runs;
	if (!running || used <= looks->of[first]->used)
		return;
	period = (used - looks->of[first]->used) / running;
	for (size_t i = first; i < looks->count; i++) {
		struct looked_at *at = looks->of[i];

		if (at->vcpu.tid != tid)
			continue;
		at->used = used;
		if (at->runs)
			settle(looks, at, period);
	}
}

static bool is_first_of_thread(const struct looks *looks, size_t index)
{
	for (size_t i = 0; i < index; i++)
		if (looks->of[i]->vcpu.tid == looks->of[index]->vcpu.tid)
			return false;
	return true;
}

static void settle_all(struct looks *looks)
{
	for (size_t i = 0; i < looks->count; i++)
		if (is_first_of_thread(looks, i))
			settle_thread(looks, i);
}

static struct looked_at *find(const struct looks *looks, unsigned int id)
{
	for (size_t i = 0; i < looks->count; i++)
		if (looks->of[i]->vcpu.id == id)
			return looks->of[i];
	return NULL;
}

static void take_vcpu(struct looks *looks, const struct qmp_registers *seen, uint64_t time)
{
	struct looked_at *at = find(looks, seen->id);

	if (!at || at->runs || seen->halted)
		return;
	at->runs = true;
	if (at->untimed_count == UNTIMED_MAX)
		memmove(at->untimed, at->untimed + 1, --at->untimed_count * sizeof(at->untimed[0]));
	at->untimed[at->untimed_count++] = (struct look){
		.id = seen->id,
		.tid = at->vcpu.tid,
		.time = time,
		.registers = seen->registers,
		.smm = seen->smm,
	};
}

void looks_see(struct looks *looks, const char *text, uint64_t time)
{
	struct qmp_registers seen;

	for (size_t i = 0; i < looks->count; i++)
		looks->of[i]->runs = false;
	while (qmp_parse_registers(&text, &seen))
		take_vcpu(looks, &seen, time);
	settle_all(looks);
}

void looks_miss(struct looks *looks, uint64_t interval)
{
	for (size_t i = 0; i < looks->count; i++) {
		struct looked_at *at = looks->of[i];
		uint64_t used = read_used(at->time_fd);

		if (used > at->used)
			looks->missed += used - at->used;
		at->used = used > at->used ? used : at->used;
		at->untimed_count = 0;
	}
	looks->lost += looks->missed / interval;
	looks->missed %= interval;
}

int looks_add(struct looks *looks, const struct vmm_process *process, const struct vmm_vcpu *vcpu)
{
	struct looked_at *at = calloc(1, sizeof(*at));

	if (!at)
		return error_set(-ENOMEM, "no memory for a vCPU");
	*at = (struct looked_at){ .vcpu = *vcpu,
				  .time_fd = proc_open_thread_file(process->directory, vcpu->tid,
								   "schedstat") };
	if (at->time_fd < 0) {
		free(at);
		return error_set(-ESRCH, "thread %d of process %d has ended", vcpu->tid,
				 process->pid);
	}
	at->used = read_used(at->time_fd);
	assert(looks->count < VMM_VCPUS_MAX);
	looks->of[looks->count++] = at;
	return 0;
}

static void free_looked_at(struct looked_at *at)
{
	close(at->time_fd);
	free(at);
}

void looks_remove(struct looks *looks, unsigned int id)
{
	for (size_t i = 0; i < looks->count; i++)
		if (looks->of[i]->vcpu.id == id) {
			free_looked_at(looks->of[i]);
			looks->of[i] = looks->of[--looks->count];
			break;
		}
}

void looks_free(struct looks *looks)
{
	while (looks->count)
		free_looked_at(looks->of[--looks->count]);
}

size_t looks_take(struct looks *looks, struct look *taken, size_t max, uint64_t *lost)
{
	size_t count;

	for (count = 0; count < max && looks->queued; count++, looks->queued--) {
		taken[count] = looks->queue[looks->first];
		looks->first = (looks->first + 1) % LOOKS_QUEUE;
	}
	*lost = looks->lost;
	looks->lost = 0;
	return count;
}
