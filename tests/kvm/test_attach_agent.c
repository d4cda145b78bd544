/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A libvirt domain that has the guest agent and its channel, and nothing else of kvmscope: kvmscope
 * attach and kvmscoped connect to it automatically, and the guest's programs are symbolized.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/kvm/daemon_run.h"
#include "tests/kvm/libvirt_daemon.h"
#include "tests/kvm/program.h"

#define INITRD "build/initrd/attach-agent.cpio"
/*
 * Virtio over PCI, as libvirt provides it; a program that spins in known functions, and the agent.
 */
#define MAKE_INITRD                                                                                \
	"flock build tests/rig/initrd --modules 'virtio_pci virtio_console' --output " INITRD      \
	" build/rig/workload build/agent/kvmscope-agent > /dev/null"
#define CHANNEL "<channel type='unix'><target type='virtio' name='org.kvmscope.agent.0'/></channel>"
#define TRIES   1200 /* a minute */

static const struct libvirt_domain domain = {
	.initrd = INITRD,
	.command_line = "kvmscope.run=kvmscope-agent+&amp;+workload+user+10000",
	.devices = CHANNEL,
	.extra = "<metadata>" FAKE_PROFILE("frequency='99'") "</metadata>",
};

static bool start_domain(struct libvirt_daemon *libvirt)
{
	CHECK(!system(MAKE_INITRD)); /* NOLINT(cert-env33-c): the test's own command */
	libvirt_daemon_prepare(libvirt);
	return libvirt_daemon_start(libvirt) && libvirt_domain_start_with(libvirt, "one", &domain);
}

/* True if a line of kvmscope report on PATH has both. The report is written to DIRECTORY. */
static bool is_symbolized(const char *directory, const char *path)
{
	char command[1024];

	snprintf(
		command, sizeof(command),
		"build/kvmscope report -i %s > %s/report 2>&1; grep -qE ' hash_block +workload$' %s/report",
		path, directory, directory);
	return !system(command); /* NOLINT(cert-env33-c): the test's own command */
}

static void show(const char *directory)
{
	char command[128];

	snprintf(command, sizeof(command), "cat %s/report >&2", directory);
	CHECK(!system(command)); /* NOLINT(cert-env33-c): the test's own command */
}

/* Attaches until the guest, which may still be booting, runs a working program. */
static bool attach(struct libvirt_daemon *libvirt, struct program *tool, const char *options)
{
	char arguments[512], path[128];

	snprintf(path, sizeof(path), "%s/perf.data", libvirt->directory);
	for (int seconds = 3; seconds < 100; seconds *= 2) { /* however busy the machine is */
		snprintf(arguments, sizeof(arguments),
			 "attach --domain one --connect %s --time %d -o %s %s", libvirt->uri,
			 seconds, path, options);
		program_run(tool, arguments);
		if (tool->status || is_symbolized(libvirt->directory, path))
			return !tool->status;
	}
	return false;
}

/* The channel's socket, found as any user would find it. */
static bool find_socket(struct libvirt_daemon *libvirt, char *path, size_t size)
{
	char xml[16384] = "", *at, *end;

	libvirt_virsh(libvirt, xml, sizeof(xml), "dumpxml one");
	at = strstr(xml, "<source mode='bind' path='");
	end = at ? strchr(at + strlen("<source mode='bind' path='"), '\'') : NULL;
	if (!end)
		return false;
	*end = '\0';
	snprintf(path, size, "/proc/%d/root%s", libvirt_domain_pid(libvirt, "one"),
		 at + strlen("<source mode='bind' path='"));
	return true;
}

/* QEMU accepts one client at a time. */
static int hold(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	CHECK(snprintf(address.sun_path, sizeof(address.sun_path), "%s", path) <
	      (int)sizeof(address.sun_path));
	CHECK(!connect(fd, (const struct sockaddr *)&address, sizeof(address)));
	return fd;
}

static void check_that_one_holds_it(struct libvirt_daemon *libvirt)
{
	char path[256], arguments[512];
	struct program tool;
	int held;

	REQUIRE(find_socket(libvirt, path, sizeof(path)));
	held = hold(path);
	snprintf(arguments, sizeof(arguments),
		 "attach --domain one --connect %s --time 1 --no-buildid-cache -o %s/held.data",
		 libvirt->uri, libvirt->directory);
	for (int tries = 0; tries < 10; tries++) { /* until QEMU has accepted it */
		program_run(&tool, arguments);
		if (strstr(tool.text, "another program is connected"))
			break;
	}
	CHECK(strstr(tool.text, "another program is connected"));
	close(held);
}

/* Belongs to a process other than the VM's. */
static void check_that_others_are_refused(struct libvirt_daemon *libvirt)
{
	char arguments[512];
	struct program tool;

	snprintf(
		arguments, sizeof(arguments),
		"attach --domain one --connect %s --time 1 --no-buildid-cache --agent %s/run/libvirt-sock -o %s/other.data",
		libvirt->uri, libvirt->directory, libvirt->directory);
	program_run(&tool, arguments);
	CHECK_EQUAL(tool.status, 0);
	CHECK(strstr(tool.text, "cannot be connected to: Operation not permitted"));
}

/* The latest complete file of the domain. */
static bool latest_file(const struct daemon_run *daemon, char *path, size_t size)
{
	char command[256], *end;
	FILE *list;

	snprintf(command, sizeof(command),
		 "ls %s/recordings/one/*Z.perf.data 2> /dev/null | tail -n 1", daemon->directory);
	list = popen(command, "re"); /* NOLINT(cert-env33-c): the test's own command */
	*path = '\0';
	end = list && fgets(path, (int)size, list) ? strchr(path, '\n') : NULL;
	if (list)
		pclose(list);
	if (end)
		*end = '\0';
	return end;
}

/* In a file other than BEFORE. */
static bool wait_for_names(const struct daemon_run *daemon, char *before)
{
	char path[256];

	for (int tries = 0; tries < TRIES / 2; tries++) {
		if (latest_file(daemon, path, sizeof(path)) && strcmp(path, before) > 0 &&
		    is_symbolized(daemon->directory, path)) {
			strcpy(before, path);
			return true;
		}
		usleep(100000);
	}
	return false;
}

/* Each file is complete by itself, though the guest reported its programs only once. */
static void check_daemon(struct libvirt_daemon *libvirt)
{
	struct daemon_run daemon;
	struct program tool;
	char path[256] = "", arguments[256], *log;
	json_t *status;

	daemon_run_prepare(&daemon, "");
	snprintf(daemon.run, sizeof(daemon.run), "%s/kvmscope", libvirt->directory);
	snprintf(daemon.libvirt, sizeof(daemon.libvirt), "%s/run/qemu", libvirt->directory);
	snprintf(daemon.uri, sizeof(daemon.uri), "%s", libvirt->uri);
	if (daemon_run_start(&daemon)) {
		if (!wait_for_names(&daemon, path) || !wait_for_names(&daemon, path)) {
			log = daemon_run_log(&daemon);
			FAIL_TEST("a file has no symbols:\n%s", log);
			free(log);
			show(daemon.directory);
		}
		status = daemon_run_ask(&daemon, "domain-status",
					json_pack("{s:s}", "domain", "one"));
		CHECK_STRING(json_string_value(json_object_get(status, "agent")), "open");
		json_decref(status);
		snprintf(arguments, sizeof(arguments), "ctl --socket %s/kvmscoped.sock status one",
			 daemon.run);
		program_run(&tool, arguments);
		CHECK(strstr(tool.text,
			     "\nagent:    open: it provides symbols of user-space images\n"));
		CHECK(!libvirt_virsh(libvirt, NULL, 0, "reset one"));
		CHECK(wait_for_names(&daemon, path));
	}
	daemon_run_end(&daemon);
}

TEST(attach_agent, programs_of_a_domain_are_symbolized_automatically)
{
	struct libvirt_daemon libvirt = { 0 };
	struct program tool;

	LIBVIRT_REQUIRED();
	if (start_domain(&libvirt)) {
		program_set_home(libvirt.directory); /* from the build-id cache */
		if (!attach(&libvirt, &tool, "")) {
			FAIL_TEST("the guest program has no symbols:\n%s", tool.text);
			show(libvirt.directory);
		}
		CHECK(strstr(tool.text, "the guest agent reported the guest's processes"));
		check_that_one_holds_it(&libvirt);
		check_that_others_are_refused(&libvirt);
		check_daemon(&libvirt);
		program_set_home(NULL);
	}
	libvirt_daemon_stop(&libvirt);
}
