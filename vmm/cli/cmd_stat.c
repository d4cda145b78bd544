/* SPDX-License-Identifier: Apache-2.0 */
/* kvmscope stat: counts the exits of a VM by reason, and the time outside of the guest. */
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
#include "vmm/cli/record_progress.h"
#include "vmm/cli/screen.h"

struct arguments {
	pid_t pid;
	struct monitor_address monitor;
	unsigned int time, interval; /* s; 0: none */
	bool per_vcpu, json, verbose;
};

struct exit_statistics {
	struct arguments arguments;
	struct vmm_process *process;
	struct exit_counter *counter;
	int signal_fd;
	uint64_t started;          /* ms of CLOCK_MONOTONIC */
	struct exit_rows reported; /* with --interval: at its beginning */
	uint64_t reported_at;
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
	{ "per-vcpu", NULL, "A table for each vCPU", OPTION_SET, AT(per_vcpu) },
	{ "json", NULL, "Print JSON, one object per table", OPTION_SET, AT(json) },
	{ "verbose", NULL, "Print details", OPTION_SET, AT(verbose), .letter = 'v' },
	{ 0 },
};

static const char summary[] =
	"Count why the vCPUs of a running VM leave the guest, and how long it takes until they enter it "
	"again. The VM is not stopped, and nothing is recorded."
	"\v"
	"Examples:\n"
	"  kvmscope stat --pid $(pidof qemu-system-x86_64) --time 10\n"
	"      the exits of ten seconds, those that took the most time first\n"
	"  kvmscope stat --domain web --connect qemu:///system --interval 1\n"
	"      a table each second, until Ctrl-C\n"
	"\n"
	"An exit counts when the vCPU enters the guest again, as in perf kvm stat. Its\n"
	"time includes what KVM, the VMM and the host's scheduler did in between; the\n"
	"time of HLT is mostly idle time. It needs root, or CAP_BPF and CAP_PERFMON.\n"
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

/* Rows */

static int compare_reasons(const void *left, const void *right)
{
	const struct exit_row *one = left, *other = right;

	return one->reason < other->reason ? -1 : one->reason > other->reason;
}

static int compare_vcpus(const void *left, const void *right)
{
	const struct exit_row *one = left, *other = right;

	return one->counts.vcpu != other->counts.vcpu
		       ? (one->counts.vcpu < other->counts.vcpu ? -1 : 1)
		       : compare_reasons(left, right);
}

static int compare_times(const void *left, const void *right)
{
	const struct exit_row *one = left, *other = right;

	return one->counts.ns != other->counts.ns ? (one->counts.ns < other->counts.ns ? 1 : -1)
						  : compare_reasons(left, right);
}

/* Merges rows of the same reason, and of the same vCPU if BY_VCPU. */
static void merge(struct exit_rows *exits, bool by_vcpu)
{
	size_t count = 0;

	qsort(exits->rows, exits->count, sizeof(exits->rows[0]),
	      by_vcpu ? compare_vcpus : compare_reasons);
	for (size_t i = 0; i < exits->count; i++) {
		struct exit_row *last = count ? &exits->rows[count - 1] : NULL;

		if (last && last->reason == exits->rows[i].reason &&
		    (!by_vcpu || last->counts.vcpu == exits->rows[i].counts.vcpu))
			exit_row_add(last, &exits->rows[i]);
		else
			exits->rows[count++] = exits->rows[i];
	}
	exits->count = count;
}

/* Both are merged by vCPU. Rows without exits since EARLIER are removed. */
static void subtract(struct exit_rows *exits, const struct exit_rows *earlier)
{
	size_t count = 0, before = 0;

	for (size_t i = 0; i < exits->count; i++) {
		struct exit_row row = exits->rows[i];

		while (before < earlier->count && compare_vcpus(&earlier->rows[before], &row) < 0)
			before++;
		if (before < earlier->count && !compare_vcpus(&earlier->rows[before], &row))
			exit_row_subtract(&row, &earlier->rows[before]);
		if (row.counts.count)
			exits->rows[count++] = row;
	}
	exits->count = count;
}

/* Tables */

struct table {
	const struct exit_row *rows;
	size_t count;
	uint64_t vcpu;  /* UINT64_MAX: all */
	double seconds; /* of wall time */
	double share;   /* the wall time of these vCPUs in percent of a ns */
};

/* TEXT with three digits and a unit, as perf bench prints times. */
static const char *duration(double ns, char text[16])
{
	if (ns < 999.5)
		snprintf(text, 16, "%.0f ns", ns);
	else if (ns < 999.5e3)
		snprintf(text, 16, "%.*f us", ns < 9.995e3 ? 2 : ns < 99.95e3 ? 1 : 0, ns / 1e3);
	else if (ns < 999.5e6)
		snprintf(text, 16, "%.*f ms", ns < 9.995e6 ? 2 : ns < 99.95e6 ? 1 : 0, ns / 1e6);
	else
		snprintf(text, 16, "%.2f s", ns / 1e9);
	return text;
}

static void print_row(const struct table *table, const struct exit_row *row)
{
	char name[EXIT_NAME_SIZE], mean[16], half[16], most[16], longest[16] = "";
	const struct exit_counts *counts = &row->counts;

	if (counts->ns_max)
		duration((double)counts->ns_max, longest);
	printf("%-24s %11llu %11.1f %8.2f %9s %9s %9s %9s\n",
	       exit_reason_name(counts->isa, row->reason, name), (unsigned long long)counts->count,
	       (double)counts->count / table->seconds, (double)counts->ns * table->share,
	       duration((double)counts->ns / (double)counts->count, mean),
	       duration((double)exit_row_percentile(row, 0.5), half),
	       duration((double)exit_row_percentile(row, 0.99), most), longest);
}

static void print_table(const struct table *table)
{
	struct exit_row total = { 0 };

	if (table->vcpu != UINT64_MAX)
		printf("vCPU %u:\n", (unsigned int)table->vcpu);
	printf("%-24s %11s %11s %8s %9s %9s %9s %9s\n", "exit reason", "exits", "exits/s", "time %",
	       "mean", "p50", "p99", "max");
	for (size_t i = 0; i < table->count; i++) {
		print_row(table, &table->rows[i]);
		exit_row_add(&total, &table->rows[i]);
	}
	printf("%-24s %11llu %11.1f %8.2f\n\n", "all", (unsigned long long)total.counts.count,
	       (double)total.counts.count / table->seconds, (double)total.counts.ns * table->share);
}

static json_t *row_json(const struct table *table, const struct exit_row *row)
{
	const struct exit_counts *counts = &row->counts;
	char name[EXIT_NAME_SIZE];
	json_t *json = json_pack("{s:s, s:I, s:I, s:f, s:I, s:I}", "reason",
				 exit_reason_name(counts->isa, row->reason, name), "exits",
				 (json_int_t)counts->count, "ns", (json_int_t)counts->ns, "percent",
				 (double)counts->ns * table->share, "p50_ns",
				 (json_int_t)exit_row_percentile(row, 0.5), "p99_ns",
				 (json_int_t)exit_row_percentile(row, 0.99));

	if (counts->ns_max)
		json_object_set_new(json, "max_ns", json_integer((json_int_t)counts->ns_max));
	return json;
}

static json_t *table_json(const struct table *table)
{
	json_t *json = json_array(), *object;

	for (size_t i = 0; i < table->count; i++)
		json_array_append_new(json, row_json(table, &table->rows[i]));
	object = json_pack("{s:f, s:o}", "seconds", table->seconds, "exits", json);
	if (table->vcpu != UINT64_MAX)
		json_object_set_new(object, "vcpu", json_integer((json_int_t)table->vcpu));
	return object;
}

static void show_table(const struct exit_statistics *self, const struct table *table)
{
	if (self->arguments.json) {
		json_t *json = table_json(table);

		screen_print_json(json);
		json_decref(json);
	} else {
		print_table(table);
	}
}

/* Shows the first rows of EXITS that are of one table. Returns their number. */
static size_t show_part(const struct exit_statistics *self, struct exit_row *first, size_t count,
			double ns)
{
	const bool per_vcpu = self->arguments.per_vcpu;
	const size_t vcpus = per_vcpu || !self->process->vcpu_count ? 1 : self->process->vcpu_count;
	struct table table = { .rows = first,
			       .vcpu = per_vcpu && count ? first->counts.vcpu : UINT64_MAX,
			       .seconds = ns / 1e9,
			       .share = 100.0 / (ns * (double)vcpus) };

	while (table.count < count &&
	       (!per_vcpu || first[table.count].counts.vcpu == first->counts.vcpu))
		table.count++;
	qsort(first, table.count, sizeof(*first), compare_times);
	show_table(self, &table);
	return table.count;
}

/* EXITS are merged by vCPU; their order changes. */
static void show(const struct exit_statistics *self, struct exit_rows *exits, uint64_t since)
{
	double ns = (double)(clock_ns(CLOCK_MONOTONIC) - since);
	size_t shown = 0;

	if (!self->arguments.per_vcpu)
		merge(exits, false);
	do {
		shown += show_part(self, exits->rows + shown, exits->count - shown, ns);
	} while (shown < exits->count);
	fflush(stdout);
	if (exits->lost)
		log_warning("%llu exits were not counted: there are too many kinds of exits",
			    (unsigned long long)exits->lost);
}

/* The whole program */

static int show_interval(struct exit_statistics *self)
{
	struct exit_rows now, *before = &self->reported;
	size_t size;
	int error = exit_counter_read(self->counter, &now);
	struct exit_row *kept;

	if (error)
		return error;
	merge(&now, true);
	size = now.count * sizeof(now.rows[0]);
	kept = malloc(size ? size : 1);
	if (!kept) {
		free(now.rows);
		return error_set(-ENOMEM, "no memory for the counts of exits");
	}
	if (size)
		memcpy(kept, now.rows, size);
	subtract(&now, before);
	free(before->rows);
	*before = (struct exit_rows){ .rows = kept, .count = size / sizeof(*kept) };
	show(self, &now, self->reported_at);
	free(now.rows);
	self->reported_at = clock_ns(CLOCK_MONOTONIC);
	return 0;
}

static int show_all(const struct exit_statistics *self)
{
	struct exit_rows exits;
	int error = exit_counter_read(self->counter, &exits);

	if (error)
		return error;
	merge(&exits, true);
	show(self, &exits, self->started * NS_PER_MS);
	free(exits.rows);
	return 0;
}

/* ms until the next table or the end, at most a second. */
static int time_left(const struct exit_statistics *self)
{
	int left = record_time_left(self->started, self->arguments.time);
	int next = record_time_left(self->reported_at / NS_PER_MS, self->arguments.interval);

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
		    !record_time_left(self->reported_at / NS_PER_MS, self->arguments.interval))
			error = show_interval(self);
	} while (!error && !events[0].revents && !events[1].revents &&
		 record_time_left(self->started, self->arguments.time));
	return error;
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
	if (!error)
		error = exit_counter_open(&self->counter, pid);
	if (error)
		return error;
	log_info("counting the exits of process %d (%s), %zu vCPU%s", pid, self->process->name,
		 self->process->vcpu_count, self->process->vcpu_count == 1 ? "" : "s");
	self->started = clock_ms(CLOCK_MONOTONIC);
	self->reported_at = clock_ns(CLOCK_MONOTONIC);
	error = wait_for_end(self);
	return error ? error : show_all(self);
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
	free(self.reported.rows);
	if (self.signal_fd >= 0)
		close(self.signal_fd);
	return status;
}
