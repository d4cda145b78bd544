/* SPDX-License-Identifier: Apache-2.0 */
/* kvmscoped: profiles the libvirt domains that request it. */
#include <argp.h>
#include <malloc.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include "git_description.h"
#include "shared/error.h"
#include "shared/log.h"
#include "shared/option_table.h"
#include "vmm/daemon/conf.h"
#include "vmm/daemon/daemon.h"
#include "vmm/daemon/hook_message.h"
#include "vmm/daemon/libvirt_directory.h"

/* ns that a thread may wake late, so that many wake together. */
#define TIMER_SLACK 20000000ul
/*
 * Larger tables get pages of their own, which use no memory until they are touched. malloc would
 * raise this limit as large ones are freed, to tens of MiB, and clear what it then allocates from
 * its heap: 3 MiB for each domain.
 */
#define LARGE (128 << 10)
/* A few heaps are enough: most threads allocate little. */
#define ARENAS 2

#define URI "qemu:///system"

struct arguments {
	struct daemon_options options;
	bool check, quiet, verbose;
};

#define AT(field) .offset = offsetof(struct arguments, field)

static const struct option_row rows[] = {
	{ "config", "FILE", "The configuration (" CONF_PATH ", if it exists)", OPTION_TEXT,
	  AT(options.conf), .letter = 'c' },
	{ "check", NULL, "Only check the configuration", OPTION_SET, AT(check) },
	{ "run-directory", "DIR", "Sockets and the hook's spool (" HOOK_RUN_DIRECTORY ")",
	  OPTION_TEXT, AT(options.run_directory) },
	{ "libvirt-directory", "DIR", "libvirt's state of QEMU domains (" LIBVIRT_DIRECTORY ")",
	  OPTION_TEXT, AT(options.libvirt_directory) },
	{ "connect", "URI", "libvirt's URI, for domains without KVM (" URI ")", OPTION_TEXT,
	  AT(options.uri) },
	{ "quiet", NULL, "Only warnings and errors", OPTION_SET, AT(quiet), .letter = 'q' },
	{ "verbose", NULL, "More details", OPTION_SET, AT(verbose), .letter = 'v' },
	{ 0 },
};

static const char help[] =
	"Profile the libvirt domains that request it, while they run. Stays in the foreground and logs to "
	"standard error; systemd starts it as kvmscoped.service.\v"
	"A domain requests it in its own XML:\n"
	"  virsh metadata web " DOMAIN_XML_NAMESPACE " --key kvmscope \\\n"
	"    --set '<profile frequency=\"99\"/>' --live --config\n"
	"or the configuration does so for it: see kvmscope.conf(5).\n"
	"\n"
	"kvmscope libvirt install installs the hook by which libvirt notifies kvmscoped\n"
	"at once; kvmscope ctl list shows what is profiled. SIGHUP reloads the\n"
	"configuration.\n"
	"\n"
	"Exit status: 0; 1 it could not start; 2 wrong usage.\n";

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
	struct arguments arguments = {
		.options = { .run_directory = HOOK_RUN_DIRECTORY,
			     .libvirt_directory = LIBVIRT_DIRECTORY,
			     .uri = URI },
	};

	const struct option_group groups[] = { { .rows = rows, .target = &arguments }, { 0 } };
	const struct option_command table = { .name = "kvmscoped", .doc = help, .groups = groups };

	argp_program_version = "kvmscoped " KVMSCOPE_VERSION " (" GIT_DESCRIPTION ")";
	if (option_table_parse(&table, argc, argv)) {
		log_error("%s", error_message());
		return EXIT_FAILURE;
	}
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
