/* SPDX-License-Identifier: Apache-2.0 */
/*
 * VMs of other VMMs: a stand-in (vmm/jailed_vmm.c) runs as Firecracker's jailer starts it (chroot,
 * mount and PID namespace, a user of its own), and as cloud-hypervisor in a user namespace.
 */
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/kvm/bare_guest.h"
#include "tests/kvm/program.h"
#include "tests/unit/run_command.h"
#include "tests/unit/shim/test.h"
#include "vmm/perf_data/perf_data_reader.h"

#define IMAGE     "build/kvm/jailed-vmm"
#define RECORDING "build/attach-jailed.data"
#define USER      123
#define LOOP      0x10007 /* in jailed_vmm.c */
#define CALLER    0x11004
#define CPUS      2

/* Both become this program, outside of the VMM's PID namespace its parent's child. */
#define AS_JAILER "exec unshare --mount --pid --fork chroot --userspec=123:123 %s /%s"
#define IN_USER_NAMESPACE                                                                          \
	"exec setpriv --reuid 123 --regid 123 --clear-groups unshare --user --map-root-user "      \
	"--mount --pid --fork chroot %s /%s"

struct jail {
	char directory[64], file[PATH_MAX], device[PATH_MAX];
	pid_t parent, vmm;
	int input; /* the VMM ends when it is closed */
};

static void run_jailed(const struct jail *jail, const char *format, const char *name, int input,
		       int output)
{
	char command[PATH_MAX];

	snprintf(command, sizeof(command), format, jail->directory, name);
	dup2(input, STDIN_FILENO);
	dup2(output, STDOUT_FILENO);
	execl("/bin/sh", "sh", "-c", command, NULL);
	_exit(127);
}

static void build_jail(struct jail *jail, const char *name)
{
	snprintf(jail->directory, sizeof(jail->directory), "build/jail-XXXXXX");
	REQUIRE(mkdtemp(jail->directory) != NULL);
	snprintf(jail->file, sizeof(jail->file), "%s/%s", jail->directory, name);
	snprintf(jail->device, sizeof(jail->device), "%s/dev/kvm", jail->directory);
	free(command_output(NULL, "cp " IMAGE " %s && mkdir %s/dev && chmod 755 %s", jail->file,
			    jail->directory, jail->directory));
	CHECK_EQUAL(mknod(jail->device, S_IFCHR | 0600, makedev(10, 232)), 0);
	CHECK_EQUAL(chown(jail->device, USER, USER), 0);
}

static pid_t child_of(pid_t parent)
{
	char *text = command_output(NULL, "cat /proc/%d/task/%d/children", parent, parent);
	pid_t child = atoi(text);

	free(text);
	return child;
}

/* False if the VMM could not start. */
static bool jail_start(struct jail *jail, const char *format, const char *name)
{
	int input[2], output[2];
	char text[32] = "";

	build_jail(jail, name);
	CHECK_EQUAL(pipe2(input, O_CLOEXEC) | pipe2(output, O_CLOEXEC), 0);
	fflush(NULL);
	jail->parent = fork();
	if (!jail->parent)
		run_jailed(jail, format, name, input[0], output[1]);
	close(input[0]);
	close(output[1]);
	jail->input = input[1];
	if (read(output[0], text, sizeof(text) - 1) > 0)
		jail->vmm = child_of(jail->parent);
	close(output[0]);
	return jail->vmm && !strcmp(text, "running\n");
}

static void jail_end(struct jail *jail)
{
	close(jail->input);
	waitpid(jail->parent, NULL, 0);
	free(command_output(NULL, "rm -r %s", jail->directory));
}

struct seen {
	unsigned int samples, in_loop, callers, cpus[CPUS];
};

static int see(void *context, const struct perf_data_sample *sample)
{
	struct seen *seen = context;

	seen->samples++;
	seen->in_loop += sample->ip == LOOP;
	if (sample->cpu < CPUS)
		seen->cpus[sample->cpu]++;
	for (size_t i = 0; i < sample->callchain_size; i++)
		seen->callers += sample->callchain[i] == CALLER;
	return 0;
}

static void attach(const struct jail *jail, const char *backend, struct program *tool)
{
	char arguments[256];

	snprintf(arguments, sizeof(arguments),
		 "attach --pid %d --backend %s --time 1 --stop-limit 100000 --no-buildid-cache "
		 "--verbose -o " RECORDING,
		 jail->vmm, backend);
	program_run(tool, arguments);
}

static void check_samples(const struct jail *jail, const char *backend)
{
	struct seen seen = { 0 };
	const struct perf_data_events events = { .sample = see, .context = &seen };
	struct perf_data_reader *reader;
	struct program tool;

	attach(jail, backend, &tool);
	if (strstr(tool.text, "does not work here")) {
		printf("this machine has no backend %s\n", backend);
		return;
	}
	if (tool.status)
		FAIL_TEST("by %s, status %d:\n%s", backend, tool.status, tool.text);
	REQUIRE_EQUAL(perf_data_reader_open(&reader, RECORDING), 0);
	CHECK_EQUAL(perf_data_reader_run(reader, &events), 0);
	perf_data_reader_close(reader);
	/* The processor, without which perf annotate does not know the instructions. */
	CHECK(command_succeeds("grep -qE '(AuthenticAMD|GenuineIntel),[0-9]' " RECORDING));
	unlink(RECORDING);
	if (!seen.cpus[0] || !seen.cpus[1] || seen.in_loop < seen.samples / 2 ||
	    (!strcmp(backend, "bpf") && !seen.callers))
		FAIL_TEST("by %s: %u samples, %u in the loop, %u and %u by vCPU, %u callers:\n%s",
			  backend, seen.samples, seen.in_loop, seen.cpus[0], seen.cpus[1],
			  seen.callers, tool.text);
}

static void check_list(const struct jail *jail, const char *name)
{
	char line[64];
	struct program tool;

	program_run(&tool, "attach");
	snprintf(line, sizeof(line), "%d  %.15s", jail->vmm, name);
	if (!strstr(tool.text, line) || !strstr(tool.text, "2 vCPUs"))
		FAIL_TEST("process %d (%s) is not in the list:\n%s", jail->vmm, name, tool.text);
}

/* Also after stops by ptrace, and after one that was refused. */
static void check_alive(const struct jail *jail)
{
	char *state = command_output(NULL, "grep -c '^State:.[RS]' /proc/%d/status", jail->vmm);

	CHECK_STRING(state, "1\n");
	free(state);
}

#define JAIL_REQUIRED()                                                                            \
	do {                                                                                       \
		BARE_GUEST_REQUIRED();                                                             \
		if (geteuid())                                                                     \
			SKIP("only root can create a jail");                                       \
	} while (0)

TEST(attach_jailed, firecracker_is_sampled_by_each_backend)
{
	struct jail jail = { 0 };

	JAIL_REQUIRED();
	if (!jail_start(&jail, AS_JAILER, "firecracker"))
		FAIL_TEST("the stand-in VMM did not start");
	check_list(&jail, "firecracker");
	check_samples(&jail, "perf");
	check_samples(&jail, "bpf");
	check_samples(&jail, "ptrace");
	check_alive(&jail);
	jail_end(&jail);
}

/* Its filter traps KVM_GET_REGS, so a stop by ptrace would end the VM. */
TEST(attach_jailed, cloud_hypervisor_is_not_stopped_by_calls_that_its_filter_forbids)
{
	struct jail jail = { 0 };
	struct program tool;

	JAIL_REQUIRED();
	if (!jail_start(&jail, IN_USER_NAMESPACE, "cloud-hypervisor")) {
		jail_end(&jail);
		SKIP("user namespaces cannot be created here");
	}
	check_list(&jail, "cloud-hypervisor");
	check_samples(&jail, "perf");
	check_samples(&jail, "bpf");
	attach(&jail, "ptrace", &tool);
	if (!tool.status || !strstr(tool.text, "seccomp filter forbids KVM_GET_REGS"))
		FAIL_TEST("status %d:\n%s", tool.status, tool.text);
	check_alive(&jail);
	jail_end(&jail);
}

/* The stand-in ignores its arguments, which are those of a QEMU whose guest is encrypted. */
#define AS_ENCRYPTED                                                                               \
	AS_JAILER " -machine q35,confidential-guest-support=sev0 -object sev-guest,id=sev0,policy="

static int see_address(void *context, const struct perf_data_sample *sample)
{
	unsigned int *counts = context;

	counts[0]++;
	counts[1] += sample->ip == LOOP;
	counts[2] += !sample->ip;
	CHECK(!sample->callchain_size || sample->callchain[sample->callchain_size - 1] != CALLER);
	return 0;
}

/* Samples, those in the loop, and those without an address. */
static void read_addresses(unsigned int counts[3])
{
	const struct perf_data_events events = { .sample = see_address, .context = counts };
	struct perf_data_reader *reader;

	memset(counts, 0, 3 * sizeof(*counts));
	REQUIRE_EQUAL(perf_data_reader_open(&reader, RECORDING), 0);
	CHECK_EQUAL(perf_data_reader_run(reader, &events), 0);
	perf_data_reader_close(reader);
	unlink(RECORDING);
}

static void check_text(const struct program *tool, int status, const char *wanted)
{
	if (tool->status != status || !strstr(tool->text, wanted))
		FAIL_TEST("status %d, expected %d and \"%s\":\n%s", tool->status, status, wanted,
			  tool->text);
}

TEST(attach_jailed, of_encrypted_registers_only_the_time_is_recorded)
{
	struct jail jail = { 0 };
	struct program tool;
	unsigned int counts[3];

	JAIL_REQUIRED();
	if (!jail_start(&jail, AS_ENCRYPTED "5", "qemu"))
		FAIL_TEST("the stand-in VMM did not start");
	attach(&jail, "auto", &tool);
	check_text(&tool, 0, "memory and registers are encrypted (SEV-ES)");
	check_text(&tool, 0, "by perf");
	read_addresses(counts);
	CHECK(counts[0] > 10);
	CHECK_EQUAL(counts[1], 0);
	CHECK(counts[2] > counts[0] / 2);
	attach(&jail, "ptrace", &tool);
	check_text(&tool, 4, "which are encrypted: use --backend perf");
	jail_end(&jail);
}

TEST(attach_jailed, encrypted_memory_is_not_read)
{
	struct jail jail = { 0 };
	struct program tool;
	unsigned int counts[3];

	JAIL_REQUIRED();
	if (!jail_start(&jail, AS_ENCRYPTED "1", "qemu"))
		FAIL_TEST("the stand-in VMM did not start");
	attach(&jail, "auto", &tool);
	check_text(&tool, 0, "memory is encrypted (SEV)");
	read_addresses(counts);
	CHECK(counts[1] > counts[0] / 2);
	jail_end(&jail);
}
