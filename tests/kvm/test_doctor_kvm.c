/* SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <errno.h>
#include <jansson.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shared/error.h"
#include "tests/kvm/guest_run.h"
#include "tests/kvm/program.h"
#include "tests/unit/shim/test.h"
#include "vmm/machine/probe_list.h"

static const struct probe_row *find_row(const struct probe_row *rows, size_t count, const char *id)
{
	static const struct probe_row none;

	for (size_t i = 0; i < count; i++)
		if (!strcmp(rows[i].id, id))
			return &rows[i];
	FAIL_TEST("no row %s", id);
	return &none;
}

static void check_state(const struct probe_row *rows, size_t count, const char *id,
			enum probe_state state)
{
	const struct probe_row *row = find_row(rows, count, id);

	if (row->state != state)
		FAIL_TEST("%s is %d, expected %d: %s", id, row->state, state, row->detail);
}

/* Known by other measurements on kvm_pvm. */
TEST(doctor, reports_what_is_known_of_kvm_pvm)
{
	struct probe_row *rows;
	size_t count;

	GUEST_REQUIRED();
	if (access("/sys/module/kvm_pvm", F_OK))
		SKIP("this host's KVM is not kvm_pvm");
	REQUIRE_EQUAL(probe_all(&rows, &count), 0);
	check_state(rows, count, "kvm.device", PROBE_YES);
	check_state(rows, count, "kvm.kernel_speed", PROBE_NO);
	check_state(rows, count, "kvm.instructions", PROBE_NO);
	CHECK(strstr(find_row(rows, count, "kvm.instructions")->detail, "INT n"));
	CHECK(strstr(find_row(rows, count, "kvm.instructions")->detail, "CMPXCHG16B"));
	check_state(rows, count, "kvm.system_call", PROBE_NO);
	check_state(rows, count, "kvm.irqchip", PROBE_YES);
	check_state(rows, count, "kvm.sync_regs", PROBE_YES);
	check_state(rows, count, "kvm.kick", PROBE_YES);
	check_state(rows, count, "kvm.msr_filter", PROBE_YES);
	check_state(rows, count, "debug.breakpoint", PROBE_PARTLY);
	check_state(rows, count, "debug.watchpoint", PROBE_NO);
	check_state(rows, count, "debug.single_step", PROBE_PARTLY);
	check_state(rows, count, "pmu.guest", PROBE_NO);
	check_state(rows, count, "pmu.emulated", PROBE_PARTLY);
	CHECK(!probe_can_boot_linux(rows, count));
	probe_free(rows, count);
}

TEST(doctor, every_row_reports_a_result)
{
	struct probe_row *rows;
	size_t count;

	REQUIRE_EQUAL(probe_all(&rows, &count), 0);
	CHECK(count >= 15);
	for (size_t i = 0; i < count; i++) {
		if (!*rows[i].detail || !*rows[i].lost)
			FAIL_TEST("row %s has no detail, or does not report what is missing",
				  rows[i].id);
		for (size_t j = 0; j < i; j++)
			CHECK(strcmp(rows[i].id, rows[j].id));
	}
	probe_free(rows, count);
}

static struct probe_row *shared_row(void)
{
	void *row = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return row == MAP_FAILED ? NULL : row;
}

static void hang(struct probe_row *row)
{
	probe_report(row, PROBE_YES, "so far");
	for (;;)
		pause();
}

static void crash(struct probe_row *row)
{
	probe_report(row, PROBE_YES, "so far");
	raise(SIGKILL);
}

static void find(struct probe_row *row)
{
	probe_report(row, PROBE_PARTLY, "found %d", 3);
}

TEST(doctor, probes_that_hang_or_die_affect_only_their_row)
{
	struct probe_row *row = shared_row();

	REQUIRE(row);
	probe_run(hang, row, 100);
	CHECK_EQUAL(row->state, PROBE_NO);
	CHECK_STRING(row->detail, "no answer within 100 ms");
	probe_run(crash, row, 10000);
	CHECK_EQUAL(row->state, PROBE_NO);
	CHECK(strstr(row->detail, "Killed"));
	probe_run(find, row, 10000);
	CHECK_EQUAL(row->state, PROBE_PARTLY);
	CHECK_STRING(row->detail, "found 3");
	munmap(row, 4096);
}

/* The program of the same build, in this program's directory. */
static const char *program(void)
{
	static char path[4096];
	ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
	char *slash;

	path[length > 0 ? length : 0] = '\0';
	slash = strrchr(path, '/');
	snprintf(slash ? slash + 1 : path, 16, "kvmscope");
	return path;
}

/* Runs FORMAT by system() with the program's path in place of %s. Returns the exit status. */
static int run_program(const char *format)
{
	char command[5000];

	snprintf(command, sizeof(command), format, program());
	return WEXITSTATUS(system(command));
}

/*
 * Runs FORMAT as run_program() does and parses the report that it prints. *STATUS is the exit
 * status. Returns NULL if the output is not a JSON object.
 */
static json_t *run_report(const char *format, int *status)
{
	char command[5000];
	json_t *report;
	FILE *output;

	snprintf(command, sizeof(command), format, program());
	output = popen(command, "r");
	report = output ? json_loadf(output, 0, NULL) : NULL;

	*status = output ? WEXITSTATUS(pclose(output)) : -1;
	return report;
}

static void check_row(json_t *row)
{
	const char *state = json_string_value(json_object_get(row, "state"));

	CHECK(json_is_string(json_object_get(row, "id")) &&
	      json_is_string(json_object_get(row, "name")) &&
	      json_is_string(json_object_get(row, "detail")) &&
	      json_is_boolean(json_object_get(row, "needed_for_linux")));
	REQUIRE(state);
	CHECK_EQUAL(json_is_null(json_object_get(row, "lost")), !strcmp(state, "yes"));
}

#define NO_RIGHTS "setpriv --inh-caps=-all --bounding-set=-all"

/* Checks what kvmscope attach may do with RIGHTS, a program's name or "". */
static bool attaches(const char *rights, const char *way, pid_t vm)
{
	char command[5200];

	snprintf(
		command, sizeof(command),
		"exec %s %s attach --pid %d --backend %s --time 1 --no-call-graph --no-buildid-cache "
		"-o build/test-doctor-%d.data > /dev/null 2>&1",
		rights, program(), vm, way, getpid());
	return !system(command);
}

/* The row on the attach backend WAY. */
static const char *state_of(json_t *report, const char *way)
{
	char id[32];
	json_t *row;
	size_t i;

	snprintf(id, sizeof(id), "attach.by_%s", way);
	json_array_foreach(json_object_get(report, "rows"), i, row)
	{
		if (!strcmp(json_string_value(json_object_get(row, "id")), id))
			return json_string_value(json_object_get(row, "state"));
	}
	FAIL_TEST("no row %s", id);
	return "";
}

/* Checks that REPORT has the rows for RIGHTS. */
static void check_ways(json_t *report, const char *rights, pid_t vm)
{
	static const char *const ways[] = { "bpf", "perf", "ptrace" };

	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
		const char *truth = attaches(rights, ways[i], vm) ? "yes" : "no";

		if (strcmp(state_of(report, ways[i]), truth) != 0)
			FAIL_TEST("%s doctor: attaching by %s is not %s", rights, ways[i],
				  state_of(report, ways[i]));
	}
}

/* It does not depend on rights. */
static void check_monitor(json_t *report)
{
	void *library = dlopen("libvirt-qemu.so.0", RTLD_NOW | RTLD_LOCAL);

	if (system("qemu-system-x86_64 --version > /dev/null 2>&1"))
		CHECK_STRING(state_of(report, "qmp"), library ? "partly" : "no");
	else
		CHECK_STRING(state_of(report, "qmp"), library ? "yes" : "partly");
	if (library)
		dlclose(library);
}

static void check_monitor_of(const char *qemu, const char *state)
{
	char format[400];
	json_t *report;
	int status;

	snprintf(format, sizeof(format),
		 "d=$(mktemp -d) && printf '%s' > $d/qemu-system-x86_64 && chmod 755 $d/* && "
		 "PATH=$d:/usr/bin:/bin %%s doctor --json; rm -r $d",
		 qemu);
	report = run_report(format, &status);
	CHECK_STRING(state_of(report, "qmp"), state);
	json_decref(report);
}

/* The backend by a monitor is tried, not just detected. */
TEST(doctor, a_qemu_without_a_working_monitor_is_reported)
{
	check_monitor_of("#!/bin/sh\\nexit 1\\n", "no");
}

static void check_ways_without_rights(pid_t vm)
{
	int status;
	json_t *report = run_report(NO_RIGHTS " %s doctor --json", &status);

	if (report) {
		check_ways(report, NO_RIGHTS, vm);
		check_monitor(report);
	} else {
		CHECK(system(NO_RIGHTS " true 2> /dev/null")); /* there are none to drop */
	}
	json_decref(report);
}

static void forbid_ptrace(void)
{
	struct sock_filter program[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ptrace, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { sizeof(program) / sizeof(program[0]), program };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
		_exit(2);
}

/*
 * As in some containers: the memory of other processes may be read, but no process can be stopped.
 */
TEST(doctor, a_sandbox_in_which_no_process_can_be_stopped_is_reported)
{
	int status = -1;
	pid_t child;

	fflush(NULL);
	child = fork();
	if (!child) {
		forbid_ptrace();
		_exit(strcmp(state_of(run_report("%s doctor --json", &status), "ptrace"), "no")
			      ? 1
			      : 0);
	}
	CHECK_EQUAL(waitpid(child, &status, 0), child);
	CHECK_EQUAL(status, 0);
}

/* With the tests' own rights, and without any. */
static void check_ways_to_attach(json_t *report)
{
	char path[64];
	struct program vm;

	program_start(&vm, "run --no-profile --no-control --kernel " GUEST_IMAGE
			   " --mem 64M --timeout 250 --append program=shares_rounds=1000000");
	CHECK(program_wait_for(&vm, "working"));
	check_ways(report, "", vm.pid);
	check_monitor(report);
	check_ways_without_rights(vm.pid);
	kill(vm.pid, SIGTERM);
	program_wait(&vm);
	CHECK_EQUAL(vm.status, 0);
	snprintf(path, sizeof(path), "build/test-doctor-%d.data", getpid());
	unlink(path);
}

TEST(doctor, json_agrees_with_the_exit_status_and_attach)
{
	int status;
	json_t *report = run_report("%s doctor --json", &status), *rows, *row;
	size_t i;

	REQUIRE(json_is_object(report));
	rows = json_object_get(report, "rows");
	CHECK(json_array_size(rows) >= 15);
	json_array_foreach(rows, i, row) check_row(row);
	CHECK(json_is_string(json_object_get(report, "verdict")));
	CHECK_EQUAL(status, json_is_true(json_object_get(report, "can_boot_linux")) ? 0 : 4);
	if (guest_run_possible())
		check_ways_to_attach(report);
	json_decref(report);
}

/* /dev/null in place of /dev/kvm can be opened, but is not KVM. */
TEST(doctor, host_without_kvm_has_a_report_and_status_4)
{
	int status;
	json_t *report, *row;
	size_t i;

	if (system("unshare -m true 2>/dev/null") || access("/dev/kvm", F_OK))
		SKIP("replacing /dev/kvm requires root");
	report = run_report(
		"unshare -m sh -c 'mount --bind /dev/null /dev/kvm && exec %s doctor --json'",
		&status);
	REQUIRE(json_is_object(report));
	CHECK_EQUAL(status, 4);
	CHECK(json_is_false(json_object_get(report, "can_boot_linux")));
	CHECK(strstr(json_string_value(json_object_get(report, "verdict")), "No guest can run"));
	row = json_array_get(json_object_get(report, "rows"), 0);
	CHECK_STRING(json_string_value(json_object_get(row, "state")), "no");
	json_array_foreach(json_object_get(report, "rows"), i, row)
	{
		if (!strcmp(json_string_value(json_object_get(row, "id")), "kvm.kernel_speed"))
			CHECK(strstr(json_string_value(json_object_get(row, "detail")),
				     "not tried"));
	}
	json_decref(report);
	/* If no VM can be created, nothing is reported about its speed or capabilities. */
	CHECK_EQUAL(run_program("unshare -m sh -c 'mount --bind /dev/null /dev/kvm && "
				"%s doctor | grep -qE \"interpreted|guest debug|not tried\"'"),
		    1);
}

TEST(doctor, table_fits_a_terminal)
{
	CHECK_EQUAL(
		run_program(
			"TERM=dumb script -qec 'stty cols 80; %s doctor' /dev/null | tr -d '\\r' > "
			"build/doctor.text; grep -q 'KVM device$' build/doctor.text"),
		0);
	CHECK_EQUAL(run_program(": %s; grep -qE '.{81}' build/doctor.text"), 1);
	CHECK_EQUAL(run_program(": %s; rm build/doctor.text"), 0);
}

TEST(doctor, table_is_plain_text_without_a_terminal)
{
	CHECK_EQUAL(run_program("%s doctor | grep -q \"$(printf '\\033')\""), 1);
	CHECK_EQUAL(run_program("%s doctor | grep -q 'KVM device'"), 0);
	CHECK_EQUAL(run_program("%s doctor nonsense 2>/dev/null"), 2);
}
