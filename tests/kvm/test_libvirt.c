// SPDX-License-Identifier: Apache-2.0
/* kvmscoped and its hook beside a libvirtd of the test's own: whatever happens to either, domains are not
 * harmed. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/kvm/daemon_run.h"
#include "tests/kvm/libvirt_daemon.h"
#include "tests/unit/shim/test.h"
#include "vmm/daemon/hook_install.h"

/* One after the other, and at once; fewer where it is the second time, with sanitizers. KVMSCOPE_STORM is
 * another number of those in a row. */
#ifdef __SANITIZE_ADDRESS__
#define IN_A_ROW 4
#else
#define IN_A_ROW 50
#endif
#define AT_ONCE 8

struct host {
	struct libvirt_daemon libvirt;
	struct daemon_run daemon;
};

/* The hook is there before libvirtd looks. */
static bool start_host(struct host *host, const char *conf)
{
	char hooks[96];

	*host = (struct host){ 0 };
	libvirt_daemon_prepare(&host->libvirt);
	snprintf(hooks, sizeof(hooks), "%s/etc/hooks", host->libvirt.directory);
	CHECK_EQUAL(hook_install(hooks), 0);
	daemon_run_prepare(&host->daemon, conf);
	snprintf(host->daemon.run, sizeof(host->daemon.run), "%s/kvmscope", host->libvirt.directory);
	snprintf(host->daemon.libvirt, sizeof(host->daemon.libvirt), "%s/run/qemu", host->libvirt.directory);
	snprintf(host->daemon.uri, sizeof(host->daemon.uri), "%s", host->libvirt.uri);
	return libvirt_daemon_start(&host->libvirt);
}

static void end_host(struct host *host)
{
	daemon_run_end(&host->daemon);
	libvirt_daemon_stop(&host->libvirt);
}

static bool runs(struct host *host, const char *name, pid_t pid)
{
	return pid > 0 && !kill(pid, 0) && libvirt_domain_pid(&host->libvirt, name) == pid;
}

/* The guest's kernel, found by kvmscoped; a failed check after a minute. */
static bool wait_for_kernel(const struct daemon_run *daemon, const char *domain)
{
	char *log;

	for (int i = 0; i < 1200; i++) {
		json_t *status =
			daemon_run_ask(daemon, "domain-status", json_pack("{s:s}", "domain", domain));
		bool found = json_is_string(json_object_get(status, "guest_release"));

		json_decref(status);
		if (found)
			return true;
		usleep(50000);
	}
	log = daemon_run_log(daemon);
	FAIL_TEST("the kernel of %s is not found:\n%s", domain, log);
	free(log);
	return false;
}

/* What a user does: the file that is written now, read by kvmscope report. */
static void check_report(const struct host *host, const char *domain)
{
	char command[512];

	snprintf(
		command, sizeof(command),
		"export HOME=%s; build/kvmscope report -i \"$(build/kvmscope ctl --socket %s/kvmscoped.sock dump %s)\" "
		"> %s/report 2>&1 && grep -qE ' [a-z_][a-z0-9_.]+ +.kernel.kallsyms.$' %s/report",
		host->daemon.directory, host->daemon.run, domain, host->daemon.directory,
		host->daemon.directory);
	if (!system(command)) /* NOLINT(cert-env33-c): a test's own words */
		return;
	snprintf(command, sizeof(command), "cat %s/report", host->daemon.directory);
	CHECK(!system(command)); /* NOLINT(cert-env33-c): a test's own words */
	FAIL_TEST("the report names no function of the kernel");
}

TEST(libvirt, a_domain_is_profiled_from_its_start_to_its_end_whoever_dies_meanwhile)
{
	struct host host;
	char *log;
	pid_t pid;

	LIBVIRT_REQUIRED();
	if (!start_host(&host, "[recordings]\nrotate = 1h\n") || !daemon_run_start(&host.daemon) ||
	    !libvirt_domain_start(&host.libvirt, "one",
				  "<metadata>" FAKE_PROFILE("frequency='20'") "</metadata>")) {
		end_host(&host);
		return;
	}
	pid = libvirt_domain_pid(&host.libvirt, "one");
	CHECK(daemon_run_wait_for_samples(&host.daemon, "one", 20));
	CHECK(wait_for_kernel(&host.daemon, "one"));
	log = daemon_run_log(&host.daemon);
	CHECK(strstr(log, "libvirt: domain one: started")); /* by the hook */
	free(log);

	check_report(&host, "one");
	libvirt_daemon_kill(&host.libvirt);
	CHECK(runs(&host, "one", pid));
	CHECK(libvirt_daemon_restart(&host.libvirt));
	CHECK(daemon_run_wait_for_domains(&host.daemon, 1));
	CHECK_EQUAL(daemon_run_stop(&host.daemon, SIGKILL), 128 + SIGKILL);
	CHECK(runs(&host, "one", pid));
	CHECK(daemon_run_start(&host.daemon));
	CHECK(daemon_run_wait_for_samples(&host.daemon, "one", 5));
	CHECK(runs(&host, "one", pid));

	/* Turned off and on as it runs, by libvirt's own means. */
	CHECK(!libvirt_virsh(&host.libvirt, NULL, 0, "metadata one urn:kvmscope:profile --live --remove"));
	CHECK(daemon_run_wait_for_domains(&host.daemon, 0));
	CHECK(!libvirt_virsh(&host.libvirt, NULL, 0,
			     "metadata one urn:kvmscope:profile --live --key k --set '<profile/>'"));
	CHECK(daemon_run_wait_for_domains(&host.daemon, 1));
	CHECK(runs(&host, "one", pid));

	CHECK(!libvirt_virsh(&host.libvirt, NULL, 0, "destroy one"));
	CHECK(daemon_run_wait_for_domains(&host.daemon, 0));
	CHECK_EQUAL(daemon_run_stop(&host.daemon, SIGTERM), 0);
	end_host(&host);
}

/* Without firmware that does much and without a kernel: it is the start and the end that count. */
static void write_small_domain(const struct host *host, int number)
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

/* ROUNDS times AT_ONCE domains are made and ended, each by a virsh of its own. */
static void storm(struct host *host, int rounds, int at_once)
{
	char command[1024];

	snprintf(
		command, sizeof(command),
		"for i in $(seq %d); do for n in $(seq %d); do timeout 60 virsh -q -c '%s' \"create %s/small-$n.xml; "
		"destroy small-$n\" > %s/storm-$n.log 2>&1 || touch %s/failed & done; wait; "
		"test ! -e %s/failed || exit 1; done",
		rounds, at_once, host->libvirt.uri, host->libvirt.directory, host->libvirt.directory,
		host->libvirt.directory, host->libvirt.directory);
	if (system(command)) { /* NOLINT(cert-env33-c): a test's own words */
		snprintf(command, sizeof(command), "cat %s/storm-*.log >&2", host->libvirt.directory);
		CHECK(!system(command)); /* NOLINT(cert-env33-c): a test's own words */
		FAIL_TEST("a domain could not be started or ended");
	}
}

/* Processes, sockets and files of domains that are gone. */
static void check_nothing_is_left(const struct host *host)
{
	char command[256];

	snprintf(command, sizeof(command), "ls %s | grep -q small", host->daemon.libvirt);
	CHECK(system(command) != 0); /* NOLINT(cert-env33-c): a test's own words */
	snprintf(command, sizeof(command), "find %s/recordings -name '*.partial' | grep -q .",
		 host->daemon.directory);
	CHECK(system(command) != 0); /* NOLINT(cert-env33-c): a test's own words */
}

/* Without a daemon the hook has nobody; one that is stopped takes nothing from its socket. */
TEST(libvirt, storms_of_domains_leave_nothing_behind_whatever_the_daemon_does)
{
	const char *rounds = getenv("KVMSCOPE_STORM");
	struct host host;

	LIBVIRT_REQUIRED();
	if (start_host(&host, "")) {
		for (int i = 1; i <= AT_ONCE; i++)
			write_small_domain(&host, i);
		storm(&host, 1, 1);
		CHECK(daemon_run_start(&host.daemon));
		storm(&host, rounds ? atoi(rounds) : IN_A_ROW, 1);
		storm(&host, 1, AT_ONCE);
		kill(host.daemon.pid, SIGSTOP);
		storm(&host, 2, 1);
		kill(host.daemon.pid, SIGCONT);
		CHECK(daemon_run_wait_for_domains(&host.daemon, 0));
		CHECK_EQUAL(daemon_run_stop(&host.daemon, SIGTERM), 0);
		check_nothing_is_left(&host);
	}
	end_host(&host);
}
