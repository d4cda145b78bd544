// SPDX-License-Identifier: Apache-2.0
/* kvmscoped: profiles the domains of libvirt that ask for it. */
#include <argp.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/daemon/conf.h"
#include "vmm/daemon/daemon.h"
#include "vmm/daemon/hook_message.h"
#include "vmm/daemon/libvirt_directory.h"

/* ns that a thread may be woken later than it asked: many of them then wake together. */
#define TIMER_SLACK 20000000ul
/*
 * Bytes from which on a table has pages of its own, which take no memory until they are touched.
 * malloc would move this up as large ones are freed, to tens of MiB, and clear what it then gives
 * out of its heap: 3 MiB for each domain.
 */
#define LARGE (128 << 10)
/* So few heaps, as most of the threads do little. */
#define ARENAS 2

#define EXIT_USAGE 2

#define URI "qemu:///system"

enum { KEY_RUN_DIRECTORY = 256, KEY_LIBVIRT_DIRECTORY, KEY_CONNECT, KEY_CHECK };

struct arguments {
	struct daemon_options options;
	bool check, quiet, verbose;
};

static const struct argp_option option_list[] = {
	{ "config", 'c', "FILE", 0, "The configuration (" CONF_PATH ", if it is there)", 0 },
	{ "check", KEY_CHECK, NULL, 0, "Only read the configuration, and say what is wrong with it",
	  0 },
	{ "run-directory", KEY_RUN_DIRECTORY, "DIR", 0,
	  "Sockets and the hook's spool (" HOOK_RUN_DIRECTORY ")", 0 },
	{ "libvirt-directory", KEY_LIBVIRT_DIRECTORY, "DIR", 0,
	  "Where libvirt keeps the state of its QEMU domains (" LIBVIRT_DIRECTORY ")", 0 },
	{ "connect", KEY_CONNECT, "URI", 0,
	  "libvirt, for domains that only their monitor tells of: those without KVM (" URI ")", 0 },
	{ "quiet", 'q', NULL, 0, "Only warnings and errors", 0 },
	{ "verbose", 'v', NULL, 0, "Details, too", 0 },
	{ 0 },
};

static const char help[] =
	"Profile the domains of libvirt that ask for it, for as long as they run. It stays in the foreground and "
	"writes what happens to standard error; systemd starts it as kvmscoped.service.\v"
	"A domain asks for it in its own XML:\n"
	"  virsh metadata web " DOMAIN_XML_NAMESPACE " --key kvmscope \\\n"
	"    --set '<profile frequency=\"99\"/>' --live --config\n"
	"or is asked for in " CONF_PATH ": see kvmscope.conf(5).\n"
	"\n"
	"kvmscope libvirt install puts the hook in place by which libvirt tells of\n"
	"domains at once; kvmscope ctl list shows what is profiled. SIGHUP reads the\n"
	"configuration anew.\n"
	"\n"
	"Exit status: 0; 1 it could not start; 2 wrong usage.\n";

static error_t parse(int key, char *text, struct argp_state *state)
{
	struct arguments *arguments = state->input;

	switch (key) {
	case 'c':
		arguments->options.conf = text;
		return 0;
	case KEY_CONNECT:
		arguments->options.uri = text;
		return 0;
	case KEY_CHECK:
		arguments->check = true;
		return 0;
	case KEY_RUN_DIRECTORY:
		arguments->options.run_directory = text;
		return 0;
	case KEY_LIBVIRT_DIRECTORY:
		arguments->options.libvirt_directory = text;
		return 0;
	case 'q':
		arguments->quiet = true;
		return 0;
	case 'v':
		arguments->verbose = true;
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "'%s' is not an option; --help lists them", text);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static int check(const struct daemon_options *options)
{
	struct conf conf;
	int error = conf_init(&conf);

	if (!error)
		error = conf_load(&conf, options->conf ? options->conf : CONF_PATH);
	conf_free(&conf);
	return error;
}

int main(int argc, char **argv)
{
	static const struct argp argp = { .options = option_list, .parser = parse, .doc = help };
	struct arguments arguments = {
		.options = { .run_directory = HOOK_RUN_DIRECTORY,
			     .libvirt_directory = LIBVIRT_DIRECTORY,
			     .uri = URI },
	};

	argp_program_version = "kvmscoped " KVMSCOPE_VERSION;
	argp_err_exit_status = EXIT_USAGE;
	argp_parse(&argp, argc, argv, 0, NULL, &arguments);
	log_quiet(arguments.quiet);
	log_verbose(arguments.verbose);
	log_levels(getenv("JOURNAL_STREAM"));
	mallopt(M_ARENA_MAX, ARENAS);
	mallopt(M_MMAP_THRESHOLD, LARGE);
	prctl(PR_SET_TIMERSLACK, TIMER_SLACK);
	if (!(arguments.check ? check(&arguments.options) : daemon_run(&arguments.options)))
		return EXIT_SUCCESS;
	log_error("%s", error_message());
	return EXIT_FAILURE;
}
