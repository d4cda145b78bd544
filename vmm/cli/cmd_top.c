/* SPDX-License-Identifier: Apache-2.0 */
/* kvmscope top: what the VMs of this host do now. */
#include <errno.h>
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
#include "vmm/attach/monitor.h"
#include "vmm/cli/command.h"
#include "vmm/cli/record_options.h"
#include "vmm/cli/record_progress.h"
#include "vmm/cli/screen.h"
#include "vmm/cli/top_display.h"
#include "vmm/cli/top_print.h"
#include "vmm/cli/top_vms.h"

/* ms between two scans for VMs, at least and at most. On a host with many processes, a scan takes
 * long: all of them may use 1 / SCAN_SHARE of a CPU. */
#define SCAN_INTERVAL     3000
#define SCAN_INTERVAL_MAX 10000
#define SCAN_SHARE        200
/* ms beyond two intervals after which a table is printed without the reports that are missing. */
#define PATIENCE    3000
#define BATCH_LIMIT 30 /* functions of a table */

struct arguments {
	struct top_worker_options vm;
	struct monitor_address monitor;
	struct top_view view;
	unsigned int tables; /* 0: until the end */
	unsigned int limit;  /* functions */
	bool batch, json;
};

struct top {
	struct arguments arguments;
	struct top_vms *vms;
	struct top_display *display; /* NULL: --batch */
	int signal_fd;
	uint64_t next_scan, shown; /* ms of CLOCK_MONOTONIC */
	unsigned int tables;       /* printed */
};

static int parse_delay(void *target, char *text)
{
	double *delay = &((struct arguments *)target)->view.delay;
	char *end;

	*delay = strtod(text, &end);
	if (end == text || text[strspn(text, "0123456789.")] || *delay < TOP_DELAY_MIN ||
	    *delay > TOP_DELAY_MAX)
		return error_set(-EINVAL,
				 "--delay %s: it must be a number of seconds from %.1f to "
				 "%.0f",
				 text, TOP_DELAY_MIN, TOP_DELAY_MAX);
	return 0;
}

static int parse_filter(void *target, char *text)
{
	struct top_view *view = &((struct arguments *)target)->view;

	if (strlen(text) >= sizeof(view->filter))
		return error_set(-EINVAL, "--filter: at most %zu bytes are possible",
				 sizeof(view->filter) - 1);
	strcpy(view->filter, text);
	return 0;
}

#define AT(field) .offset = offsetof(struct arguments, field)

static const struct option_row vm_rows[] = {
	{ "pid", "PID", "Only the VM of this process", OPTION_NUMBER, AT(vm.pid), .letter = 'p',
	  .low = 1, .high = INT_MAX },
	{ "vm", "N", "One of several VMs of --pid, by its descriptor", OPTION_NUMBER, AT(vm.vm),
	  .low = 1, .high = INT_MAX },
	{ "domain", "NAME", "Only the running libvirt domain NAME", OPTION_TEXT,
	  AT(monitor.domain) },
	{ "connect", "URI", "libvirt's URI for --domain, as for virsh", OPTION_TEXT,
	  AT(monitor.uri) },
	{ "freq", "HZ", "Samples per second and vCPU, up to 10000 (99)", OPTION_NUMBER,
	  AT(vm.frequency), .letter = 'F', .low = 1, .high = RECORD_FREQUENCY_MAX },
	{ "no-call-graph", NULL, "Record no call chains: Enter shows no callers", OPTION_CLEAR,
	  AT(vm.callchains) },
	{ "vmlinux", "FILE", "Kernel symbols: the guest's vmlinux, with one VM", OPTION_TEXT,
	  AT(vm.vmlinux), .letter = 'k' },
	{ 0 },
};

static const struct option_row view_rows[] = {
	{ "delay", "SECONDS", "Length of an interval (2)", OPTION_PARSE, .letter = 'd',
	  .parse = parse_delay },
	{ "sort", "KEY", "Functions by cpu, vm, process, function (cpu)", OPTION_CHOICE,
	  AT(view.sort), .letter = 's', .choices = top_sort_names },
	{ "filter", "TEXT", "Only functions, images, processes, VMs with TEXT", OPTION_PARSE,
	  .letter = 'f', .parse = parse_filter },
	{ "per-vcpu", NULL, "A line for each vCPU, too", OPTION_SET, AT(view.per_vcpu) },
	{ "batch", NULL, "Print tables instead of using the terminal's screen", OPTION_SET,
	  AT(batch), .letter = 'b' },
	{ "json", NULL, "Print JSON, one object per interval", OPTION_SET, AT(json) },
	{ "iterations", "N", "End after N tables (with --batch or --json)", OPTION_NUMBER,
	  AT(tables), .letter = 'n', .low = 1, .high = INT_MAX },
	{ "verbose", NULL, "Print details (with --batch or --json)", OPTION_SET, AT(vm.verbose),
	  .letter = 'v' },
	{ "limit", "ROWS", "Functions of a table of --batch (30)", OPTION_NUMBER, AT(limit),
	  .low = 1, .high = INT_MAX },
	{ 0 },
};

static const char summary[] =
	"Show live where the VMs of this host spend their time: the wall time of their vCPUs, their "
	"exits, and the hottest functions of all guests with their processes. The VMs are not "
	"stopped, and no recording is kept."
	"\v"
	"Examples:\n"
	"  kvmscope top\n"
	"      all VMs that this user may inspect; h shows the keys\n"
	"  kvmscope top --domain web --connect qemu:///system\n"
	"      one libvirt domain\n"
	"  kvmscope top --batch -n 1 -d 5\n"
	"      one table of five seconds\n"
	"  kvmscope top --json -n 1 | jq '.vms[0].functions[0]'\n"
	"\n"
	"%CPU is in percent of one CPU. The wall time is in percent of the time of all\n"
	"vCPUs, as in kvmscope stat. It needs the same rights as kvmscope attach.\n"
	"\n"
	"Exit status: 0; 1 something failed; 2 wrong usage; 4 this host cannot do it.\n";

static int check(void *target)
{
	struct arguments *arguments = target;
	bool one = arguments->vm.pid || arguments->monitor.domain;

	if (arguments->vm.pid && arguments->monitor.domain)
		return error_set(-EINVAL, "--domain selects the VM: it excludes --pid");
	if (arguments->vm.vm && !arguments->vm.pid)
		return error_set(-EINVAL, "--vm selects one VM of --pid, which is missing");
	if (arguments->monitor.uri && !arguments->monitor.domain)
		return error_set(-EINVAL, "--connect is for --domain, which is missing");
	if (arguments->vm.vmlinux && !one)
		return error_set(-EINVAL, "--vmlinux is for one VM: --pid or --domain selects it");
	arguments->batch |= arguments->json;
	if (arguments->tables && !arguments->batch)
		return error_set(-EINVAL, "-n is for --batch and --json");
	return 0;
}

static uint64_t delay_ms(const struct top *top)
{
	return (uint64_t)(top->arguments.view.delay * 1e3);
}

/* Tables */

static void print_tables(const struct top *top, struct top_vm *const *vms, size_t count)
{
	const struct top_view *view = &top->arguments.view;
	struct top_functions functions;

	if (top_functions_find(&functions, vms, count, view->sort, view->filter))
		return;
	top_print_summary(vms, count, view, stdout);
	top_print_vms(vms, count, view, stdout);
	putchar('\n');
	top_print_functions(&functions, 0, top->arguments.limit, count, view, stdout);
	putchar('\n');
	free(functions.rows);
}

static void print(struct top *top)
{
	struct top_vm *list[TOP_VMS_MAX];
	size_t count = top_vms_list(top->vms, list);

	if (top->arguments.json) {
		json_t *json = top_json(list, count);

		screen_print_json(json);
		json_decref(json);
	} else {
		print_tables(top, list, count);
	}
	fflush(stdout);
	top->tables++;
	top->shown = clock_ms(CLOCK_MONOTONIC);
	top_vms_expect_next(top->vms);
}

static void draw(const struct top *top)
{
	struct top_vm *list[TOP_VMS_MAX];

	top_display_draw(top->display, list, top_vms_list(top->vms, list));
}

/* The first table waits for all VMs: a guest's kernel may be searched for 20 s. Reports come a bit
 * earlier or later than each other; without any, tables are at equal times. */
static bool is_due(const struct top *top)
{
	uint64_t passed = clock_ms(CLOCK_MONOTONIC) - top->shown, delay = delay_ms(top);

	if (top->tables && passed > 2 * delay + PATIENCE)
		return true;
	return top_vms_are_complete(top->vms) && passed >= delay * 9 / 10;
}

/* The loop */

/* A VM that was selected has ended, or cannot be sampled: that is the end. */
static bool has_ended(const struct top *top, int *error)
{
	struct top_vm *list[TOP_VMS_MAX];
	size_t count = top_vms_list(top->vms, list);

	if (!top->arguments.vm.pid)
		return false;
	if (count && *list[0]->error)
		*error = error_set(-EIO, "%s", list[0]->error);
	return !count || *list[0]->error;
}

static bool scan(struct top *top)
{
	uint64_t now = clock_ms(CLOCK_MONOTONIC), used = clock_ms(CLOCK_THREAD_CPUTIME_ID), wait;
	bool changed;

	if (now < top->next_scan)
		return false;
	changed = top_vms_scan(top->vms);
	wait = (clock_ms(CLOCK_THREAD_CPUTIME_ID) - used) * SCAN_SHARE;
	if (wait < SCAN_INTERVAL)
		wait = SCAN_INTERVAL;
	top->next_scan = now + (wait < SCAN_INTERVAL_MAX ? wait : SCAN_INTERVAL_MAX);
	return changed;
}

/* Returns false at the end. */
static bool update_screen(struct top *top, bool changed, short keys)
{
	enum top_action action = keys ? top_display_keys(top->display) : TOP_CONTINUE;

	if (action == TOP_DELAY)
		top_vms_set_interval(top->vms, delay_ms(top) * NS_PER_MS);
	if (action != TOP_CONTINUE || changed)
		draw(top);
	return action != TOP_QUIT;
}

/* True if the signal is a reason to end. */
static bool read_signals(const struct top *top)
{
	int signal;

	while ((signal = record_next_signal(top->signal_fd)))
		if (signal != SIGWINCH)
			return true;
	if (top->display) {
		top_display_resize();
		draw(top);
	}
	return false;
}

/* One step of the loop. False: the end. */
static bool step(struct top *top)
{
	struct pollfd events[TOP_VMS_MAX + 2] = {
		{ .fd = top->signal_fd, .events = POLLIN },
		{ .fd = top->display ? STDIN_FILENO : -1, .events = POLLIN },
	};
	bool paused = top->display && top_display_is_paused(top->display);
	size_t count = top_vms_events(top->vms, events + 2);
	bool changed;

	if (poll(events, count + 2, 500) < 0)
		return true;
	if (events[0].revents && read_signals(top))
		return false;
	top_vms_set_paused(top->vms, paused);
	changed = top_vms_receive(top->vms, events + 2, count);
	changed |= !paused && scan(top);
	if (top->display)
		return update_screen(top, changed, events[1].revents);
	if (is_due(top))
		print(top);
	return !top->arguments.tables || top->tables < top->arguments.tables;
}

static int follow(struct top *top)
{
	int error = 0;

	top->shown = clock_ms(CLOCK_MONOTONIC);
	top->next_scan = top->shown + SCAN_INTERVAL;
	if (top->display)
		draw(top);
	while (step(top) && !has_ended(top, &error))
		;
	return error;
}

static int run(struct top *top)
{
	struct arguments *arguments = &top->arguments;
	static const int signals[] = { SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGWINCH, 0 };
	int error = arguments->monitor.domain
			    ? monitor_find_process(&arguments->monitor, &arguments->vm.pid)
			    : 0;

	if (error)
		return error;
	top->signal_fd = record_signals(signals);
	if (top->signal_fd < 0)
		return top->signal_fd;
	arguments->vm.interval = delay_ms(top) * NS_PER_MS;
	arguments->vm.silent = !arguments->batch;
	error = top_vms_open(&top->vms, &arguments->vm);
	if (!error && !arguments->batch)
		error = top_display_open(&top->display, &arguments->view);
	return error ? error : follow(top);
}

int command_top(int argc, char **argv)
{
	struct top top = { .arguments = { .vm = { .frequency = 99, .callchains = true },
					  .view = { .delay = 2 },
					  .limit = BATCH_LIMIT },
			   .signal_fd = -1 };
	const struct option_group groups[] = {
		{ .title = "The VMs, and how to sample them:",
		  .rows = vm_rows,
		  .target = &top.arguments,
		  .check = check },
		{ .title = "The tables:", .rows = view_rows, .target = &top.arguments },
		{ 0 },
	};
	const struct option_command line = { .name = "kvmscope top",
					     .doc = summary,
					     .groups = groups,
					     .hint = "--pid or --domain selects a VM" };
	int error, status = EXIT_OK;

	if (option_table_parse(&line, argc, argv))
		return command_failed();
	error = run(&top);
	top_display_close(top.display);
	if (error)
		status = command_failed();
	if (error == -ENOTSUP)
		status = EXIT_UNSUPPORTED;
	top_vms_close(top.vms);
	if (top.signal_fd >= 0)
		close(top.signal_fd);
	return status;
}
