/* SPDX-License-Identifier: Apache-2.0 */
/* Stops the thread of each vCPU for a moment at random times (stop_sampling.h), and makes it read
 * its vCPU's registers (vcpu_stop.h). Works with every KVM and every VMM that may be traced. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shared/error.h"
#include "vmm/attach/backend.h"
#include "vmm/attach/proc_files.h"
#include "vmm/attach/stop_sampling.h"
#include "vmm/attach/thread_stop.h"

struct attach_source {
	const struct attach_target *target;
	struct vcpu_stop_target stop;
	struct stop_sampler *sampler;
};

static void emit_sample(const struct attach_source *source, struct stop_sample *seen)
{
	const struct attach_sink *sink = &source->target->sink;
	struct stopped_vcpu *vcpu = &seen->vcpu;
	bool guest = vcpu->location == VCPU_IN_GUEST;
	const struct attach_guest_state stack = {
		.registers = vcpu->registers,
		.copied = vcpu->stack_size,
		.stacks[ATTACH_STACK_IN_USE] = { .gva = vcpu->registers.rsp,
						 .size = vcpu->stack_size,
						 .bytes = vcpu->stack },
		.tasks = vcpu->has_tasks ? &vcpu->tasks : NULL,
		.pages = vcpu->pages,
		.page_count = vcpu->page_count
	};
	struct guest_callchain chain = { .addresses = vcpu->addresses,
					 .capacity = SAMPLE_CALLCHAIN_MAX,
					 .kernel_depth = vcpu->kernel_depth,
					 .user_depth = vcpu->user_depth,
					 .flags = vcpu->chain_flags };
	struct sample sample = {
		.time = vcpu->time,
		.period = seen->period,
		.rip = vcpu->registers.rip,
		.rsp = vcpu->registers.rsp,
		.rbp = vcpu->registers.rbp,
		.rflags = vcpu->registers.rflags,
		.cr3 = vcpu->registers.paging.cr3,
		.vcpu = seen->id,
		.host_tid = (uint32_t)seen->tid,
		.cost = vcpu->stopped < UINT32_MAX ? (uint32_t)vcpu->stopped : UINT32_MAX,
		.cpl = vcpu->registers.cpl,
		.flags = guest ? 0 : SAMPLE_HOST,
	};

	sink->sample(sink->context, &sample, &chain, guest ? &stack : NULL);
}

static void drain(struct attach_source *source)
{
	const struct attach_sink *sink = &source->target->sink;
	struct stop_sample *seen;

	while ((seen = stop_sampler_next(source->sampler))) {
		emit_sample(source, seen);
		stop_sampler_release(source->sampler);
	}
	stop_sampler_report_lost(source->sampler, sink->lost, sink->context);
}

static int add_vcpu(struct attach_source *source, const struct vmm_vcpu *vcpu)
{
	return stop_sampler_add(source->sampler, vcpu);
}

static void remove_vcpu(struct attach_source *source, unsigned int id)
{
	drain(source);
	stop_sampler_remove(source->sampler, id);
}

static void set_cpu(struct attach_source *source, unsigned int id, const struct attach_cpu *cpu)
{
	stop_sampler_set_cpu(source->sampler, id, cpu);
}

static void read_stops(struct attach_source *source, struct attach_stops *stops)
{
	stop_sampler_statistics(source->sampler, stops);
}

static bool close_ptrace(struct attach_source *source)
{
	bool ended = stop_sampler_end(source->sampler);

	if (ended)
		filter_reader_close(source->stop.filters);
	free(source);
	return ended;
}

/* The thread of a vCPU if one is known, else the first thread. */
static pid_t some_thread(const struct vmm_process *process)
{
	for (size_t i = 0; i < process->vcpu_count; i++)
		if (process->vcpus[i].tid)
			return process->vcpus[i].tid;
	return process->pid;
}

/* Stops the thread once, whatever it does. */
static int try_stop(const struct attach_source *source)
{
	const struct vmm_process *process = source->target->process;
	struct thread_stop stop;
	int error = thread_stop(&stop, some_thread(process));

	if (!error)
		thread_resume(&stop);
	if (error == -EPERM || error == -EACCES)
		return error_set(-EACCES,
				 "process %d may not be stopped: run as root, or as its user with "
				 "CAP_SYS_PTRACE; or another debugger traces it",
				 process->pid);
	return 0;
}

/* As far as known, all vCPU threads of a VMM have the same filters; each is checked later. The
 * first thread may have others, but they are readable in the same way. */
static int try_calls(const struct attach_source *source)
{
	const struct vmm_process *process = source->target->process;
	struct vcpu_thread thread = { .vcpu.tid = some_thread(process), .fd = -1 };
	struct thread_status status;
	uint64_t stopped;
	int fd, error = 0;

	fd = proc_open_thread_file(process->directory, thread.vcpu.tid, "status");
	if (thread_status_read(fd, &status))
		error = vcpu_stop_check(&source->stop, &thread, &status, &stopped);
	if (fd >= 0)
		close(fd);
	if (error == -EACCES && thread.vcpu.tid == process->pid)
		return 0;
	return error == -EINTR || error == -ESRCH ? 0 : error;
}

/*
 * Stopped by the terminal at the wrong moment, we would leave a vCPU stopped for 50 ms
 * (thread_stop.h), and while a core file is written for as long as that takes. This is not undone:
 * other attachments may need it, too.
 */
static void ignore_terminal_stops(void)
{
	static const int signals[] = { SIGTSTP, SIGTTIN, SIGTTOU };

	prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		signal(signals[i], SIG_IGN);
}

static int try_all(const struct attach_source *source)
{
	struct stop_guard guard = { 0 };
	int error = stop_guard_begin(&guard);

	if (error)
		return error;
	error = try_stop(source);
	if (!error)
		error = try_calls(source);
	stop_guard_end(&guard);
	stop_guard_close(&guard);
	return error;
}

/* ptrace(2) does not show us a thread's filters; BPF may. */
static int try_with_reader(struct attach_source *source)
{
	char refusal[ERROR_MESSAGE_SIZE], why[ERROR_MESSAGE_SIZE];

	snprintf(refusal, sizeof(refusal), "%s", error_message());
	if (!filter_reader_open(&source->stop.filters))
		return try_all(source);
	snprintf(why, sizeof(why), "%s", error_message());
	return error_set(-EPERM, "%s; nor can BPF: %s", refusal, why);
}

static int open_all(struct attach_source *source)
{
	const struct attach_target *target = source->target;
	int error;

	source->stop = (struct vcpu_stop_target){ .process = target->process,
						  .memory = target->memory,
						  .limit = target->stop_limit,
						  .callchains = target->callchains };
	error = remote_code_find(&source->stop.code, target->process);
	ignore_terminal_stops();
	if (!error)
		error = try_all(source);
	if (error == -EPERM)
		error = try_with_reader(source);
	if (error)
		return error;
	return stop_sampler_start(&source->sampler, &source->stop, target->frequency);
}

static int open_ptrace(struct attach_source **result, const struct attach_target *target)
{
	struct attach_source *source = calloc(1, sizeof(*source));
	int error;

	if (!source)
		return error_set(-ENOMEM, "no memory for tracing");
	source->target = target;
	error = open_all(source);
	if (error)
		close_ptrace(source);
	else
		*result = source;
	return error;
}

static int stop_once(pid_t pid)
{
	struct stop_guard guard = { 0 };
	struct thread_stop stop;
	int error = stop_guard_begin(&guard);

	if (error)
		return error;
	error = thread_stop(&stop, pid);
	if (!error)
		thread_resume(&stop);
	stop_guard_end(&guard);
	stop_guard_close(&guard);
	if (!error)
		return 0;
	return error_set(error,
			 "cannot stop a child process (%s): does a seccomp filter, e.g. of a "
			 "container, forbid ptrace(2)?",
			 strerror(-error));
}

/* A sandbox may allow reading memory but not stopping threads. */
static int try_on_child(void)
{
	pid_t child = fork();
	int error;

	if (child < 0)
		return error_set(-errno, "cannot create a child process: %s", strerror(errno));
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	error = stop_once(child);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	return error;
}

/*
 * Reads memory of the parent, which is not our child, so that Yama's limits apply: it
 * requires the same right as tracing (ptrace(2), PTRACE_MODE_ATTACH_REALCREDS). The parent may be
 * waiting for us, so a child is stopped instead.
 */
static int probe(void)
{
	static char here;
	char byte;
	const struct iovec ours = { &byte, 1 }, theirs = { &here, 1 };

	if (process_vm_readv(getppid(), &ours, 1, &theirs, 1, 0) < 0 && errno != EFAULT)
		return error_set(
			-EACCES,
			"other processes may not be traced (%s): run as root or with "
			"CAP_SYS_PTRACE; kernel.yama.ptrace_scope 0 lets users trace all of "
			"their own processes",
			strerror(errno));
	return try_on_child();
}

static enum attach_event event_of(const struct attach_source *source)
{
	(void)source;
	return ATTACH_CLOCK;
}

const struct attach_backend attach_ptrace = {
	.name = "ptrace",
	.is = "stops of the vCPU threads: samples with call chains; the guest loses "
	      "the time of the stops",
	.has_callchains = true,
	.probe = probe,
	.open = open_ptrace,
	.event = event_of,
	.add = add_vcpu,
	.remove = remove_vcpu,
	.set_cpu = set_cpu,
	.drain = drain,
	.stops = read_stops,
	.close = close_ptrace,
};
