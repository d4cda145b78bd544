// SPDX-License-Identifier: Apache-2.0
/* kvmscope attach: joins an attachment to somebody else's VM with a collector, and lists such VMs. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/cli/attach_options.h"
#include "vmm/cli/command.h"
#include "vmm/profile/collector.h"

#define LISTED_MAX 256
/* ms that sampling waits for the guest's kernel to be found, and between two looks. */
#define KERNEL_WAIT     5000
#define KERNEL_INTERVAL 20
/* ns that a sample may wait in a backend: far more than its looks are apart, as others want the CPUs, too. */
#define DELAY 500000000ull

struct attachment {
	struct attach_command_options options;
	struct attach *attach;
	struct collector *collector;
	int signal_fd;
	uint64_t started; /* ms, see now_ms() */
	double seconds;   /* that it took */
};

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static int list_vms(void)
{
	pid_t pids[LISTED_MAX];
	size_t count = vmm_process_list(pids, LISTED_MAX);

	for (size_t i = 0; i < count; i++) {
		struct vmm_process *process;

		if (vmm_process_open(&process, pids[i])) {
			log_warning("%s", error_message());
			continue;
		}
		printf("%8d  %-16s  %zu vCPU%s\n", process->pid, process->name, process->vcpu_count,
		       process->vcpu_count == 1 ? "" : "s");
		vmm_process_close(process);
	}
	if (!count)
		log_info("no process that may be looked at runs a VM of KVM");
	else
		log_info("kvmscope attach --pid PID profiles one of them");
	return EXIT_OK;
}

static int take_signals(struct attachment *self)
{
	sigset_t mask;

	sigemptyset(&mask);
	sigaddset(&mask, SIGINT);
	sigaddset(&mask, SIGTERM);
	sigaddset(&mask, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &mask, NULL);
	signal(SIGPIPE, SIG_IGN);
	self->signal_fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
	return self->signal_fd < 0 ? error_set(-errno, "can not make a signalfd: %s", strerror(errno)) : 0;
}

static bool registers(void *context, struct guest_registers *found)
{
	return attach_registers(context, found);
}

static void publish(void *context, const struct guest_kernel *kernel)
{
	attach_set_kernel(context, kernel);
}

static void lose(void *context)
{
	attach_lose_kernel(context);
}

static int start_collector(struct attachment *self)
{
	const struct attach_command_options *options = &self->options;
	size_t count;
	struct ring *const *rings = attach_rings(self->attach, &count);
	const struct collector_options collector = {
		.rings = rings,
		.ring_count = count,
		.view = attach_view(self->attach),
		.registers = registers,
		.publish = publish,
		.lost = lose,
		.context = self->attach,
		.delay = DELAY,
		.publish_waits = true,
		.output = { .path = options->output,
			    .perspective = options->perspective,
			    .cycles = attach_event(self->attach) == ATTACH_CYCLES,
			    .host_samples = true,
			    .frequency = options->attach.frequency,
			    .callchains =
				    options->attach.callchains && attach_backend(self->attach)->gives_callers,
			    .compression = options->compression,
			    .vcpus = (unsigned int)count,
			    .cpus = (unsigned int)attach_process(self->attach)->vcpu_count,
			    .vmm_pid = options->attach.pid,
			    .command_line = options->command_line,
			    .hostname = "",
			    .release = "",
			    .arch = "x86_64",
			    .cpu_description = "" },
		.kallsyms = options->kallsyms,
		.vmlinux = options->vmlinux,
		.buildid_cache = options->buildid_cache,
	};

	return collector_start(&self->collector, &collector);
}

/* Which way, and why no better one. */
static void tell_backend(const struct attachment *self)
{
	const struct vmm_process *process = attach_process(self->attach);
	const struct attach_backend *backend = attach_backend(self->attach);

	log_info("attached to process %d (%s), %zu vCPU%s, by %s: %s; sampled by %s", process->pid,
		 process->name, process->vcpu_count, process->vcpu_count == 1 ? "" : "s", backend->name,
		 backend->is, attach_event(self->attach) == ATTACH_CYCLES ? "cycles" : "cpu-clock");
	if (*attach_refused(self->attach))
		log_info("not by %s", attach_refused(self->attach));
}

/* ms until something is due, at most a second; 0: the time is over. */
static int time_left(const struct attachment *self)
{
	uint64_t passed = now_ms() - self->started, limit = self->options.time * 1000ull;

	if (!limit || limit > passed + 1000)
		return 1000;
	return limit > passed ? (int)(limit - passed) : 0;
}

static void show_progress(const struct attachment *self)
{
	uint64_t seconds = (now_ms() - self->started) / 1000;
	struct collector_statistics statistics;

	collector_statistics(self->collector, &statistics);
	log_progress("%llu:%02llu: %llu samples, %llu of them outside of the guest, %llu lost%s%s",
		     (unsigned long long)seconds / 60, (unsigned long long)seconds % 60,
		     (unsigned long long)statistics.samples, (unsigned long long)statistics.host,
		     (unsigned long long)statistics.lost, *statistics.release ? ", Linux " : "",
		     statistics.release);
}

/* Before anything is sampled; a signal that comes meanwhile, and the end of the VM, are left for the wait
 * that follows. */
static void wait_for_kernel(const struct attachment *self)
{
	struct pollfd events[] = {
		{ .fd = attach_process(self->attach)->pid_fd, .events = POLLIN },
		{ .fd = self->signal_fd, .events = POLLIN },
	};
	uint64_t begun = now_ms();

	while (attach_awaits_kernel(self->attach) && now_ms() - begun < KERNEL_WAIT &&
	       poll(events, 2, KERNEL_INTERVAL) <= 0)
		;
	log_debug("waited %llu ms for the guest's kernel", (unsigned long long)(now_ms() - begun));
}

/* Until the VM has ended, the time is over, or a signal comes. */
static void wait_for_end(struct attachment *self)
{
	struct pollfd events[] = {
		{ .fd = attach_end_fd(self->attach), .events = POLLIN },
		{ .fd = self->signal_fd, .events = POLLIN },
	};

	self->started = now_ms();
	while (!events[0].revents && !events[1].revents && time_left(self)) {
		if (poll(events, 2, time_left(self)) < 0)
			events[0].revents = events[1].revents = 0;
		show_progress(self);
	}
	self->seconds = (double)(now_ms() - self->started) / 1e3;
	log_progress("%s", "");
}

static void summarize(const struct attachment *self, const struct collector_statistics *statistics)
{
	struct attach_statistics counts;

	attach_statistics(self->attach, &counts);
	if (counts.ended)
		log_info("the VM has ended");
	log_info("%llu samples of the guest and %llu outside of it in %.1f s, %llu lost; %.1f MiB in %s",
		 (unsigned long long)(statistics->samples - statistics->host),
		 (unsigned long long)statistics->host, self->seconds, (unsigned long long)statistics->lost,
		 (double)statistics->bytes / 1048576, self->options.output);
	if (statistics->cost && statistics->weight)
		log_info(
			"taking one cost %.1f us on average, %.2f %% of the sampled time, besides the interrupt",
			(double)statistics->cost / (double)statistics->samples / 1e3,
			100.0 * (double)statistics->cost / (double)statistics->weight);
	if (!statistics->samples)
		log_info("there are no samples: the VM used no CPU time");
	else if (statistics->kernel && !statistics->kernel_found)
		log_info("the guest's kernel was not found in its memory: its functions have no names; "
			 "give --kallsyms or --vmlinux");
}

/* The recording is finished in any case: what was sampled stays. */
static int finish(struct attachment *self, int error)
{
	struct collector_statistics statistics;
	char message[ERROR_MESSAGE_SIZE] = "";
	int collected;

	if (error)
		snprintf(message, sizeof(message), "%s", error_message());
	collected = collector_stop(self->collector, &statistics);
	if (!collected && (!error || statistics.samples))
		summarize(self, &statistics);
	return error ? error_set(error, "%s", message) : collected;
}

static int record(struct attachment *self)
{
	int error = start_collector(self);

	if (error)
		return error;
	wait_for_kernel(self);
	error = attach_start(self->attach);
	if (!error)
		wait_for_end(self);
	attach_stop(self->attach);
	if (!error)
		error = attach_error(self->attach);
	return finish(self, error);
}

static int run(struct attachment *self)
{
	int error = take_signals(self);

	if (!error)
		error = attach_open(&self->attach, &self->options.attach);
	if (error)
		return error;
	tell_backend(self);
	return record(self);
}

int command_attach(int argc, char **argv)
{
	struct attachment self = { .signal_fd = -1 };
	int error, status = EXIT_OK;

	if (attach_options_parse(&self.options, argc, argv))
		return command_failed();
	log_quiet(self.options.quiet);
	log_verbose(self.options.verbose);
	if (!self.options.attach.pid) {
		status = list_vms();
	} else {
		error = run(&self);
		if (error)
			status = command_failed();
		if (error == -ENOTSUP)
			status = EXIT_UNSUPPORTED;
	}
	attach_close(self.attach);
	if (self.signal_fd >= 0)
		close(self.signal_fd);
	attach_options_free(&self.options);
	return status;
}
