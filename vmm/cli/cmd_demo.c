/* SPDX-License-Identifier: Apache-2.0 */
/* kvmscope demo: run, report and export on a guest with a known workload. */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/log.h"
#include "shared/option_table.h"
#include "vmm/cli/command.h"

/* What `make demo` leaves in the project's root. */
#define PREPARED_KERNEL "build/cache/kernels/6.1/vmlinuz"
#define PREPARED_INITRD "build/initrd/6.1.cpio"

/* The init's last line before the workload, which is profiled without the boot. */
#define WORKLOAD_STARTS "guest-init: up"

#define PATH_SIZE  4096
#define ROWS_SHOWN "20"
/* The exit status of a run that its user ended. */
#define ENDED_BY_USER (128 + SIGINT)

struct demo {
	const char *kernel;
	const char *initrd;
	const char *output;
	const char *cpus;
	const char *frequency;
	const char *stack_time; /* NULL: the default of run */
	unsigned int seconds;
	char installed_kernel[PATH_SIZE];
};

/* The guest is profiled once with nothing in it, and once with the agent, which reports more. */
struct recording {
	const char *what;
	bool agent;
	char data[PATH_SIZE];
	char page[PATH_SIZE];
};

#define AT(field) .offset = offsetof(struct demo, field)

static const struct option_row rows[] = {
	{ "kernel", "FILE", "Kernel to boot (make demo's, or this machine's)", OPTION_TEXT,
	  AT(kernel), .letter = 'k' },
	{ "initrd", "FILE", "Initial RAM disk with the workload (make demo's)", OPTION_TEXT,
	  AT(initrd), .letter = 'i' },
	{ "output", "DIR", "Directory for perf.data, flame.html and the like (build/demo)",
	  OPTION_TEXT, AT(output), .letter = 'o' },
	{ "seconds", "SECONDS", "How long the workload runs (8)", OPTION_NUMBER, AT(seconds),
	  .letter = 's', .low = 1, .high = 3600 },
	{ "cpus", "N", "vCPUs (1)", OPTION_TEXT, AT(cpus), .letter = 'c' },
	{ "freq", "HZ", "Samples per second of CPU time and vCPU (999)", OPTION_TEXT, AT(frequency),
	  .letter = 'F' },
	{ "stack-time", "TIME", "As for kvmscope run; an emulated processor needs 100ms",
	  OPTION_TEXT, AT(stack_time) },
	{ 0 },
};

static const char help[] =
	"Boot a kernel with three busy processes, profile it from outside, and show what it was busy "
	"with: once with nothing in the guest, once with the guest agent.";

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
		"no kernel to boot: %s and %s cannot be read; run make demo, which fetches one, or give --kernel",
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
		"no initial RAM disk with a workload: %s cannot be read; run make demo, which packs it, or give --initrd",
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
			return error_set(
				-errno, "cannot create the directory %s: %s; give another --output",
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

#define WORDS_MAX 24

/* Runs a subcommand with its own copy of ARGUMENTS, which it may change; the last one is NULL. */
static int run_command(command *run, const char *const arguments[])
{
	char *words[WORDS_MAX + 1] = { NULL }, *argv[WORDS_MAX + 1];
	int count = 0, status = EXIT_FAILED;
	bool complete = true;

	for (; arguments[count] && complete; count++) {
		words[count] = strdup(arguments[count]);
		complete = words[count];
	}
	memcpy(argv, words, sizeof(argv));
	if (complete)
		status = run(count, argv);
	while (count)
		free(words[--count]);
	return status;
}

static volatile pid_t running; /* the child that runs the guest */

/* The terminal's signals reach the child, too. */
static void forward(int signal, siginfo_t *info, void *context)
{
	(void)context;
	if (info->si_code == SI_USER && running > 0)
		kill(running, signal);
}

/* kvmscope run confines its process; the demo still has to read recordings and start guests. */
static int run_in_child(const char *const arguments[])
{
	const struct sigaction forwarded = { .sa_sigaction = forward, .sa_flags = SA_SIGINFO };
	struct sigaction before;
	pid_t child;
	int status = 0;

	fflush(NULL);
	sigaction(SIGINT, &forwarded, &before);
	child = running = fork();
	if (!child) {
		sigaction(SIGINT, &before, NULL);
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		status = run_command(command_run, arguments);
		fflush(NULL);
		_exit(!status && command_run_was_ended() ? ENDED_BY_USER : status);
	}
	while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	running = 0;
	sigaction(SIGINT, &before, NULL);
	return child > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILED;
}

static int record(const struct demo *demo, const struct recording *recording, bool *ended)
{
	char append[256];
	const char *arguments[WORDS_MAX + 1] = {
		"run",           "--kernel",    demo->kernel,    "--initrd", demo->initrd,
		"--append",      append,        "--cpus",        demo->cpus, "--freq",
		demo->frequency, "--from-line", WORKLOAD_STARTS, "--output", recording->data,
	};
	const char **next = arguments + 15;
	int status;

	/* The initrd's init reads the workload's duration: tests/rig/guest-init. */
	snprintf(append, sizeof(append),
		 "console=ttyS0 quiet panic=-1 kvmscope.run=workload+mixed+%u", demo->seconds);
	if (demo->stack_time) {
		*next++ = "--stack-time";
		*next++ = demo->stack_time;
	}
	if (recording->agent)
		*next++ = "--agent";
	status = run_in_child(arguments);
	*ended = status == ENDED_BY_USER;
	return *ended ? EXIT_OK : status;
}

static int report(const struct recording *recording)
{
	return run_command(command_report, (const char *[]){ "report", "--input", recording->data,
							     "--limit", ROWS_SHOWN, NULL });
}

static int export(const struct recording *recording)
{
	return run_command(command_export,
			   (const char *[]){ "export", "--input", recording->data, "--format",
					     "html", "--output", recording->page, NULL });
}

/* *ENDED: the user ended the guest. */
static int show(const struct demo *demo, struct recording *recording, const char *data,
		const char *page, bool *ended)
{
	int status;

	snprintf(recording->data, sizeof(recording->data), "%s/%s", demo->output, data);
	snprintf(recording->page, sizeof(recording->page), "%s/%s", demo->output, page);
	log_info("demo: booting %s, unmodified, with %s, and a workload of %u s", demo->kernel,
		 recording->what, demo->seconds);
	status = record(demo, recording, ended);
	if (!status)
		status = report(recording);
	return status ? status : export(recording);
}

int command_demo(int argc, char **argv)
{
	struct demo demo = {
		.output = "build/demo", .cpus = "1", .frequency = "999", .seconds = 8
	};
	struct recording plain = { .what = "nothing in it" },
			 agent = { .what = "the guest agent", .agent = true };
	const struct option_group groups[] = { { .rows = rows, .target = &demo }, { 0 } };
	const struct option_command table = { .name = "kvmscope demo",
					      .doc = help,
					      .groups = groups };
	bool ended = false;
	int status;

	if (option_table_parse(&table, argc, argv) || prepare(&demo))
		return command_failed();
	status = show(&demo, &plain, "perf.data", "flame.html", &ended);
	if (!status && ended) {
		log_info("demo: ended by the user; %s and %s have what was sampled until then",
			 plain.data, plain.page);
		return status;
	}
	if (!status)
		status = show(&demo, &agent, "agent.data", "flame-agent.html", &ended);
	if (!status)
		log_info(
			"demo: look closer with kvmscope report -i %s or perf report -i %s, and open %s and %s in a "
			"browser",
			plain.data, plain.data, plain.page, agent.page);
	return status;
}
