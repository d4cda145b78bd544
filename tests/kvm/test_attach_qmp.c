/* SPDX-License-Identifier: Apache-2.0 */
/* kvmscope attach on guests that QEMU emulates: by its monitor's socket, and by libvirt. */
#include <fcntl.h>
#include <linux/perf_event.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/kvm/function_shares.h"
#include "tests/kvm/guest_run.h"
#include "tests/kvm/libvirt_daemon.h"
#include "tests/kvm/program.h"
#include "vmm/perf_data/perf_data_reader.h"
#include "vmm/symbols/elf_symbols.h"

static const char *const functions[] = { "share_sixty", "share_thirty", "share_ten" };
static const double truth[] = { 0.6, 0.3, 0.1 };

struct shares {
	struct symbols *symbols;
	double weight, squares; /* ns of guest samples, and the sum of their squares */
	double of[3];
	double samples, counts[3]; /* number of guest samples, regardless of weight */
	uint64_t other;
};

static int count_sample(void *context, const struct perf_data_sample *sample)
{
	struct shares *shares = context;
	double period = (double)sample->period;
	struct symbol symbol;

	if (sample->misc != PERF_RECORD_MISC_USER ||
	    !symbols_find(shares->symbols, sample->ip, &symbol)) {
		shares->other++;
		return 0;
	}
	shares->samples++;
	shares->weight += period;
	shares->squares += period * period;
	for (int i = 0; i < 3; i++)
		if (!strcmp(symbol.name, functions[i])) {
			shares->of[i] += period;
			shares->counts[i]++;
		}
	return 0;
}

static void read_shares(const char *path, struct shares *shares)
{
	const struct perf_data_events events = { .sample = count_sample, .context = shares };
	struct perf_data_reader *reader;

	REQUIRE_EQUAL(elf_symbols_load(&shares->symbols, GUEST_IMAGE_MULTIBOOT,
				       ELF_VIRTUAL_ADDRESSES, (struct span){ 0 }),
		      0);
	REQUIRE_EQUAL(perf_data_reader_open(&reader, path), 0);
	CHECK_EQUAL(perf_data_reader_run(reader, &events), 0);
	perf_data_reader_close(reader);
	symbols_free(shares->symbols);
}

/* A QEMU without KVM whose guest writes to a file. */
struct emulated {
	char directory[64], socket[96], serial[96];
	pid_t pid;
};

static void start(struct emulated *vm, const char *program)
{
	char serial[128], monitor[160];

	*vm = (struct emulated){ .directory = "/tmp/kvmscope-qmp-XXXXXX" };
	REQUIRE(mkdtemp(vm->directory) != NULL);
	snprintf(vm->socket, sizeof(vm->socket), "%s/server,qmp", vm->directory);
	snprintf(vm->serial, sizeof(vm->serial), "%s/serial", vm->directory);
	snprintf(serial, sizeof(serial), "file:%s", vm->serial);
	snprintf(monitor, sizeof(monitor), "unix:%s/server,,qmp,server=on,wait=off", vm->directory);
	fflush(NULL);
	vm->pid = fork();
	if (!vm->pid) {
		alarm(120); /* its time limit, in case the test does not end it */
		dup2(open("/dev/null", O_RDWR | O_CLOEXEC), STDERR_FILENO);
		execlp("qemu-system-x86_64", "qemu-system-x86_64", "-accel", "tcg", "-machine",
		       "microvm,pit=on,pic=on,rtc=on,isa-serial=on", "-m", "64", "-nodefaults",
		       "-no-user-config", "-display", "none", "-serial", serial, "-qmp", monitor,
		       "-no-reboot", "-kernel", GUEST_IMAGE_MULTIBOOT, "-append", program, NULL);
		_exit(127);
	}
}

static bool works(const struct emulated *vm)
{
	char line[256] = "";
	FILE *file = fopen(vm->serial, "re");

	if (file) {
		line[fread(line, 1, sizeof(line) - 1, file)] = '\0';
		fclose(file);
	}
	return strstr(line, "working");
}

static bool wait_until_it_works(const struct emulated *vm)
{
	for (int tries = 0; tries < 3000 && !works(vm); tries++)
		usleep(20000);
	return works(vm);
}

static void end(struct emulated *vm)
{
	kill(vm->pid, SIGKILL);
	waitpid(vm->pid, NULL, 0);
	unlink(vm->socket);
	unlink(vm->serial);
	rmdir(vm->directory);
}

/* With this number of random samples, 3 points are three standard deviations of a share of 60 %. */
#define SAMPLES_FOR_3_POINTS 2400
#define TRIES                5 /* 4 s each; two of them have this number of samples */

/* 3 points, or five standard deviations if there is not enough time for that number of samples. */
static bool is_near(int function, double share, double samples)
{
	double expected = truth[function];
	double deviation = sqrt(expected * (1 - expected) / samples);

	return fabs(share - expected) <=
	       (samples >= SAMPLES_FOR_3_POINTS ? 0.03 : fmax(0.03, 5 * deviation));
}

static double effective(const struct shares *shares)
{
	return effective_samples(shares->weight, shares->squares);
}

/* The sampling times do not depend on the guest, so counts are as accurate as weights. */
static bool are_near(const struct shares *shares)
{
	for (int i = 0; i < 3; i++)
		if (!is_near(i, shares->counts[i] / shares->samples, shares->samples) ||
		    !is_near(i, shares->of[i] / shares->weight, effective(shares)))
			return false;
	return true;
}

static void check_shares(const struct shares *shares, const char *output)
{
	CHECK_EQUAL(shares->other, 0);
	if (shares->samples < 30 || !are_near(shares))
		FAIL_TEST("%.0f, %.0f and %.0f of %.0f samples, %.0f of equal weight:\n%s",
			  shares->counts[0], shares->counts[1], shares->counts[2], shares->samples,
			  effective(shares), output);
}

/* A share may be off by chance, which more samples correct. */
static void gather_shares(const struct emulated *vm, const char *path, struct shares *shares,
			  struct program *tool)
{
	char arguments[512];

	snprintf(arguments, sizeof(arguments),
		 "attach --qmp %s --time 4 -F 349 --no-buildid-cache -o %s", vm->socket, path);
	for (int i = 0;
	     i < TRIES && (effective(shares) < SAMPLES_FOR_3_POINTS || !are_near(shares)); i++) {
		program_run(tool, arguments);
		CHECK_EQUAL(tool->status, 0);
		CHECK(strstr(tool->text, "by qmp: ") && strstr(tool->text, "queries per second"));
		read_shares(path, shares);
	}
}

/* The process is found by its monitor, and the monitor by the process. */
TEST(attach_qmp, shares_of_an_emulated_guest)
{
	struct shares shares = { 0 };
	char arguments[512], path[96];
	struct program tool;
	struct emulated vm;

	start(&vm, "program=shares rounds=100000000");
	CHECK(wait_until_it_works(&vm));
	snprintf(path, sizeof(path), "build/test-attach-qmp-%d.data", getpid());
	gather_shares(&vm, path, &shares, &tool);
	check_shares(&shares, tool.text);
	snprintf(arguments, sizeof(arguments), "attach --pid %d --time 1 --no-buildid-cache -o %s",
		 vm.pid, path);
	program_run(&tool, arguments);
	CHECK_EQUAL(tool.status, 0);
	CHECK(strstr(tool.text, "not by bpf: ") && strstr(tool.text, "by qmp: "));
	end(&vm);
	unlink(path);
}

TEST(attach_qmp, a_monitor_of_another_process_is_refused)
{
	struct emulated vm;
	struct program tool;
	char arguments[256];

	start(&vm, "program=shares rounds=100000000");
	CHECK(wait_until_it_works(&vm));
	snprintf(arguments, sizeof(arguments), "attach --pid %d --qmp %s --backend qmp", getpid(),
		 vm.socket);
	program_run(&tool, arguments);
	CHECK_EQUAL(tool.status, 1);
	CHECK(strstr(tool.text, "is that of process"));
	end(&vm);
}

static bool wait_for_console(const struct libvirt_daemon *libvirt, const char *name,
			     const char *text)
{
	char path[128], console[65536];

	snprintf(path, sizeof(path), "%s/log/%s.console", libvirt->directory, name);
	for (int tries = 0; tries < 900; tries++) {
		FILE *file = fopen(path, "re");

		if (file) {
			console[fread(console, 1, sizeof(console) - 1, file)] = '\0';
			fclose(file);
			if (strstr(console, text))
				return true;
		}
		usleep(100000);
	}
	return false;
}

/* A kernel that has found no root file system spins in panic(). */
static void check_functions(const char *path, const char *home)
{
	char arguments[256];
	struct program report;

	snprintf(arguments, sizeof(arguments), "report -i %s --buildid-dir %s/.debug", path, home);
	program_run(&report, arguments);
	if (report.status || !strstr(report.text, "[kernel.kallsyms]") ||
	    !(strstr(report.text, " delay_") || strstr(report.text, " panic ") ||
	      strstr(report.text, " __const_udelay ")))
		FAIL_TEST("not the profile of a panicked kernel:\n%s", report.text);
}

/* It samples VMs of KVM only. */
static void top_refuses_domain(const struct libvirt_daemon *libvirt)
{
	char arguments[256];
	struct program top;

	snprintf(arguments, sizeof(arguments), "top --domain one --connect %s --batch -n 1",
		 libvirt->uri);
	program_run(&top, arguments);
	CHECK_EQUAL(top.status, 1);
	if (!strstr(top.text, "monitor by kvmscope attach --qmp or --domain"))
		FAIL_TEST("%s:\n%s", arguments, top.text);
}

static void attach_to_domain(struct libvirt_daemon *libvirt)
{
	char arguments[512], path[96];
	struct program tool;

	snprintf(path, sizeof(path), "build/test-attach-domain-%d.data", getpid());
	snprintf(arguments, sizeof(arguments), "attach --domain one --connect %s --time 2 -o %s",
		 libvirt->uri, path);
	program_run(&tool, arguments);
	if (tool.status || !strstr(tool.text, "by qmp: ") || !strstr(tool.text, "tainted"))
		FAIL_TEST("%s: exit status %d:\n%s", arguments, tool.status, tool.text);
	check_functions(path, libvirt->directory);
	unlink(path);
}

/*
 * A user who may connect to libvirt but has no access to QEMU's process: libvirt reads the memory.
 */
static void attach_as_nobody(struct libvirt_daemon *libvirt)
{
	char command[768], path[96], directory[] = "/tmp/kvmscope-nobody-XXXXXX";

	REQUIRE(mkdtemp(directory) != NULL);
	snprintf(
		command, sizeof(command),
		"chmod 711 %s && chmod 755 %s/run && chmod 777 %s/run/libvirt-sock && chown 65534 %s && exec setpriv "
		"--reuid=65534 --regid=65534 --clear-groups env HOME=%s build/kvmscope attach --domain one --connect '%s' "
		"--time 3 -o %s/perf.data > %s/log 2>&1",
		libvirt->directory, libvirt->directory, libvirt->directory, directory, directory,
		libvirt->uri, directory, directory);
	CHECK(!system(command)); /* NOLINT(cert-env33-c): the test's own command */
	snprintf(command, sizeof(command),
		 "grep -q 'reading it through libvirt' %s/log || { cat %s/log >&2; false; }",
		 directory, directory);
	CHECK(!system(command)); /* NOLINT(cert-env33-c): the test's own command */
	snprintf(path, sizeof(path), "%s/perf.data", directory);
	check_functions(path, directory);
	snprintf(command, sizeof(command), "rm -r %s", directory);
	CHECK(!system(command)); /* NOLINT(cert-env33-c): the test's own command */
}

/*
 * libvirtd is killed and restarted, a vCPU is plugged in, the domain is reset and gets a kernel at
 * another address, and is destroyed. The profile ends with the domain.
 */
static void follow_domain(struct libvirt_daemon *libvirt)
{
	char arguments[512], path[96];
	struct program tool;

	snprintf(path, sizeof(path), "build/test-attach-follow-%d.data", getpid());
	snprintf(arguments, sizeof(arguments),
		 "attach --domain one --connect %s --verbose --no-buildid-cache -o %s",
		 libvirt->uri, path);
	program_start(&tool, arguments);
	CHECK(program_wait_for(&tool, "attached to process"));
	libvirt_daemon_kill(libvirt);
	CHECK(program_wait_for(&tool, "trying again"));
	CHECK(libvirt_daemon_restart(libvirt));
	CHECK(program_wait_for(&tool, "answers again"));
	/* The maximum number, which is on its command line. */
	CHECK_EQUAL(libvirt_virsh(libvirt, NULL, 0, "setvcpus one 12 --live"), 0);
	CHECK(program_wait_for(&tool, "vCPU 11 is thread"));
	CHECK_EQUAL(libvirt_virsh(libvirt, NULL, 0, "reset one"), 0);
	CHECK(program_wait_for(&tool, "the guest's next kernel is recorded in"));
	CHECK_EQUAL(libvirt_virsh(libvirt, NULL, 0, "destroy one"), 0);
	program_wait(&tool);
	if (tool.status || !strstr(tool.text, "the VM has ended"))
		FAIL_TEST("exit status %d:\n%s", tool.status, tool.text);
	unlink(path);
	snprintf(path, sizeof(path), "build/test-attach-follow-%d.data.1", getpid());
	CHECK(!unlink(path));
}

TEST(attach_qmp, functions_of_a_domain_are_symbolized_until_it_ends)
{
	/* The kernel uses only one of any number of vCPUs; more would make it boot for longer. */
	static const struct libvirt_domain domain = { .vcpus_max = 12,
						      .command_line = "maxcpus=1" };
	struct libvirt_daemon libvirt = { 0 };
	struct program tool;
	char arguments[256];

	LIBVIRT_REQUIRED();
	if (libvirt_daemon_start(&libvirt) && libvirt_domain_start_with(&libvirt, "one", &domain)) {
		CHECK(wait_for_console(&libvirt, "one", "Kernel panic"));
		top_refuses_domain(&libvirt);
		program_set_home(libvirt.directory); /* in the build-id cache */
		attach_to_domain(&libvirt);
		program_set_home(NULL);
		attach_as_nobody(&libvirt);
		follow_domain(&libvirt);
		snprintf(arguments, sizeof(arguments), "attach --domain one --connect %s",
			 libvirt.uri);
		program_run(&tool, arguments);
		CHECK_EQUAL(tool.status, 1);
		CHECK(strstr(tool.text, "cannot find the domain 'one'"));
	}
	libvirt_daemon_stop(&libvirt);
}
