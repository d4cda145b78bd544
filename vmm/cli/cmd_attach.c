/* SPDX-License-Identifier: Apache-2.0 */
/* kvmscope attach: profiles one running VM, or lists the VMs that run. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "shared/log.h"
#include "vmm/attach/agent_channel.h"
#include "vmm/attach/open_disks.h"
#include "vmm/attach/process.h"
#include "vmm/attach/qemu_command_line.h"
#include "vmm/attach/rights.h"
#include "vmm/cli/attach_options.h"
#include "vmm/cli/command.h"
#include "vmm/cli/record_archive.h"
#include "vmm/cli/record_progress.h"
#include "vmm/cli/recording_disks.h"
#include "vmm/cli/screen.h"
#include "vmm/disk/guest_disk.h"
#include "vmm/disk/sandbox_broker.h"
#include "vmm/perf_data/perf_data_output.h"
#include "vmm/session/attach_source.h"
#include "vmm/session/host_images.h"

#define LISTED_MAX 256

struct attachment {
	struct attach_command_options options;
	struct attach *attach;
	struct session *session;
	struct image_parser *parser;
	struct host_images *host; /* NULL */
	int signal_fd;
	struct open_disks disks;       /* the VM's */
	struct sandbox_broker *broker; /* reads them; NULL */
	bool sampling;
	uint64_t started; /* ms of CLOCK_MONOTONIC, of sampling */
};

/* Last in the line: the name was chosen by whoever started the VM. */
static void print_guest(pid_t pid)
{
	char name[QEMU_NAME_SIZE];

	if (qemu_name(pid, name)) {
		printf("  ");
		screen_print(name);
	}
	putchar('\n');
}

static void list_vm(pid_t pid, int vm_fd)
{
	struct vmm_process *process;
	char option[16] = "";

	if (vmm_process_open(&process, pid, vm_fd)) {
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
	if (count) {
		log_info("kvmscope attach --pid PID profiles one of them");
		return EXIT_OK;
	}
	log_info("no process that this user may read runs a VM%s; a QEMU without KVM is attached "
		 "to by its monitor: --qmp, --domain",
		 geteuid() ? " (root may read all)" : "");
	return geteuid() ? EXIT_FAILED : EXIT_OK; /* root has seen that there is none */
}

/* The backend, and why a better one does not work. */
static void report_backend(const struct attach *attach)
{
	const struct vmm_process *process = attach_process(attach);
	const struct attach_backend *backend = attach_backend(attach);

	log_info("attached to process %d (%s), %zu vCPU%s, by %s: %s; sampled by %s", process->pid,
		 process->name, process->vcpu_count, process->vcpu_count == 1 ? "" : "s",
		 backend->name, backend->is,
		 attach_event(attach) == ATTACH_CYCLES ? "cycles" : "cpu-clock");
	if (*attach_refused(attach))
		log_info("not by %s", attach_refused(attach));
}

static int time_left(const struct attachment *self)
{
	return self->sampling ? record_time_left(self->started, self->options.time) : 1000;
}

/* --time counts from the start of sampling. Returns the session's state, or a negative errno. */
static int turn(struct attachment *self, struct collector_statistics *statistics)
{
	int state = session_turn(self->session);

	session_statistics(self->session, statistics);
	if (state != SESSION_SEARCHING && !self->sampling) {
		self->sampling = true;
		self->started = clock_ms(CLOCK_MONOTONIC);
	}
	if (self->sampling)
		record_progress(self->started, statistics);
	else
		log_progress("searching the guest's kernel, sampling has not started");
	return state;
}

/* Runs until the VM ends, the recording does (the disk is full, or a pipe has no reader), the time
 * has passed, or a signal arrives. */
static int wait_for_end(struct attachment *self)
{
	struct pollfd events[] = {
		{ .fd = session_fd(self->session), .events = POLLIN },
		{ .fd = self->signal_fd, .events = POLLIN },
	};
	struct collector_statistics statistics;
	int state;

	do {
		if (poll(events, 2, time_left(self)) < 0)
			events[1].revents = 0;
		state = turn(self, &statistics);
	} while (state >= 0 && state != SESSION_ENDED && !events[1].revents && time_left(self) &&
		 !statistics.ended);
	log_progress("%s", "");
	return state < 0 ? state : 0;
}

static bool searches_disks(const struct attachment *self)
{
	const struct record_options *record = &self->options.record;

	return record_options_search_disks(record) && strcmp(record->output, "-") != 0;
}

/* Before the rights to read another user's files are given up. */
static void find_disks(struct attachment *self)
{
	struct disk_file places[OPEN_DISKS_MAX];

	if (!searches_disks(self))
		return;
	open_disks_find(&self->disks, attach_process(self->attach)->directory);
	recording_disks_describe(&self->disks, places);
	if (self->disks.count && guest_disk_reader() &&
	    sandbox_broker_start(&self->broker, guest_disk_reader(), places, self->disks.count))
		log_debug("%s", error_message());
}

/* Not after SIGTERM and the like, whose sender does not wait. After Ctrl-C a user can press it
 * again.
 */
static void search_disks(const struct attachment *self, unsigned int files)
{
	const char *disks[OPEN_DISKS_MAX];
	const struct recording_disks recording = { .output = self->options.record.output,
						   .files = files,
						   .disks = disks,
						   .count = self->disks.count,
						   .broker = self->broker,
						   .signal_fd = self->signal_fd };
	int signal = record_next_signal(self->signal_fd);

	for (size_t i = 0; i < self->disks.count; i++)
		disks[i] = self->disks.paths[i];
	if (searches_disks(self) && (!signal || signal == SIGINT))
		recording_disks_search(&recording);
}

/* Always prints the JSON object. After an error of writing IN_WORDS is false: the counts are not
 * those of the recording, and the error was logged. */
static void summarize(const struct attachment *self, const struct collector_statistics *statistics,
		      double seconds, bool in_words)
{
	struct attach_statistics counts;
	struct agent_statistics agent;
	bool has_agent = session_agent_statistics(self->session, &agent);

	attach_statistics(self->attach, &counts);
	if (in_words)
		attach_summary_log(statistics, &counts, seconds,
				   perf_data_output_name(self->options.record.output));
	if (in_words && has_agent) {
		attach_summary_log_agent(&agent);
		session_report_symbols(self->session);
	}
	if (self->options.json)
		attach_summary_print(statistics, &counts, has_agent ? &agent : NULL,
				     attach_backend(self->attach)->name, seconds);
}

/* Completes the recording, also after an error: what was sampled is kept. */
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
	if (!error && !stopped) {
		search_disks(self, statistics.files);
		stopped = record_archive(&self->options.record, statistics.files);
		if (!stopped)
			record_suggest_report(&statistics, self->options.record.output);
	}
	if (statistics.ended)
		return error_set(error ? error : stopped, "%s%s%s has what was sampled until then",
				 message, error ? "; " : "",
				 perf_data_output_name(self->options.record.output));
	return error ? error_set(error, "%s", message) : stopped;
}

/* NULL: the guest agent is not connected to by a UNIX socket. */
static const char *find_agent_socket(const struct attachment *self, char path[AGENT_CHANNEL_PATH])
{
	const struct attach_command_options *options = &self->options;
	struct agent_vsock_address vsock;

	if (options->agent_socket && agent_vsock_parse(options->agent_socket, &vsock))
		return NULL;
	if (!options->agent || options->agent_socket)
		return options->agent_socket;
	return agent_channel_path(attach_process(self->attach), path) ? path : NULL;
}

/* Before the threads that read what the guest wrote are created. */
static int give_up_rights(const struct attachment *self)
{
	const struct record_options *record = &self->options.record;
	const char *home = getenv("HOME");
	char path[AGENT_CHANNEL_PATH], descriptors[32];
	const struct rights_file files[] = {
		/* lists new vCPUs; only the VM's own user may read it */
		{ .path = descriptors, .mode = R_OK },
		{ .path = find_agent_socket(self, path), .mode = W_OK },
		{ .path = strcmp(record->output, "-") ? record->output : NULL, .mode = W_OK },
		{ .path = record->buildid_cache ? home : NULL, .mode = W_OK },
		{ .path = record->kallsyms, .mode = R_OK },
		{ .path = record->btf, .mode = R_OK },
	};

	snprintf(descriptors, sizeof(descriptors), "/proc/%d/fd",
		 attach_process(self->attach)->pid);
	return rights_keep(files, sizeof(files) / sizeof(files[0]), false);
}

static int open_session(struct attachment *self)
{
	const struct attach_command_options *options = &self->options;
	struct session_options session = { .source = attach_source(self->attach),
					   .parser = self->parser,
					   .guest_memory = GUEST_ACCOUNT_DEFAULT };
	struct session_agent_options agent;

	record_options_apply(&options->record, &session);
	if (options->attach.outside)
		session.events = &options->events;
	session.host_stacks = options->attach.host_stacks;
	session.host = self->host;
	if (options->agent && attach_source_agent(self->attach, options->agent_socket, &agent))
		session.agent = &agent;
	return session_open(&self->session, &session);
}

/* Before the rights to read the VMM's files are given up. */
static int read_host(struct attachment *self)
{
	const struct attach_command_options *options = &self->options;
	int error;

	if (!options->attach.host_stacks)
		return 0;
	error = host_images_read(&self->host, attach_process(self->attach)->pid,
				 options->record.perspective);
	if (!error && options->record.buildid_cache)
		host_images_store(self->host);
	return error;
}

static int record(struct attachment *self)
{
	int error = attach_open(&self->attach, &self->options.attach);

	if (error)
		return error;
	report_backend(self->attach);
	find_disks(self);
	error = attach_source_parser(self->attach, self->options.record.vmlinux, &self->parser);
	if (!error)
		error = read_host(self);
	if (!error)
		error = give_up_rights(self);
	if (!error)
		error = open_session(self);
	if (!error)
		error = session_start(self->session);
	return error ? error : finish(self, wait_for_end(self));
}

int command_attach(int argc, char **argv)
{
	static const int signals[] = { SIGINT, SIGQUIT, SIGTERM, SIGHUP, 0 };
	struct attachment self = { .signal_fd = -1 };
	int error, status = EXIT_OK;

	if (attach_options_parse(&self.options, argc, argv))
		return command_failed();
	log_quiet(self.options.record.quiet);
	log_verbose(self.options.record.verbose);
	if (!self.options.names_vm) {
		status = list_vms();
	} else {
		self.signal_fd = record_signals(signals);
		error = self.signal_fd < 0 ? self.signal_fd : record(&self);
		if (error)
			status = command_failed();
		if (error == -ENOTSUP)
			status = EXIT_UNSUPPORTED;
	}
	session_close(self.session);
	host_images_free(self.host);
	image_parser_end(self.parser);
	attach_close(self.attach);
	sandbox_broker_end(self.broker);
	if (self.signal_fd >= 0)
		close(self.signal_fd);
	attach_options_free(&self.options);
	return status;
}
