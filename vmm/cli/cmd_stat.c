/* SPDX-License-Identifier: Apache-2.0 */
/* kvmscope stat: where the wall time of a VM's vCPUs goes, and their exits by reason. */
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shared/clock_ns.h"
#include "shared/error.h"
#include "shared/log.h"
#include "shared/option_table.h"
#include "vmm/attach/exit_counter.h"
#include "vmm/attach/monitor.h"
#include "vmm/attach/process.h"
#include "vmm/cli/command.h"
#include "vmm/cli/exit_table.h"
#include "vmm/cli/record_progress.h"
#include "vmm/cli/screen.h"

struct arguments {
	pid_t pid;
	struct monitor_address monitor;
	unsigned int time, interval; /* s; 0: none */
	bool per_vcpu, accesses, json, verbose;
};

/* What has been counted until AT, when the times were read: the rest takes longer. */
struct reading {
	uint64_t at;            /* ns of CLOCK_MONOTONIC */
	double clock;           /* s of CLOCK_MONOTONIC_RAW, the same moment */
	struct exit_rows exits; /* merged by vCPU */
	struct vcpu_times_rows times;
	struct access_rows accesses; /* the same */
};

struct exit_statistics {
	struct arguments arguments;
	struct vmm_process *process;
	struct exit_counter *counter;     /* NULL: BPF does not work here */
	char missing[ERROR_MESSAGE_SIZE]; /* why not everything can be measured, or empty */
	int signal_fd;
	/* What was counted at the start, which was at STARTED ms of CLOCK_MONOTONIC, and, with
	 * --interval, at the start of the interval. */
	struct reading first, reported;
	uint64_t started;
};

#define AT(field) .offset = offsetof(struct arguments, field)

static const struct option_row vm_rows[] = {
	{ "pid", "PID", "The process of the VM: QEMU or another VMM", OPTION_NUMBER, AT(pid),
	  .letter = 'p', .low = 1, .high = INT_MAX },
	{ "domain", "NAME", "The running libvirt domain NAME", OPTION_TEXT, AT(monitor.domain) },
	{ "connect", "URI", "libvirt's URI for --domain, as for virsh", OPTION_TEXT,
	  AT(monitor.uri) },
	{ 0 },
};

static const struct option_row rows[] = {
	{ "time", "SECONDS", "End after SECONDS (at the VM's end, or SIGINT)", OPTION_NUMBER,
	  AT(time), .low = 1, .high = INT_MAX },
	{ "interval", "SECONDS", "Print a table every SECONDS, too", OPTION_NUMBER, AT(interval),
	  .letter = 'I', .low = 1, .high = INT_MAX },
	{ "accesses", NULL, "MMIO, ports, MSRs and hypercalls by address, too", OPTION_SET,
	  AT(accesses) },
	{ "per-vcpu", NULL, "A table for each vCPU", OPTION_SET, AT(per_vcpu) },
	{ "json", NULL, "Print JSON, one object per table", OPTION_SET, AT(json) },
	{ "verbose", NULL, "Print details", OPTION_SET, AT(verbose), .letter = 'v' },
	{ 0 },
};

static const char summary[] =
	"Measure where the wall time of a running VM's vCPUs goes: to the guest, KVM, the VMM, other "
	"threads, or sleep; count why they leave the guest, and how long it takes until they enter it "
	"again. The VM is not stopped, and nothing is recorded."
	"\v"
	"Examples:\n"
	"  kvmscope stat --pid $(pidof qemu-system-x86_64) --time 10\n"
	"      the wall time and the exits of ten seconds, most time first\n"
	"  kvmscope stat --domain web --connect qemu:///system --interval 1\n"
	"      a table each second, until Ctrl-C\n"
	"\n"
	"An exit counts when the vCPU enters the guest again, as in perf kvm stat. Its\n"
	"time includes what KVM, the VMM and the host's scheduler did in between; the\n"
	"time of HLT is mostly idle time. It needs root, or CAP_BPF and CAP_PERFMON;\n"
	"without them, or KVM's tracepoints, it reports the times that it can get.\n"
	"\n"
	"Exit status: 0; 1 something failed; 2 wrong usage; 4 this host cannot do it.\n";

static int check(void *target)
{
	const struct arguments *arguments = target;

	if (!arguments->pid && !arguments->monitor.domain)
		return error_set(-EINVAL, "no VM is selected: --pid or --domain (kvmscope attach "
					  "lists the VMs)");
	if (arguments->pid && arguments->monitor.domain)
		return error_set(-EINVAL, "--domain selects the VM: it excludes --pid");
	if (arguments->monitor.uri && !arguments->monitor.domain)
		return error_set(-EINVAL, "--connect is for --domain, which is missing");
	return 0;
}

/* Tables */

static void show_table(const struct exit_statistics *self, const struct exit_table *table)
{
	if (self->arguments.json) {
		json_t *json = exit_table_json(table);

		screen_print_json(json);
		json_decref(json);
	} else {
		exit_table_print(table, stdout);
	}
}

static void show_part(const struct exit_statistics *self, struct exit_table *table,
		      struct exit_row *first, double end)
{
	exit_rows_sort(first, table->count);
	access_rows_sort(table->accesses, table->access_count);
	table->rows = first;
	table->end = end;
	table->with_accesses = self->arguments.accesses;
	table->missing = self->missing;
	table->detail = exit_counter_detail(self->counter);
	show_table(self, table);
}

static void show_vcpus(const struct exit_statistics *self, const struct reading *reading, double ns)
{
	struct exit_row *exits = reading->exits.rows;
	struct access_row *accesses = reading->accesses.rows;
	size_t row = 0, access = 0, first_row, first_access;

	for (size_t i = 0; i < reading->times.count; i++) {
		struct exit_table table = { .times = reading->times.rows[i],
					    .of_vcpu = true,
					    .seconds = ns / 1e9,
					    .wall = ns };

		first_row = row;
		while (row < reading->exits.count && exits[row].counts.vcpu == table.times.vcpu)
			row++;
		table.count = row - first_row;
		first_access = access;
		while (access < reading->accesses.count &&
		       accesses[access].counts.vcpu == table.times.vcpu)
			access++;
		table.access_count = access - first_access;
		table.accesses = accesses ? accesses + first_access : NULL;
		show_part(self, &table, exits ? exits + first_row : NULL, reading->clock);
	}
}

/* Shows READING, which is of the time since START; the order of its exits changes. */
static void show(struct exit_statistics *self, struct reading *reading, uint64_t start)
{
	double ns = (double)(reading->at - start);
	size_t vcpus = reading->times.count ? reading->times.count : 1;

	if (self->arguments.per_vcpu) {
		show_vcpus(self, reading, ns);
	} else {
		struct exit_table table = { .times = vcpu_times_sum(&reading->times),
					    .seconds = ns / 1e9,
					    .wall = ns * (double)vcpus };

		exit_rows_merge(&reading->exits, false);
		access_rows_merge(&reading->accesses, false);
		table.count = reading->exits.count;
		table.accesses = reading->accesses.rows;
		table.access_count = reading->accesses.count;
		show_part(self, &table, reading->exits.rows, reading->clock);
	}
	fflush(stdout);
	if (reading->exits.lost)
		log_warning("%llu exits were not counted: there are too many kinds of exits",
			    (unsigned long long)reading->exits.lost);
	if (reading->accesses.lost)
		log_warning("%llu accesses were not counted: there are too many addresses",
			    (unsigned long long)reading->accesses.lost);
}

/* Readings */

static void reading_free(struct reading *reading)
{
	free(reading->exits.rows);
	free(reading->accesses.rows);
	vcpu_times_free(&reading->times);
	*reading = (struct reading){ 0 };
}

static int read_times(struct exit_statistics *self, struct reading *reading)
{
	int error;

	*reading = (struct reading){ 0 };
	if (!self->counter)
		vmm_process_scan(self->process);
	error = self->counter ? exit_counter_times(self->counter, &reading->times)
			      : vcpu_times_read_proc(self->process, &reading->times);
	reading->at = clock_ns(CLOCK_MONOTONIC);
	reading->clock = (double)clock_ns(CLOCK_MONOTONIC_RAW) / 1e9;
	return error;
}

/* On an error there is nothing to free. */
static int read_counts(struct exit_statistics *self, struct reading *reading)
{
	int error = read_times(self, reading);

	if (error || !self->counter)
		return error;
	error = exit_counter_read(self->counter, &reading->exits);
	if (!error) {
		exit_rows_merge(&reading->exits, true);
		error = exit_counter_accesses(self->counter, &reading->accesses);
	}
	if (error)
		reading_free(reading);
	else
		access_rows_merge(&reading->accesses, true);
	return error;
}

/* Shows what was counted since BEFORE was read. */
static int show_since(struct exit_statistics *self, const struct reading *before)
{
	struct reading now;
	int error = read_counts(self, &now);

	if (error)
		return error;
	exit_rows_subtract(&now.exits, &before->exits);
	access_rows_subtract(&now.accesses, &before->accesses);
	vcpu_times_subtract(&now.times, &before->times);
	show(self, &now, before->at);
	reading_free(&now);
	return 0;
}

/* The whole program */

static int show_interval(struct exit_statistics *self)
{
	int error = show_since(self, &self->reported);

	reading_free(&self->reported);
	if (!error)
		error = read_counts(self, &self->reported);
	return error;
}

/* ms until the next table or the end, at most a second. */
static int time_left(const struct exit_statistics *self)
{
	int left = record_time_left(self->started, self->arguments.time);
	int next = record_time_left(self->reported.at / NS_PER_MS, self->arguments.interval);

	return next < left ? next : left;
}

/* Until the VM ends, the time has passed, or a signal arrives. */
static int wait_for_end(struct exit_statistics *self)
{
	struct pollfd events[] = {
		{ .fd = self->process->pid_fd, .events = POLLIN },
		{ .fd = self->signal_fd, .events = POLLIN },
	};
	int error = 0;

	do {
		if (poll(events, 2, time_left(self)) < 0)
			events[0].revents = events[1].revents = 0;
		if (self->arguments.interval &&
		    !record_time_left(self->reported.at / NS_PER_MS, self->arguments.interval))
			error = show_interval(self);
	} while (!error && !events[0].revents && !events[1].revents &&
		 record_time_left(self->started, self->arguments.time));
	return error;
}

/* Without BPF, the times that /proc shows are reported. */
static void open_counter(struct exit_statistics *self, pid_t pid)
{
	int error = exit_counter_open(&self->counter, pid, self->arguments.accesses);

	if (!error)
		error = exit_counter_follow(self->counter, self->process);
	if (error) {
		exit_counter_close(self->counter);
		self->counter = NULL;
		snprintf(self->missing, sizeof(self->missing), "%s", error_message());
		log_warning(
			"%s. Exits are not counted; guest, KVM and VMM are not distinguished, nor "
			"halted and blocked",
			self->missing);
	} else if (exit_counter_missing(self->counter)) {
		snprintf(self->missing, sizeof(self->missing), "%s",
			 exit_counter_missing(self->counter));
		log_warning("%s. Exits are not counted; guest, KVM and VMM are not distinguished",
			    self->missing);
	}
}

static int count(struct exit_statistics *self)
{
	const struct arguments *arguments = &self->arguments;
	pid_t pid = arguments->pid;
	int error = pid ? 0 : monitor_find_process(&arguments->monitor, &pid);

	if (!error)
		error = vmm_process_open(&self->process, pid, 0);
	if (error == -E2BIG)
		return error_set(error,
				 "process %d has several VMs: kvmscope stat cannot count "
				 "the exits of one of them",
				 pid);
	if (error)
		return error;
	open_counter(self, pid);
	log_info("measuring process %d (%s), %zu vCPU%s", pid, self->process->name,
		 self->process->vcpu_count, self->process->vcpu_count == 1 ? "" : "s");
	error = read_counts(self, &self->first);
	/* Rows without an earlier one keep their maximum. */
	free(self->first.exits.rows);
	free(self->first.accesses.rows);
	self->first.exits = (struct exit_rows){ 0 };
	self->first.accesses = (struct access_rows){ 0 };
	if (!error)
		error = read_counts(self, &self->reported);
	self->started = clock_ms(CLOCK_MONOTONIC);
	if (!error)
		error = wait_for_end(self);
	return error ? error : show_since(self, &self->first);
}

int command_stat(int argc, char **argv)
{
	static const int signals[] = { SIGINT, SIGQUIT, SIGTERM, SIGHUP, 0 };
	struct exit_statistics self = { .signal_fd = -1 };
	const struct option_group groups[] = {
		{ .title = "The VM:", .rows = vm_rows, .target = &self.arguments, .check = check },
		{ .title = "The counts:", .rows = rows, .target = &self.arguments },
		{ 0 },
	};
	const struct option_command line = { .name = "kvmscope stat",
					     .doc = summary,
					     .groups = groups,
					     .hint = "--pid or --domain selects the VM" };
	int error, status = EXIT_OK;

	if (option_table_parse(&line, argc, argv))
		return command_failed();
	log_verbose(self.arguments.verbose);
	self.signal_fd = record_signals(signals);
	error = self.signal_fd < 0 ? self.signal_fd : count(&self);
	if (error)
		status = command_failed();
	if (error == -ENOTSUP)
		status = EXIT_UNSUPPORTED;
	exit_counter_close(self.counter);
	vmm_process_close(self.process);
	reading_free(&self.first);
	reading_free(&self.reported);
	if (self.signal_fd >= 0)
		close(self.signal_fd);
	return status;
}
