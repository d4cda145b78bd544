/* SPDX-License-Identifier: Apache-2.0 */
/* kvmscope demo: run, report and export, one after the other, on a guest whose work is known. */
#include <argp.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/cli/command.h"
#include "vmm/cli/option_number.h"

/* What `make demo` leaves in the project's root. */
#define PREPARED_KERNEL "build/cache/kernels/6.1/vmlinuz"
#define PREPARED_INITRD "build/initrd/6.1.cpio"

/* What its init prints last before the workload: the profile is of that, not of the boot. */
#define WORKLOAD_STARTS "guest-init: up"

enum { PATH_SIZE = 4096, ROWS_SHOWN = 20 };
enum { KEY_STACK_TIME = 256 };

struct demo {
	const char *kernel;
	const char *initrd;
	const char *output;
	const char *cpus;
	const char *frequency;
	const char *stack_time; /* NULL: what run has */
	unsigned int seconds;
	char installed_kernel[PATH_SIZE];
};

/* The guest is profiled once with nothing in it, and once with the agent, which tells more. */
struct take {
	const char *what;
	bool agent;
	char data[PATH_SIZE];
	char page[PATH_SIZE];
};

static const struct argp_option option_list[] = {
	{ "kernel", 'k', "FILE", 0,
	  "Kernel to boot (what make demo fetched, else the one this machine runs)", 0 },
	{ "initrd", 'i', "FILE", 0, "Initial RAM disk with the workload (what make demo packed)",
	  0 },
	{ "output", 'o', "DIR", 0,
	  "Where perf.data and flame.html go, and agent.data and flame-agent.html (build/demo)",
	  0 },
	{ "seconds", 's', "SECONDS", 0, "How long the workload runs (8)", 0 },
	{ "cpus", 'c', "N", 0, "vCPUs (1)", 0 },
	{ "freq", 'F', "HZ", 0, "Samples per second of CPU time and vCPU (999)", 0 },
	{ "stack-time", KEY_STACK_TIME, "TIME", 0,
	  "Cut callchains that take the vCPU longer than this, as run does; an emulated processor needs 100ms",
	  0 },
	{ 0 },
};

static error_t parse_option(int key, char *text, struct argp_state *state)
{
	struct demo *demo = state->input;

	switch (key) {
	case 'k':
		demo->kernel = text;
		return 0;
	case 'i':
		demo->initrd = text;
		return 0;
	case 'o':
		demo->output = text;
		return 0;
	case 'c':
		demo->cpus = text;
		return 0;
	case 'F':
		demo->frequency = text;
		return 0;
	case KEY_STACK_TIME:
		demo->stack_time = text;
		return 0;
	case 's':
		demo->seconds = option_number(state, "--seconds", text, 1, 3600);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp argp = {
	.options = option_list,
	.parser = parse_option,
	.doc = "Boot a kernel with three busy processes, profile it from outside, show what it was busy with: once "
	       "with nothing in the guest, once with the guest agent.",
};

static int choose_kernel(struct demo *demo)
{
	struct utsname host;

	if (demo->kernel)
		return 0;
	demo->kernel = PREPARED_KERNEL;
	if (!access(demo->kernel, R_OK))
		return 0;
	uname(&host);
	snprintf(demo->installed_kernel, sizeof(demo->installed_kernel), "/boot/vmlinuz-%s",
		 host.release);
	demo->kernel = demo->installed_kernel;
	if (!access(demo->kernel, R_OK))
		return 0;
	return error_set(
		-ENOENT,
		"no kernel to boot: neither %s nor %s can be read; run make demo, which fetches one, or give --kernel",
		PREPARED_KERNEL, demo->installed_kernel);
}

static int choose_initrd(struct demo *demo)
{
	if (demo->initrd)
		return 0;
	demo->initrd = PREPARED_INITRD;
	if (!access(demo->initrd, R_OK))
		return 0;
	return error_set(
		-ENOENT,
		"no initial RAM disk with a workload: %s can not be read; run make demo, which packs it, or give --initrd",
		demo->initrd);
}

/* mkdir -p */
static int make_directory(const char *path)
{
	char part[PATH_SIZE];

	for (const char *end = path; *end;) {
		end = strchrnul(end + 1, '/');
		snprintf(part, sizeof(part), "%.*s", (int)(end - path), path);
		if (mkdir(part, 0777) && errno != EEXIST)
			return error_set(-errno,
					 "can not make the directory %s: %s; give another --output",
					 part, strerror(errno));
	}
	return 0;
}

static int prepare(struct demo *demo)
{
	int error = choose_kernel(demo);

	if (!error)
		error = choose_initrd(demo);
	if (!error)
		error = make_directory(demo->output);
	return error;
}

/* Runs a subcommand as if from the command line; ARGUMENTS end with NULL. */
static int run_command(command *run, char *const arguments[])
{
	char *copy[24];
	int count = 0;

	while (arguments[count]) {
		copy[count] = arguments[count];
		count++;
	}
	copy[count] = NULL;
	return run(count, copy);
}

static int record(const struct demo *demo, const struct take *take)
{
	char append[256], *arguments[24] = { "run",
					     "--kernel",
					     (char *)demo->kernel,
					     "--initrd",
					     (char *)demo->initrd,
					     "--append",
					     append,
					     "--cpus",
					     (char *)demo->cpus,
					     "--freq",
					     (char *)demo->frequency,
					     "--from-line",
					     WORKLOAD_STARTS,
					     "--output",
					     (char *)take->data };
	char **next = arguments + 15;

	/* The workload's seconds are spoken of in its initrd: tests/rig/guest-init. */
	snprintf(append, sizeof(append),
		 "console=ttyS0 quiet panic=-1 kvmscope.run=workload+mixed+%u", demo->seconds);
	if (demo->stack_time) {
		*next++ = "--stack-time";
		*next++ = (char *)demo->stack_time;
	}
	if (take->agent)
		*next++ = "--agent";
	return run_command(command_run, arguments);
}

static int report(const struct take *take)
{
	char rows[16];

	snprintf(rows, sizeof(rows), "%d", ROWS_SHOWN);
	return run_command(command_report, (char *[]){ "report", "--input", (char *)take->data,
						       "--limit", rows, NULL });
}

static int draw(const struct take *take)
{
	return run_command(command_export,
			   (char *[]){ "export", "--input", (char *)take->data, "--format", "html",
				       "--output", (char *)take->page, NULL });
}

static int show(const struct demo *demo, struct take *take, const char *data, const char *page)
{
	int status;

	snprintf(take->data, sizeof(take->data), "%s/%s", demo->output, data);
	snprintf(take->page, sizeof(take->page), "%s/%s", demo->output, page);
	log_info("demo: booting %s, unmodified, with %s, and a workload of %u s", demo->kernel,
		 take->what, demo->seconds);
	status = record(demo, take);
	if (!status)
		status = report(take);
	return status ? status : draw(take);
}

int command_demo(int argc, char **argv)
{
	struct demo demo = {
		.output = "build/demo", .cpus = "1", .frequency = "999", .seconds = 8
	};
	struct take plain = { .what = "nothing in it" },
		    agent = { .what = "the guest agent", .agent = true };
	static char name[] = "kvmscope demo";
	int status;

	argv[0] = name; /* what argp's messages start with */
	argp_err_exit_status = EXIT_USAGE;
	if (argp_parse(&argp, argc, argv, 0, NULL, &demo))
		return EXIT_USAGE;
	if (prepare(&demo))
		return command_failed();
	status = show(&demo, &plain, "perf.data", "flame.html");
	if (!status && command_run_was_ended()) {
		log_info("demo: ended as you wished; %s and %s have what was sampled until then",
			 plain.data, plain.page);
		return status;
	}
	if (!status)
		status = show(&demo, &agent, "agent.data", "flame-agent.html");
	if (!status)
		log_info(
			"demo: look closer with kvmscope report -i %s or perf report -i %s, and open %s and %s in a "
			"browser",
			plain.data, plain.data, plain.page, agent.page);
	return status;
}
