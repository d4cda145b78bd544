// SPDX-License-Identifier: Apache-2.0
/* kvmscope libvirt: puts the hook in place by which libvirt tells kvmscoped of its domains, and
 * takes it away. */
#include <argp.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/log.h"
#include "vmm/cli/answer.h"
#include "vmm/cli/command.h"
#include "vmm/control/client.h"
#include "vmm/control/run_directory.h"
#include "vmm/daemon/daemon.h"
#include "vmm/daemon/domain_xml.h"
#include "vmm/daemon/hook_install.h"

/* libvirt that looks into qemu.d. */
#define VERSION_MAJOR 6
#define VERSION_MINOR 5

struct arguments {
	const char *command, *hooks;
	bool now;
};

enum { KEY_HOOKS = 256, KEY_NOW };

static const struct argp_option option_list[] = {
	{ "hooks", KEY_HOOKS, "DIR", 0, "libvirt's directory of hooks (" HOOKS_DIRECTORY ")", 0 },
	{ "now", KEY_NOW, NULL, 0,
	  "With install: have systemd start kvmscoped, now and with the system", 0 },
	{ 0 },
};

static const char help[] =
	"Has libvirt tell kvmscoped when domains start and end, by a hook beside those that are there.\v"
	"Commands:\n"
	"  install    put the hook in place, or bring it up to date\n"
	"  uninstall  remove it, and nothing else\n"
	"  status     is it there, does libvirt know it, does kvmscoped run?\n"
	"\n"
	"Profile a domain that runs, and from its next start on:\n"
	"  kvmscope libvirt install --now\n"
	"  virsh metadata web " DOMAIN_XML_NAMESPACE " --key kvmscope \\\n"
	"    --set '<profile/>' --live --config\n"
	"  kvmscope export -i \"$(kvmscope ctl dump web)\" --format html > flame.html\n"
	"\n"
	"The hook hands on what it is told and is gone, whatever happens, 20 ms after\n"
	"it has got a processor at the latest; it never fails a domain.\n"
	"\n"
	"Exit status: 0; 1 it failed, or with status: it is not in place; 2 wrong\n"
	"usage.\n";

static bool is_command(const char *word)
{
	return !strcmp(word, "install") || !strcmp(word, "uninstall") || !strcmp(word, "status");
}

static error_t parse(int key, char *text, struct argp_state *state)
{
	struct arguments *arguments = state->input;

	switch (key) {
	case KEY_HOOKS:
		arguments->hooks = text;
		return 0;
	case KEY_NOW:
		arguments->now = true;
		return 0;
	case ARGP_KEY_ARG:
		if (arguments->command || !is_command(text))
			argp_error(state, "'%s' is not one of install, uninstall and status", text);
		arguments->command = text;
		return 0;
	case ARGP_KEY_END:
		if (!arguments->command)
			argp_error(state, "say what to do: install, uninstall or status");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* As the daemon itself says, "libvirtd (libvirt) 9.0.0". False: there is none here. */
static bool find_version(int *major, int *minor)
{
	static const char ask[] =
		"virtqemud --version 2>/dev/null || libvirtd --version 2>/dev/null";
	FILE *output = popen(ask, "re"); /* NOLINT(cert-env33-c): no word of it is another's */
	bool found;

	if (!output)
		return false;
	found = fscanf(output, "%*s (libvirt) %d.%d", major, minor) == 2;
	pclose(output);
	return found;
}

static void tell_version(void)
{
	int major, minor;

	if (!find_version(&major, &minor))
		log_warning("no libvirt was found here: neither virtqemud nor libvirtd");
	else if (major < VERSION_MAJOR || (major == VERSION_MAJOR && minor < VERSION_MINOR))
		log_warning(
			"libvirt %d.%d does not look into qemu.d, which libvirt %d.%d does: kvmscoped finds "
			"domains all the same",
			major, minor, VERSION_MAJOR, VERSION_MINOR);
}

static int start_daemon(void)
{
	if (access("/run/systemd/system", F_OK))
		return error_set(-ENOTSUP,
				 "--now: systemd does not run here; start kvmscoped otherwise");
	if (system("systemctl enable --now kvmscoped.service")) /* NOLINT(cert-env33-c) */
		return error_set(
			-EIO,
			"--now: systemctl could not start kvmscoped.service, see journalctl -u kvmscoped");
	return 0;
}

static int install(const struct arguments *arguments)
{
	bool known = hook_has_company(arguments->hooks);
	enum hook_state before;
	char path[PATH_MAX];
	int error = hook_find(arguments->hooks, &before, path);

	if (!error)
		error = hook_install(arguments->hooks);
	if (error)
		return error;
	if (before == HOOK_CURRENT)
		log_info("%s is in place already", path);
	else
		log_info("%s is in place", path);
	tell_version();
	if (before == HOOK_ABSENT && !known)
		log_info(
			"if libvirt runs already, it had no hook for QEMU when it started: restart it once, "
			"domains run on (systemctl restart virtqemud, or libvirtd); until then kvmscoped "
			"finds domains by itself");
	return arguments->now ? start_daemon() : 0;
}

static int uninstall(const struct arguments *arguments)
{
	int error = hook_uninstall(arguments->hooks);

	if (!error)
		log_info("the hook is removed from %s", arguments->hooks);
	return error;
}

static bool print_daemon(void)
{
	json_t *status = NULL;
	int daemon = control_runs_connect(0, DAEMON_NAME);
	int error = daemon < 0 ? daemon : control_call(daemon, "status", NULL, &status);

	if (daemon >= 0)
		close(daemon);
	if (error) {
		printf("daemon:   does not run%s: %s\n", geteuid() ? ", or is not ours to ask" : "",
		       error == -ENOENT ? "systemctl start kvmscoped" : error_message());
		return false;
	}
	printf("daemon:   process %.0f, kvmscoped ", answer_number(status, "pid"));
	answer_print(answer_text(status, "kvmscope"));
	if (answer_number(status, "hook_dropped") > 0)
		printf("; the hook dropped %.0f messages, as it did not run",
		       answer_number(status, "hook_dropped"));
	putchar('\n');
	json_decref(status);
	return true;
}

static int print_status(const struct arguments *arguments, bool *good)
{
	static const char *const states[] = {
		[HOOK_ABSENT] = "not in place: kvmscope libvirt install",
		[HOOK_CURRENT] = "in place",
		[HOOK_OTHER] = "of another version: kvmscope libvirt install brings it up to date",
		[HOOK_FOREIGN] = "a file that is not kvmscope's",
	};
	enum hook_state state;
	char path[PATH_MAX];
	int major, minor, error = hook_find(arguments->hooks, &state, path);

	if (error)
		return error;
	printf("hook:     %s: %s\n", path, states[state]);
	if (find_version(&major, &minor))
		printf("libvirt:  %d.%d\n", major, minor);
	else
		printf("libvirt:  not found\n");
	*good = print_daemon() && state == HOOK_CURRENT;
	return 0;
}

int command_libvirt(int argc, char **argv)
{
	static const struct argp argp = {
		.options = option_list, .parser = parse, .args_doc = "COMMAND", .doc = help
	};
	struct arguments arguments = { .hooks = HOOKS_DIRECTORY };
	char name[] = "kvmscope libvirt";
	bool good = true;
	int error;

	argv[0] = name;
	argp_err_exit_status = EXIT_USAGE;
	argp_parse(&argp, argc, argv, 0, NULL, &arguments);
	if (!strcmp(arguments.command, "install"))
		error = install(&arguments);
	else if (!strcmp(arguments.command, "uninstall"))
		error = uninstall(&arguments);
	else
		error = print_status(&arguments, &good);
	if (error)
		return command_failed();
	return good ? EXIT_OK : EXIT_FAILED;
}
