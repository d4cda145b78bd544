// SPDX-License-Identifier: Apache-2.0
/*
 * Watches of variables of Debian's kernel against the truth: a program that
 * has one of them written a known number of times.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/rig/rig.h"
#include "vmm/profile/perf_data_reader.h"

#define WRITES 10000

struct seen {
	unsigned long clock, hits, others;
	unsigned long chains; /* hits whose callchain has more than the place itself */
};

static int see_sample(void *context, const struct perf_data_sample *sample)
{
	struct seen *seen = context;

	if (sample->event == 0)
		seen->clock++;
	else if (sample->event == 1)
		seen->hits += sample->period;
	else
		seen->others++;
	if (sample->event == 1 && sample->callchain_size > 4)
		seen->chains++;
	return 0;
}

static struct seen read_recording(const char *path)
{
	struct perf_data_reader *reader;
	struct seen seen = { 0 };

	if (perf_data_reader_open(&reader, path)) {
		FAIL_TEST("no recording in %s", path);
		return seen;
	}
	CHECK_EQUAL(perf_data_reader_run(
			    reader, &(struct perf_data_events){ .sample = see_sample, .context = &seen }),
		    0);
	perf_data_reader_close(reader);
	return seen;
}

#define COMMAND                                                                                              \
	"build/kvmscope run --kernel %s --initrd %s --mem 256M -F 99 -o %s --no-buildid-cache "              \
	"--watch panic_timeout:4:w --watch jiffies_64:8:w,period=50 "                                        \
	"--append 'console=ttyS0 quiet kvmscope.run=workload+writes+%d'"

/* Every write is one hit in the profile, called from the system call. */
static void check_hits(const struct rig_result *result, const char *path)
{
	struct seen seen;

	if (result->status || !strstr(result->output, "workload: written")) {
		FAIL_TEST("the guest did not run: %.2000s%.2000s", result->output, result->errors);
		return;
	}
	seen = read_recording(path);
	printf("%lu hits of %d writes, %lu with callers; %lu samples of the clock, %lu of jiffies_64\n",
	       seen.hits, WRITES, seen.chains, seen.clock, seen.others);
	CHECK_EQUAL(seen.hits, WRITES);
	CHECK_EQUAL(seen.chains, seen.hits);
	CHECK(seen.clock > 0);
	CHECK(seen.others > 0);
	CHECK(strstr(result->errors, "mem:panic_timeout:w: 10000 hits"));
}

TEST(watch_rig, every_write_of_a_kernel_variable_is_one_hit)
{
	const char *kernel, *initrd, *data = "build/rig/watch.data";
	struct rig_result result;

	RIG_DEBUG_REGISTERS_REQUIRED();
	kernel = rig_kernel("6.1");
	initrd = rig_initrd("6.1");
	if (!kernel || !initrd)
		return;
	rig_run(&result, 400, COMMAND, kernel, initrd, data, WRITES);
	check_hits(&result, data);
	rig_result_free(&result);
}

TEST(watch_rig, every_write_is_one_hit_on_kvm_intel)
{
	const char *kernel, *initrd, *data = "build/rig/watch-intel.data";
	struct rig_result result;

	if (rig_intel_unavailable_reason())
		SKIP("no Intel rig: %s", rig_intel_unavailable_reason());
	kernel = rig_kernel("6.1");
	initrd = rig_initrd("6.1");
	if (!kernel || !initrd)
		return;
	rig_run_intel(&result, 500, "mkdir -p build/rig; " COMMAND, kernel, initrd, data, WRITES);
	check_hits(&result, data);
	rig_result_free(&result);
}

/* In turn: the first ones get one more where COUNT is no multiple. */
static void check_guest_s(const char *output, int registers, int count)
{
	char line[128];
	int length = snprintf(line, sizeof(line), "workload: %d breakpoints counted", registers);

	for (int i = 0; i < registers; i++)
		length += snprintf(line + length, sizeof(line) - (size_t)length, " %d",
				   (count + registers - 1 - i) / registers);
	snprintf(line + length, sizeof(line) - (size_t)length, " of %d", count);
	if (!strstr(output, line))
		FAIL_TEST("the guest did not print '%s'", line);
}

/* Writes to what each side watches, for each number of the guest's own breakpoints; Bochs is slow. */
#define BREAKPOINTS       10000
#define BREAKPOINTS_INTEL 500

/* The guest's own breakpoints and a watch of ours: each gets all of its hits, and nobody those of another. */
static void check_coexistence(const struct rig_result *result, const char *path, int count)
{
	struct seen seen;

	if (result->status) {
		FAIL_TEST("the guest did not run: %.2000s%.2000s", result->output, result->errors);
		return;
	}
	for (int registers = 1; registers <= 4; registers++)
		check_guest_s(result->output, registers, count);
	seen = read_recording(path);
	CHECK_EQUAL(seen.hits, 4 * count);
	printf("%lu hits of %d writes beside the guest's own\n", seen.hits, 4 * count);
	CHECK(strstr(result->errors, "is suspended on vCPU 0 while the guest uses its debug registers"));
}

#define BOTH_COMMAND                                                                                         \
	"build/kvmscope run --kernel %s --initrd %s --mem 256M -F 99 -o %s --no-buildid-cache "              \
	"--watch panic_timeout:4:w "                                                                         \
	"--append 'console=ttyS0 quiet kvmscope.run=workload+breakpoints+%d'"

TEST(watch_rig, guest_s_own_breakpoints_work_beside_a_watch)
{
	const char *kernel, *initrd, *data = "build/rig/watch-both.data";
	struct rig_result result;

	RIG_DEBUG_REGISTERS_REQUIRED();
	kernel = rig_kernel("6.1");
	initrd = rig_initrd("6.1");
	if (!kernel || !initrd)
		return;
	rig_run(&result, 590, BOTH_COMMAND, kernel, initrd, data, BREAKPOINTS);
	check_coexistence(&result, data, BREAKPOINTS);
	rig_result_free(&result);
}

TEST(watch_rig, guest_s_own_breakpoints_work_beside_a_watch_on_kvm_intel)
{
	const char *kernel, *initrd, *data = "build/rig/watch-both-intel.data";
	struct rig_result result;

	if (rig_intel_unavailable_reason())
		SKIP("no Intel rig: %s", rig_intel_unavailable_reason());
	kernel = rig_kernel("6.1");
	initrd = rig_initrd("6.1");
	if (!kernel || !initrd)
		return;
	rig_run_intel(&result, 500, "mkdir -p build/rig; " BOTH_COMMAND, kernel, initrd, data,
		      BREAKPOINTS_INTEL);
	check_coexistence(&result, data, BREAKPOINTS_INTEL);
	rig_result_free(&result);
}

/* With three of the guest's own, a pinned watch has room; with four, it has the register of one of them, and
 * says so. */
TEST(watch_rig, host_may_come_first_and_the_guest_s_loss_is_said)
{
	const char *kernel, *initrd, *data = "build/rig/watch-host.data";
	struct rig_result result;

	RIG_DEBUG_REGISTERS_REQUIRED();
	kernel = rig_kernel("6.1");
	initrd = rig_initrd("6.1");
	if (!kernel || !initrd)
		return;
	rig_run(&result, 400,
		"build/kvmscope run --bp-priority host --kernel %s --initrd %s --mem 256M -F 99 -o %s "
		"--no-buildid-cache --watch panic_timeout:4:w,pinned "
		"--append 'console=ttyS0 quiet kvmscope.run=workload+breakpoints+100'",
		kernel, initrd, data);
	CHECK_EQUAL(result.status, 0);
	for (int registers = 1; registers <= 3; registers++)
		check_guest_s(result.output, registers, 100);
	CHECK(strstr(result.output, "workload: 4 breakpoints counted"));
	CHECK(!strstr(result.output, "workload: 4 breakpoints counted 25 25 25 25 "));
	CHECK(strstr(result.errors, "a breakpoint that the guest set itself does not work for it"));
	CHECK(strstr(result.errors, "times a breakpoint of the guest's own did not work for it"));
	CHECK_EQUAL(read_recording(data).hits, 4 * 100);
	rig_result_free(&result);
}
