/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/kvm/libvirt_daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/kvm/text_file.h"
#include "tests/unit/quick_boot.h"

#define DRIVERS "/usr/lib/x86_64-linux-gnu/libvirt/connection-driver"
#define DRIVER  "libvirt_driver_qemu.so"
#define KERNEL  "build/cache/kernels/6.1/vmlinuz"
/* A nested KVM lists an MSR of the host (0x10a) that it does not allow to be set. */
#define KVM_CPU                                                                                    \
	"<cpu mode='host-passthrough'><feature policy='disable' name='arch-capabilities'/></cpu>"
/* Debian's libvirt requires this user, though our configuration runs QEMU as root. */
#define USER "libvirt-qemu"

static const struct {
	const char *ours, *theirs;
} places[] = {
	{ "etc", "/etc/libvirt" },         { "run", "/run/libvirt" },
	{ "lib", "/var/lib/libvirt" },     { "log", "/var/log/libvirt" },
	{ "cache", "/var/cache/libvirt" }, { "kvmscope", "/run/kvmscope" },
};

static const char qemu_conf[] = "stdio_handler = \"file\"\n"
				"security_driver = \"none\"\n"
				"namespaces = []\n"
				"cgroup_controllers = []\n"
				"user = \"root\"\n"
				"group = \"root\"\n"
				"remember_owner = 0\n";

/* Waits for the child and returns its exit status, or -1. */
static int wait_for(pid_t child)
{
	int status;

	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Only root can create a mount namespace, and not in every container. */
static bool may_mount(void)
{
	pid_t child = fork();

	if (!child)
		_exit(unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
	return !wait_for(child);
}

/* Fetches the kernel if it is missing. */
static bool has_kernel(void)
{
	return !access(KERNEL, R_OK) ||
	       !system("tests/rig/fetch-kernels 6.1 > /dev/null 2>&1"); /* NOLINT(cert-env33-c) */
}

const char *libvirt_unavailable_reason(void)
{
	if (access("/usr/sbin/libvirtd", X_OK) || access(DRIVERS "/" DRIVER, R_OK) ||
	    access("/usr/bin/virsh", X_OK))
		return "libvirtd, its QEMU driver or virsh is not installed";
	if (!has_kernel())
		return KERNEL " is not available: tests/rig/fetch-kernels 6.1 reports why";
	if (!may_mount())
		return "libvirtd needs a mount namespace here, which takes root";
	return NULL;
}

/* Each is a separate host, so that domains can migrate between them. */
static void make_uuid(char *uuid, size_t size)
{
	uint8_t bytes[16];

	REQUIRE_EQUAL(getrandom(bytes, sizeof(bytes), 0), sizeof(bytes));
	for (size_t i = 0, at = 0; i < sizeof(bytes); i++)
		at += (size_t)snprintf(uuid + at, size - at, "%s%02x",
				       i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", bytes[i]);
}

/*
 * libvirtd spends nearly all of its startup time on probing QEMU's capabilities, so the cache of
 * one is copied to the next; libvirt itself checks whether it is still valid. Without the flag that
 * QEMU lists unavailable CPU features, libvirtd queries all features with two commands, as for an
 * older QEMU, instead of one command per feature. QEMU reads these byte by byte, which takes a
 * quarter of a second per domain.
 */
static void copy_capabilities(const char *from, const char *to)
{
	char command[768];

	snprintf(
		command, sizeof(command),
		"mkdir -p %s; for f in %s/*.xml; do test ! -e $f || "
		"{ sed '/cpu-unavailable-features/d' $f > %s/.$$ && mv %s/.$$ %s/${f##*/}; }; done",
		to, from, to, to, to);
	CHECK(!system(command)); /* NOLINT(cert-env33-c): the test's own command */
}

/* Per kernel: the rig has a different one. */
static void capabilities_paths(const struct libvirt_daemon *daemon, char kept[160], char own[160])
{
	struct utsname host;

	uname(&host);
	snprintf(kept, 160, "build/libvirt-capabilities-%s", host.release);
	snprintf(own, 160, "%s/cache/qemu/capabilities", daemon->directory);
}

void libvirt_daemon_prepare(struct libvirt_daemon *daemon)
{
	char kept[160], own[160];

	char path[128], uuid[40];

	*daemon = (struct libvirt_daemon){ .directory = "/tmp/kvmscope-libvirt-XXXXXX" };
	REQUIRE(mkdtemp(daemon->directory) != NULL);
	snprintf(daemon->uri, sizeof(daemon->uri), "qemu+unix:///system?socket=%s/run/libvirt-sock",
		 daemon->directory);
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", daemon->directory, places[i].ours);
		CHECK(!mkdir(path, 0755));
	}
	capabilities_paths(daemon, kept, own);
	copy_capabilities(kept, own);
	snprintf(path, sizeof(path), "%s/drivers", daemon->directory);
	CHECK(!mkdir(path, 0755));
	snprintf(path, sizeof(path), "%s/drivers/%s", daemon->directory, DRIVER);
	CHECK(!symlink(DRIVERS "/" DRIVER, path));
	make_uuid(uuid, sizeof(uuid));
	text_file_write(daemon->directory, "etc/qemu.conf", "%s", qemu_conf);
	text_file_write(
		daemon->directory, "etc/libvirtd.conf",
		"unix_sock_dir = \"%s/run\"\nunix_sock_rw_perms = \"0700\"\nauth_unix_rw = \"none\"\n"
		"auth_unix_ro = \"none\"\nlog_outputs = \"2:file:%s/log/libvirtd.log\"\n"
		"host_uuid = \"%s\"\n",
		daemon->directory, daemon->directory, uuid);
}

/* These run in the keeper. */

static void cover(const char *directory, const char *ours, const char *theirs)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", directory, ours);
	mkdir(theirs, 0755);
	if (mount(path, theirs, NULL, MS_BIND, NULL))
		_exit(125);
}

/* Appends a line to a file in /etc, visible in this namespace only. */
static void add_line(const struct libvirt_daemon *daemon, const char *name, const char *line)
{
	char command[256], theirs[32];

	snprintf(theirs, sizeof(theirs), "/etc/%s", name);
	snprintf(command, sizeof(command), "cp %s %s/%s && echo '%s' >> %s/%s", theirs,
		 daemon->directory, name, line, daemon->directory, name);
	if (system(command)) /* NOLINT(cert-env33-c): the test's own command */
		_exit(125);
	cover(daemon->directory, name, theirs);
}

/* libvirtd does not start without them; the package libvirt-daemon-system would create them. */
static void add_user(const struct libvirt_daemon *daemon)
{
	if (!getpwnam(USER))
		add_line(daemon, "passwd",
			 USER ":x:64055:64055::/var/lib/libvirt:/usr/sbin/nologin");
	if (!getgrnam(USER))
		add_line(daemon, "group", USER ":x:64055:");
}

static void run_libvirtd(const struct libvirt_daemon *daemon)
{
	char configuration[128], pid_file[128], drivers[128];

	snprintf(configuration, sizeof(configuration), "%s/etc/libvirtd.conf", daemon->directory);
	snprintf(pid_file, sizeof(pid_file), "%s/run/libvirtd.pid", daemon->directory);
	snprintf(drivers, sizeof(drivers), "%s/drivers", daemon->directory);
	if (!fork()) {
		sigset_t none;

		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		setenv("LIBVIRT_DRIVER_DIR", drivers, 1);
		execl("/usr/sbin/libvirtd", "libvirtd", "--config", configuration, "--pid-file",
		      pid_file, NULL);
		_exit(127);
	}
}

/* The keeper is the subreaper, so it inherits the children that libvirtd left. */
static void end_children(void)
{
	char path[64];
	pid_t child;
	FILE *file;

	for (;;) {
		snprintf(path, sizeof(path), "/proc/self/task/%d/children", getpid());
		file = fopen(path, "re");
		if (!file || fscanf(file, "%d", &child) != 1)
			break;
		fclose(file);
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
	}
	if (file)
		fclose(file);
}

/* SIGUSR1 restarts libvirtd. SIGTERM, also sent when the test dies, ends everything. */
static _Noreturn void keep(const struct libvirt_daemon *daemon, const sigset_t *signals, pid_t test)
{
	int got = 0;

	prctl(PR_SET_PDEATHSIG, SIGTERM);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	if (getppid() != test || unshare(CLONE_NEWNS) ||
	    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		_exit(125);
	add_user(daemon);
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
		cover(daemon->directory, places[i].ours, places[i].theirs);
	run_libvirtd(daemon);
	while (got != SIGTERM) {
		got = sigwaitinfo(signals, NULL);
		while (got == SIGCHLD && waitpid(-1, NULL, WNOHANG) > 0)
			;
		if (got == SIGUSR1)
			run_libvirtd(daemon);
	}
	end_children();
	_exit(0);
}

static void show_log(const struct libvirt_daemon *daemon, const char *error)
{
	char path[128], log[4096] = "";
	FILE *file;

	snprintf(path, sizeof(path), "%s/log/libvirtd.log", daemon->directory);
	file = fopen(path, "re");
	if (file) {
		log[fread(log, 1, sizeof(log) - 1, file)] = '\0';
		fclose(file);
	}
	FAIL_TEST("libvirtd does not answer: %s\n%s", error, log);
}

static bool wait_until_it_answers(struct libvirt_daemon *daemon)
{
	char text[1024] = "";

	for (int tries = 0; tries < 300; tries++) {
		if (!libvirt_virsh(daemon, text, sizeof(text), "version"))
			return true;
		usleep(100000);
	}
	show_log(daemon, text);
	return false;
}

bool libvirt_daemon_start(struct libvirt_daemon *daemon)
{
	char kept[160], own[160];
	pid_t test = getpid();
	sigset_t signals;

	if (!*daemon->directory)
		libvirt_daemon_prepare(daemon);
	sigemptyset(&signals);
	sigaddset(&signals, SIGUSR1);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGCHLD);
	fflush(NULL);
	daemon->keeper = fork();
	if (!daemon->keeper) {
		sigprocmask(SIG_BLOCK, &signals, NULL);
		keep(daemon, &signals, test);
	}
	if (!wait_until_it_answers(daemon))
		return false;
	capabilities_paths(daemon, kept, own);
	copy_capabilities(own, kept);
	return true;
}

static pid_t read_pid(const struct libvirt_daemon *daemon, const char *name)
{
	char path[256];
	FILE *file;
	pid_t pid;

	snprintf(path, sizeof(path), "%s/run/%s.pid", daemon->directory, name);
	file = fopen(path, "re");
	if (!file)
		return 0;
	if (fscanf(file, "%d", &pid) != 1)
		pid = 0;
	fclose(file);
	return pid;
}

void libvirt_daemon_kill(struct libvirt_daemon *daemon)
{
	pid_t pid = read_pid(daemon, "libvirtd");

	REQUIRE(pid > 0);
	CHECK(!kill(pid, SIGKILL));
	for (int tries = 0; tries < 600 && !kill(pid, 0); tries++)
		usleep(10000);
}

bool libvirt_daemon_restart(struct libvirt_daemon *daemon)
{
	kill(daemon->keeper, SIGUSR1);
	return wait_until_it_answers(daemon);
}

void libvirt_daemon_stop(struct libvirt_daemon *daemon)
{
	char command[128];

	if (daemon->keeper > 0) {
		kill(daemon->keeper, SIGTERM);
		CHECK_EQUAL(wait_for(daemon->keeper), 0);
	}
	if (*daemon->directory) {
		snprintf(command, sizeof(command), "rm -rf %s", daemon->directory);
		CHECK(!system(command)); /* NOLINT(cert-env33-c): the test's own command */
	}
	*daemon = (struct libvirt_daemon){ 0 };
}

int libvirt_virsh(struct libvirt_daemon *daemon, char *text, size_t size, const char *arguments)
{
	char command[2048], rest[256];
	size_t length = 0;
	FILE *output;
	int status;

	snprintf(command, sizeof(command),
		 "exec timeout -k 10 60 virsh -q -c '%s' %s 2>&1 < /dev/null", daemon->uri,
		 arguments);
	output = popen(command, "re"); /* NOLINT(cert-env33-c): the test's own command */
	if (!output)
		return -1;
	if (text)
		length = fread(text, 1, size - 1, output);
	while (fread(rest, 1, sizeof(rest), output) > 0)
		;
	if (text)
		text[length] = '\0';
	status = pclose(output);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static const char *or_nothing(const char *text)
{
	return text ? text : "";
}

static const char *kernel_of(const struct libvirt_domain *domain)
{
	return domain->kvm_kernel ? domain->kvm_kernel : domain->kernel ? domain->kernel : KERNEL;
}

bool libvirt_domain_start_with(struct libvirt_daemon *daemon, const char *name,
			       const struct libvirt_domain *domain)
{
	char file[64], arguments[192], text[1024], here[512], initrd[1024] = "";
	bool started;

	if (!getcwd(here, sizeof(here)))
		return false;
	if (domain->initrd)
		snprintf(initrd, sizeof(initrd), "<initrd>%s/%s</initrd>", here, domain->initrd);
	snprintf(file, sizeof(file), "domain-%.40s.xml", name);
	text_file_write(
		daemon->directory, file,
		"<domain type='%s'>\n<name>%s</name><memory unit='MiB'>256</memory><vcpu current='1'>%u</vcpu>\n"
		"<os><type arch='x86_64' machine='q35'>hvm</type><kernel>%s/%s</kernel>%s\n"
		"<cmdline>console=ttyS0 quiet panic=0 mitigations=off " QUICK_BOOT
		" %s</cmdline></os>\n"
		"<features><acpi/><apic/></features>%s\n"
		"<devices><emulator>/usr/bin/qemu-system-x86_64</emulator><controller type='usb' model='none'/>\n"
		"<memballoon model='none'/><serial type='file'><source path='%s/log/%s.console'/></serial>%s</devices>\n"
		"%s\n</domain>\n",
		domain->kvm_kernel ? "kvm" : "qemu", name,
		domain->vcpus_max ? domain->vcpus_max : 1, here, kernel_of(domain), initrd,
		or_nothing(domain->command_line), domain->kvm_kernel ? KVM_CPU : "",
		daemon->directory, name, or_nothing(domain->devices), or_nothing(domain->extra));
	snprintf(arguments, sizeof(arguments), "create %s/%s", daemon->directory, file);
	started = !libvirt_virsh(daemon, text, sizeof(text), arguments);
	if (!started)
		FAIL_TEST("virsh %s: %s", arguments, text);
	return started;
}

bool libvirt_domain_start(struct libvirt_daemon *daemon, const char *name, const char *extra)
{
	return libvirt_domain_start_with(daemon, name, &(struct libvirt_domain){ .extra = extra });
}

pid_t libvirt_domain_pid(const struct libvirt_daemon *daemon, const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), "qemu/%s", name);
	return read_pid(daemon, path);
}
