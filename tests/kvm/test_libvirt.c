/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvmscoped and its hook with a libvirtd of the test's own: whatever happens to either, domains are
 * not harmed.
 */
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/kvm/libvirt_host.h"
#include "tests/kvm/text_file.h"
#include "tests/unit/shim/test.h"

/* Waits until kvmscoped has found the guest's kernel; the check fails after a minute. */
static bool wait_for_kernel(const struct daemon_run *daemon, const char *domain)
{
	char *log;

	for (int i = 0; i < 1200; i++) {
		json_t *status = daemon_run_ask(daemon, "domain-status",
						json_pack("{s:s}", "domain", domain));
		bool found = json_is_string(json_object_get(status, "guest_release"));

		json_decref(status);
		if (found)
			return true;
		usleep(50000);
	}
	log = daemon_run_log(daemon);
	FAIL_TEST("the kernel of %s was not found:\n%s", domain, log);
	free(log);
	return false;
}

/* The commands of a user. */

static bool type_well(const struct libvirt_host *host, const char *line, char text[4096])
{
	int status = libvirt_host_type(host, line, text, 4096);

	if (status)
		FAIL_TEST("%s: status %d, %s", line, status, text);
	return !status;
}

/* The lines of README.md that profile every domain. */
#define README_LINES 3

static bool read_lines(char lines[README_LINES][256])
{
	FILE *file = fopen("README.md", "re");
	bool found = false;

	while (file && !found && fgets(lines[0], 256, file))
		found = !strncmp(lines[0], "kvmscope libvirt install", 24);
	for (int i = 1; found && i < README_LINES; i++)
		found = fgets(lines[i], 256, file) != NULL;
	if (file)
		fclose(file);
	return found;
}

/* NUMBER counts from 0. */
static bool type_line_of_readme(const struct libvirt_host *host, int number, char text[4096])
{
	char lines[README_LINES][256];

	if (read_lines(lines))
		return type_well(host, lines[number], text);
	FAIL_TEST("README.md has no lines for the domains of a libvirt host");
	return false;
}

/*
 * systemctl's arguments are recorded, and the test carries them out. tests/kvm/test_systemd.c uses
 * the real one.
 */
static void install_systemctl(const struct libvirt_host *host)
{
	char directory[128], text[4096];

	snprintf(directory, sizeof(directory), "%s/bin", host->daemon.directory);
	CHECK(!mkdir(directory, 0755));
	text_file_write(directory, "systemctl", "#!/bin/sh\necho \"$@\" >> systemctl\n");
	type_well(host, "chmod 755 bin/systemctl", text);
	type_well(
		host,
		"mkdir -p /run/systemd; mount -t tmpfs none /run/systemd; mkdir /run/systemd/system",
		text);
}

/* kvmscope libvirt status. */
static void check_status(const struct libvirt_host *host, int status, const char *hook,
			 const char *daemon)
{
	char text[4096];

	CHECK_EQUAL(libvirt_host_type(host, "kvmscope libvirt status", text, 4096), status);
	if (!strstr(text, hook) || !strstr(text, daemon) || !strstr(text, "\nlibvirt:  "))
		FAIL_TEST("no '%s' or '%s' in:\n%s", hook, daemon, text);
}

static bool install(struct libvirt_host *host)
{
	char text[4096];

	install_systemctl(host);
	check_status(host, 1, "/etc/libvirt/hooks/qemu.d/kvmscope: not installed", "not running");
	CHECK(type_line_of_readme(host, 0, text));
	CHECK(strstr(text, "/etc/libvirt/hooks/qemu.d/kvmscope is installed\n"));
	CHECK(strstr(text, "restart it once"));
	type_well(host, "cat systemctl", text);
	CHECK_STRING(text, "enable --now kvmscoped.service\n");
	return daemon_run_start(&host->daemon);
}

static void uninstall(const struct libvirt_host *host)
{
	char text[4096];

	check_status(host, 0, "qemu.d/kvmscope: installed", "kvmscoped ");
	type_well(host, "kvmscope libvirt uninstall", text);
	check_status(host, 1, "not installed", "kvmscoped ");
	CHECK_EQUAL(libvirt_host_type(host, "kvmscope libvirt uninstall", text, 4096), 1);
	CHECK(strstr(text, "does not exist"));
	type_well(host, "ls /etc/libvirt/hooks", text);
	CHECK_STRING(text, "");
}

/*
 * The third line, on what the second one started to record, once there are samples after the kernel
 * was found.
 */
static void check_flame_graph(const struct libvirt_host *host)
{
	char text[4096];

	for (int tries = 0; tries < 60; tries++) {
		if (!type_line_of_readme(host, 2, text))
			return;
		if (!libvirt_host_type(
			    host,
			    "grep -qE '^\\[\"[a-z_][a-z0-9_.]+\",\"\\[kernel.kallsyms\\]\"' flame.html",
			    text, 4096))
			return;
		sleep(1);
	}
	FAIL_TEST("the flame graph has no function of the kernel");
}

/* The script has been run once; from here on it can be run again. */
static bool start_domain(struct libvirt_host *host)
{
	char text[4096];

	return libvirt_domain_start(&host->libvirt, "web", "") &&
	       type_well(host, "virsh dumpxml web > web.xml; virsh define web.xml", text);
}

/* With the three lines of README.md. */
TEST(libvirt, a_domain_is_profiled_from_start_to_end_across_restarts_of_both_daemons)
{
	struct libvirt_host host;
	char text[4096];
	pid_t pid;

	LIBVIRT_REQUIRED();
	libvirt_host_prepare(&host, "[recordings]\nrotate = 1h\n[domains]\nfrequency = 20\n");
	if (!libvirt_daemon_start(&host.libvirt) || !start_domain(&host) || !install(&host)) {
		libvirt_host_end(&host);
		return;
	}
	pid = libvirt_domain_pid(&host.libvirt, "web");
	CHECK(type_line_of_readme(&host, 1, text));
	CHECK(type_line_of_readme(&host, 2, text)); /* at once */
	CHECK(daemon_run_wait_for_samples(&host.daemon, "web", 20));
	CHECK(wait_for_kernel(&host.daemon, "web"));
	check_flame_graph(&host);

	libvirt_daemon_kill(&host.libvirt);
	CHECK(libvirt_host_runs(&host, "web", pid));
	CHECK(libvirt_daemon_restart(&host.libvirt));
	CHECK(daemon_run_wait_for_domains(&host.daemon, 1));
	CHECK_EQUAL(daemon_run_stop(&host.daemon, SIGKILL), 128 + SIGKILL);
	CHECK(libvirt_host_runs(&host, "web", pid));
	CHECK(daemon_run_start(&host.daemon));
	CHECK(daemon_run_wait_for_samples(&host.daemon, "web", 5));
	CHECK(libvirt_host_runs(&host, "web", pid));

	/* Turned off and on while it runs, with libvirt's own commands. */
	CHECK(!libvirt_virsh(&host.libvirt, NULL, 0,
			     "metadata web urn:kvmscope:profile --live --remove"));
	CHECK(daemon_run_wait_for_domains(&host.daemon, 0));
	CHECK(!libvirt_virsh(
		&host.libvirt, NULL, 0,
		"metadata web urn:kvmscope:profile --live --key k --set '<profile/>'"));
	CHECK(daemon_run_wait_for_domains(&host.daemon, 1));
	CHECK(libvirt_host_runs(&host, "web", pid));
	CHECK(!libvirt_virsh(&host.libvirt, NULL, 0, "destroy web"));
	CHECK(daemon_run_wait_for_domains(&host.daemon, 0));

	/*
	 * In the next start's configuration, and reported by the hook after libvirtd was restarted.
	 */
	CHECK(!libvirt_virsh(&host.libvirt, NULL, 0, "start web"));
	CHECK(daemon_run_wait_for_domains(&host.daemon, 1));
	CHECK(daemon_run_wait_for_log(&host.daemon, "libvirt: domain web: started"));
	CHECK(!libvirt_virsh(&host.libvirt, NULL, 0, "destroy web"));
	CHECK(daemon_run_wait_for_domains(&host.daemon, 0));
	uninstall(&host);
	CHECK_EQUAL(daemon_run_stop(&host.daemon, SIGTERM), 0);
	libvirt_host_end(&host);
}
