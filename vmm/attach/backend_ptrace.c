// SPDX-License-Identifier: Apache-2.0
/*
 * Stops the thread of each vCPU for a moment, now and then, and has it read its vCPU's registers
 * (vcpu_stop.h). Works with every KVM and every VMM that may be traced.
 *
 *	thread "stops": looks --queue--> attach thread: drain()
 *
 * When to look is told by the host's clock, at intervals between half and one and a half of what was asked
 *for, by chance, so that no rhythm of the guest is met always in the same place. A thread that sleeps at that
 *moment is not stopped: it uses no CPU time, which is what samples are weighted by. One that waits for a
 *processor can not be told from one that runs: the time until the last look counts by the part of it that the
 *thread ran.
 */
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/attach/backend.h"
#include "vmm/attach/vcpu_stop.h"

#define NANOSECONDS 1000000000ull
/* Looks that wait for the attach thread. */
#define QUEUE 256
/* A thread is let alone for so many times as long as it was stopped: the guest has to get somewhere. */
#define REST 4
/* A look stands for at most so many intervals: after a longer time nobody knows what was in it. */
#define INTERVALS_MAX 10

struct ptrace_vcpu {
	struct vcpu_thread thread;
	int status_fd, times_fd;
	struct thread_times times; /* at the last look */
	uint64_t last, next;       /* ns, CLOCK_MONOTONIC: looks */
	uint64_t lost;             /* that are not told yet */
	bool refused;              /* it was said why */
	struct ptrace_vcpu *next_vcpu;
};

struct seen {
	struct vcpu_look look;
	uint64_t period; /* ns */
	unsigned int id;
	pid_t tid;
};

struct attach_source {
	struct remote remote; /* the thread's */
	const struct attach_target *target;
	struct vcpu_stop_target stop;
	uint64_t interval; /* ns */
	uint64_t random;

	pthread_t thread;
	bool started;
	pthread_mutex_t lock; /* of what follows */
	pthread_cond_t changed;
	bool ending;
	struct ptrace_vcpu *vcpus; /* owned */
	struct attach_stops stops;

	struct seen *queue;       /* QUEUE of them */
	atomic_size_t put, taken; /* looks: the thread's, the attach thread's */
};

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * NANOSECONDS + (uint64_t)time.tv_nsec;
}

/* Marsaglia's xorshift64. */
static uint64_t next_interval(struct attach_source *source)
{
	source->random ^= source->random << 13;
	source->random ^= source->random >> 7;
	source->random ^= source->random << 17;
	return source->interval / 2 + source->random % source->interval;
}

/* The thread that stops others. */

/* What a look at this moment stands for, of the time since the last. */
static uint64_t period_of(const struct attach_source *source, struct ptrace_vcpu *vcpu, uint64_t time)
{
	uint64_t passed = time - vcpu->last, most = INTERVALS_MAX * source->interval;
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

/* NULL: the attach thread is behind. */
static struct seen *next_place(struct attach_source *source)
{
	size_t put = atomic_load_explicit(&source->put, memory_order_relaxed);

	return put - atomic_load_explicit(&source->taken, memory_order_acquire) < QUEUE
		       ? &source->queue[put % QUEUE]
		       : NULL;
}

static void rest(struct ptrace_vcpu *vcpu, uint64_t time)
{
	if (vcpu->next < now() + time)
		vcpu->next = now() + time;
}

/* Once: it will be the same the next time. What is but a moment's is not said. */
static void tell_refused(struct ptrace_vcpu *vcpu, int error, const char *why)
{
	if (vcpu->refused || error == -EINTR || error == -ESRCH || error == -ETIME)
		return;
	log_warning("samples of vCPU %u are lost: %s", vcpu->thread.vcpu.id, why);
	vcpu->refused = true;
}

static int look_at(struct attach_source *source, struct ptrace_vcpu *vcpu, const struct thread_status *status,
		   struct seen *seen)
{
	/* Filters may come while the VM runs. */
	int error = vcpu_stop_check(&source->stop, &vcpu->thread, status);

	if (error) {
		tell_refused(vcpu, error, error_message());
	} else {
		error = vcpu_stop_look(&source->stop, &vcpu->thread, &source->remote, &seen->look);
		count_stop(&source->stops, seen->look.stopped);
		source->stops.abandoned += error == -ETIME;
		rest(vcpu, REST * seen->look.stopped);
		if (error)
			tell_refused(vcpu, error, strerror(-error));
	}
	return error;
}

static void look(struct attach_source *source, struct ptrace_vcpu *vcpu)
{
	struct thread_status status;
	uint64_t time = now(), period;
	struct seen *seen = next_place(source);

	vcpu->next = time + next_interval(source);
	if (!thread_status_read(vcpu->status_fd, &status))
		return;
	period = period_of(source, vcpu, time);
	if (status.state != 'R') {
		source->stops.asleep++;
		return;
	}
	if (!seen || look_at(source, vcpu, &status, seen)) {
		vcpu->lost++;
		return;
	}
	seen->period = period;
	seen->id = vcpu->thread.vcpu.id;
	seen->tid = vcpu->thread.vcpu.tid;
	atomic_fetch_add_explicit(&source->put, 1, memory_order_release);
}

static struct ptrace_vcpu *find_due(const struct attach_source *source)
{
	struct ptrace_vcpu *due = source->vcpus;

	for (struct ptrace_vcpu *vcpu = due; vcpu; vcpu = vcpu->next_vcpu)
		if (vcpu->next < due->next)
			due = vcpu;
	return due;
}

/* With the lock, which is not held meanwhile; may come back before it is TIME. */
static void wait_until(struct attach_source *source, uint64_t time)
{
	const struct timespec until = { .tv_sec = (time_t)(time / NANOSECONDS),
					.tv_nsec = (long)(time % NANOSECONDS) };

	pthread_cond_timedwait(&source->changed, &source->lock, &until);
}

/* While a thread is stopped nothing else matters; who may not have a priority does without. */
static void raise_priority(void)
{
	const struct sched_param parameters = { .sched_priority = 1 };

	if (pthread_setschedparam(pthread_self(), SCHED_FIFO, &parameters))
		log_debug("the thread that stops vCPUs has no realtime priority: stops may take longer");
}

static void *run(void *context)
{
	struct attach_source *source = context;
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
	pthread_setname_np(pthread_self(), "stops");
	raise_priority();
	pthread_mutex_lock(&source->lock);
	while (!source->ending) {
		struct ptrace_vcpu *due = find_due(source);

		if (!due)
			pthread_cond_wait(&source->changed, &source->lock);
		else if (due->next > now())
			wait_until(source, due->next);
		else
			look(source, due);
	}
	pthread_mutex_unlock(&source->lock);
	return NULL;
}

/* The attach thread. */

static void give(const struct attach_source *source, struct seen *seen)
{
	const struct attach_sink *sink = &source->target->sink;
	struct vcpu_look *look = &seen->look;
	bool guest = look->place == VCPU_IN_GUEST;
	const struct attach_stack stack = { .registers = look->registers,
					    .bytes = look->stack_size ? look->stack : NULL,
					    .size = look->stack_size };
	struct guest_callchain chain = { .addresses = look->addresses,
					 .capacity = SAMPLE_CALLCHAIN_MAX,
					 .kernel_depth = look->kernel_depth,
					 .user_depth = look->user_depth,
					 .flags = look->chain_flags };
	struct sample sample = {
		.time = look->time,
		.period = seen->period,
		.rip = look->registers.rip,
		.rsp = look->registers.rsp,
		.rbp = look->registers.rbp,
		.rflags = look->registers.rflags,
		.cr3 = look->registers.paging.cr3,
		.vcpu = seen->id,
		.host_tid = (uint32_t)seen->tid,
		.cost = (uint32_t)look->stopped,
		.cpl = look->registers.cpl,
		.flags = guest ? 0 : SAMPLE_HOST,
	};

	sink->sample(sink->context, &sample, &chain, guest ? &stack : NULL);
}

static void tell_lost(struct attach_source *source)
{
	const struct attach_sink *sink = &source->target->sink;

	pthread_mutex_lock(&source->lock);
	for (struct ptrace_vcpu *vcpu = source->vcpus; vcpu; vcpu = vcpu->next_vcpu) {
		if (vcpu->lost)
			sink->lost(sink->context, vcpu->thread.vcpu.id, vcpu->lost);
		vcpu->lost = 0;
	}
	pthread_mutex_unlock(&source->lock);
}

static void drain(struct attach_source *source)
{
	size_t taken = atomic_load_explicit(&source->taken, memory_order_relaxed);

	while (taken != atomic_load_explicit(&source->put, memory_order_acquire)) {
		give(source, &source->queue[taken % QUEUE]);
		atomic_store_explicit(&source->taken, ++taken, memory_order_release);
	}
	tell_lost(source);
}

static void free_vcpu(struct ptrace_vcpu *vcpu)
{
	if (vcpu->status_fd >= 0)
		close(vcpu->status_fd);
	if (vcpu->times_fd >= 0)
		close(vcpu->times_fd);
	free(vcpu);
}

static int add_vcpu(struct attach_source *source, const struct vmm_vcpu *vcpu)
{
	const struct vmm_process *process = source->target->process;
	struct ptrace_vcpu *added = calloc(1, sizeof(*added));

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
	pthread_mutex_lock(&source->lock);
	added->next = added->last + next_interval(source);
	added->next_vcpu = source->vcpus;
	source->vcpus = added;
	pthread_cond_signal(&source->changed);
	pthread_mutex_unlock(&source->lock);
	return 0;
}

static void remove_vcpu(struct attach_source *source, unsigned int id)
{
	struct ptrace_vcpu **link = &source->vcpus, *gone;

	drain(source);
	pthread_mutex_lock(&source->lock);
	while (*link && (*link)->thread.vcpu.id != id)
		link = &(*link)->next_vcpu;
	gone = *link;
	if (gone)
		*link = gone->next_vcpu;
	pthread_mutex_unlock(&source->lock);
	if (gone)
		free_vcpu(gone);
}

static void tell_stops(struct attach_source *source, struct attach_stops *stops)
{
	pthread_mutex_lock(&source->lock);
	*stops = source->stops;
	pthread_mutex_unlock(&source->lock);
	stops->limit = source->stop.limit;
}

static void end_thread(struct attach_source *source)
{
	if (!source->started)
		return;
	pthread_mutex_lock(&source->lock);
	source->ending = true;
	pthread_cond_signal(&source->changed);
	pthread_mutex_unlock(&source->lock);
	pthread_join(source->thread, NULL);
	source->started = false;
}

static void close_ptrace(struct attach_source *source)
{
	end_thread(source);
	while (source->vcpus) {
		struct ptrace_vcpu *gone = source->vcpus;

		source->vcpus = gone->next_vcpu;
		free_vcpu(gone);
	}
	pthread_cond_destroy(&source->changed);
	pthread_mutex_destroy(&source->lock);
	free(source->queue);
	free(source);
}

/* The thread of a vCPU, if one is known, else the first: it is stopped once, whatever it does. */
static int try_stop(const struct attach_source *source)
{
	const struct vmm_process *process = source->target->process;
	struct thread_stop stop;
	pid_t tid = process->pid;
	int error;

	for (size_t i = 0; i < process->vcpu_count; i++)
		if (process->vcpus[i].tid)
			tid = process->vcpus[i].tid;
	error = thread_stop(&stop, tid);
	if (!error)
		thread_go_on(&stop);
	if (error == -EPERM || error == -EACCES)
		return error_set(
			-EACCES,
			"process %d may not be stopped: be root, or its user and with CAP_SYS_PTRACE; or "
			"another debugger has it",
			process->pid);
	return 0;
}

/* All vCPUs of a VMM have the same filters, as far as it is known; each is looked at by itself later on. */
static int try_calls(const struct attach_source *source)
{
	const struct vmm_process *process = source->target->process;
	struct vcpu_thread thread = { .fd = -1 };
	struct thread_status status;
	int fd, error = 0;

	for (size_t i = 0; i < process->vcpu_count && !thread.vcpu.tid; i++)
		thread.vcpu = process->vcpus[i];
	if (!thread.vcpu.tid)
		return 0;
	fd = thread_file_open(process, thread.vcpu.tid, "status");
	if (thread_status_read(fd, &status))
		error = vcpu_stop_check(&source->stop, &thread, &status);
	if (fd >= 0)
		close(fd);
	return error == -EINTR || error == -ESRCH ? 0 : error;
}

/* Stopped by the terminal at the wrong moment, we would leave a vCPU stopped. Stays so: others may want it,
 * too. */
static void ignore_terminal_stops(void)
{
	static const int signals[] = { SIGTSTP, SIGTTIN, SIGTTOU };

	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		signal(signals[i], SIG_IGN);
}

static int start_thread(struct attach_source *source)
{
	int error = -pthread_create(&source->thread, NULL, run, source);

	if (error)
		return error_set(error, "can not start the thread that stops vCPUs: %s", strerror(-error));
	source->started = true;
	return 0;
}

static int open_all(struct attach_source *source)
{
	const struct attach_target *target = source->target;
	int error;

	source->stop = (struct vcpu_stop_target){ .process = target->process,
						  .memory = target->memory,
						  .limit = target->stop_limit,
						  .callchains = target->callchains };
	source->interval = NANOSECONDS / target->frequency;
	source->random = now() | 1;
	source->queue = calloc(QUEUE, sizeof(source->queue[0]));
	if (!source->queue)
		return error_set(-ENOMEM, "no memory for looks at vCPUs");
	error = remote_code_find(&source->stop.code, target->process);
	if (!error)
		error = try_stop(source);
	if (!error)
		error = try_calls(source);
	if (!error)
		ignore_terminal_stops();
	return error ? error : start_thread(source);
}

static int open_ptrace(struct attach_source **result, const struct attach_target *target)
{
	struct attach_source *source = calloc(1, sizeof(*source));
	pthread_condattr_t monotonic;
	int error;

	if (!source)
		return error_set(-ENOMEM, "no memory for tracing");
	source->target = target;
	pthread_mutex_init(&source->lock, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&source->changed, &monotonic);
	pthread_condattr_destroy(&monotonic);
	error = open_all(source);
	if (error)
		close_ptrace(source);
	else
		*result = source;
	return error;
}

/* Of the parent, which is not a child of ours, so that what limits attaching to strangers (Yama) applies:
 * reading its memory takes the same right as tracing it (ptrace(2), PTRACE_MODE_ATTACH_REALCREDS). */
static int probe(void)
{
	static const char here[] = "";
	char byte;
	const struct iovec ours = { &byte, 1 }, theirs = { (void *)here, 1 };

	if (process_vm_readv(getppid(), &ours, 1, &theirs, 1, 0) < 0 && errno != EFAULT)
		return error_set(-EACCES,
				 "other processes may not be traced (%s): be root, or have CAP_SYS_PTRACE; "
				 "kernel.yama.ptrace_scope 0 lets a user trace all of its own",
				 strerror(errno));
	return 0;
}

static enum attach_event event_of(const struct attach_source *source)
{
	(void)source;
	return ATTACH_CLOCK;
}

const struct attach_backend attach_ptrace = {
	.name = "ptrace",
	.is = "stops of the vCPU threads: where the guest was and its callers; the guest loses the time of the stops",
	.gives_callers = true,
	.probe = probe,
	.open = open_ptrace,
	.event = event_of,
	.add = add_vcpu,
	.remove = remove_vcpu,
	.drain = drain,
	.stops = tell_stops,
	.close = close_ptrace,
};
