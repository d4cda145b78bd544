/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvmscope run from its user's view: options, exit statuses, signals, and the file that it writes.
 */
#include <limits.h>
#include <linux/perf_event.h>
#include <math.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>
#include <utmp.h>

#include "tests/kvm/function_shares.h"
#include "tests/kvm/guest_run.h"
#include "tests/kvm/program.h"
#include "tests/unit/run_command.h"
#include "tests/unit/shim/test.h"
#include "vmm/machine/host_probe.h"
#include "vmm/perf_data/perf_data_reader.h"
#include "vmm/symbols/elf_symbols.h"

#define GUEST "run --kernel " GUEST_IMAGE " --mem 64M --timeout 250 "
#define PLAIN GUEST "--no-profile "

TEST(run, exit_status_is_the_guest_s)
{
	GUEST_REQUIRED();
	program_expect(PLAIN "--append program=hello_exit=0", 0, "hello: ");
	program_expect(PLAIN "--append program=hello_exit=55", 55, "");
	program_expect(PLAIN "--append program=hello_exit=256", 0, ""); /* the low 8 bits */
}

TEST(run, wrong_usage_reports_what_is_right)
{
	program_expect("run", 2, "--kernel FILE is missing");
	program_expect("run --kernel x --cpus 65", 2, "a number from 1 to 64");
	program_expect("run --kernel x --mem lots", 2, "a size like 512M or 2G");
	program_expect("run --kernel x --mem 1", 2, "--mem: it must be a multiple of 4 KiB and");
	program_expect("run --kernel x --protocol uefi", 2,
		       "--protocol uefi: it must be one of auto");
	program_expect("run --kernel x -F 10001", 2, "a number from 1 to 10000");
	program_expect("run --kernel x --ring-size 100K", 2, "a power of two");
	program_expect("run x", 2, "--kernel gives the kernel");
	program_expect("run --help", 0, "Examples:");
}

#define ACCEPTED "; it must be a bzImage, ELF vmlinux, PVH or multiboot image"

/* These do not need KVM. */
TEST(run, kernel_and_initrd_files_are_checked_as_usage)
{
	program_expect("run --kernel none", 2,
		       "--kernel: cannot open none: No such file or directory" ACCEPTED);
	program_expect("run --kernel /bin/ls", 2,
		       "--kernel: /bin/ls is a program, not a kernel" ACCEPTED);
	program_expect("run --kernel README.md", 2,
		       "--kernel: README.md is not a bootable kernel" ACCEPTED);
	program_expect("run --kernel tests", 2, "--kernel: tests is not a regular file");
	program_expect("run --kernel /dev/null", 2, "--kernel: /dev/null is not a regular file");
	program_expect("run --protocol pvh --kernel README.md", 2,
		       "--kernel: README.md is not an ELF file" ACCEPTED);
	program_expect("run --kernel " GUEST_IMAGE " --initrd none", 2,
		       "--initrd: cannot open none: No such file or directory");
	program_expect("run --kernel " GUEST_IMAGE " --initrd tests", 2,
		       "--initrd: tests is not a regular file");
}

/* Few test machines have counters. Elsewhere the test shows that the option is refused. */
TEST(run, KVM_s_own_PMU_is_available_or_refused)
{
	struct probe_row row;

	GUEST_REQUIRED();
	REQUIRE_EQUAL(probe_one("pmu.guest", &row), 0);
	if (row.state == PROBE_YES)
		program_expect(PLAIN "--pmu kernel --append program=hello_exit=0", 0, "hello: ");
	else
		program_expect(PLAIN "--pmu kernel --append program=hello_exit=0", 4,
			       "--pmu kernel: this host's KVM provides no counters: ");
}

/*
 * The guest checks that all registers exist. Without a PMU they do not, and the message has the
 * reason that kvmscope doctor reports.
 */
TEST(run, best_PMU_is_selected_or_the_reason_for_none_is_reported)
{
	struct program program;
	struct probe_row row;
	const char *reason;

	GUEST_REQUIRED();
	REQUIRE_EQUAL(probe_one("pmu.guest", &row), 0);
	if (row.state == PROBE_YES)
		SKIP("KVM's own PMU may differ from what the guest expects");
	REQUIRE_EQUAL(probe_one("pmu.emulated", &row), 0);
	if (row.state == PROBE_YES) {
		program_expect(PLAIN "--append program=pmu_pmu=registers", 0, "");
		return;
	}
	program_run(&program, PLAIN "--append program=pmu_pmu=registers");
	reason = strstr(program.text, "the guest has no PMU: ");
	REQUIRE(reason);
	CHECK(strstr(reason, row.state == PROBE_PARTLY ? "Linux could not read it" : row.detail));
	CHECK(!strstr(reason + 1, "the guest has no PMU: "));
}

TEST(run, missing_PMU_is_not_reported_for_a_guest_that_does_not_use_it)
{
	struct program program;

	GUEST_REQUIRED();
	program_run(&program, PLAIN "--append program=hello_exit=0");
	CHECK_EQUAL(program.status, 0);
	CHECK(!strstr(program.text, "PMU"));
	CHECK(!strstr(program.text, "RDPMC"));
}

TEST(run, delay_of_the_guest_s_overflows_is_reported)
{
	struct probe_row row;

	GUEST_REQUIRED();
	REQUIRE_EQUAL(probe_one("pmu.emulated", &row), 0);
	if (row.state == PROBE_NO)
		SKIP("%s", row.detail);
	program_expect(PLAIN "--pmu emulated --append program=pmu_pmu=overflow_pmis=20", 0,
		       "the guest's PMU: 20 overflows were reported, ");
}

/* In a mount namespace of its own, KVM looks as if its module had the parameter. */
#define MEDIATED                                                                                   \
	"unshare --mount sh -c 'mount -t tmpfs none /sys/module && "                               \
	"mkdir -p /sys/module/kvm/parameters && "                                                  \
	"echo Y > /sys/module/kvm/parameters/enable_mediated_pmu && exec %s %s' 2>&1"

/* An event of the host's counters would make the start of other VMs fail. */
TEST(run, a_mediated_PMU_keeps_the_host_s_counters)
{
	char path[PATH_MAX], *text;
	struct probe_row row;
	int status;

	GUEST_REQUIRED();
	REQUIRE_EQUAL(probe_one("pmu.emulated", &row), 0);
	if (row.state == PROBE_NO)
		SKIP("%s", row.detail);
	if (!command_succeeds("unshare --mount true"))
		SKIP("this process may not create a mount namespace");
	program_path(path);
	text = command_output(&status, MEDIATED, path,
			      "run --no-profile --kernel " GUEST_IMAGE " --mem 64M --pmu emulated "
			      "--append \"program=pmu pmu=registers\"");
	CHECK_EQUAL(status, 0);
	CHECK(strstr(text, "(enable_mediated_pmu), so the guest's PMU counts cycles by its run "));
	free(text);
	text = command_output(NULL, MEDIATED, path, "doctor");
	CHECK(strstr(text, "enable_mediated_pmu: events of cycles and VMs exclude each other"));
	CHECK(strstr(text, "cycles from the guest's run time"));
	free(text);
}

/* Even if the guest ends in the middle of a line. */
TEST(run, summary_follows_the_guest_s_output)
{
	struct program program;
	char *summary;

	GUEST_REQUIRED();
	program_run(&program, GUEST "--no-buildid-cache -o /dev/null --append program=none");
	summary = strstr(program.text, "samples in ");
	REQUIRE(summary);
	CHECK(!strstr(summary, "program="));
}

TEST(run, ends_with_wall_time_overhead_and_the_next_command)
{
	char next[256], *text;

	GUEST_REQUIRED();
	snprintf(next, sizeof(next),
		 "\nkvmscope: next: kvmscope report \"build/test run-%d\", or kvmscope export "
		 "\"build/test run-%d\" for a flame graph\n",
		 getpid(), getpid());
	text = command_output(
		NULL,
		"build/kvmscope " GUEST "--no-buildid-cache --append program=%s "
		"-o 'build/test run-%d' 2>&1; "
		"build/kvmscope report -i 'build/test run-%d'; rm 'build/test run-%d'",
		"shares_rounds=100", getpid(), getpid(), getpid());
	if (!strstr(text, next) || !strstr(text, "profiling overhead: ") ||
	    !strstr(text, "the vCPUs were ") || !strstr(text, "# Wall     ") ||
	    !strstr(text, " % of the guest's time, "))
		FAIL_TEST("kvmscope run prints:\n%s", text);
	free(text);
}

TEST(run, open_failure_reports_the_file)
{
	GUEST_REQUIRED();
	program_expect(PLAIN "--console /none/such --append program=hello", 1, "/none/such");
	program_expect(PLAIN "--disk none.img --append program=hello", 1, "none.img");
	program_expect(GUEST "-o /none/perf.data --append program=hello", 1, "/none/perf.data");
	program_expect(PLAIN "--module-text @none --append program=hello", 1, "none");
}

/* If a run is not possible, this is the only message: a missing PMU is not the reason. */
TEST(run, open_failure_is_the_only_message)
{
	struct program program;

	GUEST_REQUIRED();
	program_run(&program, PLAIN "--disk none.img");
	CHECK_STRING(
		program.text,
		"kvmscope: cannot open disk image none.img for writing: No such file or directory\n");
}

TEST(run, timeout_ends_a_guest_that_spins)
{
	GUEST_REQUIRED();
	program_expect("run --no-profile --kernel " GUEST_IMAGE
		       " --timeout 1 --append program=spin",
		       124, "--timeout of 1 s");
	program_expect("run --no-profile --kernel " GUEST_IMAGE
		       " --duration 1 --append program=spin",
		       0, "spinning");
}

TEST(run, crash_is_reported_after_the_console_output)
{
	struct program program;

	GUEST_REQUIRED();
	program_run(&program, PLAIN "--append program=crash");
	CHECK_EQUAL(program.status, 3);
	CHECK(strstr(program.text, "crashing\n"));
	CHECK(strstr(program.text, "triple fault") > strstr(program.text, "crashing\n"));
}

TEST(run, console_goes_to_a_file)
{
	char path[64], arguments[256], text[64] = "";
	FILE *file;

	GUEST_REQUIRED();
	snprintf(path, sizeof(path), "build/test-console-%d", getpid());
	snprintf(arguments, sizeof(arguments), PLAIN "--console %s --append program=hello_exit=0",
		 path);
	program_expect(arguments, 0, "");
	file = fopen(path, "re");
	REQUIRE(file);
	CHECK(fgets(text, sizeof(text), file));
	fclose(file);
	unlink(path);
	CHECK_STRING(text, "hello: program=hello exit=0\n");
}

/* A link of our own, like /dev/stdout, which must not be replaced. */
TEST(run, recording_is_written_to_the_target_of_a_link)
{
	char program[PATH_MAX], *said;

	GUEST_REQUIRED();
	program_path(program);
	said = command_output(
		NULL,
		"d=$(mktemp -d) && ln -s /proc/self/fd/1 $d/link && timeout 250 %s " GUEST
		"--no-buildid-cache --append 'program=hello exit=0' -o $d/link > $d/data 2> $d/said; "
		"test -h $d/link && ls $d && head -c 8 $d/data && grep ^hello $d/said; rm -r $d",
		program);
	CHECK_STRING(said, "data\nlink\nsaid\nPERFILE2hello: program=hello exit=0\n");
	free(said);
}

/* This guest has no ACPI driver to handle the power button, so the first signal ends it. */
/* The kernel's file and the recorder's cache are gone when the recording is read. */
TEST(run, self_contained_recording_has_its_symbols)
{
	char directory[] = "build/self-contained-XXXXXX", arguments[512], *text;
	int status;

	GUEST_REQUIRED();
	REQUIRE(mkdtemp(directory));
	free(command_output(&status,
			    "cp " GUEST_IMAGE
			    " %s/kernel && HOME=$PWD/%s build/kvmscope run -F 2000 "
			    "--kernel %s/kernel --mem 64M --timeout 250 --self-contained "
			    "--append 'program=shares rounds=100' -o %s/data 2>&1",
			    directory, directory, directory, directory));
	CHECK_EQUAL(status, 0);
	free(command_output(&status, "rm -r %s/kernel %s/.debug", directory, directory));
	CHECK_EQUAL(status, 0);
	text = command_output(&status, "HOME=/nonexistent build/kvmscope report %s/data 2>&1",
			      directory);
	CHECK_EQUAL(status, 0);
	CHECK(strstr(text, "share_ten"));
	free(text);
	free(command_output(NULL, "rm -r %s", directory));
	snprintf(arguments, sizeof(arguments), PLAIN "--self-contained -o -");
	program_expect(arguments, 2, "--self-contained needs a file");
	snprintf(arguments, sizeof(arguments), GUEST "--self-contained --no-buildid-cache");
	program_expect(arguments, 2, "--self-contained excludes --no-buildid-cache");
	snprintf(arguments, sizeof(arguments), GUEST "--self-contained --flight 1s");
	program_expect(arguments, 2, "--flight excludes --self-contained");
}

TEST(run, signals_end_it)
{
	static const int signals[] = { SIGINT, SIGTERM, SIGHUP };

	GUEST_REQUIRED();
	for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++) {
		struct program program;

		program_start(&program, PLAIN "--append program=spin");
		CHECK(program_wait_for(&program, "spinning"));
		kill(program.pid, signals[i]);
		program_wait(&program);
		CHECK_EQUAL(program.status, 0);
	}
}

struct shares {
	struct function_shares user;
	uint64_t samples;
};

static int count_sample(void *context, const struct perf_data_sample *sample)
{
	struct shares *shares = context;

	shares->samples++;
	if (sample->misc == PERF_RECORD_MISC_USER)
		function_shares_add(&shares->user, sample);
	return 0;
}

/*
 * Checks the shares by function from the running guest to the file: within 3 points of what the
 * guest did.
 */
static void check_shares(const char *options)
{
	char path[64], arguments[256];
	struct shares shares = { 0 };
	struct perf_data_events events = { .sample = count_sample, .context = &shares };
	double bound;

	/* Tests of other builds may run at the same time. */
	snprintf(path, sizeof(path), "build/test-run-%d.data", getpid());
	snprintf(arguments, sizeof(arguments), GUEST "-o %s %s", path, options);
	program_expect(arguments, 0, "samples in");
	function_shares_read(&shares.user, path, GUEST_IMAGE, &events);
	CHECK(shares.samples > 100);
	bound = share_bound(effective_samples(shares.user.weight, shares.user.squares), 0.6, 3);
	for (int i = 0; i < 3; i++) {
		double share = function_shares_of(&shares.user, i);

		if (fabs(share - function_shares_truth[i]) > bound)
			FAIL_TEST("%s: function %d has %.1f %%, not %.0f %%", arguments, i, share,
				  function_shares_truth[i]);
	}
	unlink(path);
}

TEST(sample, run_writes_the_shares_that_the_guest_spent)
{
	GUEST_REQUIRED();
	check_shares("-F 2000 --append program=shares_rounds=500");
	check_shares("-F 4000 -z --append program=shares_rounds=300_timer=100");
}

struct space_shares {
	struct symbols *symbols;
	struct {
		uint32_t pid;
		uint64_t cr3;
		double weight; /* of its samples in share_ten */
	} of[8];
	size_t count;
	double weight, squares; /* of all samples in share_ten */
};

static int see_space(void *context, uint32_t pid, uint32_t tid, const char *comm, uint64_t time)
{
	struct space_shares *shares = context;

	if (shares->count < 8 && sscanf(comm, "cr3 %lx", &shares->of[shares->count].cr3) == 1)
		shares->of[shares->count++].pid = pid;
	return 0;
}

static int count_space(void *context, const struct perf_data_sample *sample)
{
	struct space_shares *shares = context;
	struct symbol symbol;

	if (!symbols_find(shares->symbols, sample->ip, &symbol) || strcmp(symbol.name, "share_ten"))
		return 0;
	shares->weight += (double)sample->period;
	shares->squares += (double)sample->period * (double)sample->period;
	for (size_t i = 0; i < shares->count; i++)
		if (shares->of[i].pid == sample->pid)
			shares->of[i].weight += (double)sample->period;
	return 0;
}

/* The two address spaces with most of the time in percent, the larger first. */
static void two_largest(const struct space_shares *shares, double largest[2])
{
	largest[0] = largest[1] = 0;
	for (size_t i = 0; i < shares->count; i++) {
		double share =
			100 * shares->of[i].weight / (shares->weight > 0 ? shares->weight : 1);

		if (share > largest[0]) {
			largest[1] = largest[0];
			largest[0] = share;
		} else if (share > largest[1]) {
			largest[1] = share;
		}
	}
}

/* perf, if it is installed, shows them with the program's symbols. */
static void check_perf_shows_spaces(const char *path)
{
	char command[256];

	if (system("perf --version > /dev/null 2>&1"))
		return;
	snprintf(
		command, sizeof(command),
		"perf script -i %s -F comm,sym,ip --no-inline 2> /dev/null | grep -A 2 '^cr3 [0-9a-f]' | "
		"grep -q share_ten",
		path);
	CHECK_EQUAL(system(command), 0);
}

/* The same code in two address spaces of a guest that is not Linux: each CR3 is a process. */
TEST(sample, run_distinguishes_address_spaces_of_a_program)
{
	struct space_shares shares = { 0 };
	struct perf_data_events events = { .comm = see_space,
					   .sample = count_space,
					   .context = &shares };
	struct perf_data_reader *reader;
	char path[64], arguments[256];
	double largest[2], bound;

	GUEST_REQUIRED();
	snprintf(path, sizeof(path), "build/test-run-%d.data", getpid());
	snprintf(arguments, sizeof(arguments),
		 GUEST "-o %s -F 2000 --append program=spaces_rounds=500", path);
	program_expect(arguments, 0, "samples in");
	REQUIRE_EQUAL(elf_symbols_load(&shares.symbols, GUEST_IMAGE, ELF_VIRTUAL_ADDRESSES,
				       (struct span){ 0 }),
		      0);
	REQUIRE_EQUAL(perf_data_reader_open(&reader, path), 0);
	CHECK_EQUAL(perf_data_reader_run(reader, &events), 0);
	perf_data_reader_close(reader);
	two_largest(&shares, largest);
	CHECK(shares.weight > 0);
	bound = share_bound(effective_samples(shares.weight, shares.squares), 0.7, 5);
	if (fabs(largest[0] - 70) > bound || fabs(largest[1] - 30) > bound)
		FAIL_TEST("the address spaces have %.1f and %.1f %%, not 70 and 30", largest[0],
			  largest[1]);
	check_perf_shows_spaces(path);
	symbols_free(shares.symbols);
	unlink(path);
}

/* The outcome depends on this KVM. Code at CPL 3 must not count. */
TEST(run, interpreting_kvm_is_reported)
{
	struct program program;
	bool named;

	GUEST_REQUIRED();
	program_run(&program,
		    "run --no-profile --kernel " GUEST_IMAGE " --duration 3 --append program=spin");
	CHECK(!strstr(program.text, "this KVM interprets"));
	program_start(&program, "run --no-profile --kernel " GUEST_IMAGE
				" --duration 12 --append program=spin_cpl=0");
	named = program_wait_for(&program, "this KVM interprets");
	kill(program.pid, SIGTERM);
	program_wait(&program);
	if (!named)
		SKIP("this KVM runs guest kernel code natively");
	CHECK(strstr(program.text, "see kvmscope doctor"));
}

static struct termios terminal_settings(int terminal)
{
	struct termios settings;

	memset(&settings, 0, sizeof(settings));
	tcgetattr(terminal, &settings);
	return settings;
}

#define SCREEN_SIZE 4096

/*
 * Reads the terminal's output into SEEN until it contains TEXT. Returns false if the other end is
 * closed.
 */
static bool terminal_shows(int terminal, const char *text, char seen[SCREEN_SIZE])
{
	size_t size = 0;
	ssize_t count;

	while (size < SCREEN_SIZE - 1 &&
	       (count = read(terminal, seen + size, SCREEN_SIZE - 1 - size)) > 0) {
		size += (size_t)count;
		seen[size] = '\0';
		if (strstr(seen, text))
			return true;
	}
	return false;
}

/* Ctrl-C goes to the guest, Ctrl-A x ends it. The terminal's settings are restored. */
TEST(run, terminal_is_the_guest_s_until_ctrl_a_x)
{
	struct termios before, during, after;
	int terminal, other_end, status;
	char seen[SCREEN_SIZE] = "";
	pid_t child;

	GUEST_REQUIRED();
	REQUIRE_EQUAL(openpty(&terminal, &other_end, NULL, NULL, NULL), 0);
	before = terminal_settings(terminal);
	fflush(NULL);
	child = fork();
	if (!child) {
		login_tty(other_end);
		program_exec("run --no-profile --kernel " GUEST_IMAGE
			     " --timeout 250 --append program=spin");
	}
	CHECK(terminal_shows(terminal, "spinning", seen));
	CHECK(strstr(seen, "Ctrl-A x ends the guest"));
	during = terminal_settings(terminal);
	CHECK(!(during.c_lflag & (ICANON | ECHO | ISIG)));
	CHECK_EQUAL(write(terminal, "\003\001x", 3), 3);
	CHECK_EQUAL(waitpid(child, &status, 0), child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	after = terminal_settings(terminal);
	CHECK_EQUAL(after.c_lflag, before.c_lflag);
	CHECK_EQUAL(after.c_iflag, before.c_iflag);
	close(terminal);
	close(other_end);
}

/* Ending one guest ends the demo: the next one is not started. */
TEST(run, an_ended_demo_boots_no_other_guest)
{
	char arguments[160], directory[] = "/tmp/kvmscope-demo-XXXXXX", command[64];
	struct program demo;

	GUEST_REQUIRED();
	REQUIRE(mkdtemp(directory) != NULL);
	snprintf(arguments, sizeof(arguments),
		 "demo --kernel " GUEST_IMAGE " --initrd README.md --output %s", directory);
	program_start(&demo, arguments);
	CHECK(program_wait_for(&demo, "spinning"));
	kill(demo.pid, SIGINT);
	program_wait(&demo);
	CHECK_EQUAL(demo.status, 0);
	CHECK(strstr(demo.text, "ended by the user") && !strstr(demo.text, "with the guest agent"));
	snprintf(command, sizeof(command), "rm -r %s", directory);
	CHECK(!system(command)); /* NOLINT(cert-env33-c): the test's own command */
}
