// SPDX-License-Identifier: Apache-2.0
#include "vmm/attach/stop_sampler.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/attach/rights.h"

#define NANOSECONDS 1000000000ull
/* Samples that wait for the taker. */
#define QUEUE 256
/* A thread is let alone for so many times as long as it was stopped: the guest has to get somewhere. */
#define REST 4
/* A look stands for at most so many intervals: after a longer time nobody knows what was in it. */
#define INTERVALS_MAX 10
/* s that a look may take to end when sampling does. */
#define END_MAX 2

struct sampled_vcpu {
	/* While it is looked at, the thread's alone. */
	struct vcpu_thread thread;
	int status_fd, times_fd;
	struct thread_times times; /* at the last look */
	uint64_t last;             /* ns, CLOCK_MONOTONIC: look */
	bool refused;              /* it was said why */

	/* With the lock. */
	uint64_t next; /* ns, CLOCK_MONOTONIC: look */
	uint64_t lost; /* that are not told yet */
	struct attach_cpu cpu;
	struct sampled_vcpu *next_vcpu;
};

/* What came of a look. */
struct outcome {
	struct stop_sample *seen; /* NULL: no sample */
	struct attach_stops stops;
	bool lost;
};

struct stop_sampler {
	struct remote remote; /* the thread's */
	struct vcpu_stop_target target;
	uint64_t interval; /* ns */
	uint64_t random;

	pthread_t thread;
	atomic_bool ending;
	pthread_mutex_t lock; /* of what follows; not held while something is looked at */
	pthread_cond_t changed;
	struct sampled_vcpu *vcpus; /* owned */
	struct sampled_vcpu
		*looked_at;   /* by the thread; whoever removes it sets NULL, and the thread frees it */
	uint64_t rests_until; /* ns, CLOCK_MONOTONIC */
	struct attach_stops stops;

	struct stop_sample *queue; /* QUEUE of them */
	atomic_size_t put, taken;  /* of the queue: the thread's, the taker's */
};

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * NANOSECONDS + (uint64_t)time.tv_nsec;
}

/* Marsaglia's xorshift64. */
static uint64_t next_interval(struct stop_sampler *sampler)
{
	sampler->random ^= sampler->random << 13;
	sampler->random ^= sampler->random >> 7;
	sampler->random ^= sampler->random << 17;
	return sampler->interval / 2 + sampler->random % sampler->interval;
}

/* The thread that stops others. */

/* What a look at this moment stands for, of the time since the last. */
static uint64_t period_of(const struct stop_sampler *sampler, struct sampled_vcpu *vcpu, uint64_t time)
{
	uint64_t passed = time - vcpu->last, most = INTERVALS_MAX * sampler->interval;
	struct thread_times times = vcpu->times;
	uint64_t ran, waited;

	vcpu->last = time;
	if (passed > most)
		passed = most;
	if (!thread_times_read(vcpu->times_fd, &times))
		return passed;
	ran = times.ran - vcpu->times.ran;
	waited = times.waited - vcpu->times.waited;
	vcpu->times = times;
	return ran ? (uint64_t)((double)passed * (double)ran / (double)(ran + waited)) : passed;
}

static void count_stop(struct attach_stops *stops, uint64_t stopped)
{
	if (!stopped)
		return;
	stops->count++;
	stops->total += stopped;
	if (stopped > stops->longest)
		stops->longest = stopped;
}

/* NULL: the taker is behind. */
static struct stop_sample *next_place(struct stop_sampler *sampler)
{
	size_t put = atomic_load_explicit(&sampler->put, memory_order_relaxed);

	return put - atomic_load_explicit(&sampler->taken, memory_order_acquire) < QUEUE
		       ? &sampler->queue[put % QUEUE]
		       : NULL;
}

/* Once: it will be the same the next time. What is but a moment's is not said. */
static void tell_refused(struct sampled_vcpu *vcpu, int error, const char *why)
{
	if (vcpu->refused || error == -EINTR || error == -ESRCH || error == -ETIME)
		return;
	log_warning("samples of vCPU %u are lost: %s", vcpu->thread.vcpu.id, why);
	vcpu->refused = true;
}

static const char *explain(int error)
{
	return error == -ENODATA ? "its registers are hidden from the host, as SEV-ES does it"
				 : strerror(-error);
}

static int look_at(struct stop_sampler *sampler, struct sampled_vcpu *vcpu,
		   const struct thread_status *status, struct stop_sample *seen, struct attach_stops *stops)
{
	/* Filters may come while the VM runs. */
	uint64_t stopped;
	int error = vcpu_stop_check(&sampler->target, &vcpu->thread, status, &stopped);

	count_stop(stops, stopped);
	if (error) {
		tell_refused(vcpu, error, error_message());
	} else {
		error = vcpu_stop_look(&sampler->target, &vcpu->thread, &sampler->remote, &seen->look);
		count_stop(stops, seen->look.stopped);
		stops->abandoned += error == -ETIME;
		if (error)
			tell_refused(vcpu, error, explain(error));
	}
	return error;
}

/* At TIME, without the lock. */
static void look(struct stop_sampler *sampler, struct sampled_vcpu *vcpu, uint64_t time,
		 struct outcome *outcome)
{
	struct thread_status status;
	struct stop_sample *seen = next_place(sampler);
	uint64_t period;

	if (!thread_status_read(vcpu->status_fd, &status))
		return;
	period = period_of(sampler, vcpu, time);
	if (status.state != 'R') {
		outcome->stops.asleep++;
		return;
	}
	if (!seen || look_at(sampler, vcpu, &status, seen, &outcome->stops)) {
		outcome->lost = true;
		return;
	}
	seen->period = period;
	seen->id = vcpu->thread.vcpu.id;
	seen->tid = vcpu->thread.vcpu.tid;
	outcome->seen = seen;
}

static void add_stops(struct attach_stops *sum, const struct attach_stops *stops)
{
	sum->count += stops->count;
	sum->total += stops->total;
	sum->abandoned += stops->abandoned;
	sum->asleep += stops->asleep;
	if (stops->longest > sum->longest)
		sum->longest = stops->longest;
}

/* With the lock. The next look is never due at once, so the lock and the processor are there for others. */
static void settle(struct stop_sampler *sampler, struct sampled_vcpu *vcpu, uint64_t began,
		   const struct outcome *outcome)
{
	uint64_t ended = now(), rested = ended + REST * outcome->stops.total;

	vcpu->next = began + next_interval(sampler);
	if (vcpu->next < rested)
		vcpu->next = rested;
	vcpu->lost += outcome->lost;
	if (outcome->seen)
		atomic_fetch_add_explicit(&sampler->put, 1, memory_order_release);
	/* However many vCPUs there are, it is at work for half of the time at most. */
	sampler->rests_until = ended + (ended - began);
}

static void free_vcpu(struct sampled_vcpu *vcpu)
{
	if (vcpu->status_fd >= 0)
		close(vcpu->status_fd);
	if (vcpu->times_fd >= 0)
		close(vcpu->times_fd);
	free(vcpu);
}

/* With the lock, which is not held meanwhile: nobody knows how long the other process lets a look take. */
static void take_look(struct stop_sampler *sampler, struct sampled_vcpu *vcpu)
{
	struct outcome outcome = { 0 };
	uint64_t began = now();

	sampler->looked_at = vcpu;
	vcpu->thread.cpu = vcpu->cpu;
	pthread_mutex_unlock(&sampler->lock);
	look(sampler, vcpu, began, &outcome);
	pthread_mutex_lock(&sampler->lock);
	add_stops(&sampler->stops, &outcome.stops);
	if (sampler->looked_at)
		settle(sampler, vcpu, began, &outcome);
	else
		free_vcpu(vcpu);
	sampler->looked_at = NULL;
}

static struct sampled_vcpu *find_due(const struct stop_sampler *sampler)
{
	struct sampled_vcpu *due = sampler->vcpus;

	for (struct sampled_vcpu *vcpu = due; vcpu; vcpu = vcpu->next_vcpu)
		if (vcpu->next < due->next)
			due = vcpu;
	return due;
}

static uint64_t next_look(const struct stop_sampler *sampler, const struct sampled_vcpu *due)
{
	return due->next > sampler->rests_until ? due->next : sampler->rests_until;
}

/* With the lock, which is not held meanwhile; may come back before it is TIME. */
static void wait_until(struct stop_sampler *sampler, uint64_t time)
{
	const struct timespec until = { .tv_sec = (time_t)(time / NANOSECONDS),
					.tv_nsec = (long)(time % NANOSECONDS) };

	pthread_cond_timedwait(&sampler->changed, &sampler->lock, &until);
}

/* While a thread is stopped nothing else matters; who may not have a priority does without. */
static void raise_priority(void)
{
	const struct sched_param parameters = { .sched_priority = 1 };

	if (pthread_setschedparam(pthread_self(), SCHED_FIFO, &parameters))
		log_debug("the thread that stops vCPUs has no realtime priority: stops may take longer");
}

/* A VMM that confines its vCPUs' threads confines its first one, too. If that can not be told: it may. */
static bool has_filters(const struct vmm_process *process)
{
	struct thread_status status = { .filters = 1 };
	int fd = thread_file_open(process, process->pid, "status");

	if (fd < 0)
		return true;
	thread_status_read(fd, &status);
	close(fd);
	return status.filters || status.seccomp != SECCOMP_MODE_DISABLED;
}

static void *run(void *context)
{
	struct stop_sampler *sampler = context;
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
	pthread_setname_np(pthread_self(), "stops");
	raise_priority();
	if (rights_keep(NULL, 0, has_filters(sampler->target.process)))
		log_warning("%s", error_message());
	pthread_mutex_lock(&sampler->lock);
	while (!atomic_load(&sampler->ending)) {
		struct sampled_vcpu *due = find_due(sampler);

		if (!due)
			pthread_cond_wait(&sampler->changed, &sampler->lock);
		else if (next_look(sampler, due) > now())
			wait_until(sampler, next_look(sampler, due));
		else
			take_look(sampler, due);
	}
	pthread_mutex_unlock(&sampler->lock);
	return NULL;
}

/* The taker. */

void stop_sampler_see_tasks(struct stop_sampler *sampler, unsigned int id, const struct attach_cpu *cpu)
{
	pthread_mutex_lock(&sampler->lock);
	for (struct sampled_vcpu *vcpu = sampler->vcpus; vcpu; vcpu = vcpu->next_vcpu)
		if (vcpu->thread.vcpu.id == id)
			vcpu->cpu = *cpu;
	pthread_mutex_unlock(&sampler->lock);
}

int stop_sampler_add(struct stop_sampler *sampler, const struct vmm_vcpu *vcpu)
{
	const struct vmm_process *process = sampler->target.process;
	struct sampled_vcpu *added = calloc(1, sizeof(*added));

	if (!added)
		return error_set(-ENOMEM, "no memory for a vCPU's thread");
	added->thread = (struct vcpu_thread){ .vcpu = *vcpu, .fd = -1 };
	added->status_fd = thread_file_open(process, vcpu->tid, "status");
	added->times_fd = thread_file_open(process, vcpu->tid, "schedstat");
	if (added->status_fd < 0) {
		free_vcpu(added);
		return error_set(-ESRCH, "thread %d has ended", vcpu->tid);
	}
	thread_times_read(added->times_fd, &added->times);
	added->last = now();
	pthread_mutex_lock(&sampler->lock);
	added->next = added->last + next_interval(sampler);
	added->next_vcpu = sampler->vcpus;
	sampler->vcpus = added;
	pthread_cond_signal(&sampler->changed);
	pthread_mutex_unlock(&sampler->lock);
	return 0;
}

void stop_sampler_remove(struct stop_sampler *sampler, unsigned int id)
{
	struct sampled_vcpu **link = &sampler->vcpus, *gone;

	pthread_mutex_lock(&sampler->lock);
	while (*link && (*link)->thread.vcpu.id != id)
		link = &(*link)->next_vcpu;
	gone = *link;
	if (gone)
		*link = gone->next_vcpu;
	if (gone && gone == sampler->looked_at)
		sampler->looked_at = gone = NULL;
	pthread_mutex_unlock(&sampler->lock);
	if (gone)
		free_vcpu(gone);
}

struct stop_sample *stop_sampler_next(struct stop_sampler *sampler)
{
	size_t taken = atomic_load_explicit(&sampler->taken, memory_order_relaxed);

	return taken != atomic_load_explicit(&sampler->put, memory_order_acquire)
		       ? &sampler->queue[taken % QUEUE]
		       : NULL;
}

void stop_sampler_taken(struct stop_sampler *sampler)
{
	atomic_fetch_add_explicit(&sampler->taken, 1, memory_order_release);
}

void stop_sampler_lost(struct stop_sampler *sampler,
		       void (*lost)(void *context, unsigned int id, uint64_t count), void *context)
{
	pthread_mutex_lock(&sampler->lock);
	for (struct sampled_vcpu *vcpu = sampler->vcpus; vcpu; vcpu = vcpu->next_vcpu) {
		if (vcpu->lost)
			lost(context, vcpu->thread.vcpu.id, vcpu->lost);
		vcpu->lost = 0;
	}
	pthread_mutex_unlock(&sampler->lock);
}

void stop_sampler_count(struct stop_sampler *sampler, struct attach_stops *stops)
{
	pthread_mutex_lock(&sampler->lock);
	*stops = sampler->stops;
	pthread_mutex_unlock(&sampler->lock);
	stops->limit = sampler->target.limit;
}

static void free_sampler(struct stop_sampler *sampler)
{
	while (sampler->vcpus) {
		struct sampled_vcpu *gone = sampler->vcpus;

		sampler->vcpus = gone->next_vcpu;
		free_vcpu(gone);
	}
	pthread_cond_destroy(&sampler->changed);
	pthread_mutex_destroy(&sampler->lock);
	free(sampler->queue);
	free(sampler);
}

static void make_lock(struct stop_sampler *sampler)
{
	pthread_condattr_t monotonic;

	pthread_mutex_init(&sampler->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&sampler->changed, &monotonic);
	pthread_condattr_destroy(&monotonic);
}

static int start_thread(struct stop_sampler *sampler)
{
	int error;

	sampler->queue = calloc(QUEUE, sizeof(sampler->queue[0]));
	if (!sampler->queue)
		return error_set(-ENOMEM, "no memory for looks at vCPUs");
	error = -pthread_create(&sampler->thread, NULL, run, sampler);
	return error ? error_set(error, "can not start the thread that stops vCPUs: %s", strerror(-error))
		     : 0;
}

int stop_sampler_start(struct stop_sampler **result, const struct vcpu_stop_target *target,
		       unsigned int frequency)
{
	struct stop_sampler *sampler = calloc(1, sizeof(*sampler));
	int error;

	if (!sampler)
		return error_set(-ENOMEM, "no memory for looks at vCPUs");
	sampler->target = *target;
	sampler->interval = NANOSECONDS / frequency;
	sampler->random = now() | 1;
	make_lock(sampler);
	error = start_thread(sampler);
	if (error)
		free_sampler(sampler);
	else
		*result = sampler;
	return error;
}

/* Whatever it waits for. False: it waits still. */
static bool join(struct stop_sampler *sampler)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += END_MAX;
	return !pthread_clockjoin_np(sampler->thread, NULL, CLOCK_MONOTONIC, &until);
}

bool stop_sampler_end(struct stop_sampler *sampler)
{
	if (!sampler)
		return true;
	pthread_mutex_lock(&sampler->lock);
	atomic_store(&sampler->ending, true);
	pthread_cond_signal(&sampler->changed);
	pthread_mutex_unlock(&sampler->lock);
	if (join(sampler)) {
		free_sampler(sampler);
		return true;
	}
	log_warning(
		"a vCPU of process %d was asked to stop %u s ago and waits for something in the kernel: it "
		"goes on when it has that, or when kvmscope ends",
		sampler->target.process->pid, END_MAX);
	pthread_detach(sampler->thread);
	return false;
}
