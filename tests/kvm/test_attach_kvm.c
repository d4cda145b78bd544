/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvmscope attach on VMs of other programs on the local KVM: our own VMM without a profile, and
 * QEMU.
 */
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
#include "tests/kvm/program.h"
#include "tests/unit/run_command.h"
#include "tests/unit/shim/test.h"
#include "vmm/perf_data/perf_data_reader.h"
#include "vmm/symbols/elf_symbols.h"

#define SHARES                                                                                     \
	"run --no-profile --kernel " GUEST_IMAGE                                                   \
	" --mem 64M --timeout 300 --append program=shares_rounds=1000000"

static void end(struct program *vm)
{
	kill(vm->pid, SIGTERM);
	program_wait(vm);
}

static void start_shares(struct program *vm)
{
	program_start(vm, SHARES);
	CHECK(program_wait_for(vm, "working"));
}

/* Attaches to VM with OPTIONS. TOOL gets its output. */
static void attach(const struct program *vm, const char *options, struct program *tool)
{
	char arguments[512];

	snprintf(arguments, sizeof(arguments), "attach --pid %d %s", vm->pid, options);
	program_run(tool, arguments);
}

struct shares {
	struct function_shares functions;
	uint64_t other; /* samples of another mode */
	uint16_t guest_mode, host_mode, host_kernel_mode;
};

#define GUEST_MODES                                                                                \
	.guest_mode = PERF_RECORD_MISC_USER, .host_mode = PERF_RECORD_MISC_HYPERVISOR,             \
	.host_kernel_mode = PERF_RECORD_MISC_HYPERVISOR

static int count_sample(void *context, const struct perf_data_sample *sample)
{
	struct shares *shares = context;

	if (sample->misc == shares->guest_mode)
		function_shares_add(&shares->functions, sample);
	else
		shares->other += sample->misc != shares->host_mode &&
				 sample->misc != shares->host_kernel_mode;
	return 0;
}

/* Adds to SHARES. */
static void gather_shares(const struct program *vm, const char *image, const char *options,
			  struct shares *shares, struct program *tool)
{
	const struct perf_data_events events = { .sample = count_sample, .context = shares };
	char path[64], arguments[256];

	snprintf(path, sizeof(path), "build/test-attach-%d.data", getpid());
	snprintf(arguments, sizeof(arguments), "--time 2 --no-buildid-cache -o %s %s", path,
		 options);
	attach(vm, arguments, tool);
	if (tool->status || !strstr(tool->text, "samples of the guest") ||
	    !strstr(tool->text, "profiling overhead: ") ||
	    !strstr(tool->text, "next: kvmscope report build/test-attach-"))
		FAIL_TEST("kvmscope attach %s: exit status %d:\n%s", arguments, tool->status,
			  tool->text);
	function_shares_read(&shares->functions, path, image, &events);
	unlink(path);
}

static double effective(const struct shares *shares)
{
	return effective_samples(shares->functions.weight, shares->functions.squares);
}

/*
 * With this number of random samples, 3 points are three standard deviations of a share of 60 %. If
 * there is not enough time for them, five standard deviations are allowed.
 */
enum { SAMPLES_FOR_3_POINTS = 2400 };

/* In percentage points. */
static double bound_for(const struct shares *shares)
{
	double samples = effective(shares);

	return samples >= SAMPLES_FOR_3_POINTS ? 3 : share_bound(samples, 0.6, 3);
}

static bool is_off(const struct shares *shares, int function)
{
	return fabs(function_shares_of(&shares->functions, function) -
		    function_shares_truth[function]) > bound_for(shares);
}

static void compare_shares(const char *options, const struct shares *shares,
			   const struct program *tool)
{
	CHECK_EQUAL(shares->other, 0);
	for (int i = 0; i < 3; i++)
		if (is_off(shares, i))
			FAIL_TEST(
				"attach %s: function %d has %.1f %% of %.0f samples, not %.0f %%\n%s",
				options, i, function_shares_of(&shares->functions, i),
				effective(shares), function_shares_truth[i], tool->text);
}

/*
 * On a busy machine several attempts are made, until there are enough samples. With sanitizers,
 * where this is the second run, one has to do.
 */
#ifdef __SANITIZE_ADDRESS__
enum { TRIES = 1 };
#else
enum { TRIES = 3 };
#endif
enum { SAMPLES_MIN = 300, TRIES_MAX = 40 };

static void check_shares(const struct program *vm, const char *image, const char *options,
			 struct shares *shares, struct program *tool)
{
	for (int tries = 0; tries < TRIES_MAX && effective(shares) < SAMPLES_MIN; tries++)
		gather_shares(vm, image, options, shares, tool);
	CHECK(effective(shares) >= SAMPLES_MIN);
	compare_shares(options, shares, tool);
}

/* A share may be off by chance, which more samples correct. */
static bool is_worth_another_try(const struct shares *shares, int tries)
{
	if (effective(shares) < SAMPLES_MIN || is_off(shares, 0) || is_off(shares, 1) ||
	    is_off(shares, 2))
		return tries < TRIES_MAX;
	return tries < TRIES && effective(shares) < SAMPLES_FOR_3_POINTS;
}

static void check_stopped_shares(const struct program *vm, const char *image, struct shares *shares,
				 struct program *tool)
{
	/* On a busy machine many stops take longer than the default limit of 200 us. */
	static const char options[] = "--backend ptrace -F 4000 --stop-limit 10000 --json";

	for (int tries = 0; is_worth_another_try(shares, tries); tries++)
		gather_shares(vm, image, options, shares, tool);
	CHECK(effective(shares) >= SAMPLES_MIN);
	compare_shares(options, shares, tool);
	CHECK(strstr(tool->text, "vCPUs were stopped"));
	CHECK(strstr(tool->text, "\"max_us\""));
	CHECK(strstr(tool->text, "\"over_limit\""));
}

/* On a busy machine QEMU's monitor answers only a few times a second. */
enum { QMP_SAMPLES_MIN = 100, QMP_TRIES = 12 };

static bool are_reads_enough(const struct shares *shares, int tries)
{
	return effective(shares) >= (tries < QMP_TRIES ? SAMPLES_MIN : QMP_SAMPLES_MIN);
}

static void check_qmp_shares(const struct program *vm, const char *image, const char *socket,
			     struct shares *shares, struct program *tool)
{
	char options[160];

	snprintf(options, sizeof(options), "--backend qmp --qmp %s -F 200", socket);
	for (int tries = 0; tries < TRIES_MAX && !are_reads_enough(shares, tries); tries++)
		gather_shares(vm, image, options, shares, tool);
	CHECK(effective(shares) >= QMP_SAMPLES_MIN);
	compare_shares(options, shares, tool);
}

TEST(attach_vm, shares_of_our_own_vmm_s_guest)
{
	struct shares guest = { GUEST_MODES };
	struct shares host = { .guest_mode = PERF_RECORD_MISC_GUEST_USER,
			       .host_mode = PERF_RECORD_MISC_USER,
			       .host_kernel_mode = PERF_RECORD_MISC_KERNEL };
	struct program vm, tool;

	GUEST_REQUIRED();
	start_shares(&vm);
	check_shares(&vm, GUEST_IMAGE, "--backend perf -F 999", &guest, &tool);
	check_shares(&vm, GUEST_IMAGE, "--backend perf -F 4000 --perspective host -z", &host,
		     &tool);
	end(&vm);
	CHECK_EQUAL(vm.status, 0);
}

TEST(attach_vm, shares_by_stops)
{
	struct shares guest = { GUEST_MODES };
	struct program vm, tool;

	GUEST_REQUIRED();
	start_shares(&vm);
	check_stopped_shares(&vm, GUEST_IMAGE, &guest, &tool);
	end(&vm);
	CHECK_EQUAL(vm.status, 0);
}

/*
 * The best backend comes first: BPF, where it works, with callers. The output says what was used.
 */
TEST(attach_vm, the_best_backend_has_shares_and_callers)
{
	struct shares guest = { GUEST_MODES };
	struct program vm, tool;

	GUEST_REQUIRED();
	start_shares(&vm);
	check_shares(&vm, GUEST_IMAGE, "--backend auto -F 999", &guest, &tool);
	end(&vm);
	if (strstr(tool.text, "by perf: ") && strstr(tool.text, "not by bpf: "))
		SKIP("BPF cannot be used here: %s", strstr(tool.text, "not by bpf: "));
	CHECK(strstr(tool.text, "by bpf: "));
	CHECK(guest.functions.in_loops > 50);
	/* The first and the last instruction of a function have no frame. */
	if (guest.functions.called < guest.functions.in_loops * 99 / 100)
		FAIL_TEST("only %llu of %llu samples have their caller",
			  (unsigned long long)guest.functions.called,
			  (unsigned long long)guest.functions.in_loops);
}

/*
 * Starts QEMU with the same guest, its serial port in the file PATH and its monitor at SOCKET.
 * Returns the child's PID. The machine has little firmware, and its threads have the seccomp filter
 * that libvirt uses.
 */
static pid_t start_qemu(const char *path, const char *errors, const char *socket)
{
	char serial[96], monitor[128];
	pid_t child;

	snprintf(serial, sizeof(serial), "file:%s", path);
	snprintf(monitor, sizeof(monitor), "unix:%s,server=on,wait=off", socket);
	fflush(NULL);
	child = fork();
	if (!child) {
		dup2(open(errors, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), STDERR_FILENO);
		execlp("timeout", "timeout", "300", "qemu-system-x86_64", "-accel", "kvm", "-cpu",
		       "host,arch-capabilities=off", "-machine",
		       "microvm,pit=on,pic=on,rtc=on,isa-serial=on", "-name",
		       "guest,debug-threads=on", "-m", "64", "-nodefaults", "-no-user-config",
		       "-display", "none", "-sandbox",
		       "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
		       "-serial", serial, "-qmp", monitor, "-no-reboot", "-kernel",
		       GUEST_IMAGE_MULTIBOOT, "-append", "program=shares rounds=1000000", NULL);
		_exit(127);
	}
	return child;
}

static bool file_has(const char *path, const char *text)
{
	FILE *file = fopen(path, "re");
	char line[256];
	bool found = false;

	while (file && !found && fgets(line, sizeof(line), file))
		found = strstr(line, text);
	if (file)
		fclose(file);
	return found;
}

/* Finds the only child of timeout(1). Returns false if QEMU ended before its guest worked. */
static bool wait_for_qemu(pid_t timeout, const char *path, pid_t *qemu)
{
	char children[64];
	FILE *file;

	while (!file_has(path, "working")) {
		if (waitpid(timeout, NULL, WNOHANG))
			return false;
		usleep(20000);
	}
	snprintf(children, sizeof(children), "/proc/%d/task/%d/children", timeout, timeout);
	file = fopen(children, "re");
	*qemu = 0;
	if (file && fscanf(file, "%d", qemu) != 1)
		*qemu = 0;
	if (file)
		fclose(file);
	return true;
}

/*
 * Handles QEMU's ERRORS if the guest did not work: a KVM that does not run it is reported there and
 * skips the test. Everything else is a failure.
 */
static void skip_or_fail(const char *path)
{
	FILE *file = fopen(path, "re");
	char errors[1024] = "";

	if (file) {
		errors[fread(errors, 1, sizeof(errors) - 1, file)] = '\0';
		fclose(file);
	}
	if (strcasestr(errors, "kvm"))
		SKIP("QEMU does not run this guest with KVM here: %s", errors);
	FAIL_TEST("QEMU does not run the guest: %s", errors);
}

TEST(attach_vm, shares_of_a_guest_of_qemu)
{
	struct shares perf = { GUEST_MODES };
	struct shares best = perf, stops = perf, reads = perf;
	char path[64], errors[96], socket[96];
	struct program vm = { 0 }, tool;
	pid_t timeout;
	bool works;

	GUEST_REQUIRED();
	if (access("/usr/bin/qemu-system-x86_64", X_OK))
		SKIP("qemu-system-x86_64 is not installed");
	snprintf(path, sizeof(path), "build/test-attach-qemu-%d", getpid());
	snprintf(errors, sizeof(errors), "%s.errors", path);
	snprintf(socket, sizeof(socket), "%s.qmp", path);
	timeout = start_qemu(path, errors, socket);
	works = wait_for_qemu(timeout, path, &vm.pid);
	if (!works)
		skip_or_fail(errors);
	unlink(path);
	unlink(errors);
	if (!works)
		return;
	check_shares(&vm, GUEST_IMAGE_MULTIBOOT, "--backend perf", &perf, &tool);
	check_shares(&vm, GUEST_IMAGE_MULTIBOOT, "--backend auto", &best, &tool);
	check_stopped_shares(&vm, GUEST_IMAGE_MULTIBOOT, &stops, &tool);
	check_qmp_shares(&vm, GUEST_IMAGE_MULTIBOOT, socket, &reads, &tool);
	kill(timeout, SIGTERM);
	waitpid(timeout, NULL, 0);
	unlink(socket);
}

struct halted {
	struct symbols *symbols;
	uint64_t guest, halted;
};

static int count_halted(void *context, const struct perf_data_sample *sample)
{
	struct halted *counts = context;
	struct symbol symbol;

	if (sample->misc == PERF_RECORD_MISC_HYPERVISOR)
		return 0;
	counts->guest++;
	counts->halted += symbols_find(counts->symbols, sample->ip, &symbol) &&
			  !strcmp(symbol.name, "sums_halted") && symbol.start == sample->ip;
	return 0;
}

/* Samples VM by stops for two more seconds. */
static void count_halted_for_a_while(const struct program *vm, struct halted *counts)
{
	const struct perf_data_events events = { .sample = count_halted, .context = counts };
	struct perf_data_reader *reader;
	char path[64], options[160];
	struct program tool;

	snprintf(path, sizeof(path), "build/test-attach-%d.data", getpid());
	snprintf(options, sizeof(options),
		 "--backend ptrace --time 2 -F 4000 --json --no-buildid-cache -o %s", path);
	attach(vm, options, &tool);
	CHECK_EQUAL(tool.status, 0);
	CHECK(strstr(tool.text, "\"asleep\"") && !strstr(tool.text, "\"asleep\": 0"));
	REQUIRE_EQUAL(perf_data_reader_open(&reader, path), 0);
	CHECK_EQUAL(perf_data_reader_run(reader, &events), 0);
	perf_data_reader_close(reader);
	unlink(path);
}

/*
 * The guest rests nine tenths of its time. A sleeping thread is not stopped. A vCPU that is awake
 * only to find that it is halted is not in the guest.
 */
TEST(attach_vm, a_halted_vcpu_is_not_sampled_as_the_guest)
{
	struct halted counts = { 0 };
	struct program vm;

	GUEST_REQUIRED();
	REQUIRE_EQUAL(elf_symbols_load(&counts.symbols, GUEST_IMAGE, ELF_VIRTUAL_ADDRESSES,
				       (struct span){ 0 }),
		      0);
	program_start(
		&vm,
		"run --no-profile --kernel " GUEST_IMAGE
		" --mem 64M --timeout 300 --append program=sums_chunk=200000_timer=100_rest=1");
	CHECK(program_wait_for(&vm, "right"));
	for (int tries = 0; tries < TRIES_MAX && counts.guest < SAMPLES_MIN / 3; tries++)
		count_halted_for_a_while(&vm, &counts);
	end(&vm);
	symbols_free(counts.symbols);
	CHECK(counts.guest > 0);
	/*
	 * A vCPU that was just woken has not moved yet: below 1 %. If KVM is not asked it is 7 to 9
	 * %.
	 */
	if (counts.halted > counts.guest / 25 + 3)
		FAIL_TEST("%llu of %llu samples of the guest are of a halted vCPU",
			  (unsigned long long)counts.halted, (unsigned long long)counts.guest);
}

TEST(attach_vm, it_ends_with_the_vm)
{
	struct program vm, tool;
	char arguments[128];

	GUEST_REQUIRED();
	start_shares(&vm);
	snprintf(arguments, sizeof(arguments),
		 "attach --pid %d --no-buildid-cache -o build/test-attach-end.data", vm.pid);
	program_start(&tool, arguments);
	CHECK(program_wait_for(&tool, "attached to process"));
	end(&vm);
	program_wait(&tool);
	CHECK_EQUAL(tool.status, 0);
	CHECK(strstr(tool.text, "the VM has ended"));
	CHECK(strstr(tool.text, "samples of the guest"));
	unlink("build/test-attach-end.data");
}

/*
 * This guest has no kernel to find, and the backend waits for one in order to record call chains.
 */
TEST(attach_vm, ended_before_sampling_it_reports_no_guest)
{
	struct program vm, tool;
	char arguments[160];

	GUEST_REQUIRED();
	start_shares(&vm);
	snprintf(
		arguments, sizeof(arguments),
		"attach --pid %d --backend ptrace --no-buildid-cache -o build/test-attach-early.data",
		vm.pid);
	program_start(&tool, arguments);
	CHECK(program_wait_for(&tool, "attached to process"));
	kill(tool.pid, SIGINT);
	program_wait(&tool);
	end(&vm);
	CHECK_EQUAL(tool.status, 0);
	CHECK(strstr(tool.text, "no samples: it was ended while the guest's kernel was searched"));
	unlink("build/test-attach-early.data");
}

/*
 * Without --time, so only the write error ends it, as with a full disk. It does not report
 * unwritten samples as written.
 */
TEST(attach_vm, it_ends_when_nothing_more_can_be_written)
{
	struct program vm;
	char *output;

	GUEST_REQUIRED();
	start_shares(&vm);
	output = command_output(
		NULL,
		"exec 3>&1; { timeout 60 build/kvmscope attach --pid %d --backend perf "
		"--no-buildid-cache -o - 2>&3; echo status $? >&3; } | head -c 4000 > /dev/null",
		vm.pid);
	end(&vm);
	CHECK(strstr(output, "recording ends here: cannot write standard output: Broken pipe"));
	CHECK(strstr(output, "standard output has what was sampled until then\nstatus 1\n"));
	CHECK(!strstr(output, " samples of the guest and "));
	free(output);
}

TEST(attach_vm, json_reports_how_much_was_written)
{
	struct program vm;
	char *output;

	GUEST_REQUIRED();
	start_shares(&vm);
	output = command_output(NULL,
				"p=build/test-attach-%d.pipe; rm -f $p; mkfifo $p; "
				"timeout 60 head -c 4000 $p > /dev/null & "
				"timeout 60 build/kvmscope attach --pid %d --backend perf --json "
				"--no-buildid-cache -o $p 2>&1; echo status $?; rm $p",
				getpid(), vm.pid);
	end(&vm);
	CHECK(strstr(output, "recording ends here: cannot write build/test-attach-"));
	CHECK(strstr(output, "\"guest_samples\": "));
	CHECK(strstr(output, "\"written\": "));
	CHECK(strstr(output, ".pipe has what was sampled until then\n"));
	CHECK(strstr(output, "}\nstatus 1\n"));
	CHECK(!strstr(output, " samples of the guest and "));
	free(output);
}

TEST(attach_vm, vms_are_listed)
{
	struct program vm, tool;
	char pid[32];

	GUEST_REQUIRED();
	program_start(&vm, "run --no-profile --kernel " GUEST_IMAGE
			   " --timeout 300 --cpus 3 --append program=spin");
	CHECK(program_wait_for(&vm, "spinning"));
	program_run(&tool, "attach");
	snprintf(pid, sizeof(pid), "%d  kvmscope          3 vCPUs", vm.pid);
	if (!strstr(tool.text, pid))
		FAIL_TEST("'%s' is not in:\n%s", pid, tool.text);
	CHECK_EQUAL(tool.status, 0);
	end(&vm);
}

TEST(attach_vm, wrong_usage_reports_what_is_right)
{
	struct program tool;

	program_refuses("attach --pid none", "--pid none: it must be a number from 1 to");
	program_refuses("attach --pid 1 --backend magic",
			"--backend magic: it must be one of auto, bpf");
	program_refuses("attach --pid 1 -F 10001",
			"--freq 10001: it must be a number from 1 to 10000");
	program_refuses("attach 4711", "--pid or --domain selects the VM");
	program_run(&tool, "attach --pid 1");
	CHECK_EQUAL(tool.status, 1);
	CHECK(strstr(tool.text, "runs no VM") || strstr(tool.text, "may not be inspected"));
}
