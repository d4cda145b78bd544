/* SPDX-License-Identifier: Apache-2.0 */
/* kvmscope libvirt: installs and removes the hook by which libvirt notifies kvmscoped. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shared/error.h"
#include "shared/log.h"
#include "shared/option_table.h"
#include "vmm/cli/command.h"
#include "vmm/cli/screen.h"
#include "vmm/control/control_client.h"
#include "vmm/control/run_directory.h"
#include "vmm/daemon/daemon.h"
#include "vmm/daemon/domain_xml.h"
#include "vmm/daemon/hook_install.h"

/* The first libvirt that runs hooks in qemu.d. */
#define VERSION_MAJOR 6
#define VERSION_MINOR 5

struct arguments {
	const char *command, *hooks;
	bool now;
};

#define AT(field) .offset = offsetof(struct arguments, field)

static const struct option_row rows[] = {
	{ "hooks", "DIR", "libvirt's directory of hooks (" HOOKS_DIRECTORY ")", OPTION_TEXT,
	  AT(hooks) },
	{ "now", NULL, "With install: make systemd start kvmscoped, now and at boot", OPTION_SET,
	  AT(now) },
	{ 0 },
};

static const char help[] =
	"Make libvirt notify kvmscoped when domains start and end, by a hook next to existing ones.\v"
	"Commands:\n"
	"  install    install the hook, or update it\n"
	"  uninstall  remove the hook, and nothing else\n"
	"  status     show hook, libvirt and kvmscoped\n"
	"\n"
	"Profile a running domain, now and after its next start:\n"
	"  kvmscope libvirt install --now\n"
	"  virsh metadata web " DOMAIN_XML_NAMESPACE " --key kvmscope \\\n"
	"    --set '<profile/>' --live --config\n"
	"  kvmscope export -i \"$(kvmscope ctl dump web)\" --format html > flame.html\n"
	"\n"
	"The hook passes its arguments on and exits after at most 20 ms of running,\n"
	"whatever happens; it never makes a domain fail.\n"
	"\n"
	"Exit status: 0; 1 it failed, or with status: not installed; 2 wrong usage.\n";

static int set_command(void *context, char *text)
{
	static const char *const commands[] = { "install", "uninstall", "status", NULL };
	struct arguments *arguments = context;
	int index = option_choice("command", text, commands);

	if (index < 0)
		return index;
	if (arguments->command)
		return error_set(-EINVAL, "'%s' is one word too many", text);
	arguments->command = text;
	return 0;
}

static int check(void *target)
{
	return ((struct arguments *)target)->command
		       ? 0
		       : error_set(-EINVAL, "a command is missing: install, uninstall or status");
}

/* From the daemon's own output, "libvirtd (libvirt) 9.0.0". False: it is not installed. */
static bool find_version(int *major, int *minor)
{
	static const char version[] =
		"virtqemud --version 2>/dev/null || libvirtd --version 2>/dev/null";
	FILE *output = popen(version, "re"); /* NOLINT(cert-env33-c): a constant command */
	bool found;

	if (!output)
		return false;
	found = fscanf(output, "%*s (libvirt) %d.%d", major, minor) == 2;
	pclose(output);
	return found;
}

static void check_version(void)
{
	int major, minor;

	if (!find_version(&major, &minor))
		log_warning("libvirt was not found: neither virtqemud nor libvirtd");
	else if (major < VERSION_MAJOR || (major == VERSION_MAJOR && minor < VERSION_MINOR))
		log_warning(
			"libvirt %d.%d does not run hooks in qemu.d, libvirt %d.%d does: kvmscoped finds "
			"domains by polling",
			major, minor, VERSION_MAJOR, VERSION_MINOR);
}

static int start_daemon(void)
{
	if (access("/run/systemd/system", F_OK))
		return error_set(-ENOTSUP,
				 "--now: systemd is not running; start kvmscoped by other means");
	if (system("systemctl enable --now kvmscoped.service")) /* NOLINT(cert-env33-c) */
		return error_set(
			-EIO,
			"--now: systemctl could not start kvmscoped.service, see journalctl -u kvmscoped");
	return 0;
}

static int install(const struct arguments *arguments)
{
	bool known = hook_has_others(arguments->hooks);
	enum hook_state before;
	char path[PATH_MAX];
	int error = hook_find(arguments->hooks, &before, path);

	if (!error)
		error = hook_install(arguments->hooks);
	if (error)
		return error;
	if (before == HOOK_CURRENT)
		log_info("%s is already installed", path);
	else
		log_info("%s is installed", path);
	check_version();
	if (before == HOOK_ABSENT && !known)
		log_info(
			"a running libvirt had no QEMU hook when it started: restart it once (systemctl "
			"restart virtqemud, or libvirtd; domains keep running). Until then kvmscoped finds "
			"domains by polling");
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
		printf("daemon:   not running%s: %s\n",
		       geteuid() ? ", or does not accept this user" : "",
		       error == -ENOENT ? "systemctl start kvmscoped" : error_message());
		return false;
	}
	printf("daemon:   process %.0f, kvmscoped ", answer_number(status, "pid"));
	screen_print(answer_text(status, "kvmscope"));
	if (answer_number(status, "hook_dropped") > 0)
		printf("; the hook dropped %.0f messages while it was not running",
		       answer_number(status, "hook_dropped"));
	putchar('\n');
	json_decref(status);
	return true;
}

static int print_status(const struct arguments *arguments, bool *good)
{
	static const char *const states[] = {
		[HOOK_ABSENT] = "not installed: kvmscope libvirt install",
		[HOOK_CURRENT] = "installed",
		[HOOK_OTHER] = "of another version: kvmscope libvirt install updates it",
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
	struct arguments arguments = { .hooks = HOOKS_DIRECTORY };
	const struct option_group groups[] = { { NULL, rows, &arguments, check }, { 0 } };
	const struct option_command table = { .name = "kvmscope libvirt",
					      .doc = help,
					      .words = "COMMAND",
					      .groups = groups,
					      .word = set_command,
					      .context = &arguments };
	bool good = true;
	int error;

	if (option_table_parse(&table, argc, argv))
		return command_failed();
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
