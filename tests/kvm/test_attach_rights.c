/* SPDX-License-Identifier: Apache-2.0 */
/* The capabilities that kvmscope attach keeps while it samples. */
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/kvm/guest_run.h"
#include "tests/kvm/program.h"
#include "tests/unit/run_command.h"
#include "tests/unit/shim/test.h"
#include "vmm/attach/rights.h"
#include "vmm/disk/sandbox_work.h"

/*
 * CAP_SYS_ADMIN if perf requires it: kernel.perf_event_paranoid above 2, which Debian's kernels
 * support.
 */
#define KEPT (1ull << CAP_PERFMON | 1ull << CAP_BPF | 1ull << CAP_SYS_PTRACE)

static uint64_t read_field(const char *path, const char *format)
{
	FILE *file = fopen(path, "re");
	uint64_t value = UINT64_MAX;
	char line[256];

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, format, &value) == 1)
			break;
	if (file)
		fclose(file);
	return value;
}

static uint64_t permitted(const char *path)
{
	return read_field(path, "CapPrm: %" SCNx64);
}

/* True if all threads of PID, at least three, have no capabilities other than ALLOWED. */
static bool are_left_with(pid_t pid, uint64_t allowed)
{
	unsigned int count = 0;
	struct dirent *entry = NULL;
	char path[320];
	DIR *directory;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	directory = opendir(path);
	while (directory && (entry = readdir(directory))) {
		if (*entry->d_name == '.')
			continue;
		snprintf(path, sizeof(path), "/proc/%d/task/%s/status", pid, entry->d_name);
		if (permitted(path) & ~allowed || read_field(path, "NoNewPrivs: %" SCNu64) != 1)
			break;
		count++;
	}
	if (directory)
		closedir(directory);
	return count >= 3 && !entry;
}

/* A thread drops its capabilities the next time it runs. */
static bool wait_until_left_with(pid_t pid, uint64_t allowed)
{
	for (int tries = 0; tries < 200 && !are_left_with(pid, allowed); tries++)
		usleep(50000);
	return are_left_with(pid, allowed);
}

/* The processes that parse what the guest has in memory (image_parser.h): two, without rights. */
static bool has_confined_parsers(pid_t pid)
{
	char *count = command_output(
		NULL,
		"for pid in $(cat /proc/%d/task/%d/children); do tr '\\n\\t' '; ' < /proc/$pid/status; "
		"echo; done | grep 'Uid: %u %u %u %u;' | grep 'CapPrm: 0*;CapEff: 0*;' | "
		"grep -c 'NoNewPrivs: 1;Seccomp: 2;'",
		pid, pid, getuid(), getuid(), getuid(), getuid());
	bool are = !strcmp(count, "2\n");

	free(count);
	return are;
}

static int perf_event_paranoid(void)
{
	FILE *file = fopen("/proc/sys/kernel/perf_event_paranoid", "re");
	int level = 0;

	if (file && fscanf(file, "%d", &level) != 1)
		level = 0;
	if (file)
		fclose(file);
	return level;
}

static uint64_t allowed(void)
{
	return perf_event_paranoid() > 2 ? KEPT | 1ull << CAP_SYS_ADMIN : KEPT;
}

static bool is_unprivileged(void)
{
	return (permitted("/proc/self/status") & KEPT) != KEPT || getuid();
}

/* A VM with seccomp filters would need CAP_SYS_ADMIN to be read. */
static void check_backend(const char *backend)
{
	struct program vm, tool;
	char arguments[256];

	/* CAP_SYS_ADMIN would be kept to read the seccomp filters of a sandbox. */
	program_start(&vm, "run --no-profile --no-sandbox --kernel " GUEST_IMAGE
			   " --mem 64M --timeout 250 --append program=shares_rounds=1000000");
	CHECK(program_wait_for(&vm, "working"));
	snprintf(
		arguments, sizeof(arguments),
		"attach --pid %d --backend %s --verbose --no-buildid-cache -o build/test-attach-rights.data",
		vm.pid, backend);
	program_start(&tool, arguments);
	CHECK(program_wait_for(&tool, "vCPU 0 is thread")); /* it samples */
	CHECK(wait_until_left_with(tool.pid, allowed()));
	CHECK(has_confined_parsers(tool.pid));
	kill(vm.pid, SIGTERM);
	program_wait(&vm);
	program_wait(&tool);
	if (tool.status || !strstr(tool.text, "samples of the guest") ||
	    strstr(tool.text, "dac_override"))
		FAIL_TEST("%s: exit status %d:\n%s", arguments, tool.status, tool.text);
	unlink("build/test-attach-rights.data");
}

TEST(attach_rights, unneeded_rights_are_dropped)
{
	GUEST_REQUIRED();
	if (is_unprivileged())
		SKIP("there are no rights to drop here");
	if (!sandbox_work_is_possible())
		SKIP("parsers are threads with rights in builds with sanitizers");
	check_backend("auto");
	check_backend("ptrace");
}

/* Root's right to access files of others is dropped only if it is not needed. */
static int keep_in_child(const char *path)
{
	const struct rights_file file = { .path = path, .mode = W_OK };
	int status;
	pid_t child;

	fflush(NULL);
	child = fork();
	if (!child) {
		uint64_t now;

		if (rights_keep(&file, 1, false))
			_exit(2);
		now = permitted("/proc/self/status");
		_exit(now & ~(allowed() | 1ull << CAP_DAC_OVERRIDE)
			      ? 3
			      : !!(now & 1ull << CAP_DAC_OVERRIDE));
	}
	waitpid(child, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(attach_rights, files_of_other_users_can_still_be_written)
{
	char directory[] = "/tmp/kvmscope-rights-XXXXXX", path[64];

	if (is_unprivileged())
		SKIP("there are no rights to drop here");
	REQUIRE(mkdtemp(directory) != NULL);
	snprintf(path, sizeof(path), "%s/perf.data", directory);
	CHECK_EQUAL(keep_in_child(path), 0);
	CHECK(!chown(directory, 4711, 4711));
	CHECK_EQUAL(keep_in_child(path), 1);
	/* Root's own file there will be renamed. */
	REQUIRE(!close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600)));
	CHECK_EQUAL(keep_in_child(path), 1);
	CHECK_EQUAL(keep_in_child(NULL), 0);
	unlink(path);
	rmdir(directory);
}

/* Before Linux 5.8 there are no CAP_PERFMON and CAP_BPF: CAP_SYS_ADMIN opens perf events there. */
static uint64_t kept_without_new_capabilities(void)
{
	static const unsigned int old[] = { CAP_SYS_ADMIN, CAP_SYS_PTRACE, CAP_NET_ADMIN };
	int ends[2];
	uint64_t kept = 0;
	pid_t child;

	CHECK(!pipe(ends));
	fflush(NULL);
	child = fork();
	if (!child) {
		if (rights_keep_only(old, 3) || rights_keep(NULL, 0, false))
			_exit(1);
		kept = permitted("/proc/self/status");
		_exit(write(ends[1], &kept, sizeof(kept)) != sizeof(kept));
	}
	close(ends[1]);
	CHECK_EQUAL(read(ends[0], &kept, sizeof(kept)), (ssize_t)sizeof(kept));
	close(ends[0]);
	waitpid(child, NULL, 0);
	return kept;
}

TEST(attach_rights, an_old_kernel_keeps_only_what_perf_needs)
{
	uint64_t kept;

	if (is_unprivileged())
		SKIP("there are no rights to drop here");
	kept = kept_without_new_capabilities();
	CHECK_EQUAL(kept, 1ull << CAP_SYS_PTRACE |
				  (perf_event_paranoid() > 1 ? 1ull << CAP_SYS_ADMIN : 0));
}

/*
 * It may open what root may, as with the group kvm; its descriptors can be listed by another user.
 */
#define AS_OTHER_USER                                                                              \
	"setpriv --reuid=4711 --regid=4711 --clear-groups --inh-caps=+dac_override --ambient-caps=+dac_override"

/* In its summary. */
static long samples_of_guest(const char *text)
{
	const char *end = strstr(text, " samples of the guest");

	while (end && end > text && isdigit((unsigned char)end[-1]))
		end--;
	return end ? atol(end) : 0;
}

static void check_vm_of_other_user(pid_t vm, const char *backend)
{
	struct program tool;
	char arguments[256];

	snprintf(
		arguments, sizeof(arguments),
		"attach --pid %d --backend %s --time 3 --no-buildid-cache -o build/test-attach-rights.data",
		vm, backend);
	program_run(&tool, arguments);
	if (tool.status || !samples_of_guest(tool.text))
		FAIL_TEST("%s: exit status %d:\n%s", arguments, tool.status, tool.text);
	unlink("build/test-attach-rights.data");
}

/* As QEMU under libvirt: vCPUs are scanned again after the capabilities have been dropped. */
TEST(attach_rights, sampling_of_vms_of_other_users_continues)
{
	char path[PATH_MAX], command[PATH_MAX + 512], text[64] = "";
	FILE *output;
	pid_t vm;

	GUEST_REQUIRED();
	if (is_unprivileged() ||
	    system(AS_OTHER_USER " true 2> /dev/null")) /* NOLINT(cert-env33-c) */
		SKIP("changing to another user is not possible here");
	program_path(path);
	snprintf(
		command, sizeof(command),
		"echo $$; exec " AS_OTHER_USER " '%s' run --no-profile --kernel " GUEST_IMAGE
		" --mem 64M --timeout 250 --append 'program=shares rounds=1000000' 2>&1 < /dev/null",
		path);
	output = popen(command, "re"); /* NOLINT(cert-env33-c): the test's own command */
	REQUIRE(output != NULL && fgets(text, sizeof(text), output));
	vm = (pid_t)atoi(text);
	while (!strstr(text, "working") && fgets(text, sizeof(text), output))
		;
	CHECK(strstr(text, "working"));
	check_vm_of_other_user(vm, "perf");
	check_vm_of_other_user(vm, "auto");
	check_vm_of_other_user(vm, "ptrace");
	kill(vm, SIGTERM);
	pclose(output);
}

/* This process has more capabilities, so its descriptors can be listed but not inspected. */
TEST(attach_rights, without_rights_a_process_is_not_reported_as_having_no_vm)
{
	static const char no_rights[] = "setpriv --inh-caps=-all --bounding-set=-all";
	char path[PATH_MAX], command[PATH_MAX + 128], text[512];
	FILE *output;

	snprintf(command, sizeof(command), "%s true 2> /dev/null", no_rights);
	if (is_unprivileged() || system(command)) /* NOLINT(cert-env33-c): the test's own command */
		SKIP("there are no rights to drop here");
	program_path(path);
	snprintf(command, sizeof(command), "%s '%s' attach --pid %d 2>&1", no_rights, path,
		 getpid());
	output = popen(command, "re"); /* NOLINT(cert-env33-c): the test's own command */
	REQUIRE(output != NULL);
	text[fread(text, 1, sizeof(text) - 1, output)] = '\0';
	CHECK(pclose(output) != 0);
	if (!strstr(text, "may not be inspected: run as root") || strstr(text, "runs no VM"))
		FAIL_TEST("%s: %s", command, text);
}

TEST(attach_rights, a_list_without_rights_is_a_failure)
{
	int status;
	char *text = command_output(&status, "setpriv --reuid=65534 --regid=65534 --clear-groups "
					     "build/kvmscope attach 2>&1");

	CHECK_EQUAL(status, 1);
	CHECK(strstr(text, "no process that this user may read runs a VM"));
	free(text);
}
