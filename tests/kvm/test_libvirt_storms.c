/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many domains start and end, one after the other and at once, while kvmscoped hangs and is killed,
 * and libvirtd is killed: no domain is harmed, and nothing is left over.
 */
#include <dirent.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/kvm/libvirt_host.h"
#include "tests/unit/shim/test.h"
#include "vmm/daemon/hook_message.h"

/*
 * One after the other, and at once; fewer with sanitizers, where this is the second run.
 * KVMSCOPE_STORM sets the number of those one after the other.
 */
#ifdef __SANITIZE_ADDRESS__
#define IN_A_ROW 4
#else
#define IN_A_ROW 50
#endif
#define AT_ONCE 8

#define TRIES 1200 /* of 50 ms, a minute */

/* virsh commands; $n is the domain's number. */
#define START       "create small-$n.xml"
#define END         "destroy small-$n"
#define COME_AND_GO START "; " END

/* With minimal firmware and without a kernel: only start and end matter. */
static void write_small_domain(const struct libvirt_host *host, int number)
{
	char path[128];
	FILE *file;

	snprintf(path, sizeof(path), "%s/small-%d.xml", host->libvirt.directory, number);
	file = fopen(path, "we");
	REQUIRE(file != NULL);
	fprintf(file,
		"<domain type='qemu'><name>small-%d</name><memory unit='MiB'>16</memory><vcpu>1</vcpu>"
		"<metadata>" FAKE_PROFILE(
			"frequency='20'") "</metadata>"
					  "<os><type arch='x86_64' machine='pc'>hvm</type></os><devices>"
					  "<emulator>/usr/bin/qemu-system-x86_64</emulator><controller type='usb' model='none'/>"
					  "<memballoon model='none'/></devices></domain>",
		number);
	fclose(file);
}

/* Runs ROUNDS times AT_ONCE such virsh processes, each with its own domain, in the background. */
static FILE *begin_storm(const struct libvirt_host *host, const char *commands, int rounds,
			 int at_once)
{
	char command[1024];

	snprintf(
		command, sizeof(command),
		"cd %s; for i in $(seq %d); do for n in $(seq %d); do timeout -k 10 60 virsh -q -c '%s' \"%s\" "
		"> storm-$n.log 2>&1 || touch failed & done; wait; test ! -e failed || exit 1; done",
		host->libvirt.directory, rounds, at_once, host->libvirt.uri, commands);
	return popen(command, "re"); /* NOLINT(cert-env33-c): the test's own command */
}

static void end_storm(const struct libvirt_host *host, FILE *storm)
{
	char command[128];

	REQUIRE(storm != NULL);
	if (!pclose(storm))
		return;
	snprintf(command, sizeof(command), "cat %s/storm-*.log >&2", host->libvirt.directory);
	CHECK(!system(command)); /* NOLINT(cert-env33-c): the test's own command */
	FAIL_TEST("a domain could not be started or ended");
}

static void storm(const struct libvirt_host *host, const char *commands, int rounds, int at_once)
{
	end_storm(host, begin_storm(host, commands, rounds, at_once));
}

/* What is killed, and when. */

static void kill_daemon(struct libvirt_host *host)
{
	CHECK_EQUAL(daemon_run_stop(&host->daemon, SIGKILL), 128 + SIGKILL);
}

/* All domains come and go at once, while kvmscoped is present, gone and back. */
static void kill_daemon_in_a_storm(struct libvirt_host *host)
{
	FILE *storm = begin_storm(host, COME_AND_GO, 1, AT_ONCE);

	kill_daemon(host);
	CHECK(daemon_run_start(&host->daemon));
	end_storm(host, storm);
}

static void hang_daemon_in_a_storm(struct libvirt_host *host)
{
	kill(host->daemon.pid, SIGSTOP);
	storm(host, COME_AND_GO, 2, 1);
	kill(host->daemon.pid, SIGCONT);
}

static pid_t pid_of(const struct libvirt_host *host, int number)
{
	char name[16];

	snprintf(name, sizeof(name), "small-%d", number);
	return libvirt_domain_pid(&host->libvirt, name);
}

static void check_they_run(const struct libvirt_host *host, const pid_t pids[AT_ONCE])
{
	for (int i = 0; i < AT_ONCE; i++)
		CHECK(pids[i] > 0 && !kill(pids[i], 0) && pid_of(host, i + 1) == pids[i]);
}

/* Neither daemon runs for a moment, and both find the domains again. */
static void kill_both_beside_domains(struct libvirt_host *host)
{
	pid_t pids[AT_ONCE];

	storm(host, START, 1, AT_ONCE);
	for (int i = 0; i < AT_ONCE; i++)
		pids[i] = pid_of(host, i + 1);
	CHECK(daemon_run_wait_for_domains(&host->daemon, AT_ONCE));
	kill_daemon(host);
	libvirt_daemon_kill(&host->libvirt);
	check_they_run(host, pids);
	CHECK(libvirt_daemon_restart(&host->libvirt));
	CHECK(daemon_run_start(&host->daemon));
	CHECK(daemon_run_wait_for_domains(&host->daemon, AT_ONCE));
	check_they_run(host, pids);
	storm(host, END, 1, AT_ONCE);
}

/* What is left over. */

static size_t count_entries(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The number of files in a directory, dot files included; 0 if it does not exist. */
static size_t count_entries(const char *format, ...)
{
	const struct dirent *entry;
	char path[256];
	va_list arguments;
	size_t count = 0;
	DIR *directory;

	va_start(arguments, format);
	vsnprintf(path, sizeof(path), format, arguments);
	va_end(arguments);
	directory = opendir(path);
	while (directory && (entry = readdir(directory)))
		count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
			 strcmp(entry->d_name, HOOK_DROPPED) != 0;
	if (directory)
		closedir(directory);
	return count;
}

static size_t count_children(pid_t pid)
{
	size_t count = 0;
	char path[64];
	pid_t child;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", pid, pid);
	file = fopen(path, "re");
	while (file && fscanf(file, "%d", &child) == 1)
		count++;
	if (file)
		fclose(file);
	return count;
}

/* kvmscoped's resources without a domain. */
struct holding {
	size_t threads, descriptors;
};

static struct holding holding_of(pid_t pid)
{
	return (struct holding){ count_entries("/proc/%d/task", pid),
				 count_entries("/proc/%d/fd", pid) };
}

/*
 * The keeper is the parent of all domains, helpers of libvirt and hooks. Its only child is libvirtd
 * now.
 */
static bool is_quiet(const struct libvirt_host *host, const struct holding *before)
{
	struct holding now = holding_of(host->daemon.pid);

	return count_children(host->libvirt.keeper) == 1 && !count_children(host->daemon.pid) &&
	       !count_entries("%s/" HOOK_SPOOL, host->daemon.run) &&
	       now.threads <= before->threads && now.descriptors <= before->descriptors;
}

/* Processes, waiting messages, threads and descriptors. Those that end take a moment. */
static void check_all_is_quiet(const struct libvirt_host *host, const struct holding *before)
{
	struct holding now;

	for (int i = 0; i < TRIES && !is_quiet(host, before); i++)
		usleep(50000);
	now = holding_of(host->daemon.pid);
	CHECK_EQUAL(count_children(host->libvirt.keeper), 1);
	CHECK_EQUAL(count_children(host->daemon.pid), 0);
	CHECK_EQUAL(count_entries("%s/" HOOK_SPOOL, host->daemon.run), 0);
	if (now.threads > before->threads || now.descriptors > before->descriptors)
		FAIL_TEST("kvmscoped has %zu threads and %zu descriptors, and had %zu and %zu",
			  now.threads, now.descriptors, before->threads, before->descriptors);
}

/* Without a daemon nothing receives the hook's messages; a stopped one reads none. */
TEST(libvirt, storms_of_domains_leave_nothing_over_whatever_the_daemon_does)
{
	const char *rounds = getenv("KVMSCOPE_STORM");
	struct libvirt_host host;
	struct holding before;

	LIBVIRT_REQUIRED();
	libvirt_host_prepare(&host, "");
	libvirt_host_install_hook(&host);
	if (libvirt_daemon_start(&host.libvirt)) {
		for (int i = 1; i <= AT_ONCE; i++)
			write_small_domain(&host, i);
		storm(&host, COME_AND_GO, 1, 1);
		CHECK(daemon_run_start(&host.daemon));
		kill_daemon_in_a_storm(&host);
		hang_daemon_in_a_storm(&host);
		kill_both_beside_domains(&host);
		CHECK(daemon_run_wait_for_domains(&host.daemon, 0));
		before = holding_of(host.daemon.pid); /* it had eight domains */
		storm(&host, COME_AND_GO, rounds ? atoi(rounds) : IN_A_ROW, 1);
		CHECK(daemon_run_wait_for_domains(&host.daemon, 0));
		check_all_is_quiet(&host, &before);
		CHECK_EQUAL(daemon_run_stop(&host.daemon, SIGTERM), 0);
		libvirt_host_check_nothing_is_left(&host, "small");
	}
	libvirt_host_end(&host);
}
