/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Debian's perf in a guest with the emulated PMU, which --pmu auto enables, while the guest is
 * sampled from outside: compared with a workload that measures its own shares.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/rig/rig.h"

#define SCRIPT "mount+-t+ext4+-o+ro+/dev/vda+/mnt+&&+sh+/mnt/script"

/*
 * The features in tests/guests/program_pmu.c that only Intel's PMU has; a standard KVM has them
 * nowhere else.
 */
#define OWN_GUESTS                                                                                                \
	"for part in registers count halt masked freeze 'overflow pmis=20' 'overflow pmis=20 cpl=0' "             \
	"'overflow pmis=20 by=vector' 'overflow pmis=20 apic=x2' 'overflow pmis=20 apic=x2 by=vector cpl=0'; do " \
	"build/kvmscope run --no-control --no-profile --timeout 60 --mem 64M "                                    \
	"--kernel build/guests/guest.elf --append \"program=pmu loops=10000000 pmu=$part\"; "                     \
	"[ $? = 0 ] || { echo \"$part: wrong\"; exit 1; }; done; "

/*
 * The guest's counters stop while a sample is recorded from outside, which is rare in an emulator.
 */
#define COMMAND                                                                                    \
	"mkdir -p build/rig; build/kvmscope-tests --gtest_filter=vcpu_debug.*:rdpmc_traps.*; "     \
	"build/kvmscope run --sampler kick --timeout %d --mem 256M -F 9 -o %s --no-buildid-cache " \
	"--kernel %s --initrd %s --disk %s "                                                       \
	"--append 'console=ttyS0 quiet panic=-1 " QUICK_BOOT " kvmscope.run=" SCRIPT               \
	"' < /dev/null"

/* The minimum on a busy machine. */
#define SAMPLES_MIN 30

/* Linux's tick in both rigs. */
#define TICK_US 4000

/* The number on the line that begins with NAME, searched from AT; NaN: not found. */
static double number_after(const char *at, const char *name)
{
	const char *found = strstr(at, name);
	double number;

	return found && sscanf(found + strlen(name), "%lf", &number) == 1 ? number : NAN;
}

static double value_of(const char *output, const char *what)
{
	char name[64];

	snprintf(name, sizeof(name), "guest-perf: %s ", what);
	return number_after(output, name);
}

/*
 * Cycles in the whole guest divided by the TSC's count for the time that the guest ran by its own
 * account: real time less idle time and less steal time.
 */
static void check_all_cycles(const char *output)
{
	double ran = value_of(output, "all cpu-clock") - 10 * value_of(output, "away");
	double share = value_of(output, "all cycles") / (ran * value_of(output, "mhz") * 1e3);

	printf("the guest ran for %.0f ms; its cycles are %.2f %% of that\n", ran, 100 * share);
	CHECK(share > 0.98);
	CHECK(share < 1.02);
}

/*
 * Cycles of one task relative to the time for which it ran. Its task-clock is longer: it includes
 * steal time, and the time for stopping and starting counters at each context switch of the task,
 * in exits to kvmscope. The cost of a switch is estimated from other switches.
 */
static void check_task_cycles(const char *output)
{
	double clock = value_of(output, "stat task-clock"), stolen = 10 * value_of(output, "steal");
	double switches =
		value_of(output, "stat context-switches") * value_of(output, "switch") / 1e3;
	double counted = value_of(output, "stat cycles") / (value_of(output, "mhz") * 1e3);

	printf("task-clock %.0f ms, %.0f stolen, %.0f in switches; its cycles are %.0f ms\n", clock,
	       stolen, switches, counted);
	CHECK(counted > 0.98 * (clock - stolen - switches));
	CHECK(counted < 1.02 * clock);
}

/* Programs may not execute RDPMC, which KVM would answer: they use read(2), which is correct. */
static void check_rdpmc(const char *output)
{
	if (!strstr(output, "guest-perf: rdpmc: mapped 0, read 1, without 11"))
		FAIL_TEST("%.100s", strstr(output, "guest-perf: rdpmc")
					    ? strstr(output, "guest-perf: rdpmc")
					    : "no rdpmc");
}

/* The workload's own line for the recorded run: the first one after those of perf stat. */
static double truth_of_record(const char *output)
{
	const char *counted = strstr(output, "guest-perf: all cpu-clock");

	return counted ? number_after(counted, "hash_block=") : NAN;
}

/*
 * The deviation of the share of one of two parts in COUNT random samples: four standard deviations.
 */
static double share_bound(double share, double count)
{
	return 4 * sqrt(share * (1 - share) / count);
}

/* EXACT: in this emulator the machine's load does not affect the time between two samples. */
static void check_record(const char *output, bool exact)
{
	double hash = value_of(output, "hash"), count = hash + value_of(output, "sort");
	double truth = truth_of_record(output);

	printf("%.0f samples, %.0f with callers; hash_block %.3f of %.0f, the truth is %.3f\n",
	       value_of(output, "samples"), value_of(output, "chains"), hash / count, count, truth);
	CHECK(count >= SAMPLES_MIN);
	CHECK(value_of(output, "chains") >= hash);
	CHECK(fabs(hash / count - truth) < share_bound(truth, exact ? count : SAMPLES_MIN));
}

/* Apart from perf top itself. */
static void check_top(const char *output)
{
	printf("perf top: %.1f %% in hash_block\n", value_of(output, "top"));
	if (strstr(output, "guest-perf: shown"))
		FAIL_TEST("perf top: %.3000s", strstr(output, "guest-perf: shown"));
	CHECK(value_of(output, "top") > 5);
}

static void check(const struct rig_result *result, bool exact)
{
	const char *output = result->output;

	if (result->status || !strstr(output, "guest-perf: end")) {
		FAIL_TEST("the guest did not run: %.4000s%.4000s", output, result->errors);
		return;
	}
	CHECK(strstr(output, "[  PASSED  ] 7 tests."));
	CHECK(strstr(result->errors, "is trapped in native_read_pmc+"));
	if (strstr(output, "guest-perf: bad"))
		FAIL_TEST("%.400s", strstr(output, "guest-perf: bad"));
	check_task_cycles(output);
	check_rdpmc(output);
	check_all_cycles(output);
	check_record(output, exact);
	check_top(output);
	/* The profile from outside continues during the test. */
	CHECK(number_after(result->errors, "passed on\nkvmscope: ") > 60);
}

/*
 * A tick is that of the kernel that provides the clock. The guest's Linux, the last of them,
 * sometimes also waits for work of that kernel, which a kick does not interrupt.
 */
static void check_overflows(const char *errors)
{
	static const char line[] = " overflows were reported, ";
	unsigned int lines = 0;

	for (const char *at = errors; (at = strstr(at, line)); at += sizeof(line), lines++) {
		double average = number_after(at, line), most = number_after(at, "on average and ");

		printf("overflows were reported with a delay of %.0f us on average, %.0f us at most\n",
		       average, most);
		CHECK(average < TICK_US);
		CHECK(most < TICK_US || !strstr(at + sizeof(line), line));
	}
	CHECK(lines > 1);
}

static const char *make_disk(void)
{
	if (system("tests/rig/perf-disk build/rig/guest-perf.ext4 tests/rig/guest-perf > /dev/null"))
		return NULL;
	return "build/rig/guest-perf.ext4";
}

TEST(guest_perf, guest_perf_counts_and_records_on_kvm_amd)
{
	const char *kernel, *initrd, *disk;
	struct rig_result result;

	RIG_DEBUG_REGISTERS_REQUIRED();
	kernel = rig_kernel("6.1");
	initrd = rig_initrd("6.1");
	disk = make_disk();
	REQUIRE(disk);
	if (!kernel || !initrd)
		return;
	rig_run(&result, 500, COMMAND, 480, "build/rig/guest-perf.data", kernel, initrd, disk);
	check(&result, false);
	/* Linux has no ref-cycles event for the rig's processor, which is of family 0FH. */
	CHECK(strstr(result.output, "guest-perf: stat ref-cycles <not supported>"));
	rig_result_free(&result);
}

/* The clock of this rig is its instruction count: long work never finishes. */
TEST(guest_perf, guest_perf_counts_and_records_on_kvm_intel)
{
	const char *kernel, *initrd, *disk;
	struct rig_result result;

	RIG_INTEL_REQUIRED();
	kernel = rig_kernel("6.1");
	initrd = rig_initrd("6.1");
	disk = make_disk();
	REQUIRE(disk);
	if (!kernel || !initrd)
		return;
	rig_run_on(&result, RIG_INTEL, 800, OWN_GUESTS COMMAND, 280,
		   "build/rig/guest-perf-intel.data", kernel, initrd, disk);
	check(&result, true);
	check_overflows(result.errors);
	CHECK(fabs(value_of(result.output, "stat ref-cycles") /
			   value_of(result.output, "stat cycles") -
		   1) < 0.02);
	rig_result_free(&result);
}
