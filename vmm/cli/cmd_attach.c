// SPDX-License-Identifier: Apache-2.0
/* kvmscope attach: one session with somebody else's VM, in the terminal; and lists such VMs. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "shared/log.h"
#include "vmm/attach/agent_channel.h"
#include "vmm/attach/agent_vsock.h"
#include "vmm/attach/open_disks.h"
#include "vmm/attach/process_scan.h"
#include "vmm/attach/qemu_command_line.h"
#include "vmm/attach/rights.h"
#include "vmm/cli/answer.h"
#include "vmm/cli/attach_options.h"
#include "vmm/cli/attach_summary.h"
#include "vmm/cli/command.h"
#include "vmm/cli/recording_disks.h"
#include "vmm/disk/guest_disk.h"
#include "vmm/disk/sandbox_broker.h"
#include "vmm/perf_data/perf_data_output.h"
#include "vmm/session/session.h"

#define LISTED_MAX 256

struct attachment {
	struct attach_command_options options;
	struct session *session;
	int signal_fd;
	struct open_disks disks;       /* the VM's */
	struct sandbox_broker *broker; /* that reads them; NULL */
	bool sampling;
	uint64_t started; /* ms of CLOCK_MONOTONIC: when sampling did */
};

/* Behind all that is not chosen by whoever started the VM. */
static void print_guest(pid_t pid)
{
	char name[QEMU_NAME_SIZE];

	if (qemu_name(pid, name)) {
		printf("  ");
		answer_print(name);
	}
	putchar('\n');
}

static void list_vm(pid_t pid, int vm_fd)
{
	struct vmm_process *process;
	char option[16] = "";

	if (vmm_process_open_vm(&process, pid, vm_fd)) {
		log_warning("%s", error_message());
		return;
	}
	if (process->vms > 1)
		snprintf(option, sizeof(option), "  --vm %d", vm_fd);
	printf("%8d  %-16s  %zu vCPU%s%s", process->pid, process->name, process->vcpu_count,
	       process->vcpu_count == 1 ? "" : "s", option);
	print_guest(process->pid);
	vmm_process_close(process);
}

static int list_vms(void)
{
	pid_t pids[LISTED_MAX];
	size_t count = vmm_process_list(pids, LISTED_MAX);

	for (size_t i = 0; i < count; i++) {
		int vm_fds[VMM_VMS_MAX];
		size_t vms = process_list_vms(pids[i], vm_fds);

		for (size_t vm = 0; vm < vms; vm++)
			list_vm(pids[i], vm_fds[vm]);
	}
	if (!count)
		log_info(
			"no process that may be looked at runs a VM of KVM%s; one that QEMU runs without KVM is "
			"attached to by its monitor: --qmp, --domain",
			geteuid() ? " (root may look at all)" : "");
	else
		log_info("kvmscope attach --pid PID profiles one of them");
	return EXIT_OK;
}

static int take_signals(struct attachment *self)
{
	sigset_t mask;

	sigemptyset(&mask);
	sigaddset(&mask, SIGINT);
	sigaddset(&mask, SIGQUIT);
	sigaddset(&mask, SIGTERM);
	sigaddset(&mask, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &mask, NULL);
	signal(SIGPIPE, SIG_IGN);
	self->signal_fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
	return self->signal_fd < 0
		       ? error_set(-errno, "can not make a signalfd: %s", strerror(errno))
		       : 0;
}

/* Which way, and why no better one. */
static void tell_backend(const struct attachment *self)
{
	const struct attach *attach = session_attach(self->session);
	const struct vmm_process *process = attach_process(attach);
	const struct attach_backend *backend = attach_backend(attach);

	log_info("attached to process %d (%s), %zu vCPU%s, by %s: %s; sampled by %s", process->pid,
		 process->name, process->vcpu_count, process->vcpu_count == 1 ? "" : "s",
		 backend->name, backend->is,
		 attach_event(attach) == ATTACH_CYCLES ? "cycles" : "cpu-clock");
	if (*attach_refused(attach))
		log_info("not by %s", attach_refused(attach));
}

/* ms until something is due, at most a second; 0: the time is over. */
static int time_left(const struct attachment *self)
{
	uint64_t passed = self->sampling ? clock_ms(CLOCK_MONOTONIC) - self->started : 0;
	uint64_t limit = self->options.time * 1000ull;

	if (!limit || limit > passed + 1000)
		return 1000;
	return limit > passed ? (int)(limit - passed) : 0;
}

static void show_progress(const struct attachment *self)
{
	uint64_t seconds = (clock_ms(CLOCK_MONOTONIC) - self->started) / 1000;
	struct collector_statistics statistics;

	session_statistics(self->session, &statistics);
	log_progress("%llu:%02llu: %llu samples, %llu of them outside of the guest, %llu lost%s%s",
		     (unsigned long long)seconds / 60, (unsigned long long)seconds % 60,
		     (unsigned long long)statistics.samples, (unsigned long long)statistics.host,
		     (unsigned long long)statistics.lost, *statistics.release ? ", Linux " : "",
		     statistics.release);
}

/* The time counts from the first sample on. A negative errno, or what has become of the session. */
static int turn(struct attachment *self)
{
	int state = session_turn(self->session);

	if (state != SESSION_SEARCHING && !self->sampling) {
		self->sampling = true;
		self->started = clock_ms(CLOCK_MONOTONIC);
	}
	if (self->sampling)
		show_progress(self);
	else
		log_progress("looking for the guest's kernel, sampling has not begun");
	return state;
}

/* The disk is full, or who reads a pipe has seen enough. */
static bool recording_has_ended(const struct attachment *self)
{
	struct collector_statistics statistics;

	session_statistics(self->session, &statistics);
	return statistics.ended;
}

/* Until the VM or the recording has ended, the time is over, or a signal comes. */
static int wait_for_end(struct attachment *self)
{
	struct pollfd events[] = {
		{ .fd = session_fd(self->session), .events = POLLIN },
		{ .fd = self->signal_fd, .events = POLLIN },
	};
	int state;

	do {
		if (poll(events, 2, time_left(self)) < 0)
			events[1].revents = 0;
		state = turn(self);
	} while (state >= 0 && state != SESSION_ENDED && !events[1].revents && time_left(self) &&
		 !recording_has_ended(self));
	log_progress("%s", "");
	return state < 0 ? state : 0;
}

/* Was it ended by somebody who waits for it? A user who pressed Ctrl-C may do so again. */
static bool is_in_a_hurry(const struct attachment *self)
{
	struct signalfd_siginfo signal;

	return read(self->signal_fd, &signal, sizeof(signal)) == sizeof(signal) &&
	       signal.ssi_signo != SIGINT;
}

/* Of the host's perspective nothing is to be found. */
static bool wants_disk_names(const struct attachment *self)
{
	const struct attach_command_options *options = &self->options;

	return options->disk_symbols && options->buildid_cache &&
	       options->perspective == PERSPECTIVE_GUEST && strcmp(options->output, "-") != 0;
}

static size_t disk_paths(const struct attachment *self, const char *paths[OPEN_DISKS_MAX])
{
	for (size_t i = 0; i < self->disks.count; i++)
		paths[i] = self->disks.paths[i];
	return self->disks.count;
}

/* While we may still read those of another user. */
static void find_disks(struct attachment *self)
{
	struct disk_file places[OPEN_DISKS_MAX];

	if (!wants_disk_names(self))
		return;
	open_disks_find(&self->disks, attach_process(session_attach(self->session))->directory);
	recording_disks_places(&self->disks, places);
	if (self->disks.count && guest_disk_reader() &&
	    sandbox_broker_start(&self->broker, guest_disk_reader(), places, self->disks.count))
		log_debug("%s", error_message());
}

static void search_disks(const struct attachment *self, unsigned int files)
{
	const char *disks[OPEN_DISKS_MAX];
	const struct recording_disks recording = { .output = self->options.output,
						   .files = files,
						   .disks = disks,
						   .count = disk_paths(self, disks),
						   .broker = self->broker,
						   .signal_fd = self->signal_fd };

	if (wants_disk_names(self) && !is_in_a_hurry(self))
		recording_disks_search(&recording);
}

/* The object in any case. Not in words what could not be written: what was counted is not what the
 * recording has, and why was said. */
static void summarize(const struct attachment *self, const struct collector_statistics *statistics,
		      double seconds, bool in_words)
{
	struct attach *attach = session_attach(self->session);
	struct attach_statistics counts;
	struct agent_statistics agent;
	bool has_agent = session_agent_told(self->session, &agent);

	attach_statistics(attach, &counts);
	if (in_words)
		attach_summary_tell(statistics, &counts, seconds,
				    perf_data_output_name(self->options.output));
	if (in_words && has_agent)
		attach_summary_tell_agent(&agent);
	if (self->options.json)
		attach_summary_print(statistics, &counts, has_agent ? &agent : NULL,
				     attach_backend(attach)->name, seconds);
}

/* The recording is finished in any case: what was sampled stays. */
static int finish(struct attachment *self, int error)
{
	double seconds =
		self->sampling ? (double)(clock_ms(CLOCK_MONOTONIC) - self->started) / 1e3 : 0;
	struct collector_statistics statistics;
	char message[ERROR_MESSAGE_SIZE] = "";
	int stopped;

	if (error)
		snprintf(message, sizeof(message), "%s", error_message());
	stopped = session_stop(self->session, &statistics);
	summarize(self, &statistics, seconds,
		  !statistics.ended && (statistics.samples || (!stopped && !error)));
	if (!error && !stopped)
		search_disks(self, statistics.files);
	if (statistics.ended)
		return error_set(error ? error : stopped, "%s%s%s has what was sampled until then",
				 message, error ? "; " : "",
				 perf_data_output_name(self->options.output));
	return error ? error_set(error, "%s", message) : stopped;
}

/* NULL: there is none. */
static const char *find_agent_socket(const struct attachment *self, char path[AGENT_CHANNEL_PATH])
{
	const struct attach_command_options *options = &self->options;
	struct agent_vsock_address vsock;

	if (options->agent_socket && agent_vsock_parse(options->agent_socket, &vsock))
		return NULL;
	if (!options->agent || options->agent_socket)
		return options->agent_socket;
	return agent_channel_path(attach_process(session_attach(self->session)), path) ? path
										       : NULL;
}

/* Threads that read what the guest wrote are made after this. */
static int give_up_rights(const struct attachment *self)
{
	const struct attach_command_options *options = &self->options;
	const char *home = getenv("HOME");
	char path[AGENT_CHANNEL_PATH], descriptors[32];
	const struct rights_file files[] = {
		/* vCPUs that come are found there, and a VM's own user alone may list them */
		{ .path = descriptors, .mode = R_OK },
		{ .path = find_agent_socket(self, path), .mode = W_OK },
		{ .path = strcmp(options->output, "-") ? options->output : NULL, .mode = W_OK },
		{ .path = options->buildid_cache ? home : NULL, .mode = W_OK },
		{ .path = options->kallsyms, .mode = R_OK },
		{ .path = options->vmlinux, .mode = R_OK },
		{ .path = options->btf, .mode = R_OK },
	};

	snprintf(descriptors, sizeof(descriptors), "/proc/%d/fd",
		 attach_process(session_attach(self->session))->pid);
	return rights_keep(files, sizeof(files) / sizeof(files[0]), false);
}

static int record(struct attachment *self)
{
	const struct attach_command_options *options = &self->options;
	const struct session_options session = {
		.attach = options->attach,
		.output = options->output,
		.perspective = options->perspective,
		.compression = options->compression,
		.kallsyms = options->kallsyms,
		.vmlinux = options->vmlinux,
		.btf = options->btf,
		.btf_hint = "--btf FILE gives it",
		.command_line = options->command_line,
		.buildid_cache = options->buildid_cache,
		.agent = options->agent,
		.agent_socket = options->agent_socket,
	};
	int error = session_open(&self->session, &session);

	if (error)
		return error;
	tell_backend(self);
	find_disks(self);
	error = give_up_rights(self);
	if (!error)
		error = session_start(self->session);
	return error ? error : finish(self, wait_for_end(self));
}

static int run(struct attachment *self)
{
	int error = take_signals(self);

	return error ? error : record(self);
}

int command_attach(int argc, char **argv)
{
	struct attachment self = { .signal_fd = -1 };
	int error, status = EXIT_OK;

	if (attach_options_parse(&self.options, argc, argv))
		return command_failed();
	log_quiet(self.options.quiet);
	log_verbose(self.options.verbose);
	if (!self.options.names_vm) {
		status = list_vms();
	} else {
		error = run(&self);
		if (error)
			status = command_failed();
		if (error == -ENOTSUP)
			status = EXIT_UNSUPPORTED;
	}
	session_close(self.session);
	sandbox_broker_end(self.broker);
	if (self.signal_fd >= 0)
		close(self.signal_fd);
	attach_options_free(&self.options);
	return status;
}
