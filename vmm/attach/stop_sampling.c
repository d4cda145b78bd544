/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/attach/stop_sampling.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "shared/log.h"
#include "shared/thread_start.h"
#include "vmm/attach/poisson_times.h"
#include "vmm/attach/proc_files.h"
#include "vmm/attach/rights.h"
#include "vmm/attach/thread_stop.h"

/* Queued samples. */
#define QUEUE 256
/* ns after which a read is considered stuck, and the interval of that check. */
#define HANGS (100 * NS_PER_MS)
#define WATCH (200 * NS_PER_MS)
/* s that a running read may delay the end. */
#define END_MAX 2

struct sampled_vcpu {
	/* Owned by the sampling thread while busy. */
	struct vcpu_thread thread;
	int status_fd, times_fd;
	uint64_t ran;  /* ns of its CPU time already attributed to samples */
	uint64_t last; /* ns, CLOCK_MONOTONIC, of the last read */
	bool refused;  /* the reason was reported */

	/* With the lock. */
	bool busy;
	uint64_t next; /* ns, CLOCK_MONOTONIC, of the next read */
	uint64_t lost; /* not reported yet */
	struct attach_cpu cpu;
	struct sampled_vcpu *next_vcpu;
};

/* Result of a read. */
struct outcome {
	struct attach_stops stops;
	bool full; /* the queue has no room */
	bool sample, lost;
};

/* A thread that samples, or stands by in case another one's read gets stuck: the other process
 * determines how long a read takes. */
struct stopper {
	struct remote remote; /* owned by the thread, like GUARD and SAMPLE */
	struct stop_sampler *sampler;
	struct stopper *next;
	pthread_t thread;
	struct thread_check check; /* THREAD */

	/* With the lock. */
	uint64_t began; /* ns, CLOCK_MONOTONIC, of its read; 0: idle */
	struct sampled_vcpu
		*vcpu; /* being read; NULL if it was removed meanwhile: the thread frees it */

	struct stop_guard guard;
	struct stop_sample sample;
};

struct stop_sampler {
	struct vcpu_stop_target target;

	pthread_mutex_t lock;   /* protects what follows; not held during reads */
	pthread_cond_t changed; /* signals the active thread */
	pthread_cond_t ended;   /* signals standby threads */
	bool ending;
	struct poisson_times times;
	struct stopper *stoppers;   /* owned; at least one more than are stuck */
	struct stopper *turn;       /* the active one */
	struct sampled_vcpu *vcpus; /* owned */
	uint64_t rests_until;       /* ns, CLOCK_MONOTONIC */
	struct attach_stops stops;

	struct stop_sample
		*queue;           /* QUEUE of them; the consumer owns those between TAKEN and PUT */
	atomic_size_t put, taken; /* of the queue: written with the lock, and by the consumer */
};

static uint64_t now(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

/* The sampling threads */

/* The CPU time since the last sample of the running thread. The thread has just left its CPU, so
 * the kernel's sum is up to date. Without CONFIG_SCHED_INFO, it is the time since the last read. */
static uint64_t period_of(const struct stop_sampler *sampler, struct sampled_vcpu *vcpu,
			  uint64_t passed)
{
	struct thread_cpu_times times;
	uint64_t ran;

	if (!thread_cpu_times_read(vcpu->times_fd, &times))
		return poisson_times_period(&sampler->times, passed);
	ran = times.ran - vcpu->ran;
	vcpu->ran = times.ran;
	return poisson_times_period(&sampler->times, ran);
}

static void count_stop(struct attach_stops *stops, uint64_t stopped, uint64_t limit)
{
	if (!stopped)
		return;
	stops->count++;
	stops->total += stopped;
	stops->over += stopped > limit;
	if (stopped > stops->longest)
		stops->longest = stopped;
}

/* With the lock. NULL: the queue is full. */
static struct stop_sample *free_slot(struct stop_sampler *sampler)
{
	size_t put = atomic_load_explicit(&sampler->put, memory_order_relaxed);

	return put - atomic_load_explicit(&sampler->taken, memory_order_acquire) < QUEUE
		       ? &sampler->queue[put % QUEUE]
		       : NULL;
}

/* With the lock. */
static void put(struct stop_sampler *sampler, const struct stop_sample *sample,
		struct outcome *outcome)
{
	struct stop_sample *slot = free_slot(sampler);

	if (!slot) {
		outcome->lost = true;
		return;
	}
	*slot = *sample;
	atomic_fetch_add_explicit(&sampler->put, 1, memory_order_release);
}

/* Reported once, as permanent errors repeat; transient ones are not reported. */
static void report_refused(struct sampled_vcpu *vcpu, int error, const char *why)
{
	if (vcpu->refused || error == -EINTR || error == -ESRCH || error == -ETIME)
		return;
	log_warning("samples of vCPU %u are lost: %s", vcpu->thread.vcpu.id, why);
	vcpu->refused = true;
}

static const char *explain(int error)
{
	if (error == -ENODATA)
		return "its registers are hidden from the host, as with SEV-ES";
	if (error == -EADDRNOTAVAIL)
		return "its thread runs on a stack of the VMM's runtime, e.g. a goroutine's, "
		       "where system calls would be harmful; --backend bpf or perf makes none";
	return strerror(-error);
}

static int read_vcpu(struct stopper *stopper, struct sampled_vcpu *vcpu,
		     const struct thread_status *status, struct attach_stops *stops)
{
	const struct vcpu_stop_target *target = &stopper->sampler->target;
	struct stopped_vcpu *read = &stopper->sample.vcpu;
	/* Filters may be added while the VM runs. */
	uint64_t stopped;
	int error = vcpu_stop_check(target, &vcpu->thread, status, &stopped);

	count_stop(stops, stopped, target->limit);
	if (error) {
		report_refused(vcpu, error, error_message());
	} else {
		error = vcpu_stop_read(target, &vcpu->thread, &stopper->remote, read);
		count_stop(stops, read->stopped, target->limit);
		stops->abandoned += error == -ETIME;
		if (error)
			report_refused(vcpu, error, explain(error));
	}
	return error;
}

static int read_guarded(struct stopper *stopper, struct sampled_vcpu *vcpu,
			const struct thread_status *status, struct attach_stops *stops)
{
	int error = stop_guard_begin(&stopper->guard);

	if (error) {
		report_refused(vcpu, error, error_message());
		return error;
	}
	error = read_vcpu(stopper, vcpu, status, stops);
	stop_guard_end(&stopper->guard);
	return error;
}

/* Without the lock. A thread that only waited for a CPU since the last read has done nothing.
 * The period of a failed read is lost with it: it does not belong to the next one. */
static void sample_vcpu(struct stopper *stopper, struct sampled_vcpu *vcpu, struct outcome *outcome)
{
	uint64_t passed = stopper->began - vcpu->last;
	struct thread_status status;

	if (!thread_status_read(vcpu->status_fd, &status))
		return;
	vcpu->last = stopper->began;
	if (status.state != 'R') {
		outcome->stops.asleep++;
		return;
	}
	outcome->lost = outcome->full || read_guarded(stopper, vcpu, &status, &outcome->stops);
	stopper->sample.period = period_of(stopper->sampler, vcpu, passed);
	if (outcome->lost)
		return;
	stopper->sample.id = vcpu->thread.vcpu.id;
	stopper->sample.tid = vcpu->thread.vcpu.tid;
	outcome->sample = stopper->sample.period;
}

static void add_stops(struct attach_stops *sum, const struct attach_stops *stops)
{
	sum->count += stops->count;
	sum->total += stops->total;
	sum->over += stops->over;
	sum->abandoned += stops->abandoned;
	sum->asleep += stops->asleep;
	if (stops->longest > sum->longest)
		sum->longest = stops->longest;
}

/* With the lock. Limits the work to half of the time. Reads that are due meanwhile are skipped:
 * late, they would not be at random times. */
static void rest_until(struct stop_sampler *sampler, uint64_t time)
{
	sampler->rests_until = time;
	for (struct sampled_vcpu *vcpu = sampler->vcpus; vcpu; vcpu = vcpu->next_vcpu)
		if (!vcpu->busy && vcpu->next < time)
			vcpu->next = poisson_times_next(&sampler->times, vcpu->next, time);
}

/* With the lock. The next read is never due at once, so that others get the lock and the CPU. */
static void schedule(struct stopper *stopper, struct sampled_vcpu *vcpu, struct outcome *outcome)
{
	struct stop_sampler *sampler = stopper->sampler;
	uint64_t ended = now(),
		 rested = ended + poisson_times_rest(&sampler->times, outcome->stops.total);

	if (outcome->sample)
		put(sampler, &stopper->sample, outcome);
	vcpu->busy = false;
	vcpu->next = poisson_times_next(&sampler->times, vcpu->next, rested);
	vcpu->lost += outcome->lost;
	if (sampler->turn == stopper)
		rest_until(sampler, ended + (ended - stopper->began));
}

static void free_vcpu(struct sampled_vcpu *vcpu)
{
	if (vcpu->status_fd >= 0)
		close(vcpu->status_fd);
	if (vcpu->times_fd >= 0)
		close(vcpu->times_fd);
	free(vcpu);
}

/* With the lock, which is released meanwhile. */
static void sample_due(struct stopper *stopper, struct sampled_vcpu *vcpu)
{
	struct stop_sampler *sampler = stopper->sampler;
	struct outcome outcome = { .full = !free_slot(sampler) };

	stopper->began = now();
	stopper->vcpu = vcpu;
	vcpu->busy = true;
	vcpu->thread.cpu = vcpu->cpu;
	pthread_mutex_unlock(&sampler->lock);
	sample_vcpu(stopper, vcpu, &outcome);
	pthread_mutex_lock(&sampler->lock);
	add_stops(&sampler->stops, &outcome.stops);
	if (stopper->vcpu)
		schedule(stopper, vcpu, &outcome);
	else
		free_vcpu(vcpu);
	stopper->vcpu = NULL;
	stopper->began = 0;
	if (sampler->turn != stopper)
		pthread_cond_signal(&sampler->changed); /* a vCPU may be due */
}

static struct sampled_vcpu *find_due(const struct stop_sampler *sampler)
{
	struct sampled_vcpu *due = NULL;

	for (struct sampled_vcpu *vcpu = sampler->vcpus; vcpu; vcpu = vcpu->next_vcpu)
		if (!vcpu->busy && (!due || vcpu->next < due->next))
			due = vcpu;
	return due;
}

static uint64_t next_due(const struct stop_sampler *sampler, const struct sampled_vcpu *due)
{
	return due->next > sampler->rests_until ? due->next : sampler->rests_until;
}

/* With the lock, which is released meanwhile; may return early. */
static void wait_until(struct stop_sampler *sampler, pthread_cond_t *what, uint64_t time)
{
	const struct timespec until = { .tv_sec = (time_t)(time / NS_PER_S),
					.tv_nsec = (long)(time % NS_PER_S) };

	pthread_cond_timedwait(what, &sampler->lock, &until);
}

/* While a thread is stopped nothing is more urgent. Works without the right, too. */
static void raise_priority(void)
{
	const struct sched_param parameters = { .sched_priority = 1 };

	if (pthread_setschedparam(pthread_self(), SCHED_FIFO, &parameters))
		log_debug(
			"the thread that stops vCPUs has no realtime priority: stops may take longer");
}

/* A VMM that confines its vCPU threads also confines its first thread. True if unknown. */
static bool has_filters(const struct vmm_process *process)
{
	struct thread_status status = { .filters = 1 };
	int fd = proc_open_thread_file(process->directory, process->pid, "status");

	if (fd < 0)
		return true;
	thread_status_read(fd, &status);
	close(fd);
	return status.filters || status.seccomp != SECCOMP_MODE_DISABLED;
}

static void prepare(const struct stopper *stopper)
{
	const struct vcpu_stop_target *target = &stopper->sampler->target;
	char descriptors[32];
	/* The vCPU's descriptor is checked in the process's descriptors, which its own user may
	 * inspect. */
	const struct rights_file file = { .path = descriptors, .mode = R_OK };

	raise_priority();
	/* Without the priority: this thread inherits its creator's timer slack. */
	prctl(PR_SET_TIMERSLACK, 1);
	snprintf(descriptors, sizeof(descriptors), "/proc/%d/fd", target->process->pid);
	if (rights_keep(&file, 1, !target->filters && has_filters(target->process)))
		log_warning("%s", error_message());
}

/* With the lock. */
static void take_turn(struct stopper *stopper)
{
	struct stop_sampler *sampler = stopper->sampler;
	struct sampled_vcpu *due = find_due(sampler);

	THREAD_CHECK(&stopper->check);
	if (!due)
		pthread_cond_wait(&sampler->changed, &sampler->lock);
	else if (next_due(sampler, due) > now())
		wait_until(sampler, &sampler->changed, next_due(sampler, due));
	else
		sample_due(stopper, due);
}

static int start_stopper(struct stop_sampler *sampler);

static bool has_standby(const struct stop_sampler *sampler)
{
	for (const struct stopper *stopper = sampler->stoppers; stopper; stopper = stopper->next)
		if (stopper != sampler->turn && !stopper->began)
			return true;
	return false;
}

/* With the lock. A thread that takes over starts the next standby thread, which inherits its
 * rights. */
static void stand_by(struct stopper *stopper)
{
	struct stop_sampler *sampler = stopper->sampler;

	THREAD_CHECK(&stopper->check);
	wait_until(sampler, &sampler->ended, now() + WATCH);
	if (sampler->ending || !sampler->turn->began || now() - sampler->turn->began < HANGS)
		return;
	sampler->turn = stopper;
	if (!has_standby(sampler) && start_stopper(sampler))
		log_warning("%s", error_message());
}

static void *run(void *context)
{
	struct stopper *stopper = context;
	struct stop_sampler *sampler = stopper->sampler;

	prepare(stopper);
	pthread_mutex_lock(&sampler->lock);
	while (!sampler->ending)
		if (sampler->turn == stopper)
			take_turn(stopper);
		else
			stand_by(stopper);
	pthread_mutex_unlock(&sampler->lock);
	stop_guard_close(&stopper->guard);
	return NULL;
}

/* With the lock, or before there is any thread. */
static int start_stopper(struct stop_sampler *sampler)
{
	struct stopper *stopper = calloc(1, sizeof(*stopper));
	int error;

	if (!stopper)
		return error_set(-ENOMEM, "no memory for sampling vCPUs");
	stopper->sampler = sampler;
	error = thread_start(&stopper->thread, "stops", run, stopper);
	if (error) {
		free(stopper);
		return error_set(error, "cannot start the thread that stops vCPUs: %s",
				 strerror(-error));
	}
	stopper->next = sampler->stoppers;
	sampler->stoppers = stopper;
	return 0;
}

/* The consumer */

void stop_sampler_set_cpu(struct stop_sampler *sampler, unsigned int id,
			  const struct attach_cpu *cpu)
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
	struct thread_cpu_times times;

	if (!added)
		return error_set(-ENOMEM, "no memory for a vCPU's thread");
	added->thread = (struct vcpu_thread){ .vcpu = *vcpu, .fd = -1 };
	added->status_fd = proc_open_thread_file(process->directory, vcpu->tid, "status");
	added->times_fd = proc_open_thread_file(process->directory, vcpu->tid, "schedstat");
	if (added->status_fd < 0) {
		free_vcpu(added);
		return error_set(-ESRCH, "thread %d has ended", vcpu->tid);
	}
	if (thread_cpu_times_read(added->times_fd, &times))
		added->ran = times.ran;
	added->last = now();
	pthread_mutex_lock(&sampler->lock);
	added->next = poisson_times_next(&sampler->times, added->last, added->last);
	added->next_vcpu = sampler->vcpus;
	sampler->vcpus = added;
	pthread_cond_signal(&sampler->changed);
	pthread_mutex_unlock(&sampler->lock);
	return 0;
}

/* With the lock. True if the vCPU is being read. */
static bool leave_to_stopper(struct stop_sampler *sampler, const struct sampled_vcpu *vcpu)
{
	for (struct stopper *stopper = sampler->stoppers; stopper; stopper = stopper->next)
		if (stopper->vcpu == vcpu) {
			stopper->vcpu = NULL;
			return true;
		}
	return false;
}

void stop_sampler_remove(struct stop_sampler *sampler, unsigned int id)
{
	struct sampled_vcpu **link = &sampler->vcpus, *removed;

	pthread_mutex_lock(&sampler->lock);
	while (*link && (*link)->thread.vcpu.id != id)
		link = &(*link)->next_vcpu;
	removed = *link;
	if (removed)
		*link = removed->next_vcpu;
	if (removed && leave_to_stopper(sampler, removed))
		removed = NULL;
	pthread_mutex_unlock(&sampler->lock);
	if (removed)
		free_vcpu(removed);
}

struct stop_sample *stop_sampler_next(struct stop_sampler *sampler)
{
	size_t taken = atomic_load_explicit(&sampler->taken, memory_order_relaxed);

	return taken != atomic_load_explicit(&sampler->put, memory_order_acquire)
		       ? &sampler->queue[taken % QUEUE]
		       : NULL;
}

void stop_sampler_release(struct stop_sampler *sampler)
{
	atomic_fetch_add_explicit(&sampler->taken, 1, memory_order_release);
}

void stop_sampler_report_lost(struct stop_sampler *sampler,
			      void (*lost)(void *context, unsigned int id, uint64_t count),
			      void *context)
{
	pthread_mutex_lock(&sampler->lock);
	for (struct sampled_vcpu *vcpu = sampler->vcpus; vcpu; vcpu = vcpu->next_vcpu) {
		if (vcpu->lost)
			lost(context, vcpu->thread.vcpu.id, vcpu->lost);
		vcpu->lost = 0;
	}
	pthread_mutex_unlock(&sampler->lock);
}

void stop_sampler_statistics(struct stop_sampler *sampler, struct attach_stops *stops)
{
	pthread_mutex_lock(&sampler->lock);
	*stops = sampler->stops;
	pthread_mutex_unlock(&sampler->lock);
	stops->limit = sampler->target.limit;
}

static void free_sampler(struct stop_sampler *sampler)
{
	while (sampler->vcpus) {
		struct sampled_vcpu *removed = sampler->vcpus;

		sampler->vcpus = removed->next_vcpu;
		free_vcpu(removed);
	}
	while (sampler->stoppers) {
		struct stopper *removed = sampler->stoppers;

		sampler->stoppers = removed->next;
		free(removed);
	}
	pthread_cond_destroy(&sampler->changed);
	pthread_cond_destroy(&sampler->ended);
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
	pthread_cond_init(&sampler->ended, &monotonic);
	pthread_condattr_destroy(&monotonic);
}

/* One active thread, one on standby. */
static int start_stoppers(struct stop_sampler *sampler)
{
	int error;

	sampler->queue = calloc(QUEUE, sizeof(sampler->queue[0]));
	if (!sampler->queue)
		return error_set(-ENOMEM, "no memory for sampling vCPUs");
	pthread_mutex_lock(&sampler->lock);
	error = start_stopper(sampler);
	sampler->turn = sampler->stoppers;
	if (!error)
		error = start_stopper(sampler);
	pthread_mutex_unlock(&sampler->lock);
	return error;
}

int stop_sampler_start(struct stop_sampler **result, const struct vcpu_stop_target *target,
		       unsigned int frequency)
{
	struct stop_sampler *sampler = calloc(1, sizeof(*sampler));
	int error;

	if (!sampler)
		return error_set(-ENOMEM, "no memory for sampling vCPUs");
	sampler->target = *target;
	sampler->times =
		(struct poisson_times){ .interval = NS_PER_S / frequency, .random = now() | 1 };
	make_lock(sampler);
	error = start_stoppers(sampler);
	if (error)
		stop_sampler_end(sampler);
	else
		*result = sampler;
	return error;
}

/* False: a thread is still stuck. */
static bool join_all(struct stop_sampler *sampler)
{
	struct timespec until;
	bool joined = true;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += END_MAX;
	for (struct stopper *stopper = sampler->stoppers; stopper; stopper = stopper->next)
		if (pthread_clockjoin_np(stopper->thread, NULL, CLOCK_MONOTONIC, &until)) {
			pthread_detach(stopper->thread);
			joined = false;
		}
	return joined;
}

bool stop_sampler_end(struct stop_sampler *sampler)
{
	if (!sampler)
		return true;
	pthread_mutex_lock(&sampler->lock);
	sampler->ending = true;
	pthread_cond_broadcast(&sampler->changed);
	pthread_cond_broadcast(&sampler->ended);
	pthread_mutex_unlock(&sampler->lock);
	if (join_all(sampler)) {
		free_sampler(sampler);
		return true;
	}
	log_warning("a vCPU of process %d has not stopped for %u s, as it is blocked in "
		    "the kernel: it continues when it is unblocked, or when kvmscope ends",
		    sampler->target.process->pid, END_MAX);
	return false;
}
