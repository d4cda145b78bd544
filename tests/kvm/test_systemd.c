/* SPDX-License-Identifier: Apache-2.0 */
/* The unit kvmscoped.service under a systemd of the test's own, with its complete sandbox. */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/kvm/daemon_run.h"
#include "tests/kvm/guest_run.h"
#include "tests/kvm/libvirt_daemon.h"
#include "tests/kvm/text_file.h"
#include "tests/unit/shim/test.h"

#define SYSTEMD "/lib/systemd/systemd"

/* Time between two polls, most of which start processes. */
#define PAUSE_US 250000
#define TRIES    240 /* a minute */
/* Three minutes: an emulated guest has to boot. */
#define STATUS_TRIES 720
#define KEPT                                                                                       \
	(1ull << CAP_PERFMON | 1ull << CAP_SYS_PTRACE | 1ull << CAP_DAC_OVERRIDE |                 \
	 1ull << CAP_SYS_ADMIN)

struct system {
	char directory[512]; /* absolute, below build: /tmp is private to the unit */
	const char *options; /* additional configuration of kvmscoped */
	const char *bound;   /* another directory that must be visible to the unit */
	pid_t unshare, init; /* in our PID namespace; 0: unknown */
};

static int shell(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Waits for the child and returns its exit status, or -1. */
static int shell(const char *format, ...)
{
	char command[2048];
	va_list arguments;
	int status;

	va_start(arguments, format);
	vsnprintf(command, sizeof(command), format, arguments);
	va_end(arguments);
	status = system(command); /* NOLINT(cert-env33-c): the test's own command */
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* The unit as installed, but with the program of this build, which may be in a home directory. */
static void write_units(const struct system *system)
{
	const char *home;
	char here[512];

	REQUIRE(getcwd(here, sizeof(here)) != NULL);
	home = !strncmp(here, "/home/", 6) || !strncmp(here, "/root/", 6) ? "tmpfs" : "yes";
	CHECK_EQUAL(shell("mkdir -p %s/units/kvmscoped.service.d && sed 's,@PREFIX@,/usr,' "
			  "vmm/daemon/kvmscoped.service.in > %s/units/kvmscoped.service",
			  system->directory, system->directory),
		    0);
	text_file_write(system->directory, "units/test.target", "[Unit]\nDefaultDependencies=no\n");
	text_file_write(system->directory, "units/kvmscoped.service.d/test.conf",
			"[Unit]\nDefaultDependencies=no\n[Service]\nExecStart=\n"
			"ExecStart=%s/build/kvmscoped --verbose --config %s/kvmscope.conf %s\n"
			"StandardError=append:%s/log\nBindReadOnlyPaths=%s/build %s\n"
			"ProtectHome=%s\n",
			here, system->directory, system->options ? system->options : "",
			system->directory, here, system->bound ? system->bound : "", home);
	text_file_write(
		system->directory, "kvmscope.conf",
		"[recordings]\nrotate = 1s\nreserve = 0\n[metrics]\nlisten = off\n"
		"[push]\nurl = http://127.0.0.1:1\ninterval = 1s\n"); /* nothing listens there */
}

static pid_t first_child(pid_t pid)
{
	pid_t child = 0;
	char path[64];
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", pid, pid);
	file = fopen(path, "re");
	if (file && fscanf(file, "%d", &child) != 1)
		child = 0;
	if (file)
		fclose(file);
	return child;
}

static void boot(struct system *system)
{
	snprintf(system->directory, sizeof(system->directory), "%s/build/test-systemd-%d",
		 getenv("PWD") ? getenv("PWD") : ".", getpid());
	write_units(system);
	fflush(NULL);
	system->unshare = fork();
	if (!system->unshare) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execlp("unshare", "unshare", "--pid", "--fork", "--kill-child", "--mount",
		       "--mount-proc", "--net", "--cgroup", "--ipc", "--uts",
		       "tests/kvm/systemd-boot", system->directory, NULL);
		_exit(127);
	}
	for (int tries = 0; tries < TRIES && !system->init; tries++) {
		system->init = first_child(system->unshare);
		usleep(PAUSE_US);
	}
}

/* All processes of the namespace end with its first one. */
static void shut_down(struct system *system)
{
	kill(system->unshare, SIGKILL);
	waitpid(system->unshare, NULL, 0);
	for (int tries = 0; tries < TRIES && system->init && !kill(system->init, 0); tries++)
		usleep(PAUSE_US);
	CHECK_EQUAL(shell("rm -rf %s", system->directory), 0);
}

/* Runs in its namespaces, where systemctl finds systemd's own socket. */
#define INSIDE "nsenter -t %d -p -m --wd=. "

static bool wait_until_active(const struct system *system)
{
	for (int tries = 0; tries < TRIES; tries++) {
		if (!shell(INSIDE "systemctl is-active --quiet kvmscoped.service 2> /dev/null",
			   system->init))
			return true;
		usleep(PAUSE_US);
	}
	shell("cat %s/log >&2; " INSIDE "systemctl status --no-pager kvmscoped.service >&2",
	      system->directory, system->init);
	return false;
}

/* Runs the command as the user does. */
static bool install(const struct system *system)
{
	for (int tries = 0; tries < TRIES; tries++) {
		if (!shell(INSIDE "systemctl is-active --quiet test.target 2> /dev/null",
			   system->init))
			break;
		usleep(PAUSE_US);
	}
	CHECK(!shell(INSIDE "build/kvmscope libvirt install --now --hooks %s/hooks", system->init,
		     system->directory));
	CHECK(!shell("test -x %s/hooks/qemu.d/kvmscope", system->directory));
	CHECK(!shell("test -h %s/etc/multi-user.target.wants/kvmscoped.service",
		     system->directory));
	CHECK(!shell(INSIDE "build/kvmscope libvirt status --hooks %s/hooks", system->init,
		     system->directory));
	return wait_until_active(system);
}

/* The kernel's view of its main process. */
static uint64_t status_of(const struct system *system, const char *what)
{
	unsigned long long value = UINT64_MAX;
	char command[256];
	FILE *output;

	snprintf(
		command, sizeof(command),
		INSIDE
		"sh -c 'sed -n \"s/^%s:[[:space:]]*//p\" /proc/$(systemctl show -P MainPID kvmscoped)/status'",
		system->init, what);
	output = popen(command, "re"); /* NOLINT(cert-env33-c): the test's own command */
	if (output && fscanf(output, "%llx", &value) != 1)
		value = UINT64_MAX;
	if (output)
		pclose(output);
	return value;
}

/* The next child of this process is created in the namespaces. */
static void enter(const struct system *system)
{
	const char *const names[] = { "pid", "mnt" };
	char path[64], here[512];

	if (!getcwd(here, sizeof(here)))
		_exit(1);
	for (size_t i = 0; i < 2; i++) {
		int fd;

		snprintf(path, sizeof(path), "/proc/%d/ns/%s", system->init, names[i]);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0 || setns(fd, 0))
			_exit(1);
	}
	if (chdir(here))
		_exit(1);
}

/* Like libvirt's QEMU: a filter that allows everything. */
static void install_filter(void)
{
	struct sock_filter pass = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	const struct sock_fprog program = { .len = 1, .filter = &pass };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		_exit(1);
}

struct domain {
	const char *name, *profile;
	bool has_filter;
	const char *sampled; /* in the log */
};

/* Runs in the child: a VM in the namespaces that appears to be started by libvirt. */
static _Noreturn void run_domain(const struct system *system, const struct domain *domain)
{
	struct daemon_run daemon = { .libvirt = "/run/libvirt/qemu" };
	struct program vm;

	enter(system);
	if (domain->has_filter)
		install_filter();
	fake_domain_start(&vm, &daemon, domain->name, domain->profile);
	_exit(0);
}

/* PATTERN is a grep pattern for JSON. */
static bool status_has(const struct system *system, const char *domain, const char *pattern)
{
	return !shell(
		INSIDE
		"build/kvmscope ctl --socket /run/kvmscope/kvmscoped.sock status %s --json 2> /dev/null | "
		"grep -qE '%s'",
		system->init, domain, pattern);
}

static bool wait_for_status(const struct system *system, const char *domain, const char *pattern)
{
	for (int tries = 0; tries < STATUS_TRIES; tries++) {
		if (status_has(system, domain, pattern))
			return true;
		usleep(PAUSE_US);
	}
	FAIL_TEST("the status of %s does not have %s under the unit's sandbox", domain, pattern);
	shell("cat %s/log >&2", system->directory);
	return false;
}

#define SAMPLED "\"samples\": [1-9][0-9]"

static void check_domain(const struct system *system, const struct domain *domain)
{
	pid_t child;
	int status;

	fflush(NULL);
	child = fork();
	if (!child)
		run_domain(system, domain);
	CHECK(waitpid(child, &status, 0) == child && !status);
	wait_for_status(system, domain->name, SAMPLED);
	CHECK(!shell("grep -qE \"domain %s: .*%s\" %s/log", domain->name, domain->sampled,
		     system->directory));
}

/* The domains have so many processes that parse what their guests have in memory. */
static void check_parsers(const struct system *system, int processes)
{
	CHECK(!shell(INSIDE "sh -c 'n=0; for child in $(cat /proc/$(systemctl show -P MainPID "
			    "kvmscoped)/task/*/children); do grep -qx \"CapPrm:.0*\" "
			    "/proc/$child/status && n=$((n + 1)); done; test $n -ge %d'",
		     system->init, processes));
	CHECK(shell("grep -q 'reads the guest.s programs failed' %s/log", system->directory));
}

/* A recording of DOMAIN was converted, and its profile waits for a server that answers. */
static bool wait_for_push(const struct system *system, const char *domain)
{
	for (int tries = 0; tries < TRIES; tries++) {
		if (!shell("ls %s/lib/kvmscope/push/*-%s.pb.gz > /dev/null 2>&1", system->directory,
			   domain))
			return true;
		usleep(PAUSE_US);
	}
	shell("cat %s/log >&2", system->directory);
	return false;
}

static void check_domains(const struct system *system)
{
	static const struct domain domains[] = {
		{ "one", FAKE_PROFILE("frequency='999' event='kvm:exit'"), false,
		  "by (bpf|perf) at" },
		/* The unit's own filters prevent access to those of others. */
		{ "two", FAKE_PROFILE("frequency='999' backend='ptrace'"), true, "by ptrace at" },
	};

	for (size_t i = 0; i < sizeof(domains) / sizeof(domains[0]); i++)
		check_domain(system, &domains[i]);
	check_parsers(system, 4);
	CHECK(wait_for_push(system, "one"));
}

/* Returns why systemd cannot run here, or NULL. */
static const char *systemd_unavailable_reason(void)
{
	if (access(SYSTEMD, X_OK) || shell("command -v nsenter systemctl unshare > /dev/null"))
		return "systemd is not installed";
	if (shell("unshare --pid --fork --mount --mount-proc --net --cgroup true 2> /dev/null"))
		return "systemd needs namespaces of its own, which take root";
	return NULL;
}

#define SYSTEMD_REQUIRED()                                                                         \
	do {                                                                                       \
		if (systemd_unavailable_reason())                                                  \
			SKIP("%s", systemd_unavailable_reason());                                  \
	} while (0)

TEST(systemd, the_unit_starts_under_its_sandbox_and_profiles)
{
	struct system system = { 0 };

	SYSTEMD_REQUIRED();
	GUEST_REQUIRED();
	boot(&system);
	if (install(&system)) {
		CHECK_EQUAL(status_of(&system, "CapBnd") & ~KEPT, 0);
		CHECK_EQUAL(status_of(&system, "CapEff") & ~KEPT, 0);
		CHECK_EQUAL(status_of(&system, "NoNewPrivs"), 1);
		CHECK_EQUAL(status_of(&system, "Seccomp"), 2);
		check_domains(&system);
		CHECK(!shell(INSIDE "systemctl stop kvmscoped.service", system.init));
		CHECK(!shell(INSIDE "test -d /run/kvmscope", system.init)); /* preserved */
	} else {
		FAIL_TEST("the unit does not start");
	}
	shut_down(&system);
}

/* --- a domain without KVM, by libvirt ------------------------------------------------ */

struct libvirt {
	struct libvirt_daemon daemon;
	pid_t child;
	int hold; /* libvirtd runs until it is closed */
};

/* Runs in the namespaces. */
static _Noreturn void keep_libvirt(struct libvirt_daemon *daemon, int ready, int hold)
{
	const char *const metadata = "<metadata>" FAKE_PROFILE("") "</metadata>";
	char byte;

	if (libvirt_daemon_start(daemon) && libvirt_domain_start(daemon, "emulated", metadata) &&
	    write(ready, "", 1) == 1)
		while (read(hold, &byte, 1) > 0)
			;
	libvirt_daemon_stop(daemon);
	_exit(0);
}

/* Returns false if it does not start; standard error has the reason. */
static bool start_libvirt(const struct system *system, struct libvirt *libvirt)
{
	int ready[2], hold[2];
	bool starts;
	char byte;

	if (pipe2(ready, O_CLOEXEC) || pipe2(hold, O_CLOEXEC))
		return false;
	fflush(NULL);
	libvirt->child = fork();
	if (!libvirt->child) {
		pid_t keeper;

		close(hold[1]);
		close(ready[0]);
		enter(system);
		keeper = fork();
		if (!keeper)
			keep_libvirt(&libvirt->daemon, ready[1], hold[0]);
		close(ready[1]);
		waitpid(keeper, NULL, 0);
		_exit(0);
	}
	close(ready[1]);
	close(hold[0]);
	libvirt->hold = hold[1];
	starts = read(ready[0], &byte, 1) == 1;
	close(ready[0]);
	return starts;
}

static void stop_libvirt(struct libvirt *libvirt)
{
	close(libvirt->hold);
	waitpid(libvirt->child, NULL, 0);
}

/* The guest's directory and kernel. */
static void check_emulated(const struct system *system)
{
	CHECK(wait_for_status(system, "emulated", "\"backend\": \"qmp\""));
	CHECK(wait_for_status(system, "emulated", SAMPLED));
	CHECK(wait_for_status(system, "emulated", "\"guest_release\": \"6\\.1\\."));
	check_parsers(system, 2);
	CHECK(wait_for_push(system, "emulated"));
}

/* Only libvirt provides the information, so the sandbox has to allow its socket. */
TEST(systemd, the_unit_profiles_a_domain_without_KVM_by_libvirt)
{
	struct libvirt libvirt = { 0 };
	char options[384];
	struct system system = { .options = options, .bound = libvirt.daemon.directory };

	SYSTEMD_REQUIRED();
	LIBVIRT_REQUIRED();
	libvirt_daemon_prepare(&libvirt.daemon);
	snprintf(options, sizeof(options), "--libvirt-directory %s/run/qemu --connect %s",
		 libvirt.daemon.directory, libvirt.daemon.uri);
	boot(&system);
	if (install(&system) && start_libvirt(&system, &libvirt)) {
		check_emulated(&system);
		stop_libvirt(&libvirt);
		CHECK(!shell(INSIDE "systemctl stop kvmscoped.service", system.init));
	} else {
		FAIL_TEST("the unit, or libvirt, does not start");
	}
	shut_down(&system);
	libvirt_daemon_stop(&libvirt.daemon);
}

/* Runs "systemd-analyze ARGUMENTS UNIT" on the unit with another program. */
static int analyze(const char *arguments)
{
	return shell(
		"d=build/test-unit-%d && mkdir $d && sed 's,@PREFIX@/sbin/kvmscoped,/bin/true,; /^Documentation/d' "
		"vmm/daemon/kvmscoped.service.in > $d/kvmscoped.service && systemd-analyze %s "
		"$d/kvmscoped.service; s=$?; rm -r $d; exit $s",
		getpid(), arguments);
}

/* systemd accepts all of its directives. */
TEST(systemd, the_unit_is_well_formed)
{
	if (shell("command -v systemd-analyze > /dev/null"))
		SKIP("systemd-analyze is not installed");
	CHECK_EQUAL(analyze("verify --man=no"), 0);
}

/* SECURITY.md has the figure. */
TEST(systemd, the_exposure_of_the_unit_is_below_2_5)
{
	if (shell("systemd-analyze --help 2> /dev/null | grep -q -e --threshold"))
		SKIP("systemd-analyze is not installed, or older than version 250");
	CHECK_EQUAL(analyze("security --offline=true --threshold=24 --no-pager > /dev/null"), 0);
}
