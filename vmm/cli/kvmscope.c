/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "git_description.h"
#include "shared/error.h"
#include "shared/log.h"
#include "shared/option_table.h"
#include "vmm/cli/command.h"

static const struct {
	const char *name;
	command *run;
	const char *help;
} commands[] = {
	/* in the order in which a user needs them */
	{ "run", command_run, "run a guest and profile it" },
	{ "top", command_top, "show live what the running VMs do" },
	{ "attach", command_attach, "profile a running VM: QEMU, or any other that uses KVM" },
	{ "stat", command_stat, "count why a running VM leaves the guest, and for how long" },
	{ "ctl", command_ctl, "control a running session, or show its status" },
	{ "libvirt", command_libvirt, "install the hook for profiling libvirt domains" },
	{ "dump", command_dump, "write the samples of a run's flight recorder" },
	{ "report", command_report, "show where the guest spent its time" },
	{ "diff", command_diff, "compare two recordings, function by function" },
	{ "export", command_export, "write a flame graph, or a file for another program" },
	{ "archive", command_archive, "write the symbols of a recording into one file" },
	{ "doctor", command_doctor, "try what this host can do" },
	{ "demo", command_demo, "run, report and export in one command, with Debian's kernel" },
	{ NULL, NULL, NULL },
};

static void print_help(FILE *to)
{
	fputs("kvmscope: profile KVM guests from the host, with nothing installed in them\n\n"
	      "Usage: kvmscope COMMAND [OPTION...]\n\n"
	      "Commands:\n",
	      to);
	for (size_t i = 0; commands[i].name; i++)
		fprintf(to, "  %-10s %s\n", commands[i].name, commands[i].help);
	fputs("\nkvmscope COMMAND --help shows its options.\n", to);
}

int command_failed(void)
{
	log_error("%s", error_message());
	return EXIT_FAILED;
}

static command *find_command(const char *name)
{
	for (size_t i = 0; commands[i].name; i++)
		if (!strcmp(commands[i].name, name))
			return commands[i].run;
	return NULL;
}

static void report_unknown(const char *name)
{
	const char *names[sizeof(commands) / sizeof(commands[0])];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		names[i] = commands[i].name;
	option_choice("command", name, names);
	log_error("%s", error_message());
}

/* Reports what stdio could not write. A reader may close a pipe early, and a command that failed
 * has said why. */
static int finish(int status)
{
	int error = fflush(stdout) ? errno : ferror(stdout) ? EIO : 0;

	if (!error || error == EPIPE || status == EXIT_FAILED)
		return status;
	log_error("cannot write to standard output: %s", strerror(error));
	return EXIT_FAILED;
}

int main(int argc, char **argv)
{
	static char help[] = "--help";
	command *run;

	if (argc < 2) {
		print_help(stderr);
		return EXIT_USAGE;
	}
	/* "help COMMAND" is "COMMAND --help". */
	if (!strcmp(argv[1], "help") && argc > 2) {
		argv[1] = argv[2];
		argv[2] = help;
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
		print_help(stdout);
		return finish(EXIT_OK);
	}
	if (!strcmp(argv[1], "--version")) {
		puts("kvmscope " KVMSCOPE_VERSION " (" GIT_DESCRIPTION ")");
		return finish(EXIT_OK);
	}
	run = find_command(argv[1]);
	if (!run) {
		report_unknown(argv[1]);
		return EXIT_USAGE;
	}
	return finish(run(argc - 1, argv + 1));
}
