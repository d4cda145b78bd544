/* SPDX-License-Identifier: Apache-2.0 */
/* kvmscope doctor: tries what this host can do, and shows what is lost where that fails. */
#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/option_table.h"
#include "vmm/attach/backend.h"
#include "vmm/attach/exit_counter.h"
#include "vmm/attach/monitor.h"
#include "vmm/cli/command.h"
#include "vmm/cli/screen.h"
#include "vmm/machine/host_probe.h"

static const char help[] =
	"Try what this host can do: row by row, each in a throw-away VM or on this process, and show what "
	"is lost where one fails.\v"
	"Exit status: 0 if Linux guests can be booted and profiled here, 4 if not.";

static const char *const state_words[] = {
	[PROBE_NO] = "no",
	[PROBE_PARTLY] = "partly",
	[PROBE_YES] = "yes",
};

/* The first row is about /dev/kvm. */
static bool has_kvm(const struct probe_row *rows, size_t count)
{
	return count && rows[0].state == PROBE_YES;
}

static const char *verdict(const struct probe_row *rows, size_t count)
{
	if (!has_kvm(rows, count))
		return "No guest can run here; the first row says why.";
	if (!probe_can_boot_linux(rows, count))
		return "This host's KVM cannot boot Linux. Your own guests that stay in user mode can be "
		       "profiled; for Linux use a machine with VT-x or AMD-V passed through.";
	return "Linux guests can be booted and profiled on this host.";
}

/* About running VMs. ATTACH are the rows of the backends; QEMU's monitor is the last one. */
static const char *attach_verdict(const struct probe_row *attach, size_t count)
{
	size_t works = 0;

	while (works < count && attach[works].state != PROBE_YES)
		works++;
	if (works == count)
		return "Running VMs cannot be profiled with the rights that you have here.";
	if (works == count - 1)
		return "Running VMs can be profiled only by QEMU's monitor or libvirt: kvmscope attach "
		       "--domain or --qmp.";
	return "Running VMs can be profiled: kvmscope attach lists them.";
}

static json_t *row_json(const struct probe_row *row)
{
	return json_pack("{s:s, s:s, s:s, s:s, s:b, s:s?, s:s?}", "id", row->id, "name", row->name,
			 "state", state_words[row->state], "detail", row->detail,
			 "needed_for_linux", row->for_linux, "lost",
			 row->state == PROBE_YES ? NULL : row->lost, "takes", row->takes);
}

static int print_json(const struct probe_row *rows, size_t count, const struct probe_row *attach,
		      size_t attach_count)
{
	bool can_boot = probe_can_boot_linux(rows, count);
	json_t *list = json_array();
	json_t *report;
	int error;

	for (size_t i = 0; i < count; i++)
		json_array_append_new(list, row_json(&rows[i]));
	for (size_t i = 0; i < attach_count; i++)
		json_array_append_new(list, row_json(&attach[i]));
	report = json_pack("{s:s, s:b, s:s, s:o}", "version", KVMSCOPE_VERSION, "can_boot_linux",
			   can_boot, "verdict", verdict(rows, count), "rows", list);
	error = report ? json_dumpf(report, stdout, JSON_INDENT(2)) : -1;
	putchar('\n');
	json_decref(report);
	return error ? error_set(-EIO, "cannot write the JSON report to standard output") : 0;
}

static const char *colour(enum probe_state state)
{
	static const char *const colours[] = {
		[PROBE_NO] = "\033[31m",
		[PROBE_PARTLY] = "\033[33m",
		[PROBE_YES] = "\033[32m",
	};

	return colours[state];
}

/* Prints TEXT from column INDENT on, with line breaks at COLUMNS; 0: without. */
static void print_words(const char *text, unsigned int indent, unsigned int columns)
{
	unsigned int column = indent;

	while (*text) {
		size_t length = strcspn(text, " ");

		if (columns && column > indent && column + 1 + length > columns)
			column = (unsigned int)printf("\n%*s", (int)indent, "") - 1;
		column += (unsigned int)printf("%s%.*s", column > indent ? " " : "", (int)length,
					       text);
		text += length + (text[length] == ' ');
	}
	putchar('\n');
}

/* The result is printed beside the name, or below it on a narrow terminal. */
enum { NAME_WIDTH = 36, BESIDE = 8 + NAME_WIDTH + 2, BELOW = 8, NARROW = 110 };

static void print_more(const char *what, const char *text, unsigned int indent)
{
	char line[256];

	snprintf(line, sizeof(line), "%s: %s", what, text);
	printf("%*s", (int)indent, "");
	print_words(line, indent, screen_columns());
}

static void print_row(const struct probe_row *row, bool colours)
{
	unsigned int columns = screen_columns();
	bool below = columns && columns < NARROW;
	unsigned int indent = below ? BELOW : BESIDE;

	printf("%s%-6s%s  %-*s", colours ? colour(row->state) : "", state_words[row->state],
	       colours ? "\033[0m" : "", below ? 0 : NAME_WIDTH + 2, row->name);
	if (below)
		printf("\n%*s", BELOW, "");
	print_words(row->detail, indent, columns);
	if (row->takes)
		print_more("takes", row->takes, indent);
	if (row->state != PROBE_YES)
		print_more("lost", row->lost, indent);
}

static void print_verdict(const char *text, bool colours)
{
	printf("%s", colours ? "\033[1m" : "");
	print_words(text, 0, screen_columns());
	printf("%s", colours ? "\033[0m" : "");
}

static void print_table(const struct probe_row *rows, size_t count, const struct probe_row *attach,
			size_t attach_count)
{
	bool colours = screen_has_color();

	for (size_t i = 0; i < count; i++)
		if (!rows[i].untried)
			print_row(&rows[i], colours);
	for (size_t i = 0; i < attach_count; i++)
		print_row(&attach[i], colours);
	putchar('\n');
	print_verdict(verdict(rows, count), colours);
	print_verdict(attach_verdict(attach, attach_count - 1 /* kvmscope stat */), colours);
}

/* The right to read the VM's memory and to stop its threads. */
#define ATTACH_ROWS_MAX 8
#define MEMORY          "CAP_SYS_PTRACE as the VM's user"

static const struct {
	const char *backend, *id, *name, *lost, *takes;
} ways[] = {
	{ "bpf", "attach.by_bpf", "kvmscope attach by BPF",
	  "VMs are sampled without call chains, by perf if that works.",
	  "root, or CAP_BPF and CAP_PERFMON, CAP_SYS_ADMIN where KVM is a module, and for symbols " MEMORY },
	{ "perf", "attach.by_perf", "kvmscope attach by perf",
	  "VMs cannot be sampled without stopping them.",
	  "root, or CAP_PERFMON, and for symbols " MEMORY },
	{ "ptrace", "attach.by_ptrace", "kvmscope attach by ptrace",
	  "VMs can be sampled only where BPF or perf works.", "root, or " MEMORY },
};

static void set_result(struct probe_row *row, enum probe_state state, const char *detail)
{
	row->state = state;
	snprintf(row->detail, sizeof(row->detail), "%.*s", (int)sizeof(row->detail) - 1, detail);
}

/* QEMU's monitor needs a socket only; domains need libvirt's library. */
static void try_monitor(struct probe_row *row)
{
	int error;

	*row = (struct probe_row){
		.id = "attach.by_qmp",
		.name = "kvmscope attach by monitor",
		.lost = "Guests without KVM cannot be sampled.",
		.takes = "for domains the rights that libvirt requires (root, or Debian's group "
			 "libvirt), else a QMP socket that you may use"
	};
	error = monitor_trial();
	if (error && error != -ENOENT) {
		set_result(row, PROBE_NO, error_message());
	} else if (attach_qmp.probe()) {
		set_result(row, error ? PROBE_NO : PROBE_PARTLY, error_message());
		row->lost =
			"Domains cannot be selected by --domain; guests without KVM need a QMP socket of their own.";
	} else if (error) {
		set_result(
			row, PROBE_PARTLY,
			"libvirt's library is installed; there is no QEMU (qemu-system-x86_64) to try its monitor");
		row->lost = "Guests without KVM cannot be sampled if their QEMU is older than 7.2.";
	} else {
		set_result(
			row, PROBE_YES,
			"a QEMU was started, and its monitor reported vCPUs, memory and registers; libvirt's "
			"library is installed for domains");
	}
}

/* Tries each backend as far as that is possible without a VM. Returns the number of ROWS. */
static size_t try_backends(struct probe_row *rows)
{
	size_t count = 0;

	for (; count < sizeof(ways) / sizeof(ways[0]); count++) {
		const struct attach_backend *backend = attach_backend_find(ways[count].backend);
		struct probe_row *row = &rows[count];
		int error = backend->probe();

		*row = (struct probe_row){ .id = ways[count].id,
					   .name = ways[count].name,
					   .lost = ways[count].lost,
					   .takes = ways[count].takes };
		set_result(row, error ? PROBE_NO : PROBE_YES,
			   error ? error_message() : backend->is);
	}
	try_monitor(&rows[count++]);
	return count;
}

/* The programs are loaded and attached; this process has no vCPUs. */
static void try_stat(struct probe_row *row)
{
	struct exit_counter *counter;

	*row = (struct probe_row){
		.id = "stat",
		.name = "kvmscope stat, events kvm:exit and kvm:off-cpu",
		.lost = "Exits are not counted or sampled; guest, KVM and VMM are not "
			"distinguished, nor halted and blocked vCPUs.",
		.takes = "root, or CAP_BPF, CAP_PERFMON and access to tracefs"
	};
	if (exit_counter_open(&counter, getpid(), true)) {
		set_result(row, PROBE_NO, error_message());
		return;
	}
	if (exit_counter_missing(counter)) {
		set_result(row, PROBE_PARTLY, exit_counter_missing(counter));
		row->lost = "Exits are not counted or sampled, and guest, KVM and VMM are not "
			    "distinguished.";
	} else {
		set_result(
			row, PROBE_YES,
			"BPF programs count exits and accesses and measure times, at tracepoints of KVM and "
			"the scheduler");
	}
	exit_counter_close(counter);
}

int command_doctor(int argc, char **argv)
{
	bool json = false, can_boot;
	const struct option_row options[] = {
		{ "json", NULL, "Print JSON for programs", OPTION_SET, .letter = 'j' },
		{ 0 },
	};
	const struct option_group groups[] = { { .rows = options, .target = &json }, { 0 } };
	const struct option_command table = { .name = "kvmscope doctor",
					      .doc = help,
					      .groups = groups };
	struct probe_row *rows, attach[ATTACH_ROWS_MAX];
	size_t count, attach_count;

	if (option_table_parse(&table, argc, argv) || probe_all(&rows, &count))
		return command_failed();
	attach_count = try_backends(attach);
	try_stat(&attach[attach_count++]);
	can_boot = probe_can_boot_linux(rows, count);
	if (!json)
		print_table(rows, count, attach, attach_count);
	else if (print_json(rows, count, attach, attach_count))
		return command_failed();
	probe_free(rows, count);
	return can_boot ? EXIT_OK : EXIT_UNSUPPORTED;
}
